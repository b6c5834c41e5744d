/* What the tests of hard.c stand on: a listener, two ends of a connection that is a stream, and threads. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE = 20 }; /* seconds that a test takes if it hangs */

static const char *test;
static int listener, one, two; /* ends of a connection */
static struct sockaddr_in address;

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL %s: line %d: %s (%s)\n", test, __LINE__, #x, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

static bool streaming(int fd) {
	struct tcp_info i = {0};
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &(socklen_t){sizeof i}) == 0 && i.tcpi_bytes_sent == 0 &&
	       i.tcpi_bytes_received == 0;
}

static void talk(int from, int to) {
	char b[8] = {0};
	CHECK(write(from, "hello", 5) == 5 && recv(to, b, 5, MSG_WAITALL) == 5 && memcmp(b, "hello", 5) == 0);
}

/* A port of this process's. At an inherited one the parent hears who connects, and must look. */
static void listen_anew(void) {
	listener = socket(AF_INET, SOCK_STREAM, 0);
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &(socklen_t){sizeof address}) == 0);
}

static void open_pair(void) {
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	two = accept(listener, NULL, NULL);
	talk(two, one);
	talk(one, two);
	CHECK(streaming(one) && streaming(two));
}

static void close_pair(void) { CHECK(close(one) == 0 && close(two) == 0); }

static void *in_thread(pthread_t *t, void *(*run)(void *), void *arg) {
	CHECK(pthread_create(t, NULL, run, arg) == 0);
	return NULL;
}

/* A thread of the process sleeps in a call; there is no other way to see that it does. */
static void asleep(pid_t tid) {
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
	for (;;) {
		FILE *f = fopen(path, "r");
		CHECK(f && fgets(line, sizeof line, f));
		fclose(f);
		if (strstr(line, ") S"))
			return;
		sched_yield();
	}
}
