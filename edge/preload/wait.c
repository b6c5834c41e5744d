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
bool woken;

static __thread struct waiter mine = {.fd = -1};
static pthread_key_t key; /* closes the eventfd of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static __thread int inside, cancels;

void enter(void) {
	if (inside++ == 0)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
}

void leave(void) {
	if (--inside == 0)
		pthread_setcancelstate(cancels, NULL);
}

bool within(void) { return inside > 0; }

int rest(void) {
	int n = inside;
	inside = 0;
	if (n > 0)
		pthread_setcancelstate(cancels, NULL);
	return n;
}

void resume(int n) {
	if (n > 0)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	inside = n;
}

static bool over;
static __thread bool ends;

void lock(void) {
	enter();
	pthread_mutex_lock(&guard);
	if (!over || ends)
		return;
	pthread_mutex_unlock(&guard);
	for (;;)
		pause(); /* the process ends, and what this thread was waiting for is gone */
}

void end_others(void) { over = ends = true; }

/* Who is to be woken: when guard is free, since those woken want it. By guard. */
enum { PENDING = 8 };
static struct waiter *pending[PENDING];
static int npending;

void unlock(void) {
	if (sleepers > 0 && lingerers == 0 && device && !edge_device_arm(device))
		progress(); /* this thread took what others sleep for (edge_device_quiet) */
	int n = npending, fds[PENDING];
	for (int i = 0; i < n; i++)
		fds[i] = pending[i]->fd;
	npending = 0;
	pthread_mutex_unlock(&guard);
	for (int i = 0; i < n; i++)
		real.write(fds[i], &(uint64_t){1}, 8);
	leave();
}

/* Whether w is to be woken, and is not any more. */
static bool spared(struct waiter *w) {
	for (int i = 0; i < npending; i++)
		if (pending[i] == w) {
			pending[i] = pending[--npending];
			return true;
		}
	return false;
}

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
	sleepers = lingerers = npending = 0;
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

void wake(struct waiter *w) {
	if (!w->asleep || w->written)
		return;
	w->written = true;
	if (npending < PENDING)
		pending[npending++] = w;
	else
		real.write(w->fd, &(uint64_t){1}, 8);
}

void ring(struct waiter *w) {
	w->rung = true;
	wake(w);
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
	unlock();
	sched_yield();
	lock();
	return true;
}

void linger_end(struct waiter *w) {
	if (!w->lingers)
		return;
	w->lingers = false;
	if (--lingerers == 0 && sleepers > 0)
		progress();
}

static void sleep_end(struct waiter *w);

bool sleep_begin(struct waiter *w) {
	linger_end(w);
	w->asleep++;
	sleepers++;
	if (!w->rung && (!device || lingerers > 0 || edge_device_arm(device)))
		return true;
	sleep_end(w);
	return false;
}

static void sleep_end(struct waiter *w) {
	uint64_t n;
	if (w->written && !spared(w))
		while (real.read(w->fd, &n, 8) < 0 && (errno == EAGAIN || errno == EINTR))
			sched_yield(); /* who writes it has just left guard; fd is in use until then */
	w->written = false;
	w->asleep--;
	w->rung = false;
	sleepers--;
}

/* A thread that is cancelled while it sleeps. */
static void cancelled(void *p) {
	struct sleeping *x = p;
	resume(x->inside);
	lock();
	sleep_end(x->w);
	for (nfds_t i = 0; i < x->n; i++)
		if (x->links[i].at)
			link_remove(&x->links[i]);
	linger_end(x->w);
	unlock();
	for (nfds_t i = 0; i < x->n; i++)
		if (x->socks[i])
			sock_put(x->socks[i]);
	free(x->memory);
}

static int awake(struct sleeping *x, int r) {
	int err = errno;
	lock();
	sleep_end(x->w);
	errno = err;
	return r;
}

/* The last of p is the hub. */
int sleep_poll(struct sleeping *x, struct pollfd *p, nfds_t n, int64_t ns, const sigset_t *mask) {
	struct timespec t = {.tv_sec = ns / (1000 * MILLI), .tv_nsec = ns % (1000 * MILLI)};
	int r;
	unlock();
	x->inside = inside;
	pthread_cleanup_push(cancelled, x); /* before rest, from which on the thread may be cancelled */
	rest();
	r = real.ppoll(p, n, ns == NEVER ? NULL : &t, mask);
	resume(x->inside);
	pthread_cleanup_pop(0);
	awake(x, r);
	woken |= r > 0 && p[n - 1].revents != 0;
	return r;
}

int sleep_epoll(struct sleeping *x, int epfd, struct epoll_event *out, int max, int64_t ns, const sigset_t *mask) {
	int64_t ms = ns == NEVER ? -1 : (ns + MILLI - 1) / MILLI;
	int r;
	unlock();
	x->inside = inside;
	pthread_cleanup_push(cancelled, x);
	rest();
	r = real.epoll_pwait(epfd, out, max, ms > INT32_MAX ? INT32_MAX : (int)ms, mask);
	resume(x->inside);
	pthread_cleanup_pop(0);
	return awake(x, r);
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
	lock();
	struct link l = {0};
	struct sleeping x = {.w = w, .links = &l, .socks = &s, .n = 1};
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
		struct pollfd p[] = {{.fd = w->fd, .events = POLLIN}, {.fd = hub, .events = POLLIN}};
		int64_t left = limit == NEVER ? NEVER : limit > now ? limit - now : 0;
		if (sleep_poll(&x, p, 2, left, NULL) < 0 && errno == EINTR)
			err = EINTR; /* if nothing happened meanwhile */
	}
	link_remove(&l);
	linger_end(w);
	unlock();
	return has(s, want) ? 0 : err;
}
