/* What the tests' programs have in common. */
#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "edge_dsm.h"

/* Ends this rank, and so the run, unless it is true. */
#define CHECK(x, ...) do { if (!(x)) { fprintf(stderr, "rank %d: ", dsm_rank()); fprintf(stderr, __VA_ARGS__); \
	fprintf(stderr, "\n"); exit(1); } } while (0)

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static inline long argument(int argc, char **argv, int i, long otherwise)
{
	return argc > i ? atol(argv[i]) : otherwise;
}

#endif
