/* How a thread waits until something happens to a socket: it looks for a moment, giving way after each look, as libedge
 * says, and then sleeps. Threads that look wake those that sleep; when the last one leaves, the daemon is to ring. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "preload.h"

int sleepers, lingerers;

static __thread struct waiter mine = {.fd = -1};
static pthread_key_t key; /* closes the eventfd of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void thread_ends(void *p) {
	struct waiter *w = p;
	if (w->fd >= 0)
		real.close(w->fd);
	w->fd = -1;
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

struct waiter *own_waiter(void) {
	if (mine.fd < 0) {
		pthread_once(&once, make_key);
		mine.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (mine.fd < 0)
			return NULL;
		pthread_setspecific(key, &mine);
	}
	return &mine;
}

void wait_after_fork(void) {
	sleepers = lingerers = 0;
	if (mine.fd >= 0)
		real.close(mine.fd); /* the parent's, too */
	mine = (struct waiter){.fd = -1};
}

void link_add(struct link *l, struct sock *s, struct waiter *w) {
	l->sock = s;
	l->waiter = w;
	l->next = s->links;
	l->at = &s->links;
	if (l->next)
		l->next->at = &l->next;
	s->links = l;
}

void link_remove(struct link *l) {
	*l->at = l->next;
	if (l->next)
		l->next->at = l->at;
}

void ring(struct waiter *w) {
	if (w->rung)
		return;
	w->rung = true;
	if (w->asleep)
		real.write(w->fd, &(uint64_t){1}, 8);
}

void changed(struct sock *s) {
	for (struct link *l = s->links, *next; l; l = next) {
		next = l->next; /* an item may leave the list */
		struct waiter *w = l->waiter;
		if (l->item)
			item_changed(l->item);
		ring(w);
	}
}

bool linger(struct waiter *w) {
	if (!device || !edge_device_linger(device))
		return false;
	lingerers += !w->lingers;
	w->lingers = true;
	pthread_mutex_unlock(&guard);
	sched_yield();
	pthread_mutex_lock(&guard);
	return true;
}

void linger_end(struct waiter *w) {
	if (!w->lingers)
		return;
	w->lingers = false;
	if (--lingerers == 0 && sleepers > 0)
		progress();
}

bool sleep_begin(struct waiter *w) {
	linger_end(w);
	w->asleep++;
	sleepers++;
	if (!w->rung && (!device || lingerers > 0 || edge_device_arm(device)))
		return true;
	sleep_end(w);
	return false;
}

void sleep_end(struct waiter *w) {
	uint64_t n;
	if (w->rung && w->asleep && real.read(w->fd, &n, 8) < 0) {
		/* it was rung before it slept */
	}
	w->asleep--;
	w->rung = false;
	sleepers--;
}

static bool has(struct sock *s, int want) {
	switch (s->state) {
	case OFFERED:
	case DIALLING:
	case ACCEPTED:
		return false;
	case STREAM:
		return want == 0 || events(s) & (want | POLLERR | POLLHUP);
	default:
		return true;
	}
}

int wait_for(struct sock *s, int want, int64_t until) {
	struct waiter *w = own_waiter();
	if (!w)
		return EMFILE;
	int err = 0;
	pthread_mutex_lock(&guard);
	struct link l = {0};
	link_add(&l, s, w);
	for (;;) {
		w->rung = false;
		progress();
		if (has(s, want))
			break;
		int64_t now = now_ns(), limit = next_verdict() < until ? next_verdict() : until;
		if (now >= until) {
			err = ETIMEDOUT;
			break;
		}
		if (err)
			break;
		if (linger(w) || !sleep_begin(w))
			continue;
		pthread_mutex_unlock(&guard);
		struct pollfd p[] = {{.fd = w->fd, .events = POLLIN}, {.fd = hub, .events = POLLIN}};
		int64_t left = limit - now;
		struct timespec t = {.tv_sec = left / (1000 * MILLI), .tv_nsec = left % (1000 * MILLI)};
		if (real.ppoll(p, 2, limit == NEVER ? NULL : &t, NULL) < 0 && errno == EINTR)
			err = EINTR; /* if nothing happened meanwhile */
		pthread_mutex_lock(&guard);
		sleep_end(w);
	}
	link_remove(&l);
	linger_end(w);
	pthread_mutex_unlock(&guard);
	return has(s, want) ? 0 : err;
}
