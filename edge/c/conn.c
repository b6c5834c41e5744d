/* Connections: dialling, and the ends (ABI A7.7 to A7.10). */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

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

/* A connection that the daemon may not know yet. NULL: no memory. */
edge_conn *conn_new(edge_device *d, const char *peer, const char *service)
{
	edge_conn *c = calloc(1, sizeof *c);
	if (c == NULL || (c->peer = strdup(peer)) == NULL || (c->service = strdup(service)) == NULL) {
		if (c != NULL)
			free(c->peer);
		free(c);
		return NULL;
	}
	c->d = d;
	c->epoch = d->at.epoch;
	c->next = d->all;
	c->at = &d->all;
	if (c->next != NULL)
		c->next->at = &c->next;
	d->all = c;
	return c;
}

edge_conn *conn_find(edge_device *d, uint32_t id)
{
	edge_conn *c = d->conns[id % CONN_BUCKETS];
	while (c != NULL && c->id != id)
		c = c->hash;
	return c;
}

/* Enters c under the daemon's number, with the notifications that were faster. */
void conn_enter(edge_conn *c, uint32_t id)
{
	edge_device *d = c->d;
	c->id = id;
	c->hash = d->conns[id % CONN_BUCKETS];
	d->conns[id % CONN_BUCKETS] = c;
	c->listed = true;
	for (struct orphan **at = &d->orphans, *o; (o = *at) != NULL;) {
		if (o->e.conn != id) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		d->norphans--;
		notes_push(c, &o->e);
		free(o);
	}
}

/* The daemon has no more to say of c. */
void conn_forget(edge_conn *c)
{
	if (c->listed) {
		edge_conn **at = &c->d->conns[c->id % CONN_BUCKETS];
		while (*at != c)
			at = &(*at)->hash;
		*at = c->hash;
		c->listed = false;
	}
	c->closed = true;
	if (c->stream != NULL)
		stream_advance(c->stream);
	else if (c->released)
		conn_gone(c);
}

/* Says why c ended, unless that is known; last: no notification comes any more. */
void conn_end(edge_conn *c, int err, bool last)
{
	if (c->state != ENDED)
		c->err = err;
	c->state = ENDED;
	c->last |= last;
	news(c->d);
	if (c->stream != NULL)
		stream_advance(c->stream);
}

/* Returns why nothing can be posted, if so. */
int conn_usable(const edge_conn *c)
{
	if (c->d->dead != 0)
		return c->d->dead;
	if (c->state == ENDED)
		return c->err;
	if (c->closing)
		return EDGE_ERR_CLOSED;
	return c->state == OPEN ? 0 : EDGE_ERR_AGAIN;
}

static void orphans_drop(edge_device *d)
{
	if (--d->dialing > 0)
		return;
	for (struct orphan *o; (o = d->orphans) != NULL; free(o))
		d->orphans = o->next;
	d->norphans = 0;
}

static void dialled(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	edge_conn *c = call->obj;
	c->calls--;
	if (err == 0 && (c->released || c->closing || c->state == ENDED)) {
		abort_number(d, m->conn_reply.conn);
		err = EDGE_ERR_ABORTED;
	}
	if (err == 0) {
		const struct abi_conn_reply *r = &m->conn_reply;
		char peer[MAX_NAME + 1];
		get_str(peer, &r->peer);
		char *name = peer[0] == 0 ? NULL : strdup(peer);
		if (name != NULL) {
			c->dialled = c->peer;
			c->peer = name;
		}
		size_t n = r->data.size < ABI_DATA ? r->data.size : ABI_DATA;
		if (n > 0 && (c->data = malloc(n)) != NULL) {
			memcpy(c->data, r->data.bytes, n);
			c->data_size = n;
		}
		c->state = OPEN;
		conn_enter(c, r->conn);
	} else {
		if (err == EDGE_ERR_REFUSED && m != NULL)
			c->reason = strdup(edge_detail());
		c->closed = true;
		conn_end(c, err, true);
	}
	orphans_drop(d);
	if (c->stream != NULL)
		stream_dialled(c->stream, err);
	else if (c->released)
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
	c->epoch = c->d->at.epoch;
	int err = control_send(c->d, m, sizeof *m, ABI_DIAL, -1, dialled, c, 0);
	if (err == 0) {
		c->calls++;
		c->d->dialing++;
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
	if (o->size != sizeof *o)
		return fail(EDGE_ERR_INVALID, "edge_dial_options.size must be its sizeof");
	if (o->data_size > ABI_DATA - n)
		return fail(EDGE_ERR_INVALID, "%zu bytes of private data; at most %zu can be sent", o->data_size, ABI_DATA - n);
	if (o->scheduler != NULL) {
		err = check_name("the scheduler", o->scheduler, true);
		put_str(&m->scheduler, o->scheduler);
	}
	if (o->data_size > 0)
		memcpy(m->data.bytes + n, o->data, o->data_size);
	m->data.size = (uint16_t)(n + o->data_size);
	m->flags = o->ordered ? ABI_ORDERED : 0;
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
	c->calls--;
	conn_forget(c);
}

/* Ends c at once, for a reason of ours. */
void conn_abort(edge_conn *c, int err)
{
	bool tell = c->listed && !c->closed && !c->aborting;
	c->closing = true;
	conn_end(c, err, true);
	if (!tell)
		return;
	struct abi_conn m = { .conn = c->id };
	if (control_send(c->d, &m, sizeof m, ABI_ABORT, -1, aborted, c, 0) == 0) {
		c->aborting = true;
		c->calls++;
	}
}

static void ended_well(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	edge_conn *c = call->obj;
	c->calls--;
	conn_end(c, err == 0 ? EDGE_ERR_CLOSED : err, true);
	conn_forget(c);
	news(d);
}

/* Asks for the orderly end of c, which has nothing in flight. */
void conn_send_close(edge_conn *c)
{
	struct abi_conn m = { .conn = c->id };
	if (control_send(c->d, &m, sizeof m, ABI_CLOSE, -1, ended_well, c, 0) == 0)
		c->calls++;
	else
		conn_abort(c, EDGE_ERR_ABORTED);
}

/* Asks for it once that is so, if the program closes c. */
void conn_leave(edge_conn *c)
{
	if (!c->leaving || c->inflight > 0 || c->state != OPEN)
		return;
	c->leaving = false;
	conn_send_close(c);
}

static bool closed(void *arg)
{
	return ((edge_conn *)arg)->closed;
}

/* The submission ring may still hold what the program posted while the peer closed. */
static bool unused(void *arg)
{
	edge_conn *c = arg;
	return c->inflight == 0 && c->posted == 0;
}

int edge_conn_close(edge_conn *c, int timeout_ms)
{
	edge_device *d = c->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	if ((c->closing && !c->looked) || d->dead != 0)
		return leave(d, d->dead != 0 ? d->dead : EDGE_ERR_CLOSED);
	c->leaving |= !c->closing;
	c->closing = true;
	wake_all(d);
	conn_leave(c);
	int err = !c->closed && c->state == OPEN ? wait_for(d, closed, c, until) : 0;
	c->looked = err == EDGE_ERR_AGAIN;
	if (c->looked)
		return leave(d, err);
	if (err != 0 || !c->closed)
		conn_abort(c, EDGE_ERR_ABORTED);
	conn_end(c, EDGE_ERR_CLOSED, true);
	wake_all(d);
	if (err == 0 && d->dead == 0)
		err = wait_for(d, unused, c, until);
	c->looked = err == EDGE_ERR_AGAIN;
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
	if (!c->released || c->inflight > 0 || c->posted > 0 || c->calls > 0 || c->listed || c->owes)
		return;
	ops_forget_conn(&c->d->ops, c);
	*c->at = c->next;
	if (c->next != NULL)
		c->next->at = c->at;
	imports_free(c);
	free(c->notes.ring);
	free(c->data);
	free(c->peer);
	free(c->dialled);
	free(c->reason);
	free(c->service);
	free(c);
}

/* The device is dead: nothing of c comes any more. */
void conn_dead(edge_conn *c)
{
	c->inflight = c->posted = c->calls = 0;
	c->listed = c->owes = false;
	c->closed = true;
	if (c->stream != NULL)
		c->stream->job.done = true;
	if (c->state != ENDED)
		conn_end(c, c->d->dead, true);
}

/* The program has no more use for c. */
void conn_release(edge_conn *c)
{
	c->released = true;
	if (c->state != ENDED || !c->closed)
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
		*first = c->late;
	return leave(c->d, c->nlate);
}

int edge_conn_error(edge_conn *c)
{
	enter(c->d);
	bool over = c->last && c->notes.head == c->notes.tail && (!c->looked || unused(c));
	return leave(c->d, c->d->dead != 0 ? c->d->dead : over ? c->err : 0);
}

const char *edge_conn_peer(const edge_conn *c)
{
	enter(c->d);
	const char *peer = c->peer;
	leave(c->d, 0);
	return peer;
}

const char *edge_conn_reason(const edge_conn *c)
{
	return c->reason;
}

const char *edge_conn_service(const edge_conn *c)
{
	return c->service;
}

const void *edge_conn_data(const edge_conn *c, size_t *size)
{
	enter(c->d);
	const void *data = c->data;
	*size = c->data_size;
	leave(c->d, 0);
	return data;
}
