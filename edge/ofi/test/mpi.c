/*
 * mpi check [SEED]:       ring, allreduce, alltoall, broadcast, many at once; every byte is compared.
 * mpi measure [ROUNDS]:   between rank 0 and the last: latency of 8 bytes (us), bandwidth of 1 MiB (MB/s), and
 *                         allreduce (us).
 * mpi windows [SEED]:     one-sided put, get, accumulate, fetch-and-op and compare-and-swap; everything is compared.
 * mpi forever:            a ring without end.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void fail(const char *what, long at)
{
	fprintf(stderr, "FAIL: rank %d of %d: %s, at %ld\n", rank, size, what, at);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The byte at position i of what from sends to to. */
static unsigned char byte_of(int from, int to, long i, unsigned seed)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(from * 131 + to * 17 + 1) * 40503u ^ seed;
	x ^= x >> 15;
	x *= 2246822519u;
	return (unsigned char)(x >> 13);
}

static void fill(unsigned char *p, long n, int from, int to, unsigned seed)
{
	for (long i = 0; i < n; i++)
		p[i] = byte_of(from, to, i, seed);
}

static void compare(const char *what, const unsigned char *p, long n, int from, int to, unsigned seed)
{
	for (long i = 0; i < n; i++)
		if (p[i] != byte_of(from, to, i, seed))
			fail(what, i);
}

static void ring(unsigned char *out, unsigned char *in, long n, unsigned seed)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	fill(out, n, rank, next, seed);
	MPI_Sendrecv(out, (int)n, MPI_BYTE, next, 7, in, (int)n, MPI_BYTE, before, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	compare("ring", in, n, before, rank, seed);
}

static void alltoall(unsigned char *out, unsigned char *in, long n, unsigned seed)
{
	for (int r = 0; r < size; r++)
		fill(out + r * n, n, rank, r, seed);
	MPI_Alltoall(out, (int)n, MPI_BYTE, in, (int)n, MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		compare("alltoall", in + r * n, n, r, rank, seed);
}

static void allreduce(int n)
{
	int64_t *mine = malloc((size_t)n * sizeof *mine), *sum = malloc((size_t)n * sizeof *sum);
	for (int i = 0; i < n; i++)
		mine[i] = (int64_t)(rank + 1) * (i + 3);
	MPI_Allreduce(mine, sum, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		if (sum[i] != (int64_t)size * (size + 1) / 2 * (i + 3))
			fail("allreduce", i);
	free(mine);
	free(sum);
}

/* Many messages at once to everybody, of growing length, received in another order; some synchronous. */
static void flood(unsigned char *out, unsigned char *in, unsigned seed)
{
	enum { N = 48, STEP = 1777 };
	MPI_Request *q = malloc((size_t)(2 * N * size) * sizeof *q);
	long at = 0;
	int n = 0;
	for (int r = 0; r < size; r++)
		for (int i = N - 1; i >= 0; i--, at += (long)N * STEP)
			MPI_Irecv(in + at, N * STEP, MPI_BYTE, r, i, MPI_COMM_WORLD, &q[n++]);
	at = 0;
	for (int r = 0; r < size; r++)
		for (int i = 0; i < N; i++, at += (long)N * STEP) {
			fill(out + at, (long)i * STEP, rank, r, seed + (unsigned)i);
			(i % 8 == 5 ? MPI_Issend : MPI_Isend)(out + at, i * STEP, MPI_BYTE, r, i, MPI_COMM_WORLD, &q[n++]);
		}
	MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
	at = 0;
	for (int r = 0; r < size; r++)
		for (int i = N - 1; i >= 0; i--, at += (long)N * STEP)
			compare("flood", in + at, (long)i * STEP, r, rank, seed + (unsigned)i);
	free(q);
}

/* A message that is longer than the receive is an error of that receive, and of nothing else. */
static void truncated(unsigned char *out, unsigned char *in, long n)
{
	int class = MPI_SUCCESS;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rank == 0)
		MPI_Send(out, (int)n, MPI_BYTE, size - 1, 9, MPI_COMM_WORLD);
	else if (rank == size - 1 &&
	         MPI_Error_class(MPI_Recv(in, 4, MPI_BYTE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), &class) == 0 &&
	         class != MPI_ERR_TRUNCATE)
		fail("a message of so many bytes fits into 4", n);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void check(unsigned seed)
{
	static const long sizes[] = { 0, 1, 8, 1000, 4096, 16000, 16384, 17000, 65536, 131072, 131073, 1 << 20, 5000001 };
	unsigned char *out = malloc((size_t)64 << 20), *in = malloc((size_t)64 << 20);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		ring(out, in, sizes[i], seed);
		if (sizes[i] * size <= (long)16 << 20)
			alltoall(out, in, sizes[i], seed);
	}
	for (int n = 1; n < 200000; n *= 7)
		allreduce(n);
	flood(out, in, seed);
	for (long n = 100; n < 1000000 && size > 1; n *= 14)
		truncated(out, in, n);
	for (int root = 0; root < size; root++) {
		if (rank == root)
			fill(out, 3000000, root, 99, seed);
		MPI_Bcast(out, 3000000, MPI_BYTE, root, MPI_COMM_WORLD);
		compare("broadcast", out, 3000000, root, 99, seed);
	}
	free(out);
	free(in);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("mpi: ok, %d processes\n", size);
}

/* Everybody writes a part of everybody's memory, and reads it back. */
static void put_and_get(unsigned seed)
{
	enum { PART = 70000 };
	unsigned char *mem, *out = malloc((size_t)size * PART), *in = malloc((size_t)size * PART);
	MPI_Win w;
	MPI_Win_allocate((MPI_Aint)size * PART, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &w);
	MPI_Win_fence(0, w);
	for (int r = 0; r < size; r++) {
		fill(out + (long)r * PART, PART, rank, r, seed);
		MPI_Put(out + (long)r * PART, PART, MPI_BYTE, r, (MPI_Aint)rank * PART, PART, MPI_BYTE, w);
	}
	MPI_Win_fence(0, w);
	for (int r = 0; r < size; r++)
		compare("put", mem + (long)r * PART, PART, r, rank, seed);
	MPI_Win_fence(0, w);
	MPI_Win_lock_all(0, w);
	for (int r = 0; r < size; r++)
		MPI_Get(in + (long)r * PART, PART, MPI_BYTE, r, (MPI_Aint)rank * PART, PART, MPI_BYTE, w);
	MPI_Win_unlock_all(w);
	for (int r = 0; r < size; r++)
		compare("get", in + (long)r * PART, PART, rank, r, seed);
	MPI_Win_free(&w);
	free(out);
	free(in);
}

/* Everybody adds to everybody's words. */
static void accumulate(void)
{
	enum { WORDS = 5000 };
	int64_t *words, mine[WORDS];
	MPI_Win w;
	MPI_Win_allocate(sizeof mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &w);
	MPI_Win_fence(0, w);
	for (int i = 0; i < WORDS; i++) {
		words[i] = i;
		mine[i] = (int64_t)(rank + 1) * (i + 3);
	}
	MPI_Win_fence(0, w);
	for (int r = 0; r < size; r++)
		MPI_Accumulate(mine, WORDS, MPI_INT64_T, (rank + r) % size, 0, WORDS, MPI_INT64_T, MPI_SUM, w);
	MPI_Win_fence(0, w);
	for (int i = 0; i < WORDS; i++)
		if (words[i] != i + (int64_t)size * (size + 1) / 2 * (i + 3))
			fail("accumulate", i);
	MPI_Win_free(&w);
}

/* Everybody counts in two words of rank 0's, by fetch-and-add and by compare-and-swap: each number is found once. */
static void count(void)
{
	enum { EACH = 200 };
	int64_t *words, *found = calloc((size_t)(2 * EACH * size), sizeof *found), one = 1, at, is = 0;
	MPI_Win w;
	MPI_Win_allocate(2 * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &w);
	MPI_Win_fence(0, w);
	words[0] = words[1] = 0;
	MPI_Win_fence(0, w);
	MPI_Win_lock_all(0, w);
	for (int i = 0; i < EACH; i++) {
		MPI_Fetch_and_op(&one, &at, MPI_INT64_T, 0, 0, MPI_SUM, w);
		MPI_Win_flush(0, w);
		if (at < 0 || at >= (int64_t)EACH * size)
			fail("fetch-and-op found", (long)at);
		found[at]++;
		for (int64_t want = is;; want = is) {
			int64_t next = want + 1;
			MPI_Compare_and_swap(&next, &want, &is, MPI_INT64_T, 0, 1, w);
			MPI_Win_flush(0, w);
			if (is == want)
				break;
		}
		if (is < 0 || is >= (int64_t)EACH * size)
			fail("compare-and-swap found", (long)is);
		found[(int64_t)EACH * size + is]++;
	}
	MPI_Win_unlock_all(w);
	MPI_Allreduce(MPI_IN_PLACE, found, 2 * EACH * size, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < 2 * EACH * size; i++)
		if (found[i] != 1)
			fail("a number was found by so many", (long)found[i]);
	MPI_Win_free(&w);
	free(found);
}

static void windows(unsigned seed)
{
	put_and_get(seed);
	accumulate();
	count();
	if (rank == 0)
		printf("mpi windows: ok, %d processes\n", size);
}

static void forever(void)
{
	unsigned char *out = malloc(1 << 20), *in = malloc(1 << 20);
	for (unsigned i = 0;; i++)
		ring(out, in, i % 3 == 0 ? 1 << 20 : i % 3 == 1 ? 8 : 5000, i);
}

/* Microseconds of one way, between rank 0 and the last. */
static double pingpong(char *p, int n, int rounds)
{
	int other = rank == 0 ? size - 1 : 0;
	double begin = 0;
	for (int i = -rounds / 10; i < rounds && (rank == 0 || rank == size - 1); i++) {
		if (i == 0)
			begin = MPI_Wtime();
		if (rank == 0)
			MPI_Send(p, n, MPI_BYTE, other, 1, MPI_COMM_WORLD);
		MPI_Recv(p, n, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank != 0)
			MPI_Send(p, n, MPI_BYTE, other, 1, MPI_COMM_WORLD);
	}
	return (MPI_Wtime() - begin) * 1e6 / rounds / 2;
}

/* MB/s of messages that follow each other, 16 at once. */
static double bandwidth(char *p, int n, int rounds)
{
	MPI_Request q[16];
	double begin = 0;
	for (int i = -2; i < rounds && (rank == 0 || rank == size - 1); i++) {
		if (i == 0)
			begin = MPI_Wtime();
		for (int k = 0; k < 16; k++)
			if (rank == 0)
				MPI_Isend(p, n, MPI_BYTE, size - 1, 2, MPI_COMM_WORLD, &q[k]);
			else
				MPI_Irecv(p + (long)k * n, n, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &q[k]);
		MPI_Waitall(16, q, MPI_STATUSES_IGNORE);
		char done;
		if (rank == 0)
			MPI_Recv(&done, 1, MPI_BYTE, size - 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(p, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
	}
	return 16.0 * n * rounds / (MPI_Wtime() - begin) / 1e6;
}

static void measure(int rounds)
{
	char *p = calloc(16, 1 << 20);
	MPI_Barrier(MPI_COMM_WORLD);
	double latency = pingpong(p, 8, rounds), rate = bandwidth(p, 1 << 20, rounds / 100 + 5), begin = 0;
	double mine = 1, sum;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = -10; i < rounds / 4; i++) {
		if (i == 0)
			begin = MPI_Wtime();
		MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("%.1f %.0f %.1f\n", latency, rate, (MPI_Wtime() - begin) * 1e6 / (rounds / 4));
	free(p);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc > 1 && strcmp(argv[1], "measure") == 0)
		measure(argc > 2 ? atoi(argv[2]) : 1000);
	else if (argc > 1 && strcmp(argv[1], "forever") == 0)
		forever();
	else if (argc > 1 && strcmp(argv[1], "windows") == 0)
		windows(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
	else
		check(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
	MPI_Finalize();
	return 0;
}
