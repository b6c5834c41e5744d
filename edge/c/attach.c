/* The life of an attachment: hello, the end, and the next one (ABI A2, A7.1). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "internal.h"

/* What this library knows of (ABI A2.4): all of it is wanted, nothing required. A verb that needs a bit adds it here.
 * */
#define FEATURES \
	(EDGE_FEATURE_MEMORY | EDGE_FEATURE_ATOMICS | EDGE_FEATURE_PIECES | EDGE_FEATURE_MESSAGES | EDGE_FEATURE_LOCAL | \
	 EDGE_FEATURE_EAGER)

#define FIRST_PAUSE (10 * MILLI)
#define LONGEST_PAUSE (2 * SECOND)
#define STEADY (10 * SECOND)  /* an attachment that lasted so long was a good one: the next pause is the first */
#define GREET_TIME (10 * SECOND)
#define NAME_TIME (2 * SECOND) /* how long a service's name may still be taken, by ourselves */

/* Ends an attempt, and plans the next after a pause that is spread by half. */
static int attach_failed(edge_device *d, int err)
{
	struct attachment *a = &d->at;
	a->state = DOWN;
	a->err = err;
	a->attempts++;
	snprintf(a->detail, sizeof a->detail, "%s", edge_detail());
	control_close(d, err);
	ring_close(d);
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
	if (m->version != ABI_VERSION || m->sqe_size != 64 || m->cqe_size != 32 || (m->features & ~FEATURES) != 0)
		return fail(EDGE_ERR_VERSION, "the daemon chose version %u, features %#llx, entries of %u and %u bytes",
		    m->version,
		            (unsigned long long)m->features, m->sqe_size, m->cqe_size);
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
	struct attachment *a = &d->at;
	if (m == NULL)
		return; /* control_close: who called it goes on */
	if (err == 0)
		err = check_hello(d, &m->hello, fds);
	if (err == 0)
		err = ring_map(&d->ring, fds[0], &m->hello);
	if (err != 0) {
		attach_failed(d, err);
		return;
	}
	d->ring.submit = fds[1];
	d->ring.watch = fds[2];
	fds[1] = fds[2] = -1;
	watch_fd(d, d->ring.watch, EPOLLIN | EPOLLET, EPOLL_CTL_ADD); /* so that nobody has to make it unreadable (A8.3) */
	rename_to(a->node, &m->hello.node);
	rename_to(a->name, &m->hello.name);
	a->window = m->hello.window == 0 || m->hello.window > m->hello.sq_entries ? m->hello.sq_entries : m->hello.window;
	a->features = m->hello.features;
	a->state = ATTACHED;
	a->err = 0;
	a->attempts++;
	a->since = d->w.pulse_at = now_ns();
	d->w.pulse = d->w.still = 0;
	d->w.silent = false;
	d->ctl.ready = true;
	a->relisten_until = a->since + NAME_TIME;
	for (edge_listener *l = d->listeners; l != NULL; l = l->next)
		if (l->known)
			offer(l);
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
	d->ctl.fd = s;
	watch_fd(d, s, EPOLLIN, EPOLL_CTL_ADD);
	d->at.state = GREETING;
	d->at.epoch++;
	d->at.greet_until = now_ns() + GREET_TIME;
	struct abi_hello m = { .lowest = ABI_VERSION, .highest = ABI_VERSION, .features = FEATURES,
		.depth = d->cfg.queue_depth, .shard = d->cfg.shard, .sqe_size = 64, .cqe_size = 32 };
	put_str(&m.name, d->name == NULL ? "" : d->name);
	int err = control_send(d, &m, sizeof m, ABI_HELLO, -1, greeted, NULL, 0);
	return err == 0 ? 0 : attach_failed(d, err);
}

/* Everything that lived by the daemon's leave ends with err. What completed before stays completed. */
void attach_lost(edge_device *d, int err, const char *why)
{
	struct attachment *a = &d->at;
	if (a->state == DOWN)
		return;
	bool greeting = a->state == GREETING;
	if (d->dead == 0)
		fail(err, "%s", why);
	a->lost |= !greeting && d->dead == 0;
	if (a->since != 0 && now_ns() - a->since > STEADY)
		a->pause = FIRST_PAUSE;
	attach_failed(d, err);
	if (!greeting) {
		a->epoch++; /* numbers of the old daemon are nobody's now */
		a->retry_at = now_ns() + FIRST_PAUSE / 2 + (int64_t)((uint64_t)now_ns() % (uint64_t)FIRST_PAUSE);
	}
	ops_fail_all(d, err);
	for (edge_conn *c = d->all, *next; c != NULL; c = next) {
		next = c->next;
		conn_end(c, err, true);
		conn_forget(c);
	}
	jobs_fail(d, err);
	for (struct orphan *o; (o = d->orphans) != NULL; free(o))
		d->orphans = o->next;
	d->norphans = 0;
	for (edge_listener *l = d->listeners; l != NULL; l = l->next)
		l->offered = false;
	for (edge_region *r; (r = d->spare) != NULL;) {
		d->spare = r->next;
		d->nspare--;
		region_unmap(r);
		free(r);
	}
	news(d);
}

static void offered(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	edge_listener *l = d->listeners;
	while (l != NULL && l->serial != call->num)
		l = l->next;
	if (l == NULL)
		return; /* closed meanwhile: unlisten follows */
	if (err == 0)
		l->offered = l->known = true;
	else if (err == EDGE_ERR_EXISTS && l->known && now_ns() < d->at.relisten_until)
		d->at.relisten_at = now_ns() + FIRST_PAUSE;
	else if (err != EDGE_ERR_DAEMON_DOWN && err != EDGE_ERR_DRAINING)
		listener_fail(l, err);
	else if (!l->known)
		listener_fail(l, err);
	news(d);
}

/* Tells the daemon of a service. */
void offer(edge_listener *l)
{
	struct abi_service m = { 0 };
	put_str(&m.service, l->service);
	int err = control_send(l->d, &m, sizeof m, ABI_LISTEN, -1, offered, NULL, l->serial);
	if (err != 0 && !l->known)
		listener_fail(l, err);
}

/* Does what is due by the clock. */
void attach_timers(edge_device *d, int64_t now)
{
	struct attachment *a = &d->at;
	if (d->dead != 0)
		return;
	if (a->state == DOWN && now >= a->retry_at)
		attach_start(d);
	if (a->state == GREETING && now >= a->greet_until) {
		fail(EDGE_ERR_DAEMON_SILENT, "the daemon does not answer; look at its log");
		attach_failed(d, EDGE_ERR_DAEMON_SILENT);
	}
	if (a->state == ATTACHED && a->relisten_at != 0 && now >= a->relisten_at) {
		a->relisten_at = 0;
		for (edge_listener *l = d->listeners; l != NULL; l = l->next)
			if (l->known && !l->offered && l->err == 0)
				offer(l);
	}
}

/* When attach_timers has something to do next. */
int64_t attach_due(const edge_device *d)
{
	const struct attachment *a = &d->at;
	if (a->state == DOWN)
		return a->retry_at;
	if (a->state == GREETING)
		return a->greet_until;
	return a->relisten_at != 0 ? a->relisten_at : NEVER;
}

struct attempt { edge_device *d; uint32_t attempts; };

static bool attempted(void *arg)
{
	struct attempt *t = arg;
	return t->d->at.state == ATTACHED || t->d->at.attempts != t->attempts || t->d->dead != 0;
}

/* Returns 0 when attached. If not it makes an attempt at once and returns what came of it. */
int attach_current(edge_device *d, int64_t until)
{
	if (d->dead != 0)
		return d->dead;
	pump(d, true);
	if (d->at.state == ATTACHED)
		return 0;
	struct attempt t = { d, d->at.attempts };
	if (d->at.state == DOWN)
		attach_start(d);
	int err = wait_for(d, attempted, &t, answer_by(until));
	if (err != 0)
		return err;
	if (d->at.state == ATTACHED)
		return 0;
	if (d->dead != 0)
		return d->dead;
	return fail(d->at.since == 0 ? d->at.err : EDGE_ERR_DAEMON_DOWN, "%s", d->at.detail);
}
