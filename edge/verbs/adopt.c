/*
 * Taking over memory of the program's: its pages are copied to a memfd, which is mapped over them, so that the
 * daemon can map them as well. Another thread that writes to such a page in the middle of this would lose what it
 * wrote, and pages hold more than what the program registers. So the pages are read-only meanwhile, and a thread
 * that writes to one waits in a handler of SIGSEGV until it may. A system call that writes there meanwhile fails
 * with EFAULT, for as long as the copy takes; a program with one thread never sees any of this.
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
#include <unistd.h>

#include "pages.h"

void (*pages_say)(const char *format, ...);

static _Atomic uintptr_t held_start, held_end; /* being copied; 0: nothing */
static _Atomic unsigned holds;                  /* so far */
static struct sigaction before;

/* What this thread tried again last, and when. */
static __thread struct { uintptr_t at; unsigned holds; } again __attribute__((tls_model("initial-exec")));

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

/* A write to a page that is being copied waits. One that cannot be written is tried again, once, since it may have been
 * such a page when the write failed; anything else is the program's affair. */
static void fault(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	unsigned now = atomic_load(&holds);
	if (info->si_code == SEGV_ACCERR && (is_held(at) || again.at != at || again.holds != now)) {
		again.at = at;
		again.holds = now;
		while (is_held(at))
			sched_yield();
		return;
	}
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	} else {
		signal(SIGSEGV, SIG_DFL); /* the same instruction faults again */
	}
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

/* Makes pages read-only while they are copied. */
static bool hold(uintptr_t start, uintptr_t end)
{
	struct sigaction on = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK }, old;
	sigfillset(&on.sa_mask);
	atomic_fetch_add(&holds, 1);
	atomic_store(&held_end, end);
	atomic_store(&held_start, start);
	if (sigaction(SIGSEGV, NULL, &old) == 0) {
		if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != fault)
			before = old;
		if (sigaction(SIGSEGV, &on, NULL) == 0 && syscall(SYS_mprotect, start, end - start, PROT_READ) == 0)
			return true;
	}
	atomic_store(&held_start, 0);
	return false;
}

/* Writers go on: the pages are writable again, or new ones lie in their place. The handler stays: a write may have
 * failed whose thread has not come to it yet. */
static void let_go(void)
{
	atomic_store(&held_start, 0);
}

int adopt(uintptr_t start, uintptr_t end, ino_t *inode)
{
	size_t size = end - start;
	struct stat st;
	int fd = memfd_create("edge-verbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *p = fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fstat(fd, &st) == 0 ? map(NULL, size, MAP_SHARED, fd, 0) :
		MAP_FAILED;
	if (p == MAP_FAILED || !hold(start, end)) {
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
	if (!moved) {
		syscall(SYS_mprotect, start, size, PROT_READ | PROT_WRITE);
		syscall(SYS_munmap, p, size);
		close(fd);
	}
	let_go();
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
	size_t size = m->end - m->start;
	void *p = map(NULL, size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || !hold(m->start, m->end)) {
		if (pages_say != NULL)
			pages_say("memory at %#lx stays shared: %s", (unsigned long)m->start, strerror(errno));
		return true;
	}
	if (!copy(SYS_pread64, d->memfd, (uintptr_t)p, size, (off_t)(m->start - d->start)) || !move(p, size, m->start)) {
		syscall(SYS_mprotect, m->start, size, PROT_READ | PROT_WRITE);
		syscall(SYS_munmap, p, size);
	}
	let_go();
	return true;
}

void disown(uintptr_t start, uintptr_t end, int memfd, ino_t inode)
{
	struct disowning d = { .memfd = memfd, .inode = inode, .start = start };
	maps_each(start, end, give_back, &d);
	close(memfd);
}
