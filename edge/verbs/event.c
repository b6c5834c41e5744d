/* Events: those of completion queues, and the asynchronous ones of a context. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "queue.h"

enum { WAIT_MS = 1000 };

struct context *contexts;

bool inbox_open(struct inbox *b)
{
	b->fd = eventfd(0, EFD_CLOEXEC);
	b->waiting = 0;
	b->first = NULL;
	b->last = &b->first;
	return b->fd >= 0;
}

bool inbox_close(struct inbox *b)
{
	lock();
	for (struct event *e; (e = b->first) != NULL; free(e))
		b->first = e->next;
	b->last = &b->first;
	if (b->fd >= 0)
		close(b->fd);
	b->fd = -1;
	bool unused = b->waiting == 0;
	unlock();
	return unused;
}

void inbox_put(struct inbox *b, struct event *e)
{
	uint64_t one = 1;
	e->next = NULL;
	*b->last = e;
	b->last = &e->next;
	if (b->first == e && write(b->fd, &one, sizeof one) < 0)
		say("an event cannot be told");
}

static void empty(struct inbox *b)
{
	uint64_t n;
	b->last = &b->first;
	if (read(b->fd, &n, sizeof n) < 0) /* it is readable: inbox_put wrote when the first came */
		say("an event was told twice");
}

/* Whether some signal is to interrupt calls that wait (qperf ends its tests so): it has a handler without SA_RESTART.
 * */
static bool signals_interrupt(void)
{
	for (int i = 1; i < SIGRTMIN; i++) {
		struct sigaction a;
		if (i == SIGSEGV || i == SIGBUS || i == SIGILL || i == SIGFPE)
			continue; /* errors */
		if (sigaction(i, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN &&
		    !(a.sa_flags & SA_RESTART))
			return true;
	}
	return false;
}

/* A thread that was cancelled while it waited. */
static void left(void *inbox)
{
	lock();
	((struct inbox *)inbox)->waiting--;
	unlock();
}

static struct event *take(struct inbox *b, void (*taken)(struct event *e), const sigset_t *before)
{
	lock();
	b->waiting++;
	for (;;) {
		progress();
		step();
		while (b->fd < 0) {
			unlock();
			sigsuspend(before);
			lock();
		}
		struct event *e = b->first;
		if (e != NULL && (b->first = e->next) == NULL)
			empty(b);
		bool blocks = !(fcntl(b->fd, F_GETFL) & O_NONBLOCK);
		if (e != NULL || !blocks) {
			b->waiting--;
			if (e != NULL && taken != NULL)
				taken(e);
			unlock();
			errno = EAGAIN;
			return e;
		}
		int fd = b->fd;
		unlock();
		bool cut;
		pthread_cleanup_push(left, b);
		cut = wait_for(fd, WAIT_MS) && signals_interrupt();
		pthread_cleanup_pop(0);
		lock();
		if (cut) {
			b->waiting--;
			unlock();
			errno = EINTR;
			return NULL;
		}
	}
}

/* A signal that comes before the thread sleeps ends the wait all the same, as it would a NIC's: so all are blocked
 * but while it sleeps. */
struct event *inbox_take(struct inbox *b, void (*taken)(struct event *e))
{
	sigset_t all, before;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* adopt.c */
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGFPE);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	wait_signals(&before);
	struct event *e = take(b, taken, &before);
	int err = errno;
	wait_signals(NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = err;
	return e;
}

void inbox_forget(struct inbox *b, const void *of)
{
	bool any = b->first != NULL;
	for (struct event **at = &b->first, *e; (e = *at) != NULL;) {
		if (e->of == of) {
			*at = e->next;
			free(e);
		} else
			at = &e->next;
		b->last = at;
	}
	if (any && b->first == NULL)
		empty(b);
}

struct context *context_of(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, v) - offsetof(struct verbs_context, context));
}

void async_tell(struct ibv_context *c, enum ibv_event_type type, void *of, unsigned *told)
{
	struct async *a = calloc(1, sizeof *a);
	if (a == NULL)
		return;
	a->e.of = of;
	a->told = told;
	a->what.event_type = type;
	if (of != NULL)
		a->what.element.qp = of; /* whichever of the union */
	else
		a->what.element.port_num = 1;
	inbox_put(&context_of(c)->events, &a->e);
}

/* From here on the object stays until the event is acknowledged. */
static void taken(struct event *e)
{
	unsigned *told = ((struct async *)e)->told;
	if (told != NULL)
		++*told;
}

EXPORT int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	struct event *e = inbox_take(&context_of(c)->events, taken);
	if (e == NULL)
		return -1;
	*event = ((struct async *)e)->what;
	free(e);
	return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	}
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	}
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	}
	default:
		break; /* of the device */
	}
}

void async_wait(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, unsigned told)
{
	cancel_off(); /* one that ended in the wait would leave the mutex locked */
	pthread_mutex_lock(mutex);
	while (*completed != told)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
	cancel_on();
}
