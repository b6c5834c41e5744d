/* Queue pairs and their states. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ud.h"

struct qp *qps[MAX_QP];

int qp_wc_status(int err, bool receives)
{
	if (err >= 0)
		return err;
	switch (err) {
	case EDGE_ERR_KEY: case EDGE_ERR_REVOKED: case EDGE_ERR_PERMISSION: case EDGE_ERR_BOUNDS:
		return IBV_WC_REM_ACCESS_ERR;
	case EDGE_ERR_TOO_LONG:
		return receives ? IBV_WC_LOC_LEN_ERR : IBV_WC_REM_INV_REQ_ERR;
	case EDGE_ERR_MISALIGNED:
		return IBV_WC_REM_INV_REQ_ERR;
	case EDGE_ERR_NO_BUFFER:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	case EDGE_ERR_STOPPED:
		return IBV_WC_WR_FLUSH_ERR;
	case EDGE_ERR_INVALID:
		return IBV_WC_LOC_QP_OP_ERR;
	case EDGE_ERR_STALE:
		return IBV_WC_FATAL_ERR;
	}
	return receives ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;
}

void qps_retry(void)
{
	static unsigned from; /* each in its turn is the first */
	from++;
	for (unsigned i = 0; i < MAX_QP; i++) {
		struct qp *q = qps[(from + i) % MAX_QP];
		if (q == NULL)
			continue;
		if (q->srq != NULL)
			srq_issue(q->srq);
		recv_issue(q);
		send_issue(q);
	}
}

void qp_error(struct qp *q)
{
	if (q->qp.state == IBV_QPS_ERR)
		return;
	q->qp.state = IBV_QPS_ERR;
	link_end(q);
	send_flush(q);
	recv_flush(q);
	if (q->srq != NULL)
		async_tell(q->qp.context, IBV_EVENT_QP_LAST_WQE_REACHED, &q->qp, &q->told);
}

static bool valid(const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *c = &a->cap;
	return c->max_send_wr <= MAX_WR && c->max_recv_wr <= MAX_WR && c->max_send_sge <= MAX_SGE &&
		c->max_recv_sge <= MAX_SGE && c->max_inline_data <= MAX_INLINE && a->send_cq != NULL && a->recv_cq != NULL;
}

/* Enters a queue pair under a number that was not used for long. */
static bool number(struct qp *q)
{
	static unsigned last;
	for (unsigned i = 0; i < MAX_QP; i++) {
		last = (last + 1) % MAX_QP;
		if (qps[last] != NULL)
			continue;
		qps[last] = q;
		q->qp.qp_num = link_slot() | last;
		return true;
	}
	return false;
}

static unsigned ring_size(unsigned n)
{
	unsigned size = 1;
	while (size < n)
		size *= 2; /* of counters that wrap around */
	return size;
}

struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	bool ud = a->qp_type == IBV_QPT_UD;
	if ((a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UC && !ud) || (ud && a->srq != NULL)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!valid(a)) {
		errno = EINVAL;
		return NULL;
	}
	struct qp *q = calloc(1, sizeof *q);
	if (q == NULL)
		return NULL;
	if (a->cap.max_inline_data < MIN_INLINE)
		a->cap.max_inline_data = MIN_INLINE;
	a->cap.max_send_wr = ring_size(a->cap.max_send_wr);
	a->cap.max_recv_wr = a->srq != NULL ? 0 : ring_size(a->cap.max_recv_wr);
	a->cap.max_send_sge = a->cap.max_recv_sge = MAX_SGE;
	q->init = *a;
	bool ok = recv_open(q, a->cap.max_recv_wr);
	q->srq = (struct srq *)a->srq;
	q->qp = (struct ibv_qp){ .context = pd->context, .qp_context = a->qp_context, .pd = pd, .send_cq = a->send_cq,
		.recv_cq = a->recv_cq, .srq = a->srq, .state = IBV_QPS_RESET, .qp_type = a->qp_type };
	pthread_mutex_init(&q->qp.mutex, NULL);
	pthread_cond_init(&q->qp.cond, NULL);
	lock();
	int err = ud ? peers_open() : 0;
	ok = ok && err == 0 && send_open(q) && number(q);
	if (ok) {
		((struct pd *)pd)->refs++;
		((struct cq *)a->send_cq)->users++;
		((struct cq *)a->recv_cq)->users++;
		if (q->srq != NULL)
			q->srq->users++;
	} else if (ud && err == 0)
		peers_close();
	unlock();
	if (ok)
		return &q->qp;
	if (err != 0)
		say("no queue pair for datagrams: %s", edge_message(err));
	free(q->sq.ring);
	free(q->sq.inlines);
	free(q->rq.all);
	free(q);
	errno = ENOMEM;
	return NULL;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	return qp_create(pd, a);
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = (struct qp *)qp;
	(void)mask;
	lock();
	*a = q->attr;
	a->qp_state = a->cur_qp_state = qp->state;
	a->cap = q->init.cap;
	*init = q->init;
	unlock();
	return 0;
}

/* Whether the state may follow, and the attributes that it needs are there (the specification's table). */
static bool follows(const struct qp *q, enum ibv_qp_state to, int mask)
{
	enum ibv_qp_state from = q->qp.state;
	switch (to) {
	case IBV_QPS_RESET: case IBV_QPS_ERR: return true;
	case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
	case IBV_QPS_RTR: return from == IBV_QPS_INIT && (is_ud(q) || ((mask & IBV_QP_AV) && (mask & IBV_QP_DEST_QPN)));
	case IBV_QPS_RTS: return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
	default: return false; /* SQD, SQE */
	}
}

static void remember(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = a->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = a->sq_psn;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num;
}

/* Forgets everything that was posted; false: libedge has some yet, whose memory no other operation may get. */
static bool reset(struct qp *q)
{
	link_close(q);
	for (unsigned i = q->sq.tail; i != q->sq.head; i++)
		if (q->sq.ring[i % q->sq.room].pending == 0)
			send_drop(&q->sq.ring[i % q->sq.room]);
	q->sq.head = q->sq.next = q->sq.tail = 0;
	q->sq.refused = false;
	rq_reset(&q->rq);
	cq_forget((struct cq *)q->qp.send_cq, q->qp.qp_num);
	cq_forget((struct cq *)q->qp.recv_cq, q->qp.qp_num);
	return q->pending == 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)qp;
	union ibv_gid ours;
	lock();
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : qp->state, from = qp->state;
	int err = !(mask & IBV_QP_STATE) || follows(q, to, mask) ? 0 : EINVAL;
	if (err == 0 && (mask & IBV_QP_AV) && (!a->ah_attr.is_global || !gid_at(a->ah_attr.grh.sgid_index, &ours)))
		err = EINVAL; /* an Ethernet device has no other addresses */
	if (err == 0)
		remember(&q->attr, a, mask);
	if (err == 0 && to != from) {
		if (to == IBV_QPS_RESET) {
			qp->state = IBV_QPS_ERR; /* nothing is posted any more */
			if (reset(q))
				qp->state = to;
			else
				err = EBUSY;
		} else if (to == IBV_QPS_ERR) {
			progress();
			qp_error(q);
		} else {
			qp->state = to;
			if (to == IBV_QPS_RTR && q->link.state == ALONE && !is_ud(q)) /* else librdmacm has linked it */
				link_begin(q);
			if (to == IBV_QPS_RTS)
				send_issue(q);
		}
	}
	unlock();
	return err;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;
	lock();
	bool unused = reset(q);
	qps[qp->qp_num % MAX_QP] = NULL;
	if (is_ud(q))
		peers_close();
	((struct pd *)qp->pd)->refs--;
	((struct cq *)qp->send_cq)->users--;
	((struct cq *)qp->recv_cq)->users--;
	if (q->srq != NULL)
		q->srq->users--;
	inbox_forget(&context_of(qp->context)->events, qp);
	unsigned told = q->told;
	unlock();
	async_wait(&qp->mutex, &qp->cond, &qp->events_completed, told);
	if (!unused)
		return 0; /* libedge may name it yet */
	free(q->batch);
	free(q->sq.ring);
	free(q->sq.inlines);
	free(q->rq.all);
	free(q);
	return 0;
}
