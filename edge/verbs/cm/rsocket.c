/* Sockets, their addresses and connections. The service at a port is rdma/sPORT. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "rs.h"

enum { SOCKETS = 1 << 16, BACKLOG = 64, DIAL_MS = 10000, FIRST_PORT = 32768, PORTS = 28000, DRAIN_MS = 5000 };
enum { BUFFER = 256 << 10 }; /* bytes: of a stream, in each direction */

struct caller { char magic[4]; uint16_t port; unsigned char ip[16]; }; /* in dial: its own address */
static const char magic[4] = { 'E', 'V', 'S', '1' };

static struct rs *_Atomic sockets[SOCKETS];

struct rs *rs_find(int fd)
{
	struct rs *s = fd >= 0 && fd < SOCKETS ? sockets[fd] : NULL;
	if (s == NULL)
		errno = EBADF;
	return s;
}

int rs_failed(int err)
{
	return fails(edge_errno(err));
}

static int rs_new(struct rs **made)
{
	struct rs *s = calloc(1, sizeof *s);
	int fd = s != NULL ? eventfd(0, EFD_CLOEXEC) : -1;
	if (fd < 0 || fd >= SOCKETS) {
		if (fd >= 0)
			close(fd);
		free(s);
		return fails(s == NULL ? ENOMEM : EMFILE);
	}
	s->fd = fd;
	sockets[fd] = *made = s;
	return fd;
}

/* In a child of fork, which has none of its parent's sockets. */
static void forked(void)
{
	for (int i = 0; i < SOCKETS; i++) {
		if (sockets[i] != NULL)
			close(i);
		sockets[i] = NULL;
	}
}

/* Has a device: a child of fork needs another one than its parent. */
static int attach(void)
{
	static bool once;
	lock();
	int err = lib_open();
	if (!once)
		pthread_atfork(NULL, NULL, forked);
	once = true;
	unlock();
	return err == 0 ? 0 : fails(ENODEV);
}

EXPORT int rsocket(int domain, int type, int protocol)
{
	struct rs *s;
	if ((domain != AF_INET && domain != AF_INET6) || (protocol != 0 && protocol != IPPROTO_TCP))
		return fails(EAFNOSUPPORT);
	if ((type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != SOCK_STREAM)
		return fails(EPROTONOSUPPORT); /* of datagrams there are none */
	if (attach() != 0)
		return -1;
	int fd = rs_new(&s);
	if (fd < 0)
		return -1;
	s->nonblock = type & SOCK_NONBLOCK;
	s->ours.ss_family = (sa_family_t)domain;
	return fd;
}

static void copy_address(struct sockaddr_storage *to, const struct sockaddr *a, socklen_t size)
{
	memset(to, 0, sizeof *to);
	memcpy(to, a, size < sizeof *to ? size : sizeof *to);
}

static int give_address(const struct sockaddr_storage *from, struct sockaddr *a, socklen_t *size)
{
	socklen_t n = from->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	if (a == NULL || size == NULL)
		return 0;
	memcpy(a, from, n < *size ? n : *size);
	*size = n;
	return 0;
}

static void choose(struct rs *s)
{
	uint16_t n = 0;
	if (getrandom(&n, sizeof n, 0) < 0)
		n = (uint16_t)(uintptr_t)s;
	set_port((struct sockaddr *)&s->ours, (uint16_t)(FIRST_PORT + n % PORTS));
}

EXPORT int rbind(int fd, const struct sockaddr *a, socklen_t size)
{
	struct rs *s = rs_find(fd);
	if (s == NULL)
		return -1;
	if (s->listener != NULL || s->stream != NULL || size < sizeof(struct sockaddr_in))
		return fails(EINVAL);
	copy_address(&s->ours, a, size);
	if (port_of(a) == 0)
		choose(s);
	return 0;
}

EXPORT int rlisten(int fd, int backlog)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	char service[32];
	if (s == NULL)
		return -1;
	if (s->listener != NULL || s->stream != NULL)
		return fails(EINVAL);
	if (port_of((struct sockaddr *)&s->ours) == 0)
		choose(s);
	if (attach() != 0)
		return -1;
	snprintf(service, sizeof service, "rdma/s%u", port_of((struct sockaddr *)&s->ours));
	uint32_t ready = backlog > 0 && backlog < BACKLOG ? (uint32_t)backlog : BACKLOG;
	int err = edge_stream_listen(lib.dev, service, ready, &s->listener, ASK_MS);
	return err == 0 ? 0 : fails(err == EDGE_ERR_EXISTS ? EADDRINUSE : err == EDGE_ERR_DENIED ? EACCES : EIO);
}

/* The address that who dialled says to have, if it is one of that node's; else none is known. */
static void learn_caller(struct rs *s)
{
	size_t n;
	struct caller c;
	char node[65];
	const void *data = edge_stream_data(s->stream, &n);
	if (n != sizeof c)
		return;
	memcpy(&c, data, n);
	read_ip((struct sockaddr *)&s->peer, c.ip, c.port);
	if (memcmp(c.magic, magic, 4) != 0 || !ip_node((struct sockaddr *)&s->peer, node) ||
	    strcmp(node, edge_stream_peer(s->stream)) != 0)
		read_ip((struct sockaddr *)&s->peer, (unsigned char[16]){ [10] = 0xff, [11] = 0xff }, 0);
}

/* Frees a socket that was closed, once no thread uses it. */
static void rs_free(struct rs *s)
{
	if (s->listener != NULL)
		edge_listener_close(s->listener);
	rio_free(s);
	if (s->stream != NULL)
		edge_stream_close(s->stream, -1);
	free(s);
}

/* Accepts for a thread; EBADF: another one has closed the listening socket meanwhile. *entries: as rio_room_of says. */
static int next_stream(int fd, edge_stream **stream, struct sockaddr_storage *ours, int *entries)
{
	enum { LOOK_CLOSED_MS = 100 };
	lock();
	struct rs *l = rs_find(fd);
	if (l != NULL)
		l->users++;
	unlock();
	if (l == NULL)
		return -1;
	int err = l->listener == NULL ? EDGE_ERR_INVALID : EDGE_ERR_TIMEOUT;
	bool closed = false;
	while ((err == EDGE_ERR_TIMEOUT || err == EDGE_ERR_DAEMON_SILENT) && !closed) {
		err = edge_stream_accept(l->listener, stream, l->nonblock ? 0 : LOOK_CLOSED_MS);
		lock();
		closed = l->closed;
		unlock();
	}
	*ours = l->ours;
	*entries = rio_room_of(l);
	lock();
	bool last = --l->users == 0 && l->closed;
	unlock();
	if (last)
		rs_free(l);
	if (closed && err == 0)
		edge_stream_close(*stream, 0);
	return closed ? fails(EBADF) : err == EDGE_ERR_INVALID ? fails(EINVAL) : err != 0 ? rs_failed(err) : 0;
}

EXPORT int raccept(int fd, struct sockaddr *a, socklen_t *size)
{
	UNCANCELLED;
	struct rs *s;
	edge_stream *stream;
	struct sockaddr_storage ours;
	int entries;
	if (next_stream(fd, &stream, &ours, &entries) != 0)
		return -1;
	int made = rs_new(&s);
	if (made < 0) {
		edge_stream_close(stream, 0);
		return -1;
	}
	if (entries > 0)
		rio_room(s, entries);
	s->stream = stream;
	s->ours = ours;
	s->peer.ss_family = AF_INET;
	learn_caller(s);
	rio_offer(s);
	give_address(&s->peer, a, size);
	return made;
}

EXPORT int rconnect(int fd, const struct sockaddr *a, socklen_t size)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	char node[65], service[32];
	if (s == NULL)
		return -1;
	if (s->listener != NULL || s->stream != NULL)
		return fails(s->dialling ? EALREADY : EISCONN);
	if (size < sizeof(struct sockaddr_in) || !ip_node(a, node))
		return fails(ENETUNREACH);
	if (attach() != 0)
		return -1;
	copy_address(&s->peer, a, size);
	if (port_of((struct sockaddr *)&s->ours) == 0)
		choose(s);
	struct caller c = { .port = port_of((struct sockaddr *)&s->ours) };
	union ibv_gid own;
	gid_at(gid_at(1, &own) ? 1 : 0, &own); /* by its first IP address, if it has one */
	memcpy(c.magic, magic, 4);
	memcpy(c.ip, own.raw, sizeof c.ip);
	read_ip((struct sockaddr *)&s->ours, own.raw, c.port);
	snprintf(service, sizeof service, "rdma/s%u", port_of(a));
	edge_dial_options o = { .size = sizeof o, .data = &c, .data_size = sizeof c };
	int err = edge_stream_dial_start(lib.dev, node, service, &o, &s->stream, DIAL_MS);
	if (err != 0)
		return rs_failed(err);
	s->dialling = true;
	if (s->nonblock)
		return fails(EINPROGRESS);
	return rs_stream(s, true) != NULL ? 0 : -1;
}

edge_stream *rs_stream(struct rs *s, bool waits)
{
	if (s->stream == NULL) {
		errno = ENOTCONN;
		return NULL;
	}
	int err = s->dialling ? edge_stream_wait(s->stream, waits ? EDGE_FOREVER : 0) : 0;
	if (err != 0) {
		rs_failed(err);
		return NULL;
	}
	if (s->dialling)
		rio_offer(s);
	s->dialling = false;
	return s->stream;
}

short rs_events(struct rs *s, short wanted)
{
	int events = 0;
	if (s->listener != NULL)
		events = edge_listener_pending(s->listener) > 0 ? POLLIN : 0;
	else if (s->stream == NULL)
		events = POLLHUP;
	else if (rs_stream(s, false) != NULL)
		events = edge_stream_events(s->stream) & ~(rio_full(s) ? POLLOUT : 0);
	else if (edge_stream_error(s->stream) != EDGE_ERR_AGAIN)
		events = POLLERR | POLLHUP | POLLOUT;
	return (short)(events & (wanted | POLLERR | POLLHUP));
}

EXPORT int rshutdown(int fd, int how)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	if (s == NULL)
		return -1;
	if (s->stream == NULL)
		return fails(ENOTCONN);
	int err = how == SHUT_RD ? 0 : edge_stream_shutdown(s->stream);
	return err == 0 || err == EDGE_ERR_SHUT ? 0 : rs_failed(err);
}

EXPORT int rclose(int fd)
{
	UNCANCELLED;
	lock();
	struct rs *s = rs_find(fd);
	bool last = s != NULL && s->users == 0;
	if (s != NULL) {
		s->closed = true;
		sockets[fd] = NULL;
	}
	unlock();
	if (s == NULL)
		return -1;
	close(fd);
	if (last)
		rs_free(s);
	return 0;
}

EXPORT int rgetpeername(int fd, struct sockaddr *a, socklen_t *size)
{
	struct rs *s = rs_find(fd);
	if (s == NULL)
		return -1;
	return s->stream == NULL ? fails(ENOTCONN) : give_address(&s->peer, a, size);
}

EXPORT int rgetsockname(int fd, struct sockaddr *a, socklen_t *size)
{
	struct rs *s = rs_find(fd);
	return s == NULL ? -1 : give_address(&s->ours, a, size);
}

/* Options other than RDMA_IOMAPSIZE are taken, and have no effect: buffers are those of streams, and nothing is delayed
 * for more to come. */
EXPORT int rsetsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	struct rs *s = rs_find(fd);
	int is = 0;
	if (s == NULL)
		return -1;
	if (level == SOL_RDMA && name == RDMA_IOMAPSIZE) {
		memcpy(&is, value, size < sizeof is ? size : sizeof is);
		return rio_room(s, is);
	}
	bool known = level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IPV6 || level == SOL_RDMA;
	return known ? 0 : fails(ENOPROTOOPT);
}

EXPORT int rgetsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	int is = 0;
	if (s == NULL)
		return -1;
	if (*size < sizeof is)
		return fails(EINVAL);
	if (level == SOL_SOCKET && name == SO_ERROR) {
		int err = s->stream != NULL && rs_stream(s, false) == NULL ? edge_stream_error(s->stream) : 0;
		is = err != 0 && err != EDGE_ERR_AGAIN ? edge_errno(err) : 0;
	} else if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF)) {
		is = BUFFER;
	} else if (level == SOL_RDMA && name == RDMA_IOMAPSIZE) {
		is = rio_room_of(s);
	} else if (level == SOL_SOCKET && name == SO_TYPE) {
		is = SOCK_STREAM;
	} else if (level == IPPROTO_TCP && name == TCP_NODELAY) {
		is = 1;
	} else
		return fails(ENOPROTOOPT);
	memcpy(value, &is, sizeof is);
	*size = sizeof is;
	return 0;
}

EXPORT int rfcntl(int fd, int command, ...)
{
	struct rs *s = rs_find(fd);
	va_list va;
	va_start(va, command);
	int flags = command == F_SETFL || command == F_SETFD ? va_arg(va, int) : 0;
	va_end(va);
	if (s == NULL)
		return -1;
	switch (command) {
	case F_GETFL: return O_RDWR | (s->nonblock ? O_NONBLOCK : 0);
	case F_SETFL: s->nonblock = flags & O_NONBLOCK; return 0;
	case F_GETFD: return fcntl(fd, F_GETFD);
	case F_SETFD: return fcntl(fd, F_SETFD, flags);
	}
	return fails(EINVAL);
}

/* At the end of the program the peers get what was written. */
__attribute__((destructor)) static void leave(void)
{
	bool any = false;
	for (int i = 0; i < SOCKETS; i++)
		any |= sockets[i] != NULL && sockets[i]->stream != NULL;
	if (lib.dev != NULL && edge_device_drain(lib.dev, DRAIN_MS) != 0 && any)
		say("a peer does not take what was written to it");
}
