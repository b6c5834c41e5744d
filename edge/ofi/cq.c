/* Completion queues. They grow as needed: what is in them is bounded by what may be posted. */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

bool cq_empty(const struct cq *cq)
{
	return cq->head == cq->tail;
}

static bool grow(struct cq *cq)
{
	struct fi_cq_err_entry *ring = malloc(2 * (size_t)cq->size * sizeof *ring);
	if (ring == NULL)
		return false;
	for (uint32_t i = 0; i < cq->size; i++)
		ring[i] = cq->ring[(cq->head + i) & (cq->size - 1)];
	free(cq->ring);
	cq->ring = ring;
	cq->head = 0;
	cq->tail = cq->size;
	cq->size *= 2;
	return true;
}

void cq_push(struct cq *cq, const struct fi_cq_err_entry *e)
{
	if (cq == NULL)
		return;
	if (cq->tail - cq->head == cq->size && !grow(cq)) {
		WARN(FI_LOG_CQ, "out of memory: a completion is lost\n");
		return;
	}
	cq->ring[cq->tail++ & (cq->size - 1)] = *e;
	waiter_tell(&cq->w);
}

/* Peers cause completions by writes with data, as many as they like. */
bool cq_takes(struct cq *cq)
{
	if (cq == NULL || cq->tail - cq->head < CQ_MOST)
		return true;
	cq->crowded = true;
	return false;
}

/* The program has read: endpoints that stopped go on. */
static void relieve(struct cq *cq)
{
	if (!cq->crowded || cq->tail - cq->head > CQ_MOST / 2)
		return;
	cq->crowded = false;
	cq->d->relieved(cq);
}

static size_t width(enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_CONTEXT: return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG: return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA: return sizeof(struct fi_cq_data_entry);
	default: return sizeof(struct fi_cq_tagged_entry);
	}
}

/* The entries of all formats begin alike. */
static ssize_t take(struct cq *cq, char *buf, size_t count)
{
	size_t n = 0, size = width(cq->format);
	for (; n < count && cq->head != cq->tail; n++, cq->head++) {
		const struct fi_cq_err_entry *e = &cq->ring[cq->head & (cq->size - 1)];
		if (e->err != 0)
			return n > 0 ? (ssize_t)n : -FI_EAVAIL;
		memcpy(buf + n * size, e, size);
	}
	return n > 0 || count == 0 ? (ssize_t)n : -FI_EAGAIN;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	struct fabric *f = cq->d->f;
	pthread_mutex_lock(&f->mu);
	if (cq->head == cq->tail || count == 0)
		progress(f);
	ssize_t n = take(cq, buf, count);
	if (n == -FI_EAGAIN) {
		give_way(f);
		n = take(cq, buf, count);
	}
	if (n != -FI_EAGAIN)
		f->asking.vain = 0;
	relieve(cq);
	pthread_mutex_unlock(&f->mu);
	for (ssize_t i = 0; source != NULL && i < n; i++)
		source[i] = FI_ADDR_NOTAVAIL;
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *to, uint64_t flags)
{
	(void)flags;
	struct cq *cq = container_of(fid, struct cq, fid);
	ssize_t n = -FI_EAGAIN;
	pthread_mutex_lock(&cq->d->f->mu);
	if (cq->head != cq->tail && cq->ring[cq->head & (cq->size - 1)].err != 0) {
		const struct fi_cq_err_entry *e = &cq->ring[cq->head++ & (cq->size - 1)];
		void *data = to->err_data;
		size_t size = to->err_data_size;
		*to = *e;
		to->err_data = data;
		to->err_data_size = size > 0 ? 0 : size; /* there are none */
		n = 1;
	}
	pthread_mutex_unlock(&cq->d->f->mu);
	return n;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source, const void *cond,
                            int timeout)
{
	(void)cond;
	struct cq *cq = container_of(fid, struct cq, fid);
	struct fabric *f = cq->d->f;
	if (cq->w.epoll < 0)
		return -FI_ENOSYS;
	int64_t until = until_ns(timeout);
	pthread_mutex_lock(&f->mu);
	ssize_t n;
	for (;;) {
		progress(f);
		n = take(cq, buf, count);
		if (n != -FI_EAGAIN || cq->interrupted || (timeout >= 0 && left_ns(until) == 0))
			break;
		if (forked(f)) {
			n = -FI_EOPBADSTATE;
			break;
		}
		if (waiter_arm(&cq->w))
			waiter_sleep(&cq->w, left_ns(until));
	}
	cq->interrupted = false;
	relieve(cq);
	pthread_mutex_unlock(&f->mu);
	for (ssize_t i = 0; source != NULL && i < n; i++)
		source[i] = FI_ADDR_NOTAVAIL;
	return n;
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct cq *cq = container_of(fid, struct cq, fid);
	if (cq->w.epoll < 0)
		return -FI_ENOSYS;
	pthread_mutex_lock(&cq->d->f->mu);
	cq->interrupted = true;
	waiter_tell(&cq->w);
	pthread_mutex_unlock(&cq->d->f->mu);
	return 0;
}

/* prov_errno is libedge's. */
static const char *text(int prov_errno, char *buf, size_t len)
{
	const char *t = edge_strerror(prov_errno);
	if (buf != NULL && len > 0) {
		strncpy(buf, t, len - 1);
		buf[len - 1] = 0;
	}
	return t;
}

static const char *cq_strerror(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	(void)cq, (void)err_data;
	return text(prov_errno, buf, len);
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = container_of(fid, struct cq, fid.fid);
	struct fabric *f = cq->d->f;
	pthread_mutex_lock(&f->mu);
	int err = cq->refs > 0 ? -FI_EBUSY : 0;
	if (err == 0) {
		cq->d->refs--;
		waiter_close(&cq->w);
	}
	pthread_mutex_unlock(&f->mu);
	if (err == 0) {
		free(cq->ring);
		free(cq);
	}
	return err;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct cq *cq = container_of(fid, struct cq, fid.fid);
	return waiter_control(&cq->w, cq->object, command, arg);
}

static struct fi_ops cq_fid_ops = { .size = sizeof(struct fi_ops), .close = cq_close, .bind = no_bind,
	.control = cq_control, .ops_open = no_ops_open };
static struct fi_ops_cq cq_ops = { .size = sizeof(struct fi_ops_cq), .read = cq_read, .readfrom = cq_readfrom,
	.readerr = cq_readerr, .sread = cq_sread, .sreadfrom = cq_sreadfrom, .signal = cq_signal, .strerror = cq_strerror };

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	struct domain *d = container_of(domain, struct domain, fid);
	enum fi_wait_obj object = attr->wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : attr->wait_obj;
	if (attr->format > FI_CQ_FORMAT_TAGGED || (object != FI_WAIT_NONE && object != FI_WAIT_FD) ||
	    attr->wait_cond != FI_CQ_COND_NONE)
		return -FI_ENOSYS;
	struct cq *c = calloc(1, sizeof *c);
	if (c == NULL)
		return -FI_ENOMEM;
	*c = (struct cq){ .d = d, .object = object, .size = 256, .w = { .epoll = -1, .event = -1 },
		.format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr->format,
		.fid = { .fid = { .fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid_ops }, .ops = &cq_ops } };
	c->ring = malloc(c->size * sizeof *c->ring);
	int err = c->ring == NULL ? -FI_ENOMEM : object == FI_WAIT_FD ? waiter_open(&c->w, d->f) : 0;
	if (err != 0) {
		free(c->ring);
		free(c);
		return err;
	}
	pthread_mutex_lock(&d->f->mu);
	d->refs++;
	pthread_mutex_unlock(&d->f->mu);
	*cq = &c->fid;
	return 0;
}
