/* The life of an attachment: hello, the end, and the next one (ABI A2, A7.1). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control.h"
#include "ring.h"
#include "waiting.h"

/* What this library knows of (ABI A2.4): all of it is wanted, nothing required. A verb that needs a bit adds it. */
#define FEATURES \
	(EDGE_FEATURE_MEMORY | EDGE_FEATURE_ATOMICS | EDGE_FEATURE_PIECES | EDGE_FEATURE_MESSAGES | EDGE_FEATURE_LOCAL | \
	 EDGE_FEATURE_EAGER | EDGE_FEATURE_HEAP | EDGE_FEATURE_DOMAINS | EDGE_FEATURE_SCATTER | EDGE_FEATURE_WORDS | \
	 EDGE_FEATURE_OVERLAP | EDGE_FEATURE_EARLY | EDGE_FEATURE_BYTES)

#define FIRST_PAUSE (10 * MILLI)
#define LONGEST_PAUSE (2 * SECOND)
#define STEADY (10 * SECOND)  /* an attachment that lasted so long was a good one: the next pause is the first */
#define GREET_TIME (10 * SECOND)

/* RESUME changes what a refusal does to what is behind it: only for programs that say that they resume. */
static uint64_t wanted(const edge_device *d)
{
	return FEATURES | (d->cfg.resume != 0 ? EDGE_FEATURE_RESUME : 0);
}

/* The socket and the rings of an attachment go. */
void attach_end(edge_device *d, int err)
{
	bool mapped = d->dead != EDGE_ERR_FORKED;
	control_close(d, err);
	if (mapped && d->ring->map != NULL) /* the daemon has the file, too: closing does not remove it */
		watch_fd(d->w->epoll, d->ring->watch, 0, EPOLL_CTL_DEL);
	if (mapped)
		words_detach(d);
	ring_close(d, mapped);
}

/* Ends an attempt, and plans the next after a pause that is spread by half. */
static int attach_failed(edge_device *d, int err)
{
	struct attachment *a = d->at;
	a->state = DOWN;
	d->attached = false;
	a->err = err;
	a->attempts++;
	snprintf(a->detail, sizeof a->detail, "%s", edge_detail());
	attach_end(d, err);
	int64_t now = now_ns();
	a->retry_at = now + a->pause / 2 + (int64_t)((uint64_t)now * 2654435761u % (uint64_t)a->pause);
	a->pause = a->pause * 2 < LONGEST_PAUSE ? a->pause * 2 : LONGEST_PAUSE;
	news(d);
	return err;
}

static int check_hello(edge_device *d, const struct abi_hello_reply *m, const int *fds)
{
	if (fds[0] < 0 || fds[1] < 0 || fds[2] < 0)
		return no_descriptor(d);
	if (m->version != ABI_VERSION || m->sqe_size != 64 || m->cqe_size != 32 || (m->features & ~wanted(d)) != 0)
		return fail(EDGE_ERR_VERSION, "the daemon chose version %u, features %#llx, entries of %u and %u bytes",
		            m->version, (unsigned long long)m->features, m->sqe_size, m->cqe_size);
	if (m->sq_entries != d->cfg.queue_depth)
		return fail(EDGE_ERR_VERSION, "the daemon made rings of depth %u instead of %u", m->sq_entries,
		            d->cfg.queue_depth);
	return 0;
}

/* The program may be reading it: what stays is not written again. */
static void rename_to(char to[MAX_NAME + 1], const struct abi_str *s)
{
	char name[MAX_NAME + 1];
	get_str(name, s);
	if (strcmp(to, name) != 0)
		strcpy(to, name);
}

static void greeted(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fds)
{
	(void)c;
	struct attachment *a = d->at;
	if (m == NULL)
		return; /* control_close: who called it goes on */
	if (err == 0)
		err = check_hello(d, &m->hello, fds);
	struct bell *submit = err == 0 ? bell_new(fds[1]) : NULL;
	if (err == 0)
		err = submit == NULL ? EDGE_ERR_NO_MEMORY : ring_map(d->ring, fds[0], &m->hello);
	if (err != 0) {
		free(submit);
		attach_failed(d, err);
		return;
	}
	d->ring->submit = submit;
	d->ring->watch = fds[2];
	fds[1] = fds[2] = -1;
	/* Edge-triggered, so that nobody has to make it unreadable (A8.3). */
	watch_fd(d->w->epoll, d->ring->watch, EPOLLIN | EPOLLET, EPOLL_CTL_ADD);
	rename_to(a->node, &m->hello.node);
	rename_to(a->name, &m->hello.name);
	d->window = m->hello.window == 0 || m->hello.window > m->hello.sq_entries ? m->hello.sq_entries : m->hello.window;
	d->features = m->hello.features;
	a->state = ATTACHED;
	d->attached = true;
	words_attach(d);
	a->err = 0;
	a->attempts++;
	a->since = now_ns();
	pulse_forget(d, a->since);
	d->ctl->ready = true;
	d->above->attached(d);
	news(d);
}

static int connect_daemon(edge_device *d)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = strlen(d->socket);
	if (n >= sizeof to.sun_path)
		return fail(EDGE_ERR_INVALID, "the socket's path is longer than %zu bytes", sizeof to.sun_path - 1);
	memcpy(to.sun_path, d->socket, n);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return system_error("socket");
	if (connect(s, (struct sockaddr *)&to, sizeof to) == 0)
		return s;
	int number = errno;
	close(s);
	switch (number) {
	case ENOENT: case ECONNREFUSED: return fail(EDGE_ERR_NO_DAEMON, "no daemon answers at %s", d->socket);
	case EACCES: case EPERM: return fail(EDGE_ERR_DENIED, "this user may not use %s", d->socket);
	}
	errno = number;
	return system_error("connect to the daemon");
}

/* Begins an attempt to attach. The reply to hello ends it. */
int attach_start(edge_device *d)
{
	int s = connect_daemon(d);
	if (s < 0)
		return attach_failed(d, s);
	d->ctl->fd = s;
	d->ctl->received = 0;
	watch_fd(d->w->epoll, s, EPOLLIN, EPOLL_CTL_ADD);
	d->at->state = GREETING;
	d->epoch++;
	d->at->greet_until = now_ns() + GREET_TIME;
	struct abi_hello m = { .lowest = ABI_VERSION, .highest = ABI_VERSION, .features = wanted(d),
		.depth = d->cfg.queue_depth, .shard = d->cfg.shard, .sqe_size = 64, .cqe_size = 32 };
	put_str(&m.name, d->name == NULL ? "" : d->name);
	int err = control_send(d, &m, sizeof m, ABI_HELLO, -1, greeted, NULL, 0);
	return err == 0 ? 0 : attach_failed(d, err);
}

/* Everything that lived by the daemon's leave ends with err. What completed before stays completed. */
void attach_lost(edge_device *d, int err, const char *why)
{
	struct attachment *a = d->at;
	if (a->state == DOWN)
		return;
	bool greeting = a->state == GREETING;
	if (d->dead == 0)
		fail(err, "%s", why);
	d->lost |= !greeting && d->dead == 0;
	if (a->since != 0 && now_ns() - a->since > STEADY)
		a->pause = FIRST_PAUSE;
	attach_failed(d, err);
	if (!greeting) {
		d->epoch++; /* numbers of the old daemon are nobody's now */
		a->retry_at = now_ns() + FIRST_PAUSE / 2 + (int64_t)((uint64_t)now_ns() % (uint64_t)FIRST_PAUSE);
	}
	d->above->ended(d, err);
	news(d);
}

/* Does what is due by the clock. */
void attach_timers(edge_device *d, int64_t now)
{
	struct attachment *a = d->at;
	if (d->dead != 0)
		return;
	if (a->state == DOWN && now >= a->retry_at)
		attach_start(d);
	if (a->state == GREETING && now >= a->greet_until) {
		fail(EDGE_ERR_DAEMON_SILENT, "the daemon does not answer; look at its log");
		attach_failed(d, EDGE_ERR_DAEMON_SILENT);
	}
}

/* When attach_timers has something to do next. */
int64_t attach_due(const edge_device *d)
{
	const struct attachment *a = d->at;
	if (a->state == DOWN)
		return a->retry_at;
	if (a->state == GREETING)
		return a->greet_until;
	return NEVER;
}

struct attempt { edge_device *d; uint32_t attempts; };

static bool attempted(void *arg)
{
	struct attempt *t = arg;
	return t->d->at->state == ATTACHED || t->d->at->attempts != t->attempts || t->d->dead != 0;
}

/* Returns 0 when attached. If not it makes an attempt at once and returns what came of it. */
int attach_current(edge_device *d, int64_t until)
{
	if (d->dead != 0)
		return d->dead;
	pump(d, true);
	if (d->at->state == ATTACHED)
		return 0;
	struct attempt t = { d, d->at->attempts };
	if (d->at->state == DOWN)
		attach_start(d);
	int err = wait_for(d, attempted, &t, answer_by(until));
	if (err != 0)
		return err;
	if (d->at->state == ATTACHED)
		return 0;
	if (d->dead != 0)
		return d->dead;
	return fail(d->at->since == 0 ? d->at->err : EDGE_ERR_DAEMON_DOWN, "%s", d->at->detail);
}
