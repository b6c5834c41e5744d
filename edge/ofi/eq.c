/* Event queues: how connections come about and end. */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

bool eq_empty(const struct eq *eq)
{
	return eq->first == NULL;
}

static void append(struct eq *eq, struct event *ev)
{
	ev->next = NULL;
	*eq->last = ev;
	eq->last = &ev->next;
	waiter_tell(&eq->w);
}

static struct event *event_new(size_t size, const void *data)
{
	struct event *ev = calloc(1, sizeof *ev + size);
	if (ev == NULL)
		return NULL;
	ev->size = size;
	if (size > 0)
		memcpy(ev->data, data, size);
	return ev;
}

/* An event that the program did not take is gone, with the request to connect that it told of. */
static void event_drop(struct eq *eq, struct event *ev)
{
	if (ev->info != NULL)
		eq->f->unwanted(ev->info);
	free(ev);
}

bool eq_push(struct eq *eq, uint32_t type, fid_t fid, int err, int prov_errno, struct fi_info *info, const void *data,
             size_t size)
{
	struct event *ev = eq == NULL ? NULL : event_new(size, data);
	if (ev == NULL) {
		WARN(FI_LOG_EQ, "an event is lost: %s\n", eq == NULL ? "no event queue is bound" : "out of memory");
		return false;
	}
	ev->type = type;
	ev->info = info;
	ev->e = (struct fi_eq_err_entry){ .fid = fid, .context = fid->context, .err = err, .prov_errno = prov_errno };
	append(eq, ev);
	return true;
}

/* Drops the events of what is about to be closed. */
void eq_forget(struct eq *eq, fid_t fid)
{
	for (struct event **at = &eq->first, *ev; (ev = *at) != NULL;) {
		if (ev->written || ev->e.fid != fid) {
			at = &ev->next;
			continue;
		}
		*at = ev->next;
		event_drop(eq, ev);
	}
	eq->last = &eq->first;
	while (*eq->last != NULL)
		eq->last = &(*eq->last)->next;
}

static struct event *take(struct eq *eq)
{
	struct event *ev = eq->first;
	eq->first = ev->next;
	if (eq->first == NULL)
		eq->last = &eq->first;
	return ev;
}

static ssize_t read_first(struct eq *eq, uint32_t *type, void *buf, size_t len, uint64_t flags)
{
	struct event *ev = eq->first;
	if (ev == NULL)
		return -FI_EAGAIN;
	if (ev->e.err != 0)
		return -FI_EAVAIL;
	struct fi_eq_cm_entry head = { .fid = ev->e.fid, .info = ev->info };
	size_t before = ev->written ? 0 : sizeof head, n = before + ev->size;
	if (len < before || (ev->written && len < n))
		return -FI_ETOOSMALL;
	n = n < len ? n : len;
	*type = ev->type;
	memcpy(buf, &head, before);
	memcpy((char *)buf + before, ev->data, n - before);
	if (!(flags & FI_PEEK))
		free(take(eq));
	return (ssize_t)n;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *type, void *buf, size_t len, uint64_t flags)
{
	struct eq *eq = container_of(fid, struct eq, fid);
	pthread_mutex_lock(&eq->f->mu);
	if (eq->first == NULL)
		progress(eq->f);
	ssize_t n = read_first(eq, type, buf, len, flags);
	pthread_mutex_unlock(&eq->f->mu);
	return n;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *type, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct eq *eq = container_of(fid, struct eq, fid);
	if (eq->w.epoll < 0)
		return -FI_ENOSYS;
	int64_t until = until_ns(timeout);
	pthread_mutex_lock(&eq->f->mu);
	ssize_t n;
	for (;;) {
		progress(eq->f);
		n = read_first(eq, type, buf, len, flags);
		if (n != -FI_EAGAIN || (timeout >= 0 && left_ns(until) == 0))
			break;
		if (forked(eq->f)) {
			n = -FI_EOPBADSTATE;
			break;
		}
		if (waiter_arm(&eq->w))
			waiter_sleep(&eq->w, left_ns(until));
	}
	pthread_mutex_unlock(&eq->f->mu);
	return n;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *to, uint64_t flags)
{
	struct eq *eq = container_of(fid, struct eq, fid);
	ssize_t n = -FI_EAGAIN;
	pthread_mutex_lock(&eq->f->mu);
	struct event *ev = eq->first;
	if (ev != NULL && ev->e.err != 0) {
		void *given = to->err_data;
		size_t room = to->err_data_size;
		*to = ev->e;
		to->err_data = ev->size > 0 ? ev->data : NULL;
		to->err_data_size = ev->size;
		if (given != NULL && room > 0) { /* the caller's, from API 1.5 on */
			to->err_data = given;
			to->err_data_size = ev->size < room ? ev->size : room;
			memcpy(given, ev->data, to->err_data_size);
		}
		if (!(flags & FI_PEEK)) {
			take(eq);
			free(eq->err_data); /* there until the next is read */
			eq->err_data = ev;
		}
		n = sizeof *to;
	}
	pthread_mutex_unlock(&eq->f->mu);
	return n;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t type, const void *buf, size_t len, uint64_t flags)
{
	(void)flags;
	struct eq *eq = container_of(fid, struct eq, fid);
	struct event *ev = event_new(len, buf);
	if (ev == NULL)
		return -FI_ENOMEM;
	ev->written = true;
	ev->type = type;
	pthread_mutex_lock(&eq->f->mu);
	append(eq, ev);
	pthread_mutex_unlock(&eq->f->mu);
	return (ssize_t)len;
}

static const char *eq_strerror(struct fid_eq *eq, int prov_errno, const void *err_data, char *buf, size_t len)
{
	(void)eq, (void)err_data;
	const char *t = edge_strerror(prov_errno);
	if (buf != NULL && len > 0) {
		strncpy(buf, t, len - 1);
		buf[len - 1] = 0;
	}
	return t;
}

static int eq_close(struct fid *fid)
{
	struct eq *eq = container_of(fid, struct eq, fid.fid);
	struct fabric *f = eq->f;
	pthread_mutex_lock(&f->mu);
	int err = eq->refs > 0 ? -FI_EBUSY : 0;
	while (err == 0 && eq->first != NULL)
		event_drop(eq, take(eq));
	if (err == 0) {
		f->refs--;
		waiter_close(&eq->w);
		free(eq->err_data);
	}
	pthread_mutex_unlock(&f->mu);
	if (err == 0)
		free(eq);
	return err;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct eq *eq = container_of(fid, struct eq, fid.fid);
	return waiter_control(&eq->w, eq->object, command, arg);
}

static struct fi_ops eq_fid_ops = { .size = sizeof(struct fi_ops), .close = eq_close, .bind = no_bind,
	.control = eq_control, .ops_open = no_ops_open };
static struct fi_ops_eq eq_ops = { .size = sizeof(struct fi_ops_eq), .read = eq_read, .readerr = eq_readerr,
	.write = eq_write, .sread = eq_sread, .strerror = eq_strerror };

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	struct fabric *f = container_of(fabric, struct fabric, fid);
	enum fi_wait_obj object = attr->wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : attr->wait_obj;
	if (object != FI_WAIT_NONE && object != FI_WAIT_FD)
		return -FI_ENOSYS;
	struct eq *q = calloc(1, sizeof *q);
	if (q == NULL)
		return -FI_ENOMEM;
	*q = (struct eq){ .f = f, .object = object, .last = &q->first, .w = { .epoll = -1, .event = -1 },
		.fid = { .fid = { .fclass = FI_CLASS_EQ, .context = context, .ops = &eq_fid_ops }, .ops = &eq_ops } };
	int err = object == FI_WAIT_FD ? waiter_open(&q->w, f) : 0;
	if (err != 0) {
		free(q);
		return err;
	}
	pthread_mutex_lock(&f->mu);
	f->refs++;
	pthread_mutex_unlock(&f->mu);
	*eq = &q->fid;
	return 0;
}
