/*
 * Taking over memory of the program's: its pages are copied to a memfd, which is mapped over them, so that the
 * daemon can map them as well. Another thread that writes to such a page in the middle of this would lose what it
 * wrote, and pages hold more than what the program registers. So the pages are read-only meanwhile, and a thread
 * that writes to one waits in a handler of SIGSEGV until it may. A system call that writes there meanwhile fails
 * with EFAULT, for as long as the copy takes; a program with one thread never sees any of this. Other faults, and
 * signals that were sent, go to the handlers of the program.
 *
 * All by the kernel's own calls: programs replace those of libc (UCX's hooks drop the fifth argument of mremap).
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "pages.h"

void (*pages_say)(const char *format, ...);

static _Atomic uintptr_t held_start, held_end; /* being copied; 0: nothing */
static _Atomic unsigned holds;                  /* so far */

/* The program's handlers: base was there before ours; the latest of those that came after ours may know ours as the one
 * before it. */
static struct sigaction base, later[2]; /* of later the nlater-th counts: another thread may read the one before */
static bool installed;                  /* ours was, once */
static _Atomic unsigned nlater;

/* What this thread tried again last, and when; passed: when it gave a fault to the latest handler. */
static __thread struct { uintptr_t at; unsigned holds, passed; } again __attribute__((tls_model("initial-exec")));

static void *map(void *at, size_t size, int flags, int fd, off_t off)
{
	return (void *)syscall(SYS_mmap, at, size, PROT_READ | PROT_WRITE, flags, fd, off);
}

static bool move(void *from, size_t size, uintptr_t to)
{
	return syscall(SYS_mremap, from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (long)to;
}

static bool is_held(uintptr_t at)
{
	uintptr_t start = atomic_load(&held_start);
	return start != 0 && at >= start && at < atomic_load(&held_end);
}

/* Calls the handler that was there before ours as the kernel would. */
static void call_base(int number, siginfo_t *info, const ucontext_t *context)
{
	struct sigaction to = base;
	sigset_t mask, had;
	sigemptyset(&had);
	memcpy(&had, &context->uc_sigmask, _NSIG / 8); /* the kernel's are no longer */
	sigorset(&mask, &had, &to.sa_mask);
	if (!(to.sa_flags & SA_NODEFER))
		sigaddset(&mask, number);
	if (to.sa_flags & (int)SA_RESETHAND)
		base.sa_handler = SIG_DFL;
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (to.sa_flags & SA_SIGINFO)
		to.sa_sigaction(number, info, (void *)context);
	else
		to.sa_handler(number);
}

/*
 * A signal that is the program's affair. A handler that came after ours takes the place of ours until memory is taken
 * over again, and the instruction faults again, or the signal is sent again. Where that handler comes back to ours, by
 * calling it or by restoring it, as Python's faulthandler does, the signal is for the handler before ours.
 */
static void pass_on(int number, siginfo_t *info, void *context)
{
	unsigned now = atomic_load(&holds), n = atomic_load(&nlater);
	bool sent = info->si_code <= 0;
	const struct sigaction *to = &base;
	if (n > 0 && again.passed != now) {
		while (atomic_load(&held_start) != 0)
			sched_yield(); /* others' writes need ours */
		n = atomic_load(&nlater);
		to = &later[n % 2];
		if (!sent || to->sa_handler != SIG_IGN)
			again.passed = now;
	} else if (base.sa_handler != SIG_DFL && base.sa_handler != SIG_IGN) {
		call_base(number, info, context);
		return;
	}
	if (sent && to->sa_handler == SIG_IGN)
		return;
	sigaction(number, to, NULL);
	if (sent)
		syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), number, info);
}

/* A write to a page that is being copied waits. One that cannot be written is tried again, once, since it may have been
 * such a page when the write failed. */
static void fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	unsigned now = atomic_load(&holds);
	int err = errno;
	if (info->si_code == SEGV_ACCERR && (is_held(at) || again.at != at || again.holds != now)) {
		again.at = at;
		again.holds = now;
		while (is_held(at))
			sched_yield();
	} else
		pass_on(number, info, context);
	errno = err;
}

static bool is_ours(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == fault;
}

static void note(const struct sigaction *other)
{
	unsigned n = atomic_load(&nlater);
	if (is_ours(other))
		return;
	if (!installed)
		base = *other;
	else if (n == 0 || memcmp(&later[n % 2], other, sizeof *other) != 0) {
		later[(n + 1) % 2] = *other;
		atomic_store(&nlater, n + 1);
	}
}

/* Has ours called: the program may have set another since. */
static bool install(void)
{
	struct sigaction on = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK }, old;
	memset(&old, 0, sizeof old); /* of the mask sigaction gives a part */
	sigfillset(&on.sa_mask);
	if (sigaction(SIGSEGV, NULL, &old) != 0)
		return false;
	if (is_ours(&old))
		return true;
	note(&old);
	if (sigaction(SIGSEGV, &on, &old) != 0)
		return false;
	if (installed)
		note(&old);
	installed = true;
	return true;
}

/* Copies pages to or from the memfd, by a call that no checker of memory replaces: the pages hold more than one
 * object. */
static bool copy(long call, int memfd, uintptr_t at, size_t size, off_t off)
{
	for (ssize_t n; size > 0; at += (size_t)n, off += n, size -= (size_t)n)
		if ((n = syscall(call, memfd, at, size, off)) <= 0)
			return false;
	return true;
}

/* Writers go on: the pages are writable again, or new ones lie in their place. The handler stays: a write may have
 * failed whose thread has not come to it yet. */
static void let_go(const sigset_t *had)
{
	atomic_store(&held_start, 0);
	pthread_sigmask(SIG_SETMASK, had, NULL);
}

/* Makes pages read-only while they are copied. This thread handles no signals meanwhile, whose handlers might write
 * there: it would wait for itself. But system calls that a sandbox emulates must go on to be. */
static bool hold(uintptr_t start, uintptr_t end, sigset_t *had)
{
	sigset_t most;
	sigfillset(&most);
	sigdelset(&most, SIGSYS);
	sigdelset(&most, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &most, had);
	atomic_fetch_add(&holds, 1);
	atomic_store(&held_end, end);
	atomic_store(&held_start, start);
	if (install() && syscall(SYS_mprotect, start, end - start, PROT_READ) == 0)
		return true;
	int err = errno;
	syscall(SYS_mprotect, start, end - start, PROT_READ | PROT_WRITE); /* of some it may have succeeded */
	let_go(had);
	errno = err;
	return false;
}

int adopt(uintptr_t start, uintptr_t end, ino_t *inode)
{
	size_t size = end - start;
	struct stat st;
	sigset_t had;
	int fd = memfd_create("edge-verbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p = fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fstat(fd, &st) == 0 ? map(NULL, size, MAP_SHARED, fd, 0) :
		MAP_FAILED;
	if (p == MAP_FAILED || !hold(start, end, &had)) {
		int err = errno;
		if (p != MAP_FAILED)
			syscall(SYS_munmap, p, size);
		if (fd >= 0)
			close(fd);
		errno = err;
		return -1;
	}
	bool moved = copy(SYS_pwrite64, fd, start, size, 0) && move(p, size, start);
	int err = errno;
	if (!moved)
		syscall(SYS_mprotect, start, size, PROT_READ | PROT_WRITE);
	let_go(&had); /* before close, where a thread may be cancelled */
	if (!moved) {
		syscall(SYS_munmap, p, size);
		close(fd);
	}
	*inode = st.st_ino;
	errno = err;
	return moved ? fd : -1;
}

struct disowning { int memfd; ino_t inode; uintptr_t start; }; /* start: of the memfd's first byte */

/* Puts private memory in the place of a part that is still mapped from the memfd: the program may have unmapped others,
 * and have something else there. */
static bool give_back(const struct mapping *m, void *arg)
{
	struct disowning *d = arg;
	if (m->inode != d->inode)
		return true;
	sigset_t had;
	size_t size = m->end - m->start;
	void *p = map(NULL, size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || !hold(m->start, m->end, &had)) {
		if (pages_say != NULL)
			pages_say("memory at %#lx stays shared: %s", (unsigned long)m->start, strerror(errno));
		if (p != MAP_FAILED)
			syscall(SYS_munmap, p, size);
		return true;
	}
	if (!copy(SYS_pread64, d->memfd, (uintptr_t)p, size, (off_t)(m->start - d->start)) || !move(p, size, m->start)) {
		syscall(SYS_mprotect, m->start, size, PROT_READ | PROT_WRITE);
		syscall(SYS_munmap, p, size);
	}
	let_go(&had);
	return true;
}

void disown(uintptr_t start, uintptr_t end, int memfd, ino_t inode)
{
	struct disowning d = { .memfd = memfd, .inode = inode, .start = start };
	maps_each(start, end, give_back, &d);
	close(memfd);
}
