/*
 * Memory that is registered with a domain: a table of what peers may read and write. Where keys are the provider's, the
 * daemon has it as well, if it can (../verbs/pages.h): then peers reach it by native.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

/* Flags about memory of devices, of which there is none. The second is ofi_rxm's. */
#define ABOUT_DEVICES (FI_HMEM_HOST_ALLOC | (uint64_t)1 << 60)

/* Of all fabrics of the process: their memory lies in the same pages. */
static pthread_mutex_t pages = PTHREAD_MUTEX_INITIALIZER;

bool mr_hold(struct mr *m)
{
	uintptr_t a = (uintptr_t)m->base, end = a + m->size;
	if (m->nsegs > 0 || m->refused)
		return m->nsegs > 0;
	pthread_mutex_lock(&pages);
	int err = m->size == 0 || end < a ? EINVAL : seg_hold(m->d->f->dev, a & -(uintptr_t)PAGE,
	    (end + PAGE - 1) & -(uintptr_t)PAGE, m->segs, &m->nsegs);
	pthread_mutex_unlock(&pages);
	m->refused = err != 0;
	if (err != 0) {
		m->nsegs = 0;
		FI_INFO(&edge_provider, FI_LOG_MR, "%zu bytes at %p are not registered with the daemon, but copied: %s\n",
		        m->size, (void *)m->base, err == EOPNOTSUPP ? "they are of a stack, a file or shared" : strerror(err));
	}
	return err == 0;
}

static void let_go(struct mr *m)
{
	if (forked(m->d->f))
		return;
	pthread_mutex_lock(&pages);
	seg_release(m->segs, m->nsegs);
	pthread_mutex_unlock(&pages);
	m->nsegs = 0;
}

/* Nothing of a device's stays that no memory of the program's uses: the device is about to be closed. */
void mr_sweep(struct fabric *f)
{
	if (forked(f))
		return;
	pthread_mutex_lock(&pages);
	segs_sweep(f->dev);
	pthread_mutex_unlock(&pages);
}

/* Parent and child do not share what the daemon has. */
static void before_fork(void)
{
	pthread_mutex_lock(&pages);
	segs_forking();
}

static void after_fork(void)
{
	pthread_mutex_unlock(&pages);
}

static void install(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

/* Once there is a device: what is registered last comes first before fork, so that pages is locked before the devices'
 * locks, as in mr_reg. */
void mr_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, install);
}

/* Has peers of the domain reach the memory by a key of libedge: 0 if it is none that they can. ofi_rxm registers each
 * long message for its peer to read, and closes that at once: having the daemon take such memory and give it back costs
 * more than the stream's copies (docs/PROGRAMS.md), so only what peers may write is shared. */
static uint64_t share(struct mr *m)
{
	uint64_t key = 0;
	bool reads = m->access & FI_REMOTE_READ, writes = m->access & FI_REMOTE_WRITE;
	if (m->d->high == 0 || m->counted || !writes || !mr_hold(m))
		return 0;
	size_t off = (uintptr_t)m->base - m->segs[0]->start;
	bool aligned = (off ^ m->first) % 8 == 0;
	int perm = (reads ? EDGE_REMOTE_READ : 0) | (writes ? EDGE_REMOTE_WRITE : 0) |
	           (reads && writes && aligned ? EDGE_REMOTE_ATOMIC : 0);
	int err = m->nsegs != 1 ? EDGE_ERR_INVALID : edge_share(m->segs[0]->region, m->d->number, perm, off, m->size,
	    m->d->high, m->first, &key, ASK_MS);
	if (err == 0)
		return m->shared = key;
	FI_INFO(&edge_provider, FI_LOG_MR, "no key of libedge: %s\n", edge_strerror(err));
	let_go(m);
	m->refused = true;
	return 0;
}

static int mr_close(struct fid *fid)
{
	struct mr *m = container_of(fid, struct mr, fid.fid);
	struct domain *d = m->d;
	pthread_mutex_lock(&d->f->mu);
	int err = m->shared != 0 ? edge_unshare(d->f->dev, m->shared, ASK_MS) : 0;
	if (err != 0 && edge_device_error(d->f->dev) == 0) { /* peers may still use it: the program shall try again */
		WARN(FI_LOG_MR, "a key is not taken back: %s\n", edge_strerror(err));
		pthread_mutex_unlock(&d->f->mu);
		return -FI_EBUSY;
	}
	struct mr **at = place(d, m->fid.key);
	*at = m->next;
	if (m->cntr != NULL)
		m->cntr->refs--;
	for (struct ep *e = d->eps, *next; e != NULL; e = next) {
		next = e->next;
		ep_forget_mr(e, m);
	}
	if (m->nsegs > 0)
		let_go(m);
	d->refs--;
	pthread_mutex_unlock(&d->f->mu);
	free(m);
	return 0;
}

/* fi_mr_bind(3): a counter of what changes the memory. Nobody here sees what peers do by native.c. */
static int mr_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
	struct mr *m = container_of(fid, struct mr, fid.fid);
	struct cntr *c = container_of(bound, struct cntr, fid.fid);
	if (bound->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE)
		return bound->fclass != FI_CLASS_CNTR ? -FI_ENOSYS : -FI_EBADFLAGS;
	if (m->shared != 0)
		return -FI_EOPNOTSUPP;
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
	while (key == 0 || key >> 32 == d->high || mr_find(d, key) != NULL);
	return key;
}

static struct fi_ops mr_fid_ops = { .size = sizeof(struct fi_ops), .close = mr_close, .bind = mr_bind,
	.control = no_control, .ops_open = no_ops_open };

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key,
                  uint64_t flags, struct fid_mr **mr, void *context)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);
	if (fid->fclass != FI_CLASS_DOMAIN || (flags & ~(FI_RMA_EVENT | ABOUT_DEVICES)))
		return fid->fclass != FI_CLASS_DOMAIN ? -FI_EINVAL : -FI_EBADFLAGS;
	struct mr *m = calloc(1, sizeof *m);
	if (m == NULL)
		return -FI_ENOMEM;
	*m = (struct mr){ .d = d, .base = (char *)buf, .size = len, .access = access,
		.first = d->virtual ? (uintptr_t)buf : offset, .counted = flags & FI_RMA_EVENT };
	m->fid.fid = (struct fid){ .fclass = FI_CLASS_MR, .context = context, .ops = &mr_fid_ops };
	m->fid.mem_desc = m;
	/* It may be asked for later, by another thread, which could not tell. */
	m->refused = our_stack((uintptr_t)buf & -(uintptr_t)PAGE, ((uintptr_t)buf + len + PAGE - 1) & -(uintptr_t)PAGE);
	pthread_mutex_lock(&d->f->mu);
	m->fid.key = !d->keys ? key : share(m) != 0 ? m->shared : new_key(d);
	struct mr **at = place(d, m->fid.key);
	int err = d->keys && m->fid.key == 0 ? -FI_EOTHER : *at != NULL ? -FI_ENOKEY : 0;
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
