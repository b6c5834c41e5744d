/*
 * Stands in for libedge in the unit tests of libedge-preload: the functions that it uses, over abstract Unix sockets,
 * without a daemon. Every node is called "peer". A dialler sends a byte of length and its data; A is the acceptance.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "edge.h"

struct end {
	int64_t ready_at; /* STANDIN_SLOW: when a stream can be written to */
	int fd;
	void *context;
	bool queued, open, finished, ended;
	int err;
	char reason[128];
	struct end *next; /* changed */
	struct end *sibling, **at;
};
struct edge_device { int epoll; struct end *changed, **last, *all; };
struct edge_stream { struct end e; };
struct edge_conn { struct end e; };
struct edge_listener { struct end e; };
struct edge_request { int fd; unsigned char n; char data[256]; bool read; };

static struct edge_device dev = {.epoll = -1};
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t io = PTHREAD_MUTEX_INITIALIZER; /* as libedge's, which calls have */
static int timer = -1;
static _Atomic int looks;

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* When a stream that is opened now can be written to, in ms; the device tells of it. */
static int64_t slow(void) {
	const char *ms = getenv("STANDIN_SLOW");
	if (!ms)
		return 0;
	int64_t t = atoi(ms);
	struct itimerspec at = {.it_value.tv_sec = t / 1000, .it_value.tv_nsec = t % 1000 * 1000000};
	timerfd_settime(timer, 0, &at, NULL);
	return now() + t;
}

static void in_child(void) {
	close(dev.epoll);
	for (struct end *e = dev.all; e; e = e->sibling)
		close(e->fd);
	dev = (struct edge_device){.epoll = -1};
	pthread_mutex_init(&mu, NULL);
	pthread_mutex_init(&io, NULL);
}

const char *edge_detail(void) { return "the stand-in is down"; }

/* A daemon that does not answer to what the variable names: time passes. */
static bool silent(const char *to) {
	const char *what = getenv("STANDIN_SILENT");
	if (!what || strcmp(what, to))
		return false;
	poll(NULL, 0, 300);
	return true;
}

int edge_open(edge_device **d, const edge_config *c, int ms) {
	(void)c, (void)ms;
	static bool once;
	if (silent("open"))
		return EDGE_ERR_TIMEOUT;
	if (getenv("STANDIN_DOWN"))
		return EDGE_ERR_NO_DAEMON;
	if (!once)
		pthread_atfork(NULL, NULL, in_child);
	once = true;
	dev.epoll = epoll_create1(EPOLL_CLOEXEC);
	dev.last = &dev.changed;
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	epoll_ctl(dev.epoll, EPOLL_CTL_ADD, timer, &(struct epoll_event){.events = EPOLLIN | EPOLLET});
	*d = &dev;
	return dev.epoll < 0 ? EDGE_ERR_SYSTEM : 0;
}

/* It wakes those who wait, as libedge does. */
int edge_open_start(edge_device **d, const edge_config *c) { return edge_open(d, c, 0); }
int edge_device_attached(edge_device *d, int ms) { return (void)ms, edge_device_error(d); }
void edge_device_close(edge_device *d, int ms) {
	(void)ms;
	timerfd_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = 1}, NULL);
	poll(NULL, 0, 2);
	close(d->epoll);
}
int edge_device_drain(edge_device *d, int ms) { return (void)d, (void)ms, 0; }
int edge_device_error(edge_device *d) { return d->epoll < 0 ? EDGE_ERR_FORKED : 0; }
int edge_device_fd(edge_device *d) { return d->epoll; }

static void enter(struct end *e, int fd) {
	e->fd = fd;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = e};
	epoll_ctl(dev.epoll, EPOLL_CTL_ADD, fd, &ev);
	e->sibling = dev.all;
	if (e->sibling)
		e->sibling->at = &e->sibling;
	e->at = &dev.all;
	dev.all = e;
}

static void leave(struct end *e) {
	pthread_mutex_lock(&mu);
	for (struct end **p = &dev.changed; e->queued && *p; p = &(*p)->next)
		if (*p == e) {
			*p = e->next;
			if (dev.last == &e->next)
				dev.last = p;
			break;
		}
	*e->at = e->sibling;
	if (e->sibling)
		e->sibling->at = e->at;
	pthread_mutex_unlock(&mu);
	close(e->fd);
	free(e);
}

static void mark(struct end *e) {
	if (e->queued || !e->context)
		return;
	e->queued = true;
	e->next = NULL;
	*dev.last = e;
	dev.last = &e->next;
}

int edge_device_poll(edge_device *d) {
	struct epoll_event ev[300]; /* as much stack as libedge takes for what daemons send */
	const char *pause_ms = getenv("STANDIN_PAUSE");
	if (pause_ms)
		poll(NULL, 0, atoi(pause_ms));
	pthread_mutex_lock(&mu);
	int n = epoll_wait(d->epoll, ev, 300, 0);
	const char *most = getenv("STANDIN_LOOKS");
	looks = n > 0 ? 0 : looks + 1;
	if (most && looks > atoi(most)) {
		printf("FAIL: the program looks without end, and without an event\n");
		abort();
	}
	for (int i = 0; i < n; i++)
		if (ev[i].data.ptr)
			mark(ev[i].data.ptr);
		else
			for (struct end *e = d->all; e; e = e->sibling)
				mark(e);
	pthread_mutex_unlock(&mu);
	return n;
}

int edge_device_ready(edge_device *d) {
	(void)d;
	return 1;
}

int edge_device_arm(edge_device *d) {
	struct pollfd p = {.fd = d->epoll, .events = POLLIN};
	int quiet = poll(&p, 1, 0) == 0 && !d->changed;
	errno = EPROTO; /* libedge's calls leave errno as they like */
	return quiet;
}

/* Words that no daemon wakes: what the descriptor tells of has the program wake them. */
struct edge_word { _Atomic uint32_t value; bool used; };
static struct edge_word words[64];

edge_word *edge_word_open(edge_device *d) {
	(void)d;
	for (int i = 0; i < 64; i++)
		if (!words[i].used) {
			words[i].used = true;
			return &words[i];
		}
	return NULL;
}
void edge_word_close(edge_device *d, edge_word *w) { (void)d, w->used = false; }
int edge_word_arm(edge_device *d, edge_word *w) {
	w->value = 1;
	int quiet = edge_device_arm(d);
	if (!quiet)
		w->value = 0;
	return quiet;
}
int edge_word_sleep(edge_word *w, int64_t until) {
	struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
	if (syscall(SYS_futex, &w->value, FUTEX_WAIT_BITSET, 1, &t, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
		return 0;
	return errno == EINTR || errno == ETIMEDOUT ? errno : 0;
}
void edge_word_wake(edge_word *w) {
	if (atomic_exchange(&w->value, 0))
		syscall(SYS_futex, &w->value, FUTEX_WAKE, 1, NULL, NULL, 0);
}
void edge_word_rest(edge_word *w) { w->value = 0; }
void edge_stream_aim(edge_stream *s, edge_word *w) { (void)s, (void)w; }

void edge_device_quiet(edge_device *d, int on) { (void)d, (void)on; }

int edge_device_linger(edge_device *d) {
	static _Atomic int n;
	return (void)d, getenv("STANDIN_LINGER") || n++ % 4 != 0;
}

int edge_changed(edge_device *d, void **what, size_t n) {
	size_t got = 0;
	pthread_mutex_lock(&mu);
	for (; got < n && d->changed; got++) {
		struct end *e = d->changed;
		d->changed = e->next;
		if (!d->changed)
			d->last = &d->changed;
		e->queued = false;
		what[got] = e->context;
	}
	pthread_mutex_unlock(&mu);
	return (int)got;
}

static void watch(struct end *e, void *context) {
	pthread_mutex_lock(&mu);
	e->context = context;
	if (context)
		mark(e);
	pthread_mutex_unlock(&mu);
}
void edge_stream_watch(edge_stream *s, void *context) { watch(&s->e, context); }
void edge_listener_watch(edge_listener *l, void *context) { watch(&l->e, context); }

static socklen_t address(struct sockaddr_un *a, const char *service) {
	const char *net = getenv("EDGE_SOCKET");
	a->sun_family = AF_UNIX;
	int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s/%s", net ? net : "", service);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int edge_listen(edge_device *d, const char *service, edge_listener **l, int ms) {
	(void)d, (void)ms;
	if (silent("listen"))
		return EDGE_ERR_TIMEOUT;
	struct sockaddr_un a = {0};
	socklen_t n = address(&a, service);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, 64)) {
		close(fd);
		return EDGE_ERR_EXISTS;
	}
	*l = calloc(1, sizeof **l);
	enter(&(*l)->e, fd);
	return 0;
}
int edge_listen_start(edge_device *d, const char *service, edge_listener **l) { return edge_listen(d, service, l, 0); }
int edge_listener_wait(edge_listener *l, int ms) { return (void)l, (void)ms, 0; }
void edge_listener_close(edge_listener *l) {
	if (l)
		leave(&l->e);
}

int edge_listener_next(edge_listener *l, edge_request **r, int ms) {
	(void)ms;
	static bool lost;
	if (getenv("STANDIN_LOST") && !lost) { /* as after a restart of the daemon, when another one has the name */
		lost = true;
		shutdown(l->e.fd, SHUT_RDWR);
		return EDGE_ERR_EXISTS;
	}
	int fd = accept4(l->e.fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return EDGE_ERR_AGAIN;
	*r = calloc(1, sizeof **r);
	(*r)->fd = fd;
	return 0;
}
const char *edge_request_peer(const edge_request *r) {
	const char *name = getenv("STANDIN_PEER");
	return (void)r, name ? name : "peer";
}
const void *edge_request_data(const edge_request *request, size_t *size) {
	edge_request *r = (edge_request *)(uintptr_t)request;
	if (!r->read && (recv(r->fd, &r->n, 1, MSG_WAITALL) != 1 || recv(r->fd, r->data, r->n, MSG_WAITALL) != r->n))
		r->n = 0;
	r->read = true;
	*size = r->n;
	return r->data;
}
int edge_request_stream(const edge_request *request, const void **data, size_t *size) {
	*data = edge_request_data(request, size);
	return *size > 0 && strchr("AQ", *(const char *)*data) == NULL; /* the owner of a port is asked for none here */
}
int edge_request_user(const edge_request *r, uint32_t *uid) {
	struct ucred c;
	socklen_t n = sizeof c;
	if (getenv("STANDIN_FAR") || getsockopt(r->fd, SOL_SOCKET, SO_PEERCRED, &c, &n))
		return 0;
	*uid = c.uid;
	return 1;
}
int edge_request_refuse(edge_request *r, const char *reason) {
	send(r->fd, "R", 1, MSG_NOSIGNAL);
	send(r->fd, reason, strlen(reason), MSG_NOSIGNAL);
	close(r->fd);
	free(r);
	return 0;
}

static int dial(struct end *e, const char *service, const edge_dial_options *o) {
	struct sockaddr_un a = {0};
	socklen_t n = address(&a, service);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	e->err = EDGE_ERR_AGAIN;
	if (connect(fd, (struct sockaddr *)&a, n))
		e->err = EDGE_ERR_NO_SERVICE;
	unsigned char size = o ? (unsigned char)o->data_size : 0;
	if (e->err == EDGE_ERR_AGAIN &&
	    (send(fd, &size, 1, MSG_NOSIGNAL) < 0 || (o && send(fd, o->data, size, MSG_NOSIGNAL) < 0)))
		e->err = EDGE_ERR_REFUSED;
	enter(e, fd);
	return 0;
}

static int answered(struct end *e) {
	char a;
	if (e->err != EDGE_ERR_AGAIN)
		return e->err;
	ssize_t n = recv(e->fd, &a, 1, 0);
	if (n < 0 && errno == EAGAIN)
		return EDGE_ERR_AGAIN;
	e->open = n == 1 && a == 'A';
	e->err = e->open ? 0 : EDGE_ERR_REFUSED;
	if (n == 1 && a == 'R' && (n = recv(e->fd, e->reason, sizeof e->reason - 1, 0)) > 0)
		e->reason[n] = 0;
	return e->err;
}

int edge_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o, edge_conn **c,
                    int ms) {
	(void)d, (void)peer, (void)ms;
	*c = calloc(1, sizeof **c);
	return dial(&(*c)->e, service, o);
}
int edge_conn_wait(edge_conn *c, int ms) {
	(void)ms;
	return answered(&c->e);
}
const char *edge_conn_reason(const edge_conn *c) { return c->e.reason[0] ? c->e.reason : NULL; }
const char *edge_device_name(edge_device *d) { return (void)d, "peer"; }
void edge_conn_free(edge_conn *c) { leave(&c->e); }
int edge_stream_dial_start(edge_device *d, const char *peer, const char *service, const edge_dial_options *o,
                           edge_stream **s, int ms) {
	(void)d, (void)peer, (void)ms;
	*s = calloc(1, sizeof **s);
	(*s)->e.ready_at = slow();
	return dial(&(*s)->e, service, o);
}
int edge_stream_wait(edge_stream *s, int ms) {
	(void)ms;
	return answered(&s->e);
}

int edge_request_accept_stream(edge_request *r, edge_stream **s) {
	*s = calloc(1, sizeof **s);
	struct end *e = &(*s)->e;
	e->ready_at = slow();
	e->open = send(r->fd, "A", 1, MSG_NOSIGNAL) == 1;
	enter(e, r->fd);
	free(r);
	return 0;
}

static ssize_t receive(edge_stream *s, void *p, size_t size, int flags) {
	pthread_mutex_lock(&io);
	ssize_t n = recv(s->e.fd, p, size, flags);
	pthread_mutex_unlock(&io);
	if (n == 0 && size)
		s->e.ended = true;
	return n >= 0 ? n : errno == EAGAIN ? EDGE_ERR_AGAIN : EDGE_ERR_RESET;
}
ssize_t edge_stream_read(edge_stream *s, void *p, size_t size, int ms) { return (void)ms, receive(s, p, size, 0); }
ssize_t edge_stream_peek(edge_stream *s, void *p, size_t size, int ms) {
	(void)ms;
	return receive(s, p, size, MSG_PEEK);
}
ssize_t edge_stream_write(edge_stream *s, const void *p, size_t size, int ms) {
	(void)ms;
	pthread_mutex_lock(&io);
	ssize_t n = send(s->e.fd, p, size, MSG_NOSIGNAL);
	pthread_mutex_unlock(&io);
	return n >= 0 ? n : errno == EAGAIN ? EDGE_ERR_AGAIN : EDGE_ERR_RESET;
}
ssize_t edge_stream_fill(edge_stream *s, ssize_t (*fill)(void *, size_t, void *, size_t), void *arg, size_t size,
                         int ms) {
	char part[4096];
	size_t done = 0;
	while (done < size) {
		if (poll(&(struct pollfd){.fd = s->e.fd, .events = POLLOUT}, 1, 0) == 0) /* libedge asks for bytes */
			return done > 0 ? (ssize_t)done : EDGE_ERR_AGAIN;
		ssize_t n = fill(arg, done, part, size - done < sizeof part ? size - done : sizeof part);
		ssize_t r = n > 0 ? edge_stream_write(s, part, (size_t)n, ms) : 0;
		if (r <= 0)
			return done > 0 ? (ssize_t)done : r;
		done += (size_t)r;
	}
	return (ssize_t)done;
}

/* Here none can be used again. */
void edge_stream_reserve(edge_device *d) { (void)d; }
edge_conn *edge_stream_conn(const edge_stream *s) { return (void)s, NULL; } /* of new ones alone */
const char *edge_conn_node(const edge_conn *c) { return (void)c, ""; }
const char *edge_device_node(edge_device *d) { return (void)d, "node"; }
int edge_stream_rest(edge_stream *s, int begins) { return (void)s, (void)begins, EDGE_ERR_BUSY; }
int edge_stream_resting(edge_stream *s) { return (void)s, EDGE_ERR_AGAIN; }
int edge_stream_begin(edge_stream *s, const void *data, size_t size) {
	return (void)s, (void)data, (void)size, EDGE_ERR_AGAIN;
}
size_t edge_stream_opening(edge_stream *s, void *to) { return (void)s, (void)to, 0; }
int edge_stream_take(edge_stream *s) { return (void)s, EDGE_ERR_AGAIN; }

int edge_stream_shutdown(edge_stream *s) { return shutdown(s->e.fd, SHUT_WR); }
void edge_stream_reset(edge_stream *s) { (void)s; }
void edge_stream_close(edge_stream *s, int ms) {
	(void)ms;
	pthread_mutex_lock(&io);
	leave(&s->e);
	pthread_mutex_unlock(&io);
}
int edge_stream_events(edge_stream *s) {
	struct pollfd p = {.fd = s->e.fd, .events = POLLIN | POLLOUT | POLLRDHUP};
	poll(&p, 1, 0);
	return p.revents & (s->e.ready_at > now() ? ~POLLOUT : ~0);
}
int edge_stream_error(edge_stream *s) {
	int err = 0;
	getsockopt(s->e.fd, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err});
	return err ? EDGE_ERR_RESET : 0;
}
size_t edge_stream_readable(edge_stream *s) {
	int n = 0;
	ioctl(s->e.fd, FIONREAD, &n);
	return (size_t)n;
}
void edge_stream_bound(edge_stream *s, size_t bytes) { (void)s, (void)bytes; } /* the kernel's stay as they are */
size_t edge_stream_unsent(edge_stream *s) {
	int n = 0;
	ioctl(s->e.fd, TIOCOUTQ, &n);
	return (size_t)n;
}
