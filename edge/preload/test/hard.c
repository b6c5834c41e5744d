/* What goes wrong in threads, forks, signals' handlers, and with a peer that does not go on, if it does. Run it under
 * edge-run, with the name of a test. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
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

/* A peer that accepts the stream but shows no ring: the program waits, and does not look without end (STANDIN_SLOW, STANDIN_LOOKS). */
static void slow(void) {
	open_pair();
	close_pair();
}

/* The other side writes no more: what is full is full nevertheless. */
static void full(void) {
	char b[65536] = {0};
	open_pair();
	CHECK(shutdown(one, SHUT_WR) == 0 && read(two, b, 1) == 0 && fcntl(two, F_SETFL, O_NONBLOCK) == 0);
	while (write(two, b, sizeof b) > 0)
		;
	CHECK(errno == EAGAIN);
	struct pollfd p = {.fd = two, .events = POLLOUT};
	CHECK(poll(&p, 1, 0) == 0);
	close_pair();
}

/* Of several processes in accept one gets the connection, and the others wait on (STANDIN_PAUSE). */
static void accepts(void) {
	pid_t child[4];
	for (int i = 0; i < 4; i++)
		if ((child[i] = fork()) == 0)
			for (;;) {
				int fd = accept(listener, NULL, NULL);
				CHECK(fd >= 0 && write(fd, "x", 1) == 1);
				close(fd);
			}
	for (int i = 0; i < 30; i++) {
		char c;
		one = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && read(one, &c, 1) == 1 && c == 'x');
		close(one);
	}
	for (int i = 0; i < 4; i++) {
		int status;
		CHECK(waitpid(child[i], &status, WNOHANG) == 0);
		kill(child[i], SIGKILL);
		waitpid(child[i], &status, 0);
	}
}

/* --- epoll --- */

static int set;
static _Atomic pid_t waiting;
static _Atomic int woken;

static void *wait_one(void *arg) {
	struct epoll_event e;
	(void)arg;
	atomic_store(&waiting, gettid());
	CHECK(epoll_wait(set, &e, 1, -1) == 1 && e.data.u64 == 7);
	atomic_fetch_add(&woken, 1);
	return NULL;
}

static void *until_waits(pthread_t *t) {
	waiting = 0;
	in_thread(t, wait_one, NULL);
	while (!atomic_load(&waiting))
		sched_yield();
	asleep(waiting);
	return NULL;
}

/* A stream comes into a set in which a thread sleeps already. */
static void add_to_sleeper(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
	pthread_t t;
	set = epoll_create1(0);
	until_waits(&t);
	open_pair();
	CHECK(write(one, "x", 1) == 1 && epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0 && pthread_join(t, NULL) == 0);
	close(set);
	close_pair();
}

/* A thread sleeps while another one takes what woke it: it sleeps on, and does not look without end. */
static void shared_set(void) {
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = 7}, got;
	pthread_t t;
	char c;
	open_pair();
	set = epoll_create1(0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
	until_waits(&t);
	for (int i = 0; i < 200; i++) {
		CHECK(write(one, "x", 1) == 1);
		bool ours = epoll_wait(set, &got, 1, 0) == 1; /* else the other thread has it */
		CHECK(read(two, &c, 1) == 1);
		epoll_wait(set, &got, 1, 0);
		if (!ours) {
			CHECK(pthread_join(t, NULL) == 0);
			until_waits(&t);
		}
		if (i % 20 == 0) /* in which it could look without end (STANDIN_LOOKS) */
			CHECK(poll(NULL, 0, 20) == 0);
	}
	CHECK(poll(NULL, 0, 20) == 0);
	CHECK(write(one, "x", 1) == 1 && pthread_join(t, NULL) == 0);
	close(set);
	close_pair();
}

/* Two streams are ready, and a thread that sleeps takes the second one. */
static void two_sleepers(void) {
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 7};
	pthread_t t[2];
	open_pair();
	CHECK(write(one, "x", 1) == 1 && write(two, "x", 1) == 1);
	for (int i = 0; i < 60; i++) {
		set = epoll_create1(0);
		woken = 0;
		until_waits(&t[0]);
		until_waits(&t[1]);
		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
		CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0 && woken == 2);
		close(set);
	}
	close_pair();
}

/* A socket is put into a set before it connects. */
static void add_first(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7}, got;
	set = epoll_create1(0);
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	two = accept(listener, NULL, NULL);
	talk(two, one);
	CHECK(streaming(one) && write(two, "x", 1) == 1);
	CHECK(epoll_wait(set, &got, 1, PATIENCE * 1000) == 1 && got.data.u64 == 7 && got.events == EPOLLIN);
	close(set);
	close_pair();
}

/* A set's number comes again. */
static void range(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7}, got;
	open_pair();
	set = fcntl(epoll_create1(0), F_DUPFD, 500);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0 && close_range((unsigned)set, (unsigned)set, 0) == 0);
	int fresh = epoll_create1(0);
	CHECK(fcntl(fresh, F_DUPFD, 500) == set && epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0 && write(two, "x", 1) == 1);
	CHECK(epoll_wait(set, &got, 1, PATIENCE * 1000) == 1 && got.data.u64 == 7);
	close(set), close(fresh);
	close_pair();
}

/* --- the ends of threads and processes --- */

static void *reader(void *arg) {
	char c;
	(void)arg;
	atomic_store(&waiting, gettid());
	while (read(two, &c, 1) == 1)
		;
	return NULL;
}

static void *poller(void *arg) {
	(void)arg;
	atomic_store(&waiting, gettid());
	struct pollfd p = {.fd = two, .events = POLLPRI};
	while (poll(&p, 1, -1) >= 0)
		;
	return NULL;
}

/* Threads are cancelled, asleep and busy, at cancellation points; the sockets are as before. */
static void cancels(void) {
	for (int i = 0; i < 60; i++) {
		pthread_t t;
		waiting = 0;
		open_pair();
		in_thread(&t, i % 3 == 2 ? poller : reader, NULL);
		while (!atomic_load(&waiting))
			sched_yield();
		for (int k = 0; k < i % 3 * 20; k++)
			CHECK(write(one, "x", 1) == 1);
		if (i % 3 == 0)
			asleep(waiting);
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
		char c;
		CHECK(write(two, "y", 1) == 1 && read(one, &c, 1) == 1 && c == 'y');
		CHECK(close(two) == 0 && read(one, &c, 1) <= 0 && close(one) == 0); /* reset, if something was not read */
	}
}

static void leave_at_once(int signal) {
	(void)signal;
	_exit(7);
}

/* A handler ends the process, whatever the program was doing. */
static void handlers(void) {
	for (int i = 0; i < 12; i++) {
		open_pair();
		pid_t pid = fork();
		if (pid == 0) {
			char b[512] = {0};
			alarm(PATIENCE);
			close_pair();
			open_pair();
			signal(SIGPROF, leave_at_once);
			setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_usec = 1000 + i * 300}, NULL);
			for (;;)
				CHECK(write(one, b, sizeof b) == sizeof b && recv(two, b, sizeof b, MSG_WAITALL) == sizeof b);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		close_pair();
	}
}

static void *blocked(void *arg) {
	char c;
	(void)arg;
	atomic_store(&waiting, gettid());
	CHECK(read(two, &c, 1) == 1); /* fails in no case: the process ends first */
	return NULL;
}

/* The process ends while a thread of it waits for a stream. */
static void exits(void) {
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			alarm(PATIENCE);
			waiting = 0;
			open_pair();
			in_thread(&t, blocked, NULL);
			while (!atomic_load(&waiting))
				sched_yield();
			asleep(waiting);
			exit(7);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
}

static _Atomic bool stop;

static void *looks(void *arg) {
	(void)arg;
	for (struct pollfd p = {.fd = listener, .events = POLLIN}; !stop;)
		poll(&p, 1, 0);
	return NULL;
}

/* A fork while another thread is in the library, and no daemon was there to attach to (STANDIN_DOWN). */
static void forks(void) {
	pthread_t t;
	in_thread(&t, looks, NULL);
	for (int i = 0; i < 300; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			alarm(PATIENCE);
			close(listener);
			_exit(7);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	stop = true;
	pthread_join(t, NULL);
}

static void hung(int signal) {
	(void)signal;
	dprintf(1, "FAIL %s: it hangs\n", test);
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
	const struct { const char *name; void (*run)(void); } tests[] = {
		{"slow", slow}, {"full", full}, {"accepts", accepts}, {"sleeper", add_to_sleeper}, {"shared", shared_set},
		{"sleepers", two_sleepers}, {"first", add_first}, {"range", range}, {"cancels", cancels},
		{"handlers", handlers}, {"exits", exits}, {"forks", forks},
	};
	setvbuf(stdout, NULL, _IONBF, 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	test = "listen";
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &(socklen_t){sizeof address}) == 0);
	signal(SIGALRM, hung);
	for (int a = 1; a < argc; a++)
		for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
			if (!strcmp(argv[a], tests[i].name)) {
				test = argv[a];
				alarm(PATIENCE * 3);
				tests[i].run();
				alarm(0);
				argv[a] = "";
			}
	for (int a = 1; a < argc; a++)
		if (*argv[a]) {
			printf("FAIL: no test %s\n", argv[a]);
			return 1;
		}
	printf("hard: ok\n");
	return 0;
}
