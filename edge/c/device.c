/* Devices: opening and closing, and how functions of the library begin and end. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "internal.h"

static bool buffer_size(uint32_t n)
{
	return n >= 4096 && n <= 512u << 20 && (n & (n - 1)) == 0;
}

static int normalize(edge_config *to, const edge_config *from)
{
	memset(to, 0, sizeof *to);
	if (from != NULL) {
		if (from->size != sizeof *from)
			return fail(EDGE_ERR_INVALID, "edge_config.size must be its sizeof");
		*to = *from;
	}
	if (to->queue_depth == 0)
		to->queue_depth = 1024;
	if (to->spin_us == 0)
		to->spin_us = 50;
	if (to->receive_buffer == 0)
		to->receive_buffer = 256 << 10;
	if (to->send_buffer == 0)
		to->send_buffer = 256 << 10;
	if (to->queue_depth < 8 || to->queue_depth > 65536 || (to->queue_depth & (to->queue_depth - 1)) != 0)
		return fail(EDGE_ERR_INVALID, "queue_depth is %u; choose a power of two from 8 to 65536", to->queue_depth);
	if (!buffer_size(to->receive_buffer) || !buffer_size(to->send_buffer))
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

/* Frees what a device has left. Unlocked. */
void device_free(edge_device *d)
{
	wait_close(d);
	ops_close(&d->ops);
	for (uint32_t i = 0; i < d->ctl.ncalls; i++)
		free(d->ctl.calls[i]);
	free(d->ctl.calls);
	for (struct packet *p; (p = d->ctl.first) != NULL; free(p))
		d->ctl.first = p->next;
	bounce_close(d);
	free(d->socket);
	free(d->name);
	pthread_mutex_destroy(&d->mu);
	free(d);
}

/* Begins a function of the library; leave ends it and tells the program of what changed for the device, unlocked. A
 * device that was closed goes with the last of its connections and streams. */
void enter(edge_device *d)
{
	detail_stale();
	pthread_mutex_lock(&d->mu);
}

int leave(edge_device *d, int result)
{
	struct attachment *a = &d->at;
	void (*fn)(void *, int) = d->cfg.on_change;
	void *arg = d->cfg.arg;
	bool last = d->orphan && d->all == NULL && d->nstreams == 0 && d->w.waiters == NULL;
	bool lost = a->lost, back = (lost || a->away) && a->state == ATTACHED;
	a->away = (lost || a->away) && !back;
	a->lost = false;
	pthread_mutex_unlock(&d->mu);
	if (fn != NULL && lost)
		fn(arg, EDGE_ERR_DAEMON_DOWN);
	if (fn != NULL && back)
		fn(arg, 0);
	if (last)
		device_free(d);
	return result;
}

static int prepare(edge_device *d, const edge_config *config)
{
	d->w.epoll = d->w.wake = d->w.bell = d->w.timer = d->ctl.fd = -1;
	d->ring.submit = d->ring.watch = -1;
	d->ctl.last = &d->ctl.first;
	d->last_job = &d->jobs;
	d->last_changed = &d->changed;
	pthread_mutex_init(&d->mu, NULL);
	int err = normalize(&d->cfg, config);
	if (err != 0)
		return err;
	d->w.spin = (int64_t)d->cfg.spin_us * 1000;
	d->at.pause = 10 * MILLI;
	d->socket = socket_path(&d->cfg);
	d->name = d->cfg.name == NULL ? NULL : strdup(d->cfg.name);
	if (d->socket == NULL || ops_open(&d->ops, d->cfg.queue_depth) != 0)
		return EDGE_ERR_NO_MEMORY;
	return wait_open(d);
}

int edge_open(edge_device **dev, const edge_config *config, int timeout_ms)
{
	edge_device *d = calloc(1, sizeof *d);
	if (d == NULL)
		return EDGE_ERR_NO_MEMORY;
	int64_t until = deadline(timeout_ms);
	int err = prepare(d, config);
	if (err != 0) {
		device_free(d);
		return err;
	}
	fork_enter(d); /* before there is a socket that a child could keep */
	enter(d);
	err = attach_start(d);
	if (err == 0)
		err = attach_current(d, until);
	if (err != 0 && d->at.since == 0 && d->at.err != 0)
		err = d->at.err;
	if (err != 0) {
		d->dead = EDGE_ERR_CLOSED;
		control_close(d, err);
		ring_close(d);
		leave(d, 0);
		fork_leave(d);
		device_free(d);
		return err;
	}
	leave(d, 0);
	*dev = d;
	return 0;
}

static bool none_lingers(void *arg)
{
	return ((edge_device *)arg)->lingering == NULL;
}

static bool all_sent(void *arg)
{
	edge_device *d = arg;
	for (edge_conn *c = d->all; c != NULL; c = c->next)
		if (c->stream != NULL && c->inflight > 0)
			return false;
	return none_lingers(d);
}

int edge_device_drain(edge_device *d, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, wait_for(d, all_sent, d, until));
}

/* What belongs to the device goes with it, but for connections and streams that the program has. */
static void release_all(edge_device *d)
{
	while (d->listeners != NULL) {
		edge_listener *l = d->listeners;
		pthread_mutex_unlock(&d->mu);
		edge_listener_close(l);
		pthread_mutex_lock(&d->mu);
	}
	for (edge_conn *c = d->all, *next; c != NULL; c = next) {
		next = c->next;
		conn_dead(c);
		if (c->stream == NULL)
			conn_gone(c);
		else if (c->stream->closed)
			stream_step(c->stream);
	}
	d->owing = NULL;
	stream_reap(d);
	for (edge_region *r; (r = d->regions) != NULL; free(r)) {
		d->regions = r->next;
		region_unmap(r);
	}
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
	return leave(d, d->dead != 0 ? d->dead : d->at.state == ATTACHED ? 0 : EDGE_ERR_DAEMON_DOWN);
}

const char *edge_device_name(edge_device *d)
{
	return d->at.name;
}

const char *edge_device_node(edge_device *d)
{
	return d->at.node;
}

uint64_t edge_device_features(edge_device *d)
{
	enter(d);
	uint64_t features = d->at.features;
	leave(d, 0);
	return features;
}
