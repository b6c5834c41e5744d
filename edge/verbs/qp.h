/* Queue pairs: connections of libedge, and the work requests on them. */
#ifndef EDGE_VERBS_QP_H
#define EDGE_VERBS_QP_H

#include "memory.h"
#include "queue.h"

struct qp;

/* A work request of the send queue. What libedge has no room for, or what is posted before the queue pair is
 * linked, waits in the ring. */
struct send {
	struct work work;
	struct qp *qp;
	uint64_t wr_id, address, compare, operand, result;
	uint32_t rkey, imm, size; /* rkey of a datagram: the number of the queue pair that it goes to */
	uint32_t key;          /* of a datagram: the Q_Key */
	struct ah *ah;         /* of a datagram: the receiver's node */
	uint16_t pending;      /* operations of libedge that go on */
	uint8_t opcode, nsge;
	bool signaled, solicited, fenced, done, half; /* half: of two operations the first is posted */
	bool inlined;
	bool refused;          /* by the daemon, for want of room: it is posted again */
	int err;               /* 0, an enum ibv_wc_status, or an error of libedge */
	struct stage *stage;   /* has the bytes; NULL: they are in sge's memory, or in bytes */
	struct ibv_sge sge[MAX_SGE];
	char *bytes;           /* room for as many as go inline */
};

/* A buffer of a receive queue. */
struct recv {
	struct work work;
	struct qp *qp;         /* NULL: of srq */
	struct srq *srq;
	struct recv *next;     /* of those that are unused, or wait */
	uint64_t wr_id;
	uint32_t size, imm;
	uint8_t nsge;
	bool posted, has_imm, tells;
	int err;               /* as in struct send */
	struct stage *stage;
	struct ibv_sge sge[MAX_SGE];
};

/* [tail, next) are libedge's, [next, head) wait. */
struct sq { /* answers: reads and atomics under way */
	struct send *ring;
	char *inlines;         /* in_ring bytes of each */
	uint32_t in_ring;      /* inline bytes of a work request that libedge takes inline; more are in a stage */
	unsigned room, head, next, tail, answers;
	bool busy;
	bool refused;          /* some were, from `again` on, and so will be what libedge has yet of those behind it */
	unsigned again;
	int64_t until;         /* ms: when they are posted again */
};

/* A receive queue: what is not unused and not libedge's waits. */
struct fifo { struct recv *first, **last; };
struct rq {
	struct recv *all, *unused;
	unsigned room, lent;   /* lent: that libedge has */
	struct fifo back;      /* what libedge gave back without a message; before what waits */
	struct fifo waiting;
};

enum linking { ALONE, AWAITED, DIALLING, LINKED, BROKEN };
struct link { /* link.c */
	enum linking state;
	bool closing;          /* a thread waits in link_close */
	bool served;           /* the connection takes from the shared receive queue already */
	edge_conn *conn;
	edge_conn *back;       /* of a queue pair that is its own peer: the other end, where messages arrive; or NULL */
	char node[65];         /* of the peer, as it is dialled */
	uint32_t high;         /* half of the keys of the peer's protection domain */
	int err;               /* why it is broken */
	int64_t until, again;  /* ms: when dialling is over; when it begins anew */
	int64_t given_up;      /* ms: when work requests may fail since the peer has gone; 0: it has not */
	struct qp *next;       /* of the same bucket of connections */
};

struct qp {
	union { struct ibv_qp qp; struct ibv_qp_ex ex; };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct sq sq;
	struct rq rq;
	struct srq *srq;
	struct link link;
	unsigned pending;      /* operations of libedge that name this */
	unsigned told;         /* asynchronous events that the program took */
	struct batch *batch;   /* of the extended interface */
};

struct srq {
	struct ibv_srq srq;
	edge_queue *queue;
	struct rq rq;
	unsigned posted, limit, users, told;
};

#define PD(q) ((struct pd *)(q)->qp.pd)

static inline bool is_ud(const struct qp *q)
{
	return q->qp.qp_type == IBV_QPT_UD;
}

struct ah;
void ah_put(struct ah *h); /* ah.c: one reference less; NULL is none */

/* send.c */
bool send_open(struct qp *q); /* its queue, as q->init says; false: there is no memory */
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad); /* unlocked */
void send_issue(struct qp *q);  /* gives libedge what waits */
void send_retire(struct qp *q); /* reports what is done, in order */
void send_flush(struct qp *q);
bool sends_look(void); /* posts again what was refused; returns whether some waits yet */
void send_drop(struct send *s);  /* frees what it has */

/* recv.c */
bool rq_open(struct rq *rq, unsigned room, struct recv like); /* false: there is no memory */
void rq_reset(struct rq *rq);              /* what libedge does not have is unused */
struct fifo *rq_first(struct rq *rq);      /* where what is posted next is the first */
struct recv *rq_take(struct rq *rq);       /* takes that; NULL: nothing waits */
void rq_put(struct fifo *f, struct recv *r);
void rq_unuse(struct rq *rq, struct recv *r);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad); /* unlocked */
bool recv_open(struct qp *q, unsigned room); /* of its own; false: there is no memory */
void recv_issue(struct qp *q);
void recv_flush(struct qp *q);
int recv_fill(struct recv *r, const struct ibv_recv_wr *wr); /* 0 or an errno */
int recv_post(struct recv *r, struct pd *pd, edge_conn *c, edge_queue *queue); /* 0, wc status, or error of libedge */
void recv_take(struct recv *r, const struct pd *pd, const edge_completion *c);
void recv_drop(struct recv *r); /* instead: whose it was is destroyed */
void recv_report(struct recv *r, struct qp *q);
bool recv_room(unsigned posted, unsigned most); /* whether libedge may have more of who has posted some there */
void recv_forked(void);

/* srq.c */
void srq_issue(struct srq *s);  /* gives libedge what waits */
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad); /* unlocked */

/* link.c */
int links_open(void);            /* 0 or an error of libedge */
uint32_t link_slot(void);        /* upper bits of our queue pairs' numbers */
void link_begin(struct qp *q);   /* the queue pair knows its peer */
void link_end(struct qp *q);     /* at once; what was posted comes back */
void link_close(struct qp *q);   /* in good order; unlocks meanwhile */
struct qp *link_qp(const edge_conn *c);
/* Whether a failure may be told of. That the peer has gone a NIC notices only after its retries, and a program may be
 * done with it before. */
bool link_gives_up(struct qp *q, int err);
edge_conn *link_receiving(const struct qp *q); /* the connection on which messages arrive */
void links_forked(void);         /* in the child: those of the parent are nothing to it */
EXPORT void link_join(struct qp *q, edge_request *r); /* what is about to be accepted is that queue pair's */
EXPORT void link_up(struct qp *q, edge_conn *c, uint32_t high); /* librdmacm has connected it */
EXPORT void link_down(struct qp *q); /* and ends that in good order: IBV_QPS_ERR; unlocks meanwhile */

/* qp.c */
EXPORT extern struct qp *qps[MAX_QP];   /* by the lower bits of their numbers */
struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *a); /* unlocked */
void qps_retry(void);            /* gives libedge what it had no room for */
void qp_error(struct qp *q);     /* IBV_QPS_ERR, and everything flushes */
int qp_wc_status(int err, bool receives);

/* ex.c: unlocked */
struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);

#endif
