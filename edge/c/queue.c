/* Receive queues: buffers for the messages of any number of connections, and buffers before a connection is accepted
 * (ABI A7.17). */
#include <stdlib.h>

#include "ring.h"
#include "verbs.h"

struct edge_queue {
	edge_device *d;
	uint32_t id, epoch;
};

int edge_queue_open(edge_device *d, edge_queue **queue, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	edge_queue *q = calloc(1, sizeof *q);
	if (q == NULL)
		return EDGE_ERR_NO_MEMORY;
	enter(d);
	int err = attach_current(d, until);
	if (err == 0)
		err = check_feature(d, EDGE_FEATURE_MESSAGES, "messages");
	*q = (edge_queue){ .d = d, .epoch = d->epoch };
	struct abi_header m;
	uint64_t made = 0;
	if (err == 0)
		err = ask(d, &m, sizeof m, ABI_QUEUE, &made, until);
	q->id = (uint32_t)made;
	if (err == 0)
		*queue = q;
	else
		free(q);
	return leave(d, err);
}

static int usable(const edge_queue *q)
{
	return q->d->dead != 0 ? q->d->dead
	       : q->epoch != q->d->epoch || !q->d->attached ? EDGE_ERR_DAEMON_DOWN : 0;
}

/* Whether a connection that waits to be accepted may be given buffers: 0, or why not. */
static int early(const edge_conn *c)
{
	return c->state != ASKED ? c->err : check_feature(c->d, EDGE_FEATURE_EARLY, "buffers before accept");
}

static int join(edge_queue *q, edge_conn *c, int (*may)(const edge_conn *), int timeout_ms)
{
	edge_device *d = q->d;
	int64_t until = deadline(timeout_ms);
	if (c->d != d)
		return fail(EDGE_ERR_INVALID, "the connection must be of the queue's device");
	enter(d);
	int err = usable(q);
	if (err == 0)
		err = may(c);
	struct abi_join m = { .conn = c->id, .queue = q->id };
	if (err == 0)
		err = ask(d, &m, sizeof m, ABI_JOIN, NULL, until);
	return leave(d, err);
}

int edge_queue_serve(edge_queue *q, edge_conn *c, int timeout_ms)
{
	return join(q, c, conn_usable, timeout_ms);
}

int edge_request_serve(edge_request *r, edge_queue *q, int timeout_ms)
{
	return join(q, r->c, early, timeout_ms);
}

/* Posts a buffer of a connection, or of a queue, as long as that is usable. */
static int post(edge_device *d, edge_conn *c, const edge_queue *q, const edge_work *w, edge_op *op)
{
	uint32_t queue = q != NULL ? q->id : 0;
	enter(d);
	int err = q != NULL ? usable(q) : early(c);
	if (err == 0 && (err = receive_put(d, c, queue, w, op)) == EDGE_ERR_AGAIN && pump(d, false) > 0 &&
	    (err = q != NULL ? usable(q) : early(c)) == 0)
		err = receive_put(d, c, queue, w, op);
	if (err == 0)
		ring_publish(d);
	return leave(d, err);
}

int edge_queue_post(edge_queue *q, const edge_work *w, edge_op *op)
{
	return post(q->d, NULL, q, w, op);
}

int edge_request_post(edge_request *r, const edge_work *w, edge_op *op)
{
	return post(r->c->d, r->c, NULL, w, op);
}

int edge_queue_close(edge_queue *q, int timeout_ms)
{
	if (q == NULL)
		return 0;
	edge_device *d = q->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	struct abi_queue m = { .queue = q->id };
	int err = usable(q) == 0 ? ask(d, &m, sizeof m, ABI_UNQUEUE, NULL, until) : 0;
	if (err == EDGE_ERR_DAEMON_DOWN)
		err = 0; /* it went with the daemon */
	if (err == 0)
		free(q);
	return leave(d, err);
}
