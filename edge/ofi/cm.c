/*
 * How connections come about. Who connects sends a request: "efi1", its node's identity (8 bytes), its port and the
 * length of the program's data (2 bytes each, little endian), 1 or 0 and a zero, the data, and after a 1 the 16 bytes
 * of native.c. It goes with the dial of a stream, or is the first thing in a socket. What comes back first is K_ACCEPT
 * or K_REJECT, with the program's data.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "endpoint.h"

enum { BEFORE = 18, DIAL_MS = 600000 };

static const char magic[4] = "efi1";

/* token: see native.c; NULL: there is none. */
static size_t request_put(char to[REQUEST], const void *data, size_t size, const char *token)
{
	address self;
	self_address(&self, 0);
	memcpy(to, magic, 4);
	identity_get(&self, (unsigned char *)to + 4);
	memset(to + 12, 0, BEFORE - 12); /* active endpoints have no port */
	to[14] = (char)(size & 0xff);
	to[15] = (char)(size >> 8);
	to[16] = token != NULL;
	if (size > 0)
		memcpy(to + BEFORE, data, size);
	if (token != NULL)
		memcpy(to + BEFORE + size, token, TOKEN);
	return BEFORE + size + (token != NULL ? TOKEN : 0);
}

/* How long the request is that begins so; 0: it is none. */
size_t request_size(const char *p)
{
	size_t n = (size_t)(unsigned char)p[14] | (size_t)(unsigned char)p[15] << 8;
	return memcmp(p, magic, 4) == 0 && n <= CM_DATA ? BEFORE + n + (p[16] == 1 ? TOKEN : 0) : 0;
}

/* Queues our answer. The program is told once that is sent: it may wait for something else from then on. */
static void welcome(struct ep *e)
{
	e->state = CONNECTED;
	struct op *op = op_get(e, ANSWER, 1);
	if (op == NULL) {
		ep_end(e, EDGE_ERR_NO_MEMORY);
		return;
	}
	op->h = (struct header){ .kind = K_ACCEPT, .size = e->cm.size, .data = e->native.up };
	op->left = span_set(&op->from, &(struct iovec){ e->cm.data, e->cm.size }, 1);
	op_send(e, op);
}

/* A stream that is not connected yet. */
void cm_step(struct ep *e)
{
	int err = link_error(&e->link);
	if (err == EDGE_ERR_AGAIN)
		return;
	if (err != 0)
		ep_end(e, err);
	else if (e->state == CONNECTING)
		e->state = GREETING;
	else
		welcome(e);
}

/* The peer's program has answered; its data are in e->cm. */
void cm_answered(struct ep *e, const struct header *h)
{
	if (h->kind == K_ACCEPT) {
		e->state = CONNECTED;
		e->native.joining = e->native.conn != NULL && h->data == 1;
		e->native.until = until_ns(ASK_MS);
		native_join(e);
		return;
	}
	eq_push(e->eq, 0, &e->fid.fid, FI_ECONNREFUSED, EDGE_ERR_REFUSED, NULL, e->cm.data, e->cm.size);
	e->state = IDLE; /* so that ep_end tells nothing more */
	ep_end(e, EDGE_ERR_REFUSED);
}

static int connect_local(struct ep *e, const address *to, const void *data, size_t data_size)
{
	char request[REQUEST];
	size_t size = request_put(request, data, data_size, NULL);
	int fd = local_connect(to);
	if (fd == -FI_ECONNREFUSED) {
		e->state = CONNECTING;
		ep_end(e, EDGE_ERR_NO_SERVICE);
		return 0;
	}
	if (fd < 0)
		return fd;
	e->link.fd = fd;
	e->d->f->nlocal++;
	e->state = GREETING;
	if (link_write(&e->link, request, size) != (ssize_t)size) /* a new socket has room for so little */
		ep_end(e, EDGE_ERR_RESET);
	return local_watch(e->d->f, fd, &e->watched);
}

static int connect_node(struct ep *e, const address *to, const void *data, size_t size)
{
	char node[65], service[32], request[REQUEST];
	int err = node_of(to, node);
	if (err != 0)
		return err;
	snprintf(service, sizeof service, "fi/%u", ntohs(to->sin6_port));
	bool native = native_dial(e, node, service);
	size = request_put(request, data, size, native ? e->native.token : NULL);
	edge_dial_options o = { .size = sizeof o, .data = request, .data_size = size };
	err = edge_stream_dial_start(e->d->f->dev, node, service, &o, &e->link.stream, DIAL_MS);
	e->state = CONNECTING;
	if (err != 0)
		ep_end(e, err);
	else
		edge_stream_watch(e->link.stream, e);
	return 0;
}

static int ep_connect(struct fid_ep *fid, const void *to, const void *data, size_t size)
{
	struct ep *e = container_of(fid, struct ep, fid);
	address a;
	memcpy(&a, to, sizeof a);
	if (a.sin6_family != AF_INET6 || size > CM_DATA)
		return -FI_EINVAL;
	pthread_mutex_lock(&e->d->f->mu);
	int err = e->state != IDLE || e->cm.request != NULL ? -FI_EOPBADSTATE : ep_enable(e);
	if (err == 0) {
		e->cm.peer = a;
		err = is_self(&a) ? connect_local(e, &a, data, size) : connect_node(e, &a, data, size);
	}
	pthread_mutex_unlock(&e->d->f->mu);
	return err;
}

/* The request is used up if that works, and remains to be rejected otherwise. */
static int take_request(struct ep *e, struct connreq *r)
{
	int err = 0;
	if (r->fd >= 0) {
		e->link.fd = r->fd;
		e->d->f->nlocal++;
		r->fd = -1;
		err = local_watch(e->d->f, e->link.fd, &e->watched);
		if (err == 0)
			welcome(e);
	} else {
		err = r->request == NULL ? EDGE_ERR_ABORTED : edge_request_accept_stream(r->request, &e->link.stream);
		r->request = NULL;
		err = err != 0 ? -fi_error(err) : 0;
		if (err == 0) {
			if (r->native != NULL)
				native_accept(e, r->native);
			r->native = NULL;
			e->state = ACCEPTING;
			edge_stream_watch(e->link.stream, e);
		}
	}
	if (err == 0)
		connreq_drop(r);
	return err;
}

static int ep_accept(struct fid_ep *fid, const void *data, size_t size)
{
	struct ep *e = container_of(fid, struct ep, fid);
	struct connreq *r = e->cm.request;
	if (size > CM_DATA)
		return -FI_EINVAL;
	pthread_mutex_lock(&e->d->f->mu);
	int err = e->state != IDLE || r == NULL ? -FI_EOPBADSTATE : ep_enable(e);
	if (err == 0) {
		e->cm.size = size;
		if (size > 0)
			memcpy(e->cm.data, data, size);
		e->cm.peer = r->peer;
		err = take_request(e, r);
		e->cm.request = err == 0 ? NULL : r;
	}
	pthread_mutex_unlock(&e->d->f->mu);
	return err;
}

/* What is posted is sent on, and answered if the peer is there; buffers come back at once. */
static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
	(void)flags;
	struct ep *e = container_of(fid, struct ep, fid);
	pthread_mutex_lock(&e->d->f->mu);
	int err = e->state == CONNECTED ? 0 : -FI_ENOTCONN;
	if (err == 0 && !e->shut) {
		e->shut = true;
		ep_drop_buffers(e);
		inbound_drop(e);
		ep_resume(e);
	}
	if (err == 0)
		ep_shut(e); /* or once all is sent */
	pthread_mutex_unlock(&e->d->f->mu);
	return err;
}

static int ep_getname(fid_t fid, void *to, size_t *size)
{
	return address_out(&container_of(fid, struct ep, fid.fid)->cm.self, to, size);
}

static int ep_getpeer(struct fid_ep *fid, void *to, size_t *size)
{
	struct ep *e = container_of(fid, struct ep, fid);
	return e->state == IDLE ? -FI_ENOTCONN : address_out(&e->cm.peer, to, size);
}

static int ep_setname(fid_t fid, void *from, size_t size)
{
	(void)fid, (void)from, (void)size;
	return -FI_ENOSYS; /* active endpoints have no port */
}

static int ep_listen(struct fid_pep *fid)
{
	(void)fid;
	return -FI_ENOSYS;
}

static int ep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t size)
{
	(void)fid, (void)handle, (void)data, (void)size;
	return -FI_ENOSYS;
}

struct fi_ops_cm ep_cm_ops = { .size = offsetof(struct fi_ops_cm, join), .setname = ep_setname, .getname = ep_getname,
	.getpeer = ep_getpeer, .connect = ep_connect, .listen = ep_listen, .accept = ep_accept, .reject = ep_reject,
	.shutdown = ep_shutdown };
