/* Receive queues: buffers for the messages of any number of connections (ABI A7.17). */
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

int edge_queue_serve(edge_queue *q, edge_conn *c, int timeout_ms)
{
	edge_device *d = q->d;
	int64_t until = deadline(timeout_ms);
	if (c->d != d)
		return fail(EDGE_ERR_INVALID, "the connection must be of the queue's device");
	enter(d);
	int err = usable(q);
	if (err == 0)
		err = conn_usable(c);
	struct abi_join m = { .conn = c->id, .queue = q->id };
	if (err == 0)
		err = ask(d, &m, sizeof m, ABI_JOIN, NULL, until);
	return leave(d, err);
}

int edge_queue_post(edge_queue *q, const edge_work *w, edge_op *op)
{
	edge_device *d = q->d;
	enter(d);
	int err = usable(q);
	if (err == 0 && (err = receive_put(d, NULL, q->id, w, op)) == EDGE_ERR_AGAIN && pump(d, false) > 0 &&
	    (err = usable(q)) == 0)
		err = receive_put(d, NULL, q->id, w, op);
	if (err == 0)
		ring_publish(d->ring);
	return leave(d, err);
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
