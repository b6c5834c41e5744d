/* Memory that is registered with a domain: a table of what peers may read and write. Nothing is pinned. */
#include <stdlib.h>
#include <sys/random.h>

#include "endpoint.h"

static struct mr **place(struct domain *d, uint64_t key)
{
	struct mr **at = &d->mrs[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 54 & (KEYS - 1)];
	while (*at != NULL && (*at)->fid.key != key)
		at = &(*at)->next;
	return at;
}

struct mr *mr_find(struct domain *d, uint64_t key)
{
	return *place(d, key);
}

static int mr_close(struct fid *fid)
{
	struct mr *m = container_of(fid, struct mr, fid.fid);
	struct domain *d = m->d;
	pthread_mutex_lock(&d->f->mu);
	struct mr **at = place(d, m->fid.key);
	*at = m->next;
	if (m->cntr != NULL)
		m->cntr->refs--;
	for (struct ep *e = d->eps, *next; e != NULL; e = next) {
		next = e->next;
		ep_forget_mr(e, m);
	}
	d->refs--;
	pthread_mutex_unlock(&d->f->mu);
	free(m);
	return 0;
}

/* fi_mr_bind(3): a counter of what changes the memory. */
static int mr_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
	struct mr *m = container_of(fid, struct mr, fid.fid);
	struct cntr *c = container_of(bound, struct cntr, fid.fid);
	if (bound->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE)
		return bound->fclass != FI_CLASS_CNTR ? -FI_ENOSYS : -FI_EBADFLAGS;
	pthread_mutex_lock(&m->d->f->mu);
	int err = c->d != m->d || m->cntr != NULL ? -FI_EINVAL : 0;
	if (err == 0) {
		m->cntr = c;
		c->refs++;
	}
	pthread_mutex_unlock(&m->d->f->mu);
	return err;
}

/* Nobody guesses it. 0: the system has no random bytes. */
static uint64_t new_key(struct domain *d)
{
	uint64_t key;
	do
		if (getrandom(&key, sizeof key, 0) != sizeof key)
			return 0;
	while (key == 0 || mr_find(d, key) != NULL);
	return key;
}

static struct fi_ops mr_fid_ops = { .size = sizeof(struct fi_ops), .close = mr_close, .bind = mr_bind,
	.control = no_control, .ops_open = no_ops_open };

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
                  uint64_t flags, struct fid_mr **mr, void *context)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);
	if (fid->fclass != FI_CLASS_DOMAIN || (flags & ~FI_RMA_EVENT))
		return fid->fclass != FI_CLASS_DOMAIN ? -FI_EINVAL : -FI_EBADFLAGS;
	struct mr *m = calloc(1, sizeof *m);
	if (m == NULL)
		return -FI_ENOMEM;
	*m = (struct mr){ .d = d, .base = (char *)buf, .size = len, .access = access,
		.first = d->basic ? (uintptr_t)buf : offset };
	m->fid.fid = (struct fid){ .fclass = FI_CLASS_MR, .context = context, .ops = &mr_fid_ops };
	m->fid.mem_desc = m;
	pthread_mutex_lock(&d->f->mu);
	m->fid.key = d->basic ? new_key(d) : key;
	struct mr **at = place(d, m->fid.key);
	int err = d->basic && m->fid.key == 0 ? -FI_EOTHER : *at != NULL ? -FI_ENOKEY : 0;
	if (err == 0) {
		*at = m;
		d->refs++;
	}
	pthread_mutex_unlock(&d->f->mu);
	if (err == 0)
		*mr = &m->fid;
	else
		free(m);
	return err;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
                   uint64_t key, uint64_t flags, struct fid_mr **mr, void *context)
{
	return count != 1 ? -FI_EINVAL
	                  : mr_reg(fid, iov->iov_base, iov->iov_len, access, offset, key, flags, mr, context);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *a, uint64_t flags, struct fid_mr **mr)
{
	if (a->iface != FI_HMEM_SYSTEM)
		return -FI_ENOSYS;
	return mr_regv(fid, a->mr_iov, a->iov_count, a->access, a->offset, a->requested_key, flags, mr, a->context);
}

struct fi_ops_mr mr_ops = { .size = sizeof(struct fi_ops_mr), .reg = mr_reg, .regv = mr_regv, .regattr = mr_regattr };
