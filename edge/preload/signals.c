/*
 * Handlers of signals. A thread in the library may have locks, which a handler that calls the library needs. So a
 * signal that comes there is put off until the thread leaves: soon, as nobody sleeps there. What the handler does is
 * then done outside: poll, close and exit work, and so does siglongjmp.
 *
 * The kernel is given one handler for all signals. Those of faults cannot wait, and those that are reset by their first
 * delivery would not come again: they remain the kernel's, and so does what a child of vfork sets, in the memory of its
 * parent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "sock.h"

enum { RESTART = 1, BREAK = 2 };

typedef void (*function)(int, siginfo_t *, void *);
static struct { _Atomic function run; _Atomic bool info; } handlers[_NSIG]; /* what the program set */

static __thread _Atomic uint64_t blocked; /* signals that came in the library, bit 0 is 1 */
static __thread _Atomic int seen;         /* what handlers that ran say to the call that they interrupted */

/* The signal is sent again, and comes when it is not blocked any more: here, and where the handler returns to. */
static void put_off(int n, siginfo_t *info, ucontext_t *context) {
	const uint64_t bit = UINT64_C(1) << (n - 1);
	int err = errno;
	real.syscall(SYS_rt_sigprocmask, SIG_BLOCK, &bit, NULL, sizeof bit);
	if (real.syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), n, info))
		real.syscall(SYS_tgkill, getpid(), gettid(), n);
	sigaddset(&context->uc_sigmask, n);
	atomic_fetch_or(&blocked, bit);
	errno = err;
}

static void handle(int n, siginfo_t *info, void *context) {
	if (within()) {
		put_off(n, info, context);
		return;
	}
	struct sigaction a = {0};
	struct sleeping *call = sleep_leave();
	real.sigaction(n, NULL, &a); /* siginterrupt changes its flags */
	atomic_load(&handlers[n].run)(n, info, context); /* who takes one argument leaves the others alone */
	if (call)
		sleep_return(call);
	atomic_fetch_or(&seen, a.sa_flags & SA_RESTART ? RESTART : BREAK);
}

bool signals_put_off(void) { return atomic_load_explicit(&blocked, memory_order_relaxed) != 0; }

/* The caller is outside of the library. */
void signals_let_in(void) {
	int err = errno; /* the handlers run before the call returns, and after it has failed */
	uint64_t set = atomic_exchange(&blocked, 0);
	real.syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, sizeof set);
	errno = err;
}

/* Another thread changes the identity of all, or did: the C library has a signal for that, with SA_RESTART. */
static _Atomic unsigned changing, changes;
static __thread unsigned known; /* of changes, when the call began */

#define IDENTITY(name, args, given) \
	EXPORT int name args { \
		real_need(); \
		if (borrowed()) \
			return real.name given; \
		changing++; \
		int r = real.name given; \
		changes++; \
		changing--; \
		return r; \
	}
IDENTITY(setuid, (uid_t a), (a))
IDENTITY(setgid, (gid_t a), (a))
IDENTITY(seteuid, (uid_t a), (a))
IDENTITY(setegid, (gid_t a), (a))
IDENTITY(setreuid, (uid_t a, uid_t b), (a, b))
IDENTITY(setregid, (gid_t a, gid_t b), (a, b))
IDENTITY(setresuid, (uid_t a, uid_t b, uid_t c), (a, b, c))
IDENTITY(setresgid, (gid_t a, gid_t b, gid_t c), (a, b, c))
IDENTITY(setgroups, (size_t n, const gid_t *a), (n, a))
IDENTITY(initgroups, (const char *a, gid_t b), (a, b))

void signals_begin(void) {
	atomic_store(&seen, 0);
	known = changes;
}

bool signals_seen(void) { return atomic_load(&seen) != 0; }

/* A call that waits for ever, and was interrupted, goes on. */
bool signals_restart(void) {
	int how = atomic_load(&seen);
	return how == RESTART || (how == 0 && (changing || changes != known));
}

/* Whether the program sets a handler that can wait. */
static bool waits(int n, const struct sigaction *a) {
	if (a->sa_handler == SIG_DFL || a->sa_handler == SIG_IGN || a->sa_flags & SA_RESETHAND || borrowed())
		return false;
	switch (n) {
	case SIGSEGV: case SIGBUS: case SIGFPE: case SIGILL: case SIGTRAP: case SIGSYS: case SIGABRT:
		return false;
	}
	return true;
}

EXPORT int sigaction(int n, const struct sigaction *set, struct sigaction *old) {
	real_need();
	if (!active || n <= 0 || n >= _NSIG)
		return real.sigaction(n, set, old);
	function was = atomic_load(&handlers[n].run);
	int info = atomic_load(&handlers[n].info) ? SA_SIGINFO : 0;
	struct sigaction a;
	if (set && waits(n, set)) {
		a = *set;
		if (a.sa_sigaction != handle) {
			atomic_store(&handlers[n].run, a.sa_sigaction);
			atomic_store(&handlers[n].info, a.sa_flags & SA_SIGINFO);
		}
		a.sa_sigaction = handle;
		a.sa_flags |= SA_SIGINFO;
		set = &a;
	}
	int r = real.sigaction(n, set, old);
	if (r == 0 && old && old->sa_sigaction == handle) {
		old->sa_sigaction = was;
		old->sa_flags = (old->sa_flags & ~SA_SIGINFO) | info;
	}
	return r;
}

EXPORT sighandler_t signal(int n, sighandler_t set) {
	real_need();
	if (!active || n <= 0 || n >= _NSIG)
		return real.signal(n, set);
	struct sigaction old, a;
	if (sigaction(n, NULL, &old) || real.signal(n, set) == SIG_ERR || real.sigaction(n, NULL, &a))
		return SIG_ERR;
	sigaction(n, &a, NULL); /* with the flags that siginterrupt asked for */
	return old.sa_handler;
}
