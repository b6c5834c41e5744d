/*
 * Which descriptors are epoll sets, and of which set. A set may have several descriptors, and is the same by all of
 * them. Who waits for a set from outside, in another set or by poll, is woken by the kernel: the set then also has an
 * eventfd that is readable while a stream in it is ready.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "epset.h"

static _Atomic(struct epset *) sets[DESCRIPTORS];
static int highest = -1;

struct epset *set_of(int fd) { return fd >= 0 && fd < DESCRIPTORS ? atomic_load(&sets[fd]) : NULL; }

/* A set without descriptors yet. By guard. */
static struct epset *set_new(void) {
	struct epset *set = calloc(1, sizeof *set);
	if (!set)
		return NULL;
	set->waiter.fd = set->waiter.set = set->shine = -1;
	set->last = &set->first;
	return set;
}

static void point(int fd, struct epset *set) {
	set->fd = fd;
	set->descriptors++;
	atomic_store(&sets[fd], set);
	if (fd > highest)
		highest = fd;
}

/* A known set of which fd is another descriptor, as one that came back through a Unix socket; NULL: there is none. */
static struct epset *same(int fd) {
	for (int i = 0; i <= highest; i++)
		if (sets[i] && sets[i]->fd == i && real.syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, i) == 0)
			return sets[i];
	return NULL;
}

struct epset *set_claim(int epfd) {
	struct epset *set = set_of(epfd);
	if (epfd < 0 || epfd >= DESCRIPTORS)
		return NULL;
	bool known = set, fresh = false;
	if (!known && !(set = same(epfd))) {
		fresh = true;
		set = set_new();
	}
	if (!set)
		return NULL;
	if (!set->open && !wait_open(&set->waiter, epfd)) {
		int err = errno;
		if (fresh)
			free(set);
		errno = err;
		return NULL;
	}
	set->open = true;
	if (!known)
		point(epfd, set);
	set->waiter.set = set->fd;
	return set;
}

/* Sockets that were put into a set of the kernel's before they were connected: there events of a stream would not show.
 * The descriptor of the set, which stands for all of its, and one more; -1: several sets. By guard. */
static struct early { int set; struct epoll_event want; } early[DESCRIPTORS];
static int latest_early = -1;

void early_note(int epfd, int op, int fd, const struct epoll_event *e) {
	if (fd < 0 || fd >= DESCRIPTORS)
		return;
	struct early *y = &early[fd];
	lock();
	int set = set_of(epfd) ? set_of(epfd)->fd : epfd;
	if (op == EPOLL_CTL_DEL)
		y->set = y->set == set + 1 ? 0 : y->set;
	else
		*y = (struct early){.set = y->set == 0 || y->set == set + 1 ? set + 1 : -1, .want = *e};
	if (y->set && fd > latest_early)
		latest_early = fd;
	unlock();
}

int early_in(int fd, struct epoll_event *want) {
	*want = early[fd].want;
	return early[fd].set;
}

void early_forget(int fd) { early[fd].set = 0; }

/* --- a set that is waited for from outside --- */

static struct epset *outside; /* those */

static bool any_ready(const struct epset *set) {
	for (const struct item *i = set->first; i; i = i->next)
		if (!i->spent && (uint32_t)events(i->link.sock) & (i->want.events | EPOLLERR | EPOLLHUP))
			return true;
	return false;
}

/* again: something new is ready, which sets that are edge-triggered tell of once more. */
void set_show(struct epset *set, bool again) {
	bool ready = any_ready(set);
	uint64_t n;
	if (ready && (again || !set->shines))
		own_write(set->shine, &(uint64_t){1}, 8);
	else if (!ready && set->shines)
		own_read(set->shine, &n, 8);
	set->shines = ready;
}

void epoll_show(void) {
	for (struct epset *set = outside; set; set = set->next)
		set_show(set, false);
}

static bool shine_in(struct epset *set) {
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = (void *)&own};
	return real.epoll_ctl(set->fd, EPOLL_CTL_ADD, own_number(set->shine), &e) == 0;
}

bool epoll_watch(int fd) {
	struct epset *set = set_of(fd);
	if (!set || !active || within())
		return false;
	int err = errno;
	lock();
	set = set_claim(fd);
	if (set && set->shine < 0 && (set->shine = own_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) >= 0) {
		if (shine_in(set)) {
			set->next = outside;
			outside = set;
			set_show(set, false);
		} else {
			own_close(set->shine);
			set->shine = -1;
		}
	}
	unlock();
	errno = err;
	return set;
}

static void shine_end(struct epset *set) {
	struct epset **p = &outside;
	if (set->shine < 0)
		return;
	while (*p != set)
		p = &(*p)->next;
	*p = set->next;
	own_close(set->shine);
	set->shine = -1; /* a thread may still wait in the set: it must not show it by another's handle */
	set->shines = false;
}

void set_unused(struct epset *set) {
	if (set->descriptors > 0 || set->users > 0)
		return;
	if (set->waiter.fd >= 0)
		own_close(set->waiter.fd);
	free(set);
}

/* --- descriptors of sets --- */

/* The set is called by another one of its descriptors. */
static void rename_set(struct epset *set, int from) {
	for (int i = 0; i <= highest && set->fd == from; i++)
		if (atomic_load(&sets[i]) == set)
			set->fd = i;
	if (set->open)
		set->waiter.set = set->fd;
	for (int i = 0; i <= latest_early; i++)
		if (early[i].set == from + 1)
			early[i].set = set->fd + 1;
}

/* fd is no set's any more. By guard. */
static void unpoint(int fd) {
	struct epset *set = atomic_exchange(&sets[fd], NULL);
	if (set && --set->descriptors > 0) {
		if (set->fd == fd)
			rename_set(set, fd);
	} else if (set) {
		while (set->all)
			item_free(set->all);
		shine_end(set);
		set->waiter.set = -1;
		set_unused(set);
	}
}

/* Unlocked. */
void epoll_closed(int fd) {
	if (fd >= 0 && fd < DESCRIPTORS && early[fd].set && !borrowed())
		early[fd].set = 0;
	if (!set_of(fd) || borrowed())
		return;
	lock();
	unpoint(fd);
	unlock();
}

void epoll_range(unsigned first, unsigned last) {
	for (unsigned fd = first; (int)fd <= highest && fd <= last; fd++)
		epoll_closed((int)fd);
	for (unsigned fd = first; (int)fd <= latest_early && fd <= last; fd++)
		epoll_closed((int)fd);
}

/* fd is a descriptor of set, and not of what it meant before, which was closed behind our back. By guard since the set
 * was looked up, or another thread frees it. */
static void known_as(int fd, struct epset *set) {
	if (fd < 0 || fd >= DESCRIPTORS || set_of(fd) == set)
		return;
	unpoint(fd);
	early[fd].set = 0;
	int first = set->fd;
	point(fd, set);
	if (set->descriptors > 1)
		set->fd = first;
}

void epoll_shared(int from, int to) {
	if (!active || borrowed() || within())
		return;
	if (set_of(from)) {
		lock();
		struct epset *set = set_of(from); /* NULL: another thread has closed it */
		if (set)
			known_as(to, set);
		unlock();
	} else if (from >= 0 && from < DESCRIPTORS && to >= 0 && to < DESCRIPTORS && early[from].set) {
		early[to].set = -1; /* it is in the set by another number: it stays with TCP */
		latest_early = to > latest_early ? to : latest_early;
	}
}

void epoll_inherit(int fd) {
	lock();
	struct epset *set = fd >= 0 && fd < DESCRIPTORS && !set_of(fd) && highest >= 0 ? same(fd) : NULL;
	if (set)
		known_as(fd, set);
	unlock();
}

static int made(int fd) {
	int err = errno;
	if (fd >= 0 && fd < DESCRIPTORS && active && !within() && !borrowed()) {
		lock();
		struct epset *set = set_new();
		if (set)
			known_as(fd, set);
		unlock();
	}
	errno = err;
	return fd;
}

EXPORT int epoll_create1(int flags) {
	real_need();
	return made(real.epoll_create1(flags));
}

EXPORT int epoll_create(int size) { return size > 0 ? epoll_create1(0) : fail_with(EINVAL); }

/* The child shares the kernel's sets with its parent and knows nothing of our part of them. What is left here is the
 * parent's, of which other threads may have been in the middle. */
void epoll_after_fork(void) {
	for (int i = 0; i <= highest; i++) {
		struct epset *old = sets[i], *set = old && old->fd == i ? set_new() : NULL;
		for (int fd = 0; old && old->fd == i && fd <= highest; fd++)
			if (sets[fd] == old) {
				atomic_store(&sets[fd], set);
				if (set) {
					set->descriptors++;
					set->fd = i;
				}
			}
	}
	outside = NULL;
}

/* A number of ours changed. */
void epoll_moved(int handle, int from) {
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = (void *)&own};
	for (int i = 0; i <= highest; i++) {
		struct epset *set = sets[i];
		if (!set || set->fd != i || !set->open)
			continue;
		if (handle == hub)
			set_hook(&set->waiter, from);
		if (handle != set->waiter.fd && handle != set->shine)
			continue;
		real.epoll_ctl(set->fd, EPOLL_CTL_DEL, from, NULL);
		real.epoll_ctl(set->fd, EPOLL_CTL_ADD, own_number(handle), &e);
	}
}
