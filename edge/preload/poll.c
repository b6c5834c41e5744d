/* poll and select, of descriptors of the kernel and of streams together. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "epset.h"

enum { SMALL = 64, KERNEL_TURN = 8 };

struct polling {
	struct pollfd *user, *kernel; /* kernel has one more */
	struct sleeping x;            /* socks, links and n */
	nfds_t nkernel;
	bool given;                   /* socks are the caller's */
};

static bool is_kernels(const struct sock *s) { return !s || s->state == PLAIN || s->state == LISTENING; }

/* What is ready of ours; prepares what the kernel is to be asked. By guard. */
static int look(struct polling *q) {
	int ready = 0;
	q->nkernel = 0;
	for (nfds_t i = 0; i < q->x.n; i++) {
		struct pollfd *u = &q->user[i];
		struct sock *s = q->x.socks[i];
		u->revents = 0;
		q->kernel[i] = (struct pollfd){.fd = u->fd, .events = u->events};
		if (is_kernels(s)) {
			q->nkernel += u->fd >= 0;
			continue;
		}
		if (s->state == SHARED) {
			if (u->events & (POLLIN | POLLRDNORM))
				share_ask(s);
			q->kernel[i].fd = share_number(s);
			q->nkernel++;
			continue;
		}
		q->kernel[i].fd = -1;
		u->revents = (short)(events(s) & (u->events | POLLERR | POLLHUP));
		ready += u->revents != 0;
	}
	return ready;
}

static int merge(struct polling *q) {
	int n = 0;
	for (nfds_t i = 0; i < q->x.n; i++) {
		q->user[i].revents |= q->kernel[i].revents;
		n += q->user[i].revents != 0;
	}
	return n;
}

static int run(struct polling *q, int64_t until, const sigset_t *mask) {
	struct waiter *w = q->x.w;
	nfds_t n = q->x.n;
	bool kernel_ready = false;
	for (int round = 0;;) {
		w->rung = false;
		progress();
		epoll_show();
		int ready = look(q);
		int64_t now = now_ns();
		if (ready || kernel_ready || now >= until) {
			if (q->nkernel && real.ppoll(q->kernel, n, &(struct timespec){0}, NULL) < 0)
				return -1;
			ready = merge(q);
			if (ready || now >= until)
				return ready;
			kernel_ready = false; /* another thread or process was faster */
		}
		int64_t limit = next_verdict() < until ? next_verdict() : until;
		if (linger(w)) { /* the kernel is asked now and then */
			kernel_ready = q->nkernel && ++round % KERNEL_TURN == 0 &&
			               real.ppoll(q->kernel, n, &(struct timespec){0}, NULL) > 0;
			continue;
		}
		w->mixed = q->nkernel || mask;
		if (!sleep_begin(&q->x))
			continue;
		int64_t left = limit == NEVER ? NEVER : limit > now ? limit - now : 0;
		if (sleep_poll(&q->x, q->kernel, n + 1, left, mask) < 0)
			return -1;
		for (nfds_t i = 0; i < n; i++)
			kernel_ready |= q->kernel[i].revents != 0;
	}
}

/* Joins the caller to what it waits for. */
static void join(struct polling *q) {
	for (nfds_t i = 0; i < q->x.n; i++) {
		struct sock *s = q->x.socks[i];
		q->x.links[i] = (struct link){0};
		if (s && s->state == LISTENING)
			enlist(s);
		if (s && q->user[i].events)
			begin(s);
		if (s && s->state != PLAIN)
			link_add(&q->x.links[i], s, q->x.w);
	}
}

static int poll_in(struct polling *q, int64_t until, const sigset_t *mask) {
	for (nfds_t i = 0; i < q->x.n && !q->given; i++)
		q->x.socks[i] = sock_get(q->user[i].fd);
	lock();
	join(q);
	int result = run(q, until, mask), err = errno;
	linger_end(q->x.w);
	for (nfds_t i = 0; i < q->x.n; i++)
		link_remove(&q->x.links[i]);
	unlock();
	for (nfds_t i = 0; i < q->x.n && !q->given; i++)
		if (q->x.socks[i])
			sock_put(q->x.socks[i]);
	errno = err;
	return result;
}

static int poll_of(struct pollfd *p, struct sock **given, nfds_t n, int64_t until, const sigset_t *mask) {
	struct pollfd kernel[SMALL + 1];
	struct sock *socks[SMALL];
	struct link links[SMALL];
	struct polling q = {.user = p, .kernel = kernel, .x = {.socks = socks, .links = links, .n = n}, .given = given};
	pthread_testcancel();
	signals_begin();
	enter(); /* until the end, as malloc must not be left, either */
	if (n > SMALL) {
		const size_t each = sizeof *links + sizeof *socks + sizeof *kernel;
		char *room = n < SIZE_MAX / each - 1 ? malloc((n + 1) * each) : NULL;
		if (!room) {
			leave();
			return fail_with(ENOMEM);
		}
		q.x.memory = room;
		q.x.links = (struct link *)(void *)room;
		q.x.socks = (struct sock **)(void *)(q.x.links + n);
		q.kernel = (struct pollfd *)(void *)(q.x.socks + n);
	}
	for (nfds_t i = 0; given && i < n; i++)
		q.x.socks[i] = given[i];
	q.x.w = own_waiter();
	int result = poll_in(&q, until, mask), err = errno;
	free(q.x.memory);
	leave();
	errno = err;
	return result == 0 && mask ? real.ppoll(NULL, 0, &(struct timespec){0}, mask) : result; /* lets signals in */
}

int poll_ours(struct pollfd *p, nfds_t n, int64_t until, const sigset_t *mask) {
	return poll_of(p, NULL, n, until, mask);
}

int poll_socks(struct pollfd *p, struct sock **socks, nfds_t n) { return poll_of(p, socks, n, NEVER, NULL); }

/* A stream, what may become one, or an epoll set, which may have some. */
static bool is_ours(int fd) {
	struct sock *s = sock_get(fd);
	if (!s)
		return epoll_watch(fd);
	bool ours = s->state != PLAIN;
	sock_put(s);
	return ours;
}

static bool any_ours(const struct pollfd *p, nfds_t n) {
	bool any = false;
	for (nfds_t i = 0; i < n; i++)
		any |= is_ours(p[i].fd);
	return any;
}

static int64_t until_of(const struct timespec *t) {
	return t ? after(t->tv_sec, t->tv_nsec) : NEVER;
}

EXPORT int poll(struct pollfd *p, nfds_t n, int ms) {
	real_need();
	if (within() || !any_ours(p, n))
		return real.poll(p, n, ms);
	return poll_ours(p, n, ms < 0 ? NEVER : now_ns() + ms * MILLI, NULL);
}

EXPORT int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask) {
	real_need();
	if (within() || !any_ours(p, n))
		return real.ppoll(p, n, t, mask);
	return poll_ours(p, n, until_of(t), mask);
}

EXPORT int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t size) {
	if (size / sizeof *p < n)
		abort();
	return poll(p, n, ms);
}

EXPORT int __ppoll_chk(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t size) {
	if (size / sizeof *p < n)
		abort();
	return ppoll(p, n, t, mask);
}

/* --- select --- */

static bool in(const fd_set *set, int fd) { return set && FD_ISSET(fd, set); }

static bool select_ours(int n, const fd_set *r, const fd_set *w, const fd_set *e) {
	bool any = false;
	for (int fd = 0; fd < n; fd++)
		any |= (in(r, fd) || in(w, fd) || in(e, fd)) && is_ours(fd);
	return any;
}

/* Puts descriptors into set that have any of the bits; returns how many. */
static int fill(fd_set *set, const struct pollfd *p, nfds_t n, short asked, short bits) {
	int count = 0;
	for (nfds_t i = 0; set && i < n; i++) {
		if (!(p[i].events & asked))
			continue;
		if (p[i].revents & bits)
			count++;
		else
			FD_CLR(p[i].fd, set);
	}
	return count;
}

static int by_poll(int n, fd_set *r, fd_set *w, fd_set *e, int64_t until, const sigset_t *mask) {
	struct pollfd p[FD_SETSIZE];
	nfds_t count = 0;
	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++) {
		short want = (short)((in(r, fd) ? POLLIN : 0) | (in(w, fd) ? POLLOUT : 0) | (in(e, fd) ? POLLPRI : 0));
		if (want)
			p[count++] = (struct pollfd){.fd = fd, .events = want};
	}
	int got = poll_ours(p, count, until, mask);
	if (got < 0)
		return -1;
	for (nfds_t i = 0; i < count; i++)
		if (p[i].revents & POLLNVAL) {
			errno = EBADF;
			return -1;
		}
	return fill(r, p, count, POLLIN, POLLIN | POLLHUP | POLLERR) + fill(w, p, count, POLLOUT, POLLOUT | POLLERR) +
	       fill(e, p, count, POLLPRI, POLLPRI);
}

EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t) {
	real_need();
	if (within() || !select_ours(n, r, w, e))
		return real.select(n, r, w, e, t);
	int64_t until = t ? after(t->tv_sec, t->tv_usec * 1000) : NEVER;
	int got = by_poll(n, r, w, e, until, NULL);
	if (t) { /* Linux tells what is left */
		int64_t left = until - now_ns();
		left = left > 0 ? left : 0;
		*t = (struct timeval){.tv_sec = left / (1000 * MILLI), .tv_usec = left % (1000 * MILLI) / 1000};
	}
	return got;
}

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *t, const sigset_t *mask) {
	real_need();
	if (within() || !select_ours(n, r, w, e))
		return real.pselect(n, r, w, e, t, mask);
	return by_poll(n, r, w, e, until_of(t), mask);
}
