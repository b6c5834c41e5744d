/*
 * A fabric has a device of its own; all that happens, happens in progress, which every reading of a queue runs. Who
 * sleeps on a queue sleeps on the device's descriptor and on an eventfd of the queue: another thread may make progress
 * in its place.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ofi.h"

enum { CHANGES = 32, LOCAL_EACH = 32, ROUNDS = 64, OPEN_MS = 2000, CLOSE_MS = 5000 };

/* How a program that asks again and again, and does nothing else, gives way (as libedge's waits do). */
enum { FREE = 16,           /* questions after one that was answered: who reads until nothing is left is not waiting */
       ELSE = 10000,        /* ns between two questions: it does something else */
       SPIN = 50000,        /* how long it may ask */
       NAP = 250000,        /* how long the answer may take then, unless something comes */
       SLOW_YIELD = 200000, /* a yield that took longer found a busy core: no more spinning for a while */
       BUSY = 20000000 };

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When a wait is over; negative: never. */
int64_t until_ns(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : now_ns() + timeout_ms * (int64_t)1000000;
}

int64_t left_ns(int64_t until)
{
	int64_t left = until < 0 ? -1 : until - now_ns();
	return until >= 0 && left < 0 ? 0 : left;
}

/* Lets those endpoints go on that had more to read than was their turn. */
static void go_on(struct fabric *f)
{
	struct ep *e = f->ready;
	f->ready = NULL;
	for (struct ep *next; e != NULL; e = next) {
		next = e->ready;
		e->queued = false;
		ep_step(e);
	}
}

static void step(struct watched *w)
{
	switch (w->kind) {
	case ENDPOINT:
		ep_step((struct ep *)w);
		break;
	case PASSIVE:
		pep_step((struct pep *)w);
		break;
	case REFUSAL:
		refusal_step((struct refusal *)w);
		break;
	case MORE:
		break;
	}
}

static void take_local(struct fabric *f)
{
	struct epoll_event e[CHANGES];
	int n = epoll_wait(f->local, e, CHANGES, 0);
	for (int i = 0; i < n; i++)
		step(e[i].data.ptr);
}

/* Takes what has happened. Sockets cost a system call: where none is connected it is enough to look now and then. */
static void take(struct fabric *f)
{
	void *changed[CHANGES];
	if (f->ready != NULL)
		go_on(f);
	if (f->nlocal > 0 || f->waiting > 0 || f->polls++ % LOCAL_EACH == 0)
		take_local(f);
	if (edge_device_poll(f->dev) <= 0)
		return;
	int n;
	do {
		n = edge_changed(f->dev, changed, CHANGES);
		for (int i = 0; i < n; i++)
			step(changed[i]);
	} while (n == CHANGES);
}

/* A child of fork has nothing to wait for. */
bool forked(struct fabric *f)
{
	return edge_device_error(f->dev) == EDGE_ERR_FORKED;
}

static void ring(int event)
{
	uint64_t one = 1;
	while (write(event, &one, sizeof one) < 0 && errno == EINTR)
		;
}

void progress(struct fabric *f)
{
	take(f);
	/* Somebody sleeps: what comes from now on must wake them, though we have just looked in their place. */
	for (int i = 0; f->waiting > 0 && (f->ready != NULL || edge_device_arm(f->dev) == 0) && !forked(f); i++) {
		if (i == ROUNDS) { /* a peer that writes on and on must not keep us here: they shall do it */
			ring(f->more);
			return;
		}
		take(f);
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
	epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Has w step whenever there is something to read, or room again. */
int local_watch(struct fabric *f, int fd, struct watched *w)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = w };
	return epoll_ctl(f->local, EPOLL_CTL_ADD, fd, &e) != 0 ? -errno : 0;
}

void local_unwatch(struct fabric *f, int fd)
{
	epoll_ctl(f->local, EPOLL_CTL_DEL, fd, NULL);
}

int waiter_open(struct waiter *w, struct fabric *f)
{
	*w = (struct waiter){ .f = f, .epoll = epoll_create1(EPOLL_CLOEXEC),
		.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (w->epoll < 0 || w->event < 0) {
		int err = -errno;
		waiter_close(w);
		return err;
	}
	watch(w->epoll, w->event);
	watch(w->epoll, edge_device_fd(f->dev));
	watch(w->epoll, f->local);
	return 0;
}

void waiter_close(struct waiter *w)
{
	if (w->waiting)
		w->f->waiting--;
	if (w->epoll >= 0)
		close(w->epoll);
	if (w->event >= 0)
		close(w->event);
	*w = (struct waiter){ .epoll = -1, .event = -1 };
}

void waiter_tell(struct waiter *w)
{
	if (!w->waiting)
		return;
	w->waiting = false;
	w->f->waiting--;
	w->signalled = true;
	ring(w->event);
}

bool waiter_arm(struct waiter *w)
{
	uint64_t n;
	if (w->signalled)
		while (read(w->event, &n, sizeof n) < 0 && errno == EINTR)
			;
	w->signalled = false;
	if (!w->waiting)
		w->f->waiting++;
	w->waiting = true;
	return w->f->ready == NULL && edge_device_arm(w->f->dev) != 0;
}

/* Arming takes back what was told. Of those who sleep on a counter each waits for a value of its own: all must hear. */
bool waiter_settled(struct waiter *w)
{
	return !w->signalled || w->sleepers == 0;
}

/* Others may sleep on, and are to be woken. */
static void wakes(struct waiter *w)
{
	pthread_mutex_lock(&w->f->mu);
	w->sleepers--;
	if (w->waiting && w->sleepers == 0) {
		w->f->waiting--;
		w->waiting = false;
	}
	w->f->polls = 0; /* look at everything */
}

/* The thread is canceled. */
static void canceled(void *p)
{
	struct waiter *w = p;
	wakes(w);
	pthread_mutex_unlock(&w->f->mu);
}

/* Sleeps without the lock, once waiter_arm said yes. */
void waiter_sleep(struct waiter *w, int64_t timeout_ns)
{
	struct epoll_event e[3];
	struct timespec t = { .tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000 };
	w->sleepers++;
	pthread_mutex_unlock(&w->f->mu);
	pthread_cleanup_push(canceled, w);
	epoll_pwait2(w->epoll, e, 3, timeout_ns < 0 ? NULL : &t, NULL);
	pthread_cleanup_pop(0);
	wakes(w);
}

/* A program asked for a completion, and there is none. On a machine whose cores are all busy the daemon could not run
 * while it asks, so it gives way: the processor, and after a while the question waits for a moment. */
void give_way(struct fabric *f)
{
	if (f->patience == 0 || f->vain++ < FREE)
		return;
	int64_t now = now_ns();
	if (now - f->asked_at > ELSE || f->vain == FREE + 1)
		f->asked_since = now;
	if (now - f->asked_since < f->patience && now > f->busy_until) {
		pthread_mutex_unlock(&f->mu);
		sched_yield();
		f->asked_at = now_ns();
		pthread_mutex_lock(&f->mu);
		if (f->asked_at - now > SLOW_YIELD)
			f->busy_until = f->asked_at + BUSY;
		return;
	}
	if (waiter_arm(&f->idle))
		waiter_sleep(&f->idle, NAP);
	progress(f); /* and not take: others may sleep on */
	f->asked_at = now_ns();
}

int waiter_control(struct waiter *w, enum fi_wait_obj object, int command, void *arg)
{
	switch (command) {
	case FI_GETWAIT:
		if (w->epoll < 0 || object != FI_WAIT_FD)
			return -FI_ENOSYS;
		*(int *)arg = w->epoll;
		return 0;
	case FI_GETWAITOBJ:
		*(enum fi_wait_obj *)arg = object;
		return 0;
	}
	return -FI_ENOSYS;
}

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
		if (f->refusals != NULL && waiter_arm(&f->idle))
			waiter_sleep(&f->idle, left_ns(until));
	}
	refusals_drop(f);
	waiter_close(&f->idle);
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
	int us = SPIN / 1000;
	fi_param_get_int(&edge_provider, "spin", &us);
	return us < 0 ? SPIN : (int64_t)us * 1000;
}

/* Whether a lost connection ends the process: unless told otherwise, where mpirun started it. */
static bool fatal_param(void)
{
	int on = getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
	fi_param_get_bool(&edge_provider, "fatal", &on);
	return on;
}

/* A connection ended that neither program ended. ofi_rxm tells nobody what was lost with it, so that MPI would wait for
 * ever: the job ends with a message, as it does where a process dies. That one (EDGE_ERR_RESET) mpirun notices. */
void connection_lost(struct fabric *f, int err)
{
	if (!f->fatal || err == 0 || err == EDGE_ERR_RESET || err == EDGE_ERR_FORKED)
		return;
	const char *why = err == EDGE_ERR_PEER_DOWN ? "the peer's host or its daemon restarted or does not answer" :
	                  edge_error_is(err, EDGE_ERR_DAEMON_DOWN) ? "the daemon of this host went away" : edge_strerror(err);
	fprintf(stderr, "libedge-fi: a connection is lost: %s. Messages are lost with it, which ofi_rxm tells nobody, so "
	        "this process ends. FI_EDGE_FATAL=0 lets it go on.\n", why);
	_exit(1);
}

int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct fabric *f = calloc(1, sizeof *f);
	if (f == NULL)
		return -FI_ENOMEM;
	f->local = epoll_create1(EPOLL_CLOEXEC);
	f->more = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->more_watched.kind = MORE;
	f->patience = patience_param();
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
	pthread_mutex_init(&f->mu, NULL);
	f->fid = (struct fid_fabric){ .fid = { .fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops },
		.ops = &fabric_ops, .api_version = attr->api_version };
	err = waiter_open(&f->idle, f);
	if (err != 0) {
		fabric_close(&f->fid.fid);
		return err;
	}
	*fabric = &f->fid;
	return 0;
}
