/* Pages: their two views, their states, and how they come here (DSM section 3). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rank.h"

/* Where the program sees the memory, at all ranks, so that pointers mean the same: far from what kernels choose. */
#define BASE ((void *)(uintptr_t)0x200000000000)

enum {
	MOST_REACH = 16, /* pages that a sweep fetches at once */
	MOST_GAP = 64    /* pages between two of a list that a call of mprotect may cover, too */
};

static unsigned char *view; /* of the shared bytes, until it moves to BASE */

static void *map(void *at, int flags, int fd)
{
	void *p = mmap(at, conf.memory, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		fail("%zu bytes of memory cannot be mapped: %s", conf.memory, strerror(errno));
	if (at != NULL && p != at) /* a kernel that does not know MAP_FIXED_NOREPLACE */
		fail("the addresses of the shared memory are taken: %p", at);
	return p;
}

static void *table(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (p == NULL)
		fail("malloc failed for the tables of %zu pages", mem.pages);
	return p;
}

/* Makes the memory. app is private until pages_show. Returns the memfd of the shared bytes, -1 if this is the only
 * rank. Both views of it are mapped here: once it is registered its seal forbids further ones that can be written. */
int pages_make(void)
{
	if ((size_t)sysconf(_SC_PAGESIZE) != PAGE)
		fail("this kernel has pages of %ld bytes; ranks in C need one with pages of %zu", sysconf(_SC_PAGESIZE), PAGE);
	mem.size = conf.memory;
	mem.pages = conf.memory / PAGE;
	mem.app = mem.raw = map(BASE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
	mem.home = table(mem.pages, 1);
	mem.grain = table(mem.pages, 1);
	know.asked = table((size_t)conf.locks, 1);
	know.held = table((size_t)conf.locks, 1);
	if (conf.ranks == 1)
		return -1;
	mem.state = table(mem.pages, 1);
	memset(mem.state, CLEAN, mem.pages); /* all is zero everywhere until somebody says that he changed it */
	mem.dirty = table(mem.pages, sizeof *mem.dirty);
	mem.changed = table(mem.pages, sizeof *mem.changed);
	int fd = memfd_create("dsm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)conf.memory) != 0)
		fail("a memfd of %zu bytes cannot be made: %s", conf.memory, strerror(errno));
	mem.raw = map(NULL, MAP_SHARED, fd);
	view = map(NULL, MAP_SHARED, fd);
	mem.twin = map(NULL, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	return fd;
}

/* Changes what pages first up to last may be used for. */
static void protect(size_t first, size_t last, enum state s)
{
	static const int allow[] = { [STALE] = PROT_NONE, [CLEAN] = PROT_READ, [DIRTY] = PROT_READ | PROT_WRITE };
	stats.protects++;
	if (mprotect(mem.app + first * PAGE, (last - first) * PAGE, allow[s]) == 0)
		return;
	if (errno == ENOMEM)
		fail("the kernel has no room for more mappings; raise vm.max_map_count, or keep what a rank writes together");
	fail("mprotect: %s", strerror(errno));
}

/* Has app show the shared bytes, protected by their states. */
void pages_show(void)
{
	if (mremap(view, mem.size, mem.size, MREMAP_MAYMOVE | MREMAP_FIXED, mem.app) != mem.app)
		fail("mremap: %s", strerror(errno));
	mem.shown = true;
	for (size_t p = 0, q; p < mem.pages; p = q) {
		for (q = p + 1; q < mem.pages && mem.state[q] == mem.state[p]; q++)
			;
		protect(p, q, mem.state[p]);
	}
}

/* The memory is gone: it is no part of the daemon's any more. */
void pages_free(void)
{
	munmap(mem.app, mem.size);
	if (conf.ranks > 1) {
		munmap(mem.raw, mem.size);
		munmap(mem.twin, mem.size);
	}
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Whether pages first up to last are all in a state. */
static bool all_are(size_t first, size_t last, enum state s)
{
	while (first < last && mem.state[first] == s)
		first++;
	return first == last;
}

/* Gives the pages of a list a state. mprotect takes as long for one page as for very many, so runs of them change
 * together, and so do runs with pages between them that have the state already. */
void set_states(uint32_t *list, size_t n, enum state s)
{
	qsort(list, n, sizeof *list, by_number);
	for (size_t i = 0; i < n; i++)
		mem.state[list[i]] = (uint8_t)s;
	for (size_t i = 0, j; i < n; i = j) {
		for (j = i + 1; j < n && list[j] - list[j - 1] <= MOST_GAP && all_are(list[j - 1] + 1, list[j], s); j++)
			;
		protect(list[i], list[j - 1] + 1, s);
	}
}

/* Has all of pages first up to last here: one read for each run of stale ones with one home, all posted before the
 * first is waited for (DSM clause 3.5). */
void fetch(size_t first, size_t last)
{
	uint64_t start = now_ns();
	bool any = false;
	for (size_t p = first, q; p < last; p = q) {
		for (q = p + 1; q < last && mem.state[q] == mem.state[p] && mem.home[q] == mem.home[p]; q++)
			;
		if (mem.state[p] != STALE)
			continue;
		any = true;
		if (!away(p))
			continue; /* noticed before it was allocated. A copy onto itself would undo what others write meanwhile */
		net_read(mem.home[p], DATA, p * PAGE, p * PAGE, (q - p) * PAGE);
		stats.fetches++;
		stats.pages += q - p;
	}
	if (!any)
		return;
	net_wait();
	for (size_t p = first, q; p < last; p = q) {
		q = p + 1;
		if (mem.state[p] != STALE)
			continue;
		while (q < last && mem.state[q] == STALE)
			q++;
		memset(mem.state + p, CLEAN, q - p);
		protect(p, q, CLEAN);
	}
	stats.data_ns += now_ns() - start;
}

/* Makes pages first up to last, none of which is stale, dirty: with a twin away from home. */
void begin_writing(size_t first, size_t last)
{
	for (size_t p = first, q; p < last; p = q) {
		q = p + 1;
		if (mem.state[p] == DIRTY)
			continue;
		while (q < last && mem.state[q] == CLEAN)
			q++;
		for (size_t i = p; i < q; i++) {
			if (away(i)) {
				memcpy(mem.twin + i * PAGE, mem.raw + i * PAGE, PAGE);
				stats.twins++;
			}
			mem.state[i] = DIRTY;
			mem.dirty[mem.ndirty++] = (uint32_t)i;
		}
		protect(p, q, DIRTY);
	}
}

/* Does what an access to a page needs. Where the processor does not say whether it writes, one to a page that can be
 * read does, and another faults once more. A sweep over stale pages fetches more and more of them at once. */
void page_fault(size_t p, bool writes)
{
	stats.faults++;
	if (p >= mem.used / PAGE)
		fail("byte %zu of the shared memory is used, and is not allocated", p * PAGE);
	if (mem.state[p] == STALE) {
		size_t q = p + 1;
		mem.reach = p != mem.next ? 1 : mem.reach < MOST_REACH ? 2 * mem.reach : MOST_REACH;
		while (q < mem.used / PAGE && q - p < mem.reach && mem.state[q] == STALE && mem.home[q] == mem.home[p])
			q++;
		mem.next = q;
		fetch(p, q);
	} else {
		writes = true;
	}
	if (writes)
		begin_writing(p, p + 1);
}
