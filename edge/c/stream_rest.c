/*
 * Several streams on one connection, one after the other (PROTOCOL clause 11.9). A connection, its rings and its
 * exports take some ten messages with the daemons at each end; the next stream on it takes one to the peer, and the
 * answer.
 *
 * When the end that is not to begin has sent and read all, it says that it rests, as the last word of its stream. The
 * other one begins the next stream once it has heard that, and has sent and read all. Both words come, by their fences,
 * after whatever the end said before: so nothing of an old stream is in flight then, no byte of the rings is awaited,
 * and positions begin at 0.
 */
#include <string.h>

#include "ring.h"
#include "stream.h"

/* Whether the end is to say that it rests: it has no more to say, and the peer's bytes are read. */
bool rest_due(const edge_stream *s)
{
	const struct rest *r = &s->rest;
	return r->asked && !r->begins && !r->said && s->in.fin && s->in.head == s->in.tail;
}

static bool may_begin(const edge_stream *s)
{
	const struct rest *r = &s->rest;
	return r->asked && r->begins && r->heard && s->out.fin && s->in.head == s->in.tail;
}

/* The peer may begin. What it says first counts as its Rest. */
static bool waits(const edge_stream *s)
{
	return s->rest.said && s->rest.opening == 0;
}

/* As if it were new. The peer has all that was sent: its pieces fly only as far as our daemon has not said so. */
static void renew(edge_stream *s)
{
	struct outbound *o = &s->out;
	s->rest = (struct rest){ 0 };
	s->in.used = s->in.used > s->in.tail ? s->in.used : s->in.tail;
	s->in.tail = s->in.head = s->in.granted = 0;
	s->in.fin = false;
	o->sent = o->acked = o->freed = 0;
	o->shut = o->fin = false;
	o->bound = 0;
	for (uint32_t i = 0; i < o->flying; i++)
		o->pieces[(o->oldest + i) % PIECES].n = 0;
	s->crowded = false;
	stream_await(s, false);
}

/* The peer rests, or begins the next stream, or answers ours. What it says may be nonsense. */
bool rest_arrived(edge_stream *s, uint64_t count, uint32_t len)
{
	struct rest *r = &s->rest;
	if (len == 0) {
		if (!s->out.fin || r->heard || count != (s->in.tail & IMM_COUNT))
			return false;
		return s->in.fin = r->heard = true;
	}
	if (count != 0 || len > EDGE_STREAM_OPENING || !(r->begun || waits(s)))
		return false;
	if (!r->begun && s->closed)
		return true; /* it learns by our close */
	if (r->begun)
		r->begun = false;
	else {
		renew(s);
		r->opening = len;
	}
	s->in.tail = s->in.head = len; /* the text is not the program's to read */
	return true;
}

int edge_stream_rest(edge_stream *s, int begins)
{
	enter(s->d);
	int err = stream_end(s);
	if (err == 0 && (s->state != S_OPEN || s->rest.begun || s->rest.opening > 0 || s->in.head != s->in.tail))
		err = EDGE_ERR_BUSY;
	if (err == 0) {
		stream_aim(s, 0); /* nobody waits for it on a word */
		s->out.shut = s->rest.asked = true;
		s->rest.begins = begins;
		stream_advance(s);
	}
	return leave(s->d, err);
}

int edge_stream_resting(edge_stream *s)
{
	enter(s->d);
	int err = stream_end(s);
	if (err == 0)
		err = may_begin(s) || waits(s) ? 0 : EDGE_ERR_AGAIN;
	return leave(s->d, err);
}

/* Begins the next stream, or answers, by bytes that the peer's program does not read. */
static int open_by(edge_stream *s, const void *data, size_t size)
{
	memcpy(s->region->bytes + s->ring, data, size);
	return stream_post(s, size, IMM_REST);
}

int edge_stream_begin(edge_stream *s, const void *data, size_t size)
{
	enter(s->d);
	int err = stream_end(s);
	if (err == 0 && (size == 0 || size > EDGE_STREAM_OPENING))
		err = fail(EDGE_ERR_INVALID, "%zu bytes; the next stream begins with 1 to %d", size, EDGE_STREAM_OPENING);
	if (err == 0 && (!may_begin(s) || !stream_may_post(s)))
		err = EDGE_ERR_AGAIN;
	if (err == 0) {
		renew(s);
		s->rest.begun = true;
		err = open_by(s, data, size);
	}
	return leave(s->d, err);
}

size_t edge_stream_opening(edge_stream *s, void *to)
{
	enter(s->d);
	size_t n = stream_end(s) == 0 ? s->rest.opening : 0;
	if (n > 0)
		memcpy(to, s->region->bytes, n); /* once: the peer may write there */
	leave(s->d, 0);
	return n;
}

int edge_stream_take(edge_stream *s)
{
	enter(s->d);
	int err = stream_end(s);
	if (err == 0 && s->rest.opening == 0)
		err = fail(EDGE_ERR_INVALID, "the peer has not begun another stream");
	if (err == 0 && !stream_may_post(s))
		err = EDGE_ERR_AGAIN;
	if (err == 0)
		err = open_by(s, "", 1);
	if (err == 0)
		s->rest.opening = 0;
	return leave(s->d, err);
}
