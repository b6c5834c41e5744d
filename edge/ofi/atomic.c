/*
 * Atomics: those of one integer of 4 or 8 bytes that libedge has, and memory that the daemon has, go by native.c. The
 * others are performed by the owner's provider, one element after the other, each in one step of the processor. So they
 * are all atomic with each other and with the processor's own.
 */
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

/* What one does, as header.data has it: bits 0 to 7 enum fi_op, 8 to 15 enum fi_datatype, 16 and 17 the form, 32 to 63
 * the number of elements. */
enum form { PLAIN, FETCH, COMPARE };
struct atomic { enum fi_op op; enum fi_datatype type; enum form form; size_t count; };

static size_t width(enum fi_datatype type)
{
	static const uint8_t bytes[] = { [FI_INT8] = 1, [FI_UINT8] = 1, [FI_INT16] = 2, [FI_UINT16] = 2, [FI_INT32] = 4,
		[FI_UINT32] = 4, [FI_INT64] = 8, [FI_UINT64] = 8, [FI_FLOAT] = 4, [FI_DOUBLE] = 8 };
	return (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static bool real(enum fi_datatype type)
{
	return type == FI_FLOAT || type == FI_DOUBLE;
}

static bool valid(enum fi_op op, enum fi_datatype type, enum form form)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
	bool compares = op >= FI_CSWAP && op <= FI_MSWAP;
	return (size_t)op <= FI_MSWAP && width(type) != 0 && !(bits && real(type)) && compares == (form == COMPARE) &&
	       !(op == FI_ATOMIC_READ && form == PLAIN);
}

static size_t operands(const struct atomic *a)
{
	return (a->op == FI_ATOMIC_READ ? 0 : 1) + (a->form == COMPARE);
}

static struct atomic unpack(uint64_t data)
{
	return (struct atomic){ .op = (enum fi_op)(data & 0xff), .type = (enum fi_datatype)(data >> 8 & 0xff),
		.form = (enum form)(data >> 16 & 3), .count = data >> 32 };
}

static uint64_t pack(const struct atomic *a)
{
	return (uint64_t)a->op | (uint64_t)a->type << 8 | (uint64_t)a->form << 16 | (uint64_t)a->count << 32;
}

/* Whether a peer's header is in order. */
bool atomic_good(const struct header *h)
{
	struct atomic a = unpack(h->data);
	return (h->data >> 18 & 0x3fff) == 0 && a.form <= COMPARE && valid(a.op, a.type, a.form) && a.count > 0 &&
	       a.count <= ATOMIC_BYTES / width(a.type) && h->size == operands(&a) * a.count * width(a.type);
}

/* How many bytes answer it; -1: K_DONE does. */
int64_t atomic_answer(const struct header *h)
{
	struct atomic a = unpack(h->data);
	return a.form == PLAIN ? -1 : (int64_t)(a.count * width(a.type));
}

uint64_t atomic_access(const struct header *h)
{
	struct atomic a = unpack(h->data);
	return (a.op == FI_ATOMIC_READ ? 0 : FI_REMOTE_WRITE) | (a.form == PLAIN ? 0 : FI_REMOTE_READ);
}

uint64_t atomic_reach(const struct header *h)
{
	struct atomic a = unpack(h->data);
	return a.count * width(a.type);
}

/* One number of 4 or 8 bytes, and what libedge does with such. in: the operands. */
bool atomic_native(const struct header *h, const char *in, edge_work *w)
{
	struct atomic a = unpack(h->data);
	size_t n = width(a.type);
	bool with_sign = a.type == FI_INT32 || a.type == FI_INT64;
	if (a.count != 1 || real(a.type) || (n != 4 && n != 8) || h->addr % n != 0)
		return false;
	*w = (edge_work){ .kind = EDGE_ATOMIC, .size = n };
	switch (a.op) {
	case FI_SUM: w->func = EDGE_FETCH_ADD; break;
	case FI_BAND: w->func = EDGE_FETCH_AND; break;
	case FI_BOR: w->func = EDGE_FETCH_OR; break;
	case FI_BXOR: w->func = EDGE_FETCH_XOR; break;
	case FI_MIN: w->func = with_sign ? EDGE_FETCH_MIN_SIGNED : EDGE_FETCH_MIN; break;
	case FI_MAX: w->func = with_sign ? EDGE_FETCH_MAX_SIGNED : EDGE_FETCH_MAX; break;
	case FI_ATOMIC_WRITE: w->func = EDGE_SWAP; break;
	case FI_CSWAP: w->func = EDGE_COMPARE_SWAP; break;
	case FI_ATOMIC_READ: w->func = EDGE_FETCH_OR; return true; /* with nothing */
	default: return false;
	}
	memcpy(&w->operand, in, n);
	if (a.form == COMPARE)
		memcpy(&w->compare, in + n, n);
	return true;
}

/* --- the arithmetic: values are the bits of the type, in the low bytes --- */

static uint64_t get(const char *p, size_t n)
{
	uint64_t v = 0;
	memcpy(&v, p, n); /* little endian, as the rest */
	return v;
}

static double number(enum fi_datatype t, uint64_t v)
{
	float f;
	double d;
	uint32_t low = (uint32_t)v;
	memcpy(&f, &low, 4);
	memcpy(&d, &v, 8);
	return t == FI_FLOAT ? (double)f : d;
}

static uint64_t bits_of(enum fi_datatype t, double d)
{
	float f = t == FI_FLOAT ? (float)d : 0;
	uint32_t low;
	uint64_t v;
	memcpy(&low, &f, 4);
	memcpy(&v, &d, 8);
	return t == FI_FLOAT ? low : v;
}

static int64_t extended(enum fi_datatype t, uint64_t v)
{
	unsigned shift = 64 - 8 * (unsigned)width(t);
	return (int64_t)(v << shift) >> shift;
}

static bool less(enum fi_datatype t, uint64_t a, uint64_t b)
{
	if (real(t))
		return number(t, a) < number(t, b);
	bool without_sign = t == FI_UINT8 || t == FI_UINT16 || t == FI_UINT32 || t == FI_UINT64;
	return without_sign ? a < b : extended(t, a) < extended(t, b);
}

static bool same(enum fi_datatype t, uint64_t a, uint64_t b)
{
	return real(t) ? number(t, a) == number(t, b) : a == b;
}

static bool truth(enum fi_datatype t, uint64_t a)
{
	return !same(t, a, 0);
}

static uint64_t boolean(enum fi_datatype t, bool b)
{
	return !b ? 0 : real(t) ? bits_of(t, 1) : 1;
}

/* Whether operand takes the place of what is there. */
static bool swaps(enum fi_op op, enum fi_datatype t, uint64_t there, uint64_t compare)
{
	switch (op) {
	case FI_CSWAP: return same(t, compare, there);
	case FI_CSWAP_NE: return !same(t, compare, there);
	case FI_CSWAP_LE: return less(t, compare, there) || same(t, compare, there);
	case FI_CSWAP_LT: return less(t, compare, there);
	case FI_CSWAP_GE: return less(t, there, compare) || same(t, compare, there);
	default: return less(t, there, compare);
	}
}

static uint64_t apply(enum fi_op op, enum fi_datatype t, uint64_t there, uint64_t v, uint64_t compare)
{
	switch (op) {
	case FI_MIN: return less(t, v, there) ? v : there;
	case FI_MAX: return less(t, there, v) ? v : there;
	case FI_SUM: return real(t) ? bits_of(t, number(t, there) + number(t, v)) : there + v;
	case FI_PROD: return real(t) ? bits_of(t, number(t, there) * number(t, v)) : there * v;
	case FI_LOR: return boolean(t, truth(t, there) || truth(t, v));
	case FI_LAND: return boolean(t, truth(t, there) && truth(t, v));
	case FI_LXOR: return boolean(t, truth(t, there) != truth(t, v));
	case FI_BOR: return there | v;
	case FI_BAND: return there & v;
	case FI_BXOR: return there ^ v;
	case FI_ATOMIC_WRITE: return v;
	case FI_MSWAP: return (v & compare) | (there & ~compare);
	default: return swaps(op, t, there, compare) ? v : there;
	}
}

static uint64_t load(const char *p, size_t n)
{
	const void *at = p;
	switch (n) {
	case 1: return __atomic_load_n((const uint8_t *)at, __ATOMIC_SEQ_CST);
	case 2: return __atomic_load_n((const uint16_t *)at, __ATOMIC_SEQ_CST);
	case 4: return __atomic_load_n((const uint32_t *)at, __ATOMIC_SEQ_CST);
	default: return __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST);
	}
}

/* Stores to where *was stands; else false, and *was is what stands there. */
static bool exchange(char *p, size_t n, uint64_t *was, uint64_t to)
{
	void *at = p;
	bool done;
#define EXCHANGE(type) do { type old = (type)*was; \
		done = __atomic_compare_exchange_n((type *)at, &old, (type)to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		*was = old; } while (0)
	switch (n) {
	case 1: EXCHANGE(uint8_t); break;
	case 2: EXCHANGE(uint16_t); break;
	case 4: EXCHANGE(uint32_t); break;
	default: EXCHANGE(uint64_t);
	}
	return done;
}

/* Does what a good header says to memory of its reach, with what is at in; results, unless NULL, gets what was
 * there. */
int atomic_perform(const struct header *h, char *memory, const char *in, char *results)
{
	struct atomic a = unpack(h->data);
	size_t n = width(a.type);
	if ((uintptr_t)memory % n != 0)
		return EDGE_ERR_MISALIGNED;
	for (size_t i = 0; i < a.count; i++) {
		uint64_t v = a.op == FI_ATOMIC_READ ? 0 : get(in + i * n, n);
		uint64_t compare = a.form == COMPARE ? get(in + (a.count + i) * n, n) : 0, was = load(memory + i * n, n);
		while (a.op != FI_ATOMIC_READ && /* the memory may be readable alone */
		       !exchange(memory + i * n, n, &was, apply(a.op, a.type, was, v, compare)))
			;
		if (results != NULL)
			memcpy(results + i * n, &was, n);
	}
	return 0;
}

/* --- what programs post --- */

static size_t elements(const struct fi_ioc *v, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n && i < IOVS; i++)
		count += v[i].count;
	return count;
}

static char *gather(char *to, const struct fi_ioc *v, size_t n, size_t bytes)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].count > 0)
			to = (char *)memcpy(to, v[i].addr, v[i].count * bytes) + v[i].count * bytes;
	return to;
}

struct local { const struct fi_ioc *v; size_t n; };

/* The operands are copied: in front of them is where the results go. */
static ssize_t post_atomic(struct fid_ep *fid, const struct atomic *a, uint64_t addr, uint64_t key, struct local from,
                           struct local compare, struct local result, uint64_t flags, void *context)
{
	size_t bytes = width(a->type);
	if (!valid(a->op, a->type, a->form))
		return -FI_EOPNOTSUPP;
	if (flags & FI_REMOTE_CQ_DATA)
		return -FI_EBADFLAGS;
	if (a->count == 0 || a->count > ATOMIC_BYTES / bytes || from.n > IOVS || compare.n > IOVS || result.n > IOVS ||
	    (a->form == COMPARE && elements(compare.v, compare.n) != a->count) ||
	    (a->form != PLAIN && elements(result.v, result.n) != a->count))
		return -FI_EINVAL;
	size_t size = operands(a) * a->count * bytes;
	char *copy = malloc(sizeof(struct span) + size), *in = copy + sizeof(struct span);
	if (copy == NULL)
		return -FI_ENOMEM;
	struct iovec to[IOVS];
	for (size_t i = 0; i < result.n; i++)
		to[i] = (struct iovec){ result.v[i].addr, result.v[i].count * bytes };
	span_set((struct span *)(void *)copy, to, result.n);
	if (a->op != FI_ATOMIC_READ) {
		char *end = gather(in, from.v, from.n, bytes);
		gather(end, compare.v, compare.n, bytes);
	}
	struct header h = { .kind = K_ATOMIC, .addr = addr, .key = key, .data = pack(a) };
	uint64_t completion = FI_ATOMIC | (a->form == PLAIN ? FI_WRITE : FI_READ);
	ssize_t err = post(fid, &h, &(struct iovec){ in, size }, NULL, 1, copy, flags, completion, context);
	if (err != 0)
		free(copy);
	return err;
}

static uint64_t usual(const struct fid_ep *fid)
{
	return container_of(fid, struct ep, fid)->tx_flags;
}

static const struct local none = { NULL, 0 };

static ssize_t plainv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n, fi_addr_t to, uint64_t addr,
                      uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)to;
	struct atomic a = { op, type, PLAIN, elements(iov, n) };
	return post_atomic(ep, &a, addr, key, (struct local){ iov, n }, none, none, usual(ep), context);
}

static ssize_t write_one(struct fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t to, uint64_t addr,
                         uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc;
	return plainv(ep, &(struct fi_ioc){ (void *)buf, count }, NULL, 1, to, addr, key, type, op, context);
}

static ssize_t writemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, uint64_t flags)
{
	struct atomic a = { m->op, m->datatype, PLAIN, elements(m->msg_iov, m->iov_count) };
	if (m->rma_iov_count != 1 || m->rma_iov->count != a.count)
		return -FI_EINVAL;
	return post_atomic(ep, &a, m->rma_iov->addr, m->rma_iov->key, (struct local){ m->msg_iov, m->iov_count }, none,
	                   none, flags, m->context);
}

static ssize_t inject(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t to, uint64_t addr, uint64_t key,
                      enum fi_datatype type, enum fi_op op)
{
	(void)to;
	struct fi_ioc v = { (void *)buf, count };
	struct atomic a = { op, type, PLAIN, count };
	return post_atomic(ep, &a, addr, key, (struct local){ &v, 1 }, none, none, INJECTED, NULL);
}

static ssize_t readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n, struct fi_ioc *result,
                          void **result_desc, size_t nresult, fi_addr_t to, uint64_t addr, uint64_t key,
                          enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)result_desc, (void)to;
	struct local out = { result, nresult };
	struct atomic a = { op, type, FETCH, op == FI_ATOMIC_READ ? elements(result, nresult) : elements(iov, n) };
	return post_atomic(ep, &a, addr, key, (struct local){ iov, n }, none, out, usual(ep) & ~FI_INJECT, context);
}

static ssize_t readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result, void *result_desc,
                         fi_addr_t to, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op,
                         void *context)
{
	(void)desc, (void)result_desc;
	struct fi_ioc out = { result, count };
	return readwritev(ep, &(struct fi_ioc){ (void *)buf, count }, NULL, 1, &out, NULL, 1, to, addr, key, type, op,
	                  context);
}

static ssize_t readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, struct fi_ioc *result, void **result_desc,
                            size_t nresult, uint64_t flags)
{
	(void)result_desc;
	struct atomic a = { m->op, m->datatype, FETCH, elements(result, nresult) };
	struct local in = { m->msg_iov, m->iov_count };
	bool same_count = m->op == FI_ATOMIC_READ || elements(in.v, in.n) == a.count;
	if (m->rma_iov_count != 1 || m->rma_iov->count != a.count || !same_count)
		return -FI_EINVAL;
	return post_atomic(ep, &a, m->rma_iov->addr, m->rma_iov->key, in, none, (struct local){ result, nresult },
	                   flags, m->context);
}

static ssize_t compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t n,
                          const struct fi_ioc *compare, void **compare_desc, size_t ncompare, struct fi_ioc *result,
                          void **result_desc, size_t nresult, fi_addr_t to, uint64_t addr, uint64_t key,
                          enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)compare_desc, (void)result_desc, (void)to;
	struct atomic a = { op, type, COMPARE, elements(iov, n) };
	return post_atomic(ep, &a, addr, key, (struct local){ iov, n }, (struct local){ compare, ncompare },
	                   (struct local){ result, nresult }, usual(ep) & ~FI_INJECT, context);
}

static ssize_t compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc, const void *compare,
                         void *compare_desc, void *result, void *result_desc, fi_addr_t to, uint64_t addr,
                         uint64_t key, enum fi_datatype type, enum fi_op op, void *context)
{
	(void)desc, (void)compare_desc, (void)result_desc;
	struct fi_ioc with = { (void *)compare, count }, out = { result, count };
	return compwritev(ep, &(struct fi_ioc){ (void *)buf, count }, NULL, 1, &with, NULL, 1, &out, NULL, 1, to, addr,
	                  key, type, op, context);
}

static ssize_t compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *m, const struct fi_ioc *compare,
                            void **compare_desc, size_t ncompare, struct fi_ioc *result, void **result_desc,
                            size_t nresult, uint64_t flags)
{
	(void)compare_desc, (void)result_desc;
	struct atomic a = { m->op, m->datatype, COMPARE, elements(m->msg_iov, m->iov_count) };
	if (m->rma_iov_count != 1 || m->rma_iov->count != a.count)
		return -FI_EINVAL;
	return post_atomic(ep, &a, m->rma_iov->addr, m->rma_iov->key, (struct local){ m->msg_iov, m->iov_count },
	                   (struct local){ compare, ncompare }, (struct local){ result, nresult }, flags, m->context);
}

static int may(enum fi_datatype type, enum fi_op op, enum form form, size_t *count)
{
	if (!valid(op, type, form))
		return -FI_EOPNOTSUPP;
	*count = ATOMIC_BYTES / width(type);
	return 0;
}

static int writevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return may(type, op, PLAIN, count);
}

static int readwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return may(type, op, FETCH, count);
}

static int compwritevalid(struct fid_ep *ep, enum fi_datatype type, enum fi_op op, size_t *count)
{
	(void)ep;
	return may(type, op, COMPARE, count);
}

int query_atomic(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                 uint64_t flags)
{
	(void)d;
	if (flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC))
		return flags & FI_TAGGED ? -FI_EOPNOTSUPP : -FI_EBADFLAGS;
	attr->size = width(type);
	return may(type, op, flags & FI_COMPARE_ATOMIC ? COMPARE : flags & FI_FETCH_ATOMIC ? FETCH : PLAIN, &attr->count);
}

struct fi_ops_atomic ep_atomic_ops = { .size = sizeof(struct fi_ops_atomic), .write = write_one, .writev = plainv,
	.writemsg = writemsg, .inject = inject, .readwrite = readwrite, .readwritev = readwritev,
	.readwritemsg = readwritemsg, .compwrite = compwrite, .compwritev = compwritev, .compwritemsg = compwritemsg,
	.writevalid = writevalid, .readwritevalid = readwritevalid, .compwritevalid = compwritevalid };
