/*
 * The descriptors of the library itself, libedge's among them. A program takes every number that it did not open to be
 * free: it puts files there by dup2, and closes whole ranges. So ours have high numbers, get out of the way of dup2,
 * and are left out when ranges are closed (calls.c).
 *
 * Each has a handle, which stays the same when the number changes. Handles are above all numbers; the functions below
 * take either. libedge is linked with them in place of those of the C library (own.syms), so that none of its calls
 * comes into what the program's calls come into.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "brief.h"
#include "own.h"
#include "real.h"

/* Numbers above TOP would cost memory in the kernel, and time in each fork. */
enum { HANDLE = 1 << 24, MOST = 512, TOP = 1024 };

static struct kept {
	_Atomic int fd; /* 0: the handle is free; -1: being made */
	bool stays;     /* in children */
	int set;        /* handle of the epoll set of ours that has it; 0: none */
	struct epoll_event want;
} kept[MOST];
static _Atomic int used;              /* no handle from here on is in use */
static _Atomic int lowest = INT_MAX;  /* no number below is ours */
static _Atomic int busy;              /* calls under way that use a number, and do not wait */
static _Atomic bool moving;

int own_number(int fd) {
	int n = fd < HANDLE ? fd : atomic_load(&kept[fd - HANDLE].fd);
	return fd < HANDLE || n > 0 ? n : -1; /* closed, as a parent's is in a child */
}

bool own_is(int fd) {
	if (fd < lowest)
		return false;
	for (int i = 0; i < used; i++)
		if (kept[i].fd == fd)
			return true;
	return false;
}

int own_count(void) {
	int n = 0;
	for (int i = 0; i < used; i++)
		n += kept[i].fd > 0;
	return n;
}

/* The lowest number for ours: they have the upper quarter of those that the process may use. */
int own_floor(void) {
	struct rlimit l;
	int top = TOP;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < (rlim_t)top)
		top = (int)l.rlim_cur;
	return top - top / 4;
}

void own_stay(int fd, bool stays) { kept[fd - HANDLE].stays = stays; }

/* From hold to unhold no number changes its meaning. They do not nest: own_dup waits until nobody holds. */
static bool try_hold(void) {
	atomic_fetch_add(&busy, 1);
	if (!moving)
		return true;
	atomic_fetch_sub(&busy, 1);
	return false;
}

static void hold(void) {
	if (try_hold())
		return;
	struct brief b = {0};
	do
		brief_wait(&b);
	while (!try_hold());
}

static void unhold(void) { atomic_fetch_sub(&busy, 1); }

/* The number of fd, which stays so until released. */
static int held(int fd) {
	if (fd >= HANDLE)
		hold();
	return own_number(fd);
}

static void release(int fd) {
	if (fd >= HANDLE)
		unhold();
}

/* What the C library's function of the name returns for the number of fd. */
#define HELD(type, fd, call) \
	int n_ = held(fd); \
	type r_ = call; \
	release(fd); \
	return r_

/* A handle for fd, which is closed: the handle has another number. -1: errno says why not. */
int own_take(int fd) {
	if (fd < 0)
		return -1;
	hold(); /* a number is ours as soon as there is one */
	int made = real.fcntl64(fd, F_DUPFD_CLOEXEC, own_floor()), err = errno;
	real.close(fd);
	for (int i = 0; made >= 0 && i < MOST; i++) {
		int none = 0;
		if (!atomic_compare_exchange_strong(&kept[i].fd, &none, -1))
			continue;
		kept[i].set = 0;
		kept[i].stays = false;
		for (int n = used; n <= i && !atomic_compare_exchange_weak(&used, &n, i + 1);)
			;
		for (int n = lowest; n > made && !atomic_compare_exchange_weak(&lowest, &n, made);)
			;
		atomic_store(&kept[i].fd, made);
		unhold();
		return HANDLE + i;
	}
	if (made >= 0)
		real.close(made);
	unhold();
	errno = made < 0 && err != EINVAL ? err : EMFILE;
	return -1;
}

/* It is ours until it is closed, and own_dup comes before or after that: else this would close the program's. */
int own_close(int fd) {
	if (fd < HANDLE)
		return real.close(fd);
	int n = held(fd), r = n > 0 ? real.close(n) : fail_with(EBADF);
	if (n > 0)
		atomic_store(&kept[fd - HANDLE].fd, 0);
	release(fd);
	return r;
}

/* --- what the program does to numbers --- */

static void (*tell_moved)(int handle, int from);

void own_on_move(void (*tell)(int handle, int from)) { tell_moved = tell; }

/* fd is not ours afterwards, or was not: another thread closed it. false: errno says why not. */
static bool move(int fd) {
	int i = 0, to;
	while (i < used && kept[i].fd != fd)
		i++;
	if (i == used)
		return true;
	if ((to = real.fcntl64(fd, F_DUPFD_CLOEXEC, own_floor())) < 0)
		return false;
	struct kept *k = &kept[i];
	if (k->set) { /* which knows it by its number */
		real.epoll_ctl(own_number(k->set), EPOLL_CTL_DEL, fd, NULL);
		real.epoll_ctl(own_number(k->set), EPOLL_CTL_ADD, to, &k->want);
	}
	for (int n = lowest; n > to && !atomic_compare_exchange_weak(&lowest, &n, to);)
		;
	atomic_store(&k->fd, to);
	tell_moved(HANDLE + i, fd);
	return true;
}

/* Until moving ends no other thread makes, uses or closes a number. By guard. */
static void alone(void) {
	moving = true;
	for (struct brief b = {0}; busy > 0;)
		brief_wait(&b);
}

/* As dup3, and with flags of -1 as dup2, of the program, onto a number that is ours or nobody's. What is ours gets
 * another number first; nobody takes that one meanwhile. */
int own_dup(int from, int to, int flags) {
	alone();
	int r = !move(to) ? -1 : flags < 0 ? real.dup2(from, to) : real.dup3(from, to, flags), err = errno;
	moving = false;
	errno = err;
	return r;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int close_others(unsigned first, unsigned last, int flags) {
	int ours[MOST], n = 0;
	for (int i = 0; i < used; i++)
		if (kept[i].fd > 0)
			ours[n++] = kept[i].fd;
	qsort(ours, (size_t)n, sizeof *ours, compare);
	for (int i = 0; i < n; i++) {
		unsigned at = (unsigned)ours[i];
		if (at < first || at > last)
			continue;
		if (at > first && real.close_range(first, at - 1, flags))
			return -1;
		if (at == last)
			return 0;
		first = at + 1;
	}
	return real.close_range(first, last, flags);
}

/* Closes the numbers from first to last that are not ours, and none that becomes ours meanwhile, by guard. Without
 * guard, in a handler that came into a call which may use a number, one that another thread makes may be lost. */
int own_close_range(unsigned first, unsigned last, int flags, bool guarded) {
	if (!guarded)
		return close_others(first, last, flags);
	alone();
	int r = close_others(first, last, flags), err = errno;
	moving = false;
	errno = err;
	return r;
}

/* In the child, which has copies. libedge has closed its own. */
void own_after_fork(void) {
	busy = 0;
	moving = false;
	int most = 0, low = INT_MAX;
	for (int i = 0; i < used; i++) {
		int fd = kept[i].fd;
		if (fd > 0 && kept[i].stays) {
			most = i + 1;
			low = fd < low ? fd : low;
		} else if (fd > 0) {
			own_close(HANDLE + i);
		} else {
			kept[i].fd = 0; /* another thread was making it */
		}
	}
	used = most;
	lowest = low;
}

/* --- what libedge calls in place of the C library's --- */

int own_eventfd(unsigned n, int flags) { return own_take(eventfd(n, flags)); }
int own_epoll_create1(int flags) { return own_take(real.epoll_create1(flags)); }
int own_timerfd_create(int clock, int flags) { return own_take(timerfd_create(clock, flags)); }
int own_socket(int domain, int type, int protocol) { return own_take(real.socket(domain, type, protocol)); }
int own_memfd_create(const char *name, unsigned flags) { return own_take(memfd_create(name, flags)); }

int own_connect(int fd, const struct sockaddr *to, socklen_t n) { HELD(int, fd, real.connect(n_, to, n)); }
int own_fstat(int fd, struct stat *s) { HELD(int, fd, fstat(n_, s)); }
int own_ftruncate(int fd, off_t n) { HELD(int, fd, ftruncate(n_, n)); }
ssize_t own_read(int fd, void *p, size_t n) { HELD(ssize_t, fd, real.read(n_, p, n)); }
ssize_t own_write(int fd, const void *p, size_t n) { HELD(ssize_t, fd, real.write(n_, p, n)); }
ssize_t own_recv(int fd, void *p, size_t n, int flags) { HELD(ssize_t, fd, real.recv(n_, p, n, flags)); }
ssize_t own_send(int fd, const void *p, size_t n, int flags) { HELD(ssize_t, fd, real.send(n_, p, n, flags)); }

void *own_mmap(void *at, size_t n, int how, int flags, int fd, off_t from) {
	HELD(void *, fd, mmap(at, n, how, flags, n_, from));
}

/* Of futexes alone, which have no descriptor. */
long own_syscall(long number, void *at, long op, long value, const void *time, void *other, long bits) {
	return real.syscall(number, at, op, value, time, other, bits);
}

int own_fcntl(int fd, int command, ...) {
	va_list va;
	va_start(va, command);
	void *arg = va_arg(va, void *);
	va_end(va);
	HELD(int, fd, real.fcntl64(n_, command, arg));
}

int own_timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old) {
	HELD(int, fd, timerfd_settime(n_, flags, to, old));
}

/* libedge sends one descriptor along at most. Its number, too, stays while fd is held. */
ssize_t own_sendmsg(int fd, const struct msghdr *m, int flags) {
	struct msghdr with = *m;
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } one = {0};
	int number = held(fd), along;
	if (m->msg_controllen == sizeof one) {
		memcpy(&one, m->msg_control, sizeof one);
		memcpy(&along, CMSG_DATA(&one.h), sizeof along);
		along = own_number(along);
		memcpy(CMSG_DATA(&one.h), &along, sizeof along);
		with.msg_control = &one;
	}
	ssize_t r = real.sendmsg(number, &with, flags);
	release(fd);
	return r;
}

/* The descriptors that come along become ours. One that finds no room is -1. */
ssize_t own_recvmsg(int fd, struct msghdr *m, int flags) {
	int number = held(fd);
	ssize_t r = real.recvmsg(number, m, flags);
	release(fd);
	for (struct cmsghdr *c = r >= 0 ? CMSG_FIRSTHDR(m) : NULL; c; c = CMSG_NXTHDR(m, c)) {
		int one;
		for (size_t i = 0; c->cmsg_level == SOL_SOCKET && CMSG_LEN((i + 1) * sizeof one) <= c->cmsg_len; i++) {
			memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
			if ((one = own_take(one)) < 0)
				m->msg_flags |= MSG_CTRUNC; /* as if the kernel had found none */
			memcpy(CMSG_DATA(c) + i * sizeof one, &one, sizeof one);
		}
	}
	return r;
}

int own_epoll_ctl(int set, int op, int fd, struct epoll_event *e) {
	int one = set >= HANDLE ? set : fd;
	held(one); /* once: see hold */
	int r = real.epoll_ctl(own_number(set), op, own_number(fd), e);
	if (r == 0 && fd >= HANDLE && set >= HANDLE) {
		kept[fd - HANDLE].set = op == EPOLL_CTL_DEL ? 0 : set;
		if (op != EPOLL_CTL_DEL)
			kept[fd - HANDLE].want = *e;
	}
	release(one);
	return r;
}

/* libedge waits here only in calls that this library makes by guard, as own_dup is called. */
int own_epoll_wait(int set, struct epoll_event *out, int max, int ms) {
	if (ms != 0)
		return real.epoll_pwait(own_number(set), out, max, ms, NULL);
	HELD(int, set, real.epoll_pwait(n_, out, max, 0, NULL));
}

int own_poll(struct pollfd *p, nfds_t n, int ms) {
	struct pollfd numbers[8];
	if (n > sizeof numbers / sizeof *numbers)
		return fail_with(EINVAL);
	for (nfds_t i = 0; i < n; i++) {
		numbers[i] = p[i];
		numbers[i].fd = own_number(p[i].fd);
	}
	int r = real.poll(numbers, n, ms);
	for (nfds_t i = 0; i < n; i++)
		p[i].revents = numbers[i].revents;
	return r;
}
