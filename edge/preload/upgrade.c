/*
 * How two programs agree to leave TCP.
 *
 *   connector                                          acceptor
 *   binds its socket, so that its port is known
 *   offers a service named by the addresses
 *   dials tcp/PORT, to learn whether anybody of ours   the listener has offered tcp/PORT, and refuses
 *     listens: no such service -> TCP
 *   connects TCP                                       accepts TCP
 *                                                      the first process that reads, writes or polls the socket
 *   accepts <------------------------------------------- dials the offer: no such service, refused -> TCP
 *   both use the stream
 *
 * The connector sends nothing over TCP before the verdict, which takes VERDICT at most; then it withdraws the offer and
 * goes on over TCP, where the acceptor may have sent something meanwhile. The acceptor dials only while not a byte has
 * passed over TCP. So either both are on the stream or the bytes are on TCP. In the one case between, when the daemons
 * lose an answer, one side's stream is reset, and with it the connection.
 *
 * It is the acceptor that dials, and that on first use, so that servers may fork between accept and use. Both sides
 * compare the peer that the daemon authenticated with the one that the map names for the address.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

#define VERDICT (2000 * MILLI)    /* how long a connector waits to be dialled */
#define DIAL_MS 5000              /* how long an acceptor waits for the answer: longer, so that it knows */
#define REMEMBER (2000 * MILLI)   /* how long what is known of a listener counts */
#define DAEMON_MS 2000            /* for an answer of the daemon on this host, which may be busy */
#define PAUSE (250 * MILLI)       /* between attempts to reach the daemon, or to offer tcp/PORT, at first */
#define PAUSE_MOST (8000 * MILLI)

edge_device *device;
int hub = -1;
static int64_t device_after; /* when the daemon is asked again: it did not answer, or there was none */

/* What is known of listeners, by hash of peer and port. */
enum { TARGETS = 256 };
static struct target { uint64_t id; int64_t until; bool ours; } targets[TARGETS];

static struct target *target_of(const char *peer, const union address *to) {
	uint64_t h = 14695981039346656037u;
	for (const char *p = peer; *p; p++)
		h = (h ^ (unsigned char)*p) * 1099511628211u;
	h = (h ^ (uint64_t)address_port(to)) * 1099511628211u | 1;
	struct target *t = &targets[h >> 32 & (TARGETS - 1)];
	if (t->id != h)
		*t = (struct target){.id = h};
	return t;
}

static void remember(const struct sock *s, bool ours) {
	struct target *t = &targets[s->target >> 32 & (TARGETS - 1)];
	*t = (struct target){.id = s->target, .until = now_ns() + REMEMBER, .ours = ours};
}

bool device_ready(void) {
	if (now_ns() < device_after)
		return false;
	if (device)
		return edge_device_error(device) == 0;
	edge_config cfg = {.size = sizeof cfg, .socket = daemon_socket};
	cfg.receive_buffer = cfg.send_buffer = stream_buffer;
	if (edge_open(&device, &cfg, DAEMON_MS)) {
		note("edged", edge_detail());
		device = NULL;
		device_after = now_ns() + PAUSE;
		return false;
	}
	process_handlers();
	edge_device_quiet(device, 1); /* see unlock */
	hub = own_take(real.epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event e = {.events = EPOLLIN};
	if (hub >= 0 && own_epoll_ctl(hub, EPOLL_CTL_ADD, edge_device_fd(device), &e) == 0 && wait_ready())
		return true;
	if (hub >= 0)
		own_close(hub);
	hub = -1;
	edge_device_close(device, 0);
	device = NULL;
	device_after = now_ns() + PAUSE;
	return false;
}

/* Offers s->service. A daemon that does not answer would keep each of many connections, and all who wait for guard. */
static int offer_service(struct sock *s) {
	int err = edge_listen(device, s->service, &s->listener, DAEMON_MS);
	if (err)
		s->listener = NULL;
	if (err == EDGE_ERR_TIMEOUT || err == EDGE_ERR_DAEMON_SILENT)
		device_after = now_ns() + PAUSE;
	return err;
}

/* libedge has made the device useless here, and closed its descriptors. */
void upgrade_after_fork(void) {
	hub = -1; /* own_after_fork closes it */
	device = NULL;
	device_after = 0;
}

/* --- names --- */

static void write_end(char *to, size_t size, const union address *a) {
	char text[INET6_ADDRSTRLEN];
	const struct in6_addr *six = &a->in6.sin6_addr;
	if (a->any.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, text, sizeof text);
	else if (IN6_IS_ADDR_V4MAPPED(six))
		inet_ntop(AF_INET, six->s6_addr + 12, text, sizeof text);
	else
		inet_ntop(AF_INET6, six, text, sizeof text);
	snprintf(to, size, strchr(text, ':') ? "[%s]:%d" : "%s:%d", text, address_port(a));
}

/* Names an offer by its addresses; two long ones of IPv6 are too much for a name, so the second one's port must do. */
static void name_offer(struct sock *s, const union address *from, const union address *to) {
	char a[64], b[64];
	write_end(a, sizeof a, from);
	write_end(b, sizeof b, to);
	snprintf(s->tuple, sizeof s->tuple, "%s>%s", a, b);
	if (strlen(s->tuple) + 4 < sizeof s->service)
		snprintf(s->service, sizeof s->service, "tcp/%.60s", s->tuple);
	else
		snprintf(s->service, sizeof s->service, "tcp/%.52s>%d", a, address_port(to));
}

static bool ends(int fd, union address *local, union address *remote) {
	socklen_t n = sizeof *local;
	if (getsockname(fd, &local->any, &n))
		return false;
	n = sizeof *remote;
	return !remote || getpeername(fd, &remote->any, &n) == 0;
}

/* No byte has passed over TCP in either direction. */
static bool untouched(int fd) {
	struct tcp_info i = {0};
	socklen_t n = sizeof i;
	return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_bytes_sent == 0 &&
	       i.tcpi_bytes_received == 0;
}

/* --- the connector --- */

static bool anonymous(const union address *a) {
	return a->any.sa_family == AF_INET ? a->in.sin_addr.s_addr == 0 : IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

/* Binds the socket to the address that the kernel would choose, and a port. */
static bool bind_first(int fd, const union address *to, union address *from) {
	socklen_t n = sizeof *from;
	if (!ends(fd, from, NULL))
		return false;
	if (address_port(from))
		return !anonymous(from); /* bound to a port of any address: its address is not known before */
	if (anonymous(from)) {
		int probe = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		n = to->any.sa_family == AF_INET ? sizeof to->in : sizeof to->in6;
		bool ok = probe >= 0 && real.connect(probe, &to->any, n) == 0 && ends(probe, from, NULL);
		if (probe >= 0)
			real.close(probe);
		if (!ok)
			return false;
	}
	*(from->any.sa_family == AF_INET ? &from->in.sin_port : &from->in6.sin6_port) = 0;
	n = from->any.sa_family == AF_INET ? sizeof from->in : sizeof from->in6;
	return bind(fd, &from->any, n) == 0 && ends(fd, from, NULL);
}

/* Offers the connection that fd is about to make. false: it remains TCP. */
bool offer(int fd, struct sock **made, const union address *to) {
	const char *peer = map_peer(to, address_port(to));
	if (!peer)
		return false;
	struct target *t = target_of(peer, to);
	int64_t now = now_ns();
	bool known = now < t->until;
	union address from;
	const char *why = known && !t->ours            ? "tcp: nobody of ours listened a moment ago"
	                  : !device_ready()            ? "tcp: without a daemon"
	                  : !bind_first(fd, to, &from) ? "tcp: the socket has no address of its own"
	                                               : NULL;
	if (why) {
		char name[64];
		write_end(name, sizeof name, to);
		note(name, why);
		return false;
	}
	struct sock *s = sock_new(fd, OFFERED);
	if (!s)
		return false;
	*made = s;
	s->peer = peer;
	s->target = t->id;
	s->until = now + VERDICT;
	name_offer(s, &from, to);
	if (offer_service(s)) {
		note(s->tuple, edge_detail());
		atomic_store(&s->state, PLAIN);
		return true;
	}
	edge_listener_watch(s->listener, s);
	sock_decide(s);
	char port[16];
	snprintf(port, sizeof port, "tcp/%d", address_port(to));
	if (!known && edge_dial_start(device, peer, port, NULL, &s->probe, (int)(VERDICT / MILLI)))
		become_plain(s, "tcp: the daemon cannot be asked");
	return true;
}

void withdraw(struct sock *s) {
	if (s->state == OFFERED)
		become_plain(s, "tcp: not connected");
}

bool watch_connect(struct sock *s) {
	struct epoll_event e = {.events = EPOLLOUT};
	return s->connecting = own_epoll_ctl(hub, EPOLL_CTL_ADD, s->fd, &e) == 0;
}

static void unwatch_connect(struct sock *s) {
	if (s->connecting)
		own_epoll_ctl(hub, EPOLL_CTL_DEL, s->fd, NULL);
	s->connecting = false;
}

/* The hub knows it by its number, which is closed later. */
void renumbered(struct sock *s, int fd) {
	bool connecting = s->connecting;
	unwatch_connect(s);
	s->fd = fd;
	if (connecting && fd >= 0)
		watch_connect(s);
}

/* From now on the other side may dial. */
void connected(struct sock *s) {
	unwatch_connect(s);
	if (s->until != NEVER)
		s->until = now_ns() + VERDICT;
}

static void release_offer(struct sock *s) {
	unwatch_connect(s);
	sock_decided(s);
	if (s->probe)
		edge_conn_free(s->probe);
	s->probe = NULL;
	if (s->listener)
		edge_listener_close(s->listener);
	s->listener = NULL;
}

static void become_stream(struct sock *s) {
	release_offer(s);
	atomic_store(&s->state, STREAM);
	say(s, "stream");
	changed(s);
}

/* The connection goes on over TCP, and why. */
void become_plain(struct sock *s, const char *why) {
	say(s, why);
	release_offer(s);
	if (s->stream)
		edge_stream_close(s->stream, 0);
	s->stream = NULL;
	atomic_store(&s->state, PLAIN);
	for (struct link *l = s->links, *next; l; l = next) {
		next = l->next;
		if (l->item)
			item_plain(l->item);
		else
			ring(l->waiter);
	}
}

/* Whether the answer to a probe says that nobody of ours listens there. */
static bool nobody(int err) {
	return err != 0 && err != EDGE_ERR_AGAIN && err != EDGE_ERR_REFUSED && err != EDGE_ERR_LIMIT &&
	       err != EDGE_ERR_TIMEOUT;
}

/* Takes the first request for a stream, if it comes from the right peer, before it is accepted: others learn that they
 * are refused, and what is meant for us goes over TCP. */
static bool dialled_by_peer(struct sock *s) {
	edge_request *r;
	while (edge_listener_next(s->listener, &r, 0) == 0) {
		const void *data;
		size_t n;
		if (strcmp(edge_request_peer(r), s->peer) == 0 && edge_request_stream(r, &data, &n) &&
		    n == strlen(s->tuple) && !memcmp(data, s->tuple, n)) {
			if (edge_request_accept_stream(r, &s->stream) == 0) {
				edge_stream_watch(s->stream, s); /* once: it says that something changed */
				return true;
			}
			s->stream = NULL;
		} else {
			edge_request_refuse(r, "not the peer, or not the connection, that is expected");
		}
	}
	return false;
}

/* A stream counts when its first write has room: programs take it that a new connection has. */
static void when_ready(struct sock *s) {
	s->until = NEVER;
	if (edge_stream_events(s->stream) & (POLLOUT | POLLERR | POLLHUP | POLLRDHUP))
		become_stream(s);
}

static void look_at_offer(struct sock *s) {
	if (s->stream) {
		int err = edge_stream_wait(s->stream, 0);
		if (err && err != EDGE_ERR_AGAIN)
			become_plain(s, "tcp: the other side gave up");
		else
			when_ready(s);
		return;
	}
	struct pollfd p = {.fd = s->fd, .events = POLLOUT};
	if (s->connecting && real.ppoll(&p, 1, &(struct timespec){0}, NULL) == 1) {
		connected(s);
		if (p.revents & (POLLERR | POLLHUP)) {
			become_plain(s, "tcp: not connected");
			return;
		}
	}
	if (s->fd < 0) {
		become_plain(s, "tcp: closed");
		return;
	}
	if (dialled_by_peer(s)) {
		remember(s, true);
		when_ready(s);
		return;
	}
	int answer = s->probe ? edge_conn_wait(s->probe, 0) : EDGE_ERR_AGAIN;
	if (s->probe && answer != EDGE_ERR_AGAIN) {
		edge_conn_free(s->probe);
		s->probe = NULL;
	}
	if (nobody(answer) || edge_device_error(device)) {
		remember(s, false);
		become_plain(s, "tcp: nobody of ours listens");
	} else if (s->connecting) {
		s->until = now_ns() + VERDICT; /* TCP is slow; the other side has not begun */
	} else if (now_ns() >= s->until) {
		remember(s, false);
		become_plain(s, "tcp: not dialled in time");
	}
}

/* --- the acceptor --- */

static void answer_probes(struct sock *s) {
	edge_request *r;
	int err = EDGE_ERR_AGAIN;
	while (s->listener && (err = edge_listener_next(s->listener, &r, 0)) == 0)
		edge_request_refuse(r, "connect by TCP, and offer a stream");
	if (err == EDGE_ERR_AGAIN)
		return;
	edge_listener_close(s->listener); /* a new daemon did not let us offer it: we go on trying */
	s->listener = NULL;
	sock_decide(s);
}

void enlist(struct sock *s) {
	int64_t now = now_ns();
	union address a;
	if (s->listener || now < s->until)
		return;
	s->pause = s->pause ? 2 * s->pause : PAUSE;
	if (s->pause > PAUSE_MOST)
		s->pause = PAUSE_MOST;
	s->until = now + s->pause;
	if (!s->at)
		sock_decide(s);
	if (!device_ready() || !ends(s->fd, &a, NULL))
		return;
	snprintf(s->service, sizeof s->service, "tcp/%d", address_port(&a));
	if (offer_service(s))
		return; /* another process of ours has it, mostly: when that ends, it is ours */
	sock_decided(s);
	edge_listener_watch(s->listener, s);
	answer_probes(s);
}

/* Unlocked. */
void adopt(int fd, bool nonblock) {
	union address local, remote;
	if (map_empty() || !ends(fd, &local, &remote))
		return;
	const char *peer = map_peer(&remote, address_port(&local));
	if (!peer)
		return;
	lock();
	struct sock *s = sock_new(fd, ACCEPTED);
	if (s) {
		s->peer = peer;
		s->nonblock = nonblock;
		name_offer(s, &remote, &local);
	}
	unlock();
}

void begin(struct sock *s) {
	if (s->state != ACCEPTED)
		return;
	edge_dial_options o = {.size = sizeof o, .data = s->tuple, .data_size = strlen(s->tuple)};
	s->until = now_ns() + (DIAL_MS + 1000) * MILLI;
	if (!untouched(s->fd) || !device_ready() ||
	    edge_stream_dial_start(device, s->peer, s->service, &o, &s->stream, DIAL_MS)) {
		s->stream = NULL;
		become_plain(s, "tcp: in use, or without a daemon");
		return;
	}
	s->state = DIALLING;
	edge_stream_watch(s->stream, s);
	sock_decide(s);
}

static void look_at_dial(struct sock *s) {
	int err = edge_stream_wait(s->stream, 0);
	if (err == 0)
		when_ready(s);
	else if (err != EDGE_ERR_AGAIN || now_ns() >= s->until)
		become_plain(s, err == EDGE_ERR_NO_SERVICE ? "tcp: not offered" : "tcp: not accepted");
}

/* --- both --- */

static void look(void) {
	for (struct sock *s = undecided, *next; s; s = next) {
		next = s->next;
		if (s->state == OFFERED)
			look_at_offer(s);
		else if (s->state == DIALLING)
			look_at_dial(s);
		else
			enlist(s);
	}
}

static void take_changes(void) {
	void *what[64];
	int n;
	edge_device_poll(device);
	while ((n = edge_changed(device, what, 64)) > 0)
		for (int i = 0; i < n; i++) {
			struct sock *s = what[i];
			if (s->state == LISTENING)
				answer_probes(s);
			else
				changed(s);
		}
}

void progress(void) {
	if (!device) {
		look();
		return;
	}
	bool quiet = sleepers > 0 && lingerers == 0 && !woken && edge_device_arm(device);
	woken = false;
	if (quiet && !undecided)
		return; /* the device rings those who sleep, and has not; to poll it would take system calls */
	do {
		if (!quiet)
			take_changes();
		quiet = false;
		look();
	} while (sleepers > 0 && lingerers == 0 && !edge_device_arm(device));
}

int64_t next_verdict(void) {
	int64_t first = NEVER;
	for (struct sock *s = undecided; s; s = s->next)
		if (s->until < first)
			first = s->until;
	return first;
}

int settle(struct sock *s, bool nonblock) {
	for (;;) {
		switch (s->state) {
		case FOREIGN:
			return ECONNRESET;
		case ACCEPTED:
		case OFFERED:
		case DIALLING:
			break;
		default:
			return 0;
		}
		lock();
		begin(s);
		progress();
		bool open = s->state == OFFERED || s->state == DIALLING;
		unlock();
		if (!open)
			continue;
		if (nonblock)
			return EAGAIN;
		int err = wait_for(s, 0, 0, NEVER);
		if (err)
			return err;
	}
}

int events(struct sock *s) {
	switch (s->state) {
	case FOREIGN:
		return POLLIN | POLLOUT | POLLERR | POLLHUP;
	case STREAM:
		break;
	default:
		return 0;
	}
	int e = edge_stream_events(s->stream);
	if (e & POLLRDHUP && !s->broken) /* TCP takes the other side's close for the end of its writing */
		e = (e & ~(POLLERR | POLLHUP)) | (s->write_shut ? POLLHUP : 0);
	if (s->broken)
		e |= POLLIN | POLLOUT | POLLHUP;
	if (s->read_shut)
		e |= POLLIN | POLLRDHUP;
	if (s->write_shut)
		e |= POLLOUT;
	return e;
}

/* A stream that failed takes the TCP connection with it, in case that the other side is still on that. */
static void end_stream(struct sock *s) {
	struct linger l = {0};
	socklen_t n = sizeof l;
	real.getsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, &n);
	bool abrupt = l.l_onoff && l.l_linger == 0;
	if (abrupt)
		edge_stream_reset(s->stream);
	if (s->broken || edge_stream_error(s->stream)) {
		l = (struct linger){.l_onoff = 1};
		real.setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
	}
	edge_stream_close(s->stream, -1);
}

void finish(struct sock *s) {
	items_drop(s);
	if (s->state == LISTENING)
		release_offer(s);
	if (s->state == OFFERED || s->state == DIALLING)
		become_plain(s, "closed");
	if (s->state == STREAM && s->stream)
		end_stream(s);
	s->stream = NULL;
	s->state = PLAIN;
	if (sleepers > 0)
		progress();
}
