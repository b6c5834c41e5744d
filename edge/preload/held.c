/*
 * What a program writes without waiting before the verdict, and what it leaves behind when it closes the socket. A new
 * TCP connection takes the first bytes at once. They are kept here, few enough that either TCP or the stream has room
 * for all of them at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"

enum { MOST = 128 << 10, LEAST = 1 << 10 };
#define ALONE (4000 * MILLI) /* longer than a connector waits, and shorter than a process that ends */
#define NAP (2 * MILLI)      /* without a call of the program's a thread of ours sees to what is kept, */
enum { NAPS = 16 };          /* and ends after so many with nothing to see to: the next connection may need it */
#define PROMPT MILLI         /* how long a write that could be kept waits for a side that mostly answers at once */

/* TCP takes a quarter of its buffer in one piece, whatever the pages around it are charged. */
static uint32_t most(const struct sock *s) {
	int size = 0;
	socklen_t n = sizeof size;
	if (s->fd < 0 || real.getsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &size, &n) || size / 4 < LEAST)
		return LEAST;
	uint32_t some = size / 4 < MOST ? (uint32_t)size / 4 : MOST;
	return stream_buffer && stream_buffer / 2 < some ? stream_buffer / 2 : some;
}

size_t held_room(struct sock *s) {
	if (s->write_shut)
		return 1; /* the write fails at once */
	return s->held.room ? s->held.room - s->held.n : 1;
}

/* A stream that is used again is the other side's to confirm, which may take as long as it calls nothing. Meanwhile TCP
 * takes so many bytes, and the program may take that for granted. By guard. */
bool holds(struct sock *s, size_t n) {
	return s->state == DIALLING && s->kept.begun && !s->write_shut &&
	       n <= (s->held.room ? s->held.room - s->held.n : most(s));
}

int64_t time_limit(int fd, int option) {
	struct timeval t = {0};
	socklen_t n = sizeof t;
	if (real.getsockopt(fd, SOL_SOCKET, option, &t, &n) || (t.tv_sec == 0 && t.tv_usec == 0))
		return NEVER;
	return after(t.tv_sec, t.tv_usec * 1000);
}

int settle_for(struct sock *s, int fd, int option, size_t bytes) {
	int64_t until = time_limit(fd, option);
	int err = settle(s, false, until, bytes);
	int64_t now = now_ns(), soon = now + PROMPT < until ? now + PROMPT : until;
	if (bytes == 0 || err != EAGAIN || now >= until)
		return err;
	err = settle(s, false, soon, 0);
	return err == EAGAIN || err == EINTR ? EINPROGRESS : err;
}

static bool settle_next(int64_t until);
static struct sock *first_held(void);

static bool driving; /* a thread sees to it that what is kept leaves, though the program calls nothing */

static bool drives(int *idle) {
	lock();
	struct sock *s = device ? first_held() : NULL;
	*idle = s ? 0 : *idle + 1;
	bool on = driving = *idle < NAPS;
	unlock();
	if (s) {
		enter();
		sock_put(s);
	}
	return on;
}

/* Mostly the program's own calls send all before long. As long as it makes any this thread only looks whether it does:
 * one that waited would be woken for each of them. */
static void *drive(void *nothing) {
	(void)nothing;
	own_waiter()->ours = true;
	int idle = 0;
	do {
		unsigned before = progresses;
		real.ppoll(NULL, 0, &(struct timespec){.tv_nsec = NAP}, NULL);
		if (progresses == before)
			settle_next(NEVER);
	} while (drives(&idle));
	return NULL;
}

/* By guard. A program without another thread to spare keeps what it has: its next call sends it. */
void drive_on(void) { driving = driving || start_thread(drive); }

size_t keep(struct sock *s, const struct iovec *v, size_t n) {
	if (s->held.room == 0)
		s->held.room = most(s);
	size_t kept = 0, all = 0;
	for (size_t i = 0; i < n; i++)
		all += v[i].iov_len;
	all = all < s->held.room - s->held.n ? all : s->held.room - s->held.n;
	char *more = realloc(s->held.bytes, s->held.n + all + 1);
	if (!more)
		return 0;
	s->held.bytes = more;
	for (size_t i = 0; i < n; i++) {
		size_t some = s->held.room - s->held.n < v[i].iov_len ? s->held.room - s->held.n : v[i].iov_len;
		if (some)
			memcpy(s->held.bytes + s->held.n, v[i].iov_base, some);
		s->held.n += (uint32_t)some;
		kept += some;
		if (some < v[i].iov_len)
			break;
	}
	drive_on();
	return kept;
}

void drop_held(struct sock *s) {
	free(s->held.bytes);
	s->held.bytes = NULL;
	s->held.n = s->held.room = 0;
	s->held.gone = false;
}

/* Puts a byte before all else, by which the acceptor of a stream that is used again learns that it is (PROTOCOL 20.10):
 * so mostly it costs no message. */
static bool confirm(struct sock *s) {
	char *more = realloc(s->held.bytes, s->held.n + 1);
	if (!more)
		return false;
	memmove(more + 1, more, s->held.n);
	*more = 0;
	s->held.bytes = more;
	s->held.n++;
	s->held.room += s->held.room > 0;
	s->held.gone = true;
	s->kept.confirms = false;
	return true;
}

bool held_to_stream(struct sock *s) {
	uint32_t sent = 0;
	if (s->kept.confirms && !confirm(s))
		return false;
	while (sent < s->held.n) {
		ssize_t n = edge_stream_write(s->stream, s->held.bytes + sent, s->held.n - sent, 0);
		if (n == EDGE_ERR_AGAIN) {
			memmove(s->held.bytes, s->held.bytes + sent, s->held.n - sent);
			s->held.n -= sent;
			s->held.gone |= sent > 0;
			return false;
		}
		if (n < 0)
			break; /* the program learns it by its next call */
		sent += (uint32_t)n;
	}
	drop_held(s);
	return true;
}

/* Nothing was sent before, so that there is room; a connection that has none nevertheless ends, as does one of which
 * the stream has the beginning. */
void held_to_tcp(struct sock *s) {
	if (s->held.n > 0 && s->fd >= 0 &&
	    (s->held.gone ||
	     real.send(own_number(s->fd), s->held.bytes, s->held.n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)s->held.n))
		real.connect(own_number(s->fd), &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
	drop_held(s);
}

/* An acceptor that has dialled may be on a stream already, as the other side sees it, and a connector that accepted is:
 * closed now, bytes and an end in good order would be lost. */
bool must_outlive(const struct sock *s) { return s->state == DIALLING || (s->state == OFFERED && !unanswered(s)); }

int outlive(struct sock *s) {
	int copy = must_outlive(s) && s->fd >= 0 ? own_take(real.fcntl64(own_number(s->fd), F_DUPFD_CLOEXEC, 0)) : -1;
	if (copy < 0)
		return -1;
	s->orphan = true;
	if (s->kept.begun && s->state == DIALLING)
		leave_alone(s);
	drive_on(); /* who waits for the end may wait for this program's next call, else */
	return copy;
}

void leave_alone(struct sock *s) {
	int64_t until = now_ns() + ALONE;
	s->until = s->kept.alone && s->until < until ? s->until : until;
	s->kept.alone = true;
}

void held_after_fork(void) { driving = false; } /* the copies are the parent's: own_after_fork closes them */

/* A socket that is undecided, and has something to send or to end, with a count. */
static struct sock *first_held(void) {
	for (struct sock *s = undecided; s; s = s->next)
		if (s->held.n > 0 || s->write_shut || s->orphan) {
			atomic_fetch_add(&s->refs, 1);
			return s;
		}
	return NULL;
}

static bool settle_next(int64_t until) {
	lock();
	struct sock *s = device && now_ns() < until ? first_held() : NULL;
	unlock();
	if (!s)
		return false;
	wait_for(s, 0, 0, until);
	enter();
	sock_put(s);
	return true;
}

void settle_all(int64_t until) {
	lock();
	for (struct sock *s = undecided; s; s = s->next)
		if (s->state == DIALLING && s->kept.begun)
			leave_alone(s);
	unlock();
	while (settle_next(until))
		;
}
