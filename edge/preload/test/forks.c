/* Parent and child have a socket that was used before the fork. It passes over TCP and over streams. */
#include "tcp.h"

#include <sys/syscall.h>

static pid_t child;

static bool in_child(void) {
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		alarm(PATIENCE);
	return child == 0;
}

/* The child has passed its checks and ended. */
static void ended(void) {
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void expect(int fd, const char *want) {
	char b[64] = {0};
	size_t n = strlen(want);
	CHECK(recv(fd, b, n, MSG_WAITALL) == (ssize_t)n && memcmp(b, want, n) == 0);
}

static void put(int fd, const char *what) { CHECK(write(fd, what, strlen(what)) == (ssize_t)strlen(what)); }

static int by_poll(int fd) {
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 5000) == 1 && p.revents == POLLIN;
}
static int by_select(int fd) {
	fd_set s;
	FD_ZERO(&s);
	FD_SET(fd, &s);
	return select(fd + 1, &s, NULL, NULL, &(struct timeval){.tv_sec = 5}) == 1 && FD_ISSET(fd, &s);
}
static int by_epoll(int fd) {
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd}, got;
	int set = epoll_create1(0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	int n = epoll_wait(set, &got, 1, 5000) == 1 && got.data.fd == fd;
	CHECK(close(set) == 0);
	return n;
}
static int by_reading(int fd) { return (void)fd, 1; }
static int (*const looks[])(int) = {by_reading, by_poll, by_select, by_epoll};

/* The child reads and writes, however it waits, and so does its child. */
static void child_uses(void) {
	for (int i = 0; i < 8; i++) {
		open_pair();
		if (in_child()) {
			if (i >= 4 && in_child()) {
				CHECK(looks[i % 4](one));
				expect(one, "question");
				put(one, "answer");
				_exit(0);
			}
			if (i >= 4)
				ended();
			else {
				CHECK(looks[i](one));
				expect(one, "question");
				put(one, "answer");
			}
			_exit(0);
		}
		put(two, "question");
		expect(two, "answer");
		ended();
		talk(one, two);
		talk(two, one);
		close_pair();
	}
}

/* An event loop in the child is woken for each message, and for the end. */
static void child_loops(void) {
	open_pair();
	if (in_child()) {
		struct epoll_event e = {.events = EPOLLIN}, got;
		char c;
		int set = epoll_create1(0);
		CHECK(fcntl(one, F_SETFL, O_NONBLOCK) == 0 && close(two) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0);
		for (ssize_t n = 1; n > 0;) {
			CHECK(epoll_wait(set, &got, 1, 5000) == 1);
			CHECK((n = read(one, &c, 1)) >= 0 && write(one, &c, (size_t)n) == n);
		}
		_exit(0);
	}
	for (int i = 0; i < 100; i++) {
		put(two, "xy");
		expect(two, "xy");
	}
	CHECK(shutdown(two, SHUT_WR) == 0);
	ended();
	close_pair();
}

/* What the child wrote comes before what the parent writes later. */
static void in_order(void) {
	for (int i = 0; i < 50; i++) {
		open_pair();
		if (in_child()) {
			put(one, "first");
			_exit(0);
		}
		ended();
		put(one, "second");
		expect(two, "firstsecond");
		close_pair();
	}
}

/* A child that does not read leaves all bytes to the parent. */
static void parent_reads(void) {
	int go[2];
	char c;
	open_pair();
	CHECK(pipe(go) == 0);
	if (in_child()) {
		CHECK(close(go[1]) == 0 && read(go[0], &c, 1) == 0);
		_exit(0);
	}
	for (int i = 0; i < 20; i++) {
		put(one, "one");
		put(two, "two");
		poll(NULL, 0, 1); /* in which a child that took them would do so */
		expect(one, "two");
		expect(two, "one");
	}
	CHECK(close(go[0]) == 0 && close(go[1]) == 0);
	ended();
	close_pair();
}

/* More than there is room for, in both directions. */
static void much(void) {
	enum { SIZE = 3 << 20 };
	static char out[SIZE], in[SIZE];
	for (size_t i = 0; i < SIZE; i++)
		out[i] = (char)(i * 2654435761u >> 13);
	open_pair();
	if (in_child()) {
		CHECK(recv(one, in, SIZE, MSG_WAITALL) == SIZE && memcmp(in, out, SIZE) == 0 && write(one, out, SIZE) == SIZE);
		_exit(0);
	}
	CHECK(write(two, out, SIZE) == SIZE && recv(two, in, SIZE, MSG_WAITALL) == SIZE && memcmp(in, out, SIZE) == 0);
	ended();
	close_pair();
}

/* The connection lives as long as either has it, and ends then; shutdown ends it for both. */
static void lives_on(void) {
	char c;
	open_pair();
	if (in_child()) {
		CHECK(close(two) == 0);
		expect(one, "go");
		put(one, "gone");
		_exit(0);
	}
	CHECK(close(one) == 0);
	put(two, "go");
	expect(two, "gone");
	CHECK(read(two, &c, 1) == 0 && close(two) == 0);
	ended();
	open_pair();
	if (in_child()) {
		signal(SIGPIPE, SIG_IGN);
		put(one, "last");
		CHECK(shutdown(one, SHUT_WR) == 0 && write(one, "x", 1) < 0 && errno == EPIPE);
		expect(one, "heard");
		CHECK(read(one, &c, 1) == 0); /* the parent's shutdown */
		_exit(0);
	}
	expect(two, "last");
	CHECK(read(two, &c, 1) == 0);
	put(two, "heard");
	CHECK(shutdown(two, SHUT_WR) == 0);
	ended();
	close_pair();
}

static void feed(int n) {
	(void)n;
	put(two, "y");
}

/* A blocked read ends with the time limit, and by a signal; handlers run meanwhile. */
static void blocks(void) {
	char c;
	open_pair();
	if (in_child()) {
		struct timeval t = {.tv_usec = 20000};
		CHECK(setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
		CHECK(read(one, &c, 1) < 0 && errno == EAGAIN);
		CHECK(setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0}, sizeof t) == 0);
		handler(SIGUSR1, count, 0);
		struct itimerval often = {.it_value.tv_usec = 20000, .it_interval.tv_usec = 20000};
		handler(SIGALRM, count, 0);
		CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
		CHECK(read(one, &c, 1) < 0 && errno == EINTR && handled > 0);
		handler(SIGALRM, feed, SA_RESTART);
		CHECK(read(one, &c, 1) == 1 && c == 'y');
		CHECK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
		_exit(0);
	}
	ended();
	close_pair();
}

/* The process ends while a thread of it waits. */
static void *blocked(void *arg) {
	char c;
	(void)arg;
	sleeper = gettid();
	CHECK(read(two, &c, 1) == 1); /* fails in no case: the process ends first */
	return NULL;
}
static void exits(void) {
	for (int i = 0; i < 30; i++) {
		if (in_child()) {
			pthread_t t;
			close(listener);
			listen_anew();
			sleeper = 0;
			open_pair();
			CHECK(pthread_create(&t, NULL, blocked, NULL) == 0);
			while (!sleeper)
				sched_yield();
			asleep(sleeper);
			exit(0);
		}
		ended();
	}
}

/* Over streams: the parent ends, and the child's next call tells it. Too many are not shared. */
static void limits(void) {
	enum { MANY = 70 };
	int ends[2 * MANY], told[2];
	char c;
	if (!preloaded)
		return;
	CHECK(pipe(told) == 0);
	if (in_child()) {
		close(listener);
		listen_anew();
		open_pair();
		if (in_child()) {
			bool reset = read(one, &c, 1) < 0 && errno == ECONNRESET;
			CHECK(write(told[1], reset ? "y" : "n", 1) == 1);
			_exit(0);
		}
		_exit(0);
	}
	ended();
	CHECK(read(told[0], &c, 1) == 1 && c == 'y');
	close(listener); /* who forks before it waits for connections leaves the offer of the port to the child */
	listen_anew();
	for (int i = 0; i < 2 * MANY; i += 2)
		new_pair(&ends[i], &ends[i + 1]);
	if (in_child()) {
		CHECK(read(ends[0], &c, 1) < 0 && errno == ECONNRESET);
		_exit(0);
	}
	ended();
	for (int i = 0; i < 2 * MANY; i++)
		CHECK(close(ends[i]) == 0);
	CHECK(close(told[0]) == 0 && close(told[1]) == 0);
}

/* A thread of the parent is in a call on the socket when it forks: what the child closes is closed nevertheless. */
static void *one_byte(void *arg) {
	char c;
	(void)arg;
	sleeper = gettid();
	CHECK(read(one, &c, 1) == 1);
	return NULL;
}
static void counts(void) {
	int closed[2], stay[2];
	char c;
	pthread_t t;
	open_pair();
	CHECK(pipe(closed) == 0 && pipe(stay) == 0);
	sleeper = 0;
	CHECK(pthread_create(&t, NULL, one_byte, NULL) == 0);
	while (!sleeper)
		sched_yield();
	asleep(sleeper);
	if (in_child()) {
		CHECK(close(one) == 0 && close(two) == 0 && close(stay[1]) == 0 && write(closed[1], "x", 1) == 1);
		CHECK(read(stay[0], &c, 1) == 0); /* it lives on */
		_exit(0);
	}
	CHECK(read(closed[0], &c, 1) == 1);
	put(two, "x");
	CHECK(pthread_join(t, NULL) == 0 && close(one) == 0);
	CHECK(read(two, &c, 1) == 0); /* nobody has the other end any more */
	CHECK(close(stay[0]) == 0 && close(stay[1]) == 0);
	ended();
	CHECK(close(two) == 0 && close(closed[0]) == 0 && close(closed[1]) == 0);
}

/* --- what a hostile child can do to its siblings --- */

/* All memory that it shares with others is full of ones. */
static void scribble(void) {
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f)) {
		unsigned long from, to;
		char how[8];
		if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3 && how[1] == 'w' && how[3] == 's' &&
		    strstr(line, "/dev/zero"))
			memset((void *)from, 0xff, to - from);
	}
	fclose(f);
}

/* What rings the parent, which it would steal from, is its own alone. */
static int bells(void) {
	int n = 0, type;
	for (int fd = 3; fd < 1024; fd++)
		n += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) == 0 && type == SOCK_DGRAM;
	return n;
}

/* No descriptor that it has inherited is non-blocking any more. */
static void make_blocking(void) {
	for (int fd = 3; fd < 1024; fd++)
		syscall(SYS_fcntl, fd, F_SETFL, 0);
}

static void trust(void) {
	enum { TURNS = 1000 };
	int ready[2];
	char c;
	if (!preloaded) /* over TCP there is no such memory */
		return;
	open_pair();
	CHECK(pipe(ready) == 0);
	if (in_child()) { /* the sibling: echoes */
		CHECK(write(ready[1], "x", 1) == 1);
		for (int i = 0; i < TURNS; i++)
			CHECK(read(one, &c, 1) == 1 && write(one, &c, 1) == 1);
		_exit(0);
	}
	pid_t sibling = child;
	CHECK(read(ready[0], &c, 1) == 1);
	if (in_child()) {
		close(one);
		close(two);
		scribble();
		CHECK(bells() == 1 && write(ready[1], "x", 1) == 1);
		pause();
	}
	pid_t hostile = child;
	CHECK(read(ready[0], &c, 1) == 1);
	if (in_child()) { /* it keeps its shares, so that the parent listens to its bell */
		make_blocking();
		CHECK(write(ready[1], "x", 1) == 1);
		pause();
	}
	pid_t blocking = child;
	CHECK(read(ready[0], &c, 1) == 1);
	for (int i = 0; i < TURNS; i++) {
		put(two, "z");
		CHECK(read(two, &c, 1) == 1 && c == 'z');
	}
	CHECK(kill(hostile, SIGKILL) == 0 && waitpid(hostile, NULL, 0) == hostile);
	CHECK(kill(blocking, SIGKILL) == 0 && waitpid(blocking, NULL, 0) == blocking);
	child = sibling;
	ended();
	CHECK(close(ready[0]) == 0 && close(ready[1]) == 0);
	close_pair();
}

int main(int argc, char **argv) {
	const struct test tests[] = {
		{"uses", child_uses}, {"loops", child_loops}, {"order", in_order}, {"reads", parent_reads}, {"much", much},
		{"lives", lives_on}, {"blocks", blocks}, {"counts", counts}, {"trust", trust}, {"exits", exits},
		{"limits", limits},
	};
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
