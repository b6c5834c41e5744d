/*
 * What stands in a stream: headers of 40 bytes, little endian, each followed by its payload.
 *
 *    0  kind       1 message, 2 write, 3 read, 4 data (of a read), 5 done, 6 accept, 7 reject, 8 atomic
 *    1  flags      bit 0: data counts; bit 1: done is asked for (of a message; a write is always answered)
 *    2  status     of data and done: 0, or an error of ABI A9
 *    4  id         of a message, write, read or atomic: the sender's; of data and done: of what they answer
 *    8  size       of the payload; of a read: of what is read. Data that fail have none
 *   16  addr, key  of a write, read or atomic: which memory of the receiver's
 *   32  data       of a message or write: for the completion queue; of an atomic: what it does (atomic.c); of an
 *                  accept: 1 if there is a connection for native.c as well
 *
 * The payload of an atomic is its operands, then what it compares with; data answer it where it fetches, else done.
 *
 * A peer has at most 1024 operations unanswered. Who breaks a rule is cut off.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

void header_put(char to[HEADER], const struct header *h)
{
	uint16_t status = htole16(h->status);
	uint32_t id = htole32(h->id);
	uint64_t words[4] = { htole64(h->size), htole64(h->addr), htole64(h->key), htole64(h->data) };
	to[0] = (char)h->kind;
	to[1] = (char)h->flags;
	memcpy(to + 2, &status, 2);
	memcpy(to + 4, &id, 4);
	memcpy(to + 8, words, sizeof words);
}

struct header header_of(const char from[HEADER])
{
	uint16_t status;
	uint32_t id;
	uint64_t words[4];
	memcpy(&status, from + 2, 2);
	memcpy(&id, from + 4, 4);
	memcpy(words, from + 8, sizeof words);
	return (struct header){ .kind = (uint8_t)from[0], .flags = (uint8_t)from[1], .status = le16toh(status),
		.id = le32toh(id), .size = le64toh(words[0]), .addr = le64toh(words[1]), .key = le64toh(words[2]),
		.data = le64toh(words[3]) };
}

/* --- sending --- */

/* What is to be sent next, at most n bytes of it: the memory itself where that is long, else put together. */
static const char *next_bytes(struct ep *e, struct op *op, size_t *n)
{
	char *scratch = e->d->f->scratch;
	if (op->head == HEADER) {
		struct iovec v = span_piece(&op->from);
		if (v.iov_len >= op->left || v.iov_len >= SCRATCH / 2) {
			*n = v.iov_len < op->left ? v.iov_len : op->left;
			return v.iov_base;
		}
	}
	size_t size = HEADER - op->head;
	memcpy(scratch, op->header + op->head, size);
	struct span from = op->from;
	for (uint64_t left = op->left; left > 0 && size < SCRATCH;) {
		struct iovec v = span_piece(&from);
		size_t some = v.iov_len < left ? v.iov_len : left;
		some = some < SCRATCH - size ? some : SCRATCH - size;
		memcpy(scratch + size, v.iov_base, some);
		span_skip(&from, some);
		size += some;
		left -= some;
	}
	*n = size;
	return scratch;
}

static void sent(struct op *op, size_t n)
{
	size_t head = HEADER - op->head;
	head = n < head ? n : head;
	op->head += (uint32_t)head;
	op->left -= n - head;
	if (n > head)
		span_skip(&op->from, n - head);
}

/* 1: all of it is in the stream; 0: there is no room. */
static int send_op(struct ep *e, struct op *op)
{
	while (op->head < HEADER || op->left > 0) {
		size_t n;
		const char *p = next_bytes(e, op, &n);
		ssize_t k = link_write(&e->link, p, n);
		if (k <= 0)
			return k == EDGE_ERR_AGAIN || k == 0 ? 0 : (int)k;
		sent(op, (size_t)k);
	}
	return 1;
}

void ep_write(struct ep *e)
{
	for (struct op *op; e->state == CONNECTED && (op = e->ops.first) != NULL;) {
		int n = send_op(e, op);
		if (n < 0)
			ep_end(e, n);
		if (n <= 0)
			return;
		e->ops.first = op->next;
		if (e->ops.first == NULL)
			e->ops.last = &e->ops.first;
		if (op->h.kind == K_ACCEPT)
			eq_push(e->eq, FI_CONNECTED, &e->fid.fid, 0, 0, NULL, NULL, 0);
		if (op->h.kind == K_DATA && op->h.status == 0)
			cntr_count(ep_cntr(e, FI_REMOTE_READ), false);
		if (op->sort == ANSWER)
			op_free(e, op);
		else if (op->sort == ASK)
			op->waits = true;
		else
			op_complete(e, op, 0);
		ep_shut(e);
	}
}

void op_send(struct ep *e, struct op *op)
{
	op->h.id = op->sort == ANSWER ? op->h.id : op->id;
	header_put(op->header, &op->h);
	bool first = e->ops.first == NULL;
	e->ops.unanswered += op->sort == ASK;
	*e->ops.last = op;
	e->ops.last = &op->next;
	if (first)
		ep_write(e);
}

/* What waits at a fence stands aside: the answers to our peer, for which its own fence may wait, pass by. Messages that
 * nobody answers are in order in the stream, so that fences need not wait for them. */
void op_post(struct ep *e, struct op *op)
{
	*e->ops.held_last = op;
	e->ops.held_last = &op->next;
	ops_release(e);
}

/* Whether an operation may not begin yet: of those that go by libedge and those through the stream each wait for the
 * other's to be over. Messages wait for what changes the peer's memory alone, and nothing waits for messages. */
static bool must_wait(const struct ep *e, const struct op *op, bool native)
{
	const struct native *n = &e->native;
	uint32_t unanswered = e->ops.unanswered;
	if (op->fenced && unanswered + n->pending > 0)
		return true;
	if (native)
		return unanswered > 0;
	return (op->h.kind == K_MESSAGE ? n->writes : n->pending) > 0;
}

void ops_release(struct ep *e)
{
	struct ops *o = &e->ops;
	if (o->releasing)
		return; /* what is posted may end here again */
	o->releasing = true;
	for (struct op *op; (op = o->held) != NULL && e->state == CONNECTED;) {
		bool native = native_fits(e, op);
		if (must_wait(e, op, native))
			break;
		int err = native ? native_post(e, op) : 0;
		if (err == EDGE_ERR_AGAIN) {
			if (e->native.pending == 0) /* else the next of them that is over comes here */
				queue_step(e->d->f, &e->watched);
			break;
		}
		if (err != 0) {
			op->streamed = true;
			continue;
		}
		o->held = op->next;
		if (o->held == NULL)
			o->held_last = &o->held;
		op->next = NULL;
		if (!native)
			op_send(e, op);
	}
	o->releasing = false;
}

bool ops_unsent(const struct ep *e)
{
	return e->ops.first != NULL || e->ops.held != NULL;
}

/* The peer ends the connection once it reads this end, and what is under way by native.c with it. */
void ep_shut(struct ep *e)
{
	if (e->state == CONNECTED && e->shut && !ops_unsent(e) && e->native.pending == 0)
		link_shut(&e->link);
}

/* copy becomes the answer's. */
static void answer(struct ep *e, uint8_t kind, int status, struct iovec from, struct mr *mr, char *copy)
{
	struct op *op = op_get(e, ANSWER, TX_MOST);
	if (op == NULL) {
		free(copy);
		ep_end(e, e->ops.count[ANSWER] >= TX_MOST ? EDGE_ERR_STREAM : EDGE_ERR_NO_MEMORY);
		return;
	}
	op->h = (struct header){ .kind = kind, .status = (uint16_t)-status, .id = e->in.h.id, .size = from.iov_len };
	op->mr = mr;
	op->copy = copy;
	op->left = span_set(&op->from, &from, 1);
	op_send(e, op);
	if (mr != NULL && from.iov_len <= ORDERED)
		op_keep(e, op);
}

/* --- receiving --- */

/* The memory that the header names: 0, or why the peer may not have it. */
static int find_memory(struct ep *e, const struct header *h, uint64_t size, uint64_t access, struct iovec *to,
                       struct mr **mr)
{
	struct mr *m = mr_find(e->d, h->key);
	*to = (struct iovec){ NULL, 0 };
	*mr = NULL;
	if (m == NULL)
		return EDGE_ERR_KEY;
	if ((m->access & access) != access)
		return EDGE_ERR_PERMISSION;
	if (h->addr < m->first || h->addr - m->first > m->size || size > m->size - (h->addr - m->first))
		return EDGE_ERR_BOUNDS;
	*to = (struct iovec){ m->base + (h->addr - m->first), size };
	*mr = m;
	return 0;
}

/* The operation of ours that is answered. */
static struct op *find_op(struct ep *e)
{
	const struct header *h = &e->in.h;
	struct op *op = h->id < e->ops.n ? e->ops.table[h->id] : NULL;
	bool known = h->status == 0 || h->status == -EDGE_ERR_KEY || h->status == -EDGE_ERR_PERMISSION ||
	             h->status == -EDGE_ERR_BOUNDS || h->status == -EDGE_ERR_TOO_LONG || h->status == -EDGE_ERR_MISALIGNED;
	if (op == NULL || !op->waits || !known)
		return NULL;
	int64_t wants = op->h.kind == K_ATOMIC ? atomic_answer(&op->h) : op->h.kind == K_READ ? (int64_t)op->h.size : -1;
	if ((h->kind == K_DATA) != (wants >= 0))
		return NULL;
	return h->size == (wants >= 0 && h->status == 0 ? (uint64_t)wants : 0) ? op : NULL;
}

/* The endpoint is shut: what its peer asks for is not done any more, nor answered. */
static bool unwanted(const struct ep *e)
{
	uint8_t kind = e->in.h.kind;
	return e->shut && (kind == K_MESSAGE || kind == K_WRITE || kind == K_READ || kind == K_ATOMIC);
}

/* What is being received goes nowhere from now on, if it is unwanted. */
void inbound_drop(struct ep *e)
{
	if (!e->in.begun || !unwanted(e))
		return;
	e->in.dropped = true;
	e->in.room = 0;
	e->in.mr = NULL;
}

/* A message meets the oldest buffer. False: there is none. */
static bool meet(struct ep *e)
{
	struct inbound *in = &e->in;
	if (!rx_take(e, &in->rx))
		return false;
	in->to = in->rx.to;
	in->room = in->rx.size;
	in->status = in->h.size > in->room ? EDGE_ERR_TOO_LONG : 0;
	return true;
}

/* An atomic is performed once its operands are there. */
static bool begin_atomic(struct ep *e)
{
	struct inbound *in = &e->in;
	if (!atomic_good(&in->h))
		return false;
	if (e->operands == NULL && (e->operands = malloc(2 * ATOMIC_BYTES)) == NULL) {
		ep_end(e, EDGE_ERR_NO_MEMORY);
		return false;
	}
	span_set(&in->to, &(struct iovec){ e->operands, in->h.size }, 1);
	return true;
}

/* The header is there: finds out where its payload goes. False: there is no buffer, or the peer is cut off. */
static bool begin(struct ep *e)
{
	struct inbound *in = &e->in;
	const struct header *h = &in->h;
	struct iovec to;
	in->h = header_of(in->header);
	in->left = h->kind == K_READ ? 0 : h->size;
	in->room = h->size;
	in->status = 0;
	bool greets = h->kind == K_ACCEPT || h->kind == K_REJECT;
	bool good = greets == (e->state == GREETING) && (h->flags & ~(F_DATA | F_ANSWER)) == 0;
	in->dropped = false;
	if (good && unwanted(e)) {
		in->begun = true;
		inbound_drop(e);
		return true;
	}
	switch (good ? h->kind : 0) {
	case K_MESSAGE:
		if (!meet(e))
			return false;
		break;
	case K_WRITE:
		if ((h->flags & F_DATA) && (e->stalled = !cq_takes(e->rx_cq)))
			return false;
		in->status = find_memory(e, h, h->size, FI_REMOTE_WRITE, &to, &in->mr);
		in->room = span_set(&in->to, &to, 1);
		break;
	case K_READ:
		break;
	case K_DATA:
	case K_DONE:
		in->op = find_op(e);
		good = in->op != NULL;
		if (good)
			in->to = in->op->h.kind == K_ATOMIC ? *(struct span *)(void *)in->op->copy : in->op->from;
		break;
	case K_ATOMIC:
		good = begin_atomic(e);
		break;
	case K_ACCEPT:
	case K_REJECT:
		good = h->size <= CM_DATA;
		e->cm.size = good ? h->size : 0;
		span_set(&in->to, &(struct iovec){ e->cm.data, e->cm.size }, 1);
		break;
	default:
		good = false;
	}
	if (!good)
		ep_end(e, EDGE_ERR_STREAM);
	else
		in->begun = true;
	return good;
}

/* What a peer may not do concerns the peer alone: nobody here is told, or counts it. */
static void written(struct ep *e, const struct header *h, int status, const struct mr *mr)
{
	if (status == 0) {
		cntr_count(mr->cntr, false);
		struct fi_cq_err_entry c = { .flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, .len = h->size,
			.data = h->data };
		ep_tell(e, e->rx_cq, &c, !(h->flags & F_DATA));
	}
	answer(e, K_DONE, status, (struct iovec){ NULL, 0 }, NULL, NULL);
}

static void perform(struct ep *e, const struct header *h)
{
	struct iovec at, from = { NULL, 0 };
	struct mr *mr;
	bool fetches = atomic_answer(h) >= 0;
	char *results = fetches ? malloc(ATOMIC_BYTES) : NULL;
	int status = find_memory(e, h, atomic_reach(h), atomic_access(h), &at, &mr);
	if (fetches && results == NULL) {
		ep_end(e, EDGE_ERR_NO_MEMORY);
		return;
	}
	if (status == 0)
		status = atomic_perform(h, at.iov_base, e->operands, results);
	if (fetches && status == 0)
		from = (struct iovec){ results, (size_t)atomic_answer(h) };
	else if (status == 0)
		cntr_count(ep_cntr(e, FI_REMOTE_WRITE), false);
	if (status == 0 && (atomic_access(h) & FI_REMOTE_WRITE))
		cntr_count(mr->cntr, false);
	answer(e, fetches ? K_DATA : K_DONE, status, from, NULL, results);
}

/* All of the payload is there. */
static void finish(struct ep *e)
{
	struct inbound was = e->in;
	const struct header *h = &was.h;
	struct iovec from;
	struct mr *mr;
	e->in.begun = false;
	e->in.got = 0;
	e->in.mr = NULL;
	switch (was.dropped ? 0 : h->kind) {
	case 0:
		break;
	case K_MESSAGE:
		rx_complete(e, &was.rx, h, h->size, was.status);
		if (h->flags & F_ANSWER)
			answer(e, K_DONE, was.status, (struct iovec){ NULL, 0 }, NULL, NULL);
		break;
	case K_WRITE:
		written(e, h, was.status, was.mr);
		break;
	case K_READ:
		was.status = find_memory(e, h, h->size, FI_REMOTE_READ, &from, &mr);
		answer(e, K_DATA, was.status, from, mr, NULL);
		break;
	case K_ATOMIC:
		perform(e, h);
		break;
	case K_DATA:
	case K_DONE:
		was.op->waits = false;
		e->ops.unanswered--;
		op_complete(e, was.op, -(int)h->status);
		ops_release(e);
		break;
	default:
		cm_answered(e, h);
	}
}

/* Reads payload to where it goes, and what has no room there to nowhere. */
static ssize_t read_payload(struct ep *e)
{
	struct inbound *in = &e->in;
	struct fabric *f = e->d->f;
	struct iovec v = { f->scratch, SCRATCH };
	if (in->room > 0) {
		v = span_piece(&in->to);
		v.iov_len = v.iov_len < in->room ? v.iov_len : in->room;
	}
	ssize_t n = link_read(&e->link, v.iov_base, v.iov_len < in->left ? v.iov_len : in->left);
	if (n <= 0)
		return n;
	in->left -= (size_t)n;
	if (in->room > 0) {
		in->room -= (size_t)n;
		span_skip(&in->to, (size_t)n);
	}
	return n;
}

void ep_read(struct ep *e)
{
	struct inbound *in = &e->in;
	for (size_t step = 0; e->state == CONNECTED || e->state == GREETING;) {
		if (step > STEP) {
			queue_step(e->d->f, &e->watched);
			return;
		}
		ssize_t n = HEADER;
		if (in->got < HEADER) {
			n = link_read(&e->link, in->header + in->got, HEADER - in->got);
			in->got += n > 0 ? (uint32_t)n : 0;
		} else if (!in->begun) {
			if (!begin(e))
				return;
		} else if (in->left > 0) {
			n = read_payload(e);
		} else {
			finish(e);
		}
		if (n == EDGE_ERR_AGAIN)
			return;
		if (n <= 0)
			ep_end(e, n < 0 ? (int)n : in->got > 0 ? EDGE_ERR_RESET : 0);
		step += n > 0 ? (size_t)n : 0;
	}
}

/* Something changed: room, bytes, the end. */
void ep_step(struct ep *e)
{
	if (e->state == CONNECTING || e->state == ACCEPTING)
		cm_step(e);
	if (e->native.joining)
		native_join(e);
	if (e->ops.held != NULL)
		ops_release(e);
	ep_write(e);
	if (!e->stalled)
		ep_read(e);
}
