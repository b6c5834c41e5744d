/*
 * Streams that a child of fork has, too. They stay the parent's. For each the child gets one end of a pair of Unix
 * sockets: a thread of the parent puts on the stream what the child writes there, and into the pair what the child may
 * read. It does that only when the child asks, which it does when it reads, polls, or has the socket in an epoll set:
 * parent and child compete for bytes, as over TCP. What the child wrote comes before what the parent writes after that.
 *
 * The stream lives until both have closed it, or the parent ends: the child's next call fails with ECONNRESET then. A
 * process with more than MOST of such streams shares none.
 *
 * A child may change its user and be hostile. What it can write is what belongs to its own shares: a page for each, and
 * the rope of its fork. Children of later forks have neither. It changes no flag of a descriptor that the parent reads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "agree.h"

enum { MOST = 64, MESSAGE = 16 << 10, TURNS = 32 };

/* In a page of parent and child. Its children have it, too, as they have the socket. */
struct slot {
	_Atomic uint32_t wants; /* bytes that the child asks for */
	_Atomic uint64_t wrote; /* bytes, in all */
	_Atomic bool shut;      /* nobody writes any more */
};

struct share {
	struct share *next;
	struct sock *s;         /* in the parent: with a count */
	struct slot *slot;
	int ours, theirs; /* handles of the pair. theirs: -1 in the parent */
	/* Handles of a pair of datagram sockets: the child writes to rope, which wakes the parent's thread at bell.
	 * Shares of one fork, which are neighbours, have one pair. Of datagrams, since a stream's end would wake it
	 * again and again. */
	int bell, rope;
	uint64_t took;          /* bytes of those that the child wrote */
	bool full, hungry;      /* the stream has no room, or no bytes, for what is to be done */
	bool finished, shut;    /* the child has been told of the end, or the other side of the child's */
	bool ended;
	bool standing;          /* in the child: it is in an epoll set */
};

static struct share *shares; /* of the parent; changed by guard and pumping */
static int nshares, again = -1; /* again: a handle, by which the parent wakes its thread */
static int fork_rope = -1;      /* handle: of the fork under way */
static bool serving;
static pthread_mutex_t pumping = PTHREAD_MUTEX_INITIALIZER; /* guard may be held when it is taken, not the reverse */
static char message[MESSAGE];                               /* by pumping */

/* --- the parent --- */

/* Puts on the stream what the child has written. false: it has no room for all. By pumping. */
static bool take(struct share *x) {
	for (int i = 0; i < TURNS && !x->ended; i++) {
		ssize_t n = real.recv(own_number(x->ours), message, sizeof message, MSG_PEEK | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			x->ended = true; /* the child, and its children, have closed it */
			break;
		}
		ssize_t sent = edge_stream_write(x->s->stream, message, (size_t)n, 0);
		if (sent == EDGE_ERR_AGAIN)
			return false;
		if (sent < 0) {
			x->slot->shut = true; /* the child learns it by its next write */
			sent = n;
		}
		real.recv(own_number(x->ours), message, (size_t)sent, MSG_DONTWAIT);
		x->took += (uint64_t)sent;
	}
	if (x->slot->shut && !x->shut) {
		x->shut = x->s->write_shut = true;
		edge_stream_shutdown(x->s->stream);
	}
	return true;
}

/* Gives the child bytes, if it asks. By pumping. */
static void give(struct share *x) {
	uint32_t wants = x->slot->wants;
	int unread = 0, pair = own_number(x->ours);
	x->hungry = false;
	if (wants == 0 || x->finished || x->ended)
		return;
	if (real.ioctl(pair, SIOCOUTQ, &unread) || unread > 0) {
		x->slot->wants = 0; /* it has some, and asks again when it has read them */
		return;
	}
	ssize_t n = x->s->read_shut ? 0 : edge_stream_read(x->s->stream, message, wants < MESSAGE ? wants : MESSAGE, 0);
	if (n == EDGE_ERR_AGAIN) {
		x->hungry = true;
		return;
	}
	x->slot->wants = 0;
	x->finished = n == 0;
	if (n == 0)
		real.shutdown(pair, SHUT_WR);
	else if (n < 0 || real.send(pair, message, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
		x->ended = true;
}

static struct slot *slot_new(void) {
	void *p = mmap(NULL, sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void slot_free(struct slot *slot) { munmap(slot, sizeof *slot); }

/* By guard, or in the end by the only thread. Of s there may be another one. */
static void remove_share(struct share *x) {
	struct share **at = &shares, *other = NULL;
	bool shared_bell = false;
	pthread_mutex_lock(&pumping);
	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	for (struct share *o = shares; o; o = o->next) {
		shared_bell |= o->bell == x->bell;
		if (o->s == x->s)
			other = o;
	}
	atomic_store(&x->s->share, other);
	pthread_mutex_unlock(&pumping);
	nshares--;
	slot_free(x->slot);
	own_close(x->ours);
	if (!shared_bell)
		own_close(x->bell);
}

/* A share that has ended, or with all any, is taken out. Unlocked. */
static bool reap(bool all) {
	lock();
	struct share *x = shares;
	while (x && !x->ended && !all)
		x = x->next;
	if (x)
		remove_share(x);
	unlock();
	if (!x)
		return false;
	enter();
	sock_put(x->s);
	free(x);
	return true;
}

static void clear_bell(int bell) {
	for (int i = 0; i < TURNS && own_recv(bell, &(char){0}, 1, MSG_DONTWAIT) >= 0; i++)
		;
}

/* Answers the bells: what was asked for until now is seen. By pumping. */
static void clear_bells(void) {
	own_read(again, &(uint64_t){0}, 8);
	for (struct share *x = shares, *last = NULL; x; last = x, x = x->next)
		if (!last || last->bell != x->bell)
			clear_bell(x->bell);
}

/* Does what can be done now. What is to be waited for: how many of p; 0: nothing is shared any more. */
static nfds_t round_of_shares(struct pollfd *p, struct sock **socks, bool *streams) {
	nfds_t n = 0;
	enter();
	pthread_mutex_lock(&pumping);
	clear_bells();
	for (struct share *x = shares; x; x = x->next) {
		x->full = !take(x);
		give(x);
	}
	pthread_mutex_unlock(&pumping);
	look_after();
	while (reap(false))
		;
	lock();
	*streams = false;
	socks[n] = NULL;
	p[n++] = (struct pollfd){.fd = own_number(again), .events = POLLIN};
	for (struct share *x = shares, *last = NULL; x; last = x, x = x->next) {
		if (!last || last->bell != x->bell) {
			socks[n] = NULL;
			p[n++] = (struct pollfd){.fd = own_number(x->bell), .events = POLLIN};
		}
		socks[n] = NULL;
		p[n++] = (struct pollfd){.fd = x->full ? -1 : own_number(x->ours), .events = POLLIN};
		if (!x->full && !x->hungry)
			continue;
		*streams = true;
		socks[n] = x->s;
		atomic_fetch_add(&x->s->refs, 1); /* a fork may take the share out meanwhile */
		p[n++] = (struct pollfd){.fd = -1, .events = (short)((x->full ? POLLOUT : 0) | (x->hungry ? POLLIN : 0))};
	}
	serving = shares;
	n = shares ? n : 0;
	unlock();
	leave();
	return n;
}

static void wait_for_streams(struct pollfd *p, struct sock **socks, nfds_t n) {
	above->poll_socks(p, socks, n);
	for (nfds_t i = 0; i < n; i++)
		if (socks[i]) {
			enter();
			sock_put(socks[i]);
		}
}

static void *serve(void *nothing) {
	struct pollfd p[3 * MOST + 1];
	struct sock *socks[3 * MOST + 1];
	bool streams;
	(void)nothing;
	own_waiter()->ours = true;
	for (nfds_t n; (n = round_of_shares(p, socks, &streams)) > 0;)
		if (streams)
			wait_for_streams(p, socks, n);
		else
			real.ppoll(p, n, NULL, NULL);
	return NULL;
}

/* What a share needs beside its memory. false: it has none of that. */
static bool share_open(struct share *x) {
	int pair[2];
	x->ours = x->theirs = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return false;
	x->ours = own_take(pair[0]);
	x->theirs = own_take(pair[1]);
	x->slot = x->ours >= 0 && x->theirs >= 0 ? slot_new() : NULL;
	if (x->slot)
		return true;
	if (x->ours >= 0)
		own_close(x->ours);
	if (x->theirs >= 0)
		own_close(x->theirs);
	return false;
}

/* Without descriptors or memory for that the child has none. */
static bool share_with_child(struct sock *s, int bell, int rope) {
	struct share *x = calloc(1, sizeof *x);
	if (!x || !share_open(x)) {
		free(x);
		return false;
	}
	x->s = s;
	x->bell = bell;
	x->rope = rope;
	x->shut = x->slot->shut = s->write_shut;
	nshares++;
	atomic_fetch_add(&s->refs, 1);
	atomic_store(&s->share, x);
	own_stay(x->theirs, true);
	x->next = shares;
	shares = x;
	return true;
}

/* false: there are no descriptors for a bell. */
static bool bell_open(int *bell) {
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair))
		return false;
	*bell = own_take(pair[0]);
	fork_rope = own_take(pair[1]);
	if (*bell >= 0 && fork_rope >= 0)
		return true;
	if (*bell >= 0)
		own_close(*bell);
	if (fork_rope >= 0)
		own_close(fork_rope);
	fork_rope = -1;
	return false;
}

void share_before_fork(void) {
	struct sock *of[MOST];
	int n = device ? table_streams(of, MOST - nshares) : 0, bell, made = 0;
	if (n > 0 && again < 0)
		again = own_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (n <= 0 || again < 0 || !bell_open(&bell))
		return;
	pthread_mutex_lock(&pumping);
	for (int i = 0; i < n; i++)
		made += share_with_child(of[i], bell, fork_rope);
	pthread_mutex_unlock(&pumping);
	own_stay(fork_rope, made > 0);
	if (made > 0)
		return;
	own_close(bell);
	own_close(fork_rope);
	fork_rope = -1;
}

/* What children have closed makes room, if the thread has not come to it yet. Unlocked. */
void share_tidy(void) {
	pthread_mutex_lock(&pumping);
	for (struct share *x = shares; x; x = x->next)
		take(x);
	pthread_mutex_unlock(&pumping);
	while (reap(false))
		;
}

/* What is of the child that was just made no later one inherits. By guard, from before the fork on. */
void share_forked(void) {
	for (struct share *x = shares; x && x->theirs >= 0; x = x->next) {
		own_close(x->theirs);
		x->theirs = -1;
		madvise(x->slot, sizeof *x->slot, MADV_DONTFORK);
	}
	if (fork_rope >= 0)
		own_close(fork_rope);
	fork_rope = -1;
}

/* Unlocked. Without a thread the child is told that it has none. */
void share_after_fork(void) {
	lock();
	bool start = shares && !serving;
	if (start)
		serving = start_thread(serve);
	bool failed = start && !serving;
	if (shares && !start)
		own_write(again, &(uint64_t){1}, 8);
	unlock();
	while (failed && reap(true))
		;
}

bool share_drain(struct sock *s) {
	bool all = true;
	pthread_mutex_lock(&pumping);
	for (struct share *x = shares; x; x = x->next)
		if (x->s == s && (x->slot->wrote > x->took || x->slot->shut != x->shut)) /* else the kernel need not be asked */
			all = take(x) && all;
	pthread_mutex_unlock(&pumping);
	return all;
}

/* What children have written leaves before the process ends. Unlocked, as long as that may take. */
void share_settle(int64_t until) {
	for (bool all = false; !all && now_ns() < until;) {
		struct sock *full = NULL;
		lock();
		for (struct share *x = shares; x; x = x->next)
			if (x->s->state == STREAM && !share_drain(x->s))
				full = x->s;
		all = !full;
		if (full)
			atomic_fetch_add(&full->refs, 1);
		unlock();
		if (!full)
			break;
		wait_for(full, POLLOUT, 0, until);
		enter();
		sock_put(full);
	}
}

void share_close_all(void) {
	for (struct share *x = shares; x; x = x->next)
		if (x->s->state == STREAM && x->s->stream) {
			x->s->state = FOREIGN;
			edge_stream_close(x->s->stream, -1);
			x->s->stream = NULL;
		}
}

/* --- the child --- */

/* Of a stream of the parent's: whether the child has a share. */
bool share_inherited(const struct sock *s) {
	struct share *mine = s->share;
	return mine && mine->theirs >= 0;
}

/* After the table. */
void share_in_child(void) {
	shares = NULL;
	nshares = 0;
	again = fork_rope = -1;
	serving = false;
	pthread_mutex_init(&pumping, NULL);
}

int share_number(const struct sock *s) { return own_number(s->share->theirs); }

static bool empty(const struct share *x) {
	int n = 0;
	return real.ioctl(own_number(x->theirs), FIONREAD, &n) == 0 && n == 0;
}

/* Without room in the bell it rings already. */
static void pull(const struct share *x) { own_send(x->rope, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }

static void ask(struct share *x, size_t n) {
	uint32_t wants = n < MESSAGE ? (uint32_t)n : MESSAGE;
	if (n > 0 && empty(x) && atomic_exchange(&x->slot->wants, wants) == 0)
		pull(x);
}

void share_ask(struct sock *s) { ask(s->share, MESSAGE); }

ssize_t share_read(struct sock *s, void *p, size_t n, int flags) {
	struct share *x = s->share;
	ssize_t r = real.recv(own_number(x->theirs), p, n, flags | MSG_DONTWAIT);
	if (r > 0 && x->standing)
		ask(x, MESSAGE);
	if (r > 0 || n == 0)
		return r;
	if (r < 0 && errno == EAGAIN) {
		ask(x, n);
		return EDGE_ERR_AGAIN;
	}
	struct pollfd hung = {.fd = own_number(x->theirs)};
	real.ppoll(&hung, 1, &(struct timespec){0}, NULL);
	return r < 0 || hung.revents & POLLHUP ? EDGE_ERR_RESET : 0; /* the parent's end of the pair goes with the parent */
}

ssize_t share_write(struct sock *s, const void *p, size_t n) {
	struct share *x = s->share;
	if (s->state == STREAM) /* the parent, after what its children wrote */
		return share_drain(s) ? edge_stream_write(s->stream, p, n, 0) : EDGE_ERR_AGAIN;
	if (x->slot->shut)
		return EDGE_ERR_SHUT;
	ssize_t r = real.send(own_number(x->theirs), p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r > 0)
		atomic_fetch_add(&x->slot->wrote, (uint64_t)r);
	return r >= 0 ? r : errno == EAGAIN ? EDGE_ERR_AGAIN : EDGE_ERR_RESET;
}

/* A thread that is cancelled while it waits, or whose handler jumps out of the call. */
static void left(void *p) {
	struct resting *x = p;
	rest_left(x);
	sock_put(x->s);
}

int share_wait(struct sock *s, int want, int64_t until) {
	struct share *x = s->share;
	struct pollfd p = {.fd = own_number(x->theirs), .events = (short)want};
	signals_begin();
	for (;;) {
		int64_t ns = until == NEVER ? 0 : until - now_ns();
		struct timespec t = {.tv_sec = ns > 0 ? ns / SECOND : 0, .tv_nsec = ns > 0 ? ns % SECOND : 0};
		struct resting w = {.s = s};
		rest_begin(&w, left);
		int r = signals_seen() ? fail_with(EINTR) : real.ppoll(&p, 1, until == NEVER ? NULL : &t, NULL), err = errno;
		rest_end(&w);
		if (r > 0)
			return 0;
		if (r < 0 && until == NEVER && signals_restart()) {
			signals_begin();
			continue;
		}
		if (want & POLLIN && !x->standing)
			x->slot->wants = 0;
		return r < 0 ? err : ETIMEDOUT;
	}
}

int share_epoll(struct sock *s, int set, int op, struct epoll_event *e) {
	int r = real.epoll_ctl(set, op, share_number(s), e);
	if (r == 0) {
		s->share->standing = op != EPOLL_CTL_DEL && e->events & EPOLLIN;
		if (s->share->standing)
			share_ask(s);
	}
	return r;
}

void share_shut(struct sock *s) {
	s->share->slot->shut = true;
	pull(s->share);
}

/* The child has closed it. By guard. */
void share_end(struct sock *s) {
	own_close(s->share->theirs);
	slot_free(s->share->slot);
	free(s->share);
	s->share = NULL;
}
