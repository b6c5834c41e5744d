/*
 * Streams that the connector dials at the owner of the port (PROTOCOL 20.12), in place of an offer that the acceptor
 * dials: one request and one answer less before the first byte. The request waits here until the program uses the
 * accepted socket. Then it is accepted, and from there on the two ends agree as of a stream that is used again: the
 * connector decides, by a byte before the program's.
 *
 * Only an owner that alone accepts at the port can take such a request. Another one treats it as a probe.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "agree.h"

enum { MOST = 64 };
#define WAIT (1000 * MILLI)   /* for the program to use the socket; the connector waits for longer */
#define IDLE (10 * MILLI)     /* until memory is registered for the next stream: now that would delay this one */

static struct early {
	edge_request *r; /* NULL: a free place */
	const char *peer;
	char tuple[128];
	unsigned char nonce[NONCE_SIZE];
	int64_t until;
} waiting[MOST];
static int nwaiting;
static int64_t prepare_at = NEVER; /* when memory is registered for the next stream */

static edge_request *release(struct early *e) {
	edge_request *r = e->r;
	e->r = NULL;
	nwaiting--;
	return r;
}

/* It is a probe like any other: the connector offers the stream, and whoever has the socket dials it. */
static void give_up(struct early *e) {
	hear(e->peer, e->tuple, e->nonce);
	edge_request_refuse(release(e), OFFER);
}

bool early_hold(edge_request *r, const char *peer, const char *tuple, const unsigned char *nonce) {
	union address from, to;
	uint32_t uid;
	if (nwaiting == MOST || !split(tuple, &from, &to) || !accepts_alone(address_port(&to)) ||
	    edge_request_user(r, &uid))
		return false;
	/* Two programs of the peer's host ask for one connection: they are to show by the nonce whose it is. */
	for (struct early *o = waiting; o < waiting + MOST; o++)
		if (o->r && strcmp(o->tuple, tuple) == 0 && strcmp(o->peer, peer) == 0) {
			give_up(o);
			return false;
		}
	struct early *e = waiting;
	while (e->r)
		e++;
	*e = (struct early){.r = r, .peer = peer, .until = now_ns() + WAIT};
	snprintf(e->tuple, sizeof e->tuple, "%s", tuple);
	memcpy(e->nonce, nonce, NONCE_SIZE);
	nwaiting++;
	return true;
}

static struct early *of(const struct sock *s) {
	for (struct early *e = waiting; nwaiting > 0 && e < waiting + MOST; e++)
		if (e->r && strcmp(e->tuple, s->tuple) == 0 && strcmp(e->peer, s->peer) == 0)
			return e;
	return NULL;
}

bool early_claim(struct sock *s) {
	struct early *e = of(s);
	if (!e)
		return false;
	if (edge_request_accept_stream(release(e), &s->stream)) {
		s->stream = NULL;
		return false; /* the connector has given it up, or there is no memory: it learns that */
	}
	s->kept.begun = true;
	edge_stream_watch(s->stream, s);
	if (prepare_at == NEVER)
		prepare_at = now_ns() + IDLE;
	return true;
}

void early_unused(const struct sock *s) {
	struct early *e = of(s);
	if (e)
		give_up(e);
}

bool early_close_all(void) {
	bool any = nwaiting > 0;
	for (struct early *e = waiting; nwaiting > 0 && e < waiting + MOST; e++)
		if (e->r)
			give_up(e);
	return any;
}

void early_look(int64_t now) {
	if (now >= prepare_at) {
		prepare_at = NEVER;
		if (device)
			edge_stream_reserve(device);
	}
	for (struct early *e = waiting; nwaiting > 0 && e < waiting + MOST; e++)
		if (e->r && now >= e->until)
			give_up(e);
}

int64_t early_next(void) {
	int64_t first = prepare_at;
	for (const struct early *e = waiting; nwaiting > 0 && e < waiting + MOST; e++)
		if (e->r && e->until < first)
			first = e->until;
	return first;
}

/* In a child: the requests are the parent's. */
void early_after_fork(void) {
	memset(waiting, 0, sizeof waiting);
	nwaiting = 0;
	prepare_at = NEVER;
}
