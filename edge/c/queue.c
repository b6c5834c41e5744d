/* Receive queues: buffers for the messages of any number of connections (ABI A7.17). */
#include <stdlib.h>

#include "ring.h"
#include "verbs.h"

struct edge_queue {
	edge_device *d;
	uint32_t id, epoch;
};

/* A request that somebody waits for; who gives up leaves it to the handler. */
struct asked { bool done, left; int err; uint32_t queue; };

static void answered(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	struct asked *a = call->obj;
	uint32_t made = err == 0 && m != NULL && m->h.kind == ABI_QUEUE ? m->queue.queue : 0;
	if (!a->left) {
		*a = (struct asked){ .done = true, .err = err, .queue = made };
		news(d);
		return;
	}
	a->left = false; /* of what follows nobody waits either, and a goes with it */
	struct abi_queue none = { .queue = made };
	a->left = made != 0 && control_send(d, &none, sizeof none, ABI_UNQUEUE, -1, answered, a, 0) == 0;
	if (!a->left)
		free(a);
}

static bool is_answered(void *arg)
{
	return ((struct asked *)arg)->done;
}

static int ask(edge_device *d, void *m, size_t size, enum abi_kind kind, uint32_t *queue, int64_t until)
{
	struct asked *a = calloc(1, sizeof *a);
	int err = a == NULL ? EDGE_ERR_NO_MEMORY : control_send(d, m, size, kind, -1, answered, a, 0);
	if (err != 0) {
		free(a);
		return err;
	}
	err = wait_for(d, is_answered, a, answer_by(until));
	if (!a->done) {
		a->left = true;
		return err;
	}
	err = a->err;
	if (queue != NULL)
		*queue = a->queue;
	free(a);
	return err;
}

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
	if (err == 0)
		err = ask(d, &m, sizeof m, ABI_QUEUE, &q->id, until);
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
