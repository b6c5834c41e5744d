/* The library's descriptors (own.c) by themselves. Between the moment when a call knows the number of one and the call
 * of the kernel another thread puts a file onto that number, as a program does that knows nothing of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../own.h"
#include "../real.h"

enum { ROUNDS = 2000, LOW = 16, HIGH = 1024, TURNS = 20000 };

static const char *test = "start";

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL own, %s: line %d: %s (%s)\n", test, __LINE__, #x, strerror(errno)); \
			fflush(stdout); \
			_exit(1); \
		} \
	} while (0)

int own_eventfd(unsigned n, int flags);
int own_timerfd_create(int clock, int flags);
int own_timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old);
int own_socket(int domain, int type, int protocol);
int own_epoll_create1(int flags);
int own_fstat(int fd, struct stat *s);
int own_fcntl(int fd, int command, ...);
int own_connect(int fd, const struct sockaddr *to, socklen_t n);
ssize_t own_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t own_recvmsg(int fd, struct msghdr *m, int flags);
void *own_mmap(void *at, size_t n, int how, int flags, int fd, off_t from);

static int file;
static _Atomic int wanted; /* the number onto which the other thread puts the file; 0: none */
static _Atomic bool done;

/* As a program's dup2. */
static void *overwrites(void *nothing) {
	(void)nothing;
	while (!done) {
		int fd = wanted;
		if (fd > 0) {
			CHECK(own_dup(file, fd, -1) == fd);
			wanted = 0;
		}
		sched_yield();
	}
	return NULL;
}

/* The number is known now, and about to be used. It waits for the other thread, as long as that has not to wait. */
static __thread bool armed;
static void window(int fd) {
	if (!armed)
		return;
	armed = false;
	wanted = fd;
	for (int i = 0; i < TURNS && wanted; i++)
		sched_yield();
}

/* What own.c calls, with the window before it, or behind it where a number is made. */
static struct real kernels;
static int slow_close(int fd) { return window(fd), kernels.close(fd); }
static ssize_t slow_read(int fd, void *p, size_t n) { return window(fd), kernels.read(fd, p, n); }
static ssize_t slow_write(int fd, const void *p, size_t n) { return window(fd), kernels.write(fd, p, n); }
static ssize_t slow_sendmsg(int fd, const struct msghdr *m, int flags) {
	return window(fd), kernels.sendmsg(fd, m, flags);
}
static ssize_t slow_recvmsg(int fd, struct msghdr *m, int flags) { return window(fd), kernels.recvmsg(fd, m, flags); }
static int slow_connect(int fd, const struct sockaddr *a, socklen_t n) { return window(fd), kernels.connect(fd, a, n); }
static int slow_ctl(int set, int op, int fd, struct epoll_event *e) {
	return window(fd), kernels.epoll_ctl(set, op, fd, e);
}
static int slow_fcntl(int fd, int command, ...) {
	va_list va;
	va_start(va, command);
	void *arg = va_arg(va, void *);
	va_end(va);
	if (command != F_DUPFD_CLOEXEC)
		window(fd);
	int r = kernels.fcntl64(fd, command, arg);
	if (command == F_DUPFD_CLOEXEC)
		window(r);
	return r;
}
int fstat(int fd, struct stat *s) { return window(fd), fstatat(fd, "", s, AT_EMPTY_PATH); }
int timerfd_settime(int fd, int flags, const struct itimerspec *to, struct itimerspec *old) {
	return window(fd), (int)syscall(SYS_timerfd_settime, fd, flags, to, old);
}
void *mmap(void *at, size_t n, int how, int flags, int fd, off_t from) {
	if (fd >= 0)
		window(fd);
	return (void *)syscall(SYS_mmap, at, n, how, flags, fd, from);
}

static bool is_file(int fd) {
	struct stat s;
	return fstatat(fd, "", &s, AT_EMPTY_PATH) == 0 && S_ISREG(s.st_mode);
}

/* Each returns whether the call met what the handle stands for. */
static int event(void) { return own_eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
static int timer(void) { return own_timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); }
static int unix_socket(void) { return own_socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

static bool by_fstat(int h) {
	struct stat s;
	return own_fstat(h, &s) == 0 && !S_ISREG(s.st_mode);
}
static bool by_fcntl(int h) { return own_fcntl(h, F_GETFL) & O_NONBLOCK; }
static bool by_mmap(int h) { return own_mmap(NULL, 4096, PROT_READ, MAP_SHARED, h, 0) == MAP_FAILED; }
static bool by_connect(int h) {
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/nobody"};
	return own_connect(h, (struct sockaddr *)&a, sizeof a) < 0 && errno != ENOTSOCK;
}
static bool by_read(int h) { return own_read(h, &(uint64_t){0}, 8) < 0 && errno == EAGAIN; }
static bool by_write(int h) { return own_write(h, &(uint64_t){1}, 8) == 8 && lseek(file, 0, SEEK_CUR) == 0; }
static bool by_sendmsg(int h) { return own_sendmsg(h, &(struct msghdr){0}, MSG_NOSIGNAL) < 0 && errno != ENOTSOCK; }
static bool by_recvmsg(int h) { return own_recvmsg(h, &(struct msghdr){0}, 0) < 0 && errno != ENOTSOCK; }
static bool by_settime(int h) { return own_timerfd_settime(h, 0, &(struct itimerspec){0}, NULL) == 0; }
static bool by_ctl(int h) {
	int set = own_epoll_create1(EPOLL_CLOEXEC);
	armed = true;
	bool good = own_epoll_ctl(set, EPOLL_CTL_ADD, h, &(struct epoll_event){.events = EPOLLIN}) == 0;
	armed = false;
	return own_close(set) == 0 && good;
}
static bool by_close(int h) {
	int fd = own_number(h);
	bool good = own_close(h) == 0;
	while (wanted)
		sched_yield();
	return good && is_file(fd);
}

static const struct {
	const char *name;
	int (*make)(void);
	bool (*use)(int);
	bool ends;
} calls[] = {
	{"fstat", event, by_fstat, 0}, {"fcntl", event, by_fcntl, 0}, {"mmap", event, by_mmap, 0},
	{"connect", unix_socket, by_connect, 0}, {"read", event, by_read, 0}, {"write", event, by_write, 0},
	{"sendmsg", unix_socket, by_sendmsg, 0}, {"recvmsg", unix_socket, by_recvmsg, 0}, {"settime", timer, by_settime, 0},
	{"epoll_ctl", event, by_ctl, 0}, {"close", event, by_close, 1},
};

static void each(void) {
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		test = calls[i].name;
		int h = calls[i].make(), fd = own_number(h);
		CHECK(fd > 0);
		armed = calls[i].use != by_ctl;
		CHECK(calls[i].use(h));
		armed = false;
		while (wanted)
			sched_yield();
		CHECK(is_file(fd) && kernels.close(fd) == 0);
		if (!calls[i].ends)
			CHECK(!is_file(own_number(h)) && own_close(h) == 0);
	}
	test = "take"; /* a number is ours as soon as there is one */
	armed = true;
	int h = own_eventfd(0, EFD_CLOEXEC);
	while (wanted)
		sched_yield();
	CHECK(h >= 0 && !is_file(own_number(h)) && own_close(h) == 0);
}

/* close_range leaves what becomes ours between its look and the kernel's. */
static _Atomic int made; /* a handle; 0: not yet */
static void *takes(void *nothing) {
	(void)nothing;
	while (!wanted)
		sched_yield();
	made = event();
	wanted = 0;
	return NULL;
}
static int slow_range(unsigned first, unsigned last, int flags) {
	window(1);
	return kernels.close_range(first, last, flags);
}
static void ranges(void) {
	pthread_t t;
	test = "close_range";
	CHECK(pthread_create(&t, NULL, takes, NULL) == 0);
	real.close_range = slow_range;
	armed = true;
	CHECK(own_close_range((unsigned)own_floor(), ~0u, 0, true) == 0);
	real = kernels;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(made > 0 && own_write(made, &(uint64_t){1}, 8) == 8 && own_close(made) == 0);
}

/* Threads that wait for each other's calls sleep after a while: with a higher priority, and on the same core, they
 * would keep those that they wait for from running. */
static _Atomic int naps;
int nanosleep(const struct timespec *t, struct timespec *left) {
	naps++;
	return (int)syscall(SYS_nanosleep, t, left);
}
static void until_nap(void) {
	for (time_t end = time(NULL) + 20; naps == 0 && time(NULL) < end;)
		sched_yield();
}
static ssize_t long_read(int fd, void *p, size_t n) {
	wanted = fd;
	until_nap(); /* of the thread that overwrites the number */
	return kernels.read(fd, p, n);
}
static _Atomic bool amid;
static int long_dup2(int from, int to) {
	amid = true;
	until_nap(); /* of the thread that uses a number meanwhile */
	return kernels.dup2(from, to);
}
static void long_calls(void) {
	int h = event(), fd = own_number(h);
	test = "read that takes long";
	real.read = long_read;
	CHECK(by_read(h) && naps > 0);
	while (wanted)
		sched_yield();
	CHECK(real.close(fd) == 0);
	test = "dup2 that takes long";
	naps = 0;
	real.dup2 = long_dup2;
	wanted = fd = own_number(h);
	while (!amid)
		sched_yield();
	CHECK(own_write(h, &(uint64_t){1}, 8) == 8 && naps > 0);
	while (wanted)
		sched_yield();
	real = kernels;
	CHECK(is_file(fd) && real.close(fd) == 0 && own_close(h) == 0);
}

/* --- many, by chance --- */

static void *uses(void *nothing) {
	(void)nothing;
	while (!done) {
		int h = event();
		CHECK(h >= 0);
		for (int i = 0; i < 4; i++)
			CHECK(by_fstat(h) && by_fcntl(h) && by_mmap(h) && own_write(h, &(uint64_t){1}, 8) == 8);
		CHECK(own_close(h) == 0);
	}
	return NULL;
}

/* What the program puts onto numbers of ours it finds there, until it closes it. */
static int overwrite_all(void) {
	int n = 0;
	for (int fd = LOW; fd < HIGH; fd++) {
		if (!own_is(fd))
			continue;
		CHECK(own_dup(file, fd, -1) == fd);
		for (int i = 0; i < 50; i++)
			CHECK(is_file(fd));
		CHECK(real.close(fd) == 0);
		n++;
	}
	return n;
}

static void moved(int handle, int from) { (void)handle, (void)from; }

int main(void) {
	pthread_t t[2];
	int n = 0;
	real_load();
	own_on_move(moved);
	kernels = real;
	file = fileno(tmpfile());
	CHECK(ftruncate(file, 4096) == 0);
	CHECK(pthread_create(&t[0], NULL, overwrites, NULL) == 0);
	real.close = slow_close, real.read = slow_read, real.write = slow_write, real.sendmsg = slow_sendmsg;
	real.recvmsg = slow_recvmsg, real.connect = slow_connect, real.epoll_ctl = slow_ctl, real.fcntl64 = slow_fcntl;
	each();
	real = kernels;
	long_calls();
	done = true;
	CHECK(pthread_join(t[0], NULL) == 0);
	ranges();
	done = false;
	test = "many";
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, uses, NULL) == 0);
	while (n < ROUNDS)
		n += overwrite_all();
	done = true;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	printf("own: ok\n");
	return 0;
}
