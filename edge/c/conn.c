/* Connections: dialling, and the ends (ABI A7.7 to A7.10). */
#include <stdlib.h>
#include <string.h>

#include "conn.h"
#include "ring.h"

/* A connection that the daemon may not know yet. NULL: no memory. */
edge_conn *conn_new(edge_device *d, const char *peer, const char *service)
{
	edge_conn *c = calloc(1, sizeof *c);
	if (c == NULL || (c->who.peer = strdup(peer)) == NULL || (c->who.service = strdup(service)) == NULL) {
		if (c != NULL)
			free(c->who.peer);
		free(c);
		return NULL;
	}
	c->d = d;
	c->epoch = d->epoch;
	c->next = d->conns->all;
	c->at = &d->conns->all;
	if (c->next != NULL)
		c->next->at = &c->next;
	d->conns->all = c;
	return c;
}

edge_conn *conn_find(edge_device *d, uint32_t id)
{
	edge_conn *c = d->conns->table[id % CONN_BUCKETS];
	while (c != NULL && c->id != id)
		c = c->hash;
	return c;
}

/* Enters c under the daemon's number, with the notifications that were faster. */
void conn_enter(edge_conn *c, uint32_t id)
{
	edge_device *d = c->d;
	c->id = id;
	c->hash = d->conns->table[id % CONN_BUCKETS];
	d->conns->table[id % CONN_BUCKETS] = c;
	c->end.listed = true;
	for (struct orphan **at = &d->conns->orphans, *o; (o = *at) != NULL;) {
		if (o->e.conn != id) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		d->conns->norphans--;
		notes_push(c, &o->e);
		free(o);
	}
}

/* The daemon has no more to say of c. */
void conn_forget(edge_conn *c)
{
	if (c->end.listed) {
		edge_conn **at = &c->d->conns->table[c->id % CONN_BUCKETS];
		while (*at != c)
			at = &(*at)->hash;
		*at = c->hash;
		c->end.listed = false;
	}
	c->end.closed = true;
	if (c->user != NULL)
		c->user->advance(c);
	else if (c->end.released)
		conn_gone(c);
}

/* Says why c ended, unless that is known; last: no notification comes any more. */
void conn_end(edge_conn *c, int err, bool last)
{
	if (c->state != ENDED)
		c->err = err;
	c->state = ENDED;
	c->end.last |= last;
	news(c->d);
	if (c->user != NULL)
		c->user->advance(c);
}

/* The daemon says that c is over; last: it says no more of it. */
void conns_ended(edge_device *d, const struct abi_closed *m, bool last)
{
	edge_conn *c = conn_find(d, m->conn);
	if (c == NULL)
		return;
	conn_end(c, m->status == 0 ? EDGE_ERR_PEER_CLOSED : status_error(m->status, NULL), last);
	if (last)
		conn_forget(c);
}

static void orphans_free(edge_device *d)
{
	for (struct orphan *o; (o = d->conns->orphans) != NULL; free(o))
		d->conns->orphans = o->next;
	d->conns->norphans = 0;
}

/* Their daemon has gone. */
void conns_fail(edge_device *d, int err)
{
	for (edge_conn *c = d->conns->all, *next; c != NULL; c = next) {
		next = c->next;
		conn_end(c, err, true);
		conn_forget(c);
	}
	orphans_free(d);
}

/* Returns why nothing can be posted, if so. */
int conn_usable(const edge_conn *c)
{
	if (c->d->dead != 0)
		return c->d->dead;
	if (c->state == ENDED)
		return c->err;
	if (c->end.closing)
		return EDGE_ERR_CLOSED;
	return c->state == OPEN ? 0 : EDGE_ERR_AGAIN;
}

static void dial_ended(edge_device *d)
{
	if (--d->conns->dialling == 0)
		orphans_free(d);
}

static void dialled(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	edge_conn *c = call->obj;
	c->work.calls--;
	if (err == 0 && (c->end.released || c->end.closing || c->state == ENDED)) {
		control_tell(d, &(struct abi_conn){ .conn = m->conn_reply.conn }, sizeof(struct abi_conn), ABI_ABORT);
		err = EDGE_ERR_ABORTED;
	}
	if (err == 0) {
		const struct abi_conn_reply *r = &m->conn_reply;
		char peer[MAX_NAME + 1];
		get_str(peer, &r->peer);
		char *name = peer[0] == 0 ? NULL : strdup(peer);
		if (name != NULL) {
			c->who.dialled = c->who.peer;
			c->who.peer = name;
		}
		get_str(c->who.node, &r->node);
		size_t n = r->data.size < ABI_DATA ? r->data.size : ABI_DATA;
		if (n > 0 && (c->who.data = malloc(n)) != NULL) {
			memcpy(c->who.data, r->data.bytes, n);
			c->who.data_size = n;
		}
		c->state = OPEN;
		conn_enter(c, r->conn);
	} else {
		if (err == EDGE_ERR_REFUSED && m != NULL)
			c->who.reason = strdup(edge_detail());
		c->end.closed = true;
		conn_end(c, err, true);
	}
	dial_ended(d);
	if (c->user != NULL)
		c->user->dialled(c, err);
	else if (c->end.released)
		conn_gone(c);
	news(d);
}

/* Sends the dial of c, a connection without number. */
int conn_dial(edge_conn *c, struct abi_dial *m, int64_t until)
{
	if (until != NEVER && until != 0) {
		int64_t left = until - now_ns();
		m->timeout = left < MILLI ? (uint64_t)MILLI : (uint64_t)left;
	}
	c->epoch = c->d->epoch;
	if (!(c->d->features & EDGE_FEATURE_OVERLAP))
		m->flags &= ~(uint32_t)ABI_OVERLAP;
	int err = control_send(c->d, m, sizeof *m, ABI_DIAL, -1, dialled, c, 0);
	if (err == 0) {
		c->work.calls++;
		c->d->conns->dialling++;
	}
	return err;
}

/* Checks what a dial asks for and fills m. prefix precedes the data. */
int fill_dial(struct abi_dial *m, const char *peer, const char *service, const edge_dial_options *o, const char *prefix)
{
	int err = check_name("the peer's name", peer, false);
	if (err == 0)
		err = check_name("the service's name", service, false);
	if (err != 0)
		return err;
	memset(m, 0, sizeof *m);
	put_str(&m->peer, peer);
	put_str(&m->service, service);
	size_t n = strlen(prefix);
	memcpy(m->data.bytes, prefix, n);
	m->data.size = (uint16_t)n;
	if (o == NULL)
		return 0;
	if (o->size != sizeof *o && o->size != offsetof(edge_dial_options, domain)) /* of programs from before it */
		return fail(EDGE_ERR_INVALID, "edge_dial_options.size must be its sizeof");
	m->domain = o->size == sizeof *o ? o->domain : 0;
	if (o->data_size > ABI_DATA - n)
		return fail(EDGE_ERR_INVALID, "%zu bytes of private data; at most %zu can be sent", o->data_size, ABI_DATA - n);
	if (o->scheduler != NULL) {
		err = check_name("the scheduler", o->scheduler, true);
		put_str(&m->scheduler, o->scheduler);
	}
	if (o->data_size > 0)
		memcpy(m->data.bytes + n, o->data, o->data_size);
	m->data.size = (uint16_t)(n + o->data_size);
	m->flags = o->ordered == EDGE_OVERLAP ? ABI_ORDERED | ABI_OVERLAP : o->ordered ? ABI_ORDERED : 0;
	return err;
}

static int dial(edge_device *d, const char *peer, const char *service, const edge_dial_options *options,
                edge_conn **conn,
                int64_t until)
{
	struct abi_dial m;
	int err = fill_dial(&m, peer, service, options, "");
	if (err == 0)
		err = attach_current(d, until);
	if (err == 0 && m.domain != 0)
		err = check_feature(d, EDGE_FEATURE_DOMAINS, "domains");
	if (err != 0)
		return err;
	edge_conn *c = conn_new(d, peer, service);
	if (c == NULL)
		return EDGE_ERR_NO_MEMORY;
	err = conn_dial(c, &m, until);
	if (err == 0)
		*conn = c;
	else
		conn_release(c);
	return err;
}

static bool dial_over(void *arg)
{
	edge_conn *c = arg;
	return c->state == OPEN || c->state == ENDED;
}

int edge_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o, edge_conn **conn,
                    int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(d);
	return leave(d, dial(d, peer, service, o, conn, until));
}

int edge_conn_wait(edge_conn *c, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	enter(c->d);
	int err = wait_for(c->d, dial_over, c, until);
	return leave(c->d, err == 0 && c->state == ENDED ? c->err : err);
}

int edge_dial(edge_device *d, const char *peer, const char *service, const edge_dial_options *o, edge_conn **conn,
              int timeout_ms)
{
	edge_conn *c;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = dial(d, peer, service, o, &c, until);
	if (err != 0)
		return leave(d, err);
	err = wait_for(d, dial_over, c, until);
	if (err == 0 && c->state == ENDED)
		err = c->err;
	if (err == 0)
		*conn = c;
	else
		conn_release(c);
	return leave(d, err);
}

static void aborted(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)d, (void)err, (void)m, (void)fd;
	edge_conn *c = call->obj;
	c->work.calls--;
	conn_forget(c);
}

/* Ends c at once, for a reason of ours. */
void conn_abort(edge_conn *c, int err)
{
	bool tell = c->end.listed && !c->end.closed && !c->end.aborting;
	c->end.closing = true;
	conn_end(c, err, true);
	if (!tell)
		return;
	struct abi_conn m = { .conn = c->id };
	if (control_send(c->d, &m, sizeof m, ABI_ABORT, -1, aborted, c, 0) == 0) {
		c->end.aborting = true;
		c->work.calls++;
	}
}

static void ended_well(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	edge_conn *c = call->obj;
	c->work.calls--;
	conn_end(c, err == 0 ? EDGE_ERR_CLOSED : err, true);
	conn_forget(c);
	news(d);
}

/* Asks for the orderly end of c, which has nothing in flight. */
void conn_send_close(edge_conn *c)
{
	struct abi_conn m = { .conn = c->id };
	if (control_send(c->d, &m, sizeof m, ABI_CLOSE, -1, ended_well, c, 0) == 0)
		c->work.calls++;
	else
		conn_abort(c, EDGE_ERR_ABORTED);
}

/* Asks for it once that is so, if the program closes c. */
static void conn_leave(edge_conn *c)
{
	if (!c->end.leaving || c->work.inflight > 0 || c->state != OPEN)
		return;
	c->end.leaving = false;
	conn_send_close(c);
}

/* An operation or a receive of c is over; err of an operation. */
void conn_completed(edge_conn *c, int err)
{
	if (c->user != NULL) {
		c->user->completed(c, err);
	} else if (c->end.released) {
		conn_gone(c);
	} else {
		conn_leave(c);
	}
}

static bool closed(void *arg)
{
	return ((edge_conn *)arg)->end.closed;
}

/* The submission ring may still hold what the program posted while the peer closed. */
static bool unused(void *arg)
{
	edge_conn *c = arg;
	return c->work.inflight == 0 && c->work.posted == 0;
}

int edge_conn_close(edge_conn *c, int timeout_ms)
{
	edge_device *d = c->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	if ((c->end.closing && !c->end.looked) || d->dead != 0)
		return leave(d, d->dead != 0 ? d->dead : EDGE_ERR_CLOSED);
	c->end.leaving |= !c->end.closing;
	c->end.closing = true;
	wake_all(d);
	conn_leave(c);
	int err = !c->end.closed && c->state == OPEN ? wait_for(d, closed, c, until) : 0;
	c->end.looked = err == EDGE_ERR_AGAIN;
	if (c->end.looked)
		return leave(d, err);
	if (err != 0 || !c->end.closed)
		conn_abort(c, EDGE_ERR_ABORTED);
	conn_end(c, EDGE_ERR_CLOSED, true);
	wake_all(d);
	if (err == 0 && d->dead == 0)
		err = wait_for(d, unused, c, until);
	c->end.looked = err == EDGE_ERR_AGAIN;
	return leave(d, err);
}

int edge_conn_abort(edge_conn *c)
{
	edge_device *d = c->d;
	enter(d);
	int err = d->dead;
	if (err == 0) {
		conn_abort(c, EDGE_ERR_ABORTED);
		wake_all(d);
	}
	return leave(d, err);
}

/* Frees c once nothing names it. */
void conn_gone(edge_conn *c)
{
	const struct load *w = &c->work;
	if (!c->end.released || w->inflight > 0 || w->posted > 0 || w->calls > 0 || c->end.listed || c->notes.owes)
		return;
	c->d->above->forget(c->d, c);
	*c->at = c->next;
	if (c->next != NULL)
		c->next->at = c->at;
	imports_free(c);
	free(c->notes.ring);
	free(c->who.data);
	free(c->who.peer);
	free(c->who.dialled);
	free(c->who.reason);
	free(c->who.service);
	free(c);
}

/* The device is dead: nothing of c comes any more. */
void conn_dead(edge_conn *c)
{
	c->work.inflight = c->work.posted = c->work.calls = 0;
	c->end.listed = c->notes.owes = false;
	c->end.closed = true;
	if (c->user != NULL)
		c->user->dead(c);
	if (c->state != ENDED)
		conn_end(c, c->d->dead, true);
}

/* The device is dead, and with it all its connections. */
void conns_dead(edge_device *d)
{
	for (edge_conn *c = d->conns->all, *next; c != NULL; c = next) {
		next = c->next;
		conn_dead(c);
		if (c->user == NULL)
			conn_gone(c);
		else
			c->user->settled(c);
	}
	d->conns->owing = NULL;
}

/* The program has no more use for c. */
void conn_release(edge_conn *c)
{
	c->end.released = true;
	if (c->state != ENDED || !c->end.closed)
		conn_abort(c, EDGE_ERR_ABORTED);
	conn_gone(c);
}

void edge_conn_free(edge_conn *c)
{
	if (c == NULL)
		return;
	edge_device *d = c->d;
	enter(d);
	if (d->dead != 0)
		conn_dead(c);
	conn_release(c);
	leave(d, 0);
}

int edge_conn_late(edge_conn *c, int *first)
{
	enter(c->d);
	if (c->d->dead == 0)
		pump(c->d, false);
	if (first != NULL)
		*first = c->work.late;
	return leave(c->d, c->work.nlate);
}

int edge_conn_error(edge_conn *c)
{
	enter(c->d);
	bool over = c->end.last && c->notes.head == c->notes.tail && (!c->end.looked || unused(c));
	return leave(c->d, c->d->dead != 0 ? c->d->dead : over ? c->err : 0);
}

const char *edge_conn_peer(const edge_conn *c)
{
	enter(c->d);
	const char *peer = c->who.peer;
	leave(c->d, 0);
	return peer;
}

const char *edge_conn_reason(const edge_conn *c)
{
	return c->who.reason;
}

const char *edge_conn_service(const edge_conn *c)
{
	return c->who.service;
}

const void *edge_conn_data(const edge_conn *c, size_t *size)
{
	enter(c->d);
	const void *data = c->who.data;
	*size = c->who.data_size;
	leave(c->d, 0);
	return data;
}

const char *edge_conn_node(const edge_conn *c)
{
	enter(c->d);
	const char *node = c->who.node;
	leave(c->d, 0);
	return node;
}
