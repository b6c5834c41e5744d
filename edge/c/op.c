/* Operations: a slot for each in flight, whose number and generation are the token (ABI A6.6), and how they ended. */
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "verbs.h"

#define NONE UINT32_MAX

enum { FAILURES = 1 << 16 };

int ops_open(struct ops *o, uint32_t depth)
{
	o->slots = calloc(2 * (size_t)depth, sizeof *o->slots);
	if (o->slots == NULL)
		return EDGE_ERR_NO_MEMORY;
	o->depth = depth;
	o->done_first = NONE;
	o->free[0] = (struct pool){ .first = 0, .n = depth };
	o->free[1] = (struct pool){ .first = depth, .n = depth };
	return 0;
}

void ops_close(struct ops *o)
{
	free(o->slots);
	free(o->pieces);
	free(o->failures);
	free(o->heads);
	memset(o, 0, sizeof *o);
}

static uint64_t key(uint32_t slot, uint32_t gen)
{
	return (uint64_t)gen << 32 | slot;
}

uint64_t op_key(const edge_op *op)
{
	return key(op->slot, op->gen);
}

static uint32_t bucket(uint64_t k)
{
	return (uint32_t)((k * UINT64_C(0x9e3779b97f4a7c15)) >> 48) & (FAILURES - 1);
}

/* Remembers a failure in place of the oldest. Success needs no memory. */
static void remember(struct ops *o, uint64_t k, int err)
{
	if (o->failures == NULL) {
		o->failures = calloc(FAILURES, sizeof *o->failures);
		o->heads = calloc(FAILURES, sizeof *o->heads); /* place + 1; 0: empty */
		if (o->failures == NULL || o->heads == NULL)
			return;
	}
	uint32_t place = o->nfailures++ & (FAILURES - 1);
	struct failure *f = &o->failures[place];
	if (f->key != 0) {
		uint32_t *at = &o->heads[bucket(f->key)];
		while (*at != place + 1)
			at = &o->failures[*at - 1].next;
		*at = f->next;
	}
	uint32_t *head = &o->heads[bucket(k)];
	*f = (struct failure){ .key = k, .next = *head, .err = err };
	*head = place + 1;
	o->any_failure = true;
}

static int recall(const struct ops *o, uint64_t k)
{
	if (!o->any_failure)
		return 0;
	for (uint32_t i = o->heads[bucket(k)]; i != 0; i = o->failures[i - 1].next)
		if (o->failures[i - 1].key == k)
			return o->failures[i - 1].err;
	return 0;
}

static void release(struct ops *o, uint32_t i)
{
	struct pool *p = &o->free[i >= o->depth];
	o->slots[i].next = p->first - (i + 1);
	p->first = i;
	p->n++;
}

/* Ends the operation or receive of a slot; s->end has what a completion says beside err. */
static void complete(edge_device *d, uint32_t i, int err)
{
	struct ops *o = d->ops;
	struct slot *s = &o->slots[i];
	edge_conn *c = s->conn;
	uint32_t gen = atomic_load_explicit(&s->gen, memory_order_relaxed);
	if (err != 0)
		remember(o, key(i, gen), err);
	if (s->region != NULL)
		s->region->inflight--;
	for (; s->npieces > 0; s->npieces--)
		o->pieces[i][s->npieces - 1]->inflight--;
	if (c != NULL)
		--*(i < o->depth ? &c->work.inflight : &c->work.posted);
	d->w->ops -= s->counted;
	if (s->awaited)
		await_less(d);
	s->end.err = err;
	s->conn = NULL;
	s->region = NULL;
	s->result = NULL;
	atomic_store_explicit(&s->gen, gen + 1, memory_order_release);
	if (s->end.context == NULL) {
		release(o, i);
	} else {
		s->next = NONE;
		if (o->done_first == NONE)
			o->done_first = i;
		else
			o->slots[o->done_last].next = i;
		o->done_last = i;
	}
	if (c != NULL)
		conn_completed(c, err);
}

/* Takes a completion of an operation or a receive; false: it cannot be right. */
bool ops_take(edge_device *d, const struct abi_cqe *e)
{
	uint32_t i = (uint32_t)e->token, gen = (uint32_t)(e->token >> 32);
	bool receives = e->kind == ABI_RECEIVED;
	if ((gen & 1) == 0 || (receives ? i < d->ops->depth || i >= 2 * d->ops->depth : i >= d->ops->depth))
		return false;
	struct slot *s = &d->ops->slots[i];
	if (atomic_load_explicit(&s->gen, memory_order_relaxed) != gen || (s->conn == NULL && !receives) ||
	    (s->conn != NULL && s->conn->id != e->conn))
		return false;
	if (s->result != NULL && e->status == 0)
		*s->result = e->offset;
	if (receives) {
		s->end.conn = s->conn != NULL ? s->conn : conn_find(d, e->conn);
		s->end.size = e->length;
		s->end.has_imm = e->flags & ABI_HAS_IMM;
		s->end.tells = (e->flags & ABI_TELLS) != 0;
		s->end.imm = s->end.has_imm ? e->imm : 0;
	}
	complete(d, i, e->status == 0 ? 0 : status_error(e->status, NULL));
	return true;
}

/* Takes the failure of a write that was done locally (A6.15); false: it cannot be right. */
bool ops_late(edge_device *d, const struct abi_cqe *e)
{
	uint32_t i = (uint32_t)e->token, gen = (uint32_t)(e->token >> 32);
	if (i >= d->ops->depth || (gen & 1) == 0 || e->status == 0)
		return false;
	int err = status_error(e->status, NULL);
	remember(d->ops, key(i, gen), err);
	edge_conn *c = conn_find(d, e->conn);
	if (c == NULL)
		return true;
	if (c->work.nlate++ == 0)
		c->work.late = err;
	if (c->user != NULL)
		c->user->failed(c, err);
	return true;
}

/* Ends all that is in flight. */
void ops_fail_all(edge_device *d, int err)
{
	for (uint32_t i = 0; i < 2 * d->ops->depth; i++)
		if (d->ops->slots[i].gen & 1)
			complete(d, i, err);
}

/* c is about to be freed: completions to be taken do not name it any more. */
void ops_forget_conn(struct ops *o, const edge_conn *c)
{
	for (uint32_t i = o->done_first; i != NONE; i = o->slots[i].next)
		if (o->slots[i].end.conn == c)
			o->slots[i].end.conn = NULL;
}

/* Whether an operation of so many entries can be put. */
bool op_room(const edge_conn *c, uint32_t entries)
{
	edge_device *d = c->d;
	return d->ops->free[0].n > 0 && c->work.inflight < d->window && ring_room(d->ring, entries);
}

/* Writes the entries that precede an operation or receive: all pieces but the last (A6.14). c: NULL for a buffer of a
 * receive queue. */
static void put_pieces(edge_device *d, edge_conn *c, const edge_work *w, uint32_t slot)
{
	struct slot *s = &d->ops->slots[slot];
	for (uint32_t at = 0, last = w->npieces - 1; at < last;) {
		struct abi_pieces e = { .op = ABI_OP_PIECES, .conn = c != NULL ? c->id : 0 };
		for (; at < last && e.count < ABI_IN_ENTRY; at++) {
			const edge_piece *p = &w->pieces[at];
			e.piece[e.count++] = (struct abi_piece){ p->region->id, (uint32_t)p->size, p->off };
			p->region->inflight++;
			d->ops->pieces[slot][s->npieces++] = p->region;
		}
		ring_put(d->ring, &e);
	}
}

/* Writes the entries that precede an operation with more bytes than fit into its own (A6.19). */
static void put_bytes(edge_device *d, const edge_conn *c, const edge_work *w)
{
	for (uint32_t at = 0, end = w->inline_size - ABI_INLINE; at < end;) {
		struct abi_bytes e = { .op = ABI_OP_BYTES, .conn = c->id };
		e.count = (uint8_t)(end - at < ABI_BYTES_IN_ENTRY ? end - at : ABI_BYTES_IN_ENTRY);
		memcpy(e.bytes, (const char *)w->inline_data + at, e.count);
		ring_put(d->ring, &e);
		at += e.count;
	}
}

/* Gives checked work a slot and writes it to the ring, where the caller saw room for it. */
int op_launch(edge_device *d, edge_conn *c, const edge_work *w, struct abi_sqe *e, edge_op *op)
{
	struct ops *o = d->ops;
	bool receives = w->kind == EDGE_RECEIVE;
	if (w->npieces > 1 && o->pieces == NULL && (o->pieces = calloc(2 * (size_t)o->depth, sizeof *o->pieces)) == NULL)
		return EDGE_ERR_NO_MEMORY;
	struct pool *p = &o->free[receives];
	uint32_t i = p->first;
	struct slot *s = &o->slots[i];
	uint32_t gen = (atomic_load_explicit(&s->gen, memory_order_relaxed) + 1) | 1;
	p->first = i + 1 + s->next;
	p->n--;
	s->conn = c;
	s->region = w->inline_size > 0 ? NULL : w->npieces > 0 ? w->pieces[w->npieces - 1].region : w->local;
	s->result = w->kind == EDGE_ATOMIC ? w->result : NULL;
	s->composing = 0;
	s->end = (edge_completion){ .context = w->context, .kind = w->kind, .conn = c };
	if (c != NULL)
		++*(receives ? &c->work.posted : &c->work.inflight);
	if (s->region != NULL)
		s->region->inflight++;
	/* A layer above knows when it waits for its own; a composed message ends when the program lets it. */
	s->awaited = !receives && (c->user == NULL || w->context != NULL);
	s->counted = s->awaited && e->op != ABI_OP_COMPOSE;
	d->w->ops += s->counted;
	if (s->awaited)
		await_more(d);
	atomic_store_explicit(&s->gen, gen, memory_order_relaxed);
	if (w->npieces > 1)
		put_pieces(d, c, w, i);
	if (w->inline_size > ABI_INLINE)
		put_bytes(d, c, w);
	e->token = key(i, gen);
	ring_put(d->ring, e);
	if (op != NULL)
		*op = (edge_op){ .dev = d, .slot = i, .gen = gen };
	return 0;
}

bool op_settled(const edge_op *op)
{
	return op->dev == NULL || atomic_load_explicit(&op->dev->ops->slots[op->slot].gen, memory_order_acquire) != op->gen;
}

/* How one that is settled ended. */
int op_result(const edge_op *op)
{
	return recall(op->dev->ops, op_key(op));
}

static bool settled(void *arg)
{
	return op_settled(arg);
}

int edge_op_done(const edge_op *op)
{
	if (op_settled(op))
		return 1;
	enter(op->dev);
	if (op->dev->dead == 0)
		pump(op->dev, false);
	return leave(op->dev, op_settled(op) || op->dev->dead != 0);
}

int edge_op_error(const edge_op *op)
{
	if (op->dev == NULL)
		return 0;
	enter(op->dev);
	int err = op_settled(op) ? op_result(op) : op->dev->dead;
	return leave(op->dev, err);
}

int edge_op_wait(const edge_op *op, int timeout_ms)
{
	if (op->dev == NULL)
		return 0;
	edge_device *d = op->dev;
	int64_t until = deadline(timeout_ms);
	edge_op copy = *op;
	enter(d);
	int err = wait_for(d, settled, &copy, until);
	if (err == 0)
		err = op_result(&copy);
	return leave(d, err);
}

static size_t take(edge_device *d, edge_completion *to, size_t n)
{
	struct ops *o = d->ops;
	size_t taken = 0;
	for (uint32_t i; taken < n && (i = o->done_first) != NONE; taken++) {
		to[taken] = o->slots[i].end;
		if (to[taken].conn != NULL && to[taken].conn->end.released)
			to[taken].conn = NULL;
		o->done_first = o->slots[i].next;
		release(o, i);
	}
	if (taken > 0)
		news(d);
	return taken;
}

int edge_completions(edge_device *d, edge_completion *to, size_t n)
{
	enter(d);
	if (d->dead == 0 && d->ops->done_first == NONE)
		pump(d, false);
	return leave(d, (int)take(d, to, n));
}

int edge_device_ready(edge_device *d)
{
	bool *peeked = &d->ring->peeked;
	if (!__atomic_load_n(peeked, __ATOMIC_ACQUIRE)) {
		enter(d);
		__atomic_store_n(peeked, true, __ATOMIC_RELEASE);
		return leave(d, 1);
	}
	/* The ring first: who takes entries off it has put them on the other list before. */
	return __atomic_load_n(&d->dead, __ATOMIC_RELAXED) != 0 || ring_peek(d->ring) ||
		__atomic_load_n(&d->ops->done_first, __ATOMIC_ACQUIRE) != NONE;
}

static bool any_done(void *arg)
{
	return ((edge_device *)arg)->ops->done_first != NONE;
}

int edge_completions_wait(edge_device *d, edge_completion *to, size_t n, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = wait_for_peer(d, any_done, d, until); /* each operation in flight is a reason to wake by itself */
	return leave(d, err != 0 ? err : (int)take(d, to, n));
}
