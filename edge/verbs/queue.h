/* Completion queues, and what tells of events. */
#ifndef EDGE_VERBS_QUEUE_H
#define EDGE_VERBS_QUEUE_H

#include "lib.h"

/* event.c. A list of events with a descriptor that is readable while there are some. */
struct event {
	struct event *next;
	void *of; /* the object that it is about */
};
struct inbox {
	int fd;           /* -1: closed */
	unsigned waiting; /* threads */
	struct event *first, **last;
};
EXPORT bool inbox_open(struct inbox *b);
/* Frees what is in it; false: a thread waits, for ever, as it would on a NIC, and the memory must stay. unlocked */
EXPORT bool inbox_close(struct inbox *b);
EXPORT void inbox_put(struct inbox *b, struct event *e);
/* Takes the oldest, waiting for one unless the descriptor was made non-blocking: then errno is EAGAIN. EINTR: a signal
 * came. unlocked */
EXPORT struct event *inbox_take(struct inbox *b, void (*taken)(struct event *e)); /* taken: with the lock held */
EXPORT void inbox_forget(struct inbox *b, const void *of); /* frees those about an object that goes */

struct context {
	struct inbox events;
	struct context *next;
	struct verbs_context v; /* the last, as libibverbs wants it */
};
struct async { struct event e; struct ibv_async_event what; unsigned *told; };
extern struct context *contexts;
struct context *context_of(struct ibv_context *c);
/* told: of the object, counts such events that the program took. */
void async_tell(struct ibv_context *c, enum ibv_event_type type, void *of, unsigned *told);
/* Waits until those are acknowledged, of an object that goes: what libibverbs has in it. unlocked */
void async_wait(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, unsigned told);

/* cq.c */
struct channel { struct ibv_comp_channel channel; struct inbox inbox; };
enum arming { QUIET, ANY, SOLICITED };
struct cq {
	union { struct ibv_cq cq; struct ibv_cq_ex ex; };
	struct ibv_wc *ring;
	unsigned room, head, tail; /* entries [tail, head) */
	enum arming armed;
	unsigned told, async_told; /* events that the program took */
	unsigned users; /* queue pairs */
	bool full;      /* an entry was lost */
	struct ibv_wc current; /* of the extended interface */
};
void cq_put(struct cq *q, const struct ibv_wc *wc, bool solicited);
void cq_forget(struct cq *q, uint32_t qpn);
int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc); /* unlocked */
int cq_arm(struct ibv_cq *cq, int solicited);             /* unlocked */

#endif
