/* Descriptors: dups of sets and sockets, sets in sets, numbers that the library has itself, calls that go past the C
 * library's functions, and how many numbers are left to the program. It passes over TCP and over streams. */
#include "tcp.h"

#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

static int through_socket(int fd) {
	int pair[2], got = -1;
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof fd)]; } with = {.h = {0}};
	struct iovec v = {.iov_base = &(char){0}, .iov_len = 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
	with.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&with.h), &fd, sizeof fd);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && sendmsg(pair[0], &m, 0) == 1);
	CHECK(recvmsg(pair[1], &m, 0) == 1);
	memcpy(&got, CMSG_DATA(&with.h), sizeof got);
	CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
	return got;
}

static int by_dup(int fd) { return dup(fd); }
static int by_dup2(int fd) { return dup2(fd, 700); }
static int by_dup3(int fd) { return dup3(fd, 700, O_CLOEXEC); }
static int by_fcntl(int fd) { return fcntl(fd, F_DUPFD, 100); }
static int by_cloexec(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
static int by_syscall(int fd) { return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3); }
static int (*const ways[])(int) = {by_dup, by_dup2, by_dup3, by_fcntl, by_cloexec, by_syscall, through_socket};
enum { WAYS = sizeof ways / sizeof *ways };

static void drain(int fd) {
	char b[8];
	CHECK(recv(fd, b, sizeof b, 0) == 1);
}

static void tells(int set, int fd) {
	struct epoll_event got;
	CHECK(epoll_wait(set, &got, 1, 5000) == 1 && got.data.fd == fd);
}

static void add(int set, int fd, uint32_t events) {
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = events, .data.fd = fd}) == 0);
}

/* A set is the same by each of its descriptors, and as long as there is one. */
static void dups(void) {
	struct epoll_event got;
	for (int i = 0; i < 2 * WAYS; i++) {
		open_pair();
		int set = epoll_create1(0);
		if (i >= WAYS) /* one that the library has looked at already */
			CHECK(epoll_wait(set, &got, 1, 0) == 0);
		int other = ways[i % WAYS](set);
		CHECK(other >= 0);
		add(other, two, EPOLLIN);
		CHECK(write(one, "x", 1) == 1);
		tells(set, two);
		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &got) < 0 && errno == EEXIST);
		CHECK(close(set) == 0);
		tells(other, two);
		drain(two);
		CHECK(epoll_wait(other, &got, 1, 0) == 0);
		CHECK(write(one, "x", 1) == 1);
		tells(other, two);
		CHECK(epoll_ctl(other, EPOLL_CTL_DEL, two, NULL) == 0 && epoll_wait(other, &got, 1, 0) == 0);
		CHECK(close(other) == 0 && epoll_wait(other, &got, 1, 0) < 0 && errno == EBADF);
		close_pair();
	}
}

/* A socket that is in a set by a dup before it connects is there afterwards. */
static void dup_first(void) {
	int set = epoll_create1(0), other = dup(set);
	one = socket(AF_INET, SOCK_STREAM, 0);
	add(other, one, EPOLLIN);
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, one, &(struct epoll_event){.events = EPOLLIN, .data.fd = one}) == 0);
	CHECK(close(set) == 0 && connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK((two = accept(listener, NULL, NULL)) >= 0 && write(two, "x", 1) == 1);
	tells(other, one);
	CHECK(close(other) == 0 && streaming(one));
	close_pair();
}

/* In a child the dups are those of the parent. */
static void forked(void) {
	int set = epoll_create1(0), other = dup(set), status;
	open_pair();
	add(set, two, EPOLLIN);
	pid_t child = fork();
	if (child == 0) {
		int a, b;
		alarm(PATIENCE);
		close(listener);
		listen_anew(); /* the parent, which offers the old port, sleeps in waitpid and answers nobody */
		new_pair(&a, &b);
		add(other, b, EPOLLIN);
		CHECK(write(a, "x", 1) == 1);
		tells(set, b);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(write(one, "x", 1) == 1);
	tells(other, two);
	CHECK(close(set) == 0 && close(other) == 0);
	close_pair();
}

/* Dups that are made before a socket connects or listens. */
static void twins(void) {
	char b[8];
	struct sockaddr_in to = address;
	for (int i = 0; i < WAYS; i++) {
		one = socket(AF_INET, SOCK_STREAM, 0);
		int other = ways[i](one);
		CHECK(connect(i % 2 ? one : other, (struct sockaddr *)&address, sizeof address) == 0);
		CHECK((two = accept(listener, NULL, NULL)) >= 0);
		CHECK(write(two, "yz", 2) == 2 && write(other, "x", 1) == 1); /* the acceptor comes first: it would dial */
		drain(two);
		CHECK(recv(one, b, 1, 0) == 1 && close(one) == 0 && recv(other, b, 1, 0) == 1 && *b == 'z');
		CHECK(close(other) == 0 && close(two) == 0);
	}
	int first = socket(AF_INET, SOCK_STREAM, 0), second = dup(first);
	to.sin_port = 0;
	CHECK(bind(first, (struct sockaddr *)&to, sizeof to) == 0 && listen(first, 1) == 0);
	CHECK(getsockname(first, (struct sockaddr *)&to, &(socklen_t){sizeof to}) == 0);
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&to, sizeof to) == 0 && (two = accept(second, NULL, NULL)) >= 0);
	talk(two, one);
	talk(one, two);
	CHECK(close(first) == 0 && close(second) == 0);
	close_pair();
	one = socket(AF_INET, SOCK_STREAM, 0); /* one that the program moves */
	two = fcntl(one, F_DUPFD_CLOEXEC, 100);
	CHECK(close(one) == 0);
	one = two;
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	talk(two, one);
	talk(one, two);
	CHECK(streaming(one));
	close_pair();
}

/* --- sets in sets --- */

static int by_epoll(int set, int ms) {
	struct epoll_event got;
	int outer = epoll_create1(0);
	add(outer, set, EPOLLIN);
	int n = epoll_wait(outer, &got, 1, ms);
	CHECK(close(outer) == 0);
	return n;
}
static int by_two(int set, int ms) {
	struct epoll_event got;
	int outer = epoll_create1(0), outmost = epoll_create1(0);
	add(outer, set, EPOLLIN);
	add(outmost, outer, EPOLLIN);
	int n = epoll_wait(outmost, &got, 1, ms);
	CHECK(close(outmost) == 0 && close(outer) == 0);
	return n;
}
static int by_poll(int set, int ms) {
	struct pollfd p = {.fd = set, .events = POLLIN};
	return poll(&p, 1, ms);
}
static int by_select(int set, int ms) {
	fd_set s;
	FD_ZERO(&s);
	FD_SET(set, &s);
	return select(set + 1, &s, NULL, NULL, &(struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000});
}
static int (*const looks[])(int, int) = {by_epoll, by_two, by_poll, by_select};
static int set_in;

static void *wait_outside(void *look) {
	int (*how)(int, int);
	memcpy(&how, look, sizeof how);
	sleeper = gettid();
	CHECK(how(set_in, 10000) == 1);
	return NULL;
}

/* A set with something ready is readable, and one without is not. */
static void nested(void) {
	struct epoll_event got;
	for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
		pthread_t t;
		open_pair();
		set_in = epoll_create1(0);
		add(set_in, two, EPOLLIN);
		CHECK(looks[i](set_in, 0) == 0);
		CHECK(write(one, "x", 1) == 1 && looks[i](set_in, 5000) == 1 && looks[i](set_in, 5000) == 1);
		drain(two);
		CHECK(looks[i](set_in, 0) == 0);
		sleeper = 0;
		CHECK(pthread_create(&t, NULL, wait_outside, (void *)(uintptr_t)&looks[i]) == 0);
		while (!sleeper)
			sched_yield();
		asleep(sleeper);
		CHECK(write(one, "x", 1) == 1 && pthread_join(t, NULL) == 0);
		tells(set_in, two);
		CHECK(close(set_in) == 0);
		close_pair();
	}
	int outer = epoll_create1(0); /* each event is told of, also if what was before is still there */
	open_pair();
	set_in = epoll_create1(0);
	add(outer, set_in, EPOLLIN | EPOLLET);
	add(set_in, two, EPOLLIN);
	for (int i = 0; i < 3; i++) {
		CHECK(write(one, "x", 1) == 1);
		tells(outer, set_in);
		tells(set_in, two);
		drain(two);
		CHECK(epoll_wait(set_in, &got, 1, 0) == 0);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(write(one, "x", 1) == 1);
		tells(outer, set_in);
	}
	CHECK(close(set_in) == 0 && close(outer) == 0);
	close_pair();
}

/* --- the library's own numbers --- */

static int inherited[64], ninherited;

/* The numbers that are open and not inherited or in known, at most max. */
static int others(const int *known, int nknown, int *to, int max) {
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	for (struct dirent *e; (e = readdir(d));) {
		int fd = atoi(e->d_name);
		bool mine = *e->d_name == '.' || fd <= 2 || fd == dirfd(d);
		for (int i = 0; i < nknown; i++)
			mine |= fd == known[i];
		for (int i = 0; i < ninherited; i++)
			mine |= fd == inherited[i];
		if (!mine && n < max)
			to[n++] = fd;
	}
	closedir(d);
	return n;
}

static void *sleeps(void *fd) {
	char b;
	sleeper = gettid();
	CHECK(recv(*(int *)fd, &b, 1, 0) == 1);
	return NULL;
}

/* A thread sleeps in its own descriptors until it is written to. */
static void wake_thread(void) {
	pthread_t t;
	sleeper = 0;
	CHECK(pthread_create(&t, NULL, sleeps, &two) == 0);
	while (!sleeper)
		sched_yield();
	asleep(sleeper);
	CHECK(write(one, "x", 1) == 1 && pthread_join(t, NULL) == 0);
}

static void works(int set, int outer) {
	struct epoll_event got;
	talk(one, two);
	wake_thread();
	CHECK(write(one, "x", 1) == 1);
	tells(outer, set);
	tells(set, two);
	drain(two);
	CHECK(epoll_wait(set, &got, 1, 0) == 0);
	int a = one, b = two;
	open_pair();
	close_pair();
	one = a;
	two = b;
}

static int connect_early(void) {
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno == EINPROGRESS);
	return fd;
}

/* The library hears of it that TCP is connected. */
static void goes_on(int fd) {
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	CHECK(poll(&p, 1, 5000) == 1 && fcntl(fd, F_SETFL, 0) == 0);
	int other = accept(listener, NULL, NULL);
	talk(other, fd);
	talk(fd, other);
	CHECK(streaming(fd) && close(fd) == 0 && close(other) == 0);
}

/* What the program puts in the place of a number that it did not open is what it reads there. */
static void overwritten(void) {
	int own[64], set = epoll_create1(0), outer = epoll_create1(0), file = fileno(tmpfile());
	struct pollfd p = {.fd = two, .events = POLLIN};
	open_pair();
	add(set, two, EPOLLIN);
	add(outer, set, EPOLLIN);
	p.fd = two;
	works(set, outer);
	CHECK(poll(&p, 1, 0) == 0);
	const int known[] = {listener, one, two, set, outer, file};
	for (int round = 0; round < 2; round++) { /* also those that have moved */
		int n = others(known, 6, own, 64);
		CHECK(!preloaded || n >= 4);
		for (int i = 0; i < n; i++) {
			int early = connect_early();
			CHECK(own[i] >= 64 && dup2(file, own[i]) == own[i]);
			goes_on(early);
			works(set, outer);
		}
		for (int i = 0; i < n; i++)
			CHECK(fcntl(own[i], F_GETFD) == 0 && close(own[i]) == 0);
	}
	CHECK(lseek(file, 0, SEEK_END) == 0); /* nothing was written to it */
	CHECK(close(outer) == 0 && close(set) == 0 && close(file) == 0);
	close_pair();
}

/* Nor does the program close what it did not open. */
static void ranges(void) {
	int most = 0;
	open_pair();
	wake_thread();
	const int known[] = {listener, one, two};
	for (int i = 0; i < 3; i++)
		most = known[i] > most ? known[i] : most;
	for (int how = 0; how < 4; how++) {
		for (int fd = 3; how == 0 && fd < 1024; fd++)
			if (fd != listener && fd != one && fd != two)
				close(fd);
		if (how == 1)
			CHECK(close_range((unsigned)most + 1, ~0u, 0) == 0);
		if (how == 2)
			closefrom(most + 1);
		if (how == 3)
			CHECK(syscall(SYS_close_range, most + 1, ~0u, 0) == 0);
		talk(one, two);
		wake_thread();
		int a = one, b = two;
		open_pair();
		close_pair();
		one = a;
		two = b;
	}
	close_pair();
}

/* --- what goes past the C library's functions --- */

static void raw(void) {
	char b[8];
	struct epoll_event got;
	open_pair();
	int set = (int)syscall(SYS_epoll_create1, 0), other = (int)syscall(SYS_dup, set);
	got = (struct epoll_event){.events = EPOLLIN, .data.fd = two};
	CHECK(syscall(SYS_epoll_ctl, other, EPOLL_CTL_ADD, two, &got) == 0);
	CHECK(syscall(SYS_write, one, "xyz", 3) == 3 && syscall(SYS_epoll_pwait, set, &got, 1, 5000, NULL, 8) == 1);
	CHECK(syscall(SYS_read, two, b, 1) == 1 && syscall(SYS_recvfrom, two, b + 1, 7, 0, NULL, NULL) == 2);
	CHECK(memcmp(b, "xyz", 3) == 0 && syscall(SYS_close, set) == 0 && syscall(SYS_close, other) == 0);
	char p[120] = {0}; /* struct io_uring_params */
	int ring = (int)syscall(SYS_io_uring_setup, 4, p);
	CHECK(preloaded ? ring < 0 && errno == ENOSYS : ring >= 0 || errno == ENOSYS || errno == EPERM);
	CHECK(streaming(one) && (ring < 0 || close(ring) == 0));
	close_pair();
}

static void stays_with_tcp(void) {
	struct tcp_info i = {0};
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	talk(two, one); /* the acceptor comes first: it would dial */
	talk(one, two);
	CHECK(getsockopt(one, IPPROTO_TCP, TCP_INFO, &i, &(socklen_t){sizeof i}) == 0 && i.tcpi_bytes_sent == 5);
	close_pair();
}

/* A program that has a ring before its first connection, whoever made it. In a child, as all else would be TCP. */
static void ringed(void) {
	char p[120] = {0};
	int status;
	pid_t child = fork();
	if (child) {
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		close(listener); /* who forks before it waits for connections leaves the offer of the port to the child */
		listen_anew();
		return;
	}
	alarm(PATIENCE);
	long (*kernel)(long, ...);
	*(void **)&kernel = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "syscall");
	int ring = (int)kernel(SYS_io_uring_setup, 4, p);
	if (ring >= 0) /* else the kernel has none */
		stays_with_tcp();
	_exit(0);
}

/* A program that calls liburing. */
static void liburing(void) {
	int (*init)(unsigned, void *, unsigned) = NULL;
	*(void **)&init = dlsym(RTLD_DEFAULT, "io_uring_queue_init");
	CHECK(preloaded ? init && init(4, NULL, 0) == -ENOSYS : !init); /* there is no liburing behind it */
	stays_with_tcp();
}

/* --- how many are left --- */

enum { THREADS = 12, MIXED = 4, LIMIT = 64, LEFT = 20, ROUNDS = 20 };
static struct { int a, b; pid_t tid; _Atomic int got; } each[THREADS];
static int quiet_pipe[2];

/* One of MIXED waits for a descriptor of the kernel's as well. */
static void *answer(void *p) {
	int i = (int)(intptr_t)p;
	char c;
	each[i].tid = gettid();
	for (int n = 0; n <= ROUNDS; n++) {
		struct pollfd w[] = {{.fd = each[i].b, .events = POLLIN}, {.fd = quiet_pipe[0], .events = POLLIN}};
		each[i].got++;
		CHECK(i >= MIXED || (poll(w, 2, -1) == 1 && w[0].revents == POLLIN));
		CHECK(recv(each[i].b, &c, 1, 0) == 1 && send(each[i].b, &c, 1, 0) == 1);
	}
	return NULL;
}

static long switches(void) {
	long all = 0, n;
	char path[64], line[128];
	for (int i = 0; i < THREADS; i++) {
		snprintf(path, sizeof path, "/proc/self/task/%d/status", each[i].tid);
		FILE *f = fopen(path, "r");
		while (fgets(line, sizeof line, f))
			all += sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ? n : 0;
		fclose(f);
	}
	return all;
}

static void crowded(void) {
	pthread_t t[THREADS];
	int files[LIMIT], left = 0;
	char c;
	CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT}) == 0 && pipe(quiet_pipe) == 0);
	for (int i = 0; i < THREADS; i++) {
		new_pair(&each[i].a, &each[i].b);
		CHECK(pthread_create(&t[i], NULL, answer, (void *)(intptr_t)i) == 0);
	}
	for (int i = 0; i < THREADS; i++) {
		while (!each[i].got)
			sched_yield();
		asleep(each[i].tid);
	}
	long before = switches();
	poll(NULL, 0, 50); /* in which nothing happens: nobody wakes to look */
	CHECK(switches() - before < 25);
	while (left < LIMIT && (files[left] = open("/dev/null", O_RDONLY)) >= 0)
		left++;
	CHECK(left >= LEFT);
	for (int n = 0; n < ROUNDS; n++)
		for (int i = 0; i < THREADS; i++) { /* each by turns, all others sleep */
			CHECK(send(each[(i * 5 + n) % THREADS].a, "x", 1, 0) == 1);
			CHECK(recv(each[(i * 5 + n) % THREADS].a, &c, 1, 0) == 1);
		}
	for (int i = 0; i < THREADS; i++) /* while nobody else looks, and each that leaves leaves its descriptors */
		CHECK(send(each[i].a, "x", 1, 0) == 1 && pthread_join(t[i], NULL) == 0);
}

/* In a child, which has the library's descriptors anew. */
static void sleepers(void) {
	int status;
	pid_t child = fork();
	if (child == 0) {
		alarm(PATIENCE);
		close(listener);
		listen_anew(); /* as in forked */
		crowded();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
	const struct test tests[] = {
		{"ringed", ringed}, /* before the process connects */
		{"dups", dups}, {"first", dup_first}, {"forked", forked}, {"twins", twins}, {"nested", nested},
		{"overwritten", overwritten}, {"ranges", ranges}, {"raw", raw}, {"sleepers", sleepers},
		{"liburing", liburing}, /* leaves the process with TCP */
	};
	ninherited = others(NULL, 0, inherited, 64);
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
