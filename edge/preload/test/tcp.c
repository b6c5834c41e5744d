/* What TCP does, streams do: each test passes without edge-run, too. */
#include "tcp.h"

/* --- reading and writing --- */

/* What had come before the program gave up reading, or the other side did, can be read. */
static void rests(void) {
	char b[8];
	signal(SIGPIPE, SIG_IGN);
	open_pair();
	CHECK(write(one, "abc", 3) == 3);
	struct pollfd p = {.fd = two, .events = POLLIN};
	CHECK(poll(&p, 1, -1) == 1 && shutdown(two, SHUT_RDWR) == 0);
	CHECK(read(two, b, 8) == 3 && read(two, b, 8) == 0);
	close_pair();

	open_pair();
	CHECK(write(one, "unread", 6) == 6 && write(two, "abc", 3) == 3);
	p.fd = one;
	CHECK(poll(&p, 1, -1) == 1 && close(two) == 0);
	while (write(one, "x", 1) == 1)
		;
	CHECK(errno == ECONNRESET && read(one, b, 8) == 3 && read(one, b, 8) == 0);
	close(one);
}

static void *write_slowly(void *arg) {
	(void)arg;
	for (int i = 0; i < 4; i++) {
		asleep(sleeper);
		CHECK(write(one, "abcd" + i, 1) == 1);
	}
	return NULL;
}

static void peeks(void) {
	char b[8] = {0};
	pthread_t t;
	open_pair();
	for (int i = 0; i < 20; i++) {
		sleeper = gettid();
		pthread_create(&t, NULL, write_slowly, NULL);
		CHECK(recv(two, b, 4, MSG_PEEK | MSG_WAITALL) == 4 && memcmp(b, "abcd", 4) == 0);
		pthread_join(t, NULL);
		CHECK(recv(two, b, 8, 0) == 4);
	}
	CHECK(write(one, "ef", 2) == 2 && shutdown(one, SHUT_WR) == 0);
	CHECK(recv(two, b, 4, MSG_PEEK | MSG_WAITALL) == 2 && recv(two, b, 8, 0) == 2);
	close_pair();
}

/* The C library's own ways to a socket. */
static void library(void) {
	char b[16];
	open_pair();
	CHECK(dprintf(one, "%d %s\n", 12, "ab") == 6 && recv(two, b, 6, MSG_WAITALL) == 6 && memcmp(b, "12 ab\n", 6) == 0);
	FILE *f = fdopen(one, "r+");
	CHECK(f && fileno(f) == one && fprintf(f, "%s", "file") == 4 && fflush(f) == 0);
	CHECK(recv(two, b, 4, MSG_WAITALL) == 4 && memcmp(b, "file", 4) == 0 && streaming(two));
	CHECK(fclose(f) == 0 && read(two, b, 1) == 0 && fcntl(one, F_GETFD) == -1);
	close(two);
}

static void *drain(void *arg) {
	static char b[1 << 20];
	(void)arg;
	poll(NULL, 0, 300); /* a message was given up, and the next one waits */
	while (read(two, b, sizeof b) > 0)
		;
	CHECK(b[0] == 'a');
	return NULL;
}

/* A message that was sent in part is the last one. */
static void parts(void) {
	static char much[64 << 20];
	pthread_t t;
	memset(much, 'a', sizeof much);
	open_pair();
	CHECK(setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_usec = 200000}, sizeof(struct timeval)) == 0);
	struct iovec v[2] = {{much, sizeof much}, {"b", 1}};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}},
	                       {.msg_hdr = {.msg_iov = v + 1, .msg_iovlen = 1}}};
	pthread_create(&t, NULL, drain, NULL);
	int n = sendmmsg(one, m, 2, MSG_NOSIGNAL);
	CHECK(n == (m[0].msg_len < sizeof much ? 1 : 2));
	close(one);
	pthread_join(t, NULL);
	close(two);
}

static void *write_when_asleep(void *arg) {
	(void)arg;
	asleep(sleeper);
	CHECK(write(one, "x", 1) == 1);
	return NULL;
}

/* Times beyond all of it. */
static void times(void) {
	char c;
	pthread_t t;
	fd_set set;
	open_pair();
	sleeper = gettid();
	for (int i = 0; i < 3; i++) {
		pthread_create(&t, NULL, write_when_asleep, NULL);
		if (i == 0) {
			FD_ZERO(&set);
			FD_SET(two, &set);
			CHECK(select(two + 1, &set, NULL, NULL, &(struct timeval){.tv_sec = 9223372036}) == 1);
		} else if (i == 1) {
			struct pollfd p = {.fd = two, .events = POLLIN};
			CHECK(ppoll(&p, 1, &(struct timespec){.tv_sec = INT64_MAX / 2}, NULL) == 1);
		} else {
			struct timeval long_time = {.tv_sec = 20000000000};
			CHECK(setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time) == 0);
		}
		CHECK(read(two, &c, 1) == 1);
		pthread_join(t, NULL);
	}
	close_pair();
}

static void *poll_for_ever(void *arg) {
	struct pollfd p = {.fd = *(int *)arg, .events = POLLIN};
	sleeper = gettid();
	CHECK(poll(&p, 1, -1) == 1);
	return NULL;
}

static void *read_in_vain(void *arg) {
	char c;
	(void)arg;
	sleeper = gettid();
	CHECK(read(two, &c, 1) == -1 && errno == EAGAIN);
	return NULL;
}

/* Errors are the same while another thread sleeps, or closes the socket. */
static void errors(void) {
	char c;
	pthread_t t;
	open_pair();
	new_pair(&three, &four);
	sleeper = 0;
	pthread_create(&t, NULL, poll_for_ever, &three);
	while (!sleeper)
		sched_yield();
	for (int i = 0; i < 20; i++) {
		asleep(sleeper);
		CHECK(recv(two, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
	CHECK(write(four, "x", 1) == 1 && pthread_join(t, NULL) == 0);
	close(three), close(four);
	CHECK(setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = 100000}, sizeof(struct timeval)) == 0);
	sleeper = 0;
	pthread_create(&t, NULL, read_in_vain, NULL);
	while (!sleeper)
		sched_yield();
	asleep(sleeper);
	CHECK(close(two) == 0 && pthread_join(t, NULL) == 0);
	close(one);
}

static _Atomic long turns;
static int set;

/* Makes calls that never wait. */
static void *hurries(void *arg) {
	char c;
	struct pollfd p = {.fd = two, .events = POLLIN};
	struct epoll_event e;
	for (;; turns++)
		switch ((int)(intptr_t)arg) {
		case 0: CHECK(recv(two, &c, 1, MSG_DONTWAIT) == -1); break;
		case 1: CHECK(poll(&p, 1, 0) == 0); break;
		case 2: CHECK(epoll_wait(set, &e, 1, 0) == 0); break;
		default: CHECK(send(two, "x", 1, MSG_DONTWAIT) == 1 || errno == EAGAIN);
		}
	return NULL;
}

/* A thread is cancelled by the next of its calls, though none of them waits. */
static void cancelled(void) {
	struct epoll_event e = {.events = EPOLLIN};
	open_pair();
	CHECK((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
	for (intptr_t how = 0; how < 4; how++) {
		pthread_t t;
		turns = 0;
		CHECK(pthread_create(&t, NULL, hurries, (void *)how) == 0);
		while (turns < 10)
			sched_yield();
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, NULL) == 0);
	}
	close(set);
	close_pair();
}

static void *waits_twice(void *arg) {
	char c;
	struct pollfd p = {.fd = two, .events = POLLIN};
	(void)arg;
	CHECK(read(two, &c, 1) == -1 && errno == EAGAIN && poll(&p, 1, 20) == 0);
	sleeper = gettid();
	CHECK(poll(&p, 1, -1) == 1 && read(two, &c, 1) == 1 && c == 'x');
	return NULL;
}

/* A thread waits for a connection that it has, though the process may open nothing more. */
static void crowded(void) {
	struct rlimit was, none;
	pthread_t t;
	open_pair();
	CHECK(setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = 50000}, sizeof(struct timeval)) == 0);
	int next = dup(0);
	CHECK(close(next) == 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = was;
	none.rlim_cur = (rlim_t)next;
	sleeper = 0;
	CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0 && pthread_create(&t, NULL, waits_twice, NULL) == 0);
	while (!sleeper)
		sched_yield();
	CHECK(write(one, "x", 1) == 1 && pthread_join(t, NULL) == 0 && setrlimit(RLIMIT_NOFILE, &was) == 0);
	close_pair();
}

static int64_t cpu_us(void) {
	struct rusage u;
	CHECK(getrusage(RUSAGE_THREAD, &u) == 0);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * INT64_C(1000000) + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

/* A socket gets another number while it connects. Who sleeps later does not look without end. */
static void renumbered(void) {
	char c;
	int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(connect(s, (struct sockaddr *)&address, sizeof address) == -1 && errno == EINPROGRESS);
	CHECK((one = dup(s)) >= 0 && close(s) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	CHECK(fcntl(one, F_SETFL, 0) == 0);
	talk(two, one);
	talk(one, two);
	CHECK(setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = 300000}, sizeof(struct timeval)) == 0);
	int64_t before = cpu_us();
	CHECK(read(two, &c, 1) == -1 && errno == EAGAIN && cpu_us() - before < 100000);
	close_pair();
}

/* The kernel says when it does not need the memory of a send any more, or that it will not say so. */
/* A host without the module of kernel TLS: what is written would not be encrypted. */
static void layers(void) {
	open_pair();
	if (preloaded) {
		CHECK(setsockopt(one, IPPROTO_TCP, TCP_ULP, "tls", 3) == -1 && errno == ENOENT);
		CHECK(setsockopt(one, IPPROTO_TCP, TCP_ULP, "mptcp", 5) == -1 && errno == ENOENT); /* which hosts have */
	}
	close_pair();
}

static void zerocopy(void) {
	int on = 1;
	char c;
	open_pair();
	CHECK(setsockopt(one, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == (preloaded ? -1 : 0));
	close_pair();
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(setsockopt(one, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	two = accept(listener, NULL, NULL);
	talk(two, one);
	CHECK(send(one, "z", 1, MSG_ZEROCOPY) == 1 && read(two, &c, 1) == 1 && c == 'z');
	struct pollfd p = {.fd = one};
	struct msghdr m = {0};
	CHECK(poll(&p, 1, PATIENCE * 1000) == 1 && p.revents == POLLERR && recvmsg(one, &m, MSG_ERRQUEUE) == 0);
	close_pair();
}

/* --- connections --- */

/* STANDIN_LOST: the daemon took the listener's service back. It is offered again. */
static void again(void) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s/tcp/%d", getenv("EDGE_SOCKET"),
	                 ntohs(address.sin_port));
	struct pollfd p = {.fd = listener, .events = POLLIN};
	for (int err = -1, s; preloaded && err; close(s)) {
		s = socket(AF_UNIX, SOCK_STREAM, 0);
		CHECK(poll(&p, 1, 0) == 0);
		err = connect(s, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
	}
	open_pair();
	close_pair();
}

/* A socket is in a set before it connects, and there is no place for its offer. */
static void no_offer(void) {
	struct epoll_event e = {.events = EPOLLOUT, .data.u64 = 7}, got;
	struct sockaddr_in from = address;
	struct sockaddr_un taken = {.sun_family = AF_UNIX};
	int set = epoll_create1(0), squat = socket(AF_UNIX, SOCK_STREAM, 0);
	one = socket(AF_INET, SOCK_STREAM, 0);
	from.sin_port = 0;
	CHECK(bind(one, (struct sockaddr *)&from, sizeof from) == 0);
	CHECK(getsockname(one, (struct sockaddr *)&from, &(socklen_t){sizeof from}) == 0);
	const char *net = getenv("EDGE_SOCKET"); /* the stand-in's names */
	int n = snprintf(taken.sun_path + 1, sizeof taken.sun_path - 1, "%s/tcp/127.0.0.1:%d>127.0.0.1:%d", net ? net : "",
	                 ntohs(from.sin_port), ntohs(address.sin_port));
	n += (int)offsetof(struct sockaddr_un, sun_path) + 1;
	CHECK(bind(squat, (struct sockaddr *)&taken, (socklen_t)n) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, one, &e) == 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	CHECK(epoll_wait(set, &got, 1, PATIENCE * 1000) == 1 && got.data.u64 == 7 && got.events == EPOLLOUT);
	talk(one, two);
	close(set), close(squat);
	close_pair();
}

static void *take_all(void *l) {
	asleep(sleeper);
	while (accept(*(int *)l, NULL, NULL) >= 0)
		;
	return NULL;
}

static _Atomic bool interrupted;

/* It may sleep in something else at first. */
static void *interrupt(void *arg) {
	for (;;) {
		asleep(sleeper);
		if (interrupted)
			return NULL;
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
	}
}

/* connect after one that a signal interrupted waits for the rest. */
static void connects(void) {
	struct sockaddr_in crowded = address;
	int l = socket(AF_INET, SOCK_STREAM, 0), waits[3];
	pthread_t t;
	crowded.sin_port = 0;
	CHECK(bind(l, (struct sockaddr *)&crowded, sizeof crowded) == 0 && listen(l, 0) == 0);
	CHECK(getsockname(l, (struct sockaddr *)&crowded, &(socklen_t){sizeof crowded}) == 0);
	for (int i = 0; i < 3; i++) {
		waits[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(waits[i], (struct sockaddr *)&crowded, sizeof crowded);
	}
	handler(SIGUSR1, count, 0);
	pthread_t main_thread = pthread_self();
	sleeper = gettid();
	one = socket(AF_INET, SOCK_STREAM, 0);
	pthread_create(&t, NULL, interrupt, &main_thread);
	CHECK(connect(one, (struct sockaddr *)&crowded, sizeof crowded) == -1 && errno == EINTR);
	interrupted = true;
	pthread_join(t, NULL);
	pthread_create(&t, NULL, take_all, &l);
	CHECK(connect(one, (struct sockaddr *)&crowded, sizeof crowded) == 0 && shutdown(l, SHUT_RDWR) == 0);
	pthread_join(t, NULL);
	for (int i = 0; i < 3; i++)
		close(waits[i]);
	close(l), close(one);
}

/* Another process is given a connection that nobody has used. */
static void passes(void) {
	int way[2];
	char c;
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, way) == 0);
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u;
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u};
	pid_t pid = fork();
	if (pid == 0) {
		alarm(PATIENCE);
		CHECK(recvmsg(way[1], &m, 0) == 1);
		memcpy(&two, CMSG_DATA(&u.h), sizeof two);
		CHECK(read(two, &c, 1) == 1 && c == 'q' && write(two, "r", 1) == 1 && streaming(two));
		exit(7);
	}
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	u.h = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof two)};
	memcpy(CMSG_DATA(&u.h), &two, sizeof two);
	CHECK(sendmsg(way[0], &m, 0) == 1 && close(two) == 0);
	CHECK(write(one, "q", 1) == 1 && read(one, &c, 1) == 1 && c == 'r');
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK(read(one, &c, 1) == 0);
	close(one), close(way[0]), close(way[1]);
}

/* A connection is standard input and output of a child, which writes by printf, or of a program, as inetd starts it. */
static void inetd(void) {
	for (int i = 0; i < 2; i++) { /* of a port that fell back it is remembered for a while */
		char b[8] = {0};
		int l = socket(AF_INET, SOCK_STREAM, 0);
		struct sockaddr_in at = address;
		at.sin_port = 0;
		CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 8) == 0);
		CHECK(getsockname(l, (struct sockaddr *)&at, &(socklen_t){sizeof at}) == 0);
		one = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(one, (struct sockaddr *)&at, sizeof at) == 0 && (two = accept(l, NULL, NULL)) >= 0);
		pid_t pid = fork();
		if (pid == 0) {
			close(one), close(l);
			dup2(two, 0), dup2(two, 1), close(two);
			if (i)
				execlp("tr", "tr", "a-z", "A-Z", NULL);
			exit(read(0, b, 3) == 3 && printf("ABC") == 3 ? 0 : 1);
		}
		close(two);
		CHECK(write(one, "abc", 3) == 3 && shutdown(one, SHUT_WR) == 0);
		CHECK(recv(one, b, 8, MSG_WAITALL) == 3 && memcmp(b, "ABC", 3) == 0);
		CHECK(waitpid(pid, NULL, 0) == pid);
		close(one), close(l);
	}
}

/* A program reads, and then makes the connection its standard output. */
static void prints(void) {
	char b[8] = {0};
	int way[2];
	fflush(stdout);
	CHECK(pipe(way) == 0);
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && (two = accept(listener, NULL, NULL)) >= 0);
	pid_t pid = fork();
	if (pid == 0) { /* it has begun to use the connection, whose other side waits for it */
		struct pollfd p = {.fd = two, .events = POLLIN};
		exit(close(one) == 0 && poll(&p, 1, 0) == 0 && write(way[1], "x", 1) == 1 && dup2(two, 1) == 1 &&
		     printf("out") == 3 && fflush(stdout) == 0 && read(two, b, 1) == 0 ? 7 : 1);
	}
	int status;
	CHECK(close(two) == 0 && read(way[0], b, 1) == 1);
	CHECK(recv(one, b, 3, MSG_WAITALL) == 3 && memcmp(b, "out", 3) == 0 && close(one) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	close(way[0]), close(way[1]);

	open_pair();
	int old = dup(1);
	CHECK(dup2(two, 1) == 1 && printf("out") == 3 && fflush(stdout) == 0 && fileno(stdout) == 1);
	CHECK(dup2(old, 1) == 1 && recv(one, b, 3, MSG_WAITALL) == 3 && memcmp(b, "out", 3) == 0);
	CHECK(printf("%s", "") == 0 && fflush(stdout) == 0 && close(old) == 0);
	close_pair();
}

static void *wait_for_a_char(void *f) {
	sleeper = gettid();
	fgetc(f);
	return NULL;
}

/* What is in a FILE when the program ends is sent. It ends, too, while a thread reads by one. */
static void unflushed(void) {
	char b[8];
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			alarm(PATIENCE);
			one = socket(AF_INET, SOCK_STREAM, 0);
			CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && write(one, "a", 1) == 1);
			FILE *f = i == 1 ? dup2(one, 1) == 1 ? stdout : NULL : fdopen(one, "w");
			FILE *in = streaming(one) ? fdopen(dup(one), "r") : NULL;
			sleeper = 0;
			CHECK(i < 2 || pthread_create(&t, NULL, wait_for_a_char, in) == 0);
			while (i == 2 && !sleeper)
				sched_yield();
			if (i == 2)
				asleep(sleeper);
			exit(f && in && fprintf(f, "rest") == 4 ? 7 : 1);
		}
		int status;
		CHECK((two = accept(listener, NULL, NULL)) >= 0 && recv(two, b, 5, MSG_WAITALL) == 5);
		CHECK(memcmp(b, "arest", 5) == 0 && read(two, b, 1) == 0);
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		close(two);
	}
}

/* What was written before a program becomes another one arrives, and so does the end that it said. */
static void execs(void) {
	static char much[300000];
	for (int i = 0; i < 8; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			char c, *argv[] = {"true", NULL}, *env[] = {NULL};
			one = socket(AF_INET, SOCK_STREAM, 0);
			CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0 && write(one, "a", 1) == 1);
			CHECK(read(one, &c, 1) == 1 && write(one, much, sizeof much) == sizeof much && close(one) == 0);
			CHECK(execl("/none", "none", NULL) == -1 && errno == ENOENT);
			switch (i) {
			case 0: execl("/bin/true", "true", NULL); break;
			case 1: execlp("true", "true", NULL); break;
			case 2: execle("/bin/true", "true", "1", NULL, env); break;
			case 3: execv("/bin/true", argv); break;
			case 4: execvp("true", argv); break;
			case 5: execve("/bin/true", argv, env); break;
			case 6: execvpe("true", argv, env); break;
			default: fexecve(open("/bin/true", O_RDONLY | O_CLOEXEC), argv, env);
			}
			_exit(1);
		}
		char b[4096];
		size_t got = 0;
		ssize_t n;
		int status;
		CHECK((two = accept(listener, NULL, NULL)) >= 0 && read(two, b, 1) == 1 && write(two, "b", 1) == 1);
		while ((n = read(two, b, sizeof b)) > 0)
			got += (size_t)n;
		CHECK(n == 0 && got == sizeof much && close(two) == 0);
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

int main(int argc, char **argv) {
	const struct test tests[] = {
		{"rests", rests}, {"peeks", peeks}, {"library", library}, {"parts", parts}, {"times", times},
		{"errors", errors}, {"cancelled", cancelled}, {"crowded", crowded}, {"renumbered", renumbered},
		{"zerocopy", zerocopy}, {"layers", layers}, {"again", again}, {"no offer", no_offer}, {"connects", connects},
		{"passes", passes}, {"inetd", inetd}, {"prints", prints}, {"unflushed", unflushed}, {"execs", execs},
	};
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
