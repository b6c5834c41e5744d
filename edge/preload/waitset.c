/*
 * Wait sets: an eventfd and an epoll set each, in which a thread sleeps so that it can watch the hub. The program has
 * to keep its numbers, so there are few, and threads share them: a wait set belongs to the thread that slept in it
 * last, until another needs it. A thread that finds none sleeps on a word, as those of locks do, or in poll with all
 * others of its kind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "sock.h"

enum { WAITSETS = 64, SHARE = 64 }; /* at most; one for so many descriptors that the process may have */

int crowd = -1;
static int called; /* threads of the crowd that are to be awake */
static struct waiter spare = {.fd = -1, .set = -1}; /* has one when no thread does, so that the hub can be watched */
static struct waiter *owners[WAITSETS];
static int most;  /* 0: not known yet */
static bool full; /* the process may not have another one */

bool wait_open(struct waiter *w, int set) {
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = (void *)&own};
	w->fd = own_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	w->set = set;
	w->hooked = w->watches = false;
	if (w->fd >= 0 && own_epoll_ctl(set, EPOLL_CTL_ADD, w->fd, &e) == 0)
		return true;
	int err = errno;
	if (w->fd >= 0)
		own_close(w->fd);
	w->fd = w->set = -1;
	errno = err;
	return false;
}

static bool make(struct waiter *w) {
	int set = own_take(real.epoll_create1(EPOLL_CLOEXEC));
	if (set < 0 || wait_open(w, set))
		return set >= 0;
	own_close(set);
	return false;
}

static void pass(struct waiter *from, struct waiter *to) {
	to->fd = from->fd;
	to->set = from->set;
	to->hooked = from->hooked;
	to->watches = from->watches;
	from->fd = from->set = -1;
	from->hooked = from->watches = false;
}

bool wait_ready(void) {
	if (crowd < 0)
		crowd = own_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	for (int i = 0; i < WAITSETS; i++)
		if (owners[i])
			return crowd >= 0;
	if (crowd < 0 || !make(&spare))
		return false;
	owners[0] = &spare;
	return true;
}

static void count(void) {
	struct rlimit l;
	most = getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur / SHARE > WAITSETS ? WAITSETS : (int)(l.rlim_cur / SHARE);
	most += most == 0;
}

/* The place of a wait set that nobody sleeps in, or, if none, for one more. NULL: all are in use. */
static struct waiter **vacant(void) {
	struct waiter **none = NULL;
	if (most == 0)
		count();
	for (int i = 0; i < most; i++) {
		if (!owners[i])
			none = none || full ? none : &owners[i];
		else if (owners[i] == &spare)
			return &owners[i];
	}
	for (int i = 0; !none && i < most; i++)
		if (owners[i]->asleep == 0)
			return &owners[i];
	return none;
}

bool waitset_free(void) { return vacant() != NULL; }

bool waitset_take(struct waiter *w) {
	struct waiter **place = vacant();
	int err = errno;
	if (place && *place) {
		pass(*place, w);
	} else if (place && !make(w)) {
		full = true;
		place = NULL;
	}
	if (place)
		*place = w;
	else if (crowd < 0)
		crowd = own_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	errno = err;
	return place != NULL;
}

void waitset_keep(struct waiter *w) {
	for (int i = 0; i < WAITSETS; i++) {
		if (owners[i] != w)
			continue;
		owners[i] = NULL;
		if (spare.set >= 0) {
			own_close(w->fd);
			own_close(w->set);
			w->fd = w->set = -1;
			full = false;
		} else {
			pass(w, &spare);
			owners[i] = &spare;
		}
	}
}

/* own_after_fork closes them: the sets are the parent's, too. */
void waitsets_after_fork(void) {
	for (int i = 0; i < WAITSETS; i++)
		owners[i] = NULL;
	spare.fd = spare.set = crowd = -1;
	spare.hooked = spare.watches = false;
	called = most = 0;
	full = false;
}

void set_hook(struct waiter *w, int from) {
	struct epoll_event e = {.events = w->watches ? EPOLLIN : 0, .data.ptr = (void *)&own};
	if (!w->hooked)
		return;
	real.epoll_ctl(own_number(w->set), EPOLL_CTL_DEL, from, NULL);
	real.epoll_ctl(own_number(w->set), EPOLL_CTL_ADD, own_number(hub), &e);
}

void waitsets_hook(int from) {
	for (int i = 0; i < WAITSETS; i++)
		if (owners[i])
			set_hook(owners[i], from);
}

void crowd_call(void) {
	if (called++ == 0)
		own_write(crowd, &(uint64_t){1}, 8);
}

void crowd_answer(void) {
	uint64_t n;
	if (--called == 0)
		own_read(crowd, &n, 8);
}
