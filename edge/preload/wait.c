/* How a thread waits until something happens to a socket: it looks for a moment, giving way after each look, as libedge
 * says, and then sleeps. Threads that look wake those that sleep; when the last one leaves, the daemon is to ring.
 *
 * A thread that waits for streams alone sleeps on a word, by which the daemon wakes it and nobody else (direct.c). Of
 * the others one watches the hub: what rings there wakes it alone, and it wakes those whom that concerns. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "brief.h"
#include "sock.h"
#include "weak.h"

pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
edge_device *device;
int hub = -1;
const struct above *above;
int sleepers, lingerers, own_sleepers;
const char own;
bool woken;

static struct waiter *asleep, *watcher; /* watcher: of those asleep; NULL: none. By guard */
/* Who was woken by others last, and if it was twice in a row. Only compared: they may be gone. */
static struct waiter *latest, *favourite;
static __thread struct waiter mine = {.fd = -1, .set = -1};
static pthread_key_t key; /* keeps the wait set of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static __thread struct sleeping *sleeps; /* the latest call in which the thread sleeps */

void rest_count(void) {
	visit_count();
	for (struct sleeping *x = sleeps; x; x = x->outer)
		for (nfds_t i = 0; i < x->n; i++)
			if (x->socks[i])
				atomic_fetch_add(&x->socks[i]->refs, 1);
}

static _Atomic int queued;     /* threads that wait for guard */
static _Atomic uint32_t taken; /* times that one of them got it */

void lock(void) {
	enter();
	if (pthread_mutex_trylock(&guard)) {
		queued++;
		pthread_mutex_lock(&guard);
		queued--;
		taken++;
	}
	visit_stops();
}

/* Who is to be woken: when guard is free, since those woken want it. By guard. */
enum { PENDING = 8 };
static struct waiter *pending[PENDING];
static int npending;

/* Has the hub wake who sleeps in w, or not. false: it cannot. */
static bool turn(struct waiter *w, bool on) {
	if (w->watches == on)
		return true;
	struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.ptr = (void *)&own};
	int err = errno;
	int set = own_number(w->set), number = hub < 0 ? -1 : own_number(hub);
	bool ok = hub >= 0 && (w->hooked || real.epoll_ctl(set, EPOLL_CTL_ADD, number, &e) == 0 || errno == EEXIST) &&
	          real.epoll_ctl(set, EPOLL_CTL_MOD, number, &e) == 0;
	errno = err;
	if (!ok)
		return false;
	w->hooked = true;
	w->watches = on;
	return true;
}

/* Of those asleep w is to watch. */
static bool watch(struct waiter *w) {
	if (!turn(w, true))
		return false;
	if (watcher && watcher != w)
		turn(watcher, false);
	watcher = w;
	return true;
}

/* A thread is about to sleep in w, perhaps as one of several. w watches if nobody else does, or if whoever watches
 * wakes for its sake. */
static bool watched(struct waiter *w) {
	bool takes = !watcher || watcher == w || favourite == w;
	if (!takes)
		turn(w, false);
	return hub < 0 || w->set < 0 || (takes && watch(w)) || watcher;
}

/* If who watched has left, another one is to. One without a wait set wakes, and takes one. */
static void hand_on(void) {
	struct waiter *bare = NULL;
	if (watcher || lingerers > 0 || hub < 0)
		return;
	for (struct waiter *w = asleep; w && !watcher; w = w->next) {
		if (w->away == w->asleep || w->direct)
			continue;
		if (w->set < 0 && w->written)
			return; /* it is about to take one */
		if (w->set < 0)
			bare = w;
		else
			watch(w);
	}
	if (!watcher && bare && waitset_free())
		ring(bare);
}

/* How a waiter is woken, which may be gone by then if it sleeps on aim: that stays. */
struct call { sem_t *word; edge_word *aim; int fd; };

static struct call call_of(struct waiter *w) {
	return (struct call){.word = w->bell == BY_WORD ? &w->word : NULL, .aim = w->bell == BY_DAEMON ? w->aim : NULL,
		.fd = w->fd};
}

static void call(const struct call *c) {
	if (c->aim)
		edge_word_wake(c->aim);
	else if (c->word)
		sem_post(c->word);
	else
		own_write(c->fd, &(uint64_t){1}, 8);
}

/* As unlock, but that nothing is taken from the device: a handler may have little stack. */
static void unlock_here(void) {
	hand_on();
	struct call calls[PENDING];
	int n = npending;
	for (int i = 0; i < n; i++)
		calls[i] = call_of(pending[i]);
	npending = 0;
	pthread_mutex_unlock(&guard);
	for (int i = 0; i < n; i++) /* they wait for it in sleep_end */
		call(&calls[i]);
	leave();
}

void unlock(void) {
	hand_on();
	if (sleepers > 0 && lingerers == 0 && device && !edge_device_arm(device))
		above->progress(); /* this thread took what others sleep for (edge_device_quiet) */
	unlock_here();
}

/* Whether w is to be woken, and is not any more. */
static bool spared(struct waiter *w) {
	for (int i = 0; i < npending; i++)
		if (pending[i] == w) {
			pending[i] = pending[--npending];
			return true;
		}
	return false;
}

int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int64_t after(int64_t s, int64_t ns) {
	int64_t now = now_ns();
	return s >= (NEVER - now) / SECOND - 1 ? NEVER : now + s * SECOND + ns;
}

static __thread bool known; /* thread_ends is called for this thread */

static void thread_ends(void *p) {
	lock();
	waitset_keep(p);
	direct_keep(p);
	unlock();
	known = false; /* a destructor after this one may sleep here: then it is called again */
}

static void make_key(void) { pthread_key_create(&key, thread_ends); }

struct waiter *own_waiter(void) {
	if (known)
		return &mine;
	pthread_once(&once, make_key);
	pthread_setspecific(key, &mine);
	sem_init(&mine.word, 0, 0);
	known = true;
	return &mine;
}

void wait_after_fork(void) {
	queued = 0;
	sleepers = lingerers = own_sleepers = npending = 0;
	visits_after_fork();
	asleep = watcher = NULL;
	for (struct sleeping *x = sleeps; x; x = x->outer) { /* a handler forks, and may return to such a call */
		x->w->asleep = x->w->away = 0;
		x->w->lingers = x->away = false;
		for (nfds_t i = 0; i < x->n; i++)
			x->links[i].at = NULL;
	}
	mine.aim = NULL;
	mine.direct = mine.ours = false;
	mine.fd = mine.set = -1;
	mine.hooked = mine.watches = mine.written = false;
	sem_init(&mine.word, 0, 0);
	waitsets_after_fork(); /* the parent's */
	direct_after_fork();
}

void link_add(struct link *l, struct sock *s, struct waiter *w) {
	if (l->item)
		aim(s, NULL); /* several threads wait for a set */
	l->sock = s;
	l->waiter = w;
	l->next = s->links;
	l->at = &s->links;
	if (l->next)
		l->next->at = &l->next;
	s->links = l;
}

void link_remove(struct link *l) {
	if (!l->at)
		return;
	*l->at = l->next;
	if (l->next)
		l->next->at = l->at;
}

void wake(struct waiter *w) {
	if (!w->asleep || w->written)
		return;
	w->written = true;
	w->bell = w->direct ? BY_DAEMON : w->fd >= 0 ? BY_FD : w->mixed ? BY_CROWD : BY_WORD;
	favourite = latest == w ? w : NULL;
	latest = w;
	if (w->bell == BY_CROWD)
		crowd_call();
	else if (npending < PENDING)
		pending[npending++] = w;
	else
		call((struct call[]){call_of(w)});
}

void ring(struct waiter *w) {
	w->rung = true;
	wake(w);
}

void changed(struct sock *s) {
	for (struct link *l = s->links, *next; l; l = next) {
		next = l->next; /* an item may leave the list */
		struct waiter *w = l->waiter;
		if (l->item)
			above->item_changed(l->item);
		ring(w);
	}
}

bool linger(struct waiter *w) {
	if (!device || signals_put_off() || !edge_device_linger(device))
		return false;
	lingerers += !w->lingers;
	w->lingers = true;
	uint32_t before = taken;
	struct brief b = {0};
	unlock();
	sched_yield(); /* by edge_device_linger, which measures how long that takes */
	/* The mutex is not fair: a thread that polls would take it again before one that waits for it has woken. */
	while (queued > 0 && taken == before && brief_yield(&b))
		;
	lock();
	return true;
}

void linger_end(struct waiter *w) {
	if (!w->lingers)
		return;
	w->lingers = false;
	if (--lingerers == 0 && sleepers > 0)
		above->progress();
}

static void sleep_end(struct waiter *w);

bool sleep_begin(struct sleeping *x) {
	struct waiter *w = x->w;
	linger_end(w);
	if (w == &mine && (w->asleep == 0 || w->direct)) {
		if (w->direct) { /* a handler sleeps meanwhile, not on the word: the outer call looks again */
			spared(w);
			w->written = false;
			if (w->asleep > 0 && device)
				edge_word_rest(w->aim);
		}
		w->direct = direct_takes(x);
		if (!w->direct && w->set < 0)
			waitset_take(w);
	}
	if (w->asleep++ == 0) {
		w->next = asleep;
		w->at = &asleep;
		if (w->next)
			w->next->at = &w->next;
		asleep = w;
	}
	sleepers++;
	own_sleepers += w->ours;
	if (!w->rung && (w->direct || watched(w)) && (!device || lingerers > 0 || edge_device_arm(device)) &&
	    (!w->direct || edge_word_arm(device, w->aim)))
		return true;
	sleep_end(w);
	return false;
}

/* Takes what woke w. The thread that rings has just left guard, perhaps: w is in use until it has rung. */
static void answer(struct waiter *w) {
	uint64_t n;
	if (w->bell == BY_CROWD) {
		crowd_answer();
		return;
	}
	if (spared(w) || w->bell == BY_DAEMON)
		return;
	while ((w->bell == BY_WORD ? sem_wait(&w->word) : own_read(w->fd, &n, 8)) < 0 &&
	       (errno == EAGAIN || errno == EINTR))
		if (w->bell == BY_FD) /* by guard, so that the number stays */
			real.poll(&(struct pollfd){.fd = own_number(w->fd), .events = POLLIN}, 1, -1);
}

static void sleep_end(struct waiter *w) {
	if (w->asleep == 0)
		return; /* a child, in which nobody sleeps */
	if (w->written)
		answer(w);
	w->written = false;
	if (w->direct && device)
		edge_word_rest(w->aim);
	w->direct = false;
	if (--w->asleep == 0) {
		*w->at = w->next;
		if (w->next)
			w->next->at = w->at;
	}
	if (watcher == w && w->away == w->asleep)
		watcher = NULL;
	w->rung = false;
	sleepers--;
	own_sleepers -= w->ours;
}

/* A handler that interrupted the sleep is over. */
static void return_to(struct sleeping *x) {
	x->w->away -= x->away;
	x->away = false;
}

struct sleeping *sleep_leave(void) {
	struct sleeping *x = sleeps;
	int err = errno;
	if (!x || x->away)
		return NULL;
	x->cancels = x->w->direct ? PTHREAD_CANCEL_DEFERRED : -1; /* the handler is not cancelled in the midst of things, */
	if (x->cancels >= 0)
		real.pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &x->cancels); /* nor for ever if it jumps */
	lock();
	x->away = true;
	if (++x->w->away == x->w->asleep && watcher == x->w)
		watcher = NULL;
	unlock_here();
	errno = err;
	return x;
}

void sleep_return(struct sleeping *x) {
	int err = errno;
	lock();
	return_to(x);
	unlock_here();
	if (x->cancels >= 0)
		real.pthread_setcanceltype(x->cancels, NULL);
	errno = err;
}

/* One of those asleep looks at the device. */
static void ring_another(void) {
	struct waiter *w = asleep;
	while (w && w->away == w->asleep)
		w = w->next;
	if (w)
		ring(w);
}

/* A thread that is cancelled while it sleeps, or whose handler jumps out. It may have been woken in place of others. */
static void left(void *p) {
	struct sleeping *x = p;
	_pthread_cleanup_pop(&x->left, 0); /* once: another handler, which runs in here, may jump as well */
	if (!within()) /* as a handler is that is not put off */
		resume(x->inside);
	sleeps = x->outer;
	lock();
	return_to(x);
	sleep_end(x->w);
	for (nfds_t i = 0; i < x->n; i++)
		link_remove(&x->links[i]);
	linger_end(x->w);
	if (x->set)
		above->set_left(x->set);
	woken = true;
	ring_another();
	unlock_here();
	for (nfds_t i = 0; i < x->n; i++)
		if (x->socks[i])
			sock_put(x->socks[i]);
	free(x->memory);
	rest(); /* what the program does when it is cancelled is not within the library */
}

/* Unlocks. From now on a handler may run, and the thread may be cancelled. */
static void falls_asleep(struct sleeping *x) {
	unlock();
	x->inside = visits();
	x->outer = sleeps;
	sleeps = x;
	_pthread_cleanup_push(&x->left, left, x);
	rest();
}

static int awake(struct sleeping *x, int r) {
	int err = errno;
	resume(x->inside);
	_pthread_cleanup_pop(&x->left, 0);
	sleeps = x->outer;
	lock();
	sleep_end(x->w);
	errno = err;
	return r;
}

/* Sleeps without a descriptor, up to ns. It has an end, so that handlers with SA_RESTART end it, too. */
static int sleep_word(struct waiter *w, int64_t ns) {
	const int64_t now = now_ns(), most = INT64_C(86400) * SECOND, until = now + (ns < most ? ns : most);
	int r = sem_clockwait(&w->word, CLOCK_MONOTONIC,
	                      &(struct timespec){.tv_sec = until / SECOND, .tv_nsec = until % SECOND});
	if (r == 0)
		sem_post(&w->word); /* for sleep_end */
	return r && errno == ETIMEDOUT ? 0 : r;
}

/* Sleeps until the daemon or another thread wakes it, up to ns. It is cancelled there, as in the C library's calls. */
static int sleep_direct(struct sleeping *x, int64_t ns) {
	const int64_t now = now_ns(), most = INT64_C(86400) * SECOND, until = now + (ns < most ? ns : most);
	edge_word *word = x->w->aim;
	int type, err = EINTR;
	falls_asleep(x);
	if (!signals_seen()) {
		real.pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
		err = edge_word_sleep(word, until);
		real.pthread_setcanceltype(type, NULL);
	}
	return awake(x, err == EINTR ? fail_with(EINTR) : 0);
}

/* The last of p is for what wakes the waiter. */
int sleep_poll(struct sleeping *x, struct pollfd *p, nfds_t n, int64_t ns, const sigset_t *mask) {
	if (x->w->direct)
		return sleep_direct(x, ns);
	bool unwatched = hub >= 0 && !watcher && lingerers == 0; /* those with wait sets are all in handlers */
	bool blind = x->w->set < 0 && (unwatched || (x->w->mixed && crowd < 0));
	/* Not one of the waits of idle.c, which end when something rings: nothing can ring for this thread. */
	const int64_t most = blind && ns > MILLI ? MILLI : ns;
	const struct timespec t = {.tv_sec = most / SECOND, .tv_nsec = most % SECOND}, *end = most == NEVER ? NULL : &t;
	bool word = x->w->set < 0 && !x->w->mixed;
	int bell = x->w->set >= 0 ? x->w->set : crowd;
	p[n - 1] = (struct pollfd){.fd = bell < 0 ? -1 : own_number(bell), .events = POLLIN};
	falls_asleep(x);
	int r = signals_seen() ? fail_with(EINTR) : word ? sleep_word(x->w, most) : real.ppoll(p, n, end, mask);
	r = awake(x, r);
	woken |= r > 0 && x->w->watches && p[n - 1].revents != 0;
	return r;
}

int sleep_epoll(struct sleeping *x, int epfd, struct epoll_event *out, int max, int64_t ns, const sigset_t *mask) {
	int64_t ms = ns == NEVER ? -1 : (ns + MILLI - 1) / MILLI;
	falls_asleep(x);
	return awake(x, signals_seen() ? fail_with(EINTR)
	                               : real.epoll_pwait(epfd, out, max, ms > INT32_MAX ? INT32_MAX : (int)ms, mask));
}

/* Another thread may sleep for what our call took from the device. */
void look_after(void) {
	if (sleepers == 0 || lingerers > 0 || !device)
		return;
	int err = errno;
	if (!edge_device_arm(device)) {
		lock();
		unlock();
	}
	errno = err;
}
