/* What steps cost, beside the operations they are made of: cost ROUNDS. Two ranks, of which rank 1 measures, to rank 0,
 * and writes a line of JSON for each step. Times are medians in microseconds. It has the library compiled in, for its
 * operations. edgestudy splash --costs runs it. */
#include <stdio.h>
#include <stdlib.h>

#include "net.h"

enum { SWEEP = 64 };

static volatile unsigned char *a;
static int rounds;

static int by_value(const void *x, const void *y)
{
	uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;
	return p < q ? -1 : p > q;
}

static double median(uint64_t *list)
{
	qsort(list, (size_t)rounds, sizeof *list, by_value);
	return (double)list[rounds / 2] / 1000;
}

/* Rank 0 writes all pages, so that they are stale at rank 1. */
static void make_stale(int round)
{
	if (dsm_rank() == 0)
		for (size_t p = 0; p < SWEEP; p++)
			a[p * PAGE] = (unsigned char)round;
	dsm_barrier();
}

static void fetch_page(void)
{
	(void)a[0];
}

static void write_page(void)
{
	a[0]++;
}

static void sweep(void)
{
	for (size_t p = 0; p < SWEEP; p++)
		(void)a[p * PAGE];
}

static void touch(void)
{
	dsm_touch((const void *)(uintptr_t)a, SWEEP * PAGE, 0);
}

static void read_page(void)
{
	net_read(0, DATA, SWEEP * PAGE, SWEEP * PAGE, PAGE);
	net_wait();
}

static void read_all(void)
{
	net_read(0, DATA, SWEEP * PAGE, SWEEP * PAGE, SWEEP * PAGE);
	net_wait();
}

static void atomic(void)
{
	net_swap(0, lay.asked + 8, 0);
	net_wait();
}

static void lock_free(void)
{
	dsm_lock(0);
	dsm_unlock(0);
}

static uint64_t timed(void (*f)(void))
{
	uint64_t start = now_ns();
	f();
	return now_ns() - start;
}

/* Measures a step and what it stands beside, in turns: which comes first finds the daemons less awake. goal: at
 * most so many times as long; 0: there is none. */
static void compare(const char *what, void (*step)(void), const char *beside, void (*base)(void), double goal)
{
	uint64_t *x = calloc((size_t)rounds, sizeof *x), *y = calloc((size_t)rounds, sizeof *y);
	if (x == NULL || y == NULL)
		fail("no memory");
	for (int i = 0; i < rounds; i++) {
		make_stale(i);
		if (dsm_rank() == 1) {
			if (i % 2 == 0)
				x[i] = timed(step);
			y[i] = timed(base);
			if (i % 2 != 0)
				x[i] = timed(step);
		}
		dsm_barrier();
	}
	if (dsm_rank() == 1)
		printf("{\"what\": \"%s, in C\", \"time\": %.3f, \"beside\": \"%s\", \"base\": %.3f, \"goal\": %.1f}\n",
		       what, median(x), beside, median(y), goal);
	free(x);
	free(y);
}

int main(int argc, char **argv)
{
	rounds = argc > 1 ? atoi(argv[1]) : 300;
	dsm_config c = { .size = sizeof c, .memory = 4 * SWEEP * PAGE };
	dsm_init(&c);
	a = dsm_alloc(2 * SWEEP * PAGE, 1, 0);
	dsm_barrier();
	compare("fault and fetch of a page", fetch_page, "read of 4 KiB", read_page, 2.5);
	compare("fault, fetch and first write of a page", write_page, "read of 4 KiB", read_page, 2.5);
	compare("loads from 64 pages in order", sweep, "read of 256 KiB", read_all, 0);
	compare("dsm_touch of 64 pages", touch, "read of 256 KiB", read_all, 0);
	compare("free lock, taken and given back", lock_free, "single atomic", atomic, 2.5);
	dsm_exit();
	return 0;
}
