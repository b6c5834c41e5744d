/*
 * Work requests of the send queue. They are given to libedge in their order, complete in that order, since the
 * connection is ordered, and the first that fails puts the queue pair into error.
 *
 * A write with immediate is two operations: the write, and a message without bytes that says how long it was and
 * uses up a receive. If the write is refused, so is the message (PROTOCOL clause 20.3).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ud.h"

static const uint8_t completes_as[] = { [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ, [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD };

enum { OLD_INLINE = 24 }; /* bytes that a daemon takes without EDGE_FEATURE_BYTES */
enum { RNR_US = 20000 }; /* how long a send waits for a receive at least: the peer's credit takes a moment to come */

enum { AGAIN_MS = 1 };
static bool refusals; /* some queue pair has work requests that were refused */

static bool resumes(void)
{
	return lib.dev != NULL && edge_device_features(lib.dev) & EDGE_FEATURE_RESUME;
}

static bool is_atomic(int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

bool send_open(struct qp *q)
{
	struct sq *sq = &q->sq;
	const struct ibv_qp_cap *cap = &q->init.cap;
	bool many = lib.dev != NULL && edge_device_features(lib.dev) & EDGE_FEATURE_BYTES;
	uint32_t most = many ? EDGE_MAX_INLINE : OLD_INLINE;
	sq->room = cap->max_send_wr;
	sq->in_ring = is_ud(q) ? 0 : cap->max_inline_data < most ? cap->max_inline_data : most;
	sq->ring = calloc(sq->room, sizeof *sq->ring);
	sq->inlines = calloc(sq->room, sq->in_ring + 1);
	return sq->ring != NULL && sq->inlines != NULL;
}

void send_drop(struct send *s)
{
	stage_put(s->stage);
	ah_put(s->ah);
	s->stage = NULL;
	s->ah = NULL;
}

void send_retire(struct qp *q)
{
	struct sq *sq = &q->sq;
	while (sq->tail != sq->next && sq->ring[sq->tail % sq->room].done) {
		struct send *s = &sq->ring[sq->tail % sq->room];
		if (q->qp.state == IBV_QPS_RTS && !link_gives_up(q, s->err))
			return;
		sq->tail++;
		send_drop(s);
		bool flushed = q->qp.state == IBV_QPS_ERR;
		int status = flushed ? IBV_WC_WR_FLUSH_ERR : qp_wc_status(s->err, false);
		if (status != IBV_WC_SUCCESS && !flushed)
			say("queue pair %#x: opcode %u at %#lx with key %#x: %s", q->qp.qp_num, s->opcode,
			    (unsigned long)s->address, s->rkey, s->err < 0 ? edge_strerror(s->err) : ibv_wc_status_str(status));
		struct ibv_wc wc = { .wr_id = s->wr_id, .status = status, .opcode = completes_as[s->opcode],
			.byte_len = s->size, .qp_num = q->qp.qp_num };
		if (s->signaled || status != IBV_WC_SUCCESS)
			cq_put((struct cq *)q->qp.send_cq, &wc, false);
		if (status != IBV_WC_SUCCESS && !flushed)
			qp_error(q);
	}
}

void send_flush(struct qp *q)
{
	if (q->sq.refused) {
		q->sq.refused = false;
		q->sq.next = q->sq.again;
	}
	for (; q->sq.next != q->sq.head; q->sq.next++) {
		struct send *s = &q->sq.ring[q->sq.next % q->sq.room];
		s->err = s->err != 0 ? s->err : IBV_WC_WR_FLUSH_ERR;
		s->half = s->refused = false;
		s->done = s->pending == 0;
	}
	send_retire(q);
}

/* Whether it brings bytes, which a fenced request behind it may send. */
static bool answered(const struct send *s)
{
	return s->opcode == IBV_WR_RDMA_READ || is_atomic(s->opcode);
}

/* An operation was refused for want of room in the daemon: it waits, and what is behind it as well. Of a write with
 * immediate the message alone may be refused. */
static void refuse(struct qp *q, struct send *s, int kind)
{
	struct sq *sq = &q->sq;
	if (!sq->refused) {
		sq->refused = true;
		for (sq->again = sq->tail; &sq->ring[sq->again % sq->room] != s; sq->again++)
			;
	}
	s->half = kind == EDGE_TELL && !s->refused;
	s->refused = true;
	sq->until = now_ms() + AGAIN_MS;
	if (!refusals)
		wake_thread();
	refusals = lib.starved = true;
}

/* Begins anew with what was refused, if libedge has nothing of it any more. */
static bool again(struct qp *q)
{
	struct sq *sq = &q->sq;
	for (unsigned i = sq->again; i != sq->head; i++)
		if (sq->ring[i % sq->room].pending > 0)
			return false;
	if (now_ms() < sq->until || edge_conn_resume(q->link.conn) == EDGE_ERR_AGAIN)
		return false;
	for (unsigned i = sq->again; i != sq->head; i++)
		sq->ring[i % sq->room].refused = sq->ring[i % sq->room].done = false;
	sq->refused = false;
	sq->next = sq->again;
	return true;
}

bool sends_look(void)
{
	if (!refusals)
		return false;
	refusals = false;
	for (int i = 0; i < MAX_QP; i++)
		if (qps[i] != NULL && qps[i]->sq.refused) {
			send_issue(qps[i]);
			refusals |= qps[i]->sq.refused;
		}
	return refusals;
}

/* An operation of libedge has ended. */
static void sent(struct work *w, const edge_completion *c)
{
	struct send *s = (struct send *)w;
	struct qp *q = s->qp;
	q->pending--;
	lib.sends--;
	lib.ended++;
	q->sq.answers -= answered(s);
	if (c->err == EDGE_ERR_QUOTA && q->qp.state == IBV_QPS_RTS && resumes())
		refuse(q, s, c->kind);
	else if (c->err != 0 && s->err == 0)
		s->err = c->err;
	if (--s->pending == 0 && !s->half && !s->refused) {
		s->done = true;
		if (s->err == 0 && is_atomic(s->opcode))
			sge_in(PD(q), s->sge, s->nsge, (char *)&s->result, 8);
		else if (s->err == 0 && s->opcode == IBV_WR_RDMA_READ && s->stage != NULL)
			sge_in(PD(q), s->sge, s->nsge, s->stage->bytes, s->size);
		send_retire(q);
	}
	if (q->sq.next != q->sq.head)
		send_issue(q);
}

/* Fills in the local memory of an operation. */
static int local(struct qp *q, struct send *s, edge_work *k, struct gathered *g)
{
	if (s->inlined && s->stage == NULL) {
		k->inline_data = s->bytes;
		k->inline_size = s->size;
		return 0;
	}
	if (s->stage == NULL) {
		bool reads = s->opcode == IBV_WR_RDMA_READ;
		int err = gather(PD(q), s->sge, s->nsge, reads, g);
		if (err != 0)
			return err;
		s->size = (uint32_t)g->size;
		if (g->staged) {
			if ((s->stage = stage_get(g->size)) == NULL)
				return IBV_WC_LOC_QP_OP_ERR;
			if (!reads)
				sge_out(PD(q), s->sge, s->nsge, s->stage->bytes);
		} else if (g->n > 1) {
			k->pieces = g->piece;
			k->npieces = g->n;
			return 0;
		} else if (g->n == 1) {
			k->local = g->piece[0].region;
			k->local_off = g->piece[0].off;
			k->size = g->piece[0].size;
			return 0;
		} else
			return 0;
	}
	k->local = s->stage->region;
	k->local_off = s->stage->off;
	k->size = s->size;
	return 0;
}

/* Posts one operation. */
static int put(struct qp *q, struct send *s, edge_work *k)
{
	k->context = &s->work;
	if (s->fenced)
		k->flags |= EDGE_BACKWARD_FENCE;
	int err = edge_post(q->link.conn, k, NULL);
	if (err == 0) {
		s->pending++;
		q->pending++;
		lib.sends++;
		q->sq.answers += answered(s);
	}
	return err;
}

static int put_message(struct qp *q, struct send *s, edge_work *k)
{
	if (q->attr.rnr_retry != 7)
		k->patience_us = RNR_US * (1 + (int64_t)q->attr.rnr_retry);
	if (s->opcode != IBV_WR_SEND) {
		k->flags |= EDGE_NOTIFY;
		k->imm = s->imm;
	}
	return put(q, s, k);
}

static int put_atomic(struct qp *q, struct send *s)
{
	bool swaps = s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct gathered g;
	int err = gather(PD(q), s->sge, s->nsge, true, &g);
	if (err != 0 || g.size != 8)
		return err != 0 ? err : IBV_WC_LOC_LEN_ERR;
	edge_work k = { .kind = EDGE_ATOMIC, .size = 8, .key = (uint64_t)q->link.high << 32 | s->rkey,
		.remote_off = s->address, .func = swaps ? EDGE_COMPARE_SWAP : EDGE_FETCH_ADD, .operand = s->operand,
		.compare = s->compare, .result = &s->result };
	s->size = 8;
	return put(q, s, &k);
}

/* Gives libedge a work request: 0, EDGE_ERR_AGAIN if there is no room now, or why it fails. */
static int issue(struct qp *q, struct send *s)
{
	edge_work k = { 0 };
	struct gathered g;
	if (is_atomic(s->opcode))
		return put_atomic(q, s);
	bool writes = s->opcode == IBV_WR_RDMA_WRITE || s->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	if (!s->half) {
		int err = local(q, s, &k, &g);
		if (err != 0)
			return err;
		k.kind = writes ? EDGE_WRITE : s->opcode == IBV_WR_RDMA_READ ? EDGE_READ : EDGE_SEND;
		if (k.kind == EDGE_SEND)
			return put_message(q, s, &k);
		k.key = (uint64_t)q->link.high << 32 | s->rkey;
		k.remote_off = s->address;
		s->half = s->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		err = s->size > 0 ? put(q, s, &k) : 0; /* without bytes there is no memory to be asked for */
		if (err != 0) {
			s->half = false;
			return err;
		}
		s->done = s->size == 0 && !s->half;
	}
	if (!s->half)
		return 0;
	edge_work told = { .kind = EDGE_TELL, .wrote = s->size };
	int err = put_message(q, s, &told);
	s->half = err != 0;
	return err;
}

void send_issue(struct qp *q)
{
	struct sq *sq = &q->sq;
	if (sq->busy || (q->link.state != LINKED && q->link.state != BROKEN && !is_ud(q)))
		return;
	if (sq->refused && q->link.state == LINKED && !again(q))
		return;
	sq->busy = true; /* what fails on the way leads here again */
	while (sq->next != sq->head && q->qp.state == IBV_QPS_RTS) {
		struct send *s = &sq->ring[sq->next % sq->room];
		if (s->fenced && sq->answers > 0)
			break;
		int err = q->link.state == BROKEN ? q->link.err : is_ud(q) ? ud_issue(q, s) : issue(q, s);
		if (err == EDGE_ERR_AGAIN) {
			lib.starved = true;
			break;
		}
		sq->next++;
		if (err != 0) {
			s->err = s->err != 0 ? s->err : err;
			s->half = false;
			s->done = s->pending == 0;
		}
		if (s->done)
			send_retire(q);
	}
	sq->busy = false;
}

/* Copies inline data. */
static int take_inline(struct send *s, const struct ibv_send_wr *wr)
{
	size_t n = 0, before = is_ud(s->qp) ? sizeof(struct head) : 0;
	for (int i = 0; i < wr->num_sge; i++)
		n += wr->sg_list[i].length;
	if (n > s->qp->init.cap.max_inline_data)
		return EINVAL;
	if ((before > 0 || n > s->qp->sq.in_ring) && (s->stage = stage_get(before + n)) == NULL)
		return ENOMEM;
	char *to = s->stage != NULL ? s->stage->bytes + before : s->bytes;
	for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length)
		memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	s->size = (uint32_t)n;
	s->inlined = true;
	return 0;
}

/* Checks a work request and enters it into the ring: 0 or an errno. */
static int enter(struct qp *q, const struct ibv_send_wr *wr)
{
	struct sq *sq = &q->sq;
	if (q->qp.state != IBV_QPS_RTS && q->qp.state != IBV_QPS_ERR)
		return EINVAL;
	if (sq->head - sq->tail == q->init.cap.max_send_wr)
		return ENOMEM;
	if ((unsigned)wr->opcode >= sizeof completes_as || wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD)
		return EOPNOTSUPP; /* memory windows, offloads */
	if (wr->num_sge < 0 || (unsigned)wr->num_sge > q->init.cap.max_send_sge)
		return EINVAL;
	if (is_ud(q) && ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) || wr->wr.ud.ah == NULL))
		return EINVAL;
	struct send *s = &sq->ring[sq->head % sq->room];
	*s = (struct send){ .bytes = sq->inlines + (size_t)(sq->head % sq->room) * sq->in_ring, .work.done = sent,
		.qp = q, .wr_id = wr->wr_id, .opcode = (uint8_t)wr->opcode,
		.nsge = (uint8_t)wr->num_sge, .imm = wr->imm_data, .fenced = wr->send_flags & IBV_SEND_FENCE,
		.solicited = wr->send_flags & IBV_SEND_SOLICITED,
		.signaled = q->init.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) };
	if (is_atomic(wr->opcode)) {
		bool swaps = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
		s->address = wr->wr.atomic.remote_addr;
		s->rkey = wr->wr.atomic.rkey;
		s->operand = swaps ? wr->wr.atomic.swap : wr->wr.atomic.compare_add;
		s->compare = swaps ? wr->wr.atomic.compare_add : 0;
	} else if (is_ud(q)) {
		s->rkey = wr->wr.ud.remote_qpn;
		s->key = wr->wr.ud.remote_qkey >> 31 ? q->attr.qkey : wr->wr.ud.remote_qkey; /* the specification's rule */
	} else {
		s->address = wr->wr.rdma.remote_addr;
		s->rkey = wr->wr.rdma.rkey;
	}
	bool reads = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr->opcode);
	if (wr->num_sge > 0)
		memcpy(s->sge, wr->sg_list, sizeof s->sge[0] * (size_t)wr->num_sge);
	int err = (wr->send_flags & IBV_SEND_INLINE) && !reads ? take_inline(s, wr) : 0;
	if (err != 0)
		return err;
	if (is_ud(q))
		(s->ah = (struct ah *)wr->wr.ud.ah)->refs++;
	sq->head++;
	return 0;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	int err = 0;
	lock();
	if (q->sq.head - q->sq.tail == q->init.cap.max_send_wr)
		progress();
	for (; wr != NULL && (err = enter(q, wr)) == 0; wr = wr->next)
		;
	if (err != 0)
		*bad = wr;
	if (q->qp.state == IBV_QPS_ERR)
		send_flush(q);
	else
		send_issue(q);
	unlock();
	return err;
}
