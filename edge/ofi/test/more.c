/*
 * Atomics of every sort, beside what the compiler makes of them, buffers that connections share, and fi_shutdown.
 *
 * more more-serve FILE    more more FILE
 */
#include <sys/mman.h>

#include "common.h"

enum { KEY = 77, CONSTANT = 78, WORDS = 64, PEERS = 3, EACH = 50, ADDS = 100, LIMIT = 40 };

/* --- what an atomic does, said once more, by C's own types --- */

#define MODEL(T) \
static void model_##T(enum fi_op op, void *there_, const void *v_, const void *c_) \
{ \
	T *there = there_, v = *(const T *)v_, c = *(const T *)c_, t = *there; \
	switch (op) { \
	case FI_MIN: *there = v < t ? v : t; break; \
	case FI_MAX: *there = v > t ? v : t; break; \
	case FI_SUM: *there = (T)(t + v); break; \
	case FI_PROD: *there = (T)(t * v); break; \
	case FI_LOR: *there = t != 0 || v != 0; break; \
	case FI_LAND: *there = t != 0 && v != 0; break; \
	case FI_LXOR: *there = (t != 0) != (v != 0); break; \
	case FI_ATOMIC_WRITE: *there = v; break; \
	case FI_CSWAP: *there = c == t ? v : t; break; \
	case FI_CSWAP_NE: *there = c != t ? v : t; break; \
	case FI_CSWAP_LE: *there = c <= t ? v : t; break; \
	case FI_CSWAP_LT: *there = c < t ? v : t; break; \
	case FI_CSWAP_GE: *there = c >= t ? v : t; break; \
	case FI_CSWAP_GT: *there = c > t ? v : t; break; \
	default: break; \
	} \
}
#define BITS(T) \
static void bits_##T(enum fi_op op, void *there_, const void *v_, const void *c_) \
{ \
	T *there = there_, v = *(const T *)v_, c = *(const T *)c_; \
	switch (op) { \
	case FI_BOR: *there |= v; break; \
	case FI_BAND: *there &= v; break; \
	case FI_BXOR: *there ^= v; break; \
	case FI_MSWAP: *there = (T)((v & c) | (*there & ~c)); break; \
	default: model_##T(op, there_, v_, c_); \
	} \
}
typedef signed char i8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned long u64;
MODEL(i8) MODEL(u16) MODEL(i32) MODEL(u64) MODEL(float) MODEL(double)
BITS(i8) BITS(u16) BITS(i32) BITS(u64)

static const struct { enum fi_datatype type; size_t size; void (*model)(enum fi_op, void *, const void *, const void *);
	bool real; } types[] = { { FI_INT8, 1, bits_i8, false }, { FI_UINT16, 2, bits_u16, false },
	{ FI_INT32, 4, bits_i32, false }, { FI_UINT64, 8, bits_u64, false }, { FI_FLOAT, 4, model_float, true },
	{ FI_DOUBLE, 8, model_double, true } };

/* Small numbers of both signs, so that they are often equal. */
static void numbers(char *to, size_t type, size_t count, unsigned seed)
{
	for (size_t i = 0; i < count; i++) {
		int n = byte_of(seed, i) % 9 - 4;
		float f = (float)n / 2;
		double d = (double)n / 2;
		const void *from = types[type].type == FI_FLOAT ? (void *)&f : types[type].type == FI_DOUBLE ? (void *)&d : &n;
		int64_t wide = n;
		if (!types[type].real)
			from = &wide; /* little endian */
		memcpy(to + i * types[type].size, from, types[type].size);
	}
}

static void one_sort(struct fid_ep *ep, size_t type, enum fi_op op, unsigned seed)
{
	char there[WORDS * 8], now[WORDS * 8], was[WORDS * 8], v[WORDS * 8], c[WORDS * 8];
	size_t n = WORDS, size = types[type].size, bytes = n * size;
	enum fi_datatype t = types[type].type;
	numbers(there, type, n, seed);
	numbers(v, type, n, seed + 1);
	numbers(c, type, n, seed + 2);
	CHECK(fi_write(ep, there, bytes, NULL, 0, 64, KEY, there));
	WANT(outcome(there) == 0);
	if (op >= FI_CSWAP)
		CHECK(fi_compare_atomic(ep, v, n, NULL, c, NULL, was, NULL, 0, 64, KEY, t, op, v));
	else if (op == FI_ATOMIC_READ || seed % 2 == 0)
		CHECK(fi_fetch_atomic(ep, v, n, NULL, was, NULL, 0, 64, KEY, t, op, v));
	else
		CHECK(fi_atomic(ep, v, n, NULL, 0, 64, KEY, t, op, v));
	WANT(outcome(v) == 0);
	WANT(op < FI_CSWAP && op != FI_ATOMIC_READ && seed % 2 != 0 ? true : memcmp(was, there, bytes) == 0);
	for (size_t i = 0; i < n; i++)
		types[type].model(op, there + i * size, v + i * size, c + i * size);
	CHECK(fi_read(ep, now, bytes, NULL, 0, 64, KEY, now));
	WANT(outcome(now) == 0);
	if (memcmp(now, there, bytes) != 0) {
		fprintf(stderr, "type %d, operation %d, seed %u\n", t, op, seed);
		fail(__LINE__, "an atomic did something else", 0);
	}
}

static void all_sorts(struct fid_ep *ep)
{
	size_t count;
	for (size_t type = 0; type < sizeof types / sizeof *types; type++)
		for (int op = FI_MIN; op <= FI_MSWAP; op++) {
			bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
			if (bits && types[type].real)
				WANT(fi_fetch_atomicvalid(ep, types[type].type, (enum fi_op)op, &count) == -FI_EOPNOTSUPP);
			for (unsigned seed = 0; seed < 4 && !(bits && types[type].real); seed++)
				one_sort(ep, type, (enum fi_op)op, seed);
		}
}

static void odd_atomics(struct fid_ep *ep)
{
	uint64_t v[2] = { 5, 6 }, was[2];
	size_t count;
	struct fi_atomic_attr attr;
	WANT(fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count) == 0 && count == 512);
	WANT(fi_atomicvalid(ep, FI_LONG_DOUBLE, FI_SUM, &count) == -FI_EOPNOTSUPP);
	WANT(fi_atomicvalid(ep, FI_UINT64, FI_ATOMIC_READ, &count) == -FI_EOPNOTSUPP);
	WANT(fi_query_atomic(domain, FI_INT16, FI_CSWAP, &attr, FI_COMPARE_ATOMIC) == 0);
	WANT(attr.size == 2 && attr.count == 2048);
	WANT(fi_atomic(ep, v, 513, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, v) == -FI_EINVAL);
	WANT(fi_atomic(ep, v, 1, NULL, 0, 0, KEY, FI_UINT64, FI_CSWAP, v) == -FI_EOPNOTSUPP);
	/* One that fails leaves the connection as it was. */
	CHECK(fi_atomic(ep, v, 2, NULL, 0, 4096 - 8, KEY, FI_UINT64, FI_SUM, v));
	WANT(outcome(v) == -FI_EFAULT);
	CHECK(fi_atomic(ep, v, 1, NULL, 0, 4, KEY, FI_UINT64, FI_SUM, v));
	WANT(outcome(v) == -FI_EINVAL);
	CHECK(fi_fetch_atomic(ep, v, 1, NULL, was, NULL, 0, 0, KEY + 9, FI_UINT64, FI_SUM, v));
	WANT(outcome(v) == -FI_ENOKEY);
	CHECK(fi_fetch_atomic(ep, v, 1, NULL, was, NULL, 0, 0, CONSTANT, FI_UINT64, FI_SUM, v));
	WANT(outcome(v) == -FI_EACCES);
	CHECK(fi_fetch_atomic(ep, NULL, 1, NULL, was, NULL, 0, 8, CONSTANT, FI_UINT64, FI_ATOMIC_READ, v));
	WANT(outcome(v) == 0 && was[0] == 99);
}

/* --- buffers for all --- */

static struct fid_ep *peers[PEERS];

/* Shuts them all down. The server keeps its ends until it is told by another connection, and need not close them. */
static void leave(const void *to)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	struct fid_ep *last;
	size_t n;
	for (int p = 0; p < PEERS; p++)
		CHECK(fi_shutdown(peers[p], 0));
	for (int p = 0; p < PEERS; p++)
		WANT(event(&fid, &cm, &n) == FI_SHUTDOWN);
	WANT(dial(to, "done", "", &last) == FI_CONNECTED);
	CHECK(fi_close(&last->fid));
}

static void client(const char *file)
{
	char to[64];
	uint64_t one = 1, sum = 0;
	address_of(file, to);
	for (int p = 0; p < PEERS; p++)
		WANT(dial(to, "more", "", &peers[p]) == FI_CONNECTED);
	all_sorts(peers[0]);
	odd_atomics(peers[0]);
	CHECK(fi_write(peers[0], &sum, 8, NULL, 0, 8, KEY, &sum));
	WANT(outcome(&sum) == 0);
	for (int i = 0; i < ADDS; i++)
		for (int p = 0; p < PEERS; p++)
			while (fi_inject_atomic(peers[p], &one, 1, 0, 8, KEY, FI_UINT64, FI_SUM) != 0)
				;
	for (int p = 0; p < PEERS; p++) { /* after those of the same endpoint */
		CHECK(fi_fetch_atomic(peers[p], NULL, 1, NULL, &sum, NULL, 0, 8, KEY, FI_UINT64, FI_ATOMIC_READ, &sum));
		WANT(outcome(&sum) == 0);
	}
	WANT(sum == PEERS * ADDS);
	for (unsigned i = 0; i < EACH; i++)
		for (unsigned p = 0; p < PEERS; p++) {
			char buf[300];
			fill(buf, sizeof buf, i);
			CHECK(fi_injectdata(peers[p], buf, 1 + (i * 37 + p) % 300, p << 16 | i, 0));
		}
	for (int p = 0; p < PEERS; p++) { /* the server has them all */
		char buf[4];
		CHECK(fi_recv(peers[p], buf, sizeof buf, NULL, 0, buf));
		WANT(outcome(buf) == 0);
	}
	leave(to);
	for (int p = 0; p < PEERS; p++)
		CHECK(fi_close(&peers[p]->fid));
}

static void server(const char *file)
{
	static _Alignas(8) char memory[4096];
	static char buffers[4][300];
	struct fi_rx_attr attr = { .size = 8 };
	struct fi_cq_data_entry e;
	struct fid_mr *mr, *constant;
	unsigned next[PEERS] = { 0 }, left = PEERS * EACH;
	uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	WANT(page != MAP_FAILED);
	page[1] = 99;
	WANT(mprotect(page, 4096, PROT_READ) == 0); /* an atomic that only reads must not write */
	CHECK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	CHECK(fi_mr_reg(domain, page, 4096, FI_REMOTE_READ, 0, CONSTANT, 0, &constant, NULL));
	CHECK(fi_srx_context(domain, &attr, &shared, NULL));
	serve(file);
	for (int p = 0; p < PEERS; p++)
		WANT((peers[p] = take(request("more"), "")) != NULL);
	WANT(fi_close(&shared->fid) == -FI_EBUSY && fi_recv(peers[0], memory, 8, NULL, 0, NULL) == -FI_EOPBADSTATE);
	for (int i = 0; i < 4; i++) /* fewer than messages: they wait, in each connection in their order */
		CHECK(fi_recv(shared, buffers[i], sizeof buffers[i], NULL, 0, buffers[i]));
	for (; left > 0; left--) {
		WANT(completion(&e) == 0 && (e.flags & FI_RECV));
		unsigned p = (unsigned)e.data >> 16, i = e.data & 0xffff;
		WANT(p < PEERS && i == next[p] && e.len == 1 + (i * 37 + p) % 300 && same(e.op_context, e.len, i));
		next[p]++;
		CHECK(fi_recv(shared, e.op_context, sizeof buffers[0], NULL, 0, e.op_context));
	}
	for (int p = 0; p < PEERS; p++) {
		CHECK(fi_send(peers[p], "end", 4, NULL, 0, "end"));
		WANT(outcome("end") == 0);
	}
	for (int p = 0; p < PEERS; p++) {
		struct fid *fid;
		struct fi_eq_cm_entry *cm;
		size_t n;
		WANT(event(&fid, &cm, &n) == FI_SHUTDOWN);
	}
	struct fid_ep *last = take(request("done"), "");
	if (last != NULL)
		CHECK(fi_close(&last->fid));
	for (int p = 0; p < PEERS; p++)
		CHECK(fi_close(&peers[p]->fid));
	CHECK(fi_close(&shared->fid));
	CHECK(fi_close(&mr->fid));
	CHECK(fi_close(&constant->fid));
}

int main(int argc, char **argv)
{
	role = argc > 1 ? argv[1] : "";
	if (argc != 3)
		fail(__LINE__, "usage: more more-serve|more FILE", 0);
	sleeps = getenv("FI_WAIT") != NULL;
	alarm(LIMIT);
	open_all();
	if (strcmp(role, "more-serve") == 0)
		server(argv[2]);
	else
		client(argv[2]);
	close_all();
	printf("%s: ok\n", role);
	return 0;
}
