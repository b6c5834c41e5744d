/* What carries the bytes of a connection: a stream, or a Unix socket to another process of this host and user. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric.h"

enum { LINGER_MS = 5000 };

int link_error(struct link *l)
{
	return l->fd >= 0 ? 0 : edge_stream_error(l->stream);
}

static ssize_t result(ssize_t n)
{
	return n >= 0 ? n : errno == EAGAIN ? EDGE_ERR_AGAIN : EDGE_ERR_RESET;
}

ssize_t link_read(struct link *l, void *p, size_t n)
{
	if (l->fd < 0)
		return edge_stream_read(l->stream, p, n, 0);
	ssize_t k;
	do
		k = recv(l->fd, p, n, MSG_DONTWAIT);
	while (k < 0 && errno == EINTR); /* epoll tells of what is there once */
	return result(k);
}

ssize_t link_write(struct link *l, const void *p, size_t n)
{
	if (l->fd < 0)
		return edge_stream_write(l->stream, p, n, 0);
	ssize_t k;
	do
		k = send(l->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	return result(k);
}

void link_shut(struct link *l)
{
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_WR);
	else if (l->stream != NULL)
		edge_stream_shutdown(l->stream);
}

void link_cut(struct link *l)
{
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
	else if (l->stream != NULL)
		edge_stream_reset(l->stream);
}

/* A child of fork may have it as well, and would keep the connection, and its place in the epoll set. */
void local_close(struct fabric *f, int fd)
{
	local_unwatch(f, fd);
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

void link_close(struct fabric *f, struct link *l, bool whole)
{
	if (l->fd >= 0)
		local_close(f, l->fd);
	else
		edge_stream_close(l->stream, whole ? LINGER_MS : 0);
	*l = (struct link){ .fd = -1 };
}

/* The name is in the abstract space, so that nothing is left behind; the user is asked of the kernel. */
static socklen_t local_name(struct sockaddr_un *to, const address *a)
{
	char ip[INET6_ADDRSTRLEN];
	inet_ntop(AF_INET6, &a->sin6_addr, ip, sizeof ip);
	*to = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(to->sun_path + 1, sizeof to->sun_path - 1, "edge-fi/%s/%u", ip, ntohs(a->sin6_port));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same_user(int fd)
{
	struct ucred who;
	socklen_t size = sizeof who;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}

int local_listen(const address *a)
{
	struct sockaddr_un name;
	socklen_t size = local_name(&name, a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = errno;
	if (fd >= 0 && bind(fd, (struct sockaddr *)&name, size) == 0 && listen(fd, REQUESTS) == 0)
		return fd;
	if (fd >= 0) {
		err = errno;
		close(fd);
	}
	return -err;
}

int local_connect(const address *a)
{
	struct sockaddr_un name;
	socklen_t size = local_name(&name, a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = errno;
	if (fd < 0)
		return -err;
	if (connect(fd, (struct sockaddr *)&name, size) == 0) {
		if (same_user(fd))
			return fd;
		errno = EACCES;
	}
	err = errno == EAGAIN ? ECONNREFUSED : errno; /* EAGAIN: too many wait there */
	close(fd);
	return -err;
}

int local_accept(int fd)
{
	int got;
	while ((got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0 && !same_user(got))
		close(got);
	return got;
}
