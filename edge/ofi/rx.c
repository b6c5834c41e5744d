/* Buffers for messages: of one endpoint, or shared by several (fi_srx_context). */
#include <stdlib.h>

#include "endpoint.h"

int buffers_open(struct buffers *b, size_t wanted)
{
	uint32_t size = wanted == 0 ? 256 : wanted > RX_MOST ? RX_MOST : (uint32_t)wanted, places = 1;
	while (places < size)
		places *= 2;
	*b = (struct buffers){ .ring = malloc(places * sizeof *b->ring), .size = size, .mask = places - 1 };
	return b->ring == NULL ? -FI_ENOMEM : 0;
}

static ssize_t put(struct buffers *b, const struct iovec *iov, size_t n, void *context, uint64_t flags)
{
	if (n > IOVS || (flags & ~(FI_COMPLETION | FI_MORE)))
		return n > IOVS ? -FI_EINVAL : -FI_EBADFLAGS;
	if (b->tail - b->head == b->size)
		return -FI_EAGAIN;
	struct rx *rx = &b->ring[b->tail++ & b->mask];
	rx->size = span_set(&rx->to, iov, n);
	rx->context = context;
	rx->asked = flags & FI_COMPLETION;
	return 0;
}

/* Takes back a buffer that nothing has come for. */
static bool withdraw(struct buffers *b, const void *context, struct rx *gone)
{
	uint32_t i = b->head;
	while (i != b->tail && b->ring[i & b->mask].context != context)
		i++;
	if (i == b->tail)
		return false;
	*gone = b->ring[i & b->mask];
	for (b->tail--; i != b->tail; i++)
		b->ring[i & b->mask] = b->ring[(i + 1) & b->mask];
	return true;
}

/* A message has come and meets the oldest buffer. False: there is none, and the endpoint reads on once there is. */
bool rx_take(struct ep *e, struct rx *rx)
{
	struct buffers *b = e->srx != NULL ? &e->srx->rx : &e->rx;
	if (b->head != b->tail) {
		*rx = b->ring[b->head++ & b->mask];
		return true;
	}
	e->stalled = true;
	if (e->srx != NULL && !e->waits) {
		e->waits = true;
		e->next_waiting = NULL;
		*e->srx->last = e;
		e->srx->last = &e->next_waiting;
	}
	return false;
}

/* The endpoint wants no more of the shared buffers. */
void rx_leave(struct ep *e)
{
	if (!e->waits)
		return;
	struct srx *s = e->srx;
	struct ep **at = &s->waiting;
	while (*at != e)
		at = &(*at)->next_waiting;
	*at = e->next_waiting;
	if (*at == NULL)
		s->last = at;
	e->waits = false;
}

/* Reads on where it stopped for lack of a buffer, or of room in the completion queue. */
void ep_resume(struct ep *e)
{
	if (!e->stalled)
		return;
	e->stalled = false;
	ep_read(e);
}

/* --- of an endpoint --- */

static ssize_t recv_flags(struct fid_ep *fid, const struct iovec *iov, size_t n, void *context, uint64_t flags)
{
	struct ep *e = container_of(fid, struct ep, fid);
	pthread_mutex_lock(&e->d->f->mu);
	ssize_t err = e->state == ENDED || e->shut ? -FI_ENOTCONN : !e->enabled || e->srx != NULL ? -FI_EOPBADSTATE : 0;
	if (err == 0)
		err = put(&e->rx, iov, n, context, flags);
	if (err == 0)
		ep_resume(e);
	pthread_mutex_unlock(&e->d->f->mu);
	return err;
}

ssize_t ep_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	(void)desc, (void)from;
	return recv_flags(fid, &(struct iovec){ buf, len }, 1, context, container_of(fid, struct ep, fid)->rx_flags);
}

ssize_t ep_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t from, void *context)
{
	(void)desc, (void)from;
	return recv_flags(fid, iov, n, context, container_of(fid, struct ep, fid)->rx_flags);
}

ssize_t ep_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	return recv_flags(fid, m->msg_iov, m->iov_count, m->context, flags);
}

ssize_t ep_cancel(fid_t fid, void *context)
{
	struct ep *e = container_of(fid, struct ep, fid.fid);
	struct rx gone;
	pthread_mutex_lock(&e->d->f->mu);
	bool found = withdraw(&e->rx, context, &gone);
	if (found)
		rx_complete(e, &gone, NULL, 0, EDGE_ERR_ABORTED);
	pthread_mutex_unlock(&e->d->f->mu);
	return found ? 0 : -FI_ENOENT;
}

ssize_t ep_rx_left(struct fid_ep *fid)
{
	struct ep *e = container_of(fid, struct ep, fid);
	return e->rx.size - (e->rx.tail - e->rx.head);
}

/* --- shared: whose message comes first has the oldest buffer, and its endpoint's queue the completion --- */

static ssize_t srx_flags(struct fid_ep *fid, const struct iovec *iov, size_t n, void *context, uint64_t flags)
{
	struct srx *s = container_of(fid, struct srx, fid);
	pthread_mutex_lock(&s->d->f->mu);
	ssize_t err = put(&s->rx, iov, n, context, flags);
	for (struct ep *e; err == 0 && s->rx.head != s->rx.tail && (e = s->waiting) != NULL;) {
		rx_leave(e);
		ep_resume(e);
	}
	pthread_mutex_unlock(&s->d->f->mu);
	return err;
}

static ssize_t srx_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	(void)desc, (void)from;
	return srx_flags(fid, &(struct iovec){ buf, len }, 1, context, container_of(fid, struct srx, fid)->flags);
}

static ssize_t srx_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t from,
                         void *context)
{
	(void)desc, (void)from;
	return srx_flags(fid, iov, n, context, container_of(fid, struct srx, fid)->flags);
}

static ssize_t srx_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	return srx_flags(fid, m->msg_iov, m->iov_count, m->context, flags);
}

/* Those that were not used come back to nobody: their completion would belong to no endpoint. */
static int srx_close(struct fid *fid)
{
	struct srx *s = container_of(fid, struct srx, fid.fid);
	pthread_mutex_lock(&s->d->f->mu);
	int err = s->refs > 0 ? -FI_EBUSY : 0;
	if (err == 0)
		s->d->refs--;
	pthread_mutex_unlock(&s->d->f->mu);
	if (err == 0) {
		free(s->rx.ring);
		free(s);
	}
	return err;
}

static ssize_t srx_left(struct fid_ep *fid)
{
	struct srx *s = container_of(fid, struct srx, fid);
	return s->rx.size - (s->rx.tail - s->rx.head);
}

/* The buffer belonged to no endpoint yet: the completion goes where one of a message might have. */
static ssize_t srx_cancel(fid_t fid, void *context)
{
	struct srx *s = container_of(fid, struct srx, fid.fid);
	struct rx gone;
	pthread_mutex_lock(&s->d->f->mu);
	struct ep *e = s->d->eps;
	while (e != NULL && (e->srx != s || e->rx_cq == NULL))
		e = e->next;
	ssize_t err = e == NULL ? -FI_ENOCQ : withdraw(&s->rx, context, &gone) ? 0 : -FI_ENOENT;
	if (err == 0)
		rx_complete(e, &gone, NULL, 0, EDGE_ERR_ABORTED);
	pthread_mutex_unlock(&s->d->f->mu);
	return err;
}

static ssize_t no_tx(struct fid_ep *fid)
{
	(void)fid;
	return -FI_ENOSYS;
}

static ssize_t no_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	(void)fid, (void)buf, (void)len, (void)desc, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t to, void *context)
{
	(void)fid, (void)iov, (void)desc, (void)n, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	(void)fid, (void)m, (void)flags;
	return -FI_ENOSYS;
}

static ssize_t no_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to)
{
	(void)fid, (void)buf, (void)len, (void)to;
	return -FI_ENOSYS;
}

static ssize_t no_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                           void *context)
{
	(void)fid, (void)buf, (void)len, (void)desc, (void)data, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	(void)fid, (void)buf, (void)len, (void)data, (void)to;
	return -FI_ENOSYS;
}

static struct fi_ops srx_fid_ops = { .size = sizeof(struct fi_ops), .close = srx_close, .bind = no_bind,
	.control = no_control, .ops_open = no_ops_open };
static struct fi_ops_ep srx_ep_ops = { .size = sizeof(struct fi_ops_ep), .cancel = srx_cancel, .getopt = ep_getopt,
	.setopt = ep_setopt, .tx_ctx = no_ctx_tx, .rx_ctx = no_ctx_rx, .rx_size_left = srx_left, .tx_size_left = no_tx };
static struct fi_ops_msg srx_msg_ops = { .size = sizeof(struct fi_ops_msg), .recv = srx_recv, .recvv = srx_recvv,
	.recvmsg = srx_recvmsg, .send = no_send, .sendv = no_sendv, .sendmsg = no_sendmsg, .inject = no_inject,
	.senddata = no_senddata, .injectdata = no_injectdata };

int srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
	struct domain *d = container_of(domain, struct domain, fid);
	struct srx *s = calloc(1, sizeof *s);
	if (s == NULL || buffers_open(&s->rx, attr->size) != 0) {
		free(s);
		return -FI_ENOMEM;
	}
	s->d = d;
	s->flags = attr->op_flags & FI_COMPLETION;
	s->last = &s->waiting;
	s->fid = (struct fid_ep){ .fid = { .fclass = FI_CLASS_SRX_CTX, .context = context, .ops = &srx_fid_ops },
		.ops = &srx_ep_ops, .msg = &srx_msg_ops };
	pthread_mutex_lock(&d->f->mu);
	d->refs++;
	pthread_mutex_unlock(&d->f->mu);
	*ep = &s->fid;
	return 0;
}

void ep_relieved(struct cq *cq)
{
	for (struct ep *e = cq->d->eps; e != NULL; e = e->next)
		if (e->rx_cq == cq)
			ep_resume(e);
}
