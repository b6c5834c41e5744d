/* Services, and requests of peers to connect (ABI A7.6). */
#include <stdlib.h>
#include <string.h>

#include "conn.h"

#define NAME_TIME (2 * SECOND) /* how long a service's name may still be taken, by ourselves */
#define AGAIN (10 * MILLI)     /* until the daemon is asked again then */

enum { BACKLOG = 128 };

static void append(edge_listener *l, struct edge_request *r)
{
	r->next = NULL;
	*l->last_request = r;
	l->last_request = &r->next;
	l->nrequests++;
}

/* The next request; NULL: there is none. */
edge_request *request_take(edge_listener *l)
{
	struct edge_request *r = l->requests;
	if (r == NULL)
		return NULL;
	l->requests = r->next;
	if (l->requests == NULL)
		l->last_request = &l->requests;
	l->nrequests--;
	return r;
}

static void refused(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)d, (void)err, (void)m, (void)fd;
	edge_conn *c = call->obj;
	c->work.calls--;
	conn_forget(c);
}

/* Turns a request down and frees its connection. */
void refuse(edge_conn *c, const char *reason)
{
	struct abi_refuse m = { .conn = c->id };
	m.text.size = (uint16_t)strnlen(reason, ABI_TEXT);
	memcpy(m.text.bytes, reason, m.text.size);
	if (c->end.listed && !c->end.closed && control_send(c->d, &m, sizeof m, ABI_REFUSE, -1, refused, c, 0) == 0) {
		c->work.calls++;
		c->end.aborting = true;
	}
	conn_release(c);
}

void incoming(edge_device *d, const struct abi_incoming *m)
{
	char service[MAX_NAME + 1], peer[MAX_NAME + 1];
	get_str(service, &m->service);
	get_str(peer, &m->peer);
	edge_listener *l = d->conns->listeners;
	while (l != NULL && strcmp(l->service, service) != 0)
		l = l->next;
	if (conn_find(d, m->conn) != NULL)
		return; /* a broken daemon's */
	edge_conn *c = conn_new(d, peer, service);
	struct edge_request *r = malloc(sizeof *r);
	size_t n = m->data.size < ABI_DATA ? m->data.size : ABI_DATA;
	if (c == NULL || r == NULL || (n > 0 && (c->who.data = malloc(n)) == NULL)) {
		control_tell(d, &(struct abi_conn){ .conn = m->conn }, sizeof(struct abi_conn), ABI_ABORT);
		free(r);
		if (c != NULL)
			conn_release(c);
		return;
	}
	if (n > 0)
		memcpy(c->who.data, m->data.bytes, n);
	c->who.data_size = n;
	c->who.user = m->user;
	get_str(c->who.node, &m->node);
	c->state = ASKED;
	conn_enter(c, m->conn);
	if (l == NULL || l->err != 0 || l->nrequests >= BACKLOG) {
		free(r);
		refuse(c, l == NULL || l->err != 0 ? "the service has just closed" : "too many requests wait; try again later");
		return;
	}
	*r = (struct edge_request){ .c = c, .l = l };
	append(l, r);
	if (l->user != NULL)
		l->user->requests(l);
	changed(d, &l->watch);
	news(d);
}

/* Ends a listener that the daemon does not serve; it stays the program's to close. */
static void listener_fail(edge_listener *l, int err)
{
	if (l->err == 0)
		l->err = err;
	changed(l->d, &l->watch);
	news(l->d);
}

static void offered(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	edge_listener *l = d->conns->listeners;
	while (l != NULL && l->serial != call->num)
		l = l->next;
	if (l == NULL)
		return; /* closed meanwhile: unlisten follows */
	if (err == 0)
		l->offered = l->known = true;
	else if (err == EDGE_ERR_EXISTS && l->known && now_ns() < d->conns->relisten_until)
		d->conns->relisten_at = now_ns() + AGAIN;
	else if ((err != EDGE_ERR_DAEMON_DOWN && err != EDGE_ERR_DRAINING) || !l->known)
		listener_fail(l, err);
	news(d);
}

/* Tells the daemon of a service. */
static void offer(edge_listener *l)
{
	struct abi_service m = { 0 };
	put_str(&m.service, l->service);
	int err = control_send(l->d, &m, sizeof m, ABI_LISTEN, -1, offered, NULL, l->serial);
	if (err != 0 && !l->known)
		listener_fail(l, err);
}

/* Tells a new daemon of all services that an earlier one offered. */
void offer_all(edge_device *d)
{
	d->conns->relisten_until = now_ns() + NAME_TIME;
	for (edge_listener *l = d->conns->listeners; l != NULL; l = l->next)
		if (l->known)
			offer(l);
}

/* The daemon has gone. */
void offers_end(edge_device *d)
{
	for (edge_listener *l = d->conns->listeners; l != NULL; l = l->next)
		l->offered = false;
}

/* Tells it once more, when that is due. */
void offers_due(edge_device *d, int64_t now)
{
	struct conns *s = d->conns;
	if (!d->attached || s->relisten_at == 0 || now < s->relisten_at)
		return;
	s->relisten_at = 0;
	for (edge_listener *l = s->listeners; l != NULL; l = l->next)
		if (l->known && !l->offered && l->err == 0)
			offer(l);
}

static bool listening(void *arg)
{
	edge_listener *l = arg;
	return l->offered || l->err != 0;
}

static void unlist(edge_listener *l)
{
	*l->at = l->next;
	if (l->next != NULL)
		l->next->at = l->at;
	unwatch(l->d, &l->watch);
	for (struct edge_request *r; (r = request_take(l)) != NULL; free(r))
		refuse(r->c, "the service has just closed");
	if (l->user != NULL)
		l->user->closed(l);
}

/* Has the daemon asked. */
static int listen_start(edge_device *d, const char *service, const struct listener_user *user, uint32_t backlog,
                        edge_listener **listener, int64_t until)
{
	int err = check_name("the service's name", service, false);
	if (err == 0)
		err = attach_current(d, until);
	for (edge_listener *l = d->conns->listeners; err == 0 && l != NULL; l = l->next)
		if (strcmp(l->service, service) == 0)
			err = fail(EDGE_ERR_EXISTS, "this device offers \"%s\" already", service);
	edge_listener *l = err == 0 ? calloc(1, sizeof *l) : NULL;
	if (l == NULL)
		return err != 0 ? err : EDGE_ERR_NO_MEMORY;
	*l = (edge_listener){ .d = d, .user = user, .backlog = backlog, .serial = ++d->conns->serial,
		.next = d->conns->listeners, .at = &d->conns->listeners };
	strcpy(l->service, service);
	l->last_request = &l->requests;
	l->last_ready = &l->ready;
	if (l->next != NULL)
		l->next->at = &l->next;
	d->conns->listeners = l;
	offer(l);
	*listener = l;
	return 0;
}

static int listen_wait(edge_listener *l, int64_t until)
{
	int err = wait_for(l->d, listening, l, answer_by(until));
	return err == 0 ? l->err : err;
}

static void listen_end(edge_listener *l)
{
	struct abi_service m = { 0 };
	put_str(&m.service, l->service);
	if (l->err == 0 && l->d->dead == 0) /* it may be offered yet, or a new daemon be about to offer it */
		control_tell(l->d, &m, sizeof m, ABI_UNLISTEN);
	unlist(l);
	free(l);
}

int listen_on(edge_device *d, const char *service, const struct listener_user *user, uint32_t backlog,
              edge_listener **listener, int64_t until)
{
	edge_listener *l;
	int err = listen_start(d, service, user, backlog, &l, until);
	if (err != 0)
		return err;
	err = listen_wait(l, until);
	if (err == 0)
		*listener = l;
	else
		listen_end(l);
	return err;
}

int edge_listen(edge_device *d, const char *service, edge_listener **listener, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, listen_on(d, service, NULL, 0, listener, until));
}

int edge_listen_start(edge_device *d, const char *service, edge_listener **listener)
{
	enter(d);
	return leave(d, listen_start(d, service, NULL, 0, listener, 0));
}

int edge_listener_wait(edge_listener *l, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(l->d);
	return leave(l->d, listen_wait(l, until));
}

void edge_listener_close(edge_listener *l)
{
	if (l == NULL)
		return;
	edge_device *d = l->d;
	enter(d);
	listen_end(l);
	leave(d, 0);
}

static bool has_request(void *arg)
{
	edge_listener *l = arg;
	for (struct edge_request *r; (r = l->requests) != NULL && r->c->state == ENDED;) { /* the peer gave up meanwhile */
		conn_release(request_take(l)->c);
		free(r);
	}
	return l->requests != NULL || l->err != 0;
}

static int next_request(edge_listener *l, edge_request **request, int64_t until)
{
	if (l->user != NULL)
		return fail(EDGE_ERR_INVALID, "a listener of streams: use edge_stream_accept");
	int err = wait_for(l->d, has_request, l, until);
	if (err == 0 && l->requests == NULL)
		err = l->err;
	if (err == 0)
		*request = request_take(l);
	return err;
}

int edge_listener_next(edge_listener *l, edge_request **request, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(l->d);
	return leave(l->d, next_request(l, request, until));
}

static void accepted(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	edge_conn *c = call->obj;
	c->work.calls--;
	if (err == 0 && c->state == ACCEPTING)
		c->state = OPEN;
	else if (err != 0)
		conn_end(c, err, true);
	if (c->user != NULL)
		c->user->accepted(c, c->state == OPEN ? 0 : c->err);
	if (err != 0)
		conn_forget(c);
	else if (c->end.released)
		conn_gone(c);
	news(d);
}

/* Says yes to a request; the reply makes c OPEN. */
int conn_accept(edge_conn *c, const void *data, size_t size)
{
	struct abi_accept m = { .conn = c->id, .domain = c->who.domain, .data.size = (uint16_t)size };
	if (size > 0)
		memcpy(m.data.bytes, data, size);
	int err = c->state != ASKED ? c->err : control_send(c->d, &m, sizeof m, ABI_ACCEPT, -1, accepted, c, 0);
	if (err == 0) {
		c->work.calls++;
		c->state = ACCEPTING;
	}
	return err;
}

static bool accept_over(void *arg)
{
	edge_conn *c = arg;
	return c->state != ACCEPTING;
}

static int accept_request(edge_request *r, const void *data, size_t size, edge_conn **conn, int64_t until)
{
	edge_conn *c = r->c;
	free(r);
	int err = size > ABI_DATA ? fail(EDGE_ERR_INVALID, "%zu bytes of private data; at most %d can be sent", size,
	    ABI_DATA)
	                          : conn_accept(c, data, size);
	if (err == 0)
		err = wait_for(c->d, accept_over, c, answer_by(until));
	if (err == 0 && c->state == ENDED)
		err = c->err;
	if (err == 0)
		*conn = c;
	else
		conn_release(c);
	return err;
}

int edge_request_accept(edge_request *r, const void *data, size_t size, edge_conn **conn, int timeout_ms)
{
	edge_device *d = r->c->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, accept_request(r, data, size, conn, until));
}

int edge_request_refuse(edge_request *r, const char *reason)
{
	edge_device *d = r->c->d;
	enter(d);
	refuse(r->c, reason == NULL ? "" : reason);
	free(r);
	return leave(d, 0);
}

int edge_accept(edge_listener *l, edge_conn **conn, int timeout_ms)
{
	edge_device *d = l->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err;
	edge_request *r;
	while ((err = next_request(l, &r, until)) == 0) {
		err = accept_request(r, NULL, 0, conn, until);
		if (err == 0 || err == EDGE_ERR_TIMEOUT || err == EDGE_ERR_DAEMON_SILENT || d->dead != 0)
			break; /* else it failed meanwhile: the next one */
	}
	return leave(d, err);
}

const char *edge_request_peer(const edge_request *r)
{
	return r->c->who.peer;
}

const char *edge_request_node(const edge_request *r)
{
	return r->c->who.node;
}

void edge_request_join(edge_request *r, uint32_t domain)
{
	r->c->who.domain = domain;
}

int edge_request_user(const edge_request *r, uint32_t *uid)
{
	if (r->c->who.user == 0)
		return 0;
	*uid = r->c->who.user - 1;
	return 1;
}

const void *edge_request_data(const edge_request *r, size_t *size)
{
	*size = r->c->who.data_size;
	return r->c->who.data;
}

void edge_listener_watch(edge_listener *l, void *context)
{
	enter(l->d);
	unwatch(l->d, &l->watch);
	l->watch.context = context;
	changed(l->d, &l->watch);
	leave(l->d, 0);
}

int edge_listener_pending(edge_listener *l)
{
	enter(l->d);
	if (l->d->dead == 0)
		pump(l->d, false);
	return leave(l->d, l->user != NULL ? (int)l->nready : (int)l->nrequests);
}
