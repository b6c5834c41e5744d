/*
 * Streams that are used again (PROTOCOL clauses 11.9 and 20.9). What a connection costs is mostly the daemons' work for
 * its offer, its stream and its memory. So a stream that both programs ended well stays with the two processes, as
 * cold connections do in the DHL paper, and the connector's next connection to the same address takes it: it tells the
 * acceptor the addresses, by one message that leaves before TCP's first frame, and the acceptor answers when its
 * program uses the socket. The connector decides then, as it does of an offer: by the first byte on the stream the
 * acceptor knows. Connections that carry many streams at once would cost the same message, but have one ring
 * for all of them: a program that does not read one would keep the others waiting.
 *
 * Nobody shows a nonce then: the other process is known to have been the owner of the port when the stream was
 * dialled. That counts for a second from then, and not with EDGE_RUN_REQUIRE; nor with a program of this host, whose
 * user the kernel is asked for each time. An acceptor keeps streams only while it alone accepts at the port: the
 * connector cannot know in which process a connection arrives. If that changes, it closes them, and the connector
 * begins anew.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "agree.h"
#include "brief.h"

enum { RESTS = 32 };
#define ANEW (1000 * MILLI)
#define SOON (1 * MILLI)   /* in which the other side, mostly, has read all and closed, too */
#define AGE (2000 * MILLI) /* of an acceptor's: longer than the connector's, so that it is the connector who closes */

static struct rested {
	edge_stream *stream; /* NULL: a free place */
	const char *peer;
	char name[128];      /* where we connect to; of an acceptor's the tuple, once the other side has begun it */
	int64_t fresh;       /* as that of struct kept; 0: an acceptor's */
	int64_t until;       /* when it is closed */
	int64_t soon;        /* a connector's: until then the next connection waits for it */
	bool ready;          /* a connector's: it may be begun */
	bool claimed;        /* an acceptor's: the other side has begun it */
} rests[RESTS];
static int nrests;
static int64_t forsaken; /* until then the other side may be about to begin anew */

static edge_stream *release(struct rested *r) {
	edge_stream *stream = r->stream;
	*r = (struct rested){0};
	nrests--;
	return stream;
}

static void drop(struct rested *r) { edge_stream_close(release(r), -1); }

static void give(struct sock *s, struct rested *r) {
	s->stream = release(r);
	s->kept.again = s->kept.begun = true;
	edge_stream_watch(s->stream, s);
}

/* The address that the connector of a tuple means. */
static const char *aim_of(const char *tuple) {
	const char *second = strchr(tuple, '>');
	return second ? second + 1 : "";
}

static int shares(const char *peer) {
	int n = 0;
	for (const struct rested *r = rests; r < rests + RESTS; r++)
		n += r->stream && strcmp(r->peer, peer) == 0;
	return n;
}

/* A place for a stream with a peer: a free one, or that of a peer that has more of them. NULL: there is none. */
static struct rested *place(const char *peer) {
	struct rested *most = NULL;
	for (struct rested *r = rests; r < rests + RESTS; r++)
		if (!r->stream)
			return r;
	int n = shares(peer) + 1;
	for (struct rested *r = rests; r < rests + RESTS; r++) {
		int has = strcmp(r->peer, peer) ? shares(r->peer) : 0;
		if (has > n || (has == n && most && r->until < most->until)) {
			n = has;
			most = r;
		}
	}
	if (most)
		drop(most);
	return most;
}

bool rest_keep(struct sock *s) {
	int64_t now = now_ns();
	bool connects = s->kept.target != 0;
	if (!reuses || s->share || (connects ? now >= s->kept.fresh : !accepts_alone(port_of(s))))
		return false;
	if (!connects && strcmp(s->peer, edge_device_name(device)) == 0)
		return false;
	struct rested *r = place(s->peer);
	if (!r || edge_stream_rest(s->stream, connects))
		return false;
	*r = (struct rested){.stream = s->stream, .peer = s->peer, .fresh = connects ? s->kept.fresh : 0};
	r->until = connects ? r->fresh : now + AGE;
	r->soon = now + SOON;
	if (connects)
		snprintf(r->name, sizeof r->name, "%s", aim_of(s->tuple));
	nrests++;
	edge_stream_watch(r->stream, r);
	return true;
}

/* None may be begun now, and one may before long. */
static bool coming(const char *peer, const char *name) {
	int64_t now = now_ns();
	bool soon = false;
	for (const struct rested *r = rests; r < rests + RESTS; r++) {
		if (!r->stream || now >= r->fresh || strcmp(r->peer, peer) || strcmp(r->name, name))
			continue;
		if (r->ready)
			return false;
		soon |= now < r->soon;
	}
	return soon;
}

void rest_await(const char *peer, const char *name) {
	struct waiter *w = own_waiter();
	struct brief b = {0};
	const int64_t until = now_ns() + SOON; /* others may go on to close theirs */
	enter(); /* neither cancelled nor left by a handler: it would count as one who lingers for ever */
	while (nrests > 0 && now_ns() < until && (progress(), coming(peer, name)))
		if (!linger(w)) {
			unlock();
			brief_wait(&b);
			lock();
		}
	linger_end(w);
	leave();
}

bool rest_reuse(struct sock *s) {
	unsigned char data[MOST_DATA];
	if (nrests == 0)
		return false;
	progress(); /* the other side's word may have come */
	int64_t now = now_ns();
	for (struct rested *r = rests; r < rests + RESTS; r++) {
		if (!r->ready || now >= r->fresh || strcmp(r->peer, s->peer) || strcmp(r->name, aim_of(s->tuple)))
			continue;
		if (edge_stream_begin(r->stream, data, said(data, AGAIN, s->nonce, s->tuple))) {
			drop(r);
			continue;
		}
		s->kept.fresh = r->fresh;
		give(s, r);
		return true;
	}
	return false;
}

bool rest_expected(const struct sock *s) {
	for (const struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->stream && !r->fresh && (!r->claimed || !strcmp(r->name, s->tuple)) && strcmp(r->peer, s->peer) == 0)
			return true;
	return false;
}

void rest_unused(const struct sock *s) {
	bool begun = false;
	for (struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->claimed && strcmp(r->name, s->tuple) == 0 && strcmp(r->peer, s->peer) == 0) {
			begun = true;
			drop(r);
		}
	early_unused(s);
	if (!begun && rest_expected(s))
		stays(s);
}

/* Another program of the peer's host has begun a stream for the same connection: they are to show by the nonce whose it
 * is. */
static bool disputed(const struct rested *of) {
	bool others = false;
	for (struct rested *r = rests; r < rests + RESTS; r++)
		if (r != of && r->claimed && strcmp(r->name, of->name) == 0) {
			others = true;
			drop(r);
		}
	return others;
}

bool rest_claim(struct sock *s) {
	for (struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++) {
		if (!r->claimed || strcmp(r->name, s->tuple) || strcmp(r->peer, s->peer))
			continue;
		int err = edge_stream_take(r->stream);
		if (err == EDGE_ERR_AGAIN)
			return false; /* no room: the device tells of it */
		if (err) {
			drop(r);
			return false;
		}
		give(s, r);
		return true;
	}
	return false;
}

/* The other side has begun the stream for a connection. What it says may be nonsense. */
static void opened(struct rested *r) {
	unsigned char data[EDGE_STREAM_OPENING];
	union address from, to;
	size_t n = edge_stream_opening(r->stream, data), head = 1 + NONCE_SIZE;
	if (n == 0)
		return;
	bool good = n > head && n - head < sizeof r->name && data[0] == AGAIN;
	if (good)
		memcpy(r->name, data + head, n - head);
	const char *peer = good && split(r->name, &from, &to) ? map_peer(&from, address_port(&to)) : NULL;
	if (!peer || strcmp(peer, r->peer) || !covered(&to) || !accepts_alone(address_port(&to)) || disputed(r) ||
	    heard_lately(peer, r->name) || stayed(peer, r->name)) {
		drop(r);
		return;
	}
	r->claimed = true;
	r->until = now_ns() + ANEW; /* the other side waits for longer, and begins anew then */
}

bool rest_is(const void *context) {
	return (const char *)context >= (const char *)rests && (const char *)context < (const char *)(rests + RESTS);
}

void rest_changed(void *context) {
	struct rested *r = context;
	if (!r->stream || r->claimed)
		return;
	if (!r->fresh)
		opened(r);
	if (!r->stream || r->claimed)
		return;
	int err = edge_stream_resting(r->stream);
	r->ready = err == 0;
	if ((err && err != EDGE_ERR_AGAIN) || edge_stream_readable(r->stream) > 0)
		drop(r);
}

void rest_look(int64_t now) {
	for (struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->stream && now >= r->until)
			drop(r);
}

int64_t rest_next(void) {
	int64_t first = NEVER;
	for (const struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->stream && r->until < first)
			first = r->until;
	return first;
}

void rest_close_accepted(void) {
	if (early_close_all())
		forsaken = now_ns() + ANEW;
	for (struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->stream && !r->fresh) {
			drop(r);
			forsaken = now_ns() + ANEW;
		}
}

void rest_passed(struct sock *s) {
	lock();
	if (s->state == LISTENING || s->state == ACCEPTED) {
		for (struct sock *l = listeners; l; l = l->listed.next)
			l->kept.passed = true;
		rest_close_accepted();
	}
	unlock();
}

bool rest_forsaken(void) { return now_ns() < forsaken; }

void rest_close_all(void) {
	for (struct rested *r = rests; nrests > 0 && r < rests + RESTS; r++)
		if (r->stream)
			drop(r);
}

/* In a child: they are the parent's. It has just closed those that it accepted; the others rest on there. */
void rest_after_fork(void) {
	memset(rests, 0, sizeof rests);
	nrests = 0;
}
