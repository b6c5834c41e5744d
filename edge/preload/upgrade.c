/*
 * How two programs agree to leave TCP (PROTOCOL clause 20).
 *
 *   connector (connector.c)                            acceptor (acceptor.c)
 *   binds its socket, so that its port is known
 *   offers a service named by the addresses
 *   dials tcp/PORT with a nonce, to learn whether      the listener has offered tcp/PORT: it hears the nonce,
 *     anybody of ours listens: no such service,          and refuses
 *     elsewhere -> TCP
 *   connects TCP                                       accepts TCP
 *                                                      the first process that reads, writes or polls the socket
 *   accepts, if the nonce is right <-------------------- dials the offer with it: no such service, refused -> TCP
 *   both use the stream
 *
 * The connector sends nothing over TCP before the verdict, which takes VERDICT at most; then it withdraws the offer and
 * goes on over TCP, where the acceptor may have sent something meanwhile: that, or TCP's end, is a verdict, too. The
 * acceptor dials only while no byte has passed over TCP. So either both are on the stream or the bytes are on TCP. In
 * the one case between, when the daemons lose an answer, one side's stream is reset, and with it the connection. What a
 * program writes before the verdict, and does not want to wait for, is kept (held.c).
 *
 * It is the acceptor that dials, and that on first use, so that servers may fork between accept and use. Both sides
 * compare the peer that the daemon authenticated with the one the map names for the address. Only who owns tcp/PORT
 * hears the nonce: another user of the server's host may know the addresses of a new connection, and dials in vain.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"

#ifndef SO_BUF_LOCK /* Linux 5.16 */
#define SO_BUF_LOCK 72
#endif
#ifndef SOCK_SNDBUF_LOCK
#define SOCK_SNDBUF_LOCK 1
#endif

#define DAEMON_MS 2000            /* for an answer of the daemon on this host, which may be busy */
#define PAUSE (250 * MILLI)       /* between attempts to reach the daemon */

_Atomic unsigned progresses;

static bool looking;         /* look is under way: finish comes back to it by bury */
static int watched;          /* sockets in the hub, beside the device */
static bool attaches;        /* the device was opened, and is not known to have attached: nothing uses it */
static uid_t opened_as;      /* by which user */
static int64_t device_after; /* when the daemon is asked again: it did not answer, or there was none */

static void no_daemon(const char *why) {
	note("edged", why);
	device_after = now_ns() + PAUSE;
}

/* Opens the device, and what threads wait by. It attaches meanwhile. A hub that is there stays: others sleep by it. */
static void open_device(void) {
	edge_config cfg = {.size = sizeof cfg, .socket = daemon_socket, .name = program_name()};
	cfg.receive_buffer = cfg.send_buffer = stream_buffer;
	if (edge_open_start(&device, &cfg)) {
		device = NULL;
		no_daemon(edge_detail());
		return;
	}
	attaches = true;
	opened_as = geteuid();
	above->opened();
	edge_device_quiet(device, 1); /* see unlock */
	struct epoll_event e = {.events = EPOLLIN};
	bool first = hub < 0;
	if (first)
		hub = own_take(real.epoll_create1(EPOLL_CLOEXEC));
	if (hub >= 0 && own_epoll_ctl(hub, EPOLL_CTL_ADD, edge_device_fd(device), &e) == 0 && wait_ready())
		return;
	if (first && hub >= 0) {
		own_close(hub);
		hub = -1;
	}
	edge_device_close(device, 0);
	device = NULL;
	no_daemon("no descriptors");
}

/* The program has made a TCP socket: the daemon does its part until that connects. */
void device_ahead(void) {
	lock();
	if (!device && now_ns() >= device_after)
		open_device();
	unlock();
}

bool device_ready(void) {
	if (now_ns() < device_after)
		return false;
	if (device && attaches && geteuid() != opened_as) { /* the daemon is to know the user that the program is now */
		edge_device_close(device, 0);
		device = NULL;
	}
	if (!device)
		open_device();
	if (device && attaches && (attaches = edge_device_attached(device, DAEMON_MS) != 0))
		no_daemon(edge_detail());
	return device && !attaches && edge_device_error(device) == 0;
}

/* Offers s->service, if that has not begun, and waits for it. A daemon that does not answer would keep each of many
 * connections, and all who wait for guard. */
int offer_service(struct sock *s) {
	int err = s->listener ? 0 : edge_listen_start(device, s->service, &s->listener);
	err = err ? err : edge_listener_wait(s->listener, DAEMON_MS);
	if (err) {
		edge_listener_close(s->listener);
		s->listener = NULL;
	}
	if (err == EDGE_ERR_TIMEOUT || err == EDGE_ERR_DAEMON_SILENT)
		device_after = now_ns() + PAUSE;
	return err;
}

/* libedge has made the device useless here, and closed its descriptors. */
void upgrade_after_fork(void) {
	hub = -1; /* own_after_fork closes it */
	device = NULL;
	device_after = 0;
	attaches = false;
	watched = 0;
	looking = false;
	acceptor_after_fork();
	rest_after_fork();
	early_after_fork();
}

/* --- names --- */

void write_end(char *to, size_t size, const union address *a) {
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
void name_offer(struct sock *s, const union address *from, const union address *to) {
	char a[64], b[64];
	write_end(a, sizeof a, from);
	write_end(b, sizeof b, to);
	snprintf(s->tuple, sizeof s->tuple, "%s>%s", a, b);
	if (strlen(s->tuple) + 4 < sizeof s->service)
		snprintf(s->service, sizeof s->service, "tcp/%.60s", s->tuple);
	else
		snprintf(s->service, sizeof s->service, "tcp/%.52s>%d", a, address_port(to));
}

bool both_ends(int fd, union address *local, union address *remote) {
	socklen_t n = sizeof *local;
	if (getsockname(fd, &local->any, &n))
		return false;
	n = sizeof *remote;
	return !remote || getpeername(fd, &remote->any, &n) == 0;
}

bool anonymous(const union address *a) {
	return a->any.sa_family == AF_INET ? a->in.sin_addr.s_addr == 0 : IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

bool same_address(const union address *a, const union address *b) {
	char one[64], two[64]; /* IPv4 in IPv6 is IPv4 here */
	write_end(one, sizeof one, a);
	write_end(two, sizeof two, b);
	return strcmp(one, two) == 0;
}

/* Reads what write_end wrote. */
static bool read_end(char *text, union address *a) {
	char *colon = strrchr(text, ':'), *rest;
	if (!colon)
		return false;
	*colon = 0;
	long port = strtol(colon + 1, &rest, 10);
	if (port < 1 || port > 65535 || *rest)
		return false;
	memset(a, 0, sizeof *a);
	size_t n = strlen(text);
	if (*text == '[' && n > 1 && text[n - 1] == ']') {
		text[n - 1] = 0;
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, text + 1, &a->in6.sin6_addr) == 1;
	}
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, text, &a->in.sin_addr) == 1;
}

bool split(const char *tuple, union address *from, union address *to) {
	char text[128];
	snprintf(text, sizeof text, "%s", tuple);
	char *second = strchr(text, '>');
	if (!second)
		return false;
	*second = 0;
	return read_end(text, from) && read_end(second + 1, to);
}

size_t said(unsigned char *to, unsigned char kind, const unsigned char *word, const char *tuple) {
	size_t n = strlen(tuple);
	*to = kind;
	memcpy(to + 1, word, NONCE_SIZE);
	memcpy(to + 1 + NONCE_SIZE, tuple, n);
	return 1 + NONCE_SIZE + n;
}

/* --- what the kernel says of TCP, before the verdict --- */

bool watch_tcp(struct sock *s, uint32_t what) {
	struct epoll_event e = {.events = what, .data.ptr = s};
	if (s->fd < 0 || hub < 0)
		return false;
	bool ok = own_epoll_ctl(hub, s->tcp.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, s->fd, &e) == 0;
	if (ok && !s->tcp.watched)
		watched++;
	s->tcp.watched = s->tcp.watched ? what : ok ? what : 0;
	return ok;
}

void unwatch_tcp(struct sock *s) {
	if (!s->tcp.watched)
		return;
	own_epoll_ctl(hub, EPOLL_CTL_DEL, s->fd, NULL);
	watched--;
	s->tcp.watched = s->tcp.arrived = 0;
}

bool tcp_used(struct sock *s) {
	char byte;
	if (!(s->tcp.arrived & (EPOLLIN | EPOLLRDHUP)) || s->tcp.arrived & (EPOLLERR | EPOLLHUP) || s->fd < 0 ||
	    real.recv(own_number(s->fd), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
		return s->tcp.arrived != 0;
	unwatch_tcp(s); /* its end would be told of for ever */
	return false;
}

/* The hub is readable as long as something is: what is not taken here comes the next time. */
static void ask_hub(void) {
	struct epoll_event e[64];
	int n = watched > 0 ? real.epoll_pwait(own_number(hub), e, 64, 0, NULL) : 0;
	for (int i = 0; i < n; i++) {
		struct sock *s = e[i].data.ptr;
		if (!s)
			continue;
		s->tcp.arrived |= e[i].events;
		s->kept.news = true;
	}
}

/* The program closes a socket that it has not used: another process may have it. The stream that the other side has
 * begun for it ends, so it asks for a new one, of whoever has the socket. */
static void closed_unused(struct sock *s) {
	if (s->state == ACCEPTED && s->fd >= 0)
		rest_unused(s);
}

/* The hub knows it by its number, which is closed later. */
void renumbered(struct sock *s, int fd) {
	uint32_t what = s->tcp.watched;
	if (fd < 0)
		closed_unused(s);
	unwatch_tcp(s);
	if (fd < 0 && must_outlive(s))
		fd = outlive(s);
	else if (fd < 0 && s->state == OFFERED)
		become_plain(s, "closed");
	s->fd = fd;
	if (what && fd >= 0)
		watch_tcp(s, what);
}

static void release_offer(struct sock *s) {
	unwatch_tcp(s);
	s->connecting = false;
	sock_decided(s);
	if (s->probe)
		edge_conn_free(s->probe);
	s->probe = NULL;
	if (s->listener)
		edge_listener_close(s->listener);
	s->listener = NULL;
}

/* A program that has chosen SO_SNDBUF wants its writes to wait soon: the kernel says whether it has. */
void bound_stream(struct sock *s) {
	int chosen = 0, size = 0;
	socklen_t n = sizeof chosen, m = sizeof size;
	if (s->fd >= 0 && real.getsockopt(own_number(s->fd), SOL_SOCKET, SO_BUF_LOCK, &chosen, &n) == 0 &&
	    chosen & SOCK_SNDBUF_LOCK && real.getsockopt(own_number(s->fd), SOL_SOCKET, SO_SNDBUF, &size, &m) == 0)
		edge_stream_bound(s->stream, (size_t)size);
}

void become_stream(struct sock *s) {
	release_offer(s);
	atomic_store(&s->state, STREAM);
	say(s, s->kept.again ? "stream, on a connection that was there" : "stream");
	bound_stream(s);
	if (s->write_shut)
		edge_stream_shutdown(s->stream);
	changed(s);
}

/* A connection that must not go on over TCP ends, at both sides. */
void forbid(int fd, struct sock *s, const char *why) {
	char text[256];
	snprintf(text, sizeof text, "ended, since EDGE_RUN_REQUIRE demands a stream; %s", why);
	if (fd >= 0)
		real.connect(fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)); /* resets it */
	if (s)
		say(s, text);
	complain("edge-run: %s: %s\n", s ? s->tuple : "a connection", text);
	if (!s)
		return;
	drop_held(s);
	atomic_store(&s->state, FOREIGN);
}

/* The connection goes on over TCP, and why. */
void become_plain(struct sock *s, const char *why) {
	bool open = strncmp(why, "tcp: ", 5) == 0;
	release_offer(s);
	unlist(s);
	if (s->stream)
		edge_stream_close(s->stream, 0);
	s->stream = NULL;
	s->kept.begun = s->kept.again = s->kept.confirms = s->kept.alone = s->kept.early = false;
	if (open && required) {
		forbid(s->fd < 0 ? -1 : own_number(s->fd), s, why + 5);
		changed(s);
		return;
	}
	say(s, why);
	held_to_tcp(s);
	if (s->write_shut || s->read_shut)
		real.shutdown(own_number(s->fd), !s->read_shut ? SHUT_WR : !s->write_shut ? SHUT_RD : SHUT_RDWR);
	atomic_store(&s->state, PLAIN);
	for (struct link *l = s->links, *next; l; l = next) {
		next = l->next;
		if (l->item)
			above->item_plain(l->item);
		else
			ring(l->waiter);
	}
}

/* A stream counts when its first write has room: programs take it that a new connection has. What was written before
 * goes first. */
void when_ready(struct sock *s) {
	int e = edge_stream_events(s->stream);
	s->until = NEVER;
	if (e & (POLLERR | POLLHUP) && s->held.n == 0 && !(e & POLLIN))
		become_plain(s, "tcp: the other side has no stream after all");
	else if (e & (POLLOUT | POLLERR | POLLHUP | POLLRDHUP) && held_to_stream(s))
		become_stream(s);
}

/* --- both --- */

/* Streams that were taken may wait for long, and there may be many of them. */
static bool due(const struct sock *s, int64_t now) { return !s->kept.begun || s->kept.news || now >= s->until; }

static void look(void) {
	if (looking)
		return;
	looking = true;
	int64_t now = now_ns();
	bool all = undecided && device && edge_device_error(device);
	rest_look(now);
	early_look(now);
	ask_hub();
	for (struct sock *s = undecided, *next; s; s = next) {
		next = s->next;
		if (s->state == OFFERED)
			look_at_offer(s);
		else if (s->state == DIALLING && (all || due(s, now)))
			look_at_dial(s);
		else if (s->state != DIALLING)
			enlist_early(s);
		if (s->orphan && s->state != OFFERED && s->state != DIALLING)
			bury(s);
	}
	looking = false;
}

static void take_changes(void) {
	void *what[64];
	int n;
	edge_device_poll(device);
	while ((n = edge_changed(device, what, 64)) > 0)
		for (int i = 0; i < n; i++) {
			struct sock *s = what[i];
			if (rest_is(s))
				rest_changed(s);
			else if (s->state == LISTENING)
				answer_probes(s);
			else {
				s->kept.news = true;
				changed(s);
			}
		}
}

void progress(void) {
	progresses++;
	if (!device) {
		look();
		return;
	}
	bool quiet = sleepers > 0 && lingerers == 0 && !woken && edge_device_arm(device);
	woken = false;
	if (quiet && !undecided && next_verdict() > now_ns())
		return; /* the device rings those who sleep, and has not; to poll it would take system calls */
	do {
		if (!quiet)
			take_changes();
		quiet = false;
		look();
	} while (sleepers > 0 && lingerers == 0 && !edge_device_arm(device));
}

int64_t next_verdict(void) {
	int64_t first = rest_next(), early = early_next();
	first = early < first ? early : first;
	for (struct sock *s = undecided; s; s = s->next)
		if (s->until < first)
			first = s->until;
	return first;
}

static bool has(struct sock *s, int want, size_t more) {
	switch (s->state) {
	case DIALLING:
		return want == 0 && more && holds(s, more);
	case OFFERED:
	case ACCEPTED:
		return false;
	case STREAM:
		if (want && more && edge_stream_readable(s->stream) <= more)
			want = POLLRDHUP;
		return want == 0 || events(s) & (want | POLLERR | POLLHUP);
	default:
		return true;
	}
}

int wait_for(struct sock *s, int want, size_t more, int64_t until) {
	struct waiter *w = own_waiter();
	int err = 0;
	signals_begin();
	lock();
	struct link l = {0};
	struct sleeping x = {.w = w, .links = &l, .socks = &s, .n = 1};
	w->mixed = false;
	link_add(&l, s, w);
	for (;;) {
		w->rung = false;
		progress();
		if (has(s, want, more))
			break;
		int64_t now = now_ns(), limit = next_verdict() < until ? next_verdict() : until;
		if (now >= until) {
			err = ETIMEDOUT;
			break;
		}
		if (err)
			break;
		if (linger(w) || !sleep_begin(&x))
			continue;
		struct pollfd p;
		int64_t left = limit == NEVER ? NEVER : limit > now ? limit - now : 0;
		if (sleep_poll(&x, &p, 1, left, NULL) >= 0 || errno != EINTR)
			continue;
		if (until != NEVER || !signals_restart())
			err = EINTR; /* if nothing happened meanwhile */
		signals_begin();
	}
	link_remove(&l);
	linger_end(w);
	unlock();
	return has(s, want, more) ? 0 : err;
}

int settle(struct sock *s, bool nonblock, int64_t until, size_t bytes) {
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
		int err = wait_for(s, 0, bytes, until);
		if (err || s->state == DIALLING) /* or they can be kept */
			return err && err != ETIMEDOUT ? err : EAGAIN;
	}
}

int events(struct sock *s) {
	switch (s->state) {
	case FOREIGN:
		return POLLIN | POLLOUT | POLLERR | POLLHUP;
	case STREAM:
		break;
	case ACCEPTED:
	case OFFERED:
	case DIALLING:
		return s->connecting || held_room(s) == 0 ? 0 : POLLOUT;
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
	real.getsockopt(own_number(s->fd), SOL_SOCKET, SO_LINGER, &l, &n);
	bool abrupt = l.l_onoff && l.l_linger == 0;
	if (abrupt)
		edge_stream_reset(s->stream);
	if (s->broken || edge_stream_error(s->stream)) {
		l = (struct linger){.l_onoff = 1};
		real.setsockopt(own_number(s->fd), SOL_SOCKET, SO_LINGER, &l, sizeof l);
	}
	if (abrupt || s->broken || !rest_keep(s))
		edge_stream_close(s->stream, -1);
}

void finish(struct sock *s) {
	above->items_drop(s);
	if (s->state == LISTENING) {
		release_offer(s);
		unlist(s);
		rest_close_accepted();
	}
	closed_unused(s);
	if (must_outlive(s) && !s->orphan)
		renumbered(s, -1);
	if (must_outlive(s) && s->orphan)
		return; /* look goes on with it */
	if (s->state == OFFERED || s->state == DIALLING)
		become_plain(s, "closed");
	if (s->state == STREAM && s->stream)
		end_stream(s);
	if (s->state == SHARED)
		share_end(s);
	s->stream = NULL;
	s->state = PLAIN;
	drop_held(s);
	if (s->orphan)
		own_close(s->fd);
	s->orphan = false;
	if (sleepers > 0 && !looking)
		progress();
}

void table_withdraw(const char *why) {
	int at = 0;
	for (struct sock *s; (s = table_next(&at));)
		if (s->state == LISTENING || unanswered(s) || s->state == ACCEPTED)
			become_plain(s, why);
}
