/* The attachment to the daemon, and the thread that attends to it while the program does something else: a queue pair
 * may be dialled, or its memory written, for which the program calls nothing. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib.h"

enum { TAKE = 64, LOOK_MS = 5, REST_MS = 1000, OPEN_MS = 3000, DEPTH = 4096 };
enum { NAP_US = 50, LONG_NAP_US = 400, MANY_SENDS = 8 }; /* give_way */

/* Programs of NICs poll. Where a switch takes 5 us an answer of 8 bytes needs some 35 us, and a loop that polls for 20
 * us as others do (2/5 of 50) slept for each: half a round trip took 50 us instead of 22. */
enum { SPIN_US = 150 };
enum { QUICK = 16, QUICK_NS = 2000, ALONE_NS = 20000 };

struct lib lib = { .mu = PTHREAD_MUTEX_INITIALIZER };
void (*lib_lost)(void), (*lib_forking)(void), (*lib_forked)(void), (*lib_retry)(void);
static bool watching; /* a thread sleeps in the device's descriptor, or is about to */
static bool helping;  /* the thread runs */
static int kick = -1; /* wakes it */
static __thread const sigset_t *signals; /* that are blocked while this thread waits; NULL: as they are otherwise */
static __thread int64_t alone_until; /* ns: nobody else wants the core that this thread polls on */

static __thread struct { int depth, state; } cancels; /* state: as it was when the outermost call turned it off */

void cancel_off(void)
{
	if (cancels.depth++ == 0)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels.state);
}

void cancel_on(void)
{
	if (--cancels.depth == 0)
		pthread_setcancelstate(cancels.state, NULL);
}

void lock(void)
{
	cancel_off();
	pthread_mutex_lock(&lib.mu);
}

void unlock(void)
{
	pthread_mutex_unlock(&lib.mu);
	cancel_on();
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int64_t now_ms(void)
{
	return now_ns() / 1000000;
}

void say(const char *format, ...)
{
	static const char *to;
	if (to == NULL && (to = secure_getenv("EDGE_VERBS_LOG")) == NULL)
		to = "";
	if (*to == 0)
		return;
	char line[512];
	int n = snprintf(line, sizeof line, "edge-verbs[%d]: ", (int)getpid());
	va_list va;
	va_start(va, format);
	vsnprintf(line + n, sizeof line - (size_t)n - 1, format, va);
	va_end(va);
	strcat(line, "\n");
	int fd = strcmp(to, "-") == 0 ? 2 : open(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && write(fd, line, strlen(line)) < 0)
		to = "";
	if (fd > 2)
		close(fd);
}

/* In the child everything of the parent is gone; it may attach by itself. */
static void forked(void)
{
	if (lib_forked != NULL)
		lib_forked();
	pthread_mutex_init(&lib.mu, NULL);
	lib.dev = NULL;
	lib.opened = lib.armed = lib.sends = 0;
	lib.lost = lib.starved = false;
	lib.watchers = NULL;
	watching = helping = false;
	kick = -1;
	cancel_on(); /* fork_begins turned it off */
}

static void fork_begins(void)
{
	lock();
	if (lib_forking != NULL)
		lib_forking();
}

int lib_open(void)
{
	if (lib.dev != NULL)
		return 0;
	edge_config c = { .size = sizeof c, .name = program_invocation_short_name, .queue_depth = DEPTH,
		.resume = 1, .spin_us = SPIN_US };
	int err = edge_open(&lib.dev, &c, OPEN_MS);
	if (err != 0) {
		say("no device: %s", edge_message(err));
		return err;
	}
	static bool once;
	if (!once)
		pthread_atfork(fork_begins, unlock, forked);
	once = true;
	read_identity(edge_device_node(lib.dev), lib.node);
	const uint64_t need = EDGE_FEATURE_DOMAINS | EDGE_FEATURE_MEMORY;
	if ((edge_device_features(lib.dev) & need) != need) {
		say("no device: the daemon is older and knows no domains; upgrade it");
		edge_device_close(lib.dev, 0);
		lib.dev = NULL;
		return EDGE_ERR_VERSION;
	}
	names_load();
	return 0;
}

void progress(void)
{
	edge_completion c[TAKE];
	int n = TAKE;
	if (lib.dev == NULL)
		return;
	bool any = false;
	for (int round = 0; n == TAKE && round < 8; round++) {
		n = edge_completions(lib.dev, c, TAKE);
		any |= n > 0;
		for (int i = 0; i < n; i++)
			((struct work *)c[i].context)->done(c[i].context, &c[i]);
	}
	if (any && lib.starved) {
		lib.starved = false;
		lib_retry();
	}
	if (!lib.lost && edge_device_error(lib.dev) != 0) {
		lib.lost = true;
		say("the daemon has gone");
		if (lib_lost != NULL)
			lib_lost();
	}
}

static bool steps(void)
{
	bool awaits = false;
	for (struct watcher *w = lib.watchers; w != NULL; w = w->next)
		awaits |= w->step();
	return awaits;
}

void step(void)
{
	if (steps())
		wake_thread();
}

void wait_signals(const sigset_t *blocked)
{
	static __thread sigset_t kept; /* a thread that is cancelled in between leaves it */
	signals = NULL;
	if (blocked != NULL) {
		kept = *blocked;
		signals = &kept;
	}
}

/* A thread that was cancelled while it slept in the device's descriptor. */
static void leaves(void *leads)
{
	lock();
	watching &= leads == NULL;
	unlock();
}

/* poll; true: until a signal came. In calls that signals interrupt a thread may be cancelled as well. */
static bool wait_on(struct pollfd *p, nfds_t n, int ms, bool leads)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
	bool cut;
	pthread_cleanup_push(leaves, leads ? &watching : NULL);
	if (signals != NULL)
		pthread_setcancelstate(cancels.state, NULL);
	cut = ppoll(p, n, ms < 0 ? NULL : &t, signals) < 0 && errno == EINTR;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return cut;
}

/* Waits as the only one who sleeps in the device's descriptor. */
static bool lead(int fd, int ms)
{
	bool cut = false;
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = edge_device_fd(lib.dev), .events = POLLIN } };
	if (edge_device_poll(lib.dev) > 0)
		ms = 0; /* the caller is to look at it before anybody sleeps */
	else if (edge_device_linger(lib.dev)) {
		sched_yield();
		ms = 0;
	} else if (!edge_device_arm(lib.dev))
		ms = 0;
	if (ms != 0)
		cut = wait_on(p, 2, ms, true);
	else if (signals != NULL)
		cut = wait_on(NULL, 0, 0, true); /* signals end the call also while there is always something */
	lock();
	watching = false;
	edge_device_poll(lib.dev);
	progress();
	steps();
	unlock();
	return cut;
}

bool wait_for(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	cancel_off();
	lock();
	bool leads = !watching;
	watching = true;
	unlock();
	bool cut = leads ? lead(fd, ms) : wait_on(&p, 1, ms < LOOK_MS && ms >= 0 ? ms : LOOK_MS, false);
	cancel_on();
	return cut;
}

/* After QUICK yields in a row that found nobody else on the core a program polls on without calls for ALONE_NS, and so
 * on: with a core of its own it makes one call in so long. */
static void yield(void)
{
	static __thread unsigned quick;
	int64_t before = now_ns();
	sched_yield();
	int64_t after = now_ns();
	quick = after - before < QUICK_NS ? quick + 1 : 0;
	if (quick >= QUICK)
		alone_until = after + ALONE_NS;
}

bool alone(void)
{
	return alone_until != 0 && now_ns() < alone_until;
}

/* As libedge's own waits do (edge_device_linger): it polls for a moment, and then sleeps until something happens. A
 * thread that yields again and again instead is put behind all others of its core for a whole slice each time: with the
 * daemon on the same core a message took 0.6 ms so. It sleeps for NAP_US at most, since the program may poll for other
 * things as well, longer while many sends end: the daemon wakes it for several of them (ABI A8.8). */
void give_way(void)
{
	cancel_off();
	lock();
	bool leads = !watching && lib.dev != NULL;
	watching |= leads;
	static unsigned ended; /* sends, at the latest nap */
	unsigned end = lib.ended;
	struct timespec nap = { .tv_nsec = (lib.sends >= MANY_SENDS && end != ended ? LONG_NAP_US : NAP_US) * 1000 };
	unlock();
	if (!leads) {
		yield();
		cancel_on();
		return;
	}
	struct pollfd p = { .fd = edge_device_fd(lib.dev), .events = POLLIN };
	bool was_alone = alone_until != 0, naps = false;
	alone_until = 0;
	if (edge_device_poll(lib.dev) > 0)
		;
	else if (was_alone || edge_device_linger(lib.dev))
		yield();
	else if ((naps = edge_device_arm(lib.dev))) {
		ppoll(&p, 1, &nap, NULL);
		edge_device_poll(lib.dev); /* nobody sleeps there now: who took completions would wake us */
	}
	lock();
	ended = naps ? end : ended;
	watching = false;
	progress();
	unlock();
	cancel_on();
}

/* The thread. While the program takes completions itself it looks now and then; else it sleeps until there is
 * something, which costs the daemon a call for each. */
static void *help(void *arg)
{
	(void)arg;
	unsigned seen = 0;
	for (;;) {
		lock();
		bool busy = lib.polls != seen && lib.armed == 0;
		if (!busy)
			progress();
		bool awaits = steps();
		seen = lib.polls;
		uint64_t n;
		if (read(kick, &n, sizeof n) < 0 && errno != EAGAIN)
			say("the thread cannot be woken: %s", strerror(errno));
		unlock();
		if (busy) {
			struct pollfd p = { .fd = kick, .events = POLLIN };
			poll(&p, 1, LOOK_MS);
		} else
			wait_for(kick, awaits ? LOOK_MS : REST_MS);
	}
	return NULL;
}

void wake_thread(void)
{
	uint64_t one = 1;
	if (kick >= 0 && write(kick, &one, sizeof one) < 0 && errno != EAGAIN)
		say("the thread cannot be woken: %s", strerror(errno));
}

void watch(struct watcher *w)
{
	w->next = lib.watchers;
	lib.watchers = w;
	if (helping)
		return;
	pthread_t t;
	pthread_attr_t a;
	kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	sigset_t mine, before; /* signals are the program's threads', which some are to interrupt */
	sigfillset(&mine);
	sigdelset(&mine, SIGSEGV); /* adopt.c; and what the others say is an error of the thread's own */
	sigdelset(&mine, SIGBUS);
	sigdelset(&mine, SIGILL);
	sigdelset(&mine, SIGFPE);
	pthread_sigmask(SIG_SETMASK, &mine, &before);
	helping = kick >= 0 && pthread_create(&t, &a, help, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&a);
	if (!helping)
		say("no thread: %s", strerror(errno));
}
