/*
 * A fabric has a device of its own; all that happens, happens in progress, which every reading of a queue runs. Who
 * sleeps on a queue sleeps on the device's descriptor and on an eventfd of the queue: another thread may make progress
 * in its place.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fabric.h"

enum { CHANGES = 32, LOCAL_EACH = 32, ROUNDS = 64 };

/* How a program that asks again and again, and does nothing else, gives way. */
enum { FREE = 16,    /* questions after one that was answered: who reads until nothing is left is not waiting */
       ELSE = 10000, /* ns between two questions: it does something else */
       NAP = 250000  /* how long the answer may take then, unless something comes */ };

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When a wait is over; negative: never. */
int64_t until_ns(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : now_ns() + timeout_ms * (int64_t)1000000;
}

int64_t left_ns(int64_t until)
{
	int64_t left = until < 0 ? -1 : until - now_ns();
	return until >= 0 && left < 0 ? 0 : left;
}

static void step(struct watched *w)
{
	if (w->step != NULL)
		w->step(w);
}

/* Lets those endpoints go on that had more to read than was their turn. */
static void go_on(struct fabric *f)
{
	struct watched *w = f->ready;
	f->ready = NULL;
	for (struct watched *next; w != NULL; w = next) {
		next = w->ready;
		w->queued = false;
		step(w);
	}
}

void queue_step(struct fabric *f, struct watched *w)
{
	if (w->queued)
		return;
	w->queued = true;
	w->ready = f->ready;
	f->ready = w;
}

void unqueue_step(struct fabric *f, struct watched *w)
{
	struct watched **at = &f->ready;
	while (w->queued && *at != w)
		at = &(*at)->ready;
	if (w->queued)
		*at = w->ready;
	w->queued = false;
}

static void take_local(struct fabric *f)
{
	struct epoll_event e[CHANGES];
	int n = epoll_wait(f->local, e, CHANGES, 0);
	for (int i = 0; i < n; i++)
		step(e[i].data.ptr);
}

void finish_work(struct fabric *f, int timeout_ms)
{
	edge_completion c[CHANGES];
	int n = f->working == 0 ? 0 : edge_completions_wait(f->dev, c, CHANGES, timeout_ms);
	for (int i = 0; i < n; i++) {
		struct work *w = c[i].context;
		f->working--;
		w->done(w, &c[i]);
	}
}

/* Takes what has happened. Sockets cost a system call: where none is connected it is enough to look now and then. */
static void take(struct fabric *f)
{
	void *changed[CHANGES];
	if (f->ready != NULL)
		go_on(f);
	if (f->nlocal > 0 || f->waiting > 0 || f->polls++ % LOCAL_EACH == 0)
		take_local(f);
	bool news = edge_device_poll(f->dev) > 0;
	finish_work(f, 0);
	if (!news)
		return;
	int n;
	do {
		n = edge_changed(f->dev, changed, CHANGES);
		for (int i = 0; i < n; i++)
			step(changed[i]);
	} while (n == CHANGES);
}

/* A child of fork has nothing to wait for. */
bool forked(struct fabric *f)
{
	return edge_device_error(f->dev) == EDGE_ERR_FORKED;
}

static void ring(int event)
{
	uint64_t one = 1;
	while (write(event, &one, sizeof one) < 0 && errno == EINTR)
		;
}

void progress(struct fabric *f)
{
	take(f);
	/* Somebody sleeps: what comes from now on must wake them, though we have just looked in their place. */
	for (int i = 0; f->waiting > 0 && (f->ready != NULL || edge_device_arm(f->dev) == 0) && !forked(f); i++) {
		if (i == ROUNDS) { /* a peer that writes on and on must not keep us here: they shall do it */
			ring(f->more);
			return;
		}
		take(f);
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Has w step whenever there is something to read, or room again. */
int local_watch(struct fabric *f, int fd, struct watched *w)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = w };
	return epoll_ctl(f->local, EPOLL_CTL_ADD, fd, &e) != 0 ? -errno : 0;
}

void local_unwatch(struct fabric *f, int fd)
{
	epoll_ctl(f->local, EPOLL_CTL_DEL, fd, NULL);
}

int waiter_open(struct waiter *w, struct fabric *f)
{
	*w = (struct waiter){ .f = f, .epoll = epoll_create1(EPOLL_CLOEXEC),
		.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (w->epoll < 0 || w->event < 0) {
		int err = -errno;
		waiter_close(w);
		return err;
	}
	watch(w->epoll, w->event);
	watch(w->epoll, edge_device_fd(f->dev));
	watch(w->epoll, f->local);
	return 0;
}

void waiter_close(struct waiter *w)
{
	if (w->waiting)
		w->f->waiting--;
	if (w->epoll >= 0)
		close(w->epoll);
	if (w->event >= 0)
		close(w->event);
	*w = (struct waiter){ .epoll = -1, .event = -1 };
}

void waiter_tell(struct waiter *w)
{
	if (!w->waiting)
		return;
	w->waiting = false;
	w->f->waiting--;
	w->signalled = true;
	ring(w->event);
}

bool waiter_arm(struct waiter *w)
{
	uint64_t n;
	if (w->signalled)
		while (read(w->event, &n, sizeof n) < 0 && errno == EINTR)
			;
	w->signalled = false;
	if (!w->waiting)
		w->f->waiting++;
	w->waiting = true;
	return w->f->ready == NULL && edge_device_arm(w->f->dev) != 0;
}

/* Arming takes back what was told. Of those who sleep on a counter each waits for a value of its own: all must hear. */
bool waiter_settled(struct waiter *w)
{
	return !w->signalled || w->sleepers == 0;
}

/* Others may sleep on, and are to be woken. */
static void wakes(struct waiter *w)
{
	pthread_mutex_lock(&w->f->mu);
	w->sleepers--;
	if (w->waiting && w->sleepers == 0) {
		w->f->waiting--;
		w->waiting = false;
	}
	w->f->polls = 0; /* look at everything */
}

/* The thread is canceled. */
static void canceled(void *p)
{
	struct waiter *w = p;
	wakes(w);
	pthread_mutex_unlock(&w->f->mu);
}

/* Sleeps without the lock, once waiter_arm said yes. */
void waiter_sleep(struct waiter *w, int64_t timeout_ns)
{
	struct epoll_event e[3];
	struct timespec t = { .tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000 };
	w->sleepers++;
	pthread_mutex_unlock(&w->f->mu);
	pthread_cleanup_push(canceled, w);
	epoll_pwait2(w->epoll, e, 3, timeout_ns < 0 ? NULL : &t, NULL);
	pthread_cleanup_pop(0);
	wakes(w);
}

/* A program asked for a completion, and there is none. On a machine whose cores are all busy the daemon could not run
 * while it asks, so it gives way: the processor, and after a while the question waits for a moment. */
void give_way(struct fabric *f)
{
	struct asking *a = &f->asking;
	if (a->patient || a->vain++ < FREE)
		return;
	int64_t now = now_ns();
	if (now - a->at > ELSE || a->vain == FREE + 1)
		a->since = 0;
	if (idle_polls(&a->idle, &a->since, now)) {
		pthread_mutex_unlock(&f->mu);
		sched_yield();
		int64_t after = now_ns();
		pthread_mutex_lock(&f->mu);
		idle_yielded(&a->idle, after - now, after);
		a->at = after;
		return;
	}
	if (waiter_arm(&a->waiter))
		waiter_sleep(&a->waiter, NAP);
	progress(f); /* and not take: others may sleep on */
	a->at = now_ns();
}

int waiter_control(struct waiter *w, enum fi_wait_obj object, int command, void *arg)
{
	switch (command) {
	case FI_GETWAIT:
		if (w->epoll < 0 || object != FI_WAIT_FD)
			return -FI_ENOSYS;
		*(int *)arg = w->epoll;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = object;
		return 0;
	}
	return -FI_ENOSYS;
}

/* A connection ended that neither program ended. ofi_rxm tells nobody what was lost with it, so that MPI would wait for
 * ever: the job ends with a message, as it does where a process dies. That one (EDGE_ERR_RESET) mpirun notices. */
void connection_lost(struct fabric *f, int err)
{
	if (!f->fatal || err == 0 || err == EDGE_ERR_RESET || err == EDGE_ERR_FORKED)
		return;
	const char *why = err == EDGE_ERR_PEER_DOWN ? "the peer's host or its daemon restarted or does not answer" :
	                  edge_error_is(err, EDGE_ERR_DAEMON_DOWN) ? "the daemon of this host went away"
	                                                           : edge_strerror(err);
	fprintf(stderr, "libedge-fi: a connection is lost: %s. Messages are lost with it, which ofi_rxm tells nobody, so "
	        "this process ends. FI_EDGE_FATAL=0 lets it go on.\n", why);
	_exit(1);
}
