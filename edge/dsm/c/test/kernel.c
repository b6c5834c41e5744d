/* Kernels of bench/splash: kernel NAME SIZE [MEMORY], with the same bits, so that ranks in C and in Go may be in one
 * run. Each rank prints its stats as package dsm names them, in JSON; rank 0 the digest of the result, too. kernel
 * barriers 0 MEMORY says that it is there and goes from barrier to barrier until another rank ends the run. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "test.h"

enum { PAGE = 4096 };

/* The number that element i depends on, and the same between 0 and 1. */
static uint64_t pseudo(uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15 + 0x1234567;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static double uniform(size_t i)
{
	return (double)(pseudo(i) >> 11) / (double)(1ull << 53);
}

static uint64_t add(uint64_t digest, uint64_t v)
{
	return (digest ^ v) * 0x100000001b3;
}

static uint64_t sum(uint64_t digest, const double *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits;
		memcpy(&bits, &list[i], sizeof bits);
		digest = add(digest, bits);
	}
	return digest;
}

/* radix sorts keys of 20 bits in two digits. */
enum { BITS = 10, DIGITS = 1 << BITS };

static uint32_t *keys[2], *counts;

static void radix_make(size_t n)
{
	keys[0] = dsm_alloc(n, 4, DSM_BLOCKS);
	keys[1] = dsm_alloc(n, 4, DSM_BLOCKS);
	counts = dsm_alloc((size_t)dsm_ranks() * DIGITS, 4, DSM_BLOCKS);
	for (size_t i = dsm_share(n, dsm_rank()); i < dsm_share(n, dsm_rank() + 1); i++)
		keys[0][i] = (uint32_t)(pseudo(i) & ((1 << 2 * BITS) - 1));
}

/* Sorts by one digit, stably: each rank counts its keys' digits, finds out where the first key of each goes, and puts
 * its keys there. */
static void pass(const uint32_t *from, uint32_t *to, size_t n, int shift)
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

static void radix_work(size_t n)
{
	pass(keys[0], keys[1], n, 0);
	dsm_barrier();
	pass(keys[1], keys[0], n, BITS);
}

static uint64_t radix_result(size_t n)
{
	uint64_t digest = 0;
	for (size_t i = 0; i < n; i++)
		digest = add(digest, keys[0][i]);
	return digest;
}

/* ocean relaxes a grid of s rows and columns and a border, red and black points in turn. */
enum { SWEEPS = 20 };

static double *grid, *change;
static size_t side;

static size_t stride(void)
{
	return (8 * (side + 2) + PAGE - 1) / PAGE * PAGE / 8;
}

/* A row is at home where it is computed; the border is with the row beside it. */
static int row_home(size_t page, size_t pages, int ranks)
{
	(void)pages;
	size_t row = page * PAGE / 8 / stride();
	row = row > 0 ? row - 1 : 0;
	row = row < side - 1 ? row : side - 1;
	return (int)(((row + 1) * (size_t)ranks - 1) / side);
}

static void ocean_make(size_t s)
{
	size_t width = s + 2, from = dsm_share(s, dsm_rank()) + 1, to = dsm_share(s, dsm_rank() + 1) + 1;
	side = s;
	grid = dsm_alloc_homes(width * stride(), 8, row_home);
	change = dsm_alloc((size_t)dsm_ranks() * PAGE / 8, 8, DSM_TURNS);
	from = from == 1 ? 0 : from;
	to = to == s + 1 ? width : to;
	for (size_t r = from; r < to; r++)
		for (size_t i = 0; i < width; i++)
			grid[r * stride() + i] = uniform(r * width + i);
}

static double relax(size_t lo, size_t hi, size_t colour)
{
	double greatest = 0;
	for (size_t r = lo; r < hi; r++) {
		double *row = grid + r * stride(), *above = row - stride(), *under = row + stride();
		for (size_t j = 1 + (r + 1 + colour) % 2; j < side + 1; j += 2) {
			double old = row[j];
			row[j] = 0.2 * (row[j] + row[j - 1] + row[j + 1] + above[j] + under[j]);
			greatest = fmax(greatest, fabs(row[j] - old));
		}
	}
	return greatest;
}

static void ocean_work(size_t s)
{
	size_t lo = dsm_share(s, dsm_rank()) + 1, hi = dsm_share(s, dsm_rank() + 1) + 1;
	for (size_t sweep = 0; sweep < SWEEPS; sweep++) {
		double greatest = 0;
		for (size_t colour = 0; colour < 2; colour++) {
			greatest = fmax(greatest, relax(lo, hi, colour));
			dsm_barrier();
		}
		change[(size_t)dsm_rank() * PAGE / 8 + sweep] = greatest;
	}
}

static uint64_t ocean_result(size_t s)
{
	uint64_t digest = 0;
	for (size_t r = 0; r < s + 2; r++)
		digest = sum(digest, grid + r * stride(), s + 2);
	for (size_t sweep = 0; sweep < SWEEPS; sweep++) {
		double greatest = 0;
		for (size_t rank = 0; rank < (size_t)dsm_ranks(); rank++)
			greatest = fmax(greatest, change[rank * PAGE / 8 + sweep]);
		digest = sum(digest, &greatest, 1);
	}
	return digest;
}

/* lu factors a matrix in blocks, which are dealt out in two dimensions. lu: blocks are contiguous; lu-rows: rows. */
enum { BLOCK = 16 };

static double *matrix;
static bool rows;

static int owner(int ranks, size_t i, size_t j)
{
	int down = (int)sqrt(ranks);
	while (ranks % down != 0)
		down--;
	int across = ranks / down;
	return (int)(i % (size_t)down) * across + (int)(j % (size_t)across);
}

static bool mine(size_t i, size_t j)
{
	return owner(dsm_ranks(), i, j) == dsm_rank();
}

static int block_home(size_t page, size_t pages, int ranks)
{
	(void)pages;
	size_t b = page * PAGE / (8 * BLOCK * BLOCK);
	return owner(ranks, b / (side / BLOCK), b % (side / BLOCK));
}

/* Row r of block i, j. */
static double *at(size_t i, size_t j, size_t r)
{
	return rows ? matrix + (i * BLOCK + r) * side + j * BLOCK : matrix + ((i * side / BLOCK + j) * BLOCK + r) * BLOCK;
}

static void lu_fill(size_t s)
{
	for (size_t i = 0; i < s / BLOCK; i++)
		for (size_t j = 0; j < s / BLOCK; j++)
			for (size_t r = 0; mine(i, j) && r < BLOCK; r++)
				for (size_t c = 0; c < BLOCK; c++)
					at(i, j, r)[c] = uniform((i * BLOCK + r) * s + j * BLOCK + c) + (i == j && r == c ? (double)s : 0);
}

static void lu_make(size_t s)
{
	side = s;
	matrix = dsm_alloc_homes(s * s, 8, block_home);
	lu_fill(s);
}

static void lu_rows_make(size_t s)
{
	side = s;
	rows = true;
	matrix = dsm_alloc(s * s, 8, DSM_TURNS);
	lu_fill(s);
}

static void factor(size_t k)
{
	for (size_t c = 0; c < BLOCK; c++)
		for (size_t r = c + 1; r < BLOCK; r++) {
			double *row = at(k, k, r), *top = at(k, k, c);
			row[c] /= top[c];
			for (size_t x = c + 1; x < BLOCK; x++)
				row[x] -= row[c] * top[x];
		}
}

/* Solves block i, k of v = w*U, and block k, i of v = L*w, of the diagonal block k. */
static void below(size_t i, size_t k)
{
	for (size_t r = 0; r < BLOCK; r++)
		for (size_t c = 0; c < BLOCK; c++) {
			double *w = at(i, k, r), v = w[c];
			for (size_t x = 0; x < c; x++)
				v -= w[x] * at(k, k, x)[c];
			w[c] = v / at(k, k, c)[c];
		}
}

static void right(size_t k, size_t i)
{
	for (size_t c = 0; c < BLOCK; c++)
		for (size_t r = 0; r < BLOCK; r++) {
			double v = at(k, i, r)[c];
			for (size_t x = 0; x < r; x++)
				v -= at(k, k, r)[x] * at(k, i, x)[c];
			at(k, i, r)[c] = v;
		}
}

static void subtract(size_t i, size_t j, size_t k)
{
	for (size_t r = 0; r < BLOCK; r++)
		for (size_t x = 0; x < BLOCK; x++)
			for (size_t c = 0; c < BLOCK; c++)
				at(i, j, r)[c] -= at(i, k, r)[x] * at(k, j, x)[c];
}

static void lu_work(size_t s)
{
	size_t n = s / BLOCK;
	for (size_t k = 0; k < n; k++) {
		if (mine(k, k))
			factor(k);
		dsm_barrier();
		for (size_t i = k + 1; i < n; i++) {
			if (mine(i, k))
				below(i, k);
			if (mine(k, i))
				right(k, i);
		}
		dsm_barrier();
		for (size_t i = k + 1; i < n; i++)
			for (size_t j = k + 1; j < n; j++)
				if (mine(i, j))
					subtract(i, j, k);
	}
}

static uint64_t lu_result(size_t s)
{
	return sum(0, matrix, s * s);
}

static void barriers(void)
{
	dsm_barrier();
	printf("ready\n");
	fflush(stdout);
	for (;;)
		dsm_barrier();
}

static void print(uint64_t digest, const dsm_stats *s)
{
	printf("{\"digest\":%llu,\"stats\":{", (unsigned long long)digest);
#define FIELD(name, value, end) printf("\"" name "\":%llu" end, (unsigned long long)(value))
	FIELD("Operations", s->operations, ",");
	FIELD("Fetches", s->fetches, ",");
	FIELD("Pages", s->pages, ",");
	FIELD("Twins", s->twins, ",");
	FIELD("Diffs", s->diffs, ",");
	FIELD("Runs", s->runs, ",");
	FIELD("Bytes", s->bytes, ",");
	FIELD("Notices", s->notices, ",");
	FIELD("Stale", s->stale, ",");
	FIELD("Refreshes", s->refreshes, ",");
	FIELD("Overruns", s->overruns, ",");
	FIELD("Locks", s->locks, ",");
	FIELD("Waits", s->waits, ",");
	FIELD("Barriers", s->barriers, ",");
	FIELD("Total", s->total_ns, ",");
	FIELD("Data", s->data_ns, ",");
	FIELD("Flush", s->flush_ns, ",");
	FIELD("Acquire", s->acquire_ns, ",");
	FIELD("Lock", s->lock_ns, ",");
	FIELD("Barrier", s->barrier_ns, "}}\n");
}

static const struct kernel {
	const char *name;
	void (*make)(size_t size), (*work)(size_t size);
	uint64_t (*result)(size_t size);
} kernels[] = {
	{ "radix", radix_make, radix_work, radix_result },
	{ "ocean", ocean_make, ocean_work, ocean_result },
	{ "lu", lu_make, lu_work, lu_result },
	{ "lu-rows", lu_rows_make, lu_work, lu_result },
};

int main(int argc, char **argv)
{
	CHECK(argc > 2, "usage: kernel NAME SIZE [MEMORY]");
	size_t n = (size_t)argument(argc, argv, 2, 0);
	dsm_config c = { .size = sizeof c, .join_ms = 600000 };
	c.memory = (size_t)argument(argc, argv, 3, 32 << 20);
	dsm_init(&c);
	if (strcmp(argv[1], "barriers") == 0)
		barriers();
	const struct kernel *k = kernels;
	while (strcmp(k->name, argv[1]) != 0)
		CHECK(++k < kernels + sizeof kernels / sizeof *kernels, "there is no kernel %s", argv[1]);
	k->make(n);
	dsm_barrier();
	dsm_reset_stats();
	k->work(n);
	dsm_barrier();
	dsm_stats s;
	dsm_get_stats(&s);
	uint64_t digest = dsm_rank() == 0 ? k->result(n) : 0;
	dsm_exit();
	print(digest, &s);
	return 0;
}
