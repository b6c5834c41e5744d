/* Shared receive queues: receive queues of libedge, and what does not fit into those. */
#include <errno.h>
#include <stdlib.h>

#include "qp.h"

enum { DEEPEST = 2048 }; /* of the receives that libedge has, which all queues share */

static void unuse(struct srq *s, struct recv *r)
{
	s->posted--;
	rq_unuse(&s->rq, r);
}

void srq_issue(struct srq *s)
{
	for (struct recv *r; (r = rq_first(&s->rq)->first) != NULL && recv_room(s->rq.lent, DEEPEST);) {
		int err = recv_post(r, (struct pd *)s->srq.pd, NULL, s->queue);
		if (err == EDGE_ERR_AGAIN)
			return;
		rq_take(&s->rq);
		if (err == 0) {
			s->rq.lent++;
			continue;
		}
		say("a buffer of a shared receive queue is lost: %s", err < 0 ? edge_message(err) : "it lies in no region");
		unuse(s, r);
	}
}

static void received(struct work *w, const edge_completion *c)
{
	struct recv *r = (struct recv *)w;
	struct srq *s = r->srq;
	struct qp *q = c->conn != NULL ? link_qp(c->conn) : NULL;
	s->rq.lent--;
	if (s->queue == NULL) { /* it is destroyed: its domain may be gone as well, and no message is awaited */
		recv_drop(r);
		return;
	}
	recv_take(r, (struct pd *)s->srq.pd, c);
	if (c->err == EDGE_ERR_QUOTA) { /* it is posted again, without pieces */
		rq_put(&s->rq.back, r);
		srq_issue(s);
		return;
	}
	if (q != NULL)
		recv_report(r, q);
	unuse(s, r);
	if (s->limit > 0 && s->posted < s->limit) {
		s->limit = 0;
		async_tell(s->srq.context, IBV_EVENT_SRQ_LIMIT_REACHED, &s->srq, &s->told);
	}
	srq_issue(s);
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *s = (struct srq *)srq;
	int err = 0;
	lock();
	for (; wr != NULL; wr = wr->next) {
		struct recv *r = s->rq.unused;
		struct gathered g;
		err = r == NULL ? ENOMEM : recv_fill(r, wr);
		if (err == 0 && gather((struct pd *)srq->pd, r->sge, r->nsge, true, &g) != 0)
			err = EINVAL;
		if (err != 0) {
			*bad = wr;
			break;
		}
		s->rq.unused = r->next;
		s->posted++;
		rq_put(&s->rq.waiting, r);
	}
	srq_issue(s);
	unlock();
	return err;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	if (a->attr.max_wr < 1 || a->attr.max_wr > MAX_WR || a->attr.max_sge > MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	struct srq *s = calloc(1, sizeof *s);
	if (s == NULL || !rq_open(&s->rq, a->attr.max_wr, (struct recv){ .work.done = received, .srq = s })) {
		free(s);
		errno = ENOMEM;
		return NULL;
	}
	s->srq = (struct ibv_srq){ .context = pd->context, .srq_context = a->srq_context, .pd = pd };
	pthread_mutex_init(&s->srq.mutex, NULL);
	pthread_cond_init(&s->srq.cond, NULL);
	lock();
	int err = edge_queue_open(lib.dev, &s->queue, ASK_MS);
	if (err == 0)
		((struct pd *)pd)->refs++;
	unlock();
	if (err != 0) {
		say("no receive queue: %s", edge_message(err));
		free(s->rq.all);
		free(s);
		errno = err == EDGE_ERR_LIMIT ? ENOMEM : EIO;
		return NULL;
	}
	a->attr.max_sge = MAX_SGE;
	return &s->srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	struct srq *s = (struct srq *)srq;
	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP; /* device_cap_flags do not promise it */
	if ((mask & IBV_SRQ_LIMIT) && a->srq_limit > s->rq.room)
		return EINVAL;
	lock();
	if (mask & IBV_SRQ_LIMIT)
		s->limit = a->srq_limit;
	if (s->limit > 0 && s->posted < s->limit) {
		s->limit = 0;
		async_tell(srq->context, IBV_EVENT_SRQ_LIMIT_REACHED, srq, &s->told);
	}
	unlock();
	return 0;
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	struct srq *s = (struct srq *)srq;
	lock();
	*a = (struct ibv_srq_attr){ .max_wr = s->rq.room, .max_sge = MAX_SGE, .srq_limit = s->limit };
	unlock();
	return 0;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct srq *s = (struct srq *)srq;
	lock();
	int err = s->users > 0 ? EBUSY : 0;
	if (err == 0) {
		if (edge_queue_close(s->queue, ASK_MS) == EDGE_ERR_BUSY) {
			err = EBUSY; /* a connection is about to end */
		} else {
			s->queue = NULL; /* nothing is posted any more */
			rq_reset(&s->rq);
		}
		int64_t until = now_ms() + ASK_MS;
		while (err == 0 && s->rq.lent > 0 && now_ms() < until) {
			unlock();
			wait_for(-1, 1);
			lock();
			progress();
		}
		inbox_forget(&context_of(srq->context)->events, srq);
		if (err == 0)
			((struct pd *)srq->pd)->refs--;
	}
	bool unused = s->rq.lent == 0;
	unsigned told = s->told;
	unlock();
	if (err == 0)
		async_wait(&srq->mutex, &srq->cond, &srq->events_completed, told);
	if (err == 0 && unused) {
		free(s->rq.all);
		free(s);
	}
	return err;
}
