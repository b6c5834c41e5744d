/* Operations: op.c their slots and ends, work.c what the program asks for, eager.c composed messages, queue.c receive
 * queues, bounce.c ordinary memory. */
#ifndef EDGE_VERBS_H
#define EDGE_VERBS_H

#include <stdatomic.h>

#include "conn.h"

struct slot {
	_Atomic uint32_t gen; /* odd: in flight */
	uint32_t next;        /* in the list of free slots, or of completions to be taken */
	edge_conn *conn;      /* NULL: a buffer of a receive queue */
	edge_region *region;
	uint64_t *result;     /* of an atomic */
	uint32_t npieces;     /* further regions, in ops.pieces */
	bool awaited;         /* its completion is to wake the program: await_more */
	bool counted;         /* likewise, together with those of others */
	uint32_t composing;   /* bytes of a message that is neither committed nor aborted; else 0 */
	edge_completion end;  /* to be taken, if it has a context */
};

struct failure { uint64_t key; uint32_t next; int err; };

/* Free slots. The next one is as far behind the one behind a slot as its next says, so that memory that was never used
 * is a list, and an attachment fills none of it. */
struct pool { uint32_t first, n; };

struct ops {
	struct slot *slots; /* depth of operations, and as many of receives behind them */
	edge_region *(*pieces)[EDGE_MAX_PIECES]; /* of each slot; NULL until one has pieces */
	uint32_t depth;
	struct pool free[2]; /* of operations, of receives */
	uint32_t done_first, done_last; /* completions to be taken */
	struct failure *failures;       /* FAILURES, and the heads of their chains */
	uint32_t *heads, nfailures;
	bool any_failure;
};

/* op.c */
int ops_open(struct ops *o, uint32_t depth);
void ops_close(struct ops *o);
bool ops_take(edge_device *d, const struct abi_cqe *e);
bool ops_late(edge_device *d, const struct abi_cqe *e);
void ops_forget_conn(struct ops *o, const edge_conn *c);
void ops_fail_all(edge_device *d, int err);
bool op_room(const edge_conn *c, uint32_t entries);
int op_launch(edge_device *d, edge_conn *c, const edge_work *w, struct abi_sqe *e, edge_op *op);
uint64_t op_key(const edge_op *op);
int op_result(const edge_op *op);
bool op_settled(const edge_op *op);

/* work.c */
int work_encode(edge_conn *c, const edge_work *w, struct abi_sqe *e);
int op_put(edge_conn *c, const edge_work *w, edge_op *op);
int receive_put(edge_device *d, edge_conn *c, uint32_t queue, const edge_work *w, edge_op *op);

/* bounce.c */
void bounce_close(edge_device *d);

#endif
