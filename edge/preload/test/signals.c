/* What handlers of signals do to calls, and in which they come: over TCP, and over streams. */
#include "tcp.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* siginterrupt */

static pthread_t main_thread;

/* Interrupts the main thread in its call, and lets it go on. */
static void *interrupt(void *go_on) {
	asleep(sleeper);
	handled = 0;
	pthread_kill(main_thread, SIGUSR1);
	while (handled == 0)
		sched_yield();
	asleep(sleeper);
	((void (*)(void))go_on)();
	return NULL;
}

static void send_one(void) { CHECK(write(one, "x", 1) == 1); }
static void connect_one(void) {
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
}
static void nothing(void) {}

static pthread_t later(void (*go_on)(void)) {
	pthread_t t;
	main_thread = pthread_self();
	sleeper = gettid();
	CHECK(pthread_create(&t, NULL, interrupt, (void *)go_on) == 0);
	return t;
}

/* SA_RESTART has calls without a time-out go on, and no others. */
static void restarts(void) {
	char c;
	pthread_t t;
	open_pair();
	for (int i = 0; i < 10; i++) {
		handler(SIGUSR1, count, SA_RESTART);
		t = later(send_one);
		CHECK(read(two, &c, 1) == 1 && handled == 1);
		pthread_join(t, NULL);
		int old = one;
		t = later(connect_one);
		int made = accept(listener, NULL, NULL);
		CHECK(made >= 0 && handled == 1);
		pthread_join(t, NULL);
		close(made), close(one);
		one = old;

		if (i % 2)
			handler(SIGUSR1, count, 0);
		else
			CHECK(siginterrupt(SIGUSR1, 1) == 0);
		pthread_create(&t, NULL, interrupt, (void *)nothing);
		CHECK(read(two, &c, 1) == -1 && errno == EINTR);
		pthread_join(t, NULL);
	}
	close_pair();
}

/* Changes the identity of all threads while one sleeps, and lets it go on. */
static void *become(void *go_on) {
	gid_t none;
	asleep(sleeper);
	CHECK(initgroups("root", getegid()) == 0 || errno == EPERM);
	asleep(sleeper);
	CHECK(setuid(getuid()) == 0 && setresgid(-1, -1, -1) == 0 && setregid(-1, getegid()) == 0);
	CHECK(setgroups(0, &none) == 0 || errno == EPERM);
	asleep(sleeper);
	((void (*)(void))go_on)();
	return NULL;
}

/* Calls go on after the signal that the C library has for that, but poll does not. */
static void identities(void) {
	char c;
	pthread_t t;
	open_pair();
	sleeper = gettid();
	for (int i = 0; i < 10; i++) {
		CHECK(pthread_create(&t, NULL, become, (void *)send_one) == 0 && read(two, &c, 1) == 1);
		pthread_join(t, NULL);
		int old = one, made;
		CHECK(pthread_create(&t, NULL, become, (void *)connect_one) == 0 && (made = accept(listener, NULL, NULL)) >= 0);
		pthread_join(t, NULL);
		close(made), close(one);
		one = old;
		struct pollfd p = {.fd = two, .events = POLLIN};
		CHECK(pthread_create(&t, NULL, become, (void *)nothing) == 0 && poll(&p, 1, -1) == -1 && errno == EINTR);
		pthread_join(t, NULL);
	}
	close_pair();
}

static _Atomic int wrong; /* a line */

#define EXPECT(x) (void)((x) || (wrong = __LINE__))

/* Uses a connection in all ways. */
static void converse(int n) {
	char c;
	int left = -1, err = -1;
	struct pollfd p[2] = {{.fd = three, .events = POLLIN}, {.fd = four, .events = POLLOUT}};
	fd_set set;
	(void)n;
	EXPECT(poll(p, 2, -1) == 1 && p[1].revents == POLLOUT);
	EXPECT(write(four, "h", 1) == 1 && poll(p, 1, -1) == 1 && p[0].revents == POLLIN);
	FD_ZERO(&set);
	FD_SET(three, &set);
	EXPECT(select(three + 1, &set, NULL, NULL, NULL) == 1);
	EXPECT(ioctl(three, FIONREAD, &left) == 0 && left == 1 && read(three, &c, 1) == 1 && c == 'h');
	EXPECT(getsockopt(three, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err}) == 0 && err == 0);
	int copy = dup(four);
	EXPECT(write(copy, "i", 1) == 1 && read(three, &c, 1) == 1 && c == 'i' && close(copy) == 0);
	handled++;
}

/* A handler calls what it likes, wherever it interrupts the program. */
static void in_handlers(void) {
	open_pair();
	new_pair(&three, &four);
	handler(SIGALRM, converse, SA_RESTART);
	handled = wrong = 0;
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 200, .it_interval.tv_usec = 200}, NULL);
	while (handled < 500 && !wrong) {
		talk(one, two);
		talk(two, one);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	if (wrong)
		printf("in the handler: line %d\n", wrong);
	CHECK(!wrong);
	close(three), close(four);
	close_pair();
}

static sigjmp_buf back;
static void jump(int n) {
	handled++;
	siglongjmp(back, n);
}

/* A handler ends a call that does not wait. The thread can be cancelled as before. */
static void jumps(void) {
	char c;
	int state;
	open_pair();
	fcntl(two, F_SETFL, O_NONBLOCK);
	handler(SIGALRM, jump, 0);
	for (volatile int i = 0; i < 500; i++) {
		if (sigsetjmp(back, 1) == 0) {
			setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 100 + i % 10 * 10}, NULL);
			for (struct pollfd p = {.fd = two, .events = POLLIN};;) {
				poll(&p, 1, 0);
				recv(two, &c, 1, 0);
			}
		}
		CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 && state == PTHREAD_CANCEL_ENABLE);
		CHECK(write(one, "x", 1) == 1);
		for (struct pollfd p = {.fd = two, .events = POLLIN}; recv(two, &c, 1, 0) != 1;)
			CHECK(errno == EAGAIN && poll(&p, 1, PATIENCE * 1000) == 1);
		talk(two, one);
	}
	close_pair();
}

static int set;

static void wait_in_vain(int how) {
	char c;
	struct epoll_event e;
	struct pollfd p[80]; /* so many that the library's part of them is not on the stack */
	for (int i = 0; i < 80; i++)
		p[i] = (struct pollfd){.fd = two, .events = POLLIN};
	switch (how) {
	case 0: CHECK(read(two, &c, 1) < 0); break;
	case 1: CHECK(poll(p, 2, -1) < 0); break;
	case 2: CHECK(poll(p, 80, -1) < 0); break;
	case 3: CHECK(epoll_wait(set, &e, 1, -1) < 0); break;
	default: CHECK(accept(listener, NULL, NULL) < 0);
	}
}

/* A handler that waits, too. */
static void wait_here(int n) {
	handled++;
	wait_in_vain(n == SIGUSR1 ? 1 : 0);
}

static void interrupt_again(void) { pthread_kill(main_thread, SIGUSR2); }

static void *waits_for_byte_of(void *fd) {
	char c;
	CHECK(read(*(int *)fd, &c, 1) == 1);
	return NULL;
}

/* A stack for handlers, with 4 KiB beyond what the kernel needs. */
static void little_stack(void) {
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
	size_t size = (room + page - 1) / page * page;
	char *p = mmap(NULL, page + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p + page, size, PROT_READ | PROT_WRITE) == 0);
	CHECK(sigaltstack(&(stack_t){.ss_sp = p + page, .ss_size = room}, NULL) == 0);
}

/* A handler jumps out of a call that waits, or out of two, one in the other's handler. Another thread waits as well. */
static void leaves(void) {
	static pthread_t t, other;
	char c;
	new_pair(&three, &four);
	CHECK(pthread_create(&other, NULL, waits_for_byte_of, &four) == 0);
	little_stack();
	handler(SIGUSR2, jump, 0);
	for (volatile int i = 0; i < 40; i++) {
		struct epoll_event e = {.events = EPOLLIN}, got;
		open_pair();
		CHECK((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
		handler(SIGUSR1, i % 2 ? wait_here : jump, i % 2 ? 0 : SA_ONSTACK);
		if (sigsetjmp(back, 1) == 0) {
			t = later(i % 2 ? interrupt_again : nothing);
			wait_in_vain(i / 2 % 5);
		}
		pthread_join(t, NULL);
		talk(one, two); /* on the same stack */
		CHECK(write(one, "x", 1) == 1 && epoll_wait(set, &got, 1, -1) == 1 && read(two, &c, 1) == 1);
		CHECK(close(set) == 0 && close(two) == 0 && read(one, &c, 1) == 0 && close(one) == 0);
	}
	CHECK(write(three, "x", 1) == 1 && pthread_join(other, NULL) == 0 && close(three) == 0 && close(four) == 0);
	CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
}

static _Atomic long sum;
static void add(int n, siginfo_t *info, void *context) {
	(void)n, (void)context;
	sum += info->si_value.sival_int;
}

static void *queue(void *arg) {
	(void)arg;
	for (int i = 1; i <= 2000; i++)
		while (pthread_sigqueue(main_thread, SIGRTMIN + 1, (union sigval){.sival_int = i}))
			sched_yield();
	sum++;
	return NULL;
}

/* No signal is lost, nor what came with it. */
static void queued(void) {
	pthread_t t;
	open_pair();
	sum = 0;
	main_thread = pthread_self();
	struct sigaction a = {.sa_sigaction = add, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
	CHECK(sigaction(SIGRTMIN + 1, &a, NULL) == 0);
	pthread_create(&t, NULL, queue, NULL);
	while (sum < 2000L * 2001 / 2 + 1)
		talk(one, two);
	pthread_join(t, NULL);
	CHECK(sum == 2000L * 2001 / 2 + 1);
	close_pair();
}

/* What is set is read back, whoever set it. */
static void actions(void) {
	struct sigaction a;
	handler(SIGUSR2, count, SA_RESTART | SA_NODEFER);
	CHECK(sigaction(SIGUSR2, NULL, &a) == 0 && a.sa_handler == count);
	CHECK((a.sa_flags & SA_NODEFER) && !(a.sa_flags & SA_SIGINFO));
	CHECK(signal(SIGUSR2, jump) == count && signal(SIGUSR2, SIG_IGN) == jump && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
	struct sigaction b = {.sa_sigaction = add, .sa_flags = SA_SIGINFO}, none = {.sa_handler = SIG_DFL};
	CHECK(sigaction(SIGUSR2, &b, &a) == 0 && a.sa_handler == SIG_DFL);
	CHECK(sigaction(SIGUSR2, &none, &a) == 0 && a.sa_sigaction == add && a.sa_flags & SA_SIGINFO);
	handler(SIGUSR2, count, SA_RESETHAND);
	handled = 0;
	CHECK(raise(SIGUSR2) == 0 && handled == 1 && sigaction(SIGUSR2, NULL, &a) == 0 && a.sa_handler == SIG_DFL);
	handler(SIGUSR2, count, 0);
	pid_t pid = vfork();
	if (pid == 0) { /* as those do that start programs */
		signal(SIGUSR2, SIG_DFL);
		signal(SIGUSR2, jump);
		_exit(0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid && raise(SIGUSR2) == 0 && handled == 2);
}

static void say_so(int n) {
	(void)n;
	EXPECT(write(four, "p", 1) == 1);
	errno = 0;
}

/* SIGPIPE comes outside of the call that fails. */
static void pipes(void) {
	char c;
	wrong = 0;
	open_pair();
	new_pair(&three, &four);
	handler(SIGPIPE, say_so, 0);
	CHECK(shutdown(one, SHUT_WR) == 0 && write(one, "x", 1) == -1 && errno == EPIPE && !wrong);
	CHECK(read(three, &c, 1) == 1 && c == 'p');
	handler(SIGPIPE, count, SA_RESETHAND);
	handled = 0;
	CHECK(write(one, "x", 1) == -1 && errno == EPIPE && handled == 1);
	signal(SIGPIPE, SIG_IGN);
	close(three), close(four);
	close_pair();
}

/* --- handlers in whose time other threads go on --- */

static int order[2], told[2]; /* to the process that writes; to the handler */
static pthread_t sleepers[2];
static _Atomic pid_t tids[2];

static void until_told(int n) {
	char c;
	(void)n;
	EXPECT(read(told[0], &c, 1) == 1);
	handled++;
}

/* The first thread is in a handler until the second one has what it waits for. */
static void *waits_for_byte(void *arg) {
	int i = (int)(intptr_t)arg;
	char c;
	tids[i] = gettid();
	CHECK(read(i ? four : two, &c, 1) == 1);
	CHECK(i == 0 || write(told[1], &c, 1) == 1);
	return NULL;
}

static void begin_sleeper(int i) {
	tids[i] = 0;
	CHECK(pthread_create(&sleepers[i], NULL, waits_for_byte, (void *)(intptr_t)i) == 0);
	while (!tids[i])
		sched_yield();
	asleep(tids[i]);
}

/* A thread that sleeps is in a handler for long: others that sleep wake nevertheless. */
static void takes_time(void) {
	char c;
	CHECK(pipe(order) == 0 && pipe(told) == 0);
	pid_t pid = fork();
	if (pid == 0) { /* in this process calls that write would look for what comes */
		int to[2];
		close(order[1]);
		for (int i = 0; i < 2; i++) {
			to[i] = socket(AF_INET, SOCK_STREAM, 0);
			CHECK(connect(to[i], (struct sockaddr *)&address, sizeof address) == 0 && write(to[i], "x", 1) == 1);
		}
		while (read(order[0], &c, 1) == 1)
			CHECK(write(to[(int)c], "x", 1) == 1);
		_exit(0);
	}
	CHECK((two = accept(listener, NULL, NULL)) >= 0 && read(two, &c, 1) == 1 && streaming(two));
	CHECK((four = accept(listener, NULL, NULL)) >= 0 && read(four, &c, 1) == 1 && streaming(four));
	handler(SIGUSR1, until_told, SA_RESTART);
	wrong = 0;
	for (int i = 0; i < 20; i++) {
		begin_sleeper(i % 2);
		begin_sleeper(!(i % 2));
		handled = 0;
		pthread_kill(sleepers[0], SIGUSR1);
		asleep(tids[0]);
		CHECK(write(order[1], &(char){1}, 1) == 1 && pthread_join(sleepers[1], NULL) == 0);
		CHECK(write(order[1], &(char){0}, 1) == 1 && pthread_join(sleepers[0], NULL) == 0 && handled == 1 && !wrong);
	}
	for (int i = 0; i < 2; i++)
		close(told[i]), close(order[i]);
	CHECK(waitpid(pid, NULL, 0) == pid);
	close(two), close(four);
}

static void fork_here(int n) {
	(void)n;
	handled = fork() == 0 ? 2 : 1;
}

static void *wake_one(void *arg) {
	asleep(sleeper);
	CHECK(write(*(int *)arg, "x", 1) == 1);
	return NULL;
}

/* A handler forks while its thread sleeps; the child returns from it, and has connections of its own. */
static void forks(void) {
	char c, b[2];
	handler(SIGUSR1, fork_here, 0);
	for (int i = 0; i < 10; i++) {
		pthread_t t;
		struct pollfd p[2];
		int status;
		set = epoll_create1(0);
		open_pair();
		p[0] = p[1] = (struct pollfd){.fd = two, .events = POLLIN};
		struct epoll_event e = {.events = EPOLLIN};
		CHECK(epoll_ctl(set, EPOLL_CTL_ADD, two, &e) == 0);
		pid_t parent = getpid();
		t = later(nothing);
		int r = i % 4 == 0   ? (int)read(two, &c, 1)
		        : i % 4 == 1 ? poll(p, 2, -1)
		        : i % 4 == 2 ? epoll_wait(set, &e, 1, -1)
		                     : (int)recv(two, b, 2, MSG_PEEK | MSG_WAITALL);
		bool child = getpid() != parent;
		CHECK(handled == 1 + child && (child || (r == -1 && errno == EINTR)));
		if (child) { /* streams are the parent's */
			close(set);
			close_pair();
			alarm(PATIENCE);
			close(listener);
			listen_anew();
			for (int k = 0; k < 3; k++) {
				open_pair();
				sleeper = gettid();
				CHECK(pthread_create(&t, NULL, wake_one, &one) == 0 && read(two, &c, 1) == 1 && c == 'x');
				pthread_join(t, NULL);
				close_pair();
			}
			_exit(7);
		}
		pthread_join(t, NULL);
		CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		talk(one, two);
		close(set);
		close_pair();
	}
}

static void *speaks(void *arg) {
	for (bool first = arg != NULL;; sum++)
		talk(first ? one : three, first ? two : four);
	return NULL;
}

/* The process ends while its threads are busy: well. */
static void ends(void) {
	sum = 0;
	for (int i = 0; i < 15; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			alarm(PATIENCE);
			close(listener);
			listen_anew();
			open_pair();
			new_pair(&three, &four);
			CHECK(pthread_create(&t, NULL, speaks, NULL) == 0 && pthread_create(&t, NULL, speaks, &one) == 0);
			while (sum < i)
				sched_yield();
			exit(7);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
}

int main(int argc, char **argv) {
	const struct test tests[] = {
		{"restarts", restarts}, {"identities", identities}, {"in handlers", in_handlers}, {"jumps", jumps},
		{"leaves", leaves}, {"queued", queued}, {"actions", actions}, {"pipes", pipes}, {"takes time", takes_time},
		{"forks", forks}, {"ends", ends},
	};
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
