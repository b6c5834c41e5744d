/* What the program's memory is, as the kernel lists it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define ARENA (64ul << 20) /* where malloc puts the heaps of threads: at multiples of this */

void maps_each(uintptr_t start, uintptr_t end, bool (*look)(const struct mapping *m, void *arg), void *arg)
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

bool maps_has(uintptr_t start, uintptr_t end, ino_t inode)
{
	struct walk w = { .at = start, .end = end, .inode = inode };
	maps_each(start, end, same_file, &w);
	return w.at >= end;
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
