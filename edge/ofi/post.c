/* What programs post: messages, reads and writes of the peer's memory. */
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

#define FLAGS_IN (TX_FLAGS | FI_REMOTE_CQ_DATA | FI_MORE | FI_FENCE | SILENT)

/* Bytes that did not fit into the stream at once are kept: nobody needs the memory any more. */
void op_keep(struct ep *e, struct op *op)
{
	struct ops *o = &e->ops;
	/* What is still there is the last in its queue. */
	bool there = (o->first != NULL && o->last == &op->next) || (o->held != NULL && o->held_last == &op->next);
	if (!there || op->left == 0)
		return;
	char *copy = malloc(op->left);
	if (copy == NULL) {
		ep_end(e, EDGE_ERR_NO_MEMORY); /* which the queue tells of */
		return;
	}
	size_t n = 0;
	for (uint64_t left = op->left; left > 0;) {
		struct iovec v = span_piece(&op->from);
		size_t some = v.iov_len < left ? v.iov_len : left;
		memcpy(copy + n, v.iov_base, some);
		span_skip(&op->from, some);
		n += some;
		left -= some;
	}
	op->copy = copy;
	op->mr = NULL;
	span_set(&op->from, &(struct iovec){ copy, n }, 1);
}

static int may_post(const struct ep *e)
{
	if (e->state == CONNECTED && !e->shut)
		return 0;
	return e->state == ENDED || e->shut ? -FI_ENOTCONN : -FI_EOPBADSTATE;
}

/* How many of its sort there may be. Messages are let into the queue far beyond the size that was told, unless they
 * cost a copy: ofi_rxm 1.17 loses its way where segments of one of its messages are turned away (FI_EAGAIN). */
static uint32_t most_of(const struct ep *e, enum sort sort, uint64_t flags)
{
	return sort == TELL && !(flags & FI_INJECT) ? QUEUE_MOST : e->tx_size;
}

/* Gets an operation; *err says why there is none. */
static struct op *get(struct ep *e, enum sort sort, uint64_t flags, ssize_t *err)
{
	uint32_t most = most_of(e, sort, flags);
	*err = may_post(e);
	struct op *op = *err == 0 ? op_get(e, sort, most) : NULL;
	if (*err == 0 && op == NULL) {
		progress(e->d->f);
		*err = may_post(e);
		op = *err == 0 ? op_get(e, sort, most) : NULL;
	}
	if (op == NULL && *err == 0)
		*err = -FI_EAGAIN;
	return op;
}

/* Posts h with the memory of iov. flags are the program's, and SILENT in those of fi_inject and its relatives;
 * completion is what the queue says of it. desc, which may be NULL, is what fi_mr_desc said of the memory. copy, which
 * may be NULL, becomes the operation's if it is posted. */
ssize_t post(struct fid_ep *fid, const struct header *h, const struct iovec *iov, void **desc, size_t n, char *copy,
             uint64_t flags, uint64_t completion, void *context)
{
	struct ep *e = container_of(fid, struct ep, fid);
	bool injected = flags & FI_INJECT;
	if (n > IOVS || (flags & ~FLAGS_IN))
		return n > IOVS ? -FI_EINVAL : -FI_EBADFLAGS;
	size_t size = 0;
	for (size_t i = 0; injected && i < n; i++)
		size += iov[i].iov_len;
	if (size > INJECT)
		return -FI_EINVAL;
	bool asks = h->kind != K_MESSAGE || (flags & FI_DELIVERY_COMPLETE);
	ssize_t err;
	pthread_mutex_lock(&e->d->f->mu);
	struct op *op = get(e, asks ? ASK : TELL, flags, &err);
	if (op == NULL) {
		pthread_mutex_unlock(&e->d->f->mu);
		return err;
	}
	op->h = *h;
	op->h.size = op->left = span_set(&op->from, iov, n);
	if (h->kind == K_READ)
		op->left = 0;
	op->copy = copy;
	op->context = context;
	op->flags = completion;
	op->quiet = (flags & SILENT) || (e->tx_selective && !(flags & FI_COMPLETION));
	if (h->kind == K_MESSAGE && asks)
		op->h.flags |= F_ANSWER;
	op->fenced = flags & FI_FENCE;
	op->injected = injected;
	for (size_t i = 0; desc != NULL && e->d->local && i < n; i++)
		op->local[i] = desc[i];
	op_post(e, op);
	if (injected && copy == NULL)
		op_keep(e, op);
	pthread_mutex_unlock(&e->d->f->mu);
	return 0;
}

/* --- messages --- */

static ssize_t send_flags(struct fid_ep *fid, const struct iovec *iov, size_t n, uint64_t data, void *context,
                          uint64_t flags)
{
	struct header h = { .kind = K_MESSAGE, .flags = flags & FI_REMOTE_CQ_DATA ? F_DATA : 0,
		.data = flags & FI_REMOTE_CQ_DATA ? data : 0 };
	return post(fid, &h, iov, NULL, n, NULL, flags, FI_SEND | FI_MSG, context);
}

static uint64_t usual(const struct fid_ep *fid)
{
	return container_of(fid, struct ep, fid)->tx_flags;
}

static ssize_t ep_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	(void)desc, (void)to;
	return send_flags(fid, &(struct iovec){ (void *)buf, len }, 1, 0, context, usual(fid));
}

static ssize_t ep_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t to, void *context)
{
	(void)desc, (void)to;
	return send_flags(fid, iov, n, 0, context, usual(fid));
}

static ssize_t ep_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	return send_flags(fid, m->msg_iov, m->iov_count, m->data, m->context, flags);
}

static ssize_t ep_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to)
{
	(void)to;
	return send_flags(fid, &(struct iovec){ (void *)buf, len }, 1, 0, NULL, INJECTED);
}

static ssize_t ep_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                           void *context)
{
	(void)desc, (void)to;
	return send_flags(fid, &(struct iovec){ (void *)buf, len }, 1, data, context, usual(fid) | FI_REMOTE_CQ_DATA);
}

static ssize_t ep_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	(void)to;
	return send_flags(fid, &(struct iovec){ (void *)buf, len }, 1, data, NULL, INJECTED | FI_REMOTE_CQ_DATA);
}

struct fi_ops_msg ep_msg_ops = { .size = sizeof(struct fi_ops_msg), .recv = ep_recv, .recvv = ep_recvv,
	.recvmsg = ep_recvmsg, .send = ep_send, .sendv = ep_sendv, .sendmsg = ep_sendmsg, .inject = ep_inject,
	.senddata = ep_senddata, .injectdata = ep_injectdata };

/* --- remote memory --- */

static ssize_t read_flags(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, uint64_t addr,
                          uint64_t key, void *context, uint64_t flags)
{
	struct header h = { .kind = K_READ, .addr = addr, .key = key };
	return flags & (FI_INJECT | FI_REMOTE_CQ_DATA) ? -FI_EBADFLAGS
	                                               : post(fid, &h, iov, desc, n, NULL, flags, FI_READ | FI_RMA,
	                                                      context);
}

static ssize_t write_flags(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, uint64_t addr,
                           uint64_t key, uint64_t data, void *context, uint64_t flags)
{
	struct header h = { .kind = K_WRITE, .flags = flags & FI_REMOTE_CQ_DATA ? F_DATA : 0, .addr = addr, .key = key,
		.data = flags & FI_REMOTE_CQ_DATA ? data : 0 };
	return post(fid, &h, iov, desc, n, NULL, flags, FI_WRITE | FI_RMA, context);
}

static ssize_t ep_readfrom(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr,
                           uint64_t key, void *context)
{
	(void)from;
	return read_flags(fid, &(struct iovec){ buf, len }, &desc, 1, addr, key, context, usual(fid) & ~FI_INJECT);
}

static ssize_t ep_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t from,
                        uint64_t addr, uint64_t key, void *context)
{
	(void)from;
	return read_flags(fid, iov, desc, n, addr, key, context, usual(fid) & ~FI_INJECT);
}

static ssize_t ep_readmsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
	return m->rma_iov_count != 1 ? -FI_EINVAL : read_flags(fid, m->msg_iov, m->desc, m->iov_count, m->rma_iov->addr,
	    m->rma_iov->key, m->context, flags);
}

static ssize_t ep_writeto(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr,
                          uint64_t key, void *context)
{
	(void)to;
	return write_flags(fid, &(struct iovec){ (void *)buf, len }, &desc, 1, addr, key, 0, context, usual(fid));
}

static ssize_t ep_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t to,
                         uint64_t addr, uint64_t key, void *context)
{
	(void)to;
	return write_flags(fid, iov, desc, n, addr, key, 0, context, usual(fid));
}

static ssize_t ep_writemsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
	return m->rma_iov_count != 1 ? -FI_EINVAL : write_flags(fid, m->msg_iov, m->desc, m->iov_count, m->rma_iov->addr,
	    m->rma_iov->key, m->data, m->context, flags);
}

static ssize_t ep_inject_write(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to, uint64_t addr,
                               uint64_t key)
{
	(void)to;
	return write_flags(fid, &(struct iovec){ (void *)buf, len }, NULL, 1, addr, key, 0, NULL, INJECTED);
}

static ssize_t ep_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to,
                            uint64_t addr, uint64_t key, void *context)
{
	(void)to;
	return write_flags(fid, &(struct iovec){ (void *)buf, len }, &desc, 1, addr, key, data, context,
	                   usual(fid) | FI_REMOTE_CQ_DATA);
}

static ssize_t ep_inject_writedata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t to,
                                   uint64_t addr, uint64_t key)
{
	(void)to;
	return write_flags(fid, &(struct iovec){ (void *)buf, len }, NULL, 1, addr, key, data, NULL,
	                   INJECTED | FI_REMOTE_CQ_DATA);
}

struct fi_ops_rma ep_rma_ops = { .size = sizeof(struct fi_ops_rma), .read = ep_readfrom, .readv = ep_readv,
	.readmsg = ep_readmsg, .write = ep_writeto, .writev = ep_writev, .writemsg = ep_writemsg,
	.inject = ep_inject_write, .writedata = ep_writedata, .injectdata = ep_inject_writedata };
