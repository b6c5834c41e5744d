/* Receive buffers. They complete in the order of the messages. When the peer goes away they stay posted, as on a NIC,
 * until the program puts the queue pair into error. Before it is linked they wait here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qp.h"

/* Receives that libedge has. Its operations serve all queue pairs, and sends need some as well: so a queue pair has few
 * of its receives there, and only one while there are MANY in all. */
enum { OF_ONE = 256, MANY = 2048, MOST = 3584 };
static unsigned receives;
static bool no_lists; /* the daemon had no room for the pieces of a receive: further ones are copied (ABI A6.14) */

void recv_report(struct recv *r, struct qp *q)
{
	int status = q->qp.state == IBV_QPS_ERR && r->err != 0 ? IBV_WC_WR_FLUSH_ERR : qp_wc_status(r->err, true);
	struct ibv_wc wc = { .wr_id = r->wr_id, .status = status, .opcode = IBV_WC_RECV, .qp_num = q->qp.qp_num,
		.byte_len = r->size, .imm_data = r->imm, .wc_flags = r->has_imm ? IBV_WC_WITH_IMM : 0,
		.src_qp = q->attr.dest_qp_num };
	if (r->tells)
		wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	cq_put((struct cq *)q->qp.recv_cq, &wc, true);
	if (status != IBV_WC_SUCCESS && q->qp.state != IBV_QPS_ERR)
		qp_error(q);
}

bool rq_open(struct rq *rq, unsigned room, struct recv like)
{
	*rq = (struct rq){ .room = room, .all = calloc(room > 0 ? room : 1, sizeof *rq->all) };
	for (unsigned i = 0; rq->all != NULL && i < room; i++)
		rq->all[i] = like;
	rq_reset(rq);
	return rq->all != NULL;
}

void rq_reset(struct rq *rq)
{
	rq->unused = NULL;
	rq->back.last = &rq->back.first;
	rq->waiting.last = &rq->waiting.first;
	*rq->back.last = *rq->waiting.last = NULL;
	for (unsigned i = rq->all != NULL ? rq->room : 0; i-- > 0;) {
		struct recv *r = &rq->all[i];
		if (r->posted)
			continue; /* it belongs to libedge yet */
		stage_put(r->stage);
		r->stage = NULL;
		rq_unuse(rq, r);
	}
}

struct fifo *rq_first(struct rq *rq)
{
	return rq->back.first != NULL ? &rq->back : &rq->waiting;
}

struct recv *rq_take(struct rq *rq)
{
	struct fifo *f = rq_first(rq);
	struct recv *r = f->first;
	if (r != NULL && (f->first = r->next) == NULL)
		f->last = &f->first;
	return r;
}

void rq_put(struct fifo *f, struct recv *r)
{
	r->next = NULL;
	*f->last = r;
	f->last = &r->next;
}

void rq_unuse(struct rq *rq, struct recv *r)
{
	r->next = rq->unused;
	rq->unused = r;
}

void recv_flush(struct qp *q)
{
	struct rq *rq = &q->rq;
	for (struct recv *r; rq->lent == 0 && (r = rq_take(rq)) != NULL; rq_unuse(rq, r)) {
		stage_put(r->stage);
		r->stage = NULL;
		r->err = IBV_WC_WR_FLUSH_ERR;
		recv_report(r, q);
	}
}

void recv_drop(struct recv *r)
{
	r->posted = false;
	receives--;
	stage_put(r->stage);
	r->stage = NULL;
}

void recv_take(struct recv *r, const struct pd *pd, const edge_completion *c)
{
	r->posted = false;
	receives--;
	no_lists |= c->err == EDGE_ERR_QUOTA;
	r->err = c->err;
	r->size = (uint32_t)c->size;
	r->imm = c->imm;
	r->has_imm = c->has_imm;
	r->tells = c->tells;
	if (r->stage != NULL && c->err == 0 && !c->tells)
		sge_in(pd, r->sge, r->nsge, r->stage->bytes, c->size);
	stage_put(r->stage);
	r->stage = NULL;
}

/* A buffer of a queue pair's own is ours again. One that was refused for its pieces is posted anew without, behind
 * those that libedge has: the daemon has taken them, and they get the next messages. */
static void received(struct work *w, const edge_completion *c)
{
	struct recv *r = (struct recv *)w;
	struct qp *q = r->qp;
	q->pending--;
	q->rq.lent--;
	if (qps[q->qp.qp_num % MAX_QP] != q) { /* it was destroyed: its queue and its domain may be gone as well */
		recv_drop(r);
		return;
	}
	recv_take(r, PD(q), c);
	if (c->err != 0 && c->err != EDGE_ERR_TOO_LONG && q->qp.state != IBV_QPS_ERR) {
		rq_put(&q->rq.back, r); /* refused; or the connection has ended: see above */
	} else {
		recv_report(r, q);
		rq_unuse(&q->rq, r);
	}
	if (q->qp.state == IBV_QPS_ERR)
		recv_flush(q);
	else
		recv_issue(q);
}

bool recv_open(struct qp *q, unsigned room)
{
	return rq_open(&q->rq, room, (struct recv){ .work.done = received, .qp = q });
}

bool recv_room(unsigned posted, unsigned most)
{
	bool room = receives < (posted == 0 ? MOST : MANY);
	lib.starved |= !room;
	return room && posted < most;
}

void recv_forked(void)
{
	receives = 0;
	no_lists = false;
}

/* Whether the daemon takes receives in several pieces; an older one does not. */
static bool scatters(void)
{
	return !no_lists && edge_device_features(lib.dev) & EDGE_FEATURE_SCATTER;
}

int recv_post(struct recv *r, struct pd *pd, edge_conn *c, edge_queue *queue)
{
	struct gathered g;
	int err = gather(pd, r->sge, r->nsge, true, &g);
	if (err != 0)
		return err;
	bool copies = g.staged || g.n == 0 || (g.n > 1 && !scatters());
	if (r->stage == NULL && copies && (r->stage = stage_get(g.size)) == NULL)
		return IBV_WC_LOC_QP_OP_ERR;
	edge_work k = { .kind = EDGE_RECEIVE, .context = &r->work };
	if (r->stage != NULL) {
		k.local = r->stage->region;
		k.local_off = r->stage->off;
		k.size = g.size;
	} else {
		k.pieces = g.piece;
		k.npieces = g.n;
	}
	err = queue != NULL ? edge_queue_post(queue, &k, NULL) : edge_post(c, &k, NULL);
	r->posted = err == 0;
	receives += r->posted;
	lib.starved |= err == EDGE_ERR_AGAIN;
	return err;
}

void recv_issue(struct qp *q)
{
	struct rq *rq = &q->rq;
	struct recv *r;
	while ((r = rq_first(rq)->first) != NULL && q->link.state == LINKED && recv_room(rq->lent, OF_ONE)) {
		int err = recv_post(r, PD(q), link_receiving(q), NULL);
		if (err < 0 || (err > 0 && rq->lent > 0))
			return; /* no room, or the connection has ended: it stays posted. What is wrong is told in its turn */
		rq_take(rq);
		if (err == 0) {
			rq->lent++;
			q->pending++;
			continue;
		}
		r->err = err;
		recv_report(r, q);
		rq_unuse(rq, r);
	}
}

int recv_fill(struct recv *r, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || wr->num_sge > MAX_SGE)
		return EINVAL;
	r->wr_id = wr->wr_id;
	r->nsge = (uint8_t)wr->num_sge;
	r->size = r->imm = 0;
	r->posted = r->has_imm = r->tells = false;
	r->err = 0;
	if (wr->num_sge > 0)
		memcpy(r->sge, wr->sg_list, sizeof r->sge[0] * (size_t)wr->num_sge);
	return 0;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	struct rq *rq = &q->rq;
	int err = 0;
	lock();
	if (qp->state == IBV_QPS_RESET || q->srq != NULL)
		err = EINVAL;
	for (; err == 0 && wr != NULL; wr = wr->next) {
		if (rq->unused == NULL)
			progress();
		struct recv *r = rq->unused;
		err = r == NULL ? ENOMEM : recv_fill(r, wr);
		if (err != 0)
			break;
		rq->unused = r->next;
		rq_put(&rq->waiting, r);
	}
	if (err != 0)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR)
		recv_flush(q);
	else
		recv_issue(q);
	unlock();
	return err;
}
