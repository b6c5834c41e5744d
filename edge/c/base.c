/* How functions of the library begin and end; time, names, and what else every layer needs. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

/* Begins a function of the library; leave ends it and tells the program of what changed for the device, unlocked. A
 * device that was closed goes with the last of its connections and streams. */
void enter(edge_device *d)
{
	detail_stale();
	pthread_mutex_lock(&d->mu);
}

struct bell *bell_new(int fd)
{
	struct bell *b = malloc(sizeof *b);
	if (b != NULL)
		*b = (struct bell){ .refs = 1, .fd = fd };
	return b;
}

/* The daemon is to be woken once the lock is free: on a core that it shares with the program it runs at once, and the
 * program's other threads would find the lock taken until it sleeps again. */
void bell_due(edge_device *d, struct bell *b)
{
	if (d->due != NULL)
		return;
	atomic_fetch_add(&b->refs, 1);
	d->due = b;
}

void bell_drop(struct bell *b)
{
	if (b == NULL || atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	if (b->fd >= 0) /* else fork.c has closed it */
		close(b->fd);
	free(b);
}

static void bell_ring(struct bell *b)
{
	uint64_t one = 1;
	int before = errno;
	while (write(b->fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	errno = before;
	bell_drop(b);
}

void call_daemon(edge_device *d)
{
	struct bell *b = d->due;
	d->due = NULL;
	if (b != NULL)
		bell_ring(b);
}

void unlock(edge_device *d)
{
	struct bell *b = d->due;
	d->due = NULL;
	pthread_mutex_unlock(&d->mu);
	if (b != NULL)
		bell_ring(b);
}

int leave(edge_device *d, int result)
{
	void (*fn)(void *, int) = d->cfg.on_change;
	void *arg = d->cfg.arg;
	bool last = d->orphan && d->above->unused(d), lost = d->lost, back = (lost || d->away) && d->attached;
	d->away = (lost || d->away) && !back;
	d->lost = false;
	unlock(d);
	if (fn != NULL && lost)
		fn(arg, EDGE_ERR_DAEMON_DOWN);
	if (fn != NULL && back)
		fn(arg, 0);
	if (last)
		d->above->free(d);
	return result;
}

/* Has an epoll set watch fd for events, or not any more. */
void watch_fd(int epoll, int fd, uint32_t events, int how)
{
	struct epoll_event e = { .events = events, .data.fd = fd };
	epoll_ctl(epoll, how, fd, &e);
}

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* When a wait of timeout_ms ends; 0: it does not wait. */
int64_t deadline(int timeout_ms)
{
	return timeout_ms < 0 ? NEVER : timeout_ms == 0 ? 0 : now_ns() + timeout_ms * MILLI;
}

/* When a call that asks the daemon gives up: who does not wait gets the answer all the same, since it comes at once. */
int64_t answer_by(int64_t until)
{
	return until == 0 ? now_ns() + SECOND : until;
}

void put_str(struct abi_str *to, const char *s)
{
	size_t n = strnlen(s, ABI_STR);
	to->size = (uint16_t)n;
	memcpy(to->bytes, s, n);
}

/* Copies a str of the daemon's to MAX_NAME + 1 bytes. */
void get_str(char *to, const struct abi_str *s)
{
	size_t n = s->size < ABI_STR ? s->size : ABI_STR;
	memcpy(to, s->bytes, n);
	to[n] = 0;
}

static bool utf8(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	while (*p != 0) {
		int more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : (*p & 0xf0) == 0xe0 ? 2 : *p >= 0xf0 &&
		    *p < 0xf5 ? 3 : -1;
		unsigned char first = *p++;
		if (more < 0)
			return false;
		for (int i = 0; i < more; i++, p++)
			if ((*p & 0xc0) != 0x80 || (i == 0 && ((first == 0xe0 && *p < 0xa0) || (first == 0xed && *p >= 0xa0) ||
			                                       (first == 0xf0 && *p < 0x90) || (first == 0xf4 && *p >= 0x90))))
				return false;
	}
	return true;
}

int check_name(const char *what, const char *name, bool empty)
{
	if (name == NULL || (name[0] == 0 && !empty))
		return fail(EDGE_ERR_INVALID, "%s is empty", what);
	if (strlen(name) > MAX_NAME)
		return fail(EDGE_ERR_INVALID, "%s has %zu bytes, at most %d are allowed", what, strlen(name), MAX_NAME);
	return utf8(name) ? 0 : fail(EDGE_ERR_INVALID, "%s is not UTF-8", what);
}

/* Whether a verb is in force with this daemon. */
int check_feature(const edge_device *d, uint64_t feature, const char *what)
{
	return d->features & feature ? 0 : fail(EDGE_ERR_VERSION, "the daemon is older and knows no %s; upgrade it", what);
}
