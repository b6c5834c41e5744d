/* How streams begin and end (PROTOCOL clauses 11.2, 11.6): who accepts gets memory first; who dials, once the peer has
 * accepted, so that peers that do not cost none. Then the export of the ring; all in handlers, so that nobody waits.
 * A stream that its program closed lingers until the peer has everything. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "stream.h"

#define HELLO "stream/1"

enum { HELLO_SIZE = sizeof HELLO - 1, LINGER_MS = 5000 };

static const struct conn_user has_stream;

static edge_stream *of(const edge_conn *c)
{
	return c->owner;
}

static edge_stream *stream_new(edge_device *d, edge_conn *c)
{
	edge_stream *s = calloc(1, sizeof *s);
	if (s == NULL)
		return NULL;
	s->d = d;
	s->c = c;
	s->job.done = true;
	pthread_mutex_init(&s->in.mu, NULL);
	pthread_mutex_init(&s->out.mu, NULL);
	c->user = &has_stream;
	c->owner = s;
	d->streams->nstreams++;
	return s;
}

static void unlink_stream(edge_stream *s)
{
	if (s->at == NULL)
		return;
	*s->at = s->next;
	if (s->next != NULL)
		s->next->at = s->at;
	s->at = NULL;
}

static void link_stream(edge_stream *s, edge_stream **list)
{
	unlink_stream(s);
	s->next = *list;
	s->at = list;
	if (s->next != NULL)
		s->next->at = &s->next;
	*list = s;
}

/* Has s end on its own: it belongs to no program, or not any more. */
static void stream_discard(edge_stream *s, int err)
{
	s->closed = true;
	stream_await(s, true);
	s->linger_at = NEVER;
	link_stream(s, &s->d->streams->lingering);
	stream_cut(s, err);
	stream_step(s);
}

/* Brings a stream that was closed on its way: Fin, the orderly end once the peer has everything, the grave. */
void stream_step(edge_stream *s)
{
	edge_conn *c = s->c;
	if (c->state == OPEN && !c->end.closing && s->out.fin && c->work.inflight == 0) {
		c->end.closing = true;
		conn_send_close(c);
	}
	bool named = c->end.listed || c->work.inflight > 0 || c->work.calls > 0 || c->notes.owes || !s->job.done;
	if (c->state == ENDED && !named) {
		link_stream(s, &s->d->streams->ended);
		s->d->unsettled = true;
	}
}

/* Frees what is over. Its memory is kept for the next stream. */
void stream_reap(edge_device *d)
{
	for (edge_stream *s; (s = d->streams->ended) != NULL; free(s)) {
		unlink_stream(s);
		unwatch(d, &s->watch);
		if (s->awaits)
			await_less(d);
		memory_keep(s);
		s->c->user = NULL;
		s->c->owner = NULL;
		conn_release(s->c);
		pthread_mutex_destroy(&s->in.mu);
		pthread_mutex_destroy(&s->out.mu);
		d->streams->nstreams--;
	}
}

/* Cuts those whose time is over. */
void stream_linger(edge_device *d, int64_t now)
{
	d->streams->linger_due = NEVER;
	for (edge_stream *s = d->streams->lingering, *next; s != NULL; s = next) {
		next = s->next;
		if (now >= s->linger_at) {
			s->linger_at = NEVER;
			stream_cut(s, EDGE_ERR_TIMEOUT);
		} else if (s->linger_at < d->streams->linger_due)
			d->streams->linger_due = s->linger_at;
	}
}

static void accept_some(edge_listener *l);

static void exported(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)d, (void)m, (void)fd;
	edge_stream *s = call->obj;
	s->c->work.calls--;
	s->c->memory.exporting--;
	if (err != 0 && err != EDGE_ERR_NO_CONN) /* its end, which is about to come, says why */
		stream_cut(s, err);
	stream_advance(s);
}

/* Exports the ring. */
static int export_ring(edge_stream *s)
{
	return send_export(s->region, s->c, "stream", EDGE_REMOTE_WRITE, 0, s->ring, exported, s);
}

/* The stream works. err: of export_ring. */
static void open_stream(edge_stream *s, int err)
{
	s->state = S_OPEN;
	if (err != 0)
		stream_cut(s, err);
	stream_advance(s);
}

/* A stream that came to nothing before it was accepted. */
static void not_accepted(edge_stream *s, int err)
{
	edge_listener *l = s->listener;
	s->listener = NULL;
	stream_discard(s, err);
	if (l != NULL) {
		l->nopening--;
		accept_some(l); /* its place is another's */
	}
}

void stream_has_memory(edge_stream *s, int err)
{
	edge_conn *c = s->c;
	if (c->state == ENDED || s->closed) {
		err = s->err != 0 ? s->err : EDGE_ERR_ABORTED;
	} else if (err == 0 && !s->accepts) {
		open_stream(s, export_ring(s));
	} else if (err == 0) { /* both at once: the daemon serves accept first (ABI A7.7), and the peer need not wait */
		s->state = S_CONNECTING;
		err = conn_accept(c, HELLO, HELLO_SIZE);
		if (err == 0)
			err = export_ring(s);
	}
	if (err == 0)
		return;
	if (s->accepts && s->listener != NULL)
		not_accepted(s, err); /* the peer sees a refusal or a reset */
	else {
		stream_cut(s, err);
		stream_advance(s);
	}
}

static void dialled(edge_conn *c, int err)
{
	edge_stream *s = of(c);
	if (err == 0 && (c->who.data_size != HELLO_SIZE || memcmp(c->who.data, HELLO, HELLO_SIZE) != 0))
		stream_cut(s, EDGE_ERR_STREAM);
	if (err == 0 && stream_end(s) == 0) {
		s->state = S_MEMORY;
		err = memory_get(s);
		if (err == 0)
			return;
		stream_cut(s, err);
	}
	stream_advance(s);
}

static void accepted(edge_conn *c, int err)
{
	edge_stream *s = of(c);
	edge_listener *l = s->listener;
	if (err != 0 || stream_end(s) != 0) {
		if (l != NULL)
			not_accepted(s, err != 0 ? err : EDGE_ERR_RESET);
		else
			stream_advance(s);
		return;
	}
	open_stream(s, 0);
	if (l == NULL)
		return;
	l->nopening--;
	l->nready++;
	s->next = NULL;
	s->at = l->last_ready;
	*l->last_ready = s;
	l->last_ready = &s->next;
	changed(s->d, &l->watch);
	news(s->d);
}

static bool asks_stream(const edge_conn *c)
{
	return c->who.data_size >= HELLO_SIZE && memcmp(c->who.data, HELLO, HELLO_SIZE) == 0;
}

/* Makes the stream that a peer asks for by c. NULL: no memory, and c is refused. */
static edge_stream *stream_of(edge_conn *c)
{
	edge_stream *s = stream_new(c->d, c);
	if (s == NULL) {
		refuse(c, "out of memory");
		return NULL;
	}
	s->accepts = true;
	s->skip = HELLO_SIZE;
	return s;
}

int edge_request_stream(const edge_request *r, const void **data, size_t *size)
{
	if (!asks_stream(r->c))
		return 0;
	*size = r->c->who.data_size - HELLO_SIZE;
	*data = *size == 0 ? NULL : (const char *)r->c->who.data + HELLO_SIZE;
	return 1;
}

static int accept_stream(edge_request *r, edge_stream **stream)
{
	edge_conn *c = r->c;
	free(r);
	if (c->d->dead == 0 && c->state == ASKED && !asks_stream(c)) {
		refuse(c, "the service takes streams: dial it as a stream, of the same release");
		return fail(EDGE_ERR_INVALID, "the peer did not ask for a stream; look at edge_request_stream first");
	}
	int err = c->d->dead != 0 ? c->d->dead : c->state != ASKED ? c->err : 0;
	if (err != 0) {
		conn_release(c);
		return err;
	}
	edge_stream *s = stream_of(c);
	if (s == NULL)
		return EDGE_ERR_NO_MEMORY;
	err = memory_get(s);
	if (err != 0)
		stream_discard(s, err);
	else
		*stream = s;
	return err;
}

int edge_request_accept_stream(edge_request *r, edge_stream **stream)
{
	edge_device *d = r->c->d;
	enter(d);
	return leave(d, accept_stream(r, stream));
}

/* Accepts requests as far as the backlog allows. */
static void accept_some(edge_listener *l)
{
	while (l->requests != NULL && l->nready + l->nopening < l->backlog) {
		edge_request *r = request_take(l);
		edge_conn *c = r->c;
		free(r);
		if (c->state == ENDED) {
			conn_release(c);
			continue;
		}
		if (!asks_stream(c)) {
			refuse(c, "the service takes streams: dial it as a stream, of the same release");
			continue;
		}
		edge_stream *s = stream_of(c);
		if (s == NULL)
			continue;
		s->listener = l;
		l->nopening++;
		int err = memory_get(s);
		if (err != 0)
			not_accepted(s, err);
	}
}

/* What the listener has not given to the program, nobody accepts. */
static void unaccepted(edge_listener *l)
{
	for (edge_conn *c = l->d->conns->all; c != NULL; c = c->next)
		if (c->user == &has_stream && of(c)->listener == l) {
			of(c)->listener = NULL;
			stream_discard(of(c), EDGE_ERR_CLOSED);
		}
}

static const struct listener_user accepts_streams = { .requests = accept_some, .closed = unaccepted };

int edge_stream_listen(edge_device *d, const char *service, uint32_t backlog, edge_listener **listener, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, listen_on(d, service, &accepts_streams, backlog == 0 ? 16 : backlog, listener, until));
}

static bool has_ready(void *arg)
{
	edge_listener *l = arg;
	return l->ready != NULL || l->err != 0;
}

int edge_stream_accept(edge_listener *l, edge_stream **stream, int timeout_ms)
{
	edge_device *d = l->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	if (l->user == NULL)
		return leave(d, fail(EDGE_ERR_INVALID, "a listener of connections: use edge_accept"));
	int err = wait_for(d, has_ready, l, until);
	if (err == 0 && l->ready == NULL)
		err = l->err;
	if (err == 0) {
		edge_stream *s = l->ready;
		if (s->next == NULL)
			l->last_ready = &l->ready;
		unlink_stream(s);
		s->listener = NULL;
		l->nready--;
		accept_some(l);
		*stream = s;
	}
	return leave(d, err);
}

static int dial(edge_device *d, const char *peer, const char *service, const edge_dial_options *options,
                edge_stream **stream, int64_t until)
{
	struct abi_dial m;
	int err = fill_dial(&m, peer, service, options, HELLO);
	if (err == 0)
		err = attach_current(d, until);
	edge_conn *c = err == 0 ? conn_new(d, peer, service) : NULL;
	edge_stream *s = c == NULL ? NULL : stream_new(d, c);
	if (s == NULL) {
		if (c != NULL)
			conn_release(c);
		return err != 0 ? err : EDGE_ERR_NO_MEMORY;
	}
	s->state = S_CONNECTING;
	s->skip = SIZE_MAX; /* the answer's data are the library's */
	err = conn_dial(c, &m, until);
	if (err != 0) {
		c->end.closed = true;
		stream_discard(s, err);
		return err;
	}
	*stream = s;
	return 0;
}

int edge_stream_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o,
                           edge_stream **stream, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, dial(d, peer, service, o, stream, until));
}

static bool connected(void *arg)
{
	edge_stream *s = arg;
	return (s->state == S_OPEN && !s->rest.begun) || stream_end(s) != 0;
}

int edge_stream_wait(edge_stream *s, int timeout_ms)
{
	edge_device *d = s->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = wait_for(d, connected, s, until);
	if (err == 0 && (s->state != S_OPEN || s->rest.begun))
		err = stream_end(s);
	return leave(d, err);
}

int edge_stream_dial(edge_device *d, const char *peer, const char *service, const edge_dial_options *o,
                     edge_stream **stream, int timeout_ms)
{
	edge_stream *s = NULL;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = dial(d, peer, service, o, &s, until);
	if (err == 0) {
		err = wait_for(d, connected, s, until);
		if (err == 0 && s->state != S_OPEN)
			err = stream_end(s);
		if (err != 0)
			stream_discard(s, EDGE_ERR_ABORTED);
		else
			*stream = s;
	}
	return leave(d, err);
}

void edge_stream_close(edge_stream *s, int linger_ms)
{
	if (s == NULL)
		return;
	edge_device *d = s->d;
	enter(d);
	unwatch(d, &s->watch);
	if (d->dead != 0)
		conn_dead(s->c);
	if (s->state != S_OPEN || stream_end(s) != 0 || linger_ms == 0) {
		stream_discard(s, EDGE_ERR_CLOSED);
	} else {
		stream_aim(s, 0); /* nobody waits for it on a word */
		s->rest.asked = false;
		s->closed = s->out.shut = true;
		stream_await(s, true);
		s->linger_at = now_ns() + (linger_ms < 0 ? LINGER_MS : linger_ms) * MILLI;
		if (d->streams->lingering == NULL || s->linger_at < d->streams->linger_due)
			d->streams->linger_due = s->linger_at;
		link_stream(s, &d->streams->lingering);
		stream_advance(s);
	}
	if (d->dead == 0)
		pump(d, false);
	else
		stream_reap(d);
	leave(d, 0);
}

const char *edge_stream_peer(const edge_stream *s)
{
	return edge_conn_peer(s->c);
}

const char *edge_stream_service(const edge_stream *s)
{
	return s->c->who.service;
}

const void *edge_stream_data(const edge_stream *s, size_t *size)
{
	size_t n;
	const char *data = edge_conn_data(s->c, &n);
	*size = n < s->skip ? 0 : n - s->skip;
	return *size == 0 ? NULL : data + s->skip;
}

edge_device *edge_stream_device(const edge_stream *s)
{
	return s->d;
}

edge_conn *edge_stream_conn(const edge_stream *s)
{
	return s->c;
}

void edge_stream_watch(edge_stream *s, void *context)
{
	enter(s->d);
	unwatch(s->d, &s->watch);
	s->watch.context = context;
	changed(s->d, &s->watch);
	leave(s->d, 0);
}

/* --- what the layers below tell --- */

static void advance(edge_conn *c)
{
	stream_advance(of(c));
}

static void completed(edge_conn *c, int err)
{
	stream_completed(of(c), err);
}

static void failed(edge_conn *c, int err)
{
	stream_failed(of(c), err);
}

static void arrived(edge_conn *c, const struct note *n)
{
	stream_arrived(of(c), n);
}

static bool pay(edge_conn *c)
{
	return stream_pay(of(c));
}

static void settled(edge_conn *c)
{
	if (of(c)->closed)
		stream_step(of(c));
}

static void dead(edge_conn *c)
{
	of(c)->job.done = true;
}

static const struct conn_user has_stream = { .advance = advance, .completed = completed, .failed = failed,
	.arrived = arrived, .pay = pay,
	.settled = settled, .dialled = dialled, .accepted = accepted, .dead = dead };

/* Whether a stream has bytes that the daemon has not taken. */
bool stream_in_flight(const edge_conn *c)
{
	return c->user == &has_stream && c->work.inflight > 0;
}

/* In a child: a thread that is not here may have been copying. */
void streams_forked(edge_device *d)
{
	for (edge_conn *c = d->conns->all; c != NULL; c = c->next)
		if (c->user == &has_stream) {
			pthread_mutex_init(&of(c)->in.mu, NULL);
			pthread_mutex_init(&of(c)->out.mu, NULL);
		}
}
