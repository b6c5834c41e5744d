/*
 * The end that connects: it offers the connection to the other side, asks there whether anybody of ours listens, and
 * takes the stream that the acceptor dials, if that shows the nonce of the question. Mostly the question is for a
 * stream itself, which the acceptor accepts (early.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agree.h"

#define VERDICT (2000 * MILLI)  /* how long a connector waits to be dialled */
#define FRESH (1000 * MILLI)    /* how long who has shown the nonce counts as the owner of the port */
#define ROUTE (100 * MILLI)     /* how long a route counts: connections of one moment take the same */
#define REMEMBER (2000 * MILLI) /* how long it counts that nobody of ours listens somewhere */

/* Where nobody of ours listens, by hash of peer, address and port. */
enum { TARGETS = 256 };
static struct { uint64_t id; int64_t until; } targets[TARGETS];

uint64_t fold(uint64_t h, const void *p, size_t n) {
	for (const unsigned char *c = p; n > 0; n--)
		h = (h ^ *c++) * 1099511628211u;
	return h;
}

static uint64_t target_of(const char *peer, const char *to) {
	uint64_t h = fold(fold(FOLD, peer, strlen(peer) + 1), to, strlen(to));
	return h | 1;
}

static bool known(uint64_t id, int64_t now) {
	int at = id >> 32 & (TARGETS - 1);
	return targets[at].id == id && now < targets[at].until;
}

static void remember(const struct sock *s) {
	int at = s->kept.target >> 32 & (TARGETS - 1);
	targets[at].id = s->kept.target;
	targets[at].until = now_ns() + REMEMBER;
}

/* The address from which the kernel would connect. That of the latest connection's counts for a moment. */
static bool route(const union address *to, union address *from) {
	static struct { union address to, from; int64_t until; } latest;
	int64_t now = now_ns();
	if (now < latest.until && to->any.sa_family == latest.to.any.sa_family && same_address(to, &latest.to) &&
	    (to->any.sa_family != AF_INET6 || to->in6.sin6_scope_id == latest.to.in6.sin6_scope_id)) {
		*from = latest.from;
		return true;
	}
	int probe = real.socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t n = to->any.sa_family == AF_INET ? sizeof to->in : sizeof to->in6;
	bool ok = probe >= 0 && real.connect(probe, &to->any, n) == 0 && both_ends(probe, from, NULL);
	if (probe >= 0)
		real.close(probe);
	latest.to = *to;
	latest.from = *from;
	latest.until = ok ? now + ROUTE : 0;
	return ok;
}

/* Binds the socket to the address that the kernel would choose, and a port. */
static bool bind_first(int fd, const union address *to, union address *from) {
	socklen_t n = sizeof *from;
	if (!both_ends(fd, from, NULL))
		return false;
	if (address_port(from))
		return !anonymous(from); /* bound to a port of any address: its address is not known before */
	if (anonymous(from) && !route(to, from))
		return false;
	*(from->any.sa_family == AF_INET ? &from->in.sin_port : &from->in6.sin6_port) = 0;
	n = from->any.sa_family == AF_INET ? sizeof from->in : sizeof from->in6;
	return bind(fd, &from->any, n) == 0 && both_ends(fd, from, NULL);
}

/* Asks whether anybody of ours listens, and tells whoever does the nonce; early: asks for a stream by that. 0 or an
 * error of libedge's. */
static int probe(struct sock *s, const union address *to, bool early) {
	unsigned char data[MOST_DATA];
	char port[16];
	if (getrandom(s->nonce, sizeof s->nonce, GRND_NONBLOCK) != sizeof s->nonce)
		return EDGE_ERR_SYSTEM;
	edge_dial_options o = {.size = sizeof o, .data = data};
	o.data_size = said(data, PROBE, s->nonce, s->tuple);
	snprintf(port, sizeof port, "tcp/%d", address_port(to));
	if (!early)
		return edge_dial_start(device, s->peer, port, &o, &s->probe, (int)(VERDICT / MILLI));
	int err = edge_stream_dial_start(device, s->peer, port, &o, &s->stream, (int)(VERDICT / MILLI));
	if (err) {
		s->stream = NULL;
		return err;
	}
	edge_stream_watch(s->stream, s);
	s->kept.begun = s->kept.early = true;
	return 0;
}

/* Offers s, which has its names, and asks then: whoever hears the nonce may show it to who has the name. The daemon is
 * asked for both at once, and does the one after the other. */
static void offer_service_to(struct sock *s, const union address *to, bool early) {
	const char *why = NULL;
	char text[256];
	if (edge_listen_start(device, s->service, &s->listener) == 0 && probe(s, to, early))
		why = "tcp: the daemon cannot be asked";
	if (offer_service(s)) {
		snprintf(text, sizeof text, "tcp: %s", edge_detail());
		why = text;
	}
	if (why) {
		become_plain(s, why);
		return;
	}
	edge_listener_watch(s->listener, s);
	edge_stream_reserve(device);
}

/* The kernel is asked who accepts on this host. Whoever demands streams has the acceptor show the nonce. */
static bool may_be_early(const struct sock *s) { return !required && strcmp(s->peer, edge_device_name(device)); }

/* Offers the connection that fd is about to make. false: it remains TCP. */
bool offer(int fd, bool nonblock, struct sock **made, const union address *to) {
	const char *peer = map_peer(to, address_port(to));
	if (!peer)
		return false;
	char name[64];
	write_end(name, sizeof name, to);
	if (!nonblock)
		rest_await(peer, name);
	uint64_t target = target_of(peer, name);
	int64_t now = now_ns();
	union address from;
	const char *why = known(target, now)           ? "tcp: nobody of ours listened a moment ago"
	                  : !device_ready()            ? "tcp: without a daemon"
	                  : !bind_first(fd, to, &from) ? "tcp: the socket has no address of its own"
	                                               : NULL;
	if (why) {
		note(name, why);
		return false;
	}
	struct sock *s = sock_new(fd, OFFERED);
	if (!s)
		return false;
	*made = s;
	s->nonblock = nonblock;
	s->peer = peer;
	s->kept.target = target;
	s->until = now + VERDICT;
	name_offer(s, &from, to);
	if (!rest_reuse(s))
		offer_service_to(s, to, may_be_early(s));
	if (s->state == OFFERED)
		sock_decide(s);
	return true;
}

bool unanswered(const struct sock *s) { return s->state == OFFERED && (!s->stream || s->kept.early); }

void withdraw(struct sock *s) {
	if (s->state == OFFERED)
		become_plain(s, "not connected");
}

bool watch_connect(struct sock *s) { return s->connecting = watch_tcp(s, EPOLLOUT); }

/* From now on the other side may dial, and the program write. */
void connected(struct sock *s) {
	s->connecting = false;
	if (s->state != OFFERED)
		return;
	watch_tcp(s, EPOLLIN | EPOLLRDHUP);
	if (s->until != NEVER)
		s->until = now_ns() + VERDICT;
	changed(s);
}

static bool refused_by(const edge_conn *probe, const char *words) {
	const char *reason = edge_conn_reason(probe);
	return reason && strstr(reason, words);
}

/* Whether the answer to a probe says that nobody of ours listens there. */
static bool nobody(const edge_conn *probe, int err) {
	if (err == EDGE_ERR_REFUSED)
		return refused_by(probe, ELSEWHERE);
	return err != 0 && err != EDGE_ERR_AGAIN && err != EDGE_ERR_LIMIT && err != EDGE_ERR_TIMEOUT;
}

/* Takes the answer to a probe. false: that decided. */
static bool answered(struct sock *s, const edge_conn *probe, int err) {
	if (nobody(probe, err)) {
		remember(s);
		become_plain(s, "tcp: nobody of ours listens");
	} else if (err == EDGE_ERR_REFUSED && refused_by(probe, SETTLED)) {
		become_plain(s, "tcp: the other side uses it");
	}
	return s->state == OFFERED;
}

/* Whether a request for the offer comes from who accepted the connection: the peer that the map names, and there from a
 * program that knows the nonce. Another user of that host has seen the addresses, perhaps, but not this. */
static bool is_acceptor(const struct sock *s, const edge_request *r) {
	const void *data;
	size_t n;
	unsigned char want[MOST_DATA];
	uint32_t uid;
	if (strcmp(edge_request_peer(r), s->peer) || !edge_request_stream(r, &data, &n) ||
	    n != said(want, SHOWN, s->nonce, s->tuple))
		return false;
	unsigned char differs = 0;
	for (size_t i = 0; i < n; i++) /* as long for every content */
		differs |= want[i] ^ ((const unsigned char *)data)[i];
	return !differs && (!edge_request_user(r, &uid) || may_hold(s, uid));
}

/* Takes the first request for a stream, if it comes from the right peer, before it is accepted: others learn that they
 * are refused, and what is meant for us goes over TCP. */
static bool dialled_by_peer(struct sock *s) {
	edge_request *r;
	while (edge_listener_next(s->listener, &r, 0) == 0) {
		if (!is_acceptor(s, r)) {
			edge_request_refuse(r, "show the nonce of the probe");
			continue;
		}
		uint32_t uid;
		s->kept.fresh = edge_request_user(r, &uid) ? 0 : now_ns() + FRESH; /* of this host: the kernel says, each */
		if (edge_request_accept_stream(r, &s->stream) == 0) {
			edge_stream_watch(s->stream, s); /* once: it says that something changed */
			return true;
		}
		s->stream = NULL;
	}
	return false;
}

/* What the kernel says of the TCP connection. false: that decided. */
static bool look_at_connection(struct sock *s) {
	uint32_t e = s->tcp.arrived;
	s->tcp.arrived = 0;
	if (s->fd < 0)
		become_plain(s, "closed");
	else if (e & (EPOLLERR | EPOLLHUP))
		become_plain(s, "not connected");
	else if (s->connecting && e & EPOLLOUT)
		connected(s);
	else if (e & (EPOLLIN | EPOLLRDHUP))
		become_plain(s, "tcp: the other side uses it, or has closed it");
	return s->state == OFFERED;
}

/* While a new stream is not accepted our offer stands beside it. Whoever shows the nonce there has heard it of the
 * owner of the port, who has given the stream up then. */
static bool dialled_beside(struct sock *s) {
	edge_stream *early = s->stream;
	if (!s->kept.early || !s->listener)
		return false;
	if (!dialled_by_peer(s)) {
		s->stream = early;
		return false;
	}
	edge_stream_close(early, 0);
	s->kept.begun = s->kept.early = false;
	when_ready(s);
	return true;
}

/* The other side has not taken the stream that we began on a connection that it knows: perhaps it cannot any more. */
static void look_at_begun(struct sock *s) {
	union address from, to;
	bool early = s->kept.early;
	int err = edge_stream_wait(s->stream, 0);
	if (err == EDGE_ERR_AGAIN) {
		if (dialled_beside(s))
			return;
		/* Before it has accepted a new stream the other side has said nothing there: TCP's end counts as its word. */
		bool used = early ? s->tcp.arrived != 0 : tcp_used(s);
		if ((s->connecting || s->fd < 0 || used) && !look_at_connection(s))
			return;
		if (s->connecting)
			s->until = now_ns() + VERDICT;
		else if (now_ns() >= s->until)
			become_plain(s, "tcp: not taken in time");
		return;
	}
	s->kept.begun = s->kept.early = false;
	if (err == 0) {
		s->kept.confirms = true; /* PROTOCOL 20.10 */
		if (early && strcmp(edge_conn_node(edge_stream_conn(s->stream)), edge_device_node(device)) == 0) {
			become_plain(s, "tcp: a program of this host has not shown the nonce");
			return;
		}
		if (early)
			s->kept.fresh = now_ns() + FRESH;
		if (edge_stream_error(s->stream)) /* before it knew that we use it: it goes on over TCP */
			become_plain(s, "tcp: the other side gave up");
		else
			when_ready(s);
		return;
	}
	s->kept.again = false;
	if (early && err != EDGE_ERR_RESET && !answered(s, edge_stream_conn(s->stream), err))
		return;
	/* Who refuses by another word has not kept the nonce: it wanted to take the stream, and could not. */
	if (early && (err == EDGE_ERR_RESET ||
	              (err == EDGE_ERR_REFUSED && !refused_by(edge_stream_conn(s->stream), OFFER)))) {
		become_plain(s, "tcp: the other side gave up");
		return;
	}
	edge_stream_close(s->stream, 0);
	s->stream = NULL;
	if (!s->connecting)
		watch_tcp(s, EPOLLIN | EPOLLRDHUP); /* tcp_used may have ended that */
	if (early && s->listener)
		return; /* if the other side has heard the nonce it dials; else TCP's bytes or the time decide */
	if (split(s->tuple, &from, &to))
		offer_service_to(s, &to, false);
}

void look_at_offer(struct sock *s) {
	if (s->kept.begun) {
		look_at_begun(s);
		return;
	}
	if (s->stream) {
		int err = edge_stream_wait(s->stream, 0);
		if (err && err != EDGE_ERR_AGAIN)
			become_plain(s, "tcp: the other side gave up");
		else
			when_ready(s);
		return;
	}
	if (!look_at_connection(s))
		return;
	if (dialled_by_peer(s)) {
		when_ready(s);
		return;
	}
	int answer = s->probe ? edge_conn_wait(s->probe, 0) : EDGE_ERR_AGAIN;
	if (answer != EDGE_ERR_AGAIN) {
		edge_conn *asked = s->probe;
		s->probe = NULL;
		bool open = answered(s, asked, answer);
		edge_conn_free(asked);
		if (!open)
			return;
	}
	if (edge_device_error(device)) {
		remember(s);
		become_plain(s, "tcp: nobody of ours listens");
	} else if (s->connecting) {
		s->until = now_ns() + VERDICT; /* TCP is slow; the other side has not begun */
	} else if (now_ns() >= s->until) {
		remember(s);
		become_plain(s, "tcp: not dialled in time");
	}
}
