/* Notifications, and the credit that the daemon wants back for them (ABI A7.7, A7.11). */
#include <stdlib.h>

#include "conn.h"
#include "ring.h"

enum { CREDIT_BATCH = ABI_CREDIT / 2 };

/* Takes a notification; false: it cannot be right. One of a connection that the answer to our dial has not told us of
 * yet is kept for it. */
bool notified(edge_device *d, const struct abi_cqe *e)
{
	edge_conn *c = conn_find(d, e->conn);
	if (c != NULL)
		return notes_push(c, e);
	if (d->conns->norphans >= d->conns->dialling * ABI_CREDIT)
		return true;
	struct orphan *o = malloc(sizeof *o), **last = &d->conns->orphans;
	if (o == NULL)
		return true;
	*o = (struct orphan){ .e = *e };
	while (*last != NULL)
		last = &(*last)->next;
	*last = o;
	d->conns->norphans++;
	return true;
}

bool notes_push(edge_conn *c, const struct abi_cqe *e)
{
	struct notes *q = &c->notes;
	struct note n = { .key = e->token, .off = e->offset, .imm = e->imm, .len = e->length };
	if (q->tail - q->head + q->owed >= ABI_CREDIT)
		return false; /* more than we gave credit for */
	if (c->user != NULL) {
		c->user->arrived(c, &n);
		if (++q->owed >= CREDIT_BATCH)
			return_credit(c);
		return true;
	}
	if (q->ring == NULL && (q->ring = malloc(ABI_CREDIT * sizeof *q->ring)) == NULL) {
		conn_abort(c, EDGE_ERR_NO_MEMORY);
		return true;
	}
	q->ring[q->tail++ % ABI_CREDIT] = n;
	return true;
}

/* Pays what c owes: credit to the daemon, and what its user has to say. False: there is no room. */
static bool pay(edge_conn *c)
{
	edge_device *d = c->d;
	if (c->state == ENDED || c->end.closed || c->epoch != d->epoch)
		return true;
	if (c->notes.owed > 0 && (c->notes.owed >= CREDIT_BATCH || c->notes.owes)) {
		if (!ring_room(d->ring, 1))
			return false;
		ring_put(d->ring, &(struct abi_sqe){ .op = ABI_OP_CREDIT, .conn = c->id, .imm = c->notes.owed });
		c->notes.owed = 0;
		ring_publish(d);
	}
	return c->user == NULL || c->user->pay(c);
}

/* Pays now, or as soon as there is room. */
void return_credit(edge_conn *c)
{
	edge_device *d = c->d;
	if (c->notes.owes || pay(c))
		return;
	c->notes.owes = true;
	await_more(d);
	c->owing = d->conns->owing;
	d->conns->owing = c;
	d->conns->ring_full = d->unsettled = true;
}

void pay_owing(edge_device *d)
{
	edge_conn *still = NULL;
	d->conns->ring_full = false;
	for (edge_conn *c; (c = d->conns->owing) != NULL;) {
		d->conns->owing = c->owing;
		if (pay(c)) {
			c->notes.owes = false;
			await_less(d);
			if (c->user != NULL)
				c->user->settled(c);
			else
				conn_gone(c);
			continue;
		}
		c->owing = still;
		still = c;
	}
	d->conns->owing = still;
	d->conns->ring_full = still != NULL;
}

static edge_export *export_of(edge_conn *c, uint64_t key)
{
	edge_export *e = c->memory.exports;
	while (e != NULL && (e->key != key || e->revoked))
		e = e->next;
	return e;
}

/* A notification may be faster than the answer to the export that it tells of. */
static bool can_take(const edge_conn *c)
{
	const struct notes *q = &c->notes;
	return q->head != q->tail &&
	       (c->memory.exporting == 0 || export_of((edge_conn *)c, q->ring[q->head % ABI_CREDIT].key) != NULL);
}

static bool note_or_end(void *arg)
{
	edge_conn *c = arg;
	return can_take(c) || (c->end.last && c->notes.head == c->notes.tail);
}

int edge_notify_wait(edge_conn *c, edge_notification *to, int timeout_ms)
{
	edge_device *d = c->d;
	struct notes *q = &c->notes;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = wait_for(d, note_or_end, c, until);
	if (err == 0 && q->head == q->tail)
		err = c->err;
	if (err != 0)
		return leave(d, err);
	struct note n = q->ring[q->head++ % ABI_CREDIT];
	*to = (edge_notification){ .export_ = export_of(c, n.key), .off = n.off, .size = n.len, .imm = n.imm };
	if (++q->owed >= CREDIT_BATCH)
		return_credit(c);
	return leave(d, 0);
}
