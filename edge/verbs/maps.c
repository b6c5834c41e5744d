/* What the program's memory is, as the kernel lists it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pages.h"

#define ARENA (64ul << 20) /* where malloc puts the heaps of threads: at multiples of this */

bool maps_each(uintptr_t start, uintptr_t end, bool (*look)(const struct mapping *m, void *arg), void *arg)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	while (f != NULL && fgets(line, sizeof line, f) != NULL) {
		unsigned long from, to, inode;
		char mode[5], path[256] = "";
		if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %255s", &from, &to, mode, &inode, path) < 4 || to <= start)
			continue;
		if (from >= end)
			break;
		struct mapping m = { .start = from, .end = to, .inode = inode,
			.heap = strcmp(path, "[heap]") == 0 || from % ARENA == 0,
			.plain = memcmp(mode, "rw-p", 4) == 0 && inode == 0 && strncmp(path, "[stack", 6) != 0 };
		if (!look(&m, arg))
			break;
	}
	if (f != NULL)
		fclose(f);
	return f != NULL;
}

struct walk { uintptr_t at, end; ino_t inode; };

static bool plain_so_far(const struct mapping *m, void *arg)
{
	struct walk *w = arg;
	if (m->start > w->at || !m->plain)
		return false;
	w->at = m->end;
	return w->at < w->end;
}

bool maps_plain(uintptr_t start, uintptr_t end)
{
	struct walk w = { .at = start, .end = end };
	maps_each(start, end, plain_so_far, &w);
	return w.at >= end;
}

static bool same_file(const struct mapping *m, void *arg)
{
	struct walk *w = arg;
	if (m->start > w->at || m->inode != w->inode)
		return false;
	w->at = m->end;
	return w->at < w->end;
}

int maps_has(uintptr_t start, uintptr_t end, ino_t inode)
{
	struct walk w = { .at = start, .end = end, .inode = inode };
	return maps_each(start, end, same_file, &w) ? w.at >= end : -1;
}

static bool first(const struct mapping *m, void *arg)
{
	*(struct mapping *)arg = *m;
	return false;
}

bool maps_heap(uintptr_t at, struct mapping *heap)
{
	*heap = (struct mapping){ 0 };
	maps_each(at, at + 1, first, heap);
	return heap->heap && heap->plain && heap->start <= at && at < heap->end;
}

/* The size of an allocation that malloc mapped at that page, by what malloc (of glibc) writes at its beginning:
 * nothing, and the size with the second bit set; 0: there is none. A copy by the kernel, since the page may go at any
 * time. */
static size_t allocated(uintptr_t page)
{
	size_t head[2];
	struct iovec to = { head, sizeof head }, from = { (void *)page, sizeof head };
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof head)
		return 0;
	return head[0] == 0 && head[1] % PAGE == 2 ? head[1] - 2 : 0;
}

bool maps_allocation(uintptr_t start, uintptr_t end, struct mapping *whole)
{
	struct mapping m = { 0 };
	maps_each(start, start + 1, first, &m);
	if (!m.plain || m.start > start || m.end < end)
		return false;
	enum { LOOKS = 4096 }; /* in memory that malloc did not make there is nothing to find */
	int looks = 0;
	for (uintptr_t page = m.start, size; page <= start && looks++ < LOOKS; page += size != 0 ? size : PAGE) {
		size = allocated(page);
		if (size > m.end - page)
			size = 0;
		if (size > 0 && page + size >= end) {
			*whole = (struct mapping){ .start = page, .end = page + size, .plain = true };
			return true;
		}
	}
	return false;
}
