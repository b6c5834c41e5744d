/* A kernel: radix KEYS [MEMORY] sorts keys as radix of bench/splash does, so that its ranks may be in one run with
 * those. Rank 0 prints the digest of the result. */
#include "test.h"

enum { BITS = 10, DIGITS = 1 << BITS };

/* The number that key i depends on. */
static uint64_t pseudo(uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15 + 0x1234567;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Sorts by one digit, stably: each rank counts its keys' digits, finds out where the first key of each goes, and puts
 * its keys there. */
static void pass(const uint32_t *from, uint32_t *to, uint32_t *counts, size_t n, int shift)
{
	size_t me = (size_t)dsm_rank(), ranks = (size_t)dsm_ranks();
	size_t lo = dsm_share(n, (int)me), hi = dsm_share(n, (int)me + 1);
	uint32_t *mine = counts + me * DIGITS, at[DIGITS], before = 0;
	for (size_t d = 0; d < DIGITS; d++)
		mine[d] = 0;
	for (size_t i = lo; i < hi; i++)
		mine[from[i] >> shift & (DIGITS - 1)]++;
	dsm_barrier();
	for (size_t d = 0; d < DIGITS; d++)
		for (size_t r = 0; r < ranks; r++) {
			if (r == me)
				at[d] = before;
			before += counts[r * DIGITS + d];
		}
	for (size_t i = lo; i < hi; i++)
		to[at[from[i] >> shift & (DIGITS - 1)]++] = from[i];
}

int main(int argc, char **argv)
{
	size_t n = (size_t)argument(argc, argv, 1, 3000);
	dsm_config c = { .size = sizeof c, .memory = (size_t)argument(argc, argv, 2, (long)(8 * n + (4 << 20))) };
	dsm_init(&c);
	uint32_t *keys[2] = { dsm_alloc(n, 4, DSM_BLOCKS), dsm_alloc(n, 4, DSM_BLOCKS) };
	uint32_t *counts = dsm_alloc((size_t)dsm_ranks() * DIGITS, 4, DSM_BLOCKS);
	for (size_t i = dsm_share(n, dsm_rank()); i < dsm_share(n, dsm_rank() + 1); i++)
		keys[0][i] = (uint32_t)(pseudo(i) & ((1 << 2 * BITS) - 1));
	dsm_barrier();
	pass(keys[0], keys[1], counts, n, 0);
	dsm_barrier();
	pass(keys[1], keys[0], counts, n, BITS);
	dsm_barrier();
	uint64_t digest = 0;
	if (dsm_rank() == 0)
		for (size_t i = 0; i < n; i++)
			digest = (digest ^ keys[0][i]) * 0x100000001b3;
	int rank = dsm_rank();
	dsm_exit();
	if (rank == 0)
		printf("%016llx\n", (unsigned long long)digest);
	return 0;
}
