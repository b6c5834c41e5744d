/* Domains. */
#include <stddef.h>
#include <stdlib.h>

#include "provider.h"

static int no_av(struct fid_domain *d, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
	(void)d, (void)attr, (void)av, (void)context;
	return -FI_ENOSYS;
}

static int no_scalable(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context)
{
	(void)d, (void)info, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *d, struct fi_poll_attr *attr, struct fid_poll **poll)
{
	(void)d, (void)attr, (void)poll;
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *d, struct fi_tx_attr *attr, struct fid_stx **stx, void *context)
{
	(void)d, (void)attr, (void)stx, (void)context;
	return -FI_ENOSYS;
}

static int domain_close(struct fid *fid)
{
	struct domain *d = container_of(fid, struct domain, fid.fid);
	pthread_mutex_lock(&d->f->mu);
	int err = d->refs > 0 ? -FI_EBUSY : 0;
	if (err == 0)
		d->f->refs--;
	pthread_mutex_unlock(&d->f->mu);
	if (err == 0)
		free(d);
	return err;
}

static struct fi_ops domain_fid_ops = { .size = sizeof(struct fi_ops), .close = domain_close, .bind = no_bind,
	.control = no_control, .ops_open = no_ops_open };
static struct fi_ops_domain domain_ops = { .size = offsetof(struct fi_ops_domain, query_collective), .av_open = no_av,
	.cq_open = cq_open, .endpoint = ep_open, .scalable_ep = no_scalable, .cntr_open = cntr_open, .poll_open = no_poll,
	.stx_ctx = no_stx, .srx_ctx = srx_open, .query_atomic = query_atomic };
int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context)
{
	struct fabric *f = container_of(fabric, struct fabric, fid);
	struct domain *d = calloc(1, sizeof *d);
	if (d == NULL)
		return -FI_ENOMEM;
	d->f = f;
	d->relieved = ep_relieved;
	int mode = info->domain_attr->mr_mode;
	d->virtual = mode & (FI_MR_BASIC | FI_MR_VIRT_ADDR);
	d->keys = mode & (FI_MR_BASIC | FI_MR_PROV_KEY);
	d->local = mode & FI_MR_LOCAL;
	native_begin(d, info);
	d->fid = (struct fid_domain){ .fid = { .fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid_ops },
		.ops = &domain_ops, .mr = &mr_ops };
	pthread_mutex_lock(&f->mu);
	f->refs++;
	pthread_mutex_unlock(&f->mu);
	*domain = &d->fid;
	return 0;
}
