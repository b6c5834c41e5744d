/* When a thread is in the library: it is not cancelled there, whatever its type of cancellation, signals are put off,
 * and the end of the process waits for it. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "brief.h"
#include "sock.h"
#include "weak.h"

static _Atomic bool over;
static __thread bool ends;
static _Atomic int visitors; /* threads in the library */
static __thread int inside, cancels;
/* The thread may be cancelled asynchronously, or could be once: a request that began then may be on its way still. */
static __thread bool asynchronous, blocked;

/* Somebody has asked for a cancellation. Until then none can be on its way, and threads that are cancelled
 * asynchronously make no system calls on their visits: redis's main thread is such a one, and nobody cancels it. */
static _Atomic bool requested;
static _Atomic int entering; /* asynchronous threads that saw no request, and have not disabled cancellation yet */

/* The C library's handler looks at the type of cancellation, not at its state: a request that was on its way when the
 * thread disabled cancellation ends it nevertheless. So its signal is blocked, which sigprocmask would not do. */
static void cancel_signal(int how) {
	const uint64_t set = UINT64_C(1) << (__SIGRTMIN - 1);
	real.syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof set);
}

EXPORT int pthread_setcanceltype(int type, int *old) {
	real_need();
	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		asynchronous = true;
	return real.pthread_setcanceltype(type, old);
}

/* The first request waits for threads that did not expect one: they disable cancellation in a few lines. One whose
 * signal handler jumped out of these is not waited for long. */
EXPORT int pthread_cancel(pthread_t t) {
	real_need();
	atomic_store(&requested, true);
	struct brief b = {0};
	int old; /* this call is no cancellation point, but brief_wait may have one */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	for (int64_t until = now_ns() + SECOND; entering > 0 && now_ns() < until;)
		brief_wait(&b);
	atomic_store(&entering, 0); /* who has jumped out of there does not come back */
	int err = real.pthread_cancel(t);
	pthread_setcancelstate(old, NULL);
	return err;
}

/* Whether the thread, which is about to disable cancellation, need not block the signal for that. */
static bool unasked(void) {
	if (requested)
		return false; /* who cancels waits for none that does not need it */
	atomic_fetch_add(&entering, 1);
	if (!requested)
		return true;
	atomic_fetch_sub(&entering, 1);
	return false;
}

/* The process ends, and what this thread needs is gone. */
_Noreturn static void stop(void) {
	atomic_fetch_sub(&visitors, 1);
	for (;;)
		pause();
}

/* A handler of a signal that comes between two lines of these may enter and leave, or jump, too: what counts a visitor,
 * and disables cancellation, stands where signals are put off. */
static void hold(int n) {
	bool quick = asynchronous && unasked(), block = asynchronous && !quick;
	if (block)
		cancel_signal(SIG_BLOCK);
	inside = n;
	atomic_signal_fence(memory_order_seq_cst);
	blocked = block;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
	atomic_fetch_add(&visitors, 1);
	if (quick)
		atomic_fetch_sub(&entering, 1);
	if (over && !ends)
		stop();
}

static void release(void) {
	int old = cancels;
	bool may_end = asynchronous; /* as soon as that is enabled: it must have left */
	bool unblock = blocked;
	if (!may_end)
		pthread_setcancelstate(old, NULL);
	atomic_fetch_sub(&visitors, 1);
	atomic_signal_fence(memory_order_seq_cst);
	inside = 0;
	if (may_end) {
		pthread_setcancelstate(old, NULL);
		if (unblock)
			cancel_signal(SIG_UNBLOCK);
	}
	if (signals_put_off())
		signals_let_in();
}

void enter(void) {
	if (inside > 0)
		inside++;
	else
		hold(1);
}

void leave(void) {
	if (inside > 1)
		inside--;
	else
		release();
}

bool within(void) { return inside > 0; }

int visits(void) { return inside; }

int rest(void) {
	int n = inside;
	if (n > 0)
		release();
	return n;
}

void resume(int n) {
	if (n > 0)
		hold(n);
}

static __thread struct resting *rests;

void rest_begin(struct resting *x, void (*run)(void *)) {
	x->outer = rests;
	rests = x;
	_pthread_cleanup_push(&x->left, run, x);
	x->inside = rest();
}

void rest_end(struct resting *x) {
	resume(x->inside);
	_pthread_cleanup_pop(&x->left, 0);
	rests = x->outer;
}

void rest_left(struct resting *x) {
	_pthread_cleanup_pop(&x->left, 0); /* once: another handler, which runs in here, may jump as well */
	if (!within()) /* as a handler is that is not put off */
		resume(x->inside);
	rests = x->outer;
}

bool rest_known(void) { return inside <= 1; } /* by whoever forks */

void visit_count(void) {
	for (struct resting *x = rests; x; x = x->outer)
		atomic_fetch_add(&x->s->refs, 1);
}

void visits_after_fork(void) { /* other threads are not here */
	visitors = within();
	entering = 0;
}

void visit_stops(void) {
	if (!over || ends)
		return;
	pthread_mutex_unlock(&guard);
	stop();
}

void end_others(void) {
	lock();
	over = ends = true;
	unlock();
	struct brief b = {0};
	for (int64_t until = now_ns() + SECOND; visitors > 0 && now_ns() < until;)
		brief_wait(&b);
}
