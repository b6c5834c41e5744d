/*
 * Connections one after the other, which may use one stream after the other (PROTOCOL clause 20.9).
 *
 *   again serve PORT MARK [HOW]     serves until its standard input ends: each connection brings a head and bytes,
 *                                   which go back behind the server's mark. A line "close" closes the listening socket.
 *                                   HOW is forks: a child of its own serves each fifth connection; waits: it listens
 *                                   after a line; polls: it waits in poll, not in read; banner: it writes first, and
 *                                   gives each read 0.3 s, after which it says so and tries again; leaves: it closes
 *                                   the second connection after a banner, and calls nothing of the library any more;
 *                                   exits: it ends after that banner; several: its port may be another's; passes: it
 *                                   sends its listening socket to a process (itself); pair: another thread sleeps
 *   again ask ADDRESS PORT MARK N [MARK N]   ("hears": of a server with a banner)
 *                                   N connections, up to 4 at a time; every byte and each mark are compared. After a
 *                                   line on its standard input as many of the other mark
 *   again times ADDRESS PORT MARK N how long each of N connections takes
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 300000, TOGETHER = 4 };

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL: line %d: %s\n", __LINE__, #x); \
			perror("errno"); \
			exit(1); \
		} \
	} while (0)

struct head { uint32_t serial, bytes; };
static unsigned char bytes[MOST], back[MOST];

static void take(int fd, void *p, size_t n) {
	for (size_t got = 0; got < n;) {
		ssize_t r = read(fd, (char *)p + got, n - got);
		if (r < 0 && errno == EAGAIN) { /* SO_RCVTIMEO */
			puts("in vain");
			fflush(stdout);
			continue;
		}
		CHECK(r > 0);
		got += (size_t)r;
	}
}

static void give(int fd, const void *p, size_t n) {
	for (size_t sent = 0; sent < n;) {
		ssize_t r = write(fd, (const char *)p + sent, n - sent);
		CHECK(r > 0);
		sent += (size_t)r;
	}
}

/* Of each third connection the server is the first to end. */
static void serve_one(int fd, char mark) {
	struct head h;
	char rest;
	take(fd, &h, sizeof h);
	CHECK(h.bytes <= MOST);
	take(fd, bytes, h.bytes);
	give(fd, &mark, 1);
	give(fd, &h, sizeof h);
	give(fd, bytes, h.bytes);
	if (h.serial % 3)
		CHECK(read(fd, &rest, 1) == 0);
	close(fd);
}

/* Sends a descriptor through a Unix socket, and receives it. */
static void pass(int fd) {
	int pair[2];
	char byte = 0;
	struct iovec v = {.iov_base = &byte, .iov_len = 1};
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof fd)]; } with = {
		.h = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	memcpy(CMSG_DATA(&with.h), &fd, sizeof fd);
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with.room};
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && sendmsg(pair[0], &m, 0) == 1);
	close(pair[0]);
	close(pair[1]);
}

static void *sleeps(void *l) {
	struct pollfd p = {.fd = *(int *)l, .events = POLLPRI};
	for (;;)
		poll(&p, 1, -1);
	return NULL;
}

static int serve(int port, char mark, const char *how) {
	char line[16];
	bool forks = strcmp(how, "forks") == 0, polls = strcmp(how, "polls") == 0;
	bool banner = strcmp(how, "banner") == 0, leaves = strcmp(how, "leaves") == 0, exits = strcmp(how, "exits") == 0;
	if (strcmp(how, "waits") == 0)
		CHECK(read(0, line, sizeof line) > 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (strcmp(how, "several") == 0)
		setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	signal(SIGCHLD, SIG_IGN);
	CHECK(bind(l, (struct sockaddr *)&a, sizeof a) == 0 && listen(l, 64) == 0);
	if (strcmp(how, "passes") == 0)
		pass(l);
	pthread_t other;
	if (strcmp(how, "pair") == 0)
		CHECK(pthread_create(&other, NULL, sleeps, &l) == 0);
	struct pollfd p[] = {{.fd = 0, .events = POLLIN}, {.fd = l, .events = POLLIN}};
	for (int n = 0;; ) {
		CHECK(poll(p, 2, -1) > 0);
		if (p[1].revents && n++ >= 0) {
			int fd = accept(l, NULL, NULL);
			CHECK(fd >= 0);
			struct pollfd q[] = {{.fd = fd, .events = POLLIN}, {.fd = l, .events = POLLIN}};
			while (polls && !q[0].revents)
				CHECK(poll(q, 2, -1) > 0);
			if ((leaves || exits) && n == 2) {
				give(fd, "banner", 6);
				if (exits)
					_exit(0);
				close(fd);
				return read(0, line, sizeof line) != 0;
			}
			if (banner) {
				struct timeval t = {.tv_usec = 300000};
				CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
				give(fd, "banner", 6);
			}
			if (forks && n % 5 == 0 && fork() == 0) {
				close(l);
				serve_one(fd, mark);
				exit(0);
			} else if (forks && n % 5 == 0) {
				close(fd);
			} else {
				serve_one(fd, mark);
			}
			continue;
		}
		ssize_t r = read(0, line, sizeof line);
		if (r <= 0)
			return 0;
		if (strncmp(line, "close", 5) == 0) {
			close(l);
			p[1].fd = -1;
		}
		puts("done");
		fflush(stdout);
	}
}

static bool hears; /* the server speaks first */

static int ask(const char *to, int port, char mark, int n) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	CHECK(inet_pton(AF_INET, to, &a.sin_addr) == 1);
	for (int done = 0; done < n;) {
		int fd[TOGETHER], some = 1 + done % TOGETHER < n - done ? 1 + done % TOGETHER : n - done;
		struct head h[TOGETHER], b;
		for (int i = 0; i < some; i++) {
			uint32_t serial = (uint32_t)(done + i);
			h[i] = (struct head){serial, serial % 10 ? serial * 13 % 2000 : serial * 997 % MOST};
			CHECK((fd[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
			CHECK(connect(fd[i], (struct sockaddr *)&a, sizeof a) == 0);
		}
		for (int i = 0; i < some; i++) {
			char got, more;
			for (size_t k = 0; k < h[i].bytes; k++)
				bytes[k] = (unsigned char)(h[i].serial * 7 + k * 13 + k / 256);
			char banner[6];
			if (hears) {
				take(fd[i], banner, sizeof banner);
				CHECK(memcmp(banner, "banner", sizeof banner) == 0);
			}
			give(fd[i], &h[i], sizeof h[i]);
			give(fd[i], bytes, h[i].bytes);
			take(fd[i], &got, 1);
			CHECK(got == mark);
			take(fd[i], &b, sizeof b);
			CHECK(b.serial == h[i].serial && b.bytes == h[i].bytes);
			take(fd[i], back, b.bytes);
			CHECK(memcmp(bytes, back, b.bytes) == 0);
			if (h[i].serial % 3 == 0)
				CHECK(read(fd[i], &more, 1) == 0);
			close(fd[i]);
		}
		done += some;
	}
	printf("%d connections\n", n);
	fflush(stdout);
	return 0;
}

static long now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The line that it waits for, and how long that took. */
static void paused(void) {
	char line[16];
	long from = now_us();
	CHECK(read(0, line, sizeof line) > 0);
	printf("%ld ms\n", (now_us() - from) / 1000);
}

/* The time of each of N connections, from socket to the answer, in us. */
static int times(const char *to, int port, char mark, int n) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	CHECK(inet_pton(AF_INET, to, &a.sin_addr) == 1);
	for (int i = 0; i < n; i++) {
		long from = now_us();
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		struct head h = {1, 0}, b;
		char got;
		CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
		give(fd, &h, sizeof h);
		take(fd, &got, 1);
		take(fd, &b, sizeof b);
		printf("%ld\n", now_us() - from);
		CHECK(got == mark);
		close(fd);
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc >= 4 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]), *argv[3], argc > 4 ? argv[4] : "");
	if (argc == 6 && strcmp(argv[1], "times") == 0)
		return times(argv[2], atoi(argv[3]), *argv[4], atoi(argv[5]));
	hears = strcmp(argv[1], "hears") == 0;
	if (argc < 6 || (!hears && strcmp(argv[1], "ask")))
		return 2;
	ask(argv[2], atoi(argv[3]), *argv[4], atoi(argv[5]));
	if (argc < 8)
		return 0;
	paused();
	return ask(argv[2], atoi(argv[3]), *argv[6], atoi(argv[7]));
}
