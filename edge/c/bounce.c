/* Reads and writes of ordinary memory, through registered memory of the device's: slots that are lent to one call at
 * a time. A slot whose operation is still in flight when its call gave up is not lent before it has ended. */
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "verbs.h"

enum { CHUNK = 64 << 10, SLOTS = 16 };

struct bounce {
	edge_region *region;
	bool lent[SLOTS];
	edge_op op[SLOTS]; /* the latest */
};

struct transfer {
	edge_remote *r;
	char *p;
	size_t size, posted, done;
	uint64_t off;
	int kind, slots[SLOTS], oldest, flying, found;
	size_t lens[SLOTS];
};

/* Without the lock: registering waits. */
static int make(edge_device *d, int timeout_ms)
{
	enter(d);
	bool good = d->bounce != NULL && d->bounce->region->epoch == d->epoch;
	leave(d, 0);
	if (good)
		return 0;
	edge_region *r;
	struct bounce *b = calloc(1, sizeof *b);
	int err = b == NULL ? EDGE_ERR_NO_MEMORY : edge_register(d, (size_t)CHUNK * SLOTS, &r, timeout_ms);
	if (err != 0) {
		free(b);
		return err;
	}
	b->region = r;
	enter(d);
	bool lent = false;
	for (int i = 0; d->bounce != NULL && i < SLOTS; i++)
		lent |= d->bounce->lent[i];
	if (d->bounce == NULL || (d->bounce->region->epoch != d->epoch && !lent)) {
		struct bounce *old = d->bounce; /* its region goes with the device */
		d->bounce = b;
		b = old;
		r = NULL;
	}
	leave(d, 0);
	free(b);
	if (r != NULL)
		edge_region_close(r);
	return 0;
}

void bounce_close(edge_device *d)
{
	free(d->bounce);
	d->bounce = NULL;
}

static bool slot_free(void *arg)
{
	struct transfer *t = arg;
	struct bounce *b = t->r->c->d->bounce;
	t->found = -1;
	for (int i = 0; i < SLOTS && t->found < 0; i++)
		if (!b->lent[i] && op_settled(&b->op[i]))
			t->found = i;
	return t->found >= 0 || conn_usable(t->r->c) != 0;
}

static bool oldest_done(void *arg)
{
	struct transfer *t = arg;
	return op_settled(&t->r->c->d->bounce->op[t->slots[t->oldest]]);
}

static bool has_room(void *arg)
{
	edge_conn *c = ((struct transfer *)arg)->r->c;
	return conn_usable(c) != 0 || op_room(c, 1);
}

static int advance(struct transfer *t, int64_t until)
{
	edge_conn *c = t->r->c;
	struct bounce *b = c->d->bounce;
	int err = conn_usable(c);
	if (err != 0)
		return err;
	int i = t->found;
	size_t n = t->size - t->posted < CHUNK ? t->size - t->posted : CHUNK;
	b->lent[i] = true;
	if (t->kind == EDGE_WRITE)
		memcpy(b->region->bytes + (size_t)i * CHUNK, t->p + t->posted, n);
	edge_work w = { .kind = t->kind, .local = b->region, .local_off = (size_t)i * CHUNK, .size = n, .remote = t->r,
		.remote_off = t->off + t->posted };
	while ((err = op_put(c, &w, &b->op[i])) == EDGE_ERR_AGAIN && (err = wait_for(c->d, has_room, t, until)) == 0)
		;
	if (err != 0) {
		b->lent[i] = false;
		return err;
	}
	ring_publish(c->d);
	int at = (t->oldest + t->flying++) % SLOTS;
	t->slots[at] = i;
	t->lens[at] = n;
	t->posted += n;
	return 0;
}

static int retire(struct transfer *t, int64_t until)
{
	edge_device *d = t->r->c->d;
	struct bounce *b = d->bounce;
	int i = t->slots[t->oldest];
	int err = wait_for(d, oldest_done, t, until);
	if (err == 0) {
		unlock(d);
		err = edge_op_error(&b->op[i]);
		pthread_mutex_lock(&d->mu);
	}
	if (err != 0)
		return err;
	if (t->kind == EDGE_READ)
		memcpy(t->p + t->done, b->region->bytes + (size_t)i * CHUNK, t->lens[t->oldest]);
	t->done += t->lens[t->oldest];
	t->oldest = (t->oldest + 1) % SLOTS;
	t->flying--;
	b->lent[i] = false;
	return 0;
}

static int transfer(edge_remote *r, int kind, void *p, size_t size, uint64_t off, int timeout_ms)
{
	edge_device *d = r->c->d;
	int64_t until = deadline(timeout_ms);
	if (off > r->size || size > r->size - off)
		return fail(EDGE_ERR_BOUNDS, "%zu bytes at %llu, of %llu", size, (unsigned long long)off,
		            (unsigned long long)r->size);
	int err = make(d, timeout_ms);
	if (err != 0)
		return err;
	struct transfer t = { .r = r, .p = p, .size = size, .off = off, .kind = kind };
	enter(d);
	while (err == 0 && t.done < size) {
		bool more = t.posted < size && t.flying < SLOTS / 2;
		if (more && slot_free(&t))
			err = advance(&t, until);
		else if (t.flying > 0)
			err = retire(&t, until);
		else if ((err = wait_for(d, slot_free, &t, until)) == 0)
			err = advance(&t, until);
	}
	for (; t.flying > 0; t.flying--, t.oldest = (t.oldest + 1) % SLOTS)
		d->bounce->lent[t.slots[t.oldest]] = false; /* slot_free waits for its operation */
	news(d);
	wake_all(d);
	return leave(d, err == EDGE_ERR_PEER_CLOSED ? EDGE_ERR_RESET : err);
}

int edge_remote_write(edge_remote *r, const void *p, size_t size, uint64_t off, int timeout_ms)
{
	return transfer(r, EDGE_WRITE, (void *)(uintptr_t)p, size, off, timeout_ms);
}

int edge_remote_read(edge_remote *r, void *p, size_t size, uint64_t off, int timeout_ms)
{
	return transfer(r, EDGE_READ, p, size, off, timeout_ms);
}
