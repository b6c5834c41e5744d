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
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "preload.h"

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

/* The lowest number for ours: they have the upper quarter of those that the process may use. */
static int floor_now(void) {
	struct rlimit l;
	int top = TOP;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < (rlim_t)top)
		top = (int)l.rlim_cur;
	return top - top / 4;
}

/* A handle for fd, which is closed: the handle has another number. -1: errno says why not. */
int own_take(int fd) {
	if (fd < 0)
		return -1;
	int made = real.fcntl64(fd, F_DUPFD_CLOEXEC, floor_now()), err = errno;
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
		return HANDLE + i;
	}
	if (made >= 0)
		real.close(made);
	errno = made < 0 && err != EINVAL ? err : EMFILE;
	return -1;
}

void own_stay(int fd) { kept[fd - HANDLE].stays = true; }

int own_close(int fd) {
	if (fd < HANDLE)
		return real.close(fd);
	int n = own_number(fd), r = n > 0 ? real.close(n) : fail_with(EBADF); /* ours until it is closed */
	if (n > 0)
		atomic_store(&kept[fd - HANDLE].fd, 0);
	return r;
}

/* The number of fd, which stays so until released. */
static int held(int fd) {
	while (fd >= HANDLE) {
		atomic_fetch_add(&busy, 1);
		if (!moving)
			break;
		atomic_fetch_sub(&busy, 1);
		sched_yield();
	}
	return own_number(fd);
}

static void release(int fd) {
	if (fd >= HANDLE)
		atomic_fetch_sub(&busy, 1);
}

/* What the C library's function of the name returns for the number of fd. */
#define HELD(type, fd, call) \
	int n_ = held(fd); \
	type r_ = call; \
	release(fd); \
	return r_

/* --- what the program does to numbers --- */

/* The program puts something else in the place of fd, which is ours: it gets another number first, and fd remains a
 * second one, so that nobody takes it meanwhile. false: errno says why not. By guard. */
bool own_move(int fd) {
	int i = 0, to = real.fcntl64(fd, F_DUPFD_CLOEXEC, floor_now());
	while (i < used && kept[i].fd != fd)
		i++;
	if (to < 0 || i == used) {
		if (to >= 0)
			real.close(to);
		return i == used;
	}
	moving = true;
	while (busy > 0)
		sched_yield();
	struct kept *k = &kept[i];
	if (k->set) { /* which knows it by its number */
		real.epoll_ctl(own_number(k->set), EPOLL_CTL_DEL, fd, NULL);
		real.epoll_ctl(own_number(k->set), EPOLL_CTL_ADD, to, &k->want);
	}
	for (int n = lowest; n > to && !atomic_compare_exchange_weak(&lowest, &n, to);)
		;
	atomic_store(&k->fd, to);
	wait_moved(HANDLE + i, fd);
	moving = false;
	return true;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Closes the numbers from first to last that are not ours. */
int own_close_range(unsigned first, unsigned last, int flags) {
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
int own_socket(int domain, int type, int protocol) { return own_take(socket(domain, type, protocol)); }

int own_connect(int fd, const struct sockaddr *to, socklen_t n) { return real.connect(own_number(fd), to, n); }
int own_fstat(int fd, struct stat *s) { return fstat(own_number(fd), s); }
ssize_t own_read(int fd, void *p, size_t n) { HELD(ssize_t, fd, real.read(n_, p, n)); }
ssize_t own_write(int fd, const void *p, size_t n) { HELD(ssize_t, fd, real.write(n_, p, n)); }
ssize_t own_sendmsg(int fd, const struct msghdr *m, int flags) { HELD(ssize_t, fd, real.sendmsg(n_, m, flags)); }

void *own_mmap(void *at, size_t n, int how, int flags, int fd, off_t from) {
	return mmap(at, n, how, flags, own_number(fd), from);
}

int own_fcntl(int fd, int command, ...) {
	va_list va;
	va_start(va, command);
	void *arg = va_arg(va, void *);
	va_end(va);
	return real.fcntl64(own_number(fd), command, arg);
}

int own_timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old) {
	HELD(int, fd, timerfd_settime(n_, flags, to, old));
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
	held(one); /* once: own_move waits until nobody holds, and who holds twice would wait for it */
	int r = real.epoll_ctl(own_number(set), op, own_number(fd), e);
	release(one);
	if (r == 0 && fd >= HANDLE && set >= HANDLE) {
		kept[fd - HANDLE].set = op == EPOLL_CTL_DEL ? 0 : set;
		if (op != EPOLL_CTL_DEL)
			kept[fd - HANDLE].want = *e;
	}
	return r;
}

int own_epoll_wait(int set, struct epoll_event *out, int max, int ms) {
	return real.epoll_pwait(own_number(set), out, max, ms, NULL);
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
