/* Fabrics: their beginning and end, and what a program asks before it sleeps. */
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "provider.h"

enum { OPEN_MS = 2000, CLOSE_MS = 5000, SPIN_US = 50 };

/* Whether there is nothing in fid, so that its descriptor tells of what comes. */
static int try(struct fid *fid)
{
	struct waiter *w;
	bool news;
	switch (fid->fclass) {
	case FI_CLASS_CQ:
		w = &((struct cq *)fid)->w;
		news = !cq_empty((struct cq *)fid);
		break;
	case FI_CLASS_EQ:
		w = &((struct eq *)fid)->w;
		news = !eq_empty((struct eq *)fid);
		break;
	case FI_CLASS_CNTR:
		w = &((struct cntr *)fid)->w;
		news = cntr_news((struct cntr *)fid);
		break;
	default:
		return -FI_EINVAL;
	}
	if (w->epoll < 0)
		return -FI_EINVAL;
	return news || !waiter_settled(w) || !waiter_arm(w) ? -FI_EAGAIN : 0;
}

static int trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct fabric *f = container_of(fabric, struct fabric, fid);
	int err = 0;
	pthread_mutex_lock(&f->mu);
	progress(f);
	for (int i = 0; err == 0 && i < count; i++)
		err = try(fids[i]);
	pthread_mutex_unlock(&f->mu);
	return err;
}

static int fabric_close(struct fid *fid)
{
	struct fabric *f = container_of(fid, struct fabric, fid.fid);
	if (f->refs > 0)
		return -FI_EBUSY;
	pthread_mutex_lock(&f->mu);
	while (f->requests != NULL)
		connreq_drop(f->requests);
	for (int64_t until = until_ns(CLOSE_MS); f->refusals != NULL && left_ns(until) > 0 && !forked(f);) {
		progress(f);
		if (f->refusals != NULL && waiter_arm(&f->asking.waiter))
			waiter_sleep(&f->asking.waiter, left_ns(until));
	}
	refusals_drop(f);
	stages_close(f);
	mr_sweep(f);
	waiter_close(&f->asking.waiter);
	pthread_mutex_unlock(&f->mu);
	edge_device_close(f->dev, CLOSE_MS);
	close(f->local);
	close(f->more);
	pthread_mutex_destroy(&f->mu);
	free(f);
	return 0;
}

static int no_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **set)
{
	(void)fabric, (void)attr, (void)set;
	return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = { .size = sizeof(struct fi_ops), .close = fabric_close, .bind = no_bind,
	.control = no_control, .ops_open = no_ops_open };
static struct fi_ops_fabric fabric_ops = { .size = sizeof(struct fi_ops_fabric), .domain = domain_open,
	.passive_ep = pep_open, .eq_open = eq_open, .wait_open = no_wait_open, .trywait = trywait };

/* A power of two from 4 KiB to 512 MiB, as the daemon wants it; 0: the library's. */
static uint32_t buffer_param(void)
{
	size_t n = 0;
	if (fi_param_get_size_t(&edge_provider, "buffer", &n) != 0)
		return 0;
	if (n >= 4096 && n <= (size_t)512 << 20 && (n & (n - 1)) == 0)
		return (uint32_t)n;
	WARN(FI_LOG_FABRIC, "FI_EDGE_BUFFER is %zu; it must be a power of two from 4096 to 536870912\n", n);
	return 0;
}

/* How long a program may ask in vain before a question takes longer, in ns; 0: for ever. */
static int64_t patience_param(void)
{
	int us = SPIN_US;
	fi_param_get_int(&edge_provider, "spin", &us);
	return (us < 0 ? SPIN_US : us) * INT64_C(1000);
}

/* Whether a lost connection ends the process: unless told otherwise, where mpirun started it. */
static bool fatal_param(void)
{
	int on = getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
	fi_param_get_bool(&edge_provider, "fatal", &on);
	return on;
}

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct fabric *f = calloc(1, sizeof *f);
	if (f == NULL)
		return -FI_ENOMEM;
	f->local = epoll_create1(EPOLL_CLOEXEC);
	f->more = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->unwanted = connreq_unwanted;
	f->asking.idle = (struct idle){ .how = IDLE_ADAPTIVE, .spin = patience_param() };
	f->asking.patient = f->asking.idle.spin == 0;
	f->fatal = fatal_param();
	edge_config cfg = { .size = sizeof cfg };
	cfg.receive_buffer = cfg.send_buffer = buffer_param();
	int err = f->local < 0 || f->more < 0 || local_watch(f, f->more, &f->more_watched) != 0 ? EDGE_ERR_SYSTEM :
	          edge_open(&f->dev, &cfg, OPEN_MS);
	if (err != 0) {
		WARN(FI_LOG_FABRIC, "%s: %s\n", edge_strerror(err), edge_detail());
		if (f->local >= 0)
			close(f->local);
		if (f->more >= 0)
			close(f->more);
		free(f);
		return -FI_ENODEV;
	}
	mr_begin();
	pthread_mutex_init(&f->mu, NULL);
	f->fid = (struct fid_fabric){ .fid = { .fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops },
		.ops = &fabric_ops, .api_version = attr->api_version };
	err = waiter_open(&f->asking.waiter, f);
	if (err != 0) {
		fabric_close(&f->fid.fid);
		return err;
	}
	*fabric = &f->fid;
	return 0;
}
