/*
 * What goes past the C library's functions: syscall(), whose calls are sent to the functions that stand here, and
 * io_uring, whose requests the library does not see. libuv takes io_uring for epoll_ctl if the kernel has it, by
 * syscall(): it is told that the kernel has none, and then calls epoll_ctl. A program that links liburing is left its
 * rings, and all its sockets stay with TCP; so is one that has a ring when it first listens or connects, whatever made
 * it. A ring that is made later by a system call of the program's own instructions is not noticed. Where streams are
 * required no program gets a ring.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "calls.h"

static _Atomic bool ringed;

bool rings(void) { return ringed; }

static void has_ring(void) {
	if (!active || borrowed() || atomic_exchange(&ringed, true))
		return;
	note("every connection from now on", "tcp: the program uses io_uring");
	lock();
	table_withdraw("tcp: the program uses io_uring");
	unlock();
}

static void look_at_all(void) {
	char name[64];
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; d && (e = readdir(d));) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, name, sizeof name);
		if (n == sizeof "anon_inode:[io_uring]" - 1 && memcmp(name, "anon_inode:[io_uring]", (size_t)n) == 0)
			has_ring();
	}
	if (d)
		closedir(d);
}

/* What the kernel takes a number for, by a request that asks a ring what it can do, and others nothing. */
enum asked { NOTHING, OTHER, RING_IS, UNKNOWN };
static enum asked ask(int fd) {
	const unsigned probe = 8; /* IORING_REGISTER_PROBE */
	if (real.syscall(SYS_io_uring_register, fd, probe, NULL, 0) >= 0)
		return RING_IS;
	switch (errno) {
	case EBADF: return NOTHING;
	case EOPNOTSUPP: return OTHER;
	case ENOSYS: case EPERM: return UNKNOWN;
	default: return RING_IS;
	}
}

/* The same for programs with few descriptors, where the kernel says how many there are (Linux 6.2): to read all links
 * in /proc takes as long as ten TCP connections. false: it must be read. */
static bool look_at_few(void) {
	enum { GAP = 64 };
	struct stat st;
	int ours = own_count(); /* before: one that another thread makes now counts as a program's, and is looked for */
	if (prctl(PR_GET_SECCOMP) != 0) /* a filter may end the program for a call that it does not know */
		return false;
	off_t left = stat("/proc/self/fd", &st) == 0 ? st.st_size - ours : 0;
	if (left <= 0)
		return false;
	for (int fd = 0, gap = 0; left > 0 && gap < GAP; fd++) {
		enum asked is = own_is(fd) ? NOTHING : ask(fd);
		if (is == UNKNOWN)
			return false;
		if (is == RING_IS)
			has_ring();
		gap = is == NOTHING ? gap + 1 : 0;
		left -= is != NOTHING;
	}
	return left <= 0;
}

void rings_look(void) {
	int err = errno;
	if (!ringed && !look_at_few())
		look_at_all();
	errno = err;
}

/* Streams are required: what a ring accepts or connects would go over TCP, and is not seen here. So the kernel refuses
 * the system calls of io_uring to this process and its children, whatever makes them. For that a user without
 * privileges has to do without those of set-uid files. */
void rings_forbid(void) {
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~0x40000000u), /* x32's calls */
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_io_uring_setup, 0, 2), /* the same number on all processors but Alpha */
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_io_uring_register, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof f / sizeof *f, .filter = f};
	const unsigned flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
	if (real.syscall(SYS_io_uring_setup, 0, NULL) < 0 && errno == ENOSYS)
		return; /* it is so already, as in a child */
	long r = real.syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (r < 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		r = real.syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (r == 0)
		return;
	complain("edge-run: EDGE_RUN_REQUIRE: io_uring cannot be kept from this program (seccomp: %s); run it without\n",
	        r > 0 ? "another thread has a filter of its own" : strerror(errno)); /* r: the thread */
	real._exit(126);
}

/* liburing's, which makes its system calls itself. ring is a struct of its own. */
#define RING(name, args, given) \
	EXPORT int name args { \
		int(*next) args; \
		if (required && active && !borrowed()) \
			return -ENOSYS; \
		*(void **)&next = dlsym(RTLD_NEXT, #name); \
		has_ring(); \
		return next ? next given : -ENOSYS; \
	}
RING(io_uring_queue_init, (unsigned n, void *ring, unsigned flags), (n, ring, flags))
RING(io_uring_queue_init_params, (unsigned n, void *ring, void *p), (n, ring, p))
RING(io_uring_queue_init_try_nosqarr, (unsigned n, void *ring, void *p), (n, ring, p))
RING(io_uring_queue_init_mem, (unsigned n, void *ring, void *p, void *at, size_t size), (n, ring, p, at, size))
RING(io_uring_setup, (unsigned n, void *p), (n, p))

struct masked { const sigset_t *mask; size_t size; };

/* The same by one of the functions that stand here. false: there is none. */
static bool descriptors(long n, const long *a, long *r) {
	const int fd = (int)a[0];
	switch (n) {
	case SYS_close: *r = close(fd); break;
	case SYS_close_range: *r = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]); break;
	case SYS_dup: *r = dup(fd); break;
	case SYS_dup3: *r = dup3(fd, (int)a[1], (int)a[2]); break;
	case SYS_fcntl: *r = fcntl(fd, (int)a[1], a[2]); break;
	case SYS_ioctl: *r = ioctl(fd, (unsigned long)a[1], (void *)a[2]); break;
	case SYS_socket: *r = socket(fd, (int)a[1], (int)a[2]); break;
	case SYS_connect: *r = connect(fd, (void *)a[1], (socklen_t)a[2]); break;
	case SYS_listen: *r = listen(fd, (int)a[1]); break;
	case SYS_accept: *r = accept4(fd, (void *)a[1], (void *)a[2], 0); break;
	case SYS_accept4: *r = accept4(fd, (void *)a[1], (void *)a[2], (int)a[3]); break;
	case SYS_shutdown: *r = shutdown(fd, (int)a[1]); break;
	case SYS_getsockopt: *r = getsockopt(fd, (int)a[1], (int)a[2], (void *)a[3], (void *)a[4]); break;
	case SYS_setsockopt: *r = setsockopt(fd, (int)a[1], (int)a[2], (void *)a[3], (socklen_t)a[4]); break;
	case SYS_epoll_create1: *r = epoll_create1(fd); break;
	case SYS_epoll_ctl: *r = epoll_ctl(fd, (int)a[1], (int)a[2], (void *)a[3]); break;
	case SYS_epoll_pwait: *r = epoll_pwait(fd, (void *)a[1], (int)a[2], (int)a[3], (void *)a[4]); break;
	case SYS_epoll_pwait2: *r = epoll_pwait2(fd, (void *)a[1], (int)a[2], (void *)a[3], (void *)a[4]); break;
	case SYS_ppoll: *r = ppoll((void *)a[0], (nfds_t)a[1], (void *)a[2], (void *)a[3]); break;
	case SYS_pselect6: {
		const struct masked *m = (void *)a[5];
		*r = pselect(fd, (void *)a[1], (void *)a[2], (void *)a[3], (void *)a[4], m ? m->mask : NULL);
		break;
	}
#ifdef SYS_dup2 /* not of new architectures */
	case SYS_dup2: *r = dup2(fd, (int)a[1]); break;
	case SYS_epoll_create: *r = epoll_create(fd); break;
	case SYS_epoll_wait: *r = epoll_wait(fd, (void *)a[1], (int)a[2], (int)a[3]); break;
	case SYS_poll: *r = poll((void *)a[0], (nfds_t)a[1], (int)a[2]); break;
	case SYS_select: *r = select(fd, (void *)a[1], (void *)a[2], (void *)a[3], (void *)a[4]); break;
#endif
	default: return false;
	}
	return true;
}

static bool bytes(long n, const long *a, long *r) {
	const int fd = (int)a[0];
	switch (n) {
	case SYS_read: *r = read(fd, (void *)a[1], (size_t)a[2]); break;
	case SYS_write: *r = write(fd, (void *)a[1], (size_t)a[2]); break;
	case SYS_readv: *r = readv(fd, (void *)a[1], (int)a[2]); break;
	case SYS_writev: *r = writev(fd, (void *)a[1], (int)a[2]); break;
	case SYS_sendto: *r = sendto(fd, (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t)a[5]); break;
	case SYS_recvfrom: *r = recvfrom(fd, (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (void *)a[5]); break;
	case SYS_sendmsg: *r = sendmsg(fd, (void *)a[1], (int)a[2]); break;
	case SYS_recvmsg: *r = recvmsg(fd, (void *)a[1], (int)a[2]); break;
	case SYS_sendmmsg: *r = sendmmsg(fd, (void *)a[1], (unsigned)a[2], (int)a[3]); break;
	case SYS_recvmmsg: *r = recvmmsg(fd, (void *)a[1], (unsigned)a[2], (int)a[3], (void *)a[4]); break;
	case SYS_sendfile: *r = sendfile(fd, (int)a[1], (void *)a[2], (size_t)a[3]); break;
	case SYS_splice: *r = splice(fd, (void *)a[1], (int)a[2], (void *)a[3], (size_t)a[4], (unsigned)a[5]); break;
	default: return false;
	}
	return true;
}

EXPORT long syscall(long n, ...) {
	long a[6], r;
	va_list va;
	real_need();
	va_start(va, n);
	for (int i = 0; i < 6; i++) /* as the C library's, it takes six of whatever there are */
		a[i] = va_arg(va, long);
	va_end(va);
	if (active && !within()) {
		if (n == SYS_io_uring_setup)
			return fail_with(ENOSYS);
		if (descriptors(n, a, &r) || bytes(n, a, &r))
			return r;
	}
	return real.syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}
