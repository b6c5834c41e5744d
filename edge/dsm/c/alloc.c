/* Shared memory of the program's: pages with a home and a grain. */
#include "rank.h"

static int blocks(size_t page, size_t pages, int ranks)
{
	return (int)(page * (size_t)ranks / pages);
}

static int turns(size_t page, size_t pages, int ranks)
{
	(void)pages;
	return (int)(page % (size_t)ranks);
}

/* The largest power of two up to 8 that divides the size of an element. */
static uint8_t grain_of(size_t element)
{
	uint8_t g = 8;
	while (element % g != 0)
		g /= 2;
	return g;
}

/* Returns where bytes of memory begin, for elements of some size. Pages are at home at a rank, or where of says. */
static size_t alloc_at(size_t bytes, size_t element, int home, dsm_homes *of)
{
	size_t off = mem.used, pages = bytes / PAGE + (bytes % PAGE != 0);
	if (bytes > mem.size - off || pages * PAGE > mem.size - off)
		fail("dsm_alloc: %zu bytes are left of %zu, and %zu are wanted; set dsm_config.memory or EDGE_DSM_MIB",
		     mem.size - off, mem.size, bytes);
	for (size_t i = 0, p = off / PAGE; i < pages; i++, p++) {
		int at = of != NULL ? of(i, pages, conf.ranks) : home;
		if (at < 0 || at >= conf.ranks)
			fail("dsm_alloc: memory is to be at home at rank %d of %d", at, conf.ranks);
		mem.home[p] = (uint8_t)at;
		mem.grain[p] = grain_of(element);
		mem.digest = mix(mem.digest ^ mem.home[p]);
	}
	mem.digest = mix(mem.digest ^ (uint64_t)bytes << 16 ^ element);
	mem.used += pages * PAGE;
	return off;
}

size_t alloc_pages(size_t bytes, size_t element, int home)
{
	return alloc_at(bytes, element, home, home == DSM_BLOCKS ? blocks : home == DSM_TURNS ? turns : NULL);
}

/* Ends the run if so many elements cannot be. */
static void check_room(size_t n, size_t element)
{
	if (element == 0 || n > mem.size / element)
		fail("dsm_alloc: %zu elements of %zu bytes do not fit into %zu bytes; set dsm_config.memory or EDGE_DSM_MIB", n,
		     element, mem.size);
}

void *dsm_alloc(size_t n, size_t element, int home)
{
	check_room(n, element);
	return mem.app + alloc_pages(n * element, element, home);
}

void *dsm_alloc_homes(size_t n, size_t element, dsm_homes *home)
{
	check_room(n, element);
	return mem.app + alloc_at(n * element, element, 0, home);
}

void dsm_touch(const void *p, size_t size, int write)
{
	size_t off = (size_t)((const unsigned char *)p - mem.app);
	if (off > mem.used || size > mem.used - off)
		fail("dsm_touch: %zu bytes from %p are not all allocated", size, p);
	if (size == 0 || !mem.shown)
		return;
	size_t first = off / PAGE, last = (off + size - 1) / PAGE + 1;
	fetch(first, last);
	if (write)
		begin_writing(first, last);
}
