/* Reading and writing. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

enum { GATHER = 16 << 10 };

/* What a call is to its socket: the option with its time limit, and how many bytes it writes at least one of. */
struct call { int option; size_t bytes; };
static const struct call reading = {.option = SO_RCVTIMEO};

/* The entry of a socket whose bytes are on a stream, with a count. NULL: the kernel's, or *err says why not; of calls
 * that wait EINPROGRESS: what they write can be kept (held.c). */
static struct sock *streaming(int fd, int flags, struct call call, int *err) {
	real_need();
	*err = 0;
	bool nested = within();
	if (!nested)
		pthread_testcancel(); /* as the C library's do, whether they wait or not */
	struct sock *s = sock_get(fd);
	if (s && nested && s->state != PLAIN) { /* the handler of a signal that came into another call, which has locks */
		sock_put(s);
		*err = ECONNRESET;
		return NULL;
	}
	if (!s)
		return NULL;
	if (s->state != STREAM)
		*err = settle(s, true, 0, 0);
	if (*err == EAGAIN && !(s->nonblock || flags & MSG_DONTWAIT))
		*err = settle_for(s, fd, call.option, call.bytes);
	if ((s->state == STREAM || s->state == SHARED) && !*err)
		return s;
	sock_put(s);
	return NULL;
}

static void done(struct sock *s) {
	look_after();
	sock_put(s);
}

/* Waits for a blocking call; *until is 0 at first. 0 or an errno. */
static int block(struct sock *s, int fd, int want, size_t more, int option, int64_t *until) {
	if (*until == 0)
		*until = time_limit(fd, option);
	if (s->state == SHARED) {
		int shared = share_wait(s, want, *until);
		return shared == ETIMEDOUT ? EAGAIN : shared;
	}
	int err = wait_for(s, want, more, *until);
	return s->state != STREAM ? ECONNRESET : err == ETIMEDOUT ? EAGAIN : err; /* a handler forked: the parent's */
}

/* What a stream's error is to a program that knows those of TCP, whatever happened to peers and daemons. */
int tcp_error(int err) { return err == EDGE_ERR_SHUT ? EPIPE : err == EDGE_ERR_TIMEOUT ? ETIMEDOUT : ECONNRESET; }

/* The first call learns of it, as with TCP. */
static int broken(struct sock *s, int err) { return atomic_exchange(&s->broken, true) ? 0 : tcp_error(err); }

/* --- reading --- */

/* Waits until so many bytes are there, or no more come: as many as surely find room, since nobody takes them. */
static int await(struct sock *s, int fd, size_t n, int64_t *until) {
	uint32_t ring = stream_buffer ? stream_buffer : LEAST_BUFFER;
	size_t room = ring / 4 * 3; /* the peer does not know of the last quarter */
	return block(s, fd, POLLIN, (room < n ? room : n) - 1, SO_RCVTIMEO, until);
}

static ssize_t take(struct sock *s, void *p, size_t n, bool peek) {
	if (s->state == SHARED)
		return share_read(s, p, n, peek ? MSG_PEEK : 0);
	return peek ? edge_stream_peek(s->stream, p, n, 0) : edge_stream_read(s->stream, p, n, 0);
}

static ssize_t receive(struct sock *s, int fd, char *p, size_t n, int flags) {
	size_t got = 0;
	int64_t until = 0;
	bool wait = !(s->nonblock || flags & MSG_DONTWAIT);
	if (flags & MSG_PEEK && flags & MSG_WAITALL && n > 1 && wait && s->state == STREAM) {
		int err = await(s, fd, n, &until);
		if (err && (s->state != STREAM || edge_stream_readable(s->stream) == 0))
			return fail_with(err);
	}
	while (got < n) {
		ssize_t r = flags & MSG_PEEK ? take(s, p, n, true) : take(s, p + got, n - got, false);
		if (r == 0)
			break;
		if (r > 0) {
			got += (size_t)r;
			if (!(flags & MSG_WAITALL) || flags & MSG_PEEK)
				break;
			continue;
		}
		if (r != EDGE_ERR_AGAIN) {
			int err = got ? 0 : broken(s, (int)r);
			if (err)
				return fail_with(err);
			break;
		}
		if ((got && !(flags & MSG_WAITALL)) || s->read_shut || s->broken)
			break;
		int err = wait ? block(s, fd, POLLIN, 0, SO_RCVTIMEO, &until) : EAGAIN;
		if (err)
			return got ? (ssize_t)got : fail_with(err);
	}
	return (ssize_t)got;
}

/* MSG_TRUNC on TCP: the bytes are thrown away. */
static ssize_t discard(struct sock *s, int fd, size_t n, int flags) {
	char *p = malloc(n ? n : 1);
	ssize_t r = p ? receive(s, fd, p, n, flags & ~MSG_TRUNC) : fail_with(ENOMEM);
	free(p);
	return r;
}

static ssize_t receive_some(struct sock *s, int fd, void *p, size_t n, int flags) {
	ssize_t r;
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		r = fail_with(flags & MSG_OOB ? EINVAL : EAGAIN);
	else if (flags & MSG_TRUNC)
		r = discard(s, fd, n, flags);
	else
		r = receive(s, fd, p, n, flags);
	done(s);
	return r;
}

static ssize_t receive_vector(struct sock *s, int fd, const struct iovec *v, size_t n, int flags) {
	ssize_t got = 0;
	for (size_t i = 0; i < n; i++) {
		if (v[i].iov_len == 0)
			continue;
		int how = got && !(flags & MSG_WAITALL) ? flags | MSG_DONTWAIT : flags;
		int before = errno;
		ssize_t r = receive(s, fd, v[i].iov_base, v[i].iov_len, how);
		if (r < 0 && got == 0)
			return -1;
		if (r < 0)
			errno = before;
		got += r > 0 ? r : 0;
		if (r < (ssize_t)v[i].iov_len || flags & MSG_PEEK)
			break;
	}
	return got;
}

EXPORT ssize_t read(int fd, void *p, size_t n) {
	int err;
	struct sock *s = streaming(fd, 0, reading, &err);
	if (!s)
		return err ? fail_with(err) : real.read(fd, p, n);
	return receive_some(s, fd, p, n, 0);
}

EXPORT ssize_t recv(int fd, void *p, size_t n, int flags) {
	int err;
	struct sock *s = streaming(fd, flags, reading, &err);
	if (!s)
		return err ? fail_with(err) : real.recv(fd, p, n, flags);
	return receive_some(s, fd, p, n, flags);
}

EXPORT ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *from, socklen_t *size) {
	int err;
	struct sock *s = streaming(fd, flags, reading, &err);
	if (!s)
		return err ? fail_with(err) : real.recvfrom(fd, p, n, flags, from, size);
	if (size)
		*size = 0; /* as TCP does */
	return receive_some(s, fd, p, n, flags);
}

EXPORT ssize_t readv(int fd, const struct iovec *v, int n) {
	int err;
	struct sock *s = streaming(fd, 0, reading, &err);
	if (!s)
		return err ? fail_with(err) : real.readv(fd, v, n);
	ssize_t r = n < 0 ? fail_with(EINVAL) : receive_vector(s, fd, v, (size_t)n, 0);
	done(s);
	return r;
}

/* A server may accept in one process, and pass the socket to another through one of Unix's. */
static ssize_t receive_rights(int fd, struct msghdr *m, int flags) {
	ssize_t r = real.recvmsg(fd, m, flags);
	int err = errno;
	for (struct cmsghdr *c = r >= 0 && active ? CMSG_FIRSTHDR(m) : NULL; c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		int one;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof one) <= c->cmsg_len; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			inherit(one);
		}
	}
	errno = err;
	return r;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags) {
	int err;
	struct sock *s = streaming(fd, flags, reading, &err);
	if (!s)
		return err ? fail_with(err) : receive_rights(fd, m, flags);
	m->msg_namelen = 0;
	m->msg_controllen = 0;
	m->msg_flags = 0;
	ssize_t r;
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		r = fail_with(flags & MSG_OOB ? EINVAL : EAGAIN);
	else
		r = receive_vector(s, fd, m->msg_iov, m->msg_iovlen, flags);
	done(s);
	return r;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t) {
	int err;
	struct sock *s = streaming(fd, flags, reading, &err);
	if (!s)
		return err ? fail_with(err) : real.recvmmsg(fd, m, n, flags, t);
	done(s);
	ssize_t r = n ? recvmsg(fd, &m->msg_hdr, flags & ~MSG_WAITFORONE) : 0;
	if (r >= 0 && n)
		m->msg_len = (unsigned)r;
	return r < 0 ? -1 : n > 0;
}

/* The checks of _FORTIFY_SOURCE. */
static void fits(size_t n, size_t room) {
	if (n > room)
		abort();
}
EXPORT ssize_t __read_chk(int fd, void *p, size_t n, size_t room) {
	fits(n, room);
	return read(fd, p, n);
}
EXPORT ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags) {
	fits(n, room);
	return recv(fd, p, n, flags);
}
EXPORT ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *from,
                              socklen_t *size) {
	fits(n, room);
	return recvfrom(fd, p, n, flags, from, size);
}

/* --- writing --- */

static ssize_t pipe_error(int flags) {
	if (!(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return fail_with(EPIPE);
}

enum { KERNELS = -2, DECIDED = -3 }; /* what is to be written is TCP's; look again */

static struct call writing(const struct iovec *v, size_t n, size_t *all) {
	*all = 0;
	for (size_t i = 0; i < n; i++)
		*all += v[i].iov_len;
	return (struct call){.option = SO_SNDTIMEO, .bytes = *all ? *all : 1};
}

/* What a socket that nobody decided yet does with a write that is not to wait, or, all of it, need not. */
static ssize_t write_early(int fd, const struct iovec *v, size_t n, int flags, bool need_not) {
	size_t all;
	writing(v, n, &all);
	struct sock *s = sock_get(fd);
	if (!s)
		return KERNELS;
	ssize_t r = -1;
	bool shut = s->write_shut;
	lock();
	bool open = need_not ? holds(s, all) : s->state == OFFERED || s->state == DIALLING;
	if (!open)
		r = DECIDED;
	else if (!shut && !s->connecting)
		r = (ssize_t)keep(s, v, n);
	unlock();
	sock_put(s);
	return open && shut ? pipe_error(flags) : r < 0 && open ? fail_with(EAGAIN) : r == 0 && all ? fail_with(EAGAIN) : r;
}

/* Out-of-band data is TCP's, and so is a connection that begins with it, if no stream was agreed on. */
static void out_of_band(int fd) {
	struct sock *s = sock_get(fd);
	if (!s)
		return;
	lock();
	if ((unanswered(s) && !s->connecting) || s->state == ACCEPTED)
		become_plain(s, "tcp: out-of-band data");
	unlock();
	sock_put(s);
}

/* As streaming, for writes. NULL: *r is what the call returns, or KERNELS. */
static struct sock *sending(int fd, const struct iovec *v, size_t n, int flags, ssize_t *r) {
	for (;;) {
		int err;
		size_t all;
		if (flags & MSG_OOB)
			out_of_band(fd);
		struct sock *s = streaming(fd, flags, writing(v, n, &all), &err);
		if (s)
			return s;
		bool early = err == EAGAIN || err == EINPROGRESS;
		*r = !err ? KERNELS : early ? write_early(fd, v, n, flags, err == EINPROGRESS) : fail_with(err);
		if (*r != DECIDED)
			return NULL;
	}
}

static struct sock *sending_bytes(int fd, const void *p, size_t n, int flags, ssize_t *r) {
	return sending(fd, &(struct iovec){.iov_base = (void *)(uintptr_t)p, .iov_len = n}, 1, flags, r);
}

/* What is sent: bytes at p, or if that is NULL those of a file from at on. */
struct source {
	const char *p;
	int file;
	off_t at;
	int err; /* why the file could not be read */
};

static ssize_t read_file(void *arg, size_t at, void *to, size_t n) {
	struct source *from = arg;
	ssize_t r = pread(from->file, to, n, from->at + (off_t)at);
	from->err = r < 0 ? errno : 0;
	return r;
}

/* Gives up to n bytes from byte at of the source on to the stream; 0: the file has no more. */
static ssize_t give(struct sock *s, struct source *from, size_t at, size_t n) {
	if (from->p)
		return s->share ? share_write(s, from->p + at, n) : edge_stream_write(s->stream, from->p + at, n, 0);
	struct source rest = *from;
	rest.at += (off_t)at;
	ssize_t r;
	if (s->share) {
		char part[GATHER];
		r = read_file(&rest, 0, part, n < sizeof part ? n : sizeof part);
		r = r > 0 ? share_write(s, part, (size_t)r) : 0;
	} else {
		r = edge_stream_fill(s->stream, read_file, &rest, n, 0);
	}
	from->err = rest.err;
	return r;
}

/* The other side has closed the socket with everything read. TCP takes what is written then, and learns by it that
 * nobody reads it; so only the next call fails. */
static bool taken_in_vain(struct sock *s, ssize_t r) {
	return r == EDGE_ERR_RESET && s->state == STREAM && edge_stream_error(s->stream) == 0 &&
	       !atomic_exchange(&s->broken, true);
}

static ssize_t transmit_from(struct sock *s, int fd, struct source *from, size_t n, int flags) {
	size_t sent = 0;
	int64_t until = 0;
	bool wait = !(s->nonblock || flags & MSG_DONTWAIT);
	while (sent < n) {
		if (s->broken || s->write_shut)
			return sent ? (ssize_t)sent : pipe_error(flags);
		ssize_t r = give(s, from, sent, n - sent);
		if (r == 0)
			break;
		if (r > 0) {
			sent += (size_t)r;
			continue;
		}
		if (sent == 0 && from->p && taken_in_vain(s, r))
			return (ssize_t)n;
		if (r < 0 && r != EDGE_ERR_AGAIN) {
			int err = sent ? 0 : broken(s, (int)r);
			if (err == 0 || err == EPIPE)
				return sent ? (ssize_t)sent : pipe_error(flags);
			return fail_with(err);
		}
		int err = wait ? block(s, fd, POLLOUT, 0, SO_SNDTIMEO, &until) : EAGAIN;
		if (err)
			return sent ? (ssize_t)sent : fail_with(err);
	}
	return (ssize_t)sent;
}

static ssize_t transmit(struct sock *s, int fd, const void *p, size_t n, int flags) {
	return transmit_from(s, fd, &(struct source){.p = p ? p : ""}, n, flags);
}

static ssize_t transmit_some(struct sock *s, int fd, const void *p, size_t n, int flags) {
	ssize_t r = flags & MSG_OOB ? fail_with(EOPNOTSUPP) : transmit(s, fd, p, n, flags);
	done(s);
	return r;
}

/* Small pieces leave as one. */
static ssize_t transmit_vector(struct sock *s, int fd, const struct iovec *v, size_t n, int flags) {
	char joined[GATHER];
	ssize_t sent = 0;
	for (size_t i = 0; i < n;) {
		size_t have = 0, from = i;
		while (i < n && have + v[i].iov_len <= sizeof joined) {
			if (v[i].iov_len)
				memcpy(joined + have, v[i].iov_base, v[i].iov_len);
			have += v[i++].iov_len;
		}
		const char *p = joined;
		if (i == from || i == from + 1) { /* one alone needs no copy */
			p = v[from].iov_base;
			have = v[from].iov_len;
			i = from + 1;
		}
		if (have == 0)
			continue;
		ssize_t r = transmit(s, fd, p, have, sent ? flags | MSG_NOSIGNAL : flags);
		if (r < 0)
			return sent ? sent : -1;
		sent += r;
		if ((size_t)r < have)
			break;
	}
	return sent;
}

EXPORT ssize_t write(int fd, const void *p, size_t n) {
	ssize_t r;
	struct sock *s = sending_bytes(fd, p, n, 0, &r);
	if (!s)
		return r == KERNELS ? real.write(fd, p, n) : r;
	return transmit_some(s, fd, p, n, 0);
}

EXPORT ssize_t send(int fd, const void *p, size_t n, int flags) {
	ssize_t r;
	struct sock *s = sending_bytes(fd, p, n, flags, &r);
	if (!s)
		return r == KERNELS ? real.send(fd, p, n, flags) : r;
	return transmit_some(s, fd, p, n, flags);
}

EXPORT ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t size) {
	if (active && required && flags & MSG_FASTOPEN)
		return fail_with(EOPNOTSUPP); /* it connects, and no stream can */
	ssize_t r;
	struct sock *s = sending_bytes(fd, p, n, flags, &r);
	if (!s)
		return r == KERNELS ? real.sendto(fd, p, n, flags, to, size) : r;
	return transmit_some(s, fd, p, n, flags);
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int n) {
	ssize_t r;
	struct sock *s = sending(fd, v, n < 0 ? 0 : (size_t)n, 0, &r);
	if (!s)
		return r == KERNELS ? real.writev(fd, v, n) : r;
	r = n < 0 ? fail_with(EINVAL) : transmit_vector(s, fd, v, (size_t)n, 0);
	done(s);
	return r;
}

/* Sockets that have not been connected yet, and go to somebody. */
static void send_rights(const struct msghdr *m) {
	struct msghdr all = *m;
	for (struct cmsghdr *c = active && m->msg_control ? CMSG_FIRSTHDR(&all) : NULL; c; c = CMSG_NXTHDR(&all, c)) {
		int one;
		for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && CMSG_LEN((i + 1) * sizeof one) <= c->cmsg_len; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			struct sock *s = sock_get(one);
			if (s) {
				rest_passed(s);
				sock_put(s);
			}
			else
				twin_away(one);
		}
	}
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
	if (active && required && flags & MSG_FASTOPEN)
		return fail_with(EOPNOTSUPP);
	ssize_t r;
	struct sock *s = sending(fd, m->msg_iov, m->msg_iovlen, flags, &r);
	if (!s) {
		if (r == KERNELS && m && m->msg_controllen)
			send_rights(m);
		return r == KERNELS ? real.sendmsg(fd, m, flags) : r;
	}
	r = flags & MSG_OOB ? fail_with(EOPNOTSUPP) : transmit_vector(s, fd, m->msg_iov, m->msg_iovlen, flags);
	done(s);
	return r;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags) {
	int err;
	size_t all;
	const struct call call = n ? writing(m->msg_hdr.msg_iov, m->msg_hdr.msg_iovlen, &all) : writing(NULL, 0, &all);
	struct sock *s = streaming(fd, flags, call, &err);
	if (!s && err != EAGAIN && err != EINPROGRESS)
		return err ? fail_with(err) : real.sendmmsg(fd, m, n, flags);
	if (s)
		done(s);
	unsigned sent = 0;
	for (; sent < n; sent++) {
		ssize_t r = sendmsg(fd, &m[sent].msg_hdr, flags);
		if (r < 0)
			return sent ? (int)sent : -1;
		m[sent].msg_len = (unsigned)r;
		writing(m[sent].msg_hdr.msg_iov, m[sent].msg_hdr.msg_iovlen, &all);
		if ((size_t)r < all) /* what follows must not stand in place of the rest */
			return (int)sent + 1;
	}
	return (int)sent;
}

/* --- files --- */

/* Sends a file by way of the stream's memory. What the stream did not take is not taken from the file. */
static ssize_t copy_file(struct sock *s, int out, int in, off_t *offset, size_t n) {
	struct source from = {.file = in, .at = offset ? *offset : lseek(in, 0, SEEK_CUR)};
	if (from.at < 0)
		return fail_with(EINVAL);
	struct stat st; /* at the end of the file the call must not wait for room; files of /proc say they have no bytes */
	if (fstat(in, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && (off_t)n > st.st_size - from.at)
		n = from.at < st.st_size ? (size_t)(st.st_size - from.at) : 0;
	ssize_t r = transmit_from(s, out, &from, n, 0);
	if (r == 0 && from.err)
		return fail_with(from.err);
	if (r > 0 && offset)
		*offset = from.at + r;
	else if (r > 0)
		lseek(in, from.at + r, SEEK_SET);
	return r;
}

/* The first part of a file, for a socket that nobody decided yet. */
static ssize_t copy_early(int out, int in, off_t *offset, size_t n, bool need_not) {
	char part[GATHER];
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	ssize_t have = at < 0 ? fail_with(EINVAL) : pread(in, part, n < sizeof part ? n : sizeof part, at);
	const struct iovec v = {.iov_base = part, .iov_len = have > 0 ? (size_t)have : 0};
	ssize_t r = have <= 0 ? have : write_early(out, &v, 1, 0, need_not);
	if (r > 0 && offset)
		*offset = at + r;
	else if (r > 0)
		lseek(in, at + r, SEEK_SET);
	return r;
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t n) {
	int err;
	struct sock *s;
	const struct call call = {.option = SO_SNDTIMEO, .bytes = n < GATHER ? n + !n : GATHER};
	while (!(s = streaming(out, 0, call, &err))) {
		bool early = err == EAGAIN || err == EINPROGRESS;
		ssize_t r = early ? copy_early(out, in, offset, n, err != EAGAIN) : err ? fail_with(err) : KERNELS;
		if (r == KERNELS)
			return real.sendfile(out, in, offset, n);
		if (r != DECIDED)
			return r;
	}
	ssize_t r = copy_file(s, out, in, offset, n);
	done(s);
	return r;
}

EXPORT ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) { return sendfile(out, in, offset, n); }

EXPORT ssize_t splice(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags) {
	int err = 0;
	struct sock *s = streaming(in, 0, reading, &err);
	if (!s && !err)
		s = streaming(out, 0, (struct call){.option = SO_SNDTIMEO}, &err);
	if (!s)
		return err ? fail_with(err) : real.splice(in, from, out, to, n, flags);
	sock_put(s);
	return fail_with(EINVAL); /* what splice says of descriptors that cannot: programs then copy */
}
