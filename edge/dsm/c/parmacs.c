/*
 * What the macros of PARMACS need beyond dsm.c. Their programs make processes in the middle, by a CREATE that works
 * like fork: each has a copy of all variables, and the memory of G_MALLOC is shared. Ranks are processes from the
 * beginning. So each runs the program up to CREATE on memory of its own, at the addresses of the shared memory, with
 * the same arguments and input; there the memory of rank 0 becomes everybody's. Up to CREATE only rank 0 writes to
 * standard output.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rank.h"

enum { LOCKS = 8192, ALIGN = 64, SMALL = 64 << 10, NAP_NS = 50000 };

static bool begun, created;
static int output = -1; /* what standard output was */
static int nlocks;
static struct { size_t at, end; } pool; /* of small allocations: before CREATE everybody's, then this rank's own */
static size_t grain = 4;
static int home = DSM_BLOCKS;

/* Bytes that no two ranks write without order: 4 by default, since these programs have arrays of int. */
static void choose(void)
{
	const char *g = getenv("EDGE_DSM_GRAIN"), *h = getenv("EDGE_DSM_HOMES");
	if (g != NULL && g[0] != 0) {
		grain = (size_t)atoi(g);
		if (grain != 1 && grain != 2 && grain != 4 && grain != 8)
			fail("EDGE_DSM_GRAIN=%s: choose 1, 2, 4 or 8", g);
	}
	if (h != NULL && strcmp(h, "turns") == 0)
		home = DSM_TURNS;
	else if (h != NULL && h[0] != 0 && strcmp(h, "blocks") != 0)
		fail("EDGE_DSM_HOMES=%s: choose blocks or turns", h);
}

void dsm_parmacs_init(void)
{
	if (begun)
		return;
	begun = true;
	begin(&(dsm_config){ .size = sizeof(dsm_config), .locks = LOCKS }, false);
	choose();
	if (conf.rank == 0)
		return;
	fflush(stdout);
	output = dup(STDOUT_FILENO);
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (output < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0)
		fail("standard output cannot be set aside; raise the limit of open files");
	close(null);
}

void *dsm_parmacs_malloc(size_t size)
{
	dsm_parmacs_init(); /* programs allocate before MAIN_INITENV */
	size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!created && size >= PAGE)
		return mem.app + alloc_pages(size, grain, home);
	if (size > pool.end - pool.at) {
		if (created)
			fail("G_MALLOC: %zu bytes are left of this rank's part, and %zu are wanted; set EDGE_DSM_MIB",
			     pool.end - pool.at, size);
		pool.at = alloc_pages(SMALL, grain, home);
		pool.end = pool.at + SMALL;
	}
	pool.at += size;
	return mem.app + pool.at - size;
}

/* After CREATE: half of what is left is for what ranks allocate from now on, in equal parts. */
static void share_out(void)
{
	size_t each = (mem.size - mem.used) / 2 / (size_t)conf.ranks / PAGE * PAGE;
	for (int r = 0; r < conf.ranks; r++) {
		size_t at = alloc_pages(each, grain, r);
		if (r == conf.rank) {
			pool.at = at;
			pool.end = at + each;
		}
	}
}

/* Takes over what rank 0 has written so far, page by page that is not zero, as changes that it made. */
static void take_over(void)
{
	static const unsigned char zero[PAGE];
	for (size_t p = 0; p < mem.used / PAGE; p++) {
		if (memcmp(mem.app + p * PAGE, zero, PAGE) == 0)
			continue;
		memcpy(mem.raw + p * PAGE, mem.app + p * PAGE, PAGE);
		mem.state[p] = DIRTY; /* its twin is zero, as all memory was */
		mem.dirty[mem.ndirty++] = (uint32_t)p;
	}
}

int dsm_parmacs_create(int processes)
{
	if (created)
		return 0; /* further ones of a loop that makes a process each */
	dsm_parmacs_init();
	if (processes != 0 && processes != conf.ranks)
		fail("the program makes %d processes, and the run has %d ranks; give it that number", processes, conf.ranks);
	if (conf.rank == 0 && conf.ranks > 1)
		take_over();
	share_out();
	created = true;
	if (conf.ranks == 1)
		return 0;
	show_memory();
	if (output >= 0) {
		fflush(stdout); /* it goes where what was written before went */
		dup2(output, STDOUT_FILENO);
		close(output);
	}
	dsm_barrier();
	return conf.rank != 0;
}

/* Rank 0 goes on alone. The others stay until it ends, since it may read what is at home there. */
void dsm_parmacs_wait(void)
{
	dsm_barrier();
	if (conf.rank != 0)
		dsm_parmacs_end();
}

void dsm_parmacs_end(void)
{
	dsm_exit();
	exit(0);
}

/* Half of the numbers are for locks that are made before CREATE, the same at all ranks; the others are shared out. */
int dsm_parmacs_lock(void)
{
	dsm_parmacs_init();
	static int own;
	int half = conf.locks / 2, each = half / conf.ranks;
	if (created ? own == each : nlocks == half)
		fail("LOCKINIT: there are no more than %d locks%s", created ? each : half,
		     created ? " of a rank after CREATE" : "");
	return created ? half + conf.rank * each + own++ : nlocks++;
}

void dsm_parmacs_barrier(int processes)
{
	if (processes != 0 && processes != conf.ranks)
		fail("a BARRIER of %d processes: all %d ranks have to be in it", processes, conf.ranks);
	dsm_barrier();
}

void dsm_parmacs_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

void dsm_parmacs_await(int lock, const volatile int *flag)
{
	for (;;) {
		dsm_lock(lock);
		int set = *flag;
		dsm_unlock(lock);
		if (set)
			return;
		dsm_parmacs_nap();
	}
}

unsigned long dsm_parmacs_clock(void)
{
	return (unsigned long)(now_ns() / 1000);
}
