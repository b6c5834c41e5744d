/* The bytes of sockets, and waiting for several of them. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "rs.h"

static int waits(const struct rs *s, int flags)
{
	return s->nonblock || (flags & MSG_DONTWAIT) ? 0 : EDGE_FOREVER;
}

void rs_asked(bool in_vain)
{
	enum { VAIN = 3 };
	static __thread unsigned vain;
	vain = in_vain ? vain + 1 : 0;
	if (vain >= VAIN)
		give_way();
}

static ssize_t ends(ssize_t n)
{
	rs_asked(n == EDGE_ERR_AGAIN);
	return n < 0 ? rs_failed((int)n) : n;
}

EXPORT ssize_t rrecv(int fd, void *p, size_t size, int flags)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	edge_stream *t = s != NULL ? rs_stream(s, waits(s, flags) != 0) : NULL;
	if (t == NULL)
		return -1;
	if (flags & MSG_PEEK) {
		return ends(edge_stream_peek(t, p, size, waits(s, flags)));
	}
	size_t got = 0;
	do {
		ssize_t n = edge_stream_read(t, (char *)p + got, size - got, waits(s, flags));
		if (n < 0 && got == 0)
			return ends(n);
		if (n <= 0)
			break;
		got += (size_t)n;
	} while ((flags & MSG_WAITALL) && got < size);
	rs_asked(false);
	return (ssize_t)got;
}

EXPORT ssize_t rsend(int fd, const void *p, size_t size, int flags)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	edge_stream *t = s != NULL ? rs_stream(s, waits(s, flags) != 0) : NULL;
	if (t == NULL)
		return -1;
	return ends(edge_stream_write(t, p, size, waits(s, flags)));
}

EXPORT ssize_t rrecvfrom(int fd, void *p, size_t size, int flags, struct sockaddr *a, socklen_t *len)
{
	ssize_t n = rrecv(fd, p, size, flags);
	if (n >= 0 && a != NULL)
		rgetpeername(fd, a, len);
	return n;
}

EXPORT ssize_t rsendto(int fd, const void *p, size_t size, int flags, const struct sockaddr *a, socklen_t len)
{
	(void)len;
	if (a != NULL && rs_find(fd) != NULL)
		return fails(EISCONN);
	return rsend(fd, p, size, flags);
}

/* One piece after the other: the first as flags say, the others as far as that goes at once. */
static ssize_t receive_all(int fd, const struct iovec *v, size_t n, int flags)
{
	ssize_t got = 0;
	for (size_t i = 0; i < n; i++) {
		if (v[i].iov_len == 0)
			continue;
		bool waits = got == 0 || (flags & MSG_WAITALL);
		ssize_t k = rrecv(fd, v[i].iov_base, v[i].iov_len, waits ? flags : flags | MSG_DONTWAIT);
		if (k < 0)
			return got > 0 ? got : -1;
		got += k;
		if ((size_t)k < v[i].iov_len)
			break;
	}
	return got;
}

static ssize_t send_all(int fd, const struct iovec *v, size_t n, int flags)
{
	ssize_t sent = 0;
	for (size_t i = 0; i < n; i++) {
		ssize_t k = rsend(fd, v[i].iov_base, v[i].iov_len, flags);
		if (k < 0)
			return sent > 0 ? sent : -1;
		sent += k;
		if ((size_t)k < v[i].iov_len)
			break;
	}
	return sent;
}

EXPORT ssize_t rrecvmsg(int fd, struct msghdr *m, int flags)
{
	if ((flags & MSG_PEEK) && m->msg_iovlen > 1)
		return fails(EOPNOTSUPP);
	m->msg_flags = 0;
	m->msg_controllen = 0;
	return receive_all(fd, m->msg_iov, m->msg_iovlen, flags);
}

EXPORT ssize_t rsendmsg(int fd, const struct msghdr *m, int flags)
{
	return m->msg_controllen > 0 ? fails(EOPNOTSUPP) : send_all(fd, m->msg_iov, m->msg_iovlen, flags);
}

EXPORT ssize_t rread(int fd, void *p, size_t size)
{
	return rrecv(fd, p, size, 0);
}

EXPORT ssize_t rwrite(int fd, const void *p, size_t size)
{
	return rsend(fd, p, size, 0);
}

EXPORT ssize_t rreadv(int fd, const struct iovec *v, int n)
{
	return n < 0 ? fails(EINVAL) : receive_all(fd, v, (size_t)n, 0);
}

EXPORT ssize_t rwritev(int fd, const struct iovec *v, int n)
{
	return n < 0 ? fails(EINVAL) : send_all(fd, v, (size_t)n, 0);
}

/* Looks once: how many are ready. *others: some are descriptors of the kernel's. */
static int look(struct pollfd *fds, nfds_t n, bool *others)
{
	int ready = 0;
	*others = false;
	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = 0;
		struct rs *s = fds[i].fd >= 0 ? rs_find(fds[i].fd) : NULL;
		if (s != NULL)
			fds[i].revents = rs_events(s, fds[i].events);
		else if (fds[i].fd >= 0) {
			struct pollfd one = { .fd = fds[i].fd, .events = fds[i].events };
			*others = true;
			if (poll(&one, 1, 0) > 0)
				fds[i].revents = one.revents;
		}
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* The thread of the library steps back while lib.polls counts on, so this one is told at once of what happens. */
EXPORT int rpoll(struct pollfd *fds, nfds_t n, int timeout)
{
	UNCANCELLED;
	enum { OTHERS_MS = 1, REST_MS = 5 }; /* another thread may have taken what this one waits for */
	int64_t until = now_ms() + timeout;
	for (;;) {
		bool others;
		if (lib.dev == NULL)
			return poll(fds, n, timeout); /* there are no sockets */
		edge_device_poll(lib.dev);
		int ready = look(fds, n, &others);
		if (timeout == 0)
			rs_asked(ready == 0);
		if (ready > 0 || timeout == 0)
			return ready;
		int64_t left = timeout < 0 ? REST_MS : until - now_ms();
		if (left <= 0)
			return 0;
		polled();
		if (wait_for(-1, others ? OTHERS_MS : left < REST_MS ? (int)left : REST_MS))
			return look(fds, n, &others) > 0 ? look(fds, n, &others) : fails(EINTR);
	}
}

EXPORT int rselect(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *t)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t many = 0;
	for (int i = 0; i < n && i < FD_SETSIZE; i++) {
		short want = (short)((in != NULL && FD_ISSET(i, in) ? POLLIN : 0) |
			(out != NULL && FD_ISSET(i, out) ? POLLOUT : 0) | (except != NULL && FD_ISSET(i, except) ? POLLPRI : 0));
		if (want != 0)
			fds[many++] = (struct pollfd){ .fd = i, .events = want };
	}
	int64_t ms = t == NULL ? -1 : t->tv_sec > INT_MAX / 1000 - 1 ? INT_MAX
	           : t->tv_sec * 1000 + (t->tv_usec + 999) / 1000;
	int ready = rpoll(fds, many, (int)ms), told = 0;
	if (ready < 0)
		return -1;
	for (nfds_t i = 0; i < many; i++) {
		int got = fds[i].revents, fd = fds[i].fd;
		if (got & POLLNVAL)
			return fails(EBADF);
		bool reads = (fds[i].events & POLLIN) && (got & (POLLIN | POLLHUP | POLLERR));
		bool writes = (fds[i].events & POLLOUT) && (got & (POLLOUT | POLLHUP | POLLERR));
		if (in != NULL && !reads)
			FD_CLR(fd, in);
		if (out != NULL && !writes)
			FD_CLR(fd, out);
		if (except != NULL && !(got & POLLPRI))
			FD_CLR(fd, except);
		told += reads + writes + (except != NULL && (got & POLLPRI));
	}
	return told;
}
