/* The calls of sockets, one by one, on two ends of a stream in one process. Run it under edge-run. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *test;
static int listener, one, two; /* ends of a connection */
static struct sockaddr_in address;

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL %s: line %d: %s (%s)\n", test, __LINE__, #x, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static bool streaming(int fd) {
	struct tcp_info i = {0};
	socklen_t n = sizeof i;
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &n) == 0 && i.tcpi_bytes_sent == 0 && i.tcpi_bytes_received == 0;
}

static void open_pair(void) {
	one = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	two = accept(listener, NULL, NULL);
	CHECK(two >= 0);
}

/* What arrives is what was sent, and on the stream. */
static void talk(int from, int to) {
	char b[16] = {0};
	CHECK(write(from, "hello", 5) == 5);
	CHECK(recv(to, b, 5, MSG_WAITALL) == 5 && memcmp(b, "hello", 5) == 0);
}

static void used_pair(void) {
	open_pair();
	talk(two, one);
	talk(one, two);
	CHECK(streaming(one) && streaming(two));
}

static void names(void) {
	used_pair();
	struct sockaddr_in a, b;
	socklen_t n = sizeof a;
	CHECK(getpeername(one, (struct sockaddr *)&a, &n) == 0 && a.sin_port == address.sin_port);
	CHECK(getsockname(one, (struct sockaddr *)&a, &n) == 0 && getpeername(two, (struct sockaddr *)&b, &n) == 0);
	CHECK(a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr);
}

static void flags(void) {
	char b[16];
	int n;
	used_pair();
	CHECK(recv(two, b, 16, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(write(one, "abcdef", 6) == 6);
	CHECK(recv(two, b, 3, MSG_PEEK) == 3 && memcmp(b, "abc", 3) == 0);
	CHECK(ioctl(two, FIONREAD, &n) == 0 && n == 6);
	CHECK(recv(two, b, 4, MSG_WAITALL) == 4 && memcmp(b, "abcd", 4) == 0);
	CHECK(recv(two, NULL, 1, MSG_TRUNC) == 1);
	CHECK(read(two, b, 16) == 1 && b[0] == 'f');
	CHECK(send(one, "x", 1, MSG_OOB) == -1 && recv(one, b, 1, MSG_OOB) == -1);
	CHECK(fcntl(two, F_SETFL, O_NONBLOCK) == 0 && read(two, b, 1) == -1 && errno == EAGAIN);
	CHECK(ioctl(two, FIONBIO, &(int){0}) == 0);
	struct timeval t = {.tv_usec = 50000};
	CHECK(setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
	CHECK(read(two, b, 1) == -1 && errno == EAGAIN);
	CHECK(getsockopt(two, SOL_SOCKET, SO_ERROR, &n, &(socklen_t){sizeof n}) == 0 && n == 0);
}

static void send_timeout(void) {
	static char much[8 << 20];
	used_pair();
	struct timeval t = {.tv_usec = 50000};
	CHECK(setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0);
	ssize_t n = write(one, much, sizeof much);
	CHECK(n > 0 && n < (ssize_t)sizeof much);
	CHECK(write(one, much, sizeof much) == -1 && errno == EAGAIN);
	struct pollfd p = {.fd = one, .events = POLLOUT};
	CHECK(poll(&p, 1, 0) == 0);
}

static void half_close(void) {
	char b[16];
	used_pair();
	signal(SIGPIPE, SIG_IGN);
	CHECK(write(one, "last", 4) == 4 && shutdown(one, SHUT_WR) == 0);
	CHECK(write(one, "x", 1) == -1 && errno == EPIPE);
	CHECK(recv(two, b, 16, MSG_WAITALL) == 4 && read(two, b, 16) == 0);
	struct pollfd p = {.fd = two, .events = POLLIN | POLLOUT | POLLRDHUP};
	CHECK(poll(&p, 1, 1000) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP));
	talk(two, one);
	CHECK(close(two) == 0 && read(one, b, 1) == 0);
	two = -1;
}

static void duplicates(void) {
	used_pair();
	int d = dup(one), e = fcntl(one, F_DUPFD_CLOEXEC, 50), f = open("/dev/null", O_RDONLY);
	CHECK(d >= 0 && e >= 50 && dup2(one, f) == f);
	CHECK(close(one) == 0 && close(d) == 0 && close(e) == 0);
	talk(f, two);
	talk(two, f);
	CHECK(streaming(f));
	CHECK(dup2(two, f) == f); /* ends the other side */
	char c;
	CHECK(read(two, &c, 1) == 0);
	close(f);
	one = -1;
}

static void epoll_rules(void) {
	used_pair();
	int ep = epoll_create1(0), pipes[2];
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 7}, got[4];
	CHECK(pipe(pipes) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, one, &e) == -1 && errno == ENOENT);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, one, &e) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, one, &e) == -1 && errno == EEXIST);
	CHECK(epoll_wait(ep, got, 4, 0) == 0);
	e.data.u64 = 8;
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &e) == 0);
	CHECK(write(pipes[1], "p", 1) == 1);
	CHECK(epoll_wait(ep, got, 4, 1000) == 1 && got[0].data.u64 == 8);
	CHECK(write(two, "s", 1) == 1);
	int seen = 0; /* level triggered: both stay, and neither starves */
	for (int i = 0; i < 40 && seen != 3; i++)
		for (int k = epoll_wait(ep, got, 1, 1000); k-- > 0;)
			seen |= got[k].data.u64 == 7 ? 1 : 2;
	CHECK(seen == 3);
	e = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 9};
	CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, pipes[0], NULL) == 0 && epoll_ctl(ep, EPOLL_CTL_MOD, one, &e) == 0);
	CHECK(epoll_wait(ep, got, 4, 1000) == 1 && got[0].data.u64 == 9 && epoll_wait(ep, got, 4, 20) == 0);
	CHECK(write(two, "t", 1) == 1 && epoll_wait(ep, got, 4, 1000) == 1);
	e.events = EPOLLIN | EPOLLONESHOT;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, one, &e) == 0 && epoll_wait(ep, got, 4, 1000) == 1);
	CHECK(write(two, "u", 1) == 1 && epoll_wait(ep, got, 4, 20) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, one, &e) == 0 && close(one) == 0 && epoll_wait(ep, got, 4, 20) == 0);
	one = -1;
	close(pipes[0]), close(pipes[1]), close(ep);
}

static void files(void) {
	char b[1000];
	used_pair();
	FILE *f = tmpfile();
	for (int i = 0; i < 1000; i++)
		fputc(i % 251, f);
	fflush(f);
	off_t at = 100;
	CHECK(sendfile(one, fileno(f), &at, 500) == 500 && at == 600);
	CHECK(recv(two, b, 500, MSG_WAITALL) == 500);
	for (int i = 0; i < 500; i++)
		CHECK((unsigned char)b[i] == (i + 100) % 251);
	at = 900;
	CHECK(sendfile(one, fileno(f), &at, 500) == 100 && at == 1000 && sendfile(one, fileno(f), &at, 500) == 0);
	CHECK(recv(two, b, 100, MSG_WAITALL) == 100 && (unsigned char)b[99] == 999 % 251);
	CHECK(lseek(fileno(f), 700, SEEK_SET) == 700 && sendfile(one, fileno(f), NULL, 50) == 50);
	CHECK(lseek(fileno(f), 0, SEEK_CUR) == 750 && recv(two, b, 50, MSG_WAITALL) == 50);
	while (send(one, b, sizeof b, MSG_DONTWAIT) > 0)
		;
	CHECK(lseek(fileno(f), 1000, SEEK_SET) == 1000 && sendfile(one, fileno(f), NULL, 50) == 0); /* no room: no wait */
	while (recv(two, b, sizeof b, MSG_DONTWAIT) > 0)
		;
	int folder = open("/", O_RDONLY | O_DIRECTORY);
	at = 0;
	CHECK(sendfile(one, folder, &at, 10) == -1 && errno == EISDIR && at == 0 && close(folder) == 0);
	int pipes[2];
	CHECK(pipe(pipes) == 0 && splice(one, NULL, pipes[1], NULL, 10, 0) == -1 && errno == EINVAL);
	close(pipes[0]), close(pipes[1]), fclose(f);
	FILE *in = fdopen(two, "r");
	CHECK(write(one, "a line\n", 7) == 7 && fgets(b, sizeof b, in) && strcmp(b, "a line\n") == 0);
	fclose(in);
	two = -1;
}

static int child_status(pid_t pid) {
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A child has the streams of its parent, too; a socket that nobody used goes to the child that does. */
static void forks(void) {
	char c;
	used_pair();
	pid_t pid = fork();
	if (pid == 0)
		_exit(write(one, "x", 1) == 1 && read(two, &c, 1) == 1 ? 7 : 1);
	CHECK(child_status(pid) == 7);
	talk(one, two);
	if ((pid = vfork()) == 0) { /* as those do that start programs */
		close(one);
		close_range(3, ~0u, 0);
		_exit(7);
	}
	CHECK(child_status(pid) == 7);
	talk(two, one);
	CHECK(streaming(one));
	close(one), close(two);
	open_pair();
	if ((pid = fork()) == 0) {
		close(one);
		CHECK(read(two, &c, 1) == 1 && c == 'q' && write(two, "r", 1) == 1);
		exit(streaming(two) ? 7 : 1);
	}
	close(two);
	two = -1;
	CHECK(write(one, "q", 1) == 1 && read(one, &c, 1) == 1 && c == 'r');
	CHECK(child_status(pid) == 7 && read(one, &c, 1) == 0);
}

static void execs(const char *self) {
	char c, number[16];
	open_pair();
	snprintf(number, sizeof number, "%d", two);
	pid_t pid = fork();
	if (pid == 0) {
		execl(self, self, "exec", number, NULL);
		_exit(1);
	}
	close(two);
	two = -1;
	CHECK(write(one, "q", 1) == 1 && read(one, &c, 1) == 1 && c == 'r');
	CHECK(child_status(pid) == 7);
}

static int executed(int fd) {
	char c;
	CHECK(read(fd, &c, 1) == 1 && c == 'q' && write(fd, "r", 1) == 1);
	return streaming(fd) ? 7 : 1;
}

/* Without descriptors for an offer the connection is made over TCP. */
static void no_descriptors(void) {
	struct rlimit old, few;
	CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
	one = socket(AF_INET, SOCK_STREAM, 0);
	int top = dup(0);
	close(top);
	few = (struct rlimit){.rlim_cur = (rlim_t)top, .rlim_max = old.rlim_max};
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
	two = accept(listener, NULL, NULL);
	talk(one, two);
	talk(two, one);
	CHECK(!streaming(one));
}

/* An offer is withdrawn when nobody listens. */
static void refused_port(void) {
	one = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = address;
	a.sin_port = htons(1);
	CHECK(connect(one, (struct sockaddr *)&a, sizeof a) == -1 && errno == ECONNREFUSED);
}

static void nonblocking_connect(void) {
	one = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int r = connect(one, (struct sockaddr *)&address, sizeof address), err = 1;
	CHECK(r == 0 || errno == EINPROGRESS);
	two = accept(listener, NULL, NULL);
	struct pollfd p[2] = {{.fd = one, .events = POLLOUT}, {.fd = two, .events = POLLIN}};
	CHECK(poll(p, 2, 2000) == 1 && p[0].revents == POLLOUT);
	CHECK(getsockopt(one, SOL_SOCKET, SO_ERROR, &err, &(socklen_t){sizeof err}) == 0 && err == 0);
	talk(one, two);
	CHECK(streaming(one));
}

int main(int argc, char **argv) {
	if (argc == 3 && !strcmp(argv[1], "exec"))
		return executed(atoi(argv[2]));
	setvbuf(stdout, NULL, _IONBF, 0);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	test = "listen";
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &(socklen_t){sizeof address}) == 0);
	const struct { const char *name; void (*run)(void); } tests[] = {
		{"names", names}, {"flags", flags}, {"send timeout", send_timeout}, {"half close", half_close},
		{"duplicates", duplicates}, {"epoll", epoll_rules}, {"files", files}, {"forks", forks},
		{"refused port", refused_port}, {"non-blocking connect", nonblocking_connect},
		{"no descriptors", no_descriptors},
	};
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		test = tests[i].name;
		one = two = -1;
		tests[i].run();
		close(one);
		close(two);
	}
	test = "exec";
	execs(argv[0]);
	close(one);
	printf("unit: ok\n");
	return 0;
}
