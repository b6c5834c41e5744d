/* Shared memory of the program's: pages with a home and a grain. */
#include "rank.h"

/* The rank at which a page of an allocation is at home. */
static int home_of(size_t page, size_t pages, int home)
{
	if (home == DSM_BLOCKS)
		return (int)(page * (size_t)conf.ranks / pages);
	if (home == DSM_TURNS)
		return (int)(page % (size_t)conf.ranks);
	return home;
}

/* The largest power of two up to 8 that divides the size of an element. */
static uint8_t grain_of(size_t element)
{
	uint8_t g = 8;
	while (element % g != 0)
		g /= 2;
	return g;
}

/* Returns where bytes of memory begin, for elements of some size. */
size_t alloc_pages(size_t bytes, size_t element, int home)
{
	size_t off = mem.used, pages = bytes / PAGE + (bytes % PAGE != 0);
	if (home < DSM_TURNS || home >= conf.ranks)
		fail("dsm_alloc: memory is to be at home at rank %d of %d", home, conf.ranks);
	if (bytes > mem.size - off || pages * PAGE > mem.size - off)
		fail("dsm_alloc: %zu bytes are left of %zu, and %zu are wanted; set dsm_config.memory or EDGE_DSM_MIB",
		     mem.size - off, mem.size, bytes);
	for (size_t i = 0, p = off / PAGE; i < pages; i++, p++) {
		mem.home[p] = (uint8_t)home_of(i, pages, home);
		mem.grain[p] = grain_of(element);
		mem.digest = mix(mem.digest ^ mem.home[p]);
	}
	mem.digest = mix(mem.digest ^ (uint64_t)bytes << 16 ^ element);
	mem.used += pages * PAGE;
	return off;
}

void *dsm_alloc(size_t n, size_t element, int home)
{
	if (element == 0 || n > mem.size / element)
		fail("dsm_alloc: %zu elements of %zu bytes do not fit into %zu bytes; set dsm_config.memory or EDGE_DSM_MIB", n,
		     element, mem.size);
	return mem.app + alloc_pages(n * element, element, home);
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
