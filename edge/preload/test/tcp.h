/* What tests share that pass over TCP, without edge-run, and over streams. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 20 }; /* seconds that a test takes if it hangs */

static const char *test;
static bool preloaded;
static int listener, one, two; /* ends of a connection */
static int three __attribute__((unused)), four __attribute__((unused)); /* of another one */
static struct sockaddr_in address;
static _Atomic pid_t sleeper;
static _Atomic int handled;

struct test { const char *name; void (*run)(void); };

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL %s: line %d: %s (%s)\n", test, __LINE__, #x, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

static bool streaming(int fd) {
	struct tcp_info i = {0};
	return !preloaded || (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &(socklen_t){sizeof i}) == 0 &&
	                      i.tcpi_bytes_sent == 0 && i.tcpi_bytes_received == 0);
}

static void talk(int from, int to) {
	char b[8] = {0};
	CHECK(write(from, "hello", 5) == 5 && recv(to, b, 5, MSG_WAITALL) == 5 && memcmp(b, "hello", 5) == 0);
}

static void new_pair(int *a, int *b) {
	*a = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(*a, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK((*b = accept(listener, NULL, NULL)) >= 0);
	talk(*b, *a);
	talk(*a, *b);
	CHECK(streaming(*a) && streaming(*b));
}

static void open_pair(void) { new_pair(&one, &two); }
static void close_pair(void) { CHECK(close(one) == 0 && close(two) == 0); }

/* A thread of the process sleeps in a call, or has ended; there is no other way to see that it does. */
static void asleep(pid_t tid) {
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
	for (bool busy = true; busy;) {
		sched_yield();
		FILE *f = fopen(path, "r");
		busy = f && fgets(line, sizeof line, f) && !strstr(line, ") S");
		if (f)
			fclose(f);
	}
}

static __attribute__((unused)) void count(int n) {
	(void)n;
	handled++;
}

static void handler(int n, void (*run)(int), int flags) {
	CHECK(sigaction(n, &(struct sigaction){.sa_handler = run, .sa_flags = flags}, NULL) == 0);
}

static void hung(int n) {
	(void)n;
	dprintf(1, "FAIL %s: it hangs\n", test);
	kill(getpid(), SIGKILL);
}

static void hurry(const char *name) {
	test = name;
	/* Reset by its delivery, it does not wait for the library to be left. */
	handler(SIGALRM, hung, SA_RESETHAND);
	alarm(PATIENCE);
}

/* A port of this process's. At an inherited one the parent hears who connects, and must look. */
static void listen_anew(void) {
	listener = socket(AF_INET, SOCK_STREAM, 0);
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &(socklen_t){sizeof address}) == 0);
}

static int run_tests(int argc, char **argv, const struct test *tests, size_t n) {
	preloaded = dlsym(RTLD_DEFAULT, "edge_preload_version") != NULL;
	setvbuf(stdout, NULL, _IONBF, 0);
	test = "listen";
	listen_anew();
	for (size_t i = 0; i < n; i++) {
		if (argc > 1 && strcmp(argv[1], tests[i].name))
			continue;
		hurry(tests[i].name);
		tests[i].run();
	}
	printf("%s: ok\n", program_invocation_short_name);
	return 0;
}
