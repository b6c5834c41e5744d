/* Devices: opening and closing. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "device.h"
#include "ring.h"

#define GRANTS_TIME (5 * SECOND) /* how long a device that closes waits for those who write to memory of its grants */

static bool buffer_size(uint32_t n)
{
	return n >= 4096 && n <= 512u << 20 && (n & (n - 1)) == 0;
}

static int normalize(edge_config *to, const edge_config *from)
{
	memset(to, 0, sizeof *to);
	if (from != NULL) {
		size_t before = offsetof(edge_config, resume); /* of programs from before it */
		if (from->size != sizeof *from && from->size != before)
			return fail(EDGE_ERR_INVALID, "edge_config.size must be its sizeof");
		memcpy(to, from, from->size);
	}
	if (to->queue_depth == 0)
		to->queue_depth = 1024;
	if (to->spin_us == 0)
		to->spin_us = 50;
	if (to->queue_depth < 8 || to->queue_depth > 65536 || (to->queue_depth & (to->queue_depth - 1)) != 0)
		return fail(EDGE_ERR_INVALID, "queue_depth is %u; choose a power of two from 8 to 65536", to->queue_depth);
	if ((to->receive_buffer != 0 && !buffer_size(to->receive_buffer)) ||
	    (to->send_buffer != 0 && !buffer_size(to->send_buffer)))
		return fail(EDGE_ERR_INVALID, "a buffer of streams is a power of two from 4 KiB to 512 MiB");
	if (to->wait < EDGE_ADAPTIVE || to->wait > EDGE_BUSY)
		return fail(EDGE_ERR_INVALID, "wait is %d; choose EDGE_ADAPTIVE, EDGE_BLOCK or EDGE_BUSY", to->wait);
	return to->name == NULL ? 0 : check_name("the program's name", to->name, true);
}

static char *socket_path(const edge_config *cfg)
{
	const char *path = cfg->socket;
	if (path == NULL || path[0] == 0)
		path = secure_getenv("EDGE_SOCKET");
	return strdup(path == NULL || path[0] == 0 ? "/run/edged/edged.sock" : path);
}

/* A device and the parts of its layers. */
struct whole {
	struct edge_device d;
	struct ring ring;
	struct control ctl;
	struct waiting w;
	struct attachment at;
	struct memory mem;
	struct conns conns;
	struct ops ops;
	struct streams streams;
};

/* --- what lower layers tell --- */

static bool completed(edge_device *d, const struct abi_cqe *e)
{
	switch (e->kind) {
	case ABI_COMPLETION: case ABI_RECEIVED: return ops_take(d, e);
	case ABI_NOTIFICATION: return notified(d, e);
	case ABI_LATE: return ops_late(d, e);
	}
	return false;
}

static void happened(edge_device *d, const union abi_packet *m)
{
	switch (m->h.kind) {
	case ABI_INCOMING: incoming(d, &m->incoming); break;
	case ABI_ADVERT: advertised(d, &m->advert); break;
	case ABI_WITHDRAWN: withdrawn(d, m->withdrawn.conn, m->withdrawn.key); break;
	case ABI_ENDED: conns_ended(d, &m->closed, false); break;
	case ABI_CLOSED: conns_ended(d, &m->closed, true); break;
	}
}

static void ended(edge_device *d, int err)
{
	ops_fail_all(d, err);
	conns_fail(d, err);
	jobs_fail(d, err);
	offers_end(d);
	spares_drop(d);
}

static void due(edge_device *d, int64_t now)
{
	attach_timers(d, now);
	offers_due(d, now);
	if (d->streams->lingering != NULL && now >= d->streams->linger_due)
		stream_linger(d, now);
}

static int64_t next_due(const edge_device *d)
{
	int64_t at = attach_due(d);
	if (d->attached && d->conns->relisten_at != 0 && d->conns->relisten_at < at)
		at = d->conns->relisten_at;
	if (d->streams->lingering != NULL && d->streams->linger_due < at)
		at = d->streams->linger_due;
	if (d->conns->owing != NULL && d->conns->ring_full) {
		int64_t soon = now_ns() + MILLI; /* no doorbell tells of that room */
		at = soon < at ? soon : at;
	}
	return at;
}

static void settle(edge_device *d)
{
	if (d->conns->owing != NULL)
		pay_owing(d);
	if (d->streams->ended != NULL)
		stream_reap(d);
	d->unsettled = d->conns->owing != NULL;
}

static void forget(edge_device *d, const edge_conn *c)
{
	ops_forget_conn(d->ops, c);
}

static bool unused(const edge_device *d)
{
	return d->conns->all == NULL && d->streams->nstreams == 0 && d->w->waiters == NULL;
}

/* Frees what a device has left. Unlocked. */
static void device_free(edge_device *d)
{
	wait_close(d);
	words_free(d);
	ops_close(d->ops);
	control_free(d->ctl);
	bounce_close(d);
	free(d->socket);
	free(d->name);
	pthread_mutex_destroy(&d->mu);
	free(d); /* the first of its whole */
}

static const struct above above = { .completed = completed, .happened = happened, .lost = attach_lost,
	.attached = offer_all, .ended = ended, .due = due, .next_due = next_due, .settle = settle, .forget = forget,
	.unused = unused, .free = device_free };

static edge_device *device_new(void)
{
	struct whole *x = calloc(1, sizeof *x);
	if (x == NULL)
		return NULL;
	x->d = (struct edge_device){ .above = &above, .ring = &x->ring, .ctl = &x->ctl, .w = &x->w, .at = &x->at,
		.mem = &x->mem, .conns = &x->conns, .ops = &x->ops, .streams = &x->streams };
	pthread_mutex_init(&x->d.mu, NULL);
	x->w.epoll = x->w.wake = x->w.bell = x->w.timer = x->ctl.fd = -1;
	x->ring.watch = -1;
	x->ctl.last = &x->ctl.first;
	x->mem.last_job = &x->mem.jobs;
	x->w.last_changed = &x->w.changed;
	return &x->d;
}

static int prepare(edge_device *d, const edge_config *config)
{
	int err = normalize(&d->cfg, config);
	if (err != 0)
		return err;
	d->w->idle = (struct idle){ .how = (enum idle_how)d->cfg.wait, .spin = (int64_t)d->cfg.spin_us * 1000 };
	d->at->pause = 10 * MILLI;
	d->socket = socket_path(&d->cfg);
	d->name = d->cfg.name == NULL ? NULL : strdup(d->cfg.name);
	if (d->socket == NULL || ops_open(d->ops, d->cfg.queue_depth) != 0)
		return EDGE_ERR_NO_MEMORY;
	err = wait_open(d);
	d->ctl->epoll = d->w->epoll;
	return err;
}

static int open_device(edge_device **dev, const edge_config *config, bool waits, int64_t until)
{
	edge_device *d = device_new();
	if (d == NULL)
		return EDGE_ERR_NO_MEMORY;
	int err = prepare(d, config);
	if (err != 0) {
		device_free(d);
		return err;
	}
	fork_enter(d); /* before there is a socket that a child could keep */
	enter(d);
	err = attach_start(d);
	if (err == 0 && waits)
		err = attach_current(d, until);
	if (err != 0 && d->at->since == 0 && d->at->err != 0)
		err = d->at->err;
	if (err != 0) {
		d->dead = EDGE_ERR_CLOSED;
		attach_end(d, err);
		leave(d, 0);
		fork_leave(d);
		device_free(d);
		return err;
	}
	leave(d, 0);
	*dev = d;
	return 0;
}

int edge_open(edge_device **dev, const edge_config *config, int timeout_ms)
{
	return open_device(dev, config, true, deadline(timeout_ms));
}

int edge_open_start(edge_device **dev, const edge_config *config)
{
	return open_device(dev, config, false, 0);
}

int edge_device_attached(edge_device *d, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, attach_current(d, until));
}

static bool none_lingers(void *arg)
{
	return ((edge_device *)arg)->streams->lingering == NULL;
}

static bool all_sent(void *arg)
{
	edge_device *d = arg;
	for (edge_conn *c = d->conns->all; c != NULL; c = c->next)
		if (stream_in_flight(c))
			return false;
	return none_lingers(d);
}

int edge_device_drain(edge_device *d, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, wait_for(d, all_sent, d, until));
}

static bool none_listed(void *arg)
{
	for (const edge_conn *c = ((edge_device *)arg)->conns->all; c != NULL; c = c->next)
		if (c->end.listed && c->state == ENDED) /* to one who asks meanwhile nothing is exported */
			return false;
	return true;
}

/* Memory that was granted goes on to be there: connections end before the device, and when the daemon has said so it
 * writes nothing any more (ABI A7.19). */
static void end_grants(edge_device *d)
{
	bool any = false;
	for (const edge_region *r = d->mem->regions; r != NULL; r = r->next)
		any |= r->kind == GRANTED && r->epoch == d->epoch;
	if (!any || !d->attached)
		return;
	for (edge_conn *c = d->conns->all, *next; c != NULL; c = next) {
		next = c->next;
		conn_abort(c, EDGE_ERR_CLOSED);
	}
	wait_for(d, none_listed, d, now_ns() + GRANTS_TIME);
}

/* What belongs to the device goes with it, but for connections and streams that the program has. */
static void release_all(edge_device *d)
{
	while (d->conns->listeners != NULL) {
		edge_listener *l = d->conns->listeners;
		unlock(d);
		edge_listener_close(l);
		pthread_mutex_lock(&d->mu);
	}
	conns_dead(d);
	stream_reap(d);
	regions_free(d);
}

void edge_device_close(edge_device *d, int timeout_ms)
{
	if (d == NULL)
		return;
	int64_t until = deadline(timeout_ms);
	fork_leave(d);
	enter(d);
	if (d->dead == 0 && until != 0)
		wait_for(d, none_lingers, d, until);
	if (d->dead == 0)
		end_grants(d);
	if (d->dead == 0) {
		d->dead = EDGE_ERR_CLOSED;
		attach_lost(d, EDGE_ERR_CLOSED, "");
		wake_all(d);
	}
	d->cfg.on_change = NULL;
	release_all(d);
	d->orphan = true;
	leave(d, 0);
}

int edge_device_error(edge_device *d)
{
	enter(d);
	return leave(d, d->dead != 0 ? d->dead : d->attached ? 0 : EDGE_ERR_DAEMON_DOWN);
}

const char *edge_device_name(edge_device *d)
{
	return d->at->name;
}

const char *edge_device_node(edge_device *d)
{
	return d->at->node;
}

uint64_t edge_device_features(edge_device *d)
{
	enter(d);
	uint64_t features = d->features;
	leave(d, 0);
	return features;
}
