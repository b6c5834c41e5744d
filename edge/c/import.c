/* Memory that the peer exports to us, and ours to the peer (ABI A5.11 to A5.16). */
#include <stdlib.h>
#include <string.h>

#include "conn.h"

enum { MAX_IMPORTS = 4096, OF_ONE_NAME = 16 };

/* What is withdrawn goes, and of one name all but the newest; what the program knows of is kept for it. */
static void drop_old(edge_conn *c, const char *name)
{
	int of_name = 0;
	for (edge_remote **at = &c->memory.remotes, *r; (r = *at) != NULL;) {
		if (!r->revoked && strcmp(r->name, name) == 0)
			of_name++;
		if (!r->revoked && (r->held > 0 || of_name <= OF_ONE_NAME)) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		c->memory.nremotes--;
		if (r->held > 0) {
			r->next = c->memory.withdrawn;
			c->memory.withdrawn = r;
		} else
			free(r);
	}
}

void advertised(edge_device *d, const struct abi_advert *m)
{
	edge_conn *c = conn_find(d, m->conn);
	if (c == NULL || m->size > INT64_MAX || c->state == ENDED)
		return;
	if (c->memory.nremotes >= MAX_IMPORTS) {
		conn_abort(c, fail(EDGE_ERR_LIMIT, "the peer exported more than %d pieces of memory on one connection",
		                   MAX_IMPORTS));
		return;
	}
	edge_remote *r = calloc(1, sizeof *r), **at = &c->memory.remotes;
	if (r == NULL) {
		conn_abort(c, EDGE_ERR_NO_MEMORY);
		return;
	}
	*r = (edge_remote){ .c = c, .key = m->key, .size = m->size, .perm = m->perm, .number = m->number };
	get_str(r->name, &m->name);
	while (*at != NULL && (*at)->number > r->number) /* it was overtaken */
		at = &(*at)->next;
	r->next = *at;
	*at = r;
	c->memory.nremotes++;
	drop_old(c, r->name);
	if (c->user != NULL)
		c->user->advance(c);
	news(d);
}

void withdrawn(edge_device *d, uint32_t conn, uint64_t key)
{
	edge_conn *c = conn_find(d, conn);
	if (c == NULL)
		return;
	for (edge_remote *r = c->memory.remotes; r != NULL; r = r->next)
		if (r->key == key)
			r->revoked = true;
	drop_old(c, "");
}

edge_remote *remote_find(edge_conn *c, const char *name)
{
	edge_remote *r = c->memory.remotes;
	while (r != NULL && (r->revoked || strcmp(r->name, name) != 0))
		r = r->next;
	return r;
}

void imports_free(edge_conn *c)
{
	for (edge_remote *r; (r = c->memory.remotes) != NULL; free(r))
		c->memory.remotes = r->next;
	for (edge_remote *r; (r = c->memory.withdrawn) != NULL; free(r))
		c->memory.withdrawn = r->next;
	for (edge_export *e; (e = c->memory.exports) != NULL; free(e))
		c->memory.exports = e->next;
}

struct wanted { edge_conn *c; const char *name; edge_remote *found; };

static bool found(void *arg)
{
	struct wanted *w = arg;
	int err = conn_usable(w->c);
	w->found = remote_find(w->c, w->name);
	return w->found != NULL || (err != 0 && err != EDGE_ERR_AGAIN); /* which it is while it dials */
}

int edge_import(edge_conn *c, const char *name, edge_remote **remote, int timeout_ms)
{
	struct wanted w = { .c = c, .name = name };
	int64_t until = deadline(timeout_ms);
	enter(c->d);
	int err = wait_for(c->d, found, &w, until);
	if (err == 0 && w.found == NULL)
		err = conn_usable(c);
	if (err == EDGE_ERR_TIMEOUT)
		fail(err, "%s exports no memory named \"%s\"; start what exports it there, or check the name (edgectl export)",
		     c->who.peer, name);
	if (err == 0) {
		w.found->held++;
		*remote = w.found;
	}
	return leave(c->d, err);
}

void edge_remote_free(edge_remote *r)
{
	edge_conn *c = r->c;
	enter(c->d);
	if (--r->held == 0 && r->revoked) {
		edge_remote **at = &c->memory.withdrawn;
		while (*at != r)
			at = &(*at)->next;
		*at = r->next;
		free(r);
	}
	leave(c->d, 0);
}

uint64_t edge_remote_size(const edge_remote *r)
{
	return r->size;
}

int edge_remote_perm(const edge_remote *r)
{
	return (int)r->perm;
}

/* A request that somebody waits for. Who gives up leaves it to the handler to free. */
struct asked {
	edge_conn *c;
	edge_export *e, *ends; /* asked for; to be revoked */
	int err;
	bool done, left;
};

static bool answered(void *arg)
{
	return ((struct asked *)arg)->done;
}

static void finish(edge_device *d, struct asked *a, int err)
{
	a->err = err;
	a->done = true;
	edge_export *e = a->ends;
	if (e != NULL) {
		e->revoked |= err == 0;
		if (--e->asked == 0 && e->freed)
			free(e);
	}
	a->c->work.calls--;
	news(d);
	if (a->c->end.released)
		conn_gone(a->c);
	if (!a->left)
		return;
	free(a);
}

static void exported(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	struct asked *a = call->obj;
	edge_conn *c = a->c;
	c->memory.exporting--;
	if (err == 0 && a->left) { /* nobody knows of it */
		free(a->e);
	} else if (err == 0) {
		a->e->key = m->exported.key;
		a->e->next = c->memory.exports;
		c->memory.exports = a->e;
	} else {
		free(a->e);
		a->e = NULL;
		if (err == EDGE_ERR_NO_CONN && conn_usable(c) != 0)
			err = conn_usable(c);
	}
	finish(d, a, err);
}

/* Asks the daemon to export; fn gets the answer. */
int send_export(edge_region *r, edge_conn *c, const char *name, int perm, size_t off, size_t size, call_fn fn,
                void *obj)
{
	struct abi_export m = { .off = off, .size = size, .conn = c->id, .region = r->id, .perm = (uint32_t)perm };
	put_str(&m.name, name);
	int err = control_send(c->d, &m, sizeof m, ABI_EXPORT, -1, fn, obj, 0);
	if (err == 0) {
		c->work.calls++;
		c->memory.exporting++;
	}
	return err;
}

static int check_export(edge_region *r, edge_conn *c, const char *name, int perm, size_t off, size_t size)
{
	int err = check_name("the export's name", name, false);
	if (err != 0)
		return err;
	if (c->d != r->d || r->closed)
		return fail(EDGE_ERR_INVALID, "the connection and an open region must be of the same device");
	if (r->epoch != r->d->epoch)
		return EDGE_ERR_STALE;
	if (perm == 0 || (perm & ~(EDGE_REMOTE_READ | EDGE_REMOTE_WRITE | EDGE_REMOTE_ATOMIC)) != 0)
		return fail(EDGE_ERR_INVALID, "choose of EDGE_REMOTE_READ, EDGE_REMOTE_WRITE and EDGE_REMOTE_ATOMIC");
	if ((perm & EDGE_REMOTE_ATOMIC) && off % 8 != 0)
		return fail(EDGE_ERR_INVALID, "an export for atomics begins at a multiple of 8, not at %zu", off);
	if ((perm & EDGE_REMOTE_ATOMIC) && (err = check_feature(r->d, EDGE_FEATURE_ATOMICS, "atomics")) != 0)
		return err;
	if (size == 0 || off > r->size || size > r->size - off)
		return fail(EDGE_ERR_BOUNDS, "export of %zu bytes from %zu, of a region of %zu", size, off, r->size);
	return conn_usable(c);
}

/* Waits for the answer and frees a, or leaves it. */
static int await(edge_device *d, struct asked *a, int64_t until)
{
	int err = wait_for(d, answered, a, answer_by(until));
	if (!a->done) {
		a->left = true;
		return err;
	}
	err = a->err;
	free(a);
	return err;
}

int edge_export_region(edge_region *r, edge_conn *c, const char *name, int perm, size_t off, size_t size,
                       edge_export **to, int timeout_ms)
{
	edge_device *d = c->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = check_export(r, c, name, perm, off, size);
	if (err != 0)
		return leave(d, err);
	struct asked *a = calloc(1, sizeof *a);
	edge_export *e = calloc(1, sizeof *e);
	if (a != NULL && e != NULL) {
		*e = (edge_export){ .c = c, .region = r, .off = off, .size = size };
		memcpy(e->name, name, strlen(name));
		*a = (struct asked){ .c = c, .e = e };
		err = send_export(r, c, name, perm, off, size, exported, a);
	} else
		err = EDGE_ERR_NO_MEMORY;
	if (err != 0) {
		free(a);
		free(e);
		return leave(d, err);
	}
	err = await(d, a, until);
	if (err == 0 && to != NULL)
		*to = e;
	return leave(d, err);
}

static void revoked(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	/* EDGE_ERR_KEY: it went with its region, or by an earlier call that did not wait long enough. */
	finish(d, call->obj, err == EDGE_ERR_NO_CONN || err == EDGE_ERR_KEY ? 0 : err);
}

int edge_export_revoke(edge_export *e, int timeout_ms)
{
	edge_conn *c = e->c;
	edge_device *d = c->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	if (d->dead != 0 || e->revoked || c->end.closed)
		return leave(d, d->dead); /* it ended with the connection */
	struct asked *a = calloc(1, sizeof *a);
	if (a == NULL)
		return leave(d, EDGE_ERR_NO_MEMORY);
	*a = (struct asked){ .c = c, .ends = e };
	struct abi_revoke m = { .key = e->key, .conn = c->id };
	int err = control_send(d, &m, sizeof m, ABI_REVOKE, -1, revoked, a, 0);
	if (err != 0) {
		free(a);
		return leave(d, err == EDGE_ERR_DAEMON_DOWN ? 0 : err);
	}
	c->work.calls++;
	e->asked++;
	err = await(d, a, until);
	return leave(d, err == EDGE_ERR_DAEMON_DOWN ? 0 : err);
}

void edge_export_free(edge_export *e)
{
	edge_device *d = e->c->d;
	edge_export **at = &e->c->memory.exports;
	enter(d);
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	if (e->asked > 0 && d->dead != EDGE_ERR_FORKED) /* by a call that did not wait long enough */
		e->freed = true;
	else
		free(e);
	leave(d, 0);
}

edge_region *edge_export_memory(const edge_export *e)
{
	return e->region;
}

size_t edge_export_offset(const edge_export *e)
{
	return e->off;
}

const char *edge_export_name(const edge_export *e)
{
	return e->name;
}
