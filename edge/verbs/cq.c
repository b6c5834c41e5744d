/* Completion queues: rings that the library fills when it looks at libedge's. A poll that finds nothing takes no lock
 * and makes no system call. After some vain ones in a row it gives way (lib.c), unless the core is the program's alone:
 * on few cores the daemon, whom the program waits for, would not run. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "queue.h"

enum { MOST = 1 << 20, VAIN = 3 };

static void tell(struct cq *q)
{
	q->armed = QUIET;
	lib.armed--;
	struct event *e = q->cq.channel == NULL ? NULL : calloc(1, sizeof *e);
	if (e == NULL)
		return;
	e->of = &q->cq;
	inbox_put(&((struct channel *)q->cq.channel)->inbox, e);
}

void cq_put(struct cq *q, const struct ibv_wc *wc, bool solicited)
{
	if (q->head - q->tail == q->room) {
		if (!q->full)
			async_tell(q->cq.context, IBV_EVENT_CQ_ERR, &q->cq, &q->async_told);
		q->full = true;
		return;
	}
	q->ring[q->head++ % q->room] = *wc;
	if (q->armed == ANY || (q->armed == SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS)))
		tell(q);
}

void cq_forget(struct cq *q, uint32_t qpn)
{
	unsigned to = q->tail;
	for (unsigned i = q->tail; i != q->head; i++)
		if (q->ring[i % q->room].qp_num != qpn)
			q->ring[to++ % q->room] = q->ring[i % q->room];
	q->head = to;
}

/* Without the lock: what comes meanwhile the next poll sees. */
static bool looks_empty(const struct cq *q)
{
	return __atomic_load_n(&q->head, __ATOMIC_RELAXED) == __atomic_load_n(&q->tail, __ATOMIC_RELAXED) && !q->full &&
		lib.dev != NULL && !edge_device_ready(lib.dev);
}

int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	static __thread unsigned vain;
	struct cq *q = (struct cq *)cq;
	int i = 0;
	polled();
	if (!looks_empty(q)) {
		lock();
		if (q->head == q->tail)
			progress();
		while (i < n && q->tail != q->head)
			wc[i++] = q->ring[q->tail++ % q->room];
		if (i == 0 && q->full)
			i = -1;
		unlock();
	}
	if (i != 0)
		vain = 0;
	else if (++vain >= VAIN && !alone())
		give_way();
	return i;
}

int cq_arm(struct ibv_cq *cq, int solicited)
{
	struct cq *q = (struct cq *)cq;
	lock();
	if (q->armed == QUIET)
		lib.armed++;
	if (q->armed != ANY)
		q->armed = solicited ? SOLICITED : ANY;
	progress();
	if (q->armed != QUIET)
		wake_thread();
	unlock();
	return 0;
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct channel *h = calloc(1, sizeof *h);
	if (h == NULL || !inbox_open(&h->inbox)) {
		free(h);
		return NULL;
	}
	h->channel.context = c;
	h->channel.fd = h->inbox.fd;
	return &h->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct channel *h = (struct channel *)channel;
	lock();
	bool busy = channel->refcnt > 0;
	unlock();
	if (busy)
		return EBUSY;
	if (inbox_close(&h->inbox))
		free(h);
	return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *channel,
                                    int vector)
{
	struct cq *q = NULL;
	if (cqe < 1 || cqe > MOST || vector < 0 || vector >= c->num_comp_vectors)
		errno = EINVAL;
	else
		q = calloc(1, sizeof *q);
	if (q == NULL)
		return NULL;
	q->room = 16;
	while (q->room < (unsigned)cqe)
		q->room *= 2;
	q->ring = calloc(q->room, sizeof *q->ring);
	if (q->ring == NULL) {
		free(q);
		return NULL;
	}
	q->cq = (struct ibv_cq){ .context = c, .channel = channel, .cq_context = context, .cqe = (int)q->room };
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	lock();
	if (channel != NULL)
		channel->refcnt++;
	unlock();
	return &q->cq;
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct cq *q = (struct cq *)cq;
	unsigned room = 16;
	while (cqe <= MOST && room < (unsigned)cqe)
		room *= 2;
	struct ibv_wc *ring = cqe < 1 || cqe > MOST ? NULL : calloc(room, sizeof *ring);
	if (ring == NULL)
		return cqe < 1 || cqe > MOST ? EINVAL : ENOMEM;
	lock();
	unsigned n = q->head - q->tail;
	if (n > room) {
		unlock();
		free(ring);
		return EINVAL;
	}
	for (unsigned i = 0; i < n; i++)
		ring[i] = q->ring[(q->tail + i) % q->room];
	free(q->ring);
	q->ring = ring;
	q->room = room;
	q->tail = 0;
	q->head = n;
	cq->cqe = (int)room;
	unlock();
	return 0;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct cq *q = (struct cq *)cq;
	lock();
	if (q->users > 0) {
		unlock();
		return EBUSY;
	}
	if (q->armed != QUIET)
		lib.armed--;
	if (cq->channel != NULL) {
		inbox_forget(&((struct channel *)cq->channel)->inbox, cq);
		cq->channel->refcnt--;
	}
	inbox_forget(&context_of(cq->context)->events, cq);
	unsigned told = q->told, async_told = q->async_told; /* no more are taken */
	unlock();
	async_wait(&cq->mutex, &cq->cond, &cq->comp_events_completed, told);
	async_wait(&cq->mutex, &cq->cond, &cq->async_events_completed, async_told);
	free(q->ring);
	free(q);
	return 0;
}

/* From here on the queue stays until the event is acknowledged. */
static void taken(struct event *e)
{
	((struct cq *)e->of)->told++;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct event *e = inbox_take(&((struct channel *)channel)->inbox, taken);
	if (e == NULL)
		return -1;
	*cq = e->of;
	*context = (*cq)->cq_context;
	free(e);
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
