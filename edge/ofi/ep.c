/* Endpoints: their life, their operations and buffers, and how those end. */
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

/* --- spans of memory --- */

struct iovec span_piece(const struct span *s)
{
	const struct iovec *v = &s->iov[s->at];
	return (struct iovec){ (char *)v->iov_base + s->off, v->iov_len - s->off };
}

void span_skip(struct span *s, size_t n)
{
	s->off += n;
	while (s->at < s->n && s->off >= s->iov[s->at].iov_len) {
		s->off -= s->iov[s->at].iov_len;
		s->at++;
	}
}

size_t span_set(struct span *s, const struct iovec *iov, size_t n)
{
	size_t size = 0;
	*s = (struct span){ .n = (uint32_t)n };
	for (size_t i = 0; i < n; i++) {
		s->iov[i] = iov[i];
		size += iov[i].iov_len;
	}
	span_skip(s, 0);
	return size;
}

/* --- operations --- */

struct op *op_get(struct ep *e, enum sort sort, uint32_t most)
{
	struct ops *o = &e->ops;
	if (o->count[sort] >= most)
		return NULL;
	struct op *op = o->free;
	if (op != NULL) {
		o->free = op->next;
	} else {
		if (o->n == o->of) {
			uint32_t of = o->of == 0 ? 64 : 2 * o->of;
			struct op **table = realloc(o->table, of * sizeof *table);
			if (table == NULL)
				return NULL;
			o->table = table;
			o->of = of;
		}
		op = malloc(sizeof *op);
		if (op == NULL)
			return NULL;
		op->id = o->n;
		o->table[o->n++] = op;
	}
	*op = (struct op){ .id = op->id, .sort = sort };
	o->count[sort]++;
	return op;
}

void op_free(struct ep *e, struct op *op)
{
	e->ops.count[op->sort]--;
	free(op->copy);
	*op = (struct op){ .id = op->id, .next = e->ops.free };
	e->ops.free = op;
}

struct cntr *ep_cntr(const struct ep *e, uint64_t flags)
{
	return e->cntrs[__builtin_ctzll((flags & COUNTED) / FI_READ)];
}

void ep_tell(struct ep *e, struct cq *cq, const struct fi_cq_err_entry *c, bool quiet)
{
	cntr_count(ep_cntr(e, c->flags), c->err != 0);
	if (c->err != 0 || !quiet)
		cq_push(cq, c);
}

void op_complete(struct ep *e, struct op *op, int err)
{
	struct fi_cq_err_entry c = { .op_context = op->context, .flags = op->flags, .err = fi_error(err),
		.prov_errno = err };
	ep_tell(e, e->tx_cq, &c, op->quiet);
	op_free(e, op);
}

void rx_complete(struct ep *e, const struct rx *rx, const struct header *h, uint64_t size, int err)
{
	struct fi_cq_err_entry c = { .op_context = rx->context, .flags = FI_RECV | FI_MSG, .err = fi_error(err),
		.prov_errno = err, .buf = rx->to.n > 0 ? rx->to.iov[0].iov_base : NULL };
	if (h != NULL) {
		c.len = size < rx->size ? size : rx->size;
		c.olen = size - c.len;
		c.data = h->data;
		c.flags |= h->flags & F_DATA ? FI_REMOTE_CQ_DATA : 0;
	}
	ep_tell(e, e->rx_cq, &c, e->rx_selective && !rx->asked);
}

/* A quiet one without a context (fi_inject) is counted alone: FI_SHUTDOWN says enough, and ofi_rxm would take the
 * context for a pointer. */
void op_abandon(struct ep *e, struct op *op, int err)
{
	bool silent = op->quiet && op->context == NULL;
	if (op->sort != ANSWER && !silent) {
		op_complete(e, op, err);
		return;
	}
	if (silent)
		cntr_count(ep_cntr(e, op->flags), true);
	op_free(e, op);
}

void ep_drop_buffers(struct ep *e)
{
	if (e->in.begun && e->in.h.kind == K_MESSAGE && !e->in.dropped)
		rx_complete(e, &e->in.rx, NULL, 0, EDGE_ERR_ABORTED);
	for (; e->rx.head != e->rx.tail; e->rx.head++)
		rx_complete(e, &e->rx.ring[e->rx.head & e->rx.mask], NULL, 0, EDGE_ERR_ABORTED);
	rx_leave(e);
}

/* Ends what is under way. */
static void flush(struct ep *e, int err)
{
	*e->ops.last = e->ops.held;
	struct op *unsent = e->ops.first;
	e->ops.first = e->ops.held = NULL;
	e->ops.last = &e->ops.first;
	e->ops.held_last = &e->ops.held;
	for (uint32_t i = 0; i < e->ops.n; i++) /* those that were sent are older */
		if (e->ops.table[i]->waits)
			op_abandon(e, e->ops.table[i], err);
	for (struct op *next; unsent != NULL; unsent = next) {
		next = unsent->next;
		op_abandon(e, unsent, err);
	}
	ep_drop_buffers(e);
	e->in = (struct inbound){ .got = 0 };
}

void ep_end(struct ep *e, int err)
{
	enum ep_state was = e->state;
	if (was == ENDED)
		return;
	e->state = ENDED;
	native_end(e);
	if (was == CONNECTED) {
		FI_INFO(&edge_provider, FI_LOG_EP_CTRL, "the connection ended: %s\n", edge_strerror(err));
		if (!e->shut)
			connection_lost(e->d->f, err);
		eq_push(e->eq, FI_SHUTDOWN, &e->fid.fid, 0, 0, NULL, NULL, 0);
	} else if (was != IDLE) {
		err = err == 0 ? EDGE_ERR_REFUSED : err;
		eq_push(e->eq, 0, &e->fid.fid, fi_error(err), err, NULL, NULL, 0);
	}
	flush(e, err == 0 ? EDGE_ERR_RESET : err);
	e->shut |= err == 0;
	if (err != 0)
		link_cut(&e->link);
	else
		link_shut(&e->link); /* the peer, if it only shut its endpoint down, needs not wait for our program */
}

/* The program takes the memory back: nothing reads or writes it any more. */
void ep_forget_mr(struct ep *e, struct mr *mr)
{
	if (e->in.mr == mr) {
		e->in.mr = NULL;
		e->in.status = EDGE_ERR_KEY;
		e->in.room = 0;
	}
	for (struct op *op = e->ops.held; op != NULL; op = op->next)
		for (int i = 0; i < IOVS; i++)
			op->local[i] = op->local[i] == mr ? NULL : op->local[i];
	for (struct op *op = e->ops.first; op != NULL; op = op->next) {
		if (op->mr != mr)
			continue;
		if (op->head > 0) { /* the peer expects these bytes */
			ep_end(e, EDGE_ERR_ABORTED);
			return;
		}
		op->mr = NULL;
		op->h.status = -EDGE_ERR_KEY;
		op->h.size = op->left = 0;
		header_put(op->header, &op->h);
	}
}

/* --- their life --- */

static int bind_cq(struct ep *e, struct cq *cq, uint64_t flags)
{
	bool selective = flags & FI_SELECTIVE_COMPLETION;
	if (cq->d != e->d || ((flags & FI_TRANSMIT) && e->tx_cq != NULL) || ((flags & FI_RECV) && e->rx_cq != NULL))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		e->tx_cq = cq;
		e->tx_selective = selective;
		cq->refs++;
	}
	if (flags & FI_RECV) {
		e->rx_cq = cq;
		e->rx_selective = selective;
		cq->refs++;
	}
	return 0;
}

static int bind_cntr(struct ep *e, struct cntr *c, uint64_t flags)
{
	if (flags & ~COUNTED)
		return -FI_EBADFLAGS;
	if (e->enabled || c->d != e->d)
		return -FI_EINVAL;
	for (int i = 0; i < COUNTERS; i++)
		if ((flags & FI_READ << i) && e->cntrs[i] != NULL)
			return -FI_EINVAL;
	for (int i = 0; i < COUNTERS; i++)
		if (flags & FI_READ << i) {
			e->cntrs[i] = c;
			c->refs++;
		}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
	struct ep *e = container_of(fid, struct ep, fid.fid);
	int err = -FI_EINVAL;
	pthread_mutex_lock(&e->d->f->mu);
	if (bound->fclass == FI_CLASS_CQ) {
		err = bind_cq(e, container_of(bound, struct cq, fid.fid), flags);
	} else if (bound->fclass == FI_CLASS_CNTR) {
		err = bind_cntr(e, container_of(bound, struct cntr, fid.fid), flags);
	} else if (bound->fclass == FI_CLASS_EQ && e->eq == NULL) {
		struct eq *eq = container_of(bound, struct eq, fid.fid);
		err = eq->f == e->d->f ? 0 : -FI_EINVAL;
		if (err == 0) {
			e->eq = eq;
			eq->refs++;
		}
	} else if (bound->fclass == FI_CLASS_SRX_CTX && e->srx == NULL && !e->enabled) {
		struct srx *s = container_of(bound, struct srx, fid.fid);
		err = s->d == e->d ? 0 : -FI_EINVAL;
		if (err == 0) {
			e->srx = s;
			s->refs++;
		}
	}
	pthread_mutex_unlock(&e->d->f->mu);
	return err;
}

int ep_enable(struct ep *e)
{
	if (e->eq == NULL)
		return -FI_ENOEQ;
	e->enabled = e->tx_cq != NULL || e->rx_cq != NULL;
	return e->enabled ? 0 : -FI_ENOCQ;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct ep *e = container_of(fid, struct ep, fid.fid);
	uint64_t *flags = arg;
	switch (command) {
	case FI_ENABLE:
		return ep_enable(e);
	case FI_GETOPSFLAG:
		*flags = (*flags & FI_TRANSMIT) ? e->tx_flags : e->rx_flags;
		return 0;
	case FI_SETOPSFLAG:
		if (*flags & ~(TX_FLAGS | FI_TRANSMIT | FI_RECV))
			return -FI_EBADFLAGS;
		if (*flags & FI_TRANSMIT)
			e->tx_flags = *flags & TX_FLAGS;
		if (*flags & FI_RECV)
			e->rx_flags = *flags & FI_COMPLETION;
		return 0;
	}
	return -FI_ENOSYS;
}

static void unlink_ep(struct ep *e)
{
	unqueue_step(e->d->f, &e->watched);
	*e->at = e->next;
	if (e->next != NULL)
		e->next->at = e->at;
}

static int ep_close(struct fid *fid)
{
	struct ep *e = container_of(fid, struct ep, fid.fid);
	struct fabric *f = e->d->f;
	pthread_mutex_lock(&f->mu);
	bool whole = e->state == CONNECTED ? !ops_unsent(e) : e->state == ENDED && e->shut;
	e->state = ENDED;
	flush(e, EDGE_ERR_ABORTED);
	bool drained = native_drain(e);
	unlink_ep(e);
	if (e->cm.request != NULL) {
		connreq_refuse(e->cm.request);
		e->cm.request->ep = NULL;
	}
	if (e->eq != NULL) {
		eq_forget(e->eq, fid);
		e->eq->refs--;
	}
	if (e->tx_cq != NULL)
		e->tx_cq->refs--;
	if (e->rx_cq != NULL)
		e->rx_cq->refs--;
	for (int i = 0; i < COUNTERS; i++)
		if (e->cntrs[i] != NULL)
			e->cntrs[i]->refs--;
	if (e->srx != NULL)
		e->srx->refs--;
	f->nlocal -= e->link.fd >= 0;
	if (e->link.fd >= 0 || e->link.stream != NULL)
		link_close(f, &e->link, whole);
	if (!drained) { /* libedge still names its operations: they, and the domain, stay */
		WARN(FI_LOG_EP_CTRL, "the daemon does not end operations of an endpoint that is closed\n");
		e->native.gone = true;
		e->tx_cq = e->rx_cq = NULL;
		memset(e->cntrs, 0, sizeof e->cntrs);
		pthread_mutex_unlock(&f->mu);
		return 0;
	}
	e->d->refs--;
	for (uint32_t i = 0; i < e->ops.n; i++)
		free(e->ops.table[i]);
	pthread_mutex_unlock(&f->mu);
	free(e->ops.table);
	free(e->rx.ring);
	free(e->operands);
	free(e);
	return 0;
}

int ep_getopt(fid_t fid, int level, int name, void *value, size_t *size)
{
	(void)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (*size < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = CM_DATA;
	*size = sizeof(size_t);
	return 0;
}

int ep_setopt(fid_t fid, int level, int name, const void *value, size_t size)
{
	(void)fid, (void)level, (void)name, (void)value, (void)size;
	return -FI_ENOPROTOOPT;
}

int no_ctx_tx(struct fid_ep *s, int index, struct fi_tx_attr *attr, struct fid_ep **ep, void *context)
{
	(void)s, (void)index, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

int no_ctx_rx(struct fid_ep *s, int index, struct fi_rx_attr *attr, struct fid_ep **ep, void *context)
{
	(void)s, (void)index, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static ssize_t tx_left(struct fid_ep *fid)
{
	struct ep *e = container_of(fid, struct ep, fid);
	uint32_t n = e->ops.count[TELL] + e->ops.count[ASK];
	return n < e->tx_size ? e->tx_size - n : 0;
}

static struct fi_ops ep_fid_ops = { .size = sizeof(struct fi_ops), .close = ep_close, .bind = ep_bind,
	.control = ep_control, .ops_open = no_ops_open };
static struct fi_ops_ep ep_ops = { .size = sizeof(struct fi_ops_ep), .cancel = ep_cancel, .getopt = ep_getopt,
	.setopt = ep_setopt, .tx_ctx = no_ctx_tx, .rx_ctx = no_ctx_rx, .rx_size_left = ep_rx_left,
	.tx_size_left = tx_left };

static uint32_t tx_size(size_t wanted)
{
	return wanted == 0 ? 256 : wanted > TX_MOST ? TX_MOST : (uint32_t)wanted;
}

static void stepped(struct watched *w)
{
	ep_step((struct ep *)w);
}

int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context)
{
	struct domain *d = container_of(domain, struct domain, fid);
	struct connreq *request = connreq_of(info->handle);
	if (info->ep_attr->type != FI_EP_MSG || info->tx_attr == NULL || info->rx_attr == NULL ||
	    (request != NULL && request->ep != NULL))
		return -FI_EINVAL;
	struct ep *e = calloc(1, sizeof *e);
	if (e == NULL)
		return -FI_ENOMEM;
	*e = (struct ep){ .watched = { .step = stepped }, .d = d, .link = { .fd = -1 }, .tx_flags = info->tx_attr->op_flags,
		.rx_flags = info->rx_attr->op_flags, .tx_size = tx_size(info->tx_attr->size), .cm.request = request,
		.fid = { .fid = { .fclass = FI_CLASS_EP, .context = context, .ops = &ep_fid_ops }, .ops = &ep_ops,
			.cm = &ep_cm_ops, .msg = &ep_msg_ops, .rma = &ep_rma_ops, .atomic = &ep_atomic_ops } };
	e->ops.last = &e->ops.first;
	e->ops.held_last = &e->ops.held;
	if (buffers_open(&e->rx, info->rx_attr->size) != 0) {
		free(e);
		return -FI_ENOMEM;
	}
	self_address(&e->cm.self, 0);
	if (info->dest_addr != NULL && info->dest_addrlen >= sizeof(address))
		memcpy(&e->cm.peer, info->dest_addr, sizeof(address));
	pthread_mutex_lock(&d->f->mu);
	if (request != NULL)
		request->ep = e;
	d->refs++;
	e->next = d->eps;
	e->at = &d->eps;
	if (e->next != NULL)
		e->next->at = &e->next;
	d->eps = e;
	pthread_mutex_unlock(&d->f->mu);
	*ep = &e->fid;
	return 0;
}
