/* What makes, changes and ends descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "calls.h"

/* Sockets of which there was a dup before they had an entry in the table: what is done by one number would not be seen
 * by the other. They stay with TCP until one of two is closed. The other number and one more; -1: there are several. */
static _Atomic int twin[DESCRIPTORS];
static _Atomic int latest_twin = -1;

static bool in_table(int fd) { return fd >= 0 && fd < DESCRIPTORS; }

static void join_twins(int from, int to) {
	if (!active || !in_table(from) || !in_table(to) || borrowed())
		return;
	bool more = twin[from] != 0;
	if (more && twin[from] > 0)
		twin[twin[from] - 1] = -1;
	twin[from] = more ? -1 : to + 1;
	twin[to] = more ? -1 : from + 1;
	for (int n = latest_twin, most = from > to ? from : to;
	     n < most && !atomic_compare_exchange_weak(&latest_twin, &n, most);)
		;
}

/* Another process may have fd, too, or this one by another number. */
void twin_away(int fd) {
	if (!active || !in_table(fd) || borrowed())
		return;
	join_twins(fd, fd);
	twin[fd] = -1;
}

static void part_twins(int fd) {
	if (!in_table(fd) || twin[fd] == 0 || borrowed())
		return;
	int other = twin[fd] - 1;
	if (other >= 0 && twin[other] == fd + 1)
		twin[other] = 0;
	twin[fd] = 0;
}

/* A TCP socket, whose program does not wait for the kernel to say that it has read the memory of a send. */
bool suits(int fd) {
	int protocol = 0, zerocopy = 0;
	if (rings() || (in_table(fd) && twin[fd] != 0))
		return false;
	socklen_t n = sizeof protocol, m = sizeof zerocopy;
	return real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 && protocol == IPPROTO_TCP &&
	       (real.getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &zerocopy, &m) || !zerocopy);
}

static bool is_nonblocking(int fd) { return real.fcntl64(fd, F_GETFL) & O_NONBLOCK; }

/* --- socket and connect --- */

EXPORT int socket(int domain, int type, int protocol) {
	real_need();
	int fd = real.socket(domain, type, protocol), err = errno;
	bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM;
	if (fd >= 0 && tcp && active && !device && !borrowed() && !within())
		device_ahead();
	errno = err;
	return fd;
}

/* The kernel sends the first bytes with its first frame: connect does nothing, and nobody could dial before a write. */
static bool opens_fast(int fd) {
	int on = 0;
	socklen_t n = sizeof on;
	return real.getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, &n) == 0 && on;
}

/* A thread that is cancelled while it connects, or whose handler jumps out of the call. */
static void left(void *p) {
	struct resting *x = p;
	rest_left(x);
	lock();
	withdraw(x->s);
	unlock();
	sock_put(x->s);
}

static int connect_offered(int fd, const struct sockaddr *to, socklen_t n, struct sock *s) {
	struct resting x = {.s = s};
	rest_begin(&x, left);
	int r = real.connect(fd, to, n), err = errno;
	rest_end(&x);
	lock();
	if (r < 0 && (err == EINPROGRESS || err == EINTR)) {
		if (s->state == OFFERED && !watch_connect(s))
			withdraw(s);
	} else if (r < 0) {
		withdraw(s);
	} else {
		connected(s);
	}
	unlock();
	sock_put(s);
	errno = err;
	return r;
}

/* The map names a peer for the address. */
static bool mapped(const struct sockaddr *to, socklen_t n) {
	const union address *a = (const union address *)to;
	return active && to && n >= (socklen_t)sizeof a->in &&
	       (a->any.sa_family != AF_INET6 || n >= (socklen_t)sizeof a->in6) && map_peer(a, address_port(a));
}

static bool is_tcp(int fd) {
	int protocol = 0;
	socklen_t n = sizeof protocol;
	return real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 &&
	       (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

/* A listening socket may have another address now, or none. Unlocked. */
static void bound_anew(struct sock *s) {
	if (s->state != LISTENING)
		return;
	lock();
	if (s->state == LISTENING)
		learn_bound(s);
	unlock();
}

EXPORT int connect(int fd, const struct sockaddr *to, socklen_t n) {
	real_need();
	struct sock *s = sock_get(fd);
	if (s) { /* once more: the kernel knows whether that is right, and the hub when it is connected */
		bool barred = required && (s->state == PLAIN || s->state == FOREIGN) && mapped(to, n);
		bool listens = s->state == LISTENING;
		sock_put(s); /* a connect may take long */
		int r = barred ? fail_with(ECONNREFUSED) : real.connect(fd, to, n), err = errno;
		if (listens && (s = sock_get(fd))) {
			bound_anew(s);
			sock_put(s);
		}
		errno = err;
		return r;
	}
	const union address *a = (const union address *)to;
	if (!mapped(to, n))
		return real.connect(fd, to, n);
	static atomic_flag looked = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&looked))
		rings_look();
	if (!suits(fd))
		return required && is_tcp(fd) ? fail_with(ECONNREFUSED) : real.connect(fd, to, n);
	lock();
	bool offered = !opens_fast(fd) && offer(fd, is_nonblocking(fd), &s, a);
	if (offered && s->state == OFFERED && !epoll_move(s, fd))
		withdraw(s);
	bool ends = required && (!offered || s->state == FOREIGN);
	unlock();
	if (ends)
		return fail_with(ECONNREFUSED);
	s = offered ? sock_get(fd) : NULL;
	return s ? connect_offered(fd, to, n, s) : real.connect(fd, to, n);
}

/* --- listen and accept --- */

/* What a ring accepts the library does not see. Mostly there is none: rings_forbid. */
static bool barred_listen(int fd) {
	if (!required || !rings() || !is_tcp(fd))
		return false;
	complain("edge-run: listen: refused, since EDGE_RUN_REQUIRE demands streams and the program has an io_uring\n");
	return true;
}

/* With EDGE_RUN_REQUIRE: an accepted connection that cannot become a stream ends, if the map names its peer. The
 * program sees that it was reset. */
void bar(int fd) {
	union address local, remote;
	struct sock *s = sock_get(fd);
	if (s)
		sock_put(s);
	if (s || !required || !is_tcp(fd) || !both_ends(fd, &local, &remote) || !map_peer(&remote, address_port(&local)))
		return;
	lock();
	s = sock_new(fd, FOREIGN);
	if (s)
		name_offer(s, &remote, &local);
	forbid(fd, s, "this socket cannot have one");
	unlock();
}

EXPORT int listen(int fd, int backlog) {
	real_need();
	bool may = active && !map_empty();
	if (may)
		rings_look();
	if (may && barred_listen(fd))
		return fail_with(EOPNOTSUPP);
	int r = real.listen(fd, backlog);
	if (r || !may || !suits(fd))
		return r;
	struct sock *s = sock_get(fd);
	if (s) {
		bound_anew(s);
		sock_put(s);
		return r;
	}
	lock();
	s = sock_new(fd, LISTENING);
	if (s) {
		list(s);
		enlist_early(s);
	}
	unlock();
	return r;
}

EXPORT int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags) {
	real_need();
	struct sock *s = sock_get(fd);
	bool ours = s && s->state == LISTENING;
	if (ours && !s->waits) {
		lock();
		enlist(s);
		unlock();
	}
	if (s)
		sock_put(s); /* before the waiting, in which the thread may be cancelled */
	if (ours && !is_nonblocking(fd)) { /* probes are answered while it waits */
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct timeval t = {0};
		socklen_t size = sizeof t;
		real.getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, &size);
		int got;
		bool timed = t.tv_sec || t.tv_usec;
		do
			got = poll_ours(&p, 1, timed ? after(t.tv_sec, t.tv_usec * 1000) : NEVER, NULL);
		while (got < 0 && errno == EINTR && !timed && signals_restart());
		if (got <= 0)
			return got < 0 ? -1 : fail_with(EAGAIN);
	}
	int made = real.accept4(fd, from, n, flags), err = errno;
	if (made >= 0 && ours && !rings() && (s = sock_get(fd))) {
		adopt(made, flags & SOCK_NONBLOCK, s);
		sock_put(s);
	}
	if (made >= 0 && active)
		bar(made);
	errno = err;
	return made;
}

EXPORT int accept(int fd, struct sockaddr *from, socklen_t *n) { return accept4(fd, from, n, 0); }

/* --- close and dup --- */

/* The program closes fd. */
static void forget(int fd) {
	epoll_closed(fd);
	sock_unlink(fd);
	part_twins(fd);
}

static void forget_range(unsigned first, unsigned last) {
	epoll_range(first, last);
	table_range(first, last);
	for (unsigned fd = first; (int)fd <= latest_twin && fd <= last; fd++)
		part_twins((int)fd);
}

EXPORT int close(int fd) { /* errno stays as it was, as with the kernel's */
	real_need();
	if (own_is(fd) && !borrowed())
		return 0; /* it was not the program's */
	int before = errno;
	if (active)
		forget(fd);
	errno = before;
	return real.close(fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags) {
	real_need();
	if (!active || first > last || flags & 4) /* CLOSE_RANGE_CLOEXEC closes nothing now, and ours are so already */
		return real.close_range(first, last, flags);
	forget_range(first, last);
	if (borrowed())
		return real.close_range(first, last, flags);
	if (within()) /* the handler of a signal that came into another call */
		return own_close_range(first, last, flags, false);
	lock();
	int r = own_close_range(first, last, flags, true), err = errno;
	unlock();
	errno = err;
	return r;
}

EXPORT void closefrom(int first) {
	real_need();
	unsigned from = first < 0 ? 0 : (unsigned)first;
	if (!active || borrowed() || close_range(from, ~0u, 0))
		real.closefrom(first); /* old kernels have no close_range, and old programs no streams there */
}

/* For a FILE of the C library's, which must know it: who does not confirm a stream gets TCP soon. */
static int settle_standard(struct sock *s) {
	int err;
	while ((err = settle(s, false, now_ns() + SECOND, 0)) == EAGAIN) {
		lock();
		if (s->state == DIALLING && s->kept.begun)
			become_plain(s, "tcp: standard input or output");
		unlock();
	}
	return err;
}

static void shared(int from, int to) {
	struct sock *s = sock_get(from);
	if (!s) {
		epoll_shared(from, to);
		join_twins(from, to);
		return;
	}
	sock_link(s, to);
	if (to <= 2 && !borrowed()) { /* for a FILE of the C library's */
		lock();
		if (s->state == ACCEPTED || unanswered(s))
			become_plain(s, "tcp: standard input or output");
		unlock();
		if (settle_standard(s) == 0 && (s->state == STREAM || s->state == SHARED))
			move_file(to);
	}
	sock_put(s);
}

EXPORT int dup(int fd) {
	real_need();
	int made = real.dup(fd), err = errno;
	if (made >= 0)
		shared(fd, made);
	errno = err;
	return made;
}

/* The program puts from in the place of to, which is not the same. */
static int replace(int from, int to, int flags) {
	bool good = active && !borrowed() && real.fcntl64(from, F_GETFD) >= 0, ours = good && own_is(to);
	if (good && !ours)
		forget(to);
	if (ours && within())
		return fail_with(EBUSY); /* the handler of a signal that came into another call */
	if (!good || within() || (!ours && (to < own_floor() || real.fcntl64(to, F_GETFD) >= 0)))
		return flags < 0 ? real.dup2(from, to) : real.dup3(from, to, flags);
	lock();
	int made = own_dup(from, to, flags), err = errno;
	unlock();
	errno = err;
	return made;
}

static int dup_to(int from, int to, int flags) {
	if (from == to)
		return flags < 0 ? real.dup2(from, to) : real.dup3(from, to, flags);
	int made = replace(from, to, flags), err = errno;
	if (made >= 0)
		shared(from, made);
	errno = err;
	return made;
}

EXPORT int dup2(int from, int to) {
	real_need();
	return dup_to(from, to, -1);
}

EXPORT int dup3(int from, int to, int flags) {
	real_need();
	return dup_to(from, to, flags);
}

static void set_nonblock(int fd, bool on) {
	struct sock *s = sock_get(fd);
	if (!s)
		return;
	s->nonblock = on;
	sock_put(s);
}

EXPORT int fcntl64(int fd, int command, ...) {
	real_need();
	va_list va;
	va_start(va, command);
	void *arg = va_arg(va, void *); /* of any type, as the C library takes it */
	va_end(va);
	int r = real.fcntl64(fd, command, arg), err = errno;
	if (r >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
		shared(fd, r);
	if (r >= 0 && command == F_SETFL)
		set_nonblock(fd, (intptr_t)arg & O_NONBLOCK);
	errno = err;
	return r;
}

EXPORT int fcntl(int, int, ...) __attribute__((alias("fcntl64")));

/* --- options --- */

EXPORT int ioctl(int fd, unsigned long request, ...) {
	real_need();
	va_list va;
	va_start(va, request);
	void *arg = va_arg(va, void *);
	va_end(va);
	struct sock *s = sock_get(fd);
	if (!s)
		return real.ioctl(fd, request, arg);
	int r = 0;
	if (s->state == STREAM && request == FIONREAD)
		*(int *)arg = (int)edge_stream_readable(s->stream);
	else if (s->state == SHARED && request == FIONREAD)
		r = real.ioctl(share_number(s), request, arg);
	else if (s->state == STREAM && request == SIOCOUTQ)
		*(int *)arg = (int)edge_stream_unsent(s->stream);
	else if ((r = real.ioctl(fd, request, arg)) == 0 && request == FIONBIO)
		s->nonblock = *(int *)arg != 0;
	if (s->state == STREAM)
		look_after();
	sock_put(s);
	return r;
}

EXPORT int getsockopt(int fd, int level, int option, void *value, socklen_t *n) {
	real_need();
	int r = real.getsockopt(fd, level, option, value, n);
	if (r || level != SOL_SOCKET || option != SO_ERROR || *n < sizeof(int))
		return r;
	struct sock *s = sock_get(fd);
	if (!s)
		return r;
	int err = s->state == STREAM && !s->broken && !(edge_stream_events(s->stream) & POLLRDHUP)
	              ? edge_stream_error(s->stream)
	              : 0;
	if (err && err != EDGE_ERR_AGAIN) {
		s->broken = true;
		*(int *)value = tcp_error(err);
	}
	if (s->state == STREAM)
		look_after();
	sock_put(s);
	return 0;
}

/* Sends whose memory the kernel gives back later are refused, as by kernels that cannot. */
EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t n) {
	real_need();
	const int before = errno; /* which success leaves alone */
	bool layer = level == IPPROTO_TCP && option == TCP_ULP; /* as on a host without the module: kernel TLS */
	struct sock *s = layer || (level == SOL_SOCKET && option == SO_ZEROCOPY) ? sock_get(fd) : NULL;
	bool ours = s && s->state != PLAIN && s->state != LISTENING;
	if (s)
		sock_put(s);
	if (ours)
		return fail_with(layer ? ENOENT : EOPNOTSUPP);
	int r = real.setsockopt(fd, level, option, value, n);
	if (r == 0 && level == SOL_SOCKET && (option == SO_SNDBUF || option == SO_REUSEPORT) && (s = sock_get(fd))) {
		lock();
		if (s->state == STREAM && s->stream)
			bound_stream(s);
		else if (s->state == LISTENING)
			learn_bound(s);
		unlock();
		sock_put(s);
		errno = before;
	}
	return r;
}

/* The program shuts a socket that is not decided yet: that is done when it is. false: TCP's is to be shut now. */
static bool shut_later(struct sock *s, int how) {
	lock();
	bool open = s->state == OFFERED || s->state == DIALLING;
	bool later = open && !s->connecting;
	if (later) {
		s->read_shut |= how != SHUT_WR;
		s->write_shut |= how != SHUT_RD;
		changed(s);
		drive_on();
	}
	unlock();
	return later;
}

static void shut_stream(struct sock *s, int how) {
	if (how != SHUT_WR)
		s->read_shut = true;
	if (how != SHUT_RD && !atomic_exchange(&s->write_shut, true)) {
		if (s->state == SHARED) {
			share_shut(s);
		} else {
			if (s->share)
				share_drain(s);
			edge_stream_shutdown(s->stream);
		}
	}
	lock();
	changed(s);
	progress();
	unlock();
}

static int shut(int fd, struct sock *s, int how) {
	if (s->state == LISTENING || how < SHUT_RD || how > SHUT_RDWR) {
		int r = real.shutdown(fd, how), err = errno;
		bound_anew(s);
		errno = err;
		return r;
	}
	int err = settle(s, true, 0, 0); /* TCP's does not wait, and no signal interrupts it */
	if (err == EAGAIN && shut_later(s, how))
		return 0;
	if (err && err != EAGAIN)
		return fail_with(err);
	if (s->state != STREAM && s->state != SHARED)
		return real.shutdown(fd, how);
	shut_stream(s, how);
	return 0;
}

EXPORT int shutdown(int fd, int how) {
	real_need();
	const int before = errno; /* which success leaves alone */
	struct sock *s = sock_get(fd);
	if (!s)
		return real.shutdown(fd, how);
	int r = shut(fd, s, how), err = r ? errno : before;
	sock_put(s);
	errno = err;
	return r;
}
