/*
 * Datagrams. What is sent is copied behind a header of ours and goes to the process that the number of the receiving
 * queue pair names (peer.c). It is complete when the daemon there has it, which keeps a program from sending faster
 * than its peer takes; but nothing tells of one that is lost, as it is on a NIC.
 *
 * What arrives is copied into the oldest buffer of its queue pair. It is dropped if there is none, or none that is
 * large enough, or if the Q_Key is not the queue pair's.
 */
#include <errno.h>
#include <string.h>

#include "ud.h"

/* A datagram is with its receiver's daemon, or lost. */
static void gone(struct work *w, const edge_completion *c)
{
	struct send *s = (struct send *)w;
	struct qp *q = s->qp;
	peer_heard(c);
	q->pending--;
	s->pending = 0;
	s->done = true;
	send_retire(q);
	if (q->sq.next != q->sq.head)
		send_issue(q);
}

/* Copies the bytes behind a header: 0 or a wc status. Those of inline data are there. */
static int compose(struct qp *q, struct send *s)
{
	struct gathered g;
	if (s->inlined)
		return 0;
	int err = gather(PD(q), s->sge, s->nsge, false, &g);
	if (err != 0 || g.size > UD_MTU)
		return err != 0 ? err : IBV_WC_LOC_LEN_ERR;
	if (s->stage == NULL && (s->stage = stage_get(sizeof(struct head) + g.size)) == NULL)
		return IBV_WC_LOC_QP_OP_ERR;
	sge_out(PD(q), s->sge, s->nsge, s->stage->bytes + sizeof(struct head));
	s->size = (uint32_t)g.size;
	return 0;
}

int ud_issue(struct qp *q, struct send *s)
{
	struct head h = { .to = s->rkey, .from = q->qp.qp_num, .key = s->key, .imm = s->imm,
		.has_imm = s->opcode == IBV_WR_SEND_WITH_IMM, .solicited = s->solicited, .to_gid = s->ah->gid };
	int err = compose(q, s);
	if (err != 0)
		return err;
	gid_at(s->ah->sgid_index, &h.from_gid);
	memcpy(s->stage->bytes, &h, sizeof h);
	s->work.done = gone;
	err = peer_send(s->ah, s->rkey >> 12, s->stage, sizeof h + s->size, &s->work);
	if (err == EDGE_ERR_AGAIN)
		return err;
	if (err == 0) {
		s->pending = 1;
		q->pending++;
	} else
		s->done = true;
	return 0;
}

/* The queue pair that a datagram is for, if that takes it. */
static struct qp *meant(const struct head *h)
{
	struct qp *q = qps[h->to % MAX_QP];
	if (q == NULL || q->qp.qp_num != h->to || q->qp.qp_type != IBV_QPT_UD || q->attr.qkey != h->key)
		return NULL;
	bool takes = q->qp.state == IBV_QPS_RTR || q->qp.state == IBV_QPS_RTS;
	return takes && own_gid(&h->to_gid) >= 0 && q->rq.waiting.first != NULL ? q : NULL;
}

void ud_deliver(struct peer *from, char *bytes, size_t n)
{
	struct head h;
	if (n < sizeof h || n > sizeof h + UD_MTU)
		return;
	memcpy(&h, bytes, sizeof h);
	struct qp *q = meant(&h);
	if (q == NULL)
		return;
	struct recv *r = q->rq.waiting.first;
	size_t size = n - sizeof h;
	struct gathered g;
	int err = gather(PD(q), r->sge, r->nsge, true, &g);
	if (err == 0 && g.size < GRH + size)
		return; /* a peer that sends too much harms nobody but itself */
	rq_unuse(&q->rq, rq_take(&q->rq));
	uint8_t sl = 0;
	if (err == 0) {
		struct ibv_grh grh;
		peer_gid(from, &h.from_gid);
		sl = grh_write(&grh, &h, size);
		char *at = bytes + sizeof h - GRH;
		memcpy(at, &grh, GRH);
		sge_in(PD(q), r->sge, r->nsge, at, GRH + size);
	}
	struct ibv_wc wc = { .wr_id = r->wr_id, .status = err, .opcode = IBV_WC_RECV, .qp_num = q->qp.qp_num,
		.byte_len = (uint32_t)(GRH + size), .imm_data = h.imm, .src_qp = h.from, .sl = sl,
		.wc_flags = IBV_WC_GRH | (h.has_imm ? IBV_WC_WITH_IMM : 0) };
	cq_put((struct cq *)q->qp.recv_cq, &wc, h.solicited);
	if (err != 0)
		qp_error(q);
}
