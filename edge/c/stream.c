/*
 * Streams (PROTOCOL clause 11): reading, writing, and what the peer says. Each end exports a ring to the other. Write
 * copies to the send buffer and posts it as a write with notification into the peer's ring; the notification moves
 * tail there. Read copies out of the ring; when a quarter was read, a notification back says that so much may be
 * sent.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "stream.h"

#define SHORT 4096 /* a piece of up to so many bytes is copied by the daemon: its completion wakes nobody later */

/* Ends the connection at once, for a reason of this end. */
void stream_cut(edge_stream *s, int err)
{
	if (s->err == 0)
		s->err = err;
	if (s->c->state != ENDED)
		conn_abort(s->c, err);
}

/* Returns why the stream ended, 0 while it has not. */
int stream_end(const edge_stream *s)
{
	if (s->d->dead != 0)
		return s->d->dead;
	if (s->err != 0)
		return s->err;
	if (s->c->state != ENDED)
		return 0;
	int err = s->c->err; /* for a stream only Fin is an end in good order (clause 11.6) */
	return err == EDGE_ERR_PEER_CLOSED || err == EDGE_ERR_ABORTED || err == EDGE_ERR_CLOSED ? EDGE_ERR_RESET : err;
}

/* The peer's word that a piece is in the ring, or that it read, or that it writes no more (clauses 11.3 to 11.5).
 * What it says may be nonsense. */
void stream_arrived(edge_stream *s, const struct note *n)
{
	struct inbound *i = &s->in;
	struct outbound *o = &s->out;
	uint64_t count = n->imm & IMM_COUNT;
	bool good = false;
	switch (n->imm & IMM_KIND) {
	case IMM_DATA:
		good = n->len > 0 && !i->fin && count == (i->tail & IMM_COUNT) && n->len <= i->granted + s->ring - i->tail;
		if (good)
			i->tail += n->len;
		break;
	case IMM_CREDIT:
		good = count > 0 && count <= o->sent - o->acked;
		if (good)
			o->acked += count;
		break;
	case IMM_FIN:
		good = !i->fin && count == (i->tail & IMM_COUNT);
		i->fin = i->fin || good;
		break;
	case IMM_REST:
		good = rest_arrived(s, count, n->len);
		break;
	}
	if (!good)
		stream_cut(s, EDGE_ERR_STREAM);
	stream_advance(s);
}

/* An operation failed. What ends with the connection is left to its end; else a hole would be in the stream. */
void stream_failed(edge_stream *s, int err)
{
	switch (err) {
	case EDGE_ERR_KEY: case EDGE_ERR_PERMISSION: case EDGE_ERR_BOUNDS: case EDGE_ERR_LIMIT: case EDGE_ERR_QUOTA:
		stream_cut(s, err);
	}
}

/* Whether operations that complete are to wake the program for its sake. */
void stream_await(edge_stream *s, bool on)
{
	on |= s->closed;
	if (s->awaits == on)
		return;
	s->awaits = on;
	if (on)
		await_more(s->d);
	else
		await_less(s->d);
}

/* An operation completed. If it was in time, others have no use for that. */
void stream_completed(edge_stream *s, int err)
{
	if (err != 0)
		stream_failed(s, err);
	if (err != 0 || s->awaits || s->c->state != OPEN)
		stream_advance(s);
}

/* The peer's ring, NULL while it is not known. */
static edge_remote *peer_ring(edge_stream *s)
{
	if (s->peer != NULL || s->state != S_OPEN)
		return s->peer;
	edge_remote *r = remote_find(s->c, "stream");
	if (r == NULL)
		return NULL;
	if (r->size < 4096 || r->size > 512u << 20 || (r->size & (r->size - 1)) != 0 || !(r->perm & EDGE_REMOTE_WRITE)) {
		stream_cut(s, EDGE_ERR_STREAM);
		return NULL;
	}
	r->held++;
	return s->peer = r;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool may_put(const edge_stream *s)
{
	return op_room(s->c, 1);
}

/* Forgets pieces that the transport needs no more. */
static void reap(struct outbound *o)
{
	for (; o->flying > 0 && op_settled(&o->pieces[o->oldest].op); o->flying--) {
		o->freed += o->pieces[o->oldest].n;
		o->oldest = (o->oldest + 1) % PIECES;
	}
}

/* How long the next piece can be: it passes neither what the peer's ring and the send buffer have room for, nor the
 * end of either, nor a quarter of either, so that pieces follow each other while earlier ones are read. */
static size_t room(edge_stream *s)
{
	struct outbound *o = &s->out;
	edge_remote *to = peer_ring(s);
	if (to == NULL || s->region == NULL || s->rest.begun)
		return 0;
	reap(o);
	size_t ring = to->size, size = o->size;
	size_t unread = o->sent - o->acked;
	size_t open = o->bound > 0 ? least(ring, o->bound > ring / 4 ? o->bound : ring / 4) : ring;
	size_t peers = open > unread ? open - unread : 0, ours = o->flying < PIECES ? size - (o->sent - o->freed) : 0;
	/* A buffer that is shorter than the peer's ring has less room even while nothing is on its way. */
	stream_await(s, (ours < peers && ours < size / 4) || !may_put(s));
	peers = least(peers, least(ring - (o->sent & (ring - 1)), ring / 4));
	return least(peers, least(ours, least(size - (o->sent & (size - 1)), size / 4)));
}

static bool due(const edge_stream *s)
{
	return s->ring != 0 && s->in.head - s->in.granted >= s->ring / 4 && !s->in.fin;
}

static int say(edge_stream *s, uint32_t imm, uint32_t flags)
{
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_NOTIFY | flags, .imm = imm, .local = s->region,
	    .remote = s->peer };
	int err = op_put(s->c, &w, NULL);
	if (err == 0)
		ring_publish(s->d);
	return err;
}

/* Tells the daemon whom events of s are to wake. */
static bool aim(edge_stream *s)
{
	if (!ring_room(s->d->ring, 1))
		return false;
	ring_put(s->d->ring, &(struct abi_sqe){ .op = ABI_OP_AIM, .conn = s->c->id, .imm = s->word });
	ring_publish(s->d);
	s->aimed = s->word;
	return true;
}

/* Says what is due: credit, and the end of what we write. False: there is no room for that. */
bool stream_pay(edge_stream *s)
{
	if (s->state != S_OPEN || s->c->state != OPEN || s->c->end.closing || stream_end(s) != 0)
		return true;
	if (s->aimed != s->word && !aim(s))
		return false;
	if (peer_ring(s) == NULL)
		return true;
	int err = 0;
	if (due(s)) {
		err = say(s, IMM_CREDIT | (uint32_t)(s->in.head - s->in.granted), EDGE_LOCAL_DONE);
		if (err == 0)
			s->in.granted = s->in.head;
	}
	if (err == 0 && rest_due(s)) {
		err = say(s, IMM_REST | (uint32_t)(s->out.sent & IMM_COUNT), EDGE_BACKWARD_FENCE);
		s->rest.said = err == 0;
		s->out.fin |= s->rest.said;
	}
	if (err == 0 && s->out.shut && !s->out.fin) {
		err = say(s, IMM_FIN | (uint32_t)(s->out.sent & IMM_COUNT), EDGE_BACKWARD_FENCE);
		s->out.fin = err == 0;
	}
	if (err == EDGE_ERR_AGAIN)
		return false;
	if (s->crowded) {
		s->crowded = !may_put(s);
		if (!s->crowded)
			changed(s->d, &s->watch);
		return !s->crowded;
	}
	return true;
}

/* Something changed: says what is due, and tells who wants to know. */
void stream_advance(edge_stream *s)
{
	news(s->d);
	changed(s->d, &s->watch);
	if (due(s) || (s->out.shut && !s->out.fin) || rest_due(s))
		return_credit(s->c);
	if (s->closed)
		stream_step(s);
}

static bool can_read(void *arg)
{
	edge_stream *s = arg;
	return s->in.tail != s->in.head || s->in.fin || stream_end(s) != 0;
}

static bool can_write(void *arg)
{
	edge_stream *s = arg;
	return s->out.shut || stream_end(s) != 0 || (room(s) > 0 && may_put(s));
}

/* Copies out of the ring, without the device's lock if that is long. */
static void take(edge_stream *s, char *p, size_t n, bool peek)
{
	const char *ring = s->region->bytes;
	size_t at = s->in.head & (s->ring - 1), first = least(n, s->ring - at);
	bool longer = n > SHORT;
	if (longer)
		unlock(s->d);
	memcpy(p, ring + at, first);
	memcpy(p + first, ring, n - first);
	if (longer)
		pthread_mutex_lock(&s->d->mu);
	if (peek)
		return;
	s->in.head += n;
	if (due(s) && s->d->dead == 0)
		return_credit(s->c);
}

static ssize_t read_some(edge_stream *s, void *p, size_t size, bool peek)
{
	if (s->d->dead != 0)
		return s->d->dead;
	if (s->in.tail == s->in.head)
		pump(s->d, false);
	size_t n = least(size, s->in.tail - s->in.head);
	if (n > 0)
		take(s, p, n, peek);
	if (n > 0 || size == 0 || s->in.fin)
		return (ssize_t)n;
	int err = stream_end(s);
	return err != 0 ? err : EDGE_ERR_AGAIN;
}

static ssize_t read_wait(edge_stream *s, void *p, size_t size, int timeout_ms, bool peek)
{
	edge_device *d = s->d;
	int64_t until = deadline(timeout_ms);
	for (;;) {
		pthread_mutex_lock(&s->in.mu); /* not while waiting: others may look without waiting */
		enter(d);
		ssize_t n = read_some(s, p, size, peek);
		pthread_mutex_unlock(&s->in.mu);
		int err = n == EDGE_ERR_AGAIN ? wait_for_peer(d, can_read, s, until) : 1;
		leave(d, 0);
		if (err != 0)
			return err > 0 ? n : err;
	}
}

ssize_t edge_stream_read(edge_stream *s, void *p, size_t size, int timeout_ms)
{
	return read_wait(s, p, size, timeout_ms, false);
}

ssize_t edge_stream_peek(edge_stream *s, void *p, size_t size, int timeout_ms)
{
	return read_wait(s, p, size, timeout_ms, true);
}

static int writable(const edge_stream *s)
{
	return s->out.shut ? EDGE_ERR_SHUT : stream_end(s);
}

/* What is written: bytes at p, or if that is NULL what fill puts. */
struct source { const char *p; ssize_t (*fill)(void *, size_t, void *, size_t); void *arg; };

static ssize_t put(const struct source *from, size_t at, char *to, size_t n)
{
	if (from->p == NULL)
		return from->fill(from->arg, at, to, n);
	memcpy(to, from->p + at, n);
	return (ssize_t)n;
}

/* Whether stream_post would find room, for a piece of its own. */
bool stream_may_post(edge_stream *s)
{
	reap(&s->out);
	return peer_ring(s) != NULL && s->out.flying < PIECES && may_put(s);
}

/* Gives the next n bytes of the send buffer to the transport. */
int stream_post(edge_stream *s, size_t n, uint32_t imm)
{
	struct outbound *o = &s->out;
	/* Fenced, so that the bytes before are in place when the peer is notified (clause 11.4). */
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_NOTIFY | EDGE_BACKWARD_FENCE | (n > SHORT ? 0 : EDGE_LOCAL_DONE),
		.imm = imm, .local = s->region, .local_off = s->ring + (o->sent & (o->size - 1)), .size = n,
		.remote = s->peer, .remote_off = o->sent & (s->peer->size - 1) };
	struct piece *piece = &o->pieces[(o->oldest + o->flying) % PIECES];
	int err = op_put(s->c, &w, &piece->op);
	if (err != 0) {
		s->crowded |= err == EDGE_ERR_AGAIN;
		if (s->crowded)
			return_credit(s->c); /* has edge_changed tell of room */
		return err;
	}
	ring_publish(s->d);
	piece->n = (uint32_t)n;
	o->flying++;
	o->sent += n;
	return 0;
}

/* Gives one piece, of up to size bytes from byte skip of the source on, to the transport and returns its length, 0 if
 * the source has no more; EDGE_ERR_AGAIN: there is no room. */
static ssize_t send_piece(edge_stream *s, const struct source *from, size_t skip, size_t size)
{
	struct outbound *o = &s->out;
	int err = writable(s);
	if (err != 0)
		return err;
	size_t n = least(size, room(s));
	if (n == 0 || !may_put(s)) {
		pump(s->d, false);
		n = least(size, room(s));
	}
	if ((err = writable(s)) != 0)
		return err;
	if (n == 0)
		return EDGE_ERR_AGAIN;
	size_t at = s->ring + (o->sent & (o->size - 1));
	bool longer = n > SHORT || from->p == NULL;
	if (longer)
		unlock(s->d);
	ssize_t have = put(from, skip, (char *)s->region->bytes + at, n);
	if (longer)
		pthread_mutex_lock(&s->d->mu);
	if ((err = writable(s)) != 0) /* while we copied */
		return err;
	if (have <= 0)
		return 0;
	n = least(n, (size_t)have);
	err = stream_post(s, n, IMM_DATA | (uint32_t)(o->sent & IMM_COUNT));
	return err != 0 ? err : (ssize_t)n;
}

static ssize_t write_from(edge_stream *s, const struct source *from, size_t size, int timeout_ms)
{
	edge_device *d = s->d;
	int64_t until = deadline(timeout_ms);
	size_t done = 0;
	int err = 0;
	while (err == 0) {
		ssize_t n = 0;
		pthread_mutex_lock(&s->out.mu);
		enter(d);
		do {
			done += (size_t)n;
			n = done < size ? send_piece(s, from, done, size - done) : 0;
		} while (n > 0);
		pthread_mutex_unlock(&s->out.mu);
		err = n == EDGE_ERR_AGAIN ? wait_for(d, can_write, s, until) : n < 0 ? (int)n : 1;
		leave(d, 0);
	}
	return done > 0 || err > 0 ? (ssize_t)done : err;
}

ssize_t edge_stream_write(edge_stream *s, const void *p, size_t size, int timeout_ms)
{
	return write_from(s, &(struct source){ .p = size > 0 ? p : "" }, size, timeout_ms);
}

ssize_t edge_stream_fill(edge_stream *s, ssize_t (*fill)(void *, size_t, void *, size_t), void *arg, size_t size,
                         int timeout_ms)
{
	return write_from(s, &(struct source){ .fill = fill, .arg = arg }, size, timeout_ms);
}

/* The peer closed the stream in good order, both ways: reading ends well, and only a write learns more, as with TCP. */
static bool left_well(const edge_stream *s)
{
	return s->d->dead == 0 && s->err == 0 && s->in.fin && s->c->state == ENDED &&
	       (s->c->err == EDGE_ERR_PEER_CLOSED || s->c->err == EDGE_ERR_CLOSED);
}

int edge_stream_shutdown(edge_stream *s)
{
	enter(s->d);
	int err = left_well(s) ? 0 : stream_end(s);
	if (err == 0 && !s->out.shut) {
		s->out.shut = true;
		stream_advance(s);
		wake_all(s->d);
	}
	return leave(s->d, err);
}

void edge_stream_reset(edge_stream *s)
{
	enter(s->d);
	if (s->d->dead == 0) {
		stream_cut(s, EDGE_ERR_CLOSED);
		wake_all(s->d);
	}
	leave(s->d, 0);
}

static int events(edge_stream *s)
{
	bool end = stream_end(s) != 0 && !left_well(s);
	int e = 0;
	if (can_read(s))
		e |= POLLIN;
	if (can_write(s))
		e |= POLLOUT;
	if (s->in.fin || end)
		e |= POLLRDHUP;
	if ((s->in.fin && s->out.shut) || end)
		e |= POLLHUP;
	if (end)
		e |= POLLERR;
	return e;
}

int edge_stream_events(edge_stream *s)
{
	enter(s->d);
	if (s->d->dead == 0)
		pump(s->d, false);
	int e = events(s);
	if (!(e & POLLOUT) && s->state == S_OPEN && s->d->dead == 0 && !may_put(s)) { /* have edge_changed tell of room */
		s->crowded = true;
		return_credit(s->c);
	}
	return leave(s->d, e);
}

int edge_stream_error(edge_stream *s)
{
	enter(s->d);
	int err = left_well(s) ? 0 : stream_end(s);
	if (err == 0 && s->state != S_OPEN)
		err = EDGE_ERR_AGAIN;
	return leave(s->d, err);
}

size_t edge_stream_readable(edge_stream *s)
{
	enter(s->d);
	if (s->d->dead == 0)
		pump(s->d, false);
	size_t n = s->in.tail - s->in.head;
	leave(s->d, 0);
	return n;
}

size_t edge_stream_writable(edge_stream *s)
{
	enter(s->d);
	if (s->d->dead == 0)
		pump(s->d, false);
	size_t n = writable(s) == 0 ? room(s) : 0; /* it says what is to wake the program, whatever else lacks */
	if (!may_put(s))
		n = 0;
	leave(s->d, 0);
	return n;
}

/* Has events of s wake that word, 0: make the descriptor readable. */
void stream_aim(edge_stream *s, uint32_t word)
{
	s->word = word;
	if (s->aimed != word && s->d->dead == 0)
		return_credit(s->c);
}

void edge_stream_aim(edge_stream *s, edge_word *x)
{
	enter(s->d);
	stream_aim(s, word_number(s->d, x));
	leave(s->d, 0);
}

void edge_stream_bound(edge_stream *s, size_t bytes)
{
	enter(s->d);
	s->out.bound = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
	leave(s->d, 0);
}

size_t edge_stream_unsent(edge_stream *s)
{
	enter(s->d);
	size_t n = s->out.sent - s->out.acked;
	leave(s->d, 0);
	return n;
}
