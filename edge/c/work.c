/* Work on its way to the ring: what it asks for is checked against its memory, and encoded (ABI A6.6 to A6.15). */
#include <string.h>

#include "ring.h"
#include "verbs.h"

static int check_range(const edge_device *d, const edge_region *l, size_t off, size_t n)
{
	if (l == NULL || l->d != d || l->closed)
		return fail(EDGE_ERR_INVALID, "work.local must be an open region of the same device; or use inline data");
	if (l->epoch != d->epoch)
		return EDGE_ERR_STALE;
	if (off > l->size || n > l->size - off)
		return fail(EDGE_ERR_BOUNDS, "%zu bytes at %zu, of a region of %zu", n, off, l->size);
	return 0;
}

static int check_pieces(const edge_device *d, const edge_work *w)
{
	if (w->npieces > EDGE_MAX_PIECES || w->local != NULL || w->local_off != 0 || w->size != 0 || w->inline_size > 0)
		return fail(EDGE_ERR_INVALID, "work.pieces are up to %d, in place of local, local_off, size and inline data",
		            EDGE_MAX_PIECES);
	int err = w->npieces > 1 ? check_feature(d, EDGE_FEATURE_PIECES, "pieces") : 0;
	for (uint32_t i = 0; err == 0 && i < w->npieces; i++) {
		err = check_range(d, w->pieces[i].region, w->pieces[i].off, w->pieces[i].size);
		if (err == 0 && i + 1 < w->npieces && w->pieces[i].size > UINT32_MAX)
			err = fail(EDGE_ERR_INVALID, "a piece before the last has less than 4 GiB");
	}
	return err;
}

/* How many places of the submission ring work takes. */
static uint32_t entries(const edge_work *w)
{
	if (w->inline_size > ABI_INLINE)
		return 1 + (w->inline_size - ABI_INLINE + ABI_BYTES_IN_ENTRY - 1) / ABI_BYTES_IN_ENTRY;
	return 1 + (w->npieces > 1 ? (w->npieces - 1 + ABI_IN_ENTRY - 1) / ABI_IN_ENTRY : 0);
}

static int check_inline(const edge_device *d, const edge_work *w)
{
	if (w->inline_size > EDGE_MAX_INLINE)
		return fail(EDGE_ERR_INVALID, "work.inline_size is above EDGE_MAX_INLINE; use a region");
	if (w->inline_size <= ABI_INLINE)
		return 0;
	if (entries(w) > d->ring->sq_entries)
		return fail(EDGE_ERR_INVALID, "work.inline_size is more than the queue holds; use a region");
	return check_feature(d, EDGE_FEATURE_BYTES, "more than 24 bytes inline");
}

/* Of memory that is granted the daemon carries one range, to or from a connection's peer (A7.19). */
static int check_granted(const edge_work *w)
{
	bool granted = w->npieces == 0 && w->local->kind == GRANTED;
	for (uint32_t i = 0; i < w->npieces; i++)
		granted |= w->pieces[i].region->kind == GRANTED;
	if (!granted || ((w->kind == EDGE_WRITE || w->kind == EDGE_READ) && w->npieces <= 1))
		return 0;
	return fail(EDGE_ERR_INVALID, "memory of edge_grant is for reads and writes in one piece; use edge_register");
}

/* Checks the local memory of work that is no atomic, and says how many bytes it is. */
static int check_local(const edge_device *d, const edge_work *w, size_t *n)
{
	*n = w->inline_size > 0 ? w->inline_size : w->size;
	if (w->npieces > 0) {
		int err = check_pieces(d, w);
		for (uint32_t i = 0; err == 0 && i < w->npieces; i++)
			*n += w->pieces[i].size;
		return err == 0 ? check_granted(w) : err;
	}
	if (w->inline_size > 0)
		return check_inline(d, w);
	int err = check_range(d, w->local, w->local_off, w->size);
	return err == 0 ? check_granted(w) : err;
}

static int check_remote(const edge_conn *c, const edge_work *w, size_t n, int perm)
{
	const edge_remote *r = w->remote;
	if (r == NULL && w->key != 0) /* the peer judges it */
		return check_feature(c->d, EDGE_FEATURE_DOMAINS, "domains");
	if (r == NULL || r->c != c || w->key != 0)
		return fail(EDGE_ERR_INVALID, "work.remote must be imported on this connection");
	if (r->revoked)
		return EDGE_ERR_REVOKED;
	if (w->remote_off > r->size || n > r->size - w->remote_off)
		return fail(EDGE_ERR_BOUNDS, "%zu bytes at %llu, of %llu", n, (unsigned long long)w->remote_off,
		            (unsigned long long)r->size);
	return (r->perm & (uint32_t)perm) == 0 ? EDGE_ERR_PERMISSION : 0;
}

static void encode_local(const edge_work *w, struct abi_sqe *e)
{
	if (w->inline_size > 0) {
		uint32_t own = w->inline_size < ABI_INLINE ? w->inline_size : ABI_INLINE;
		e->inline_len = (uint8_t)own;
		memcpy(e->u.bytes, (const char *)w->inline_data + w->inline_size - own, own);
		return;
	}
	edge_piece last = { w->local, w->local_off, w->size };
	if (w->npieces > 0)
		last = w->pieces[w->npieces - 1];
	e->u.local.region = last.region->id;
	e->u.local.off = last.off;
	e->u.local.length = last.size;
}

static int encode_transfer(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	bool reads = w->kind == EDGE_READ;
	size_t n;
	if (reads && ((w->flags & (EDGE_NOTIFY | EDGE_LOCAL_DONE)) || w->inline_size > 0))
		return fail(EDGE_ERR_INVALID, "a read takes neither EDGE_NOTIFY, EDGE_LOCAL_DONE nor inline data");
	int err = check_local(c->d, w, &n);
	if (err == 0)
		err = check_remote(c, w, n, reads ? EDGE_REMOTE_READ : EDGE_REMOTE_WRITE);
	if (err != 0)
		return err;
	if (!(c->d->features & EDGE_FEATURE_LOCAL))
		e->flags &= (uint8_t)~EDGE_LOCAL_DONE; /* it is done later, then */
	encode_local(w, e);
	return 0;
}

static int encode_atomic(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	int err = check_feature(c->d, EDGE_FEATURE_ATOMICS, "atomics");
	if (err != 0)
		return err;
	if ((w->size != 4 && w->size != 8) || w->func < EDGE_SWAP || w->func > EDGE_FETCH_MAX_SIGNED || w->local != NULL ||
	    w->npieces > 0 || w->inline_size > 0 || (w->compare != 0 && w->func != EDGE_COMPARE_SWAP) ||
	    (w->flags & EDGE_LOCAL_DONE))
		return fail(EDGE_ERR_INVALID, "an atomic has a func, a size of 4 or 8 and no local memory; only "
		            "EDGE_COMPARE_SWAP compares");
	err = check_remote(c, w, w->size, EDGE_REMOTE_ATOMIC);
	if (err == 0 && w->remote_off % w->size != 0)
		err = EDGE_ERR_MISALIGNED;
	e->inline_len = sizeof e->u.atomic;
	e->u.atomic.func = (uint8_t)w->func;
	e->u.atomic.size = (uint8_t)w->size;
	e->u.atomic.operand = w->operand;
	e->u.atomic.compare = w->compare;
	return err;
}

/* Checks and fills in what sends and Tells have in common. */
static int encode_message(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	int err = check_feature(c->d, EDGE_FEATURE_MESSAGES, "messages");
	if (err != 0)
		return err;
	if (w->remote != NULL || w->remote_off != 0 || w->key != 0 || (w->flags & EDGE_LOCAL_DONE))
		return fail(EDGE_ERR_INVALID, "a message takes no remote memory and no EDGE_LOCAL_DONE");
	e->remote_off = w->patience_us < 0 ? UINT64_MAX : (uint64_t)w->patience_us * 1000;
	return 0;
}

static int encode_tell(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	int err = check_feature(c->d, EDGE_FEATURE_DOMAINS, "domains");
	if (err == 0)
		err = encode_message(c, w, e);
	if (err != 0)
		return err;
	if (w->wrote > EDGE_MAX_MESSAGE)
		return EDGE_ERR_TOO_LONG;
	if (w->local != NULL || w->size > 0 || w->inline_size > 0 || w->npieces > 0 || !(w->flags & EDGE_NOTIFY))
		return fail(EDGE_ERR_INVALID, "EDGE_TELL takes work.wrote, EDGE_NOTIFY and imm, and no bytes");
	e->u.local.length = w->wrote;
	return 0;
}

static int encode_send(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	size_t n;
	int err = encode_message(c, w, e);
	if (err != 0)
		return err;
	if (w->local == NULL && w->size == 0 && w->inline_size == 0 && w->npieces == 0)
		return 0; /* the immediate is all there is */
	err = check_local(c->d, w, &n);
	if (err == 0 && n > EDGE_MAX_MESSAGE)
		err = EDGE_ERR_TOO_LONG;
	if (err == 0)
		encode_local(w, e);
	return err;
}

/* Checks work that is no receive, and fills in its entry but for the token. */
int work_encode(edge_conn *c, const edge_work *w, struct abi_sqe *e)
{
	if ((w->flags & ~15u) != 0)
		return fail(EDGE_ERR_INVALID, "work.flags has unknown flags");
	if ((w->reserved[0] | w->reserved[1]) != 0)
		return fail(EDGE_ERR_INVALID, "work.reserved must be zero; clear the struct before it is filled");
	*e = (struct abi_sqe){ .op = (uint8_t)w->kind, .flags = (uint8_t)w->flags, .conn = c->id,
		.imm = w->flags & EDGE_NOTIFY ? w->imm : 0 };
	if (w->kind == EDGE_TELL)
		return encode_tell(c, w, e);
	if (w->wrote != 0)
		return fail(EDGE_ERR_INVALID, "work.wrote is of EDGE_TELL");
	if (w->kind == EDGE_SEND)
		return encode_send(c, w, e);
	e->key = w->remote != NULL ? w->remote->key : w->key;
	e->remote_off = w->remote_off;
	switch (w->kind) {
	case EDGE_WRITE: case EDGE_READ: return encode_transfer(c, w, e);
	case EDGE_ATOMIC: return encode_atomic(c, w, e);
	}
	return fail(EDGE_ERR_INVALID, "work.kind is %d; choose one of enum edge_kind", w->kind);
}

/* Checks a buffer for messages of c, or of the connections of a queue, and writes it to the ring (A7.17). */
int receive_put(edge_device *d, edge_conn *c, uint32_t queue, const edge_work *w, edge_op *op)
{
	int err = check_feature(d, EDGE_FEATURE_MESSAGES, "messages");
	if (err == 0 && (w->kind != EDGE_RECEIVE || w->context == NULL || w->flags != 0 || w->remote != NULL ||
	    w->remote_off != 0 || w->inline_size > 0))
		err = fail(EDGE_ERR_INVALID, "a receive has local memory or pieces and a context, and nothing else");
	if (err == 0 && w->npieces > 1)
		err = check_feature(d, EDGE_FEATURE_SCATTER, "receives in pieces");
	size_t n;
	if (err == 0)
		err = check_local(d, w, &n);
	if (err != 0)
		return err;
	if (d->ops->free[1].n == 0 || !ring_room(d->ring, entries(w)))
		return EDGE_ERR_AGAIN;
	struct abi_sqe e = { .op = EDGE_RECEIVE, .conn = c != NULL ? c->id : 0, .key = queue };
	encode_local(w, &e);
	return op_launch(d, c, w, &e, op);
}

/* Checks work and writes it to the ring; the caller publishes. */
int op_put(edge_conn *c, const edge_work *w, edge_op *op)
{
	int err = conn_usable(c);
	if (err != 0)
		return err;
	if (w->kind == EDGE_RECEIVE)
		return receive_put(c->d, c, 0, w, op);
	struct abi_sqe e;
	err = work_encode(c, w, &e);
	if (err != 0)
		return err;
	if (!op_room(c, entries(w)))
		return EDGE_ERR_AGAIN;
	return op_launch(c->d, c, w, &e, op);
}

int edge_post(edge_conn *c, const edge_work *w, edge_op *op)
{
	int n = edge_post_batch(c, w, 1, op);
	return n < 0 ? n : 0;
}

static int post_some(edge_conn *c, const edge_work *w, size_t n, edge_op *ops)
{
	size_t i = 0;
	int err = 0;
	while (i < n && (err = op_put(c, &w[i], ops == NULL ? NULL : &ops[i])) == 0)
		i++;
	if (i > 0)
		ring_publish(c->d);
	return i > 0 ? (int)i : err;
}

int edge_post_batch(edge_conn *c, const edge_work *w, size_t n, edge_op *ops)
{
	edge_device *d = c->d;
	if (n == 0 || n > INT32_MAX)
		return n == 0 ? 0 : fail(EDGE_ERR_INVALID, "too many operations at once");
	enter(d);
	int done = post_some(c, w, n, ops);
	if ((done == EDGE_ERR_AGAIN || (done >= 0 && (size_t)done < n)) && pump(d, false) > 0) {
		int at = done < 0 ? 0 : done, more = post_some(c, w + at, n - (size_t)at, ops == NULL ? NULL : ops + at);
		done = more >= 0 ? at + more : done < 0 ? more : done;
	}
	return leave(d, done);
}

struct wish { edge_conn *c; const edge_work *w; };

static bool has_room(void *arg)
{
	struct wish *x = arg;
	edge_device *d = x->c->d;
	int err = conn_usable(x->c);
	if (err != 0)
		return err != EDGE_ERR_AGAIN; /* which it is while it dials */
	if (x->w->kind != EDGE_RECEIVE)
		return op_room(x->c, entries(x->w));
	return d->ops->free[1].n > 0 && ring_room(d->ring, entries(x->w));
}

int edge_post_wait(edge_conn *c, const edge_work *w, edge_op *op, int timeout_ms)
{
	edge_device *d = c->d;
	int64_t until = deadline(timeout_ms);
	struct wish x = { c, w };
	enter(d);
	int err;
	while ((err = post_some(c, w, 1, op)) == EDGE_ERR_AGAIN && (err = wait_for(d, has_room, &x, until)) == 0)
		;
	return leave(d, err > 0 ? 0 : err);
}

static int perform(edge_remote *r, edge_work *w, uint64_t *was, int timeout_ms)
{
	edge_device *d = r->c->d;
	int64_t until = deadline(timeout_ms);
	uint64_t found = 0;
	edge_op op = { 0 };
	w->kind = EDGE_ATOMIC;
	w->remote = r;
	w->size = 8;
	w->result = &found;
	int err = edge_post_wait(r->c, w, &op, timeout_ms);
	if (err != 0)
		return err;
	int64_t left = until == NEVER ? EDGE_FOREVER : (until - now_ns()) / MILLI;
	err = edge_op_wait(&op, until == NEVER ? EDGE_FOREVER : left > 0 ? (int)left : 0);
	enter(d);
	if (!op_settled(&op))
		d->ops->slots[op.slot].result = NULL; /* found is about to go */
	leave(d, 0);
	if (err == 0 && was != NULL)
		*was = found;
	return err == EDGE_ERR_AGAIN ? fail(EDGE_ERR_TIMEOUT, "not within the time that the call allows") : err;
}

int edge_atomic(edge_remote *r, int func, uint64_t off, uint64_t operand, uint64_t *was, int timeout_ms)
{
	return perform(r, &(edge_work){ .func = func, .remote_off = off, .operand = operand }, was, timeout_ms);
}

int edge_compare_swap(edge_remote *r, uint64_t off, uint64_t old, uint64_t new_, uint64_t *was, int timeout_ms)
{
	edge_work w = { .func = EDGE_COMPARE_SWAP, .remote_off = off, .operand = new_, .compare = old };
	return perform(r, &w, was, timeout_ms);
}
