/* What goes wrong in threads, forks, signals' handlers, and with a peer that does not go on, if it does. Run it under
 * edge-run, with the name of a test. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "hard.h"

/* A peer that accepts the stream but shows no ring: the program waits, and does not look without end (STANDIN_SLOW,
 * STANDIN_LOOKS). */
static void slow(void) {
	open_pair();
	close_pair();
}

/* A daemon that does not answer is not asked for every connection, each of which would wait for it (STANDIN_SILENT). */
static void many(void) {
	time_t begin = time(NULL);
	for (int i = 0; i < 40; i++) {
		one = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && close(one) == 0);
		CHECK((two = accept(listener, NULL, NULL)) >= 0 && close(two) == 0);
	}
	CHECK(time(NULL) - begin < 12); /* 0.3 s each */
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

struct wanted { int fd, how; _Atomic pid_t tid; };

/* Waits for a byte. */
static void *wants(void *arg) {
	struct wanted *w = arg;
	struct pollfd p = {.fd = w->fd, .events = POLLIN};
	struct epoll_event e = {.events = EPOLLIN};
	char c;
	int own = epoll_create1(0);
	CHECK(epoll_ctl(own, EPOLL_CTL_ADD, w->fd, &e) == 0);
	atomic_store(&w->tid, gettid());
	CHECK(w->how == 0 || (w->how == 1 ? poll(&p, 1, -1) : epoll_wait(own, &e, 1, -1)) == 1);
	CHECK(read(w->fd, &c, 1) == 1);
	close(own);
	return NULL;
}

/* Threads sleep; one that something comes for does not come back. Then something comes for another one. */
static void leaver(void) {
	int order[2];
	char c;
	CHECK(pipe(order) == 0);
	pid_t pid = fork();
	if (pid == 0) { /* in this process calls that write would look for what comes */
		int to[3];
		close(order[1]);
		for (int i = 0; i < 3; i++) {
			to[i] = socket(AF_INET, SOCK_STREAM, 0);
			CHECK(connect(to[i], (struct sockaddr *)&address, sizeof address) == 0 && write(to[i], "x", 1) == 1);
		}
		while (read(order[0], &c, 1) == 1)
			CHECK(write(to[(int)c], "x", 1) == 1);
		_exit(0);
	}
	struct wanted w[3] = {0};
	for (int i = 0; i < 3; i++)
		CHECK((w[i].fd = accept(listener, NULL, NULL)) >= 0 && read(w[i].fd, &c, 1) == 1 && streaming(w[i].fd));
	for (int how = 0; how < 9; how++) {
		pthread_t t[3];
		for (int i = 0; i < 3; i++) {
			w[i].how = i == 1 ? how / 3 : how % 3;
			w[i].tid = 0;
			in_thread(&t[i], wants, &w[i]);
			while (!atomic_load(&w[i].tid))
				sched_yield();
			asleep(w[i].tid);
		}
		for (int k = 0; k < 3; k++) {
			int i = (how + k) % 3;
			CHECK(write(order[1], &(char){(char)i}, 1) == 1 && pthread_join(t[i], NULL) == 0);
		}
	}
	close(order[1]);
	CHECK(waitpid(pid, NULL, 0) == pid);
	for (int i = 0; i < 3; i++)
		close(w[i].fd);
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

static int type;           /* of a thread's cancellation */
static _Atomic long turns; /* that it made */
static int spoken[2];      /* a connection of its own */
static int copy;           /* of two */

static void hang_up(void *arg) {
	close(*(int *)arg);
}

static struct sockaddr_in crowded; /* nobody accepts there */
static int connecting, waits[3];

static int crowd(void) {
	int l = socket(AF_INET, SOCK_STREAM, 0);
	crowded = address;
	crowded.sin_port = 0;
	CHECK(bind(l, (struct sockaddr *)&crowded, sizeof crowded) == 0 && listen(l, 0) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&crowded, &(socklen_t){sizeof crowded}) == 0);
	for (int i = 0; i < 3; i++) {
		waits[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(waits[i], (struct sockaddr *)&crowded, sizeof crowded);
	}
	return l;
}

/* Threads that wait in some call. What such a thread closes when it is cancelled is closed. */
static void *sleeper(void *arg) {
	char c;
	struct epoll_event e;
	struct pollfd p[] = {{.fd = one, .events = POLLIN}, {.fd = two, .events = POLLIN}};
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_push(hang_up, &spoken[0]);
	atomic_store(&waiting, gettid());
	switch ((int)(intptr_t)arg) {
	case 0: CHECK(read(two, &c, 1) < 0); break;
	case 1: CHECK(poll(p, 2, -1) < 0); break;
	case 2: CHECK(epoll_wait(set, &e, 1, -1) < 0); break;
	case 3: CHECK(accept(listener, NULL, NULL) < 0); break;
	default: CHECK(connect(connecting, (struct sockaddr *)&crowded, sizeof crowded) < 0);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void closes(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
	int l = crowd();
	for (intptr_t i = 0; i < 40; i++) {
		pthread_t t;
		char c;
		connecting = socket(AF_INET, SOCK_STREAM, 0);
		type = i % 2 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
		waiting = 0;
		open_pair();
		spoken[0] = one, spoken[1] = two;
		open_pair();
		set = epoll_create1(0);
		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
		in_thread(&t, sleeper, (void *)(i / 2 % 5));
		while (!atomic_load(&waiting))
			sched_yield();
		asleep(waiting);
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
		CHECK(read(spoken[1], &c, 1) == 0 && close(spoken[1]) == 0);
		CHECK(close(set) == 0 && close(connecting) == 0);
		close_pair();
	}
	for (int i = 0; i < 3; i++)
		close(waits[i]);
	close(l);
}

/* Of two threads that wait in a set one is cancelled when something comes: the other one gets it. */
static void heir(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
	pthread_t t[2];
	char c;
	open_pair();
	set = epoll_create1(0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
	for (int i = 0; i < 200; i++) {
		until_waits(&t[0]);
		until_waits(&t[1]);
		CHECK(write(one, "x", 1) == 1 && pthread_cancel(t[i % 2]) == 0);
		CHECK(pthread_join(t[0], NULL) == 0 && pthread_join(t[1], NULL) == 0 && read(two, &c, 1) == 1);
	}
	close(set);
	close_pair();
}

/* Makes one kind of calls, without pause or as something comes. */
static void *busy(void *arg) {
	char c[64];
	struct epoll_event e;
	struct pollfd p[] = {{.fd = one, .events = POLLPRI}, {.fd = two, .events = POLLIN}};
	int kind = (int)(intptr_t)arg, ms = kind < 5 ? 0 : -1;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;; atomic_fetch_add(&turns, 1))
		switch (kind % 5) {
		case 0: recv(two, c, sizeof c, ms < 0 ? 0 : MSG_DONTWAIT); break;
		case 1: poll(p, 2, ms), recv(two, c, sizeof c, MSG_DONTWAIT); break;
		case 2: epoll_wait(set, &e, 1, ms), recv(two, c, sizeof c, MSG_DONTWAIT); break;
		case 3: send(two, "x", 1, MSG_DONTWAIT); break;
		default: dup2(two, copy);
		}
	return NULL;
}

/* What was said before is heard, too. */
static void hears(int from, int to) {
	char b[4096] = {0};
	while (send(from, "y", 1, MSG_DONTWAIT) < 0)
		CHECK(errno == EAGAIN && (recv(to, b, sizeof b, MSG_DONTWAIT) > 0 || errno == EAGAIN));
	for (ssize_t n = 1; b[n - 1] != 'y';)
		CHECK((n = read(to, b, sizeof b)) > 0);
}

/* Threads are cancelled wherever they are: the library's locks are free then, and nobody waits for the dead. */
static void anywhere(void) {
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
	char c;
	open_pair();
	copy = dup(two);
	set = epoll_create1(0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
	time_t end = time(NULL) + PATIENCE; /* for as many as a busy machine makes of them */
	for (intptr_t i = 0; i < 600 && time(NULL) < end; i++) {
		pthread_t t;
		turns = 0;
		in_thread(&t, busy, (void *)(i % 8)); /* send and dup2 do not wait */
		while (atomic_load(&turns) < 3 + i % 7) {
			send(one, "x", 1, MSG_DONTWAIT);
			sched_yield();
		}
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
		hears(one, two);
		hears(two, one);
	}
	CHECK(close(set) == 0 && close(copy) == 0 && close(two) == 0 && read(one, &c, 1) == 0 && close(one) == 0);
}

/* The first cancellation of a process finds a thread anywhere in the library that did not expect one. */
static void firsts(void) {
	for (intptr_t i = 0; i < 50; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7};
			pthread_t t;
			alarm(PATIENCE);
			close(listener);
			listen_anew();
			open_pair();
			copy = dup(two);
			set = epoll_create1(0);
			CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
			turns = 0;
			in_thread(&t, busy, (void *)(i % 5));
			while (atomic_load(&turns) < 50 + i % 7 * 100) {
				send(one, "x", 1, MSG_DONTWAIT);
				sched_yield();
			}
			CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
			hears(one, two);
			hears(two, one);
			_exit(7);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
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
			close(listener);
			listen_anew();
			open_pair();
			signal(SIGPROF, leave_at_once);
			timer_t t; /* of real time: who gives way gets little of the processor's where others are busy */
			CHECK(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_signo = SIGPROF}, &t) == 0);
			CHECK(timer_settime(t, 0, &(struct itimerspec){.it_value.tv_nsec = 1000000 + i * 300000}, NULL) == 0);
			for (;;)
				CHECK(write(one, b, sizeof b) == sizeof b && recv(two, b, sizeof b, MSG_WAITALL) == sizeof b);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		close_pair();
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

static _Atomic pid_t looked_at;

static void *reads(void *arg) {
	char c;
	(void)arg;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (looked_at = gettid(); !stop; turns++)
		recv(two, &c, 1, MSG_DONTWAIT);
	return NULL;
}

/* A thread that may be cancelled at any time blocks no signal for each call as long as nobody has cancelled any. */
static void uncancelled(void) {
	pthread_t t;
	open_pair();
	stop = false;
	turns = 0;
	in_thread(&t, reads, NULL);
	for (int looks = 0; looks < 500 || turns < 1000; looks++) {
		char name[64], line[128] = "";
		snprintf(name, sizeof name, "/proc/self/task/%d/status", (int)looked_at);
		FILE *f = turns > 0 ? fopen(name, "r") : NULL;
		while (f && fgets(line, sizeof line, f) && strncmp(line, "SigBlk:", 7))
			;
		if (f)
			fclose(f);
		looks -= !f;
		CHECK(!f || (strtoull(line + 7, NULL, 16) >> (__SIGRTMIN - 1) & 1) == 0);
		sched_yield();
	}
	stop = true;
	CHECK(pthread_join(t, NULL) == 0);
	stop = false;
	close_pair();
}

static void hung(int signal) {
	(void)signal;
	dprintf(1, "FAIL %s: it hangs\n", test);
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
	const struct { const char *name; void (*run)(void); } tests[] = {
		{"slow", slow}, {"many", many}, {"full", full}, {"accepts", accepts}, {"sleeper", add_to_sleeper},
		{"shared", shared_set}, {"sleepers", two_sleepers}, {"leaver", leaver}, {"first", add_first}, {"range", range},
		{"cancels", cancels}, {"closes", closes}, {"heir", heir}, {"anywhere", anywhere}, {"handlers", handlers},
		{"forks", forks}, {"uncancelled", uncancelled}, {"firsts", firsts},
	};
	setvbuf(stdout, NULL, _IONBF, 0);
	test = "listen";
	listen_anew();
	/* Reset by its delivery, it does not wait for the library to be left. */
	sigaction(SIGALRM, &(struct sigaction){.sa_handler = hung, .sa_flags = SA_RESETHAND}, NULL);
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
