/* The table of descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sock.h"

enum { BATCH = 64 };

/* Never initialised by hand: pages that nobody touched take no memory. */
static _Atomic(struct sock *) table[DESCRIPTORS];
static _Atomic int highest = -1;
static struct sock *spare;

struct sock *undecided;

static void drop(struct sock *s);
static void detach(struct sock *s, int fd);

struct sock *sock_get(int fd) {
	if (fd < 0 || fd >= DESCRIPTORS || !atomic_load_explicit(&table[fd], memory_order_acquire))
		return NULL;
	enter();
	for (;;) {
		struct sock *s = atomic_load_explicit(&table[fd], memory_order_acquire);
		if (!s)
			break;
		int n = atomic_load(&s->refs);
		while (n > 0 && !atomic_compare_exchange_weak(&s->refs, &n, n + 1))
			;
		if (n <= 0)
			continue; /* it was closed meanwhile */
		if (atomic_load(&table[fd]) == s)
			return s;
		drop(s);
	}
	leave();
	return NULL;
}

/* By guard. */
static void forget(struct sock *s) {
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	above->finish(s);
	if (s->orphan)
		return;
	s->next = spare;
	spare = s;
}

void bury(struct sock *s) {
	if (atomic_load(&s->refs) > 0)
		return; /* the last of them does it */
	atomic_store(&s->refs, 1);
	forget(s);
}

/* One count less. */
static void drop(struct sock *s) {
	int n = atomic_load(&s->refs);
	while (n > 1 && !atomic_compare_exchange_weak(&s->refs, &n, n - 1))
		;
	if (n > 1)
		return;
	int err = errno;
	lock();
	forget(s);
	unlock();
	errno = err;
}

void sock_put(struct sock *s) {
	drop(s);
	leave();
}

/* fd means s now. What it meant was closed behind our back, as by fclose. By guard. */
static void point(int fd, struct sock *s) {
	if (fd > highest)
		highest = fd;
	struct sock *old = atomic_exchange(&table[fd], s);
	if (old) {
		if (old->fd == fd)
			old->fd = -1; /* the number is another file's now */
		detach(old, fd);
	}
}

/* fd is none of s any more. By guard. */
static void detach(struct sock *s, int fd) {
	if ((s->fd == fd || s->fd < 0) && atomic_load(&s->refs) > 1) {
		int other = -1; /* a call under way must not touch what fd becomes */
		for (int i = 0; i <= highest && other < 0; i++)
			if (atomic_load(&table[i]) == s)
				other = i;
		above->renumbered(s, other);
	}
	forget(s);
}

struct sock *sock_new(int fd, enum state state) {
	if (fd < 0 || fd >= DESCRIPTORS)
		return NULL;
	if (!spare) {
		struct sock *batch = calloc(BATCH, sizeof *batch);
		for (int i = 0; batch && i < BATCH; i++) {
			batch[i].next = spare;
			spare = &batch[i];
		}
	}
	struct sock *s = spare;
	if (!s)
		return NULL;
	spare = s->next;
	memset((char *)s + sizeof s->refs, 0, sizeof *s - sizeof s->refs);
	s->fd = fd;
	atomic_store(&s->state, state);
	atomic_store(&s->refs, 1);
	point(fd, s);
	return s;
}

bool sock_has(const struct sock *s, int fd) { return fd >= 0 && fd < DESCRIPTORS && atomic_load(&table[fd]) == s; }

void sock_link(struct sock *s, int fd) {
	if (fd < 0 || fd >= DESCRIPTORS || borrowed())
		return;
	lock();
	atomic_fetch_add(&s->refs, 1);
	point(fd, s);
	unlock();
}

void sock_unlink(int fd) {
	if (fd < 0 || fd >= DESCRIPTORS || !atomic_load(&table[fd]) || borrowed())
		return;
	lock();
	struct sock *s = atomic_exchange(&table[fd], NULL);
	if (s)
		detach(s, fd);
	unlock();
}

void table_range(unsigned first, unsigned last) {
	for (unsigned fd = first; (int)fd <= highest && fd <= last; fd++)
		sock_unlink((int)fd);
}

void sock_decide(struct sock *s) {
	s->next = undecided;
	if (s->next)
		s->next->at = &s->next;
	s->at = &undecided;
	undecided = s;
}

void sock_decided(struct sock *s) {
	if (!s->at)
		return;
	*s->at = s->next;
	if (s->next)
		s->next->at = s->at;
	s->at = NULL;
}

/* In the child the calls of other threads are not under way. Their counts would keep what the child closes. */
static void recount(void) {
	if (!rest_known())
		return;
	for (int fd = 0; fd <= highest; fd++)
		if (table[fd])
			atomic_store(&table[fd]->refs, 0);
	for (int fd = 0; fd <= highest; fd++)
		if (table[fd])
			atomic_fetch_add(&table[fd]->refs, 1);
	rest_count();
}

/* In the child: streams and offers are the parent's; what nobody used yet may be used here. */
void table_after_fork(void) {
	recount();
	undecided = spare = NULL; /* spare: perhaps another thread was in the middle of it */
	for (int fd = 0; fd <= highest; fd++) {
		struct sock *s = atomic_load(&table[fd]);
		if (!s)
			continue;
		s->links = NULL;
		s->at = NULL;
		s->listener = NULL;
		s->probe = NULL;
		s->until = s->pause = 0;
		s->tcp.watched = s->tcp.arrived = 0;
		switch (s->state) {
		case OFFERED:
		case DIALLING:
		case STREAM:
			s->state = s->state == STREAM && above->inherited(s) ? SHARED : FOREIGN;
			s->stream = NULL;
			break;
		default:
			break;
		}
	}
}

int table_streams(struct sock **to, int most) {
	int n = 0;
	for (int fd = 0; fd <= highest; fd++) {
		struct sock *s = atomic_load(&table[fd]);
		if (!s || s->fd != fd || s->state != STREAM || s->broken)
			continue;
		if (n == most)
			return -1;
		to[n++] = s;
	}
	return n;
}

struct sock *table_next(int *at) {
	for (; *at <= highest; ++*at)
		if (atomic_load(&table[*at]))
			return atomic_load(&table[(*at)++]);
	return NULL;
}

void say(const struct sock *s, const char *what) { note(*s->tuple ? s->tuple : s->service, what); }

void table_close_all(void) {
	for (int fd = 0; fd <= highest; fd++) {
		struct sock *s = atomic_load(&table[fd]);
		if (s && s->state == STREAM && s->stream) {
			s->state = FOREIGN;
			edge_stream_close(s->stream, -1);
			s->stream = NULL;
		}
	}
}
