/* The control socket (ABI A3 to A5): requests, which wait for room if need be, their replies, and events. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control.h"
#include "ring.h"

enum { CALL_BITS = 20, MOST_CALLS = 1 << CALL_BITS };

/* Finds a place for a call; NULL: too many, or no memory. */
static struct call *call_add(struct control *k)
{
	uint32_t i = k->hint;
	while (i < k->ncalls && k->calls[i] != NULL)
		i++;
	if (i == k->ncalls) {
		uint32_t n = k->ncalls == 0 ? 64 : 2 * k->ncalls;
		struct call **more = n > MOST_CALLS ? NULL : realloc(k->calls, n * sizeof *more);
		if (more == NULL)
			return NULL;
		memset(more + k->ncalls, 0, (n - k->ncalls) * sizeof *more);
		k->calls = more;
		k->ncalls = n;
	}
	struct call *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->id = ++k->serial << CALL_BITS | i;
	k->calls[i] = c;
	k->hint = i + 1;
	return c;
}

static void call_remove(struct control *k, struct call *c)
{
	uint32_t i = c->id & (MOST_CALLS - 1);
	k->calls[i] = NULL;
	if (i < k->hint)
		k->hint = i;
}

/* Gives one packet to the socket. False: there is no room now. */
static bool transmit(edge_device *d, const void *bytes, size_t size, int fd)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } with = { 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	if (fd >= 0) {
		m.msg_control = &with;
		m.msg_controllen = sizeof with.room;
		with.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&with.h), &fd, sizeof fd);
	}
	while (sendmsg(d->ctl->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return errno != EAGAIN; /* else the end of the socket shows when it is read */
	return true;
}

/* Sends a request, later if need be; its reply goes to fn. fd, unless -1, goes along and must stay open until then. */
int control_send(edge_device *d, void *packet, size_t size, enum abi_kind kind, int fd, call_fn fn, void *obj,
                 uint32_t num)
{
	struct control *k = d->ctl;
	if (k->fd < 0)
		return EDGE_ERR_DAEMON_DOWN;
	struct call *c = call_add(k);
	if (c == NULL)
		return EDGE_ERR_NO_MEMORY;
	c->fn = fn;
	c->obj = obj;
	c->num = num;
	c->at = now_ns();
	struct abi_header *h = packet;
	*h = (struct abi_header){ .size = (uint32_t)size, .kind = (uint16_t)kind, .id = c->id };
	if (k->first == NULL && transmit(d, packet, size, fd))
		return 0;
	struct packet *p = malloc(sizeof *p + size);
	if (p == NULL) {
		call_remove(k, c);
		free(c);
		return EDGE_ERR_NO_MEMORY;
	}
	*p = (struct packet){ .size = size, .fd = fd };
	memcpy(p->bytes, packet, size);
	*k->last = p;
	k->last = &p->next;
	if (!k->want_out) {
		k->want_out = true;
		watch_fd(k->epoll, k->fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
	}
	return 0;
}

/* Sends what waits. */
void control_flush(edge_device *d)
{
	struct control *k = d->ctl;
	for (struct packet *p; (p = k->first) != NULL && transmit(d, p->bytes, p->size, p->fd); free(p)) {
		k->first = p->next;
		if (k->first == NULL)
			k->last = &k->first;
	}
	if (k->want_out && k->first == NULL) {
		k->want_out = false;
		watch_fd(k->epoll, k->fd, EPOLLIN, EPOLL_CTL_MOD);
	}
}

/* Closes the socket and answers all calls by err. */
void control_close(edge_device *d, int err)
{
	struct control *k = d->ctl;
	if (k->fd >= 0) {
		if (d->dead != EDGE_ERR_FORKED)
			watch_fd(k->epoll, k->fd, 0, EPOLL_CTL_DEL);
		close(k->fd);
		k->fd = -1;
	}
	k->ready = k->want_out = false;
	for (struct packet *p; (p = k->first) != NULL; free(p))
		k->first = p->next;
	k->last = &k->first;
	for (uint32_t i = 0; i < k->ncalls; i++) {
		struct call *c = k->calls[i];
		if (c == NULL)
			continue;
		call_remove(k, c);
		int fd = -1;
		c->fn(d, c, err, NULL, &fd);
		free(c);
	}
}

static void ignored(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fd)
{
	(void)d, (void)c, (void)err, (void)m, (void)fd;
}

void control_tell(edge_device *d, void *packet, size_t size, enum abi_kind kind)
{
	control_send(d, packet, size, kind, -1, ignored, NULL, 0);
}

void control_free(struct control *k)
{
	for (uint32_t i = 0; i < k->ncalls; i++)
		free(k->calls[i]);
	free(k->calls);
	for (struct packet *p; (p = k->first) != NULL; free(p))
		k->first = p->next;
}

static void answered(edge_device *d, union abi_packet *m, int *fds)
{
	struct control *k = d->ctl;
	uint32_t i = m->h.id & (MOST_CALLS - 1);
	if (i >= k->ncalls || k->calls[i] == NULL || k->calls[i]->id != m->h.id)
		return;
	struct call *c = k->calls[i];
	call_remove(k, c);
	int err = 0;
	if (m->h.flags & ABI_FAILED) {
		struct abi_text *t = &m->failed.text;
		char text[ABI_TEXT + 1] = { 0 };
		memcpy(text, t->bytes, t->size < ABI_TEXT ? t->size : ABI_TEXT);
		err = status_error(m->failed.status == 0 ? 265 : m->failed.status, text);
	}
	c->fn(d, c, err, m, fds);
	free(c);
}

/* Receives one packet and up to three descriptors. Returns its size, 0 if there is none, -1 at the end. The length of
 * the room for them is exact: the kernel would put a fourth into what CMSG_SPACE adds. */
static ssize_t receive(struct control *k, union abi_packet *m, int fds[3])
{
	struct iovec v = { .iov_base = m, .iov_len = sizeof *m };
	union { struct cmsghdr h; char room[CMSG_SPACE(3 * sizeof(int))]; } with;
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &with,
		.msg_controllen = CMSG_LEN(3 * sizeof(int)) };
	memset(m, 0, sizeof *m); /* A3.4: what is missing is zero */
	ssize_t n;
	while ((n = recvmsg(k->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC)) < 0 && errno == EINTR)
		;
	fds[0] = fds[1] = fds[2] = -1;
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	k->dropped = h.msg_flags & MSG_CTRUNC;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c != NULL; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n < (ssize_t)sizeof m->h || m->h.size != (uint64_t)n ? -1 : n;
}

/* Why an answer came without a descriptor that belongs to it. */
int no_descriptor(const edge_device *d)
{
	errno = EMFILE; /* or EMFILE's relatives: the kernel dropped it */
	return d->ctl->dropped ? system_error("a descriptor of the daemon's does not fit into this process")
	                      : fail(EDGE_ERR_VERSION, "the daemon sent fewer descriptors than it should");
}

/* Whether the daemon has sent something that was not received. Its end it does not count (A6.3). */
enum told control_told(const edge_device *d)
{
	uint32_t told = ring_told(d->ring);
	return told == 0 ? UNTOLD : (int32_t)(told - d->ctl->received) > 0 ? SOMETHING : NOTHING;
}

/* Takes what the daemon sent. Returns whether there was anything. */
bool control_receive(edge_device *d)
{
	union abi_packet m;
	int fds[3];
	bool any = false;
	for (int i = 0; d->ctl->fd >= 0 && i < 256 && (i == 0 || control_told(d) != NOTHING); i++) {
		ssize_t n = receive(d->ctl, &m, fds);
		if (n == 0)
			break;
		any = true;
		d->ctl->received++;
		if (n > 0)
			ring_drain(d); /* what completed before comes first (A7.12) */
		if (n < 0)
			d->above->lost(d, EDGE_ERR_DAEMON_DOWN, "the daemon closed the socket: its log says why");
		else if (d->ctl->fd >= 0 && (m.h.flags & ABI_REPLY))
			answered(d, &m, fds);
		else if (d->ctl->fd >= 0 && m.h.id == 0)
			d->above->happened(d, &m);
		for (int f = 0; f < 3; f++)
			if (fds[f] >= 0)
				close(fds[f]);
	}
	return any;
}
