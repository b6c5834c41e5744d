/*
 * Counters: how many of an endpoint's operations went well, and how many failed. Which counter counts one is told by
 * the bit that says what it was, in the flags of a binding as in those of a completion.
 */
#include <stdlib.h>

#include "../preload/brief.h"
#include "queue.h"

/* There is news. Who sleeps is woken by what they wait for, and by an error. */
static void changed(struct cntr *c, bool failed)
{
	c->changed = true;
	if (!failed && c->value < c->wanted)
		return;
	c->wanted = UINT64_MAX;
	waiter_tell(&c->w);
}

void cntr_count(struct cntr *c, bool failed)
{
	if (c == NULL)
		return;
	*(failed ? &c->errors : &c->value) += 1;
	changed(c, failed);
}

/* Whether there was news since this was asked last; what comes from now on wakes. */
bool cntr_news(struct cntr *c)
{
	bool news = c->changed;
	c->changed = false;
	c->wanted = 0;
	return news;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct cntr *c = container_of(fid, struct cntr, fid);
	struct fabric *f = c->d->f;
	pthread_mutex_lock(&f->mu);
	progress(f);
	if (c->value == c->seen)
		give_way(f);
	if (c->value != c->seen)
		f->asking.vain = 0;
	uint64_t value = c->seen = c->value;
	pthread_mutex_unlock(&f->mu);
	return value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct cntr *c = container_of(fid, struct cntr, fid);
	pthread_mutex_lock(&c->d->f->mu);
	progress(c->d->f);
	uint64_t errors = c->errors;
	pthread_mutex_unlock(&c->d->f->mu);
	return errors;
}

static int put(struct fid_cntr *fid, bool failed, bool add, uint64_t n)
{
	struct cntr *c = container_of(fid, struct cntr, fid);
	uint64_t *to = failed ? &c->errors : &c->value;
	pthread_mutex_lock(&c->d->f->mu);
	*to = add ? *to + n : n;
	changed(c, failed);
	pthread_mutex_unlock(&c->d->f->mu);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t n) { return put(fid, false, true, n); }
static int cntr_set(struct fid_cntr *fid, uint64_t n) { return put(fid, false, false, n); }
static int cntr_adderr(struct fid_cntr *fid, uint64_t n) { return put(fid, true, true, n); }
static int cntr_seterr(struct fid_cntr *fid, uint64_t n) { return put(fid, true, false, n); }

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct cntr *c = container_of(fid, struct cntr, fid);
	struct fabric *f = c->d->f;
	if (c->w.epoll < 0)
		return -FI_ENOSYS;
	int64_t until = until_ns(timeout);
	struct brief others = { 0 };
	int err;
	pthread_mutex_lock(&f->mu);
	for (uint64_t errors = c->errors;;) {
		progress(f);
		err = c->value >= threshold ? 0 : c->errors != errors ? -FI_EAVAIL : -FI_EAGAIN;
		if (err == -FI_EAGAIN && timeout >= 0 && left_ns(until) == 0)
			err = -FI_ETIMEDOUT;
		if (err == -FI_EAGAIN && forked(f))
			err = -FI_EOPBADSTATE;
		if (err != -FI_EAGAIN)
			break;
		if (!waiter_settled(&c->w)) { /* others wait for something else, which may be there */
			pthread_mutex_unlock(&f->mu);
			brief_wait(&others);
			pthread_mutex_lock(&f->mu);
			continue;
		}
		others = (struct brief){ 0 };
		c->wanted = threshold < c->wanted ? threshold : c->wanted;
		if (waiter_arm(&c->w))
			waiter_sleep(&c->w, left_ns(until));
	}
	pthread_mutex_unlock(&f->mu);
	return err;
}

static int cntr_close(struct fid *fid)
{
	struct cntr *c = container_of(fid, struct cntr, fid.fid);
	struct fabric *f = c->d->f;
	pthread_mutex_lock(&f->mu);
	int err = c->refs > 0 ? -FI_EBUSY : 0;
	if (err == 0) {
		c->d->refs--;
		waiter_close(&c->w);
	}
	pthread_mutex_unlock(&f->mu);
	if (err == 0)
		free(c);
	return err;
}

static int cntr_control(struct fid *fid, int command, void *arg)
{
	struct cntr *c = container_of(fid, struct cntr, fid.fid);
	return waiter_control(&c->w, c->object, command, arg);
}

static struct fi_ops cntr_fid_ops = { .size = sizeof(struct fi_ops), .close = cntr_close, .bind = no_bind,
	.control = cntr_control, .ops_open = no_ops_open };
static struct fi_ops_cntr cntr_ops = { .size = sizeof(struct fi_ops_cntr), .read = cntr_read, .readerr = cntr_readerr,
	.add = cntr_add, .set = cntr_set, .wait = cntr_wait, .adderr = cntr_adderr, .seterr = cntr_seterr };

int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context)
{
	struct domain *d = container_of(domain, struct domain, fid);
	enum fi_wait_obj object = attr->wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : attr->wait_obj;
	if (attr->flags != 0)
		return -FI_EINVAL;
	if (attr->events != FI_CNTR_EVENTS_COMP || (object != FI_WAIT_NONE && object != FI_WAIT_FD))
		return -FI_ENOSYS;
	struct cntr *c = calloc(1, sizeof *c);
	if (c == NULL)
		return -FI_ENOMEM;
	*c = (struct cntr){ .d = d, .object = object, .w = { .epoll = -1, .event = -1 }, .wanted = UINT64_MAX,
		.fid = { .fid = { .fclass = FI_CLASS_CNTR, .context = context, .ops = &cntr_fid_ops }, .ops = &cntr_ops } };
	int err = object == FI_WAIT_FD ? waiter_open(&c->w, d->f) : 0;
	if (err != 0) {
		free(c);
		return err;
	}
	pthread_mutex_lock(&d->f->mu);
	d->refs++;
	pthread_mutex_unlock(&d->f->mu);
	*cntr = &c->fid;
	return 0;
}
