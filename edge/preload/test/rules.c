/* What calls promise beside their work: errno, sets that other threads close, and what EDGE_RUN_REQUIRE forbids. It
 * passes over TCP and over streams. */
#include "tcp.h"

#include <sys/epoll.h>
#include <sys/syscall.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

enum { BEFORE = 1234 }; /* no error's number */

/* What succeeds leaves errno as it was. */
#define WELL(call) \
	do { \
		errno = BEFORE; \
		CHECK((call) == 0 && errno == BEFORE); \
	} while (0)
#define FAILS(call, with) \
	do { \
		errno = BEFORE; \
		CHECK((call) < 0 && errno == (with)); \
	} while (0)

static void *reads(void *fd) {
	char c;
	sleeper = gettid();
	CHECK(read(*(int *)fd, &c, 1) == 1);
	return NULL;
}

static void errnos(void) {
	pthread_t t; /* another thread sleeps: each call looks at the device for it */
	struct epoll_event e = {.events = EPOLLIN};
	int set = epoll_create1(0), size = 1 << 16, file = fileno(tmpfile()), plain = socket(AF_INET, SOCK_STREAM, 0);
	new_pair(&three, &four);
	CHECK(pthread_create(&t, NULL, reads, &three) == 0);
	while (!sleeper)
		sched_yield();
	asleep(sleeper);
	open_pair();
	WELL(epoll_ctl(set, EPOLL_CTL_ADD, one, &e));
	FAILS(epoll_ctl(set, EPOLL_CTL_ADD, one, &e), EEXIST);
	FAILS(epoll_ctl(set, EPOLL_CTL_MOD, two, &e), ENOENT);
	FAILS(epoll_ctl(set, EPOLL_CTL_ADD, two, NULL), EFAULT);
	FAILS(epoll_ctl(set, 77, one, &e), EINVAL);
	FAILS(epoll_ctl(file, EPOLL_CTL_ADD, two, &e), EINVAL);
	WELL(epoll_ctl(set, EPOLL_CTL_MOD, one, &e));
	WELL(epoll_ctl(set, EPOLL_CTL_DEL, one, &e));
	FAILS(epoll_ctl(set, EPOLL_CTL_DEL, one, &e), ENOENT);
	WELL(epoll_ctl(set, EPOLL_CTL_ADD, listener, &e));
	WELL(epoll_ctl(set, EPOLL_CTL_ADD, plain, &e));
	WELL(epoll_ctl(set, EPOLL_CTL_DEL, plain, &e));
	for (int i = 0; i < 300; i++) { /* some while the other thread sleeps, and does not look */
		sched_yield();
		WELL(setsockopt(one, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
	}
	FAILS(setsockopt(one, SOL_SOCKET, SO_SNDBUF, &size, 1), EINVAL);
	FAILS(setsockopt(one, IPPROTO_TCP, 7777, &size, sizeof size), ENOPROTOOPT);
	FAILS(shutdown(one, 3), EINVAL);
	FAILS(shutdown(plain, SHUT_WR), ENOTCONN);
	talk(one, two); /* nothing was shut */
	WELL(shutdown(one, SHUT_WR));
	WELL(shutdown(one, SHUT_WR));
	talk(two, one);
	WELL(shutdown(two, SHUT_RDWR));
	CHECK(close(set) == 0 && close(plain) == 0);
	close_pair();
	one = socket(AF_INET, SOCK_STREAM, 0); /* not decided yet */
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	FAILS(shutdown(one, 3), EINVAL);
	WELL(shutdown(one, SHUT_WR));
	CHECK((two = accept(listener, NULL, NULL)) >= 0 && read(two, &(char){0}, 1) == 0);
	close_pair();
	CHECK(write(four, "x", 1) == 1 && pthread_join(t, NULL) == 0 && close(three) == 0 && close(four) == 0);
}

/* --- a thread makes dups of a set, and another one closes it --- */

enum { ROUNDS = 20000 };
static _Atomic int shown;
static _Atomic bool done;

static void *dups(void *nothing) {
	(void)nothing;
	while (!done) {
		int from = shown, copy = dup(from);
		struct epoll_event got;
		if (copy < 0)
			continue;
		epoll_ctl(copy, EPOLL_CTL_ADD, two, &(struct epoll_event){.events = EPOLLOUT});
		epoll_wait(copy, &got, 1, 0);
		close(copy);
	}
	return NULL;
}

static void *waits(void *nothing) {
	struct epoll_event got;
	(void)nothing;
	while (!done)
		epoll_wait(shown, &got, 1, 0);
	return NULL;
}

static void sets(void) {
	pthread_t t[3];
	open_pair();
	shown = epoll_create1(0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, i < 2 ? dups : waits, NULL) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		int last = shown;
		CHECK(close(last) == 0);
		CHECK((shown = epoll_create1(0)) >= 0);
	}
	done = true;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(close(shown) == 0);
	talk(one, two);
	close_pair();
}

/* --- EDGE_RUN_REQUIRE --- */

static long (*kernel)(long, ...); /* as a program's own instructions */

/* A client that is not under edge-run. */
static int plain_client(const struct sockaddr_in *to) {
	int fd = (int)kernel(SYS_socket, AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && kernel(SYS_connect, fd, to, sizeof *to) == 0 && kernel(SYS_write, fd, "x", 1L) == 1);
	return fd;
}

/* The program accepts. Where streams are required it gets no byte of it, and no ring can either. */
static void accepts(int from, const struct sockaddr_in *to) {
	bool require = preloaded && getenv("EDGE_RUN_REQUIRE");
	char c;
	int client = plain_client(to), fd = accept(from, NULL, NULL);
	CHECK(fd >= 0);
	ssize_t n = read(fd, &c, 1);
	CHECK(require ? n < 0 && errno == ECONNRESET : n == 1 && c == 'x');
	CHECK(!require || kernel(SYS_read, fd, &c, 1L) <= 0);
	CHECK(close(fd) == 0 && kernel(SYS_close, client) == 0);
}

static void find_kernel(void) { *(void **)&kernel = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "syscall"); }

/* The stand-in asks there what a connection of that end offers. Nobody answers. */
static int questions_of(const struct sockaddr_in *from) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), n;
	n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s/tcp/127.0.0.1:%d>127.0.0.1:%d", getenv("EDGE_SOCKET"),
	             ntohs(from->sin_port), ntohs(address.sin_port));
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	CHECK(bind(fd, (struct sockaddr *)&a, size) == 0 && listen(fd, 1) == 0);
	return fd;
}

/* A client that is not under edge-run, of a host whose daemon is dead: its bytes are a verdict, not the end of the
 * waiting for an answer. check.sh looks at the log. */
static void silent(void) {
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char c;
	find_kernel();
	int client = (int)kernel(SYS_socket, AF_INET, SOCK_STREAM, 0);
	CHECK(bind(client, (struct sockaddr *)&from, sizeof from) == 0);
	CHECK(getsockname(client, (struct sockaddr *)&from, &(socklen_t){sizeof from}) == 0);
	int asks = questions_of(&from);
	CHECK(kernel(SYS_connect, client, &address, sizeof address) == 0);
	int fd = accept(listener, NULL, NULL);
	struct pollfd p = {.fd = fd, .events = POLLIN}, asked = {.fd = asks, .events = POLLIN};
	CHECK(fd >= 0 && poll(&p, 1, 0) == 0 && (!preloaded || poll(&asked, 1, -1) == 1));
	CHECK(kernel(SYS_write, client, "x", 1L) == 1 && poll(&p, 1, -1) == 1 && read(fd, &c, 1) == 1 && c == 'x');
	CHECK(close(fd) == 0 && close(asks) == 0 && kernel(SYS_close, client) == 0);
}

static void required(void) {
	char p[120] = {0}; /* struct io_uring_params */
	struct sockaddr_in to = address;
	int (*init)(unsigned, void *, unsigned) = NULL;
	int first = socket(AF_INET, SOCK_STREAM, 0), second = dup(first);
	bool require = preloaded && getenv("EDGE_RUN_REQUIRE");
	find_kernel();
	*(void **)&init = dlsym(RTLD_DEFAULT, "io_uring_queue_init");
	int ring = (int)kernel(SYS_io_uring_setup, 4, p);
	CHECK(require ? ring < 0 && errno == ENOSYS : ring >= 0 || errno == ENOSYS || errno == EPERM);
	CHECK(!require || init(4, NULL, 0) == -ENOSYS);
	accepts(listener, &address);
	to.sin_port = 0; /* of a listening socket that has two numbers the library knows nothing */
	CHECK(bind(first, (struct sockaddr *)&to, sizeof to) == 0 && listen(first, 1) == 0);
	CHECK(getsockname(first, (struct sockaddr *)&to, &(socklen_t){sizeof to}) == 0);
	accepts(second, &to);
	CHECK(close(first) == 0 && close(second) == 0);
	if (ring >= 0)
		CHECK(close(ring) == 0);
	if (!require)
		return;
	open_pair(); /* which is a stream */
	close_pair();
}

/* Executes a program that has a ring already, before anything of the library's runs in it. */
static int with_ring(char **argv) {
	char p[120] = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, p);
	CHECK(ring < 0 || fcntl(ring, F_SETFD, 0) == 0);
	setenv("HAS_RING", ring < 0 ? "" : "1", 1); /* else the kernel has none */
	execv(argv[0], argv);
	return 1;
}

/* There it may not listen, as the ring could accept. */
static int barred(void) {
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	bool refused = listen(fd, 1) < 0 && errno == EOPNOTSUPP;
	CHECK(refused || !*getenv("HAS_RING"));
	printf("barred: ok\n");
	return 0;
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc > 2 && !strcmp(argv[1], "with-ring"))
		return with_ring(argv + 2);
	if (argc > 1 && !strcmp(argv[1], "barred"))
		return barred();
	const struct test tests[] = {{"errnos", errnos}, {"sets", sets}, {"silent", silent}, {"required", required}};
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
