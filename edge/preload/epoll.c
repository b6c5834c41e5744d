/*
 * epoll sets with streams in them. Descriptors of the kernel stay in the kernel's set, listening sockets and those that
 * remained with TCP among them. Of a stream there is an item here. The kernel's set also has the hub and the set's
 * eventfd, marked by own: they wake who sleeps in it, and are not shown.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "epset.h"

enum { KERNEL_TURN = 8 };

static void enqueue(struct item *i) {
	if (i->queued || i->spent)
		return;
	i->queued = true;
	i->next = NULL;
	*i->set->last = i;
	i->set->last = &i->next;
}

void item_changed(struct item *i) {
	enqueue(i);
	if (i->set->shine >= 0)
		set_show(i->set, true);
}

static void dequeue(struct item *i) {
	if (!i->queued)
		return;
	struct item **p = &i->set->first;
	while (*p != i)
		p = &(*p)->next;
	*p = i->next;
	if (i->set->last == &i->next)
		i->set->last = p;
	i->queued = false;
}

void item_free(struct item *i) {
	dequeue(i);
	link_remove(&i->link);
	*i->at = i->other;
	if (i->other)
		i->other->at = i->at;
	free(i);
}

void item_plain(struct item *i) {
	if (i->spent)
		i->want.events = EPOLLONESHOT;
	int fd = sock_has(i->link.sock, i->fd) ? i->fd : i->link.sock->fd; /* that one was closed, but not all */
	real.epoll_ctl(i->set->fd, EPOLL_CTL_ADD, fd, &i->want);
	item_free(i);
}

void items_drop(struct sock *s) {
	for (struct link *l = s->links, *next; l; l = next) {
		next = l->next;
		if (l->item)
			item_free(l->item);
	}
}

static struct item *find(const struct epset *set, const struct sock *s, int fd) {
	for (struct link *l = s->links; l; l = l->next)
		if (l->item && l->item->set == set && l->item->fd == fd)
			return l->item;
	return NULL;
}

static int control(struct epset *set, int op, int fd, struct sock *s, const struct epoll_event *e) {
	struct item *i = find(set, s, fd);
	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)
		return EINVAL;
	if (op == EPOLL_CTL_ADD ? i != NULL : !i)
		return op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
	if (op == EPOLL_CTL_DEL) {
		item_free(i);
		return 0;
	}
	if (!i) {
		if (!(i = calloc(1, sizeof *i)))
			return ENOMEM;
		i->set = set;
		i->fd = fd;
		i->link.item = i;
		link_add(&i->link, s, &set->waiter);
		i->other = set->all;
		if (i->other)
			i->other->at = &i->other;
		i->at = &set->all;
		set->all = i;
	}
	i->want = *e;
	i->spent = false;
	item_changed(i);
	ring(&set->waiter);
	return 0;
}

bool epoll_move(struct sock *s, int fd) {
	struct epoll_event want;
	int in = early_in(fd, &want);
	if (in == 0)
		return true;
	struct epset *set = in > 0 ? set_claim(in - 1) : NULL;
	if (!set)
		return false;
	early_forget(fd);
	if (real.epoll_ctl(set->fd, EPOLL_CTL_DEL, fd, NULL))
		return true; /* that was an earlier socket of this number */
	if (control(set, EPOLL_CTL_ADD, fd, s, &want) == 0)
		return true;
	real.epoll_ctl(set->fd, EPOLL_CTL_ADD, fd, &want);
	return false;
}

/* Of a descriptor that is no socket of ours. */
static int control_other(int epfd, int op, int fd, struct epoll_event *e) {
	if (op == EPOLL_CTL_ADD)
		epoll_watch(fd); /* a set in a set */
	int r = real.epoll_ctl(epfd, op, fd, e);
	if (r == 0 && active && !within() && !set_of(fd))
		early_note(epfd, op, fd, e);
	return r;
}

/* Of one of ours. 0 or an errno. */
static int control_sock(int epfd, int op, int fd, struct sock *s, struct epoll_event *e) {
	if (s->state == SHARED)
		return share_epoll(s, epfd, op, e) ? errno : 0;
	lock();
	if (op != EPOLL_CTL_DEL)
		begin(s);
	if (s->state == LISTENING) {
		enlist(s);
		set_claim(epfd);
	}
	if (s->state == PLAIN || s->state == LISTENING) {
		unlock();
		return real.epoll_ctl(epfd, op, fd, e) ? errno : 0;
	}
	struct epset *set = set_claim(epfd);
	int err = !set ? errno : op != EPOLL_CTL_DEL && !e ? EFAULT : control(set, op, fd, s, e);
	unlock();
	return err;
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *e) {
	real_need();
	const int before = errno; /* which success leaves alone */
	struct sock *s = sock_get(fd);
	int err = s ? control_sock(epfd, op, fd, s, e) : control_other(epfd, op, fd, e) ? errno : 0;
	if (s)
		sock_put(s);
	errno = err ? err : before;
	return err ? -1 : 0;
}

/* Takes up to n events of streams. By guard. */
static int collect(struct epset *set, struct epoll_event *out, int n) {
	int got = 0;
	struct item *end = NULL; /* the first that was put back */
	while (got < n && set->first && set->first != end) {
		struct item *i = set->first;
		dequeue(i);
		uint32_t ev = (uint32_t)events(i->link.sock) & (i->want.events | EPOLLERR | EPOLLHUP);
		if (!ev || i->spent)
			continue;
		out[got++] = (struct epoll_event){.events = ev, .data = i->want.data};
		if (i->want.events & EPOLLONESHOT) {
			i->spent = true;
		} else if (!(i->want.events & EPOLLET)) {
			enqueue(i);
			end = end ? end : i;
		}
	}
	if (set->shine >= 0)
		set_show(set, false);
	return got;
}

/* Takes out what is only ours. */
static int shown(struct epoll_event *e, int n) {
	int kept = 0;
	for (int i = 0; i < n; i++)
		if (e[i].data.ptr != &own)
			e[kept++] = e[i];
	return kept;
}

/* What the kernel has, without waiting. It is asked now and then: streams that are always ready shall hide nothing. */
static int ask_kernel(struct epset *set, struct epoll_event *out, int max) {
	set->turn = 0;
	int n, kept = 0;
	for (int tries = 0; tries < 3 && kept == 0; tries++) { /* two descriptors that are not shown may take the places */
		if ((n = real.epoll_pwait(set->fd, out, max, 0, NULL)) < 0)
			return -1;
		kept = shown(out, n);
		if (n == kept)
			break;
	}
	return kept;
}

static int wait_locked(struct epset *set, struct epoll_event *out, int max, int64_t until, const sigset_t *mask) {
	struct waiter *w = &set->waiter;
	struct sleeping x = {.w = w, .set = set};
	for (;;) {
		w->rung = false;
		progress();
		epoll_show();
		if (set->descriptors == 0) {
			errno = EBADF;
			return -1;
		}
		int64_t now = now_ns();
		int n = 0;
		if (++set->turn >= KERNEL_TURN && (n = ask_kernel(set, out, max)) < 0)
			return -1;
		n += collect(set, out + n, max - n);
		if (n == 0 && now >= until)
			return ask_kernel(set, out, max);
		if (n > 0)
			return n;
		int64_t limit = next_verdict() < until ? next_verdict() : until;
		if (linger(w) || !sleep_begin(&x))
			continue;
		set->turn = 0;
		int64_t left = limit == NEVER ? NEVER : limit > now ? limit - now : 0;
		if ((n = sleep_epoll(&x, set->fd, out, max, left, mask)) < 0)
			return -1;
		woken |= n > 0 && set->waiter.watches; /* perhaps */
		n = shown(out, n);
		if (n > 0) {
			progress();
			return n + collect(set, out + n, max - n);
		}
	}
}

void epoll_left(struct epset *set) {
	linger_end(&set->waiter);
	if (set->first)
		wake(&set->waiter); /* another thread that waits may take the rest, as in the kernel's */
	set->users--;
	set_unused(set);
}

/* The set is ours before a thread sleeps in it: other threads may add streams meanwhile. false: it cannot be. */
static bool wait_set(int epfd, struct epoll_event *out, int max, int64_t until, const sigset_t *mask, int *n) {
	if (!active || within()) /* within: a handler of a signal that came into another call */
		return false;
	if (max <= 0) {
		*n = fail_with(EINVAL);
		return true;
	}
	pthread_testcancel();
	signals_begin();
	enter(); /* until the end, so that sleep_epoll cannot be left before its time */
	lock();
	struct epset *set = set_claim(epfd);
	int err = 0;
	if (set) {
		set->users++;
		*n = wait_locked(set, out, max, until, mask);
		err = errno;
		epoll_left(set);
	}
	unlock();
	leave();
	errno = err;
	return set;
}

EXPORT int epoll_pwait(int epfd, struct epoll_event *out, int max, int ms, const sigset_t *mask) {
	real_need();
	int n;
	bool ours = wait_set(epfd, out, max, ms < 0 ? NEVER : now_ns() + ms * MILLI, mask, &n);
	return ours ? n : real.epoll_pwait(epfd, out, max, ms, mask);
}

EXPORT int epoll_wait(int epfd, struct epoll_event *out, int max, int ms) {
	return epoll_pwait(epfd, out, max, ms, NULL);
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *out, int max, const struct timespec *t, const sigset_t *mask) {
	real_need();
	int n;
	int64_t ms = -1;
	if (t)
		ms = t->tv_sec >= INT32_MAX / 1000 ? INT32_MAX : t->tv_sec * 1000 + (t->tv_nsec + MILLI - 1) / MILLI;
	bool ours = wait_set(epfd, out, max, t ? after(t->tv_sec, t->tv_nsec) : NEVER, mask, &n);
	return ours ? n : real.epoll_pwait(epfd, out, max, (int)ms, mask);
}
