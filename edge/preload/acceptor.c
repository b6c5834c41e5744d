/*
 * The end that accepts. Whoever offers tcp/PORT hears the nonces of those who connect; whoever uses an accepted socket
 * first shows its nonce to the other side. Mostly these are one process. If not, the one asks the other, by a dial to
 * the own node: a child of the process that listens, or a program of its user.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "agree.h"

#define DIAL_MS 5000          /* how long an acceptor waits for the answer: longer than a connector, so that it knows */
#define HEAR (2000 * MILLI)   /* how long for a nonce */
#define PAUSE (250 * MILLI)   /* between attempts to offer tcp/PORT, at first */
#define PAUSE_MOST (8000 * MILLI)
#define GRACE (20 * MILLI)    /* for a stream that is used again, before the other side is asked for an offer */
#define LATE (250 * MILLI)    /* and before it counts that there is none: a frame was lost, or a host is busy, */
#define MIXED (10000 * MILLI) /* but not this long after a peer's program that is not under edge-run had to wait so */
#define STAYS (4000 * MILLI)  /* how long it counts that a connection is TCP's: longer than its connector waits */
#define NONCE "nonce "

/* The nonces that were heard, for each peer of the map: one that asks without end pushes out its own. */
enum { HEARD = 4096, NEAR = 8, ASKS = 64 };
struct heard {
	struct heard *next;
	const char *peer;
	struct one { uint64_t tuple; int64_t at; unsigned char nonce[NONCE_SIZE]; } ones[HEARD];
};
static struct heard *heard;
static uint64_t seed;

/* Questions of other processes of this host whose nonces have not been heard yet. */
static struct ask { struct ask *next; edge_request *r; int64_t until; const char *peer; char tuple[128]; } *asks;
static int nasks;

struct sock *listeners; /* all that are LISTENING */

static int64_t mixed; /* until then programs of peers are taken not to be late */

/* Connections that stay with TCP, by hash of peer and tuple: the other side may have begun a stream for them, of which
 * we hear too late. It learns by this that it need not wait (PROTOCOL 20.11). */
enum { TCPS = 256 };
static struct { uint64_t id; int64_t until; } tcps[TCPS];

static uint64_t hash(const char *tuple) {
	while (seed == 0 && getrandom(&seed, sizeof seed, 0) < 0)
		;
	return fold(seed, tuple, strlen(tuple));
}

static uint64_t hash_of(const char *peer, const char *tuple) { return fold(hash(tuple), peer, strlen(peer)); }

void stays(const struct sock *s) {
	uint64_t id = hash_of(s->peer, s->tuple);
	tcps[id % TCPS].id = id;
	tcps[id % TCPS].until = now_ns() + STAYS;
}

bool stayed(const char *peer, const char *tuple) {
	uint64_t id = hash_of(peer, tuple);
	return tcps[id % TCPS].id == id && now_ns() < tcps[id % TCPS].until;
}

static struct heard *heard_of(const char *peer, bool make) {
	struct heard *h = heard;
	while (h && strcmp(h->peer, peer))
		h = h->next;
	if (!h && make && (h = calloc(1, sizeof *h))) {
		h->peer = peer; /* the map's */
		h->next = heard;
		heard = h;
	}
	return h;
}

void hear(const char *peer, const char *tuple, const unsigned char *nonce) {
	struct heard *h = heard_of(peer, true);
	if (!h)
		return;
	uint64_t id = hash(tuple);
	struct one *to = &h->ones[id % HEARD];
	for (int i = 0; i < NEAR; i++) {
		struct one *o = &h->ones[(id + (uint64_t)i) % HEARD];
		if (o->tuple == id) {
			to = o;
			break;
		}
		if (o->at < to->at)
			to = o;
	}
	*to = (struct one){.tuple = id, .at = now_ns()};
	memcpy(to->nonce, nonce, NONCE_SIZE);
}

/* What was heard of a connection; NULL: nothing. hear puts no second one beside it. */
static struct one *one_of(const char *peer, const char *tuple) {
	struct heard *h = heard_of(peer, false);
	uint64_t id = hash(tuple);
	for (int i = 0; h && i < NEAR; i++) {
		struct one *o = &h->ones[(id + (uint64_t)i) % HEARD];
		if (o->at != 0 && o->tuple == id)
			return o;
	}
	return NULL;
}

/* Takes the nonce of a connection, which is used once. */
static bool heard_nonce(const char *peer, const char *tuple, unsigned char *nonce) {
	struct one *o = one_of(peer, tuple);
	if (!o)
		return false;
	memcpy(nonce, o->nonce, NONCE_SIZE);
	*o = (struct one){0};
	return true;
}

bool heard_lately(const char *peer, const char *tuple) {
	struct one *o = one_of(peer, tuple);
	bool lately = o && now_ns() - o->at < HEAR;
	if (o && !lately)
		*o = (struct one){0};
	return lately;
}

/* --- the owner of tcp/PORT --- */

static bool same_port(const struct sock *l, int port) { return l->fd >= 0 && address_port(&l->bound.at) == port; }

static bool option_of(const struct sock *l, int level, int option, bool otherwise) {
	int value = 0;
	socklen_t n = sizeof value;
	return real.getsockopt(own_number(l->fd), level, option, &value, &n) == 0 ? value != 0 : otherwise;
}

void learn_bound(struct sock *l) {
	memset(&l->bound, 0, sizeof l->bound);
	union address a;
	if (l->fd < 0 || !both_ends(l->fd, &a, NULL) || !option_of(l, SOL_SOCKET, SO_ACCEPTCONN, false))
		return;
	l->bound.at = a;
	l->bound.six_only = l->bound.at.any.sa_family == AF_INET6 && option_of(l, IPPROTO_IPV6, IPV6_V6ONLY, false);
	l->bound.shares = option_of(l, SOL_SOCKET, SO_REUSEPORT, true);
}

/* Whether a listening socket of ours takes connections to this address. */
bool covered(const union address *to) {
	for (struct sock *l = listeners; l; l = l->listed.next) {
		const union address *a = &l->bound.at;
		if (!same_port(l, address_port(to)))
			continue;
		bool fits = anonymous(a) ? a->any.sa_family == AF_INET6 || to->any.sa_family == AF_INET : same_address(a, to);
		if (fits && !(anonymous(a) && l->bound.six_only && to->any.sa_family == AF_INET))
			return true;
	}
	return false;
}

static void tell(edge_request *r, const unsigned char *nonce) {
	char text[sizeof NONCE + 2 * NONCE_SIZE] = NONCE;
	for (size_t i = 0; i < NONCE_SIZE; i++)
		snprintf(text + strlen(NONCE) + 2 * i, 3, "%02x", nonce[i]);
	edge_request_refuse(r, text);
}

/* Answers the questions whose time is over, and those for which there is a nonce now. */
static void answer_asks(void) {
	unsigned char nonce[NONCE_SIZE];
	for (struct ask **at = &asks, *a; (a = *at);) {
		bool found = heard_nonce(a->peer, a->tuple, nonce);
		if (!found && now_ns() < a->until) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		nasks--;
		if (found)
			tell(a->r, nonce);
		else
			edge_request_refuse(a->r, "no such connection is known");
		free(a);
	}
}

/* A process of this host that has an accepted socket asks. It inherited the listener's secret, or is of our user. */
static void asked(edge_request *r, const unsigned char *secret, const char *tuple) {
	union address from, to;
	uint32_t uid;
	const char *peer = NULL;
	if (edge_request_user(r, &uid) && split(tuple, &from, &to))
		peer = map_peer(&from, address_port(&to));
	bool may = peer && uid == geteuid();
	for (struct sock *l = listeners; peer && l; l = l->listed.next)
		may = may || (same_port(l, address_port(&to)) && same_secret(l->secret, secret));
	struct ask *a = may && nasks < ASKS ? calloc(1, sizeof *a) : NULL;
	if (!a) {
		edge_request_refuse(r, may ? "too many ask" : "neither of the family nor of the user of the server");
		return;
	}
	*a = (struct ask){.next = asks, .r = r, .until = now_ns() + HEAR, .peer = peer};
	snprintf(a->tuple, sizeof a->tuple, "%s", tuple);
	asks = a;
	nasks++;
}

static void answer(edge_request *r) {
	size_t n;
	const void *whole;
	bool early = edge_request_stream(r, &whole, &n);
	const unsigned char *data = early ? whole : edge_request_data(r, &n);
	char tuple[128];
	union address from, to;
	if (n <= 1 + NONCE_SIZE || n - 1 - NONCE_SIZE >= sizeof tuple) {
		edge_request_refuse(r, OFFER);
		return;
	}
	memcpy(tuple, data + 1 + NONCE_SIZE, n - 1 - NONCE_SIZE);
	tuple[n - 1 - NONCE_SIZE] = 0;
	if (data[0] == ASK && !early) {
		asked(r, data + 1, tuple);
		return;
	}
	const char *peer = split(tuple, &from, &to) ? map_peer(&from, address_port(&to)) : NULL;
	if (data[0] != PROBE || !peer || strcmp(peer, edge_request_peer(r)) || !covered(&to)) {
		edge_request_refuse(r, ELSEWHERE);
		return;
	}
	if (stayed(peer, tuple)) {
		edge_request_refuse(r, SETTLED);
		return;
	}
	if (early && !heard_lately(peer, tuple) && early_hold(r, peer, tuple, data + 1))
		return;
	hear(peer, tuple, data + 1);
	edge_request_refuse(r, OFFER);
}

void answer_probes(struct sock *s) {
	edge_request *r;
	int err = EDGE_ERR_AGAIN;
	while (s->listener && (err = edge_listener_next(s->listener, &r, 0)) == 0)
		answer(r);
	answer_asks();
	if (err == EDGE_ERR_AGAIN)
		return;
	edge_listener_close(s->listener); /* a new daemon did not let us offer it: we go on trying */
	s->listener = NULL;
	sock_decide(s);
}

void enlist_early(struct sock *s) {
	int64_t now = now_ns();
	if (s->listener || now < s->until)
		return;
	s->pause = s->pause ? 2 * s->pause : PAUSE;
	if (s->pause > PAUSE_MOST)
		s->pause = PAUSE_MOST;
	s->until = now + s->pause;
	if (!s->at)
		sock_decide(s);
	if (!device_ready() || s->fd < 0 || address_port(&s->bound.at) == 0)
		return;
	snprintf(s->service, sizeof s->service, "tcp/%d", address_port(&s->bound.at));
	if (offer_service(s))
		return; /* another process of ours has it, mostly: when that ends, it is ours */
	sock_decided(s);
	edge_listener_watch(s->listener, s);
	edge_stream_reserve(device); /* of the first who connects */
	answer_probes(s);
}

void enlist(struct sock *s) {
	s->waits = true;
	enlist_early(s);
}

void list(struct sock *s) {
	learn_bound(s);
	if (getrandom(s->secret, sizeof s->secret, 0) != sizeof s->secret)
		memset(s->secret, 0, sizeof s->secret); /* stands for none */
	s->listed.next = listeners;
	s->listed.at = &listeners;
	if (s->listed.next)
		s->listed.next->listed.at = &s->listed.next;
	listeners = s;
}

void unlist(struct sock *s) {
	if (!s->listed.at)
		return;
	*s->listed.at = s->listed.next;
	if (s->listed.next)
		s->listed.next->listed.at = s->listed.at;
	s->listed.at = NULL;
}

/* The process has forked. If it did not wait for connections yet, that is for the child, which then answers probes. */
void pass_on(void) {
	for (struct sock *s = listeners; s; s = s->listed.next) {
		s->kept.passed = true;
		if (s->listener && !s->waits) {
			edge_listener_close(s->listener);
			s->listener = NULL;
			s->until = s->pause = 0;
		}
	}
}

/* In the child: requests are the parent's, and so is what was heard. */
void acceptor_after_fork(void) {
	asks = NULL;
	nasks = 0;
	for (struct sock *s = listeners; s; s = s->listed.next)
		s->waits = !(s->kept.passed = true);
}

/* --- the user of an accepted socket --- */

/* Unlocked. */
void adopt(int fd, bool nonblock, const struct sock *from) {
	union address local, remote;
	if (map_empty() || !both_ends(fd, &local, &remote))
		return;
	const char *peer = map_peer(&remote, address_port(&local));
	if (!peer)
		return;
	lock();
	struct sock *s = sock_new(fd, ACCEPTED);
	if (s) {
		s->peer = peer;
		s->nonblock = nonblock;
		if (from)
			memcpy(s->secret, from->secret, sizeof s->secret);
		name_offer(s, &remote, &local);
	}
	unlock();
}

/* No byte has passed over TCP in either direction. */
static bool untouched(int fd) {
	struct tcp_info i = {0};
	socklen_t n = sizeof i;
	return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_bytes_sent == 0 &&
	       i.tcpi_bytes_received == 0;
}

void begin(struct sock *s) {
	if (s->state != ACCEPTED)
		return;
	if (!untouched(s->fd) || !device_ready()) {
		become_plain(s, "tcp: in use, or without a daemon");
		return;
	}
	s->until = now_ns() + (DIAL_MS + 1000) * MILLI;
	s->state = DIALLING;
	s->step = BEGUN;
	s->kept.late = now_ns() < mixed ? 0 : now_ns() + LATE;
	sock_decide(s);
}

/* The port at which the connection was accepted. */
int port_of(const struct sock *s) {
	union address from, to;
	return split(s->tuple, &from, &to) ? address_port(&to) : 0;
}

static bool owner_of(int port) {
	for (struct sock *l = listeners; l; l = l->listed.next)
		if (l->listener && same_port(l, port))
			return true;
	return false;
}

bool accepts_alone(int port) {
	bool owner = false;
	for (struct sock *l = listeners; l; l = l->listed.next) {
		if (!same_port(l, port))
			continue;
		if (l->kept.passed || !l->waits || l->bound.shares)
			return false;
		owner = owner || l->listener;
	}
	return owner;
}

static bool dial_stream(struct sock *s) {
	unsigned char data[MOST_DATA];
	edge_dial_options o = {.size = sizeof o, .data = data, .data_size = said(data, SHOWN, s->nonce, s->tuple)};
	s->step = SHOWS;
	unwatch_tcp(s); /* nobody looks at it before the answer, and bytes would wake the hub without end */
	s->until = now_ns() + (DIAL_MS + 1000) * MILLI;
	if (edge_stream_dial_start(device, s->peer, s->service, &o, &s->stream, DIAL_MS) == 0) {
		edge_stream_watch(s->stream, s);
		return true;
	}
	s->stream = NULL;
	become_plain(s, "tcp: the daemon cannot be asked");
	return false;
}

/* Asks a peer, or the process of this host that owns tcp/PORT, by a dial that is refused. */
static void question(struct sock *s, enum step step, const char *peer, const char *service, unsigned char kind,
                     const unsigned char *word) {
	unsigned char data[MOST_DATA];
	edge_dial_options o = {.size = sizeof o, .data = data, .data_size = said(data, kind, word, s->tuple)};
	s->step = step;
	if (edge_dial_start(device, peer, service, &o, &s->probe, DIAL_MS)) {
		s->probe = NULL;
		become_plain(s, "tcp: the daemon cannot be asked");
	}
}

/* Takes the nonce out of an owner's refusal. */
static bool told(struct sock *s) {
	const char *text = edge_conn_reason(s->probe);
	text = text ? strstr(text, NONCE) : NULL;
	unsigned byte;
	for (size_t i = 0; i < NONCE_SIZE; i++) {
		if (!text || sscanf(text + strlen(NONCE) + 2 * i, "%2x", &byte) != 1)
			return false;
		s->nonce[i] = (unsigned char)byte;
	}
	return true;
}

/* The other side offers a stream, and its nonce was not heard here: another process hears it, or it is on its way. */
static void seek_nonce(struct sock *s) {
	char service[16];
	int port = port_of(s);
	s->until = now_ns() + HEAR;
	watch_tcp(s, EPOLLIN | EPOLLRDHUP);
	if (owner_of(port)) {
		s->step = WAITS;
		return;
	}
	snprintf(service, sizeof service, "tcp/%d", port);
	question(s, ASKS_OWNER, edge_device_name(device), service, ASK, s->secret);
}

/* The other side may have to do first what it is to be asked for. */
static void await_begin(struct sock *s) {
	s->step = AWAITS;
	s->until = now_ns() + GRACE;
	watch_tcp(s, EPOLLIN | EPOLLRDHUP); /* programs that are not under edge-run speak first, mostly */
}

/* That is no verdict while a stream may be begun instead. */
static void not_offered(struct sock *s) {
	bool expected = rest_expected(s);
	int64_t now = now_ns();
	if (rest_forsaken() || (expected && now < s->kept.late)) {
		await_begin(s);
		return;
	}
	if (expected)
		mixed = now + MIXED;
	stays(s);
	become_plain(s, "tcp: not offered");
}

/* The answer to a question; AGAIN: none yet. */
static void look_at_answer(struct sock *s) {
	int err = edge_conn_wait(s->probe, 0);
	if (err == EDGE_ERR_AGAIN)
		return;
	bool knows = err == EDGE_ERR_REFUSED && s->step == ASKS_OWNER && told(s);
	edge_conn_free(s->probe);
	s->probe = NULL;
	if (knows)
		dial_stream(s);
	else if (err == EDGE_ERR_REFUSED && s->step == ASKS_PEER)
		seek_nonce(s);
	else if (err == EDGE_ERR_NO_SERVICE && s->step == ASKS_PEER)
		not_offered(s);
	else
		become_plain(s, err != EDGE_ERR_NO_SERVICE ? "tcp: its nonce is not known"
		                                           : "tcp: nobody offers the port any more");
}

/* TCP's end has come, and no byte. */
static bool ended_silently(const struct sock *s) {
	char byte;
	return s->fd >= 0 && real.recv(own_number(s->fd), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* The other side may give up the stream that we have taken until it hears of that: then both go on over TCP. A byte
 * says that it does not (PROTOCOL 20.10). */
static void look_at_taken(struct sock *s) {
	char byte;
	s->kept.news = false;
	ssize_t n = edge_stream_read(s->stream, &byte, 1, 0);
	if (n == 1) {
		s->kept.begun = false;
		when_ready(s);
	} else if (n < 0 && n != EDGE_ERR_AGAIN && n != EDGE_ERR_RESET && ended_silently(s)) {
		s->kept.begun = false; /* the other side may have used it, whatever it said is lost, and TCP looks in order */
		drop_held(s);
		become_stream(s);
	} else if (n != EDGE_ERR_AGAIN) {
		become_plain(s, "tcp: the other side gave the stream up");
	} else if (tcp_used(s)) {
		become_plain(s, "tcp: the other side uses it");
	} else if (now_ns() >= s->until && s->kept.alone) {
		become_plain(s, "tcp: the other side did not go on with the stream");
	} else if (now_ns() >= s->until) {
		/* It decides, and a program waits for it as over TCP. Mostly it does so before TCP needs to be looked at. */
		s->until = NEVER;
		if (!s->tcp.watched)
			watch_tcp(s, EPOLLIN | EPOLLRDHUP);
	}
}

void look_at_dial(struct sock *s) {
	if (s->stream && s->kept.begun) {
		look_at_taken(s);
		return;
	}
	if (s->stream) {
		int err = edge_stream_wait(s->stream, 0);
		if (err == 0)
			when_ready(s);
		else if (err != EDGE_ERR_AGAIN || now_ns() >= s->until)
			become_plain(s, err == EDGE_ERR_NO_SERVICE ? "tcp: not offered" : "tcp: not accepted");
		return;
	}
	if (heard_nonce(s->peer, s->tuple, s->nonce)) {
		dial_stream(s);
	} else if (rest_claim(s) || early_claim(s)) {
		s->until = now_ns() + GRACE;
		if (s->orphan)
			leave_alone(s);
		changed(s); /* a write need not wait any more */
		look_at_taken(s);
	} else if (s->tcp.arrived) {
		become_plain(s, "tcp: the other side uses it");
	} else if (s->step == BEGUN && rest_expected(s)) {
		await_begin(s);
	} else if (s->step == AWAITS && (rest_expected(s) || rest_forsaken()) && now_ns() < s->until) {
		return;
	} else if (s->step <= AWAITS) {
		s->until = now_ns() + (DIAL_MS + 1000) * MILLI;
		watch_tcp(s, EPOLLIN | EPOLLRDHUP); /* a peer whose daemon is dead answers late, and may have spoken */
		question(s, ASKS_PEER, s->peer, s->service, SHOWN, s->nonce); /* zeros: whether it offers anything */
	} else if (now_ns() >= s->until) {
		become_plain(s, "tcp: its nonce was not heard in time");
	} else if (s->probe) {
		look_at_answer(s);
	}
}
