/*
 * Reads, writes and atomics of the peer's registered memory as operations of libedge, which involve no code of the
 * peer's. Where keys are the provider's to choose (FI_MR_PROV_KEY), an endpoint has an ordered connection of libedge
 * beside its stream, in the domain of its peer's memory (ABI A7.20), and the upper half of a key says whether the
 * peer's daemon has that memory.
 *
 * Who connects dials it first, with 16 random bytes, and says the same bytes in its request for the stream. Who accepts
 * takes both or the stream alone, and says which with K_ACCEPT. Each says the upper half of its keys.
 *
 * What the peer's daemon refuses is not performed, nor is anything after it (PROTOCOL clause 22.3). It goes through the
 * stream then, as do all later operations: the peer's provider knows better what is wrong.
 *
 * Two ways to the peer keep the order that info.c promises since one waits for the other (native_fits, ops_release).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "endpoint.h"

enum { DIAL_MS = 60000, DRAIN_MS = 2000, BLOCK = INJECT, BLOCKS = 64 };

static const char magic[4] = "efn1";
struct hello { char magic[4], token[TOKEN]; uint32_t high; };
struct welcome { char magic[4]; uint32_t high; };

/* --- registered memory of the provider's, for bytes that lie in none of the program's --- */

struct stage { struct stage *next; size_t off; };
struct stages { edge_region *region; struct stage *free, all[BLOCKS]; };

static struct stages *stages_open(struct fabric *f)
{
	struct stages *s = calloc(1, sizeof *s);
	if (s == NULL || edge_register(f->dev, (size_t)BLOCK * BLOCKS, &s->region, ASK_MS) != 0) {
		free(s);
		return NULL;
	}
	for (size_t i = 0; i < BLOCKS; i++) {
		s->all[i] = (struct stage){ .next = s->free, .off = i * BLOCK };
		s->free = &s->all[i];
	}
	return f->stages = s;
}

void stages_close(struct fabric *f)
{
	if (f->stages != NULL)
		edge_region_close(f->stages->region);
	free(f->stages);
	f->stages = NULL;
}

static char *stage_bytes(const struct fabric *f, const struct stage *s)
{
	return (char *)edge_region_bytes(f->stages->region) + s->off;
}

static void stage_put(struct fabric *f, struct op *op)
{
	if (op->stage == NULL)
		return;
	op->stage->next = f->stages->free;
	f->stages->free = op->stage;
	op->stage = NULL;
}

/* Copies between a span of the program's and bytes of ours. */
static void span_copy(struct span s, char *p, uint64_t n, bool to_span)
{
	while (n > 0) {
		struct iovec v = span_piece(&s);
		size_t some = v.iov_len < n ? v.iov_len : n;
		memcpy(to_span ? v.iov_base : p, to_span ? p : v.iov_base, some);
		span_skip(&s, some);
		p += some;
		n -= some;
	}
}

/* --- operations --- */

static bool writes(const struct header *h)
{
	return h->kind != K_READ;
}

/* Whether an operation goes by libedge, if that takes it. */
bool native_fits(const struct ep *e, const struct op *op)
{
	const struct native *n = &e->native;
	const struct header *h = &op->h;
	edge_work w;
	if (op->streamed || !n->up || n->off || n->high == 0 || h->key >> 32 != n->high || (h->flags & F_DATA))
		return false;
	if (h->kind == K_ATOMIC)
		return atomic_native(h, op->from.iov[0].iov_base, &w);
	return (h->kind == K_READ || h->kind == K_WRITE) && h->size > 0;
}

/* The pieces of registered memory that the program's span is; false: it does not lie in such, or in too many. */
static bool pieces_of(struct op *op, edge_piece *to, uint32_t *n)
{
	*n = 0;
	for (uint32_t i = 0; i < op->from.n; i++) {
		struct mr *m = op->local[i];
		uintptr_t a = (uintptr_t)op->from.iov[i].iov_base, end = a + op->from.iov[i].iov_len, base;
		if (a == end)
			continue;
		if (m == NULL || op->injected || !mr_hold(m))
			return false;
		base = (uintptr_t)m->base;
		if (a < base || end > base + m->size)
			return false;
		for (int k = 0; k < m->nsegs && a < end; k++) {
			const struct seg *s = m->segs[k];
			if (a >= s->end)
				continue;
			if (*n == EDGE_MAX_PIECES)
				return false;
			uintptr_t to_end = end < s->end ? end : s->end;
			to[(*n)++] = (edge_piece){ .region = s->region, .off = a - s->start, .size = to_end - a };
			a = to_end;
		}
	}
	return *n > 0;
}

/* Fills in the local memory: 0, EDGE_ERR_AGAIN if there is none of ours left, or an error if none can be had. */
static int local(struct ep *e, struct op *op, edge_work *w, edge_piece *pieces)
{
	struct fabric *f = e->d->f;
	bool reads = op->h.kind == K_READ;
	if (!reads && op->h.size <= SMALL) {
		span_copy(op->from, op->small, op->h.size, false);
		span_set(&op->from, &(struct iovec){ op->small, op->h.size }, 1);
		w->inline_data = op->small;
		w->inline_size = (uint32_t)op->h.size;
		return 0;
	}
	if (pieces_of(op, pieces, &w->npieces)) {
		w->pieces = pieces;
		return 0;
	}
	w->npieces = 0;
	if (op->h.size > BLOCK || (f->stages == NULL && stages_open(f) == NULL))
		return EDGE_ERR_INVALID;
	struct stages *s = f->stages;
	if (edge_region_error(s->region) != 0)
		return EDGE_ERR_INVALID; /* it is of a daemon that has gone */
	if (s->free == NULL)
		return EDGE_ERR_AGAIN;
	op->stage = s->free;
	s->free = op->stage->next;
	if (!reads)
		span_copy(op->from, stage_bytes(f, op->stage), op->h.size, false);
	w->local = s->region;
	w->local_off = op->stage->off;
	w->size = op->h.size;
	return 0;
}

/* Not performed, and nothing after it, so that another way may be tried. An atomic meets a limit where the peer's
 * processors contend for the integer. */
static bool refused(const struct header *h, int err)
{
	return err == EDGE_ERR_KEY || err == EDGE_ERR_PERMISSION || err == EDGE_ERR_BOUNDS || err == EDGE_ERR_MISALIGNED ||
	       err == EDGE_ERR_STOPPED || (err == EDGE_ERR_LIMIT && h->kind == K_ATOMIC);
}

/* Has a refused operation go through the stream. False: there is no memory for the bytes that were injected. */
static bool send_again(struct ep *e, struct op *op)
{
	struct stage *s = op->injected ? op->stage : NULL;
	if (s != NULL && op->copy == NULL) {
		if ((op->copy = malloc(op->h.size)) == NULL)
			return false;
		memcpy(op->copy, stage_bytes(e->d->f, s), op->h.size);
		span_set(&op->from, &(struct iovec){ op->copy, op->h.size }, 1);
	}
	stage_put(e->d->f, op);
	op->left = op->h.kind == K_READ ? 0 : op->h.size;
	op_send(e, op);
	return true;
}

/* What our daemon's quota turned away was not performed, but what is behind it may be. */
static bool repeatable(const struct ep *e, const struct op *op, int err)
{
	return e->state == CONNECTED && (err == EDGE_ERR_QUOTA ? e->native.pending == 0 : refused(&op->h, err));
}

static void done(struct work *work, const edge_completion *c)
{
	struct op *op = (struct op *)work;
	struct ep *e = op->ep;
	struct native *n = &e->native;
	n->pending--;
	n->writes -= writes(&op->h);
	op->native = false;
	int err = c->err;
	if (err == 0 && !n->gone && op->stage != NULL && op->h.kind == K_READ)
		span_copy(op->from, stage_bytes(e->d->f, op->stage), op->h.size, true);
	if (err == 0 && !n->gone && op->h.kind == K_ATOMIC && atomic_answer(&op->h) >= 0)
		span_copy(*(struct span *)(void *)op->copy, (char *)&op->was, (uint64_t)atomic_answer(&op->h), true);
	n->off |= refused(&op->h, err);
	if (!repeatable(e, op, err) || !send_again(e, op)) {
		err = repeatable(e, op, err) ? EDGE_ERR_NO_MEMORY : err;
		stage_put(e->d->f, op);
		if (err == 0)
			op_complete(e, op, 0);
		else
			op_abandon(e, op, err);
		if (err != 0)
			ep_end(e, err); /* whether it was performed, or what is behind it, is unknown */
	}
	ops_release(e);
	ep_shut(e);
}

int native_post(struct ep *e, struct op *op)
{
	struct native *n = &e->native;
	const struct header *h = &op->h;
	edge_piece pieces[EDGE_MAX_PIECES];
	edge_work w = { .kind = h->kind == K_READ ? EDGE_READ : EDGE_WRITE };
	int err = 0;
	if (h->kind == K_ATOMIC) {
		atomic_native(h, op->from.iov[0].iov_base, &w);
		w.result = atomic_answer(h) >= 0 ? &op->was : NULL;
	} else {
		err = local(e, op, &w, pieces);
	}
	w.context = &op->work;
	w.key = h->key;
	w.remote_off = h->addr;
	if (err == 0)
		err = edge_post(n->conn, &w, NULL);
	if (err != 0) {
		n->off |= err != EDGE_ERR_AGAIN && edge_conn_error(n->conn) != 0;
		stage_put(e->d->f, op);
		return err;
	}
	op->work.done = done;
	op->ep = e;
	op->native = true;
	n->pending++;
	n->writes += writes(h);
	e->d->f->working++;
	return 0;
}

/* --- the connection --- */

/* Peers reach memory by libedge where nothing was asked for that needs our program: counters of what they do, and the
 * order of operations after messages. */
void native_begin(struct domain *d, const struct fi_info *info)
{
	static _Atomic uint32_t numbers;
	uint64_t order = info->tx_attr != NULL ? info->tx_attr->msg_order : 0;
	d->number = ++numbers;
	if (!d->keys || (info->caps & FI_RMA_EVENT) || (order & (FI_ORDER_RAS | FI_ORDER_WAS)) ||
	    !(edge_device_features(d->f->dev) & EDGE_FEATURE_DOMAINS) ||
	    getrandom(&d->high, sizeof d->high, 0) != sizeof d->high)
		d->high = 0;
}

bool native_dial(struct ep *e, const char *node, const char *service)
{
	struct native *n = &e->native;
	struct hello h = { .high = e->d->high };
	if (h.high == 0 || getrandom(n->token, TOKEN, 0) != TOKEN)
		return false;
	memcpy(h.magic, magic, sizeof magic);
	memcpy(h.token, n->token, TOKEN);
	edge_dial_options o = { .size = sizeof o, .ordered = 1, .data = &h, .data_size = sizeof h,
		.domain = e->d->number };
	return edge_dial_start(e->d->f->dev, node, service, &o, &n->conn, DIAL_MS) == 0;
}

bool native_is(const edge_request *q, char token[TOKEN])
{
	size_t size;
	const struct hello *h = edge_request_data(q, &size);
	bool is = size == sizeof *h && memcmp(h->magic, magic, sizeof magic) == 0;
	if (is)
		memcpy(token, h->token, TOKEN);
	return is;
}

void native_accept(struct ep *e, edge_request *q)
{
	struct native *n = &e->native;
	struct welcome w = { .high = e->d->high };
	size_t size;
	const struct hello *h = edge_request_data(q, &size);
	if (w.high == 0) {
		edge_request_refuse(q, "the program chooses its keys itself");
		return;
	}
	memcpy(w.magic, magic, sizeof magic);
	n->high = h->high;
	edge_request_join(q, e->d->number);
	n->up = edge_request_accept(q, &w, sizeof w, &n->conn, ASK_MS) == 0;
	if (!n->up)
		n->conn = NULL;
}

static void drop(struct native *n)
{
	edge_conn_free(n->conn);
	n->conn = NULL;
	n->up = false;
}

/* The peer accepted the stream, and said whether the connection as well: then its daemon's word is on the way. */
void native_join(struct ep *e)
{
	struct native *n = &e->native;
	size_t size = 0;
	int err = n->joining ? edge_conn_wait(n->conn, 0) : EDGE_ERR_REFUSED;
	if (err == EDGE_ERR_AGAIN && left_ns(n->until) > 0) {
		queue_step(e->d->f, &e->watched);
		return;
	}
	n->joining = false;
	const struct welcome *w = err == 0 ? edge_conn_data(n->conn, &size) : NULL;
	n->up = w != NULL && size == sizeof *w && memcmp(w->magic, magic, sizeof magic) == 0;
	if (n->up)
		n->high = w->high;
	else if (n->conn != NULL)
		drop(n);
	eq_push(e->eq, FI_CONNECTED, &e->fid.fid, 0, 0, NULL, e->cm.data, e->cm.size);
}

void native_end(struct ep *e)
{
	struct native *n = &e->native;
	if (n->joining) {
		n->joining = false;
		eq_push(e->eq, FI_CONNECTED, &e->fid.fid, 0, 0, NULL, e->cm.data, e->cm.size);
	}
	n->off = true;
	if (n->conn != NULL)
		edge_conn_abort(n->conn);
}

bool native_drain(struct ep *e)
{
	struct native *n = &e->native;
	struct fabric *f = e->d->f;
	native_end(e);
	for (int64_t until = until_ns(DRAIN_MS); n->pending > 0 && left_ns(until) > 0 && !forked(f);)
		finish_work(f, (int)(left_ns(until) / 1000000) + 1);
	if (n->pending > 0)
		return false;
	if (n->conn != NULL)
		drop(n);
	return true;
}
