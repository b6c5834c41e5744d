/*
 * sockets TEST ADDRESS: what one program shows of rsockets at an address of its own host: fork, close. Each is
 * described at its function.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#include "ends.h"

enum { PORT = 7471 };

static struct sockaddr_in at = { .sin_family = AF_INET };

static int listens(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && rbind(fd, (struct sockaddr *)&at, sizeof at) == 0 && rlisten(fd, 1) == 0, "rlisten: %s",
	      strerror(errno));
	return fd;
}

/* A child of a program that has rsockets makes its own, and connects to its parent. */
static int forks(void)
{
	char said[6] = "";
	int listener = listens();
	pid_t pid = fork();
	if (pid == 0) {
		int fd = rsocket(AF_INET, SOCK_STREAM, 0);
		_exit(fd < 0 || rconnect(fd, (struct sockaddr *)&at, sizeof at) != 0 || rsend(fd, "child", 6, 0) != 6 ||
		      rrecv(fd, said, sizeof said, MSG_WAITALL) != 6 || strcmp(said, "child") != 0 || rclose(fd) != 0);
	}
	int fd = raccept(listener, NULL, NULL), status;
	CHECK(fd >= 0 && rrecv(fd, said, sizeof said, MSG_WAITALL) == 6 && rsend(fd, said, 6, 0) == 6, "the child says %s",
	      said);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child");
	CHECK(rclose(fd) == 0 && rclose(listener) == 0, "rclose");
	puts("fork: ok");
	return 0;
}

struct accepting { int listener, got, err; _Atomic int tid; };

static void *accepts(void *arg)
{
	struct accepting *a = arg;
	a->tid = (int)syscall(SYS_gettid);
	a->got = raccept(a->listener, NULL, NULL);
	a->err = errno;
	return NULL;
}

/* Whether a thread sleeps. */
static bool sleeps(int tid)
{
	char path[64], state = 0;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	FILE *f = fopen(path, "re");
	bool read = f != NULL && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
	if (f != NULL)
		fclose(f);
	return read && state == 'S';
}

/* rclose while another thread is in raccept: that returns, and the port is free. */
static int closes(void)
{
	struct accepting a = { .listener = listens() };
	pthread_t t;
	CHECK(pthread_create(&t, NULL, accepts, &a) == 0, "no thread");
	while (a.tid == 0 || !sleeps(a.tid))
		sched_yield();
	CHECK(rclose(a.listener) == 0 && pthread_join(t, NULL) == 0, "rclose");
	CHECK(a.got < 0 && a.err == EBADF, "raccept: %d, %s", a.got, strerror(a.err));
	CHECK(rclose(listens()) == 0, "rclose");
	puts("close: ok");
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	at.sin_port = htons(PORT);
	if (argc == 3 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1 && strcmp(argv[1], "fork") == 0)
		return forks();
	if (argc == 3 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1 && strcmp(argv[1], "close") == 0)
		return closes();
	fprintf(stderr, "usage: sockets fork | close ADDRESS\n");
	return 2;
}
