/*
 * sockets TEST ADDRESS: what one program shows of rsockets at an address of its own host: fork, close, map. Each is
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

/* Two connected sockets. */
static void connected(int listener, int pair[2])
{
	pair[0] = rsocket(AF_INET, SOCK_STREAM, 0);
	int entries = 4;
	CHECK(pair[0] >= 0 && rsetsockopt(pair[0], SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0 &&
	      rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0, "RDMA_IOMAPSIZE");
	CHECK(rconnect(pair[0], (struct sockaddr *)&at, sizeof at) == 0, "rconnect: %s", strerror(errno));
	pair[1] = raccept(listener, NULL, NULL);
	CHECK(pair[1] >= 0, "raccept: %s", strerror(errno));
}

/* Says a byte, and hears it at the other end. */
static void passes(int from, int to)
{
	char said = 'x', heard = 0;
	CHECK(rsend(from, &said, 1, 0) == 1 && rrecv(to, &heard, 1, MSG_WAITALL) == 1 && heard == said, "no byte passes: %s", strerror(errno));
}

/* A child of a program that has rsockets makes its own, and connects to its parent; it has none of the parent's, which
 * go on. */
static int forks(void)
{
	char said[6] = "";
	int listener = listens(), pair[2];
	connected(listener, pair);
	pid_t pid = fork();
	if (pid == 0) {
		struct pollfd p = { .fd = pair[0], .events = POLLIN };
		if (rrecv(pair[1], said, 1, MSG_DONTWAIT) != -1 || errno != EBADF || rsend(pair[0], said, 1, 0) != -1 ||
		    errno != EBADF || rclose(pair[0]) != -1 || errno != EBADF || rpoll(&p, 1, -1) != 1 || p.revents != POLLNVAL)
			_exit(2);
		int fd = rsocket(AF_INET, SOCK_STREAM, 0);
		_exit(fd < 0 || rconnect(fd, (struct sockaddr *)&at, sizeof at) != 0 || rsend(fd, "child", 6, 0) != 6 ||
		      rrecv(fd, said, sizeof said, MSG_WAITALL) != 6 || strcmp(said, "child") != 0 || rclose(fd) != 0);
	}
	int fd = raccept(listener, NULL, NULL), status;
	CHECK(fd >= 0 && rrecv(fd, said, sizeof said, MSG_WAITALL) == 6 && rsend(fd, said, 6, 0) == 6, "the child says %s",
	      said);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: %#x", status);
	passes(pair[0], pair[1]);
	passes(pair[1], pair[0]);
	CHECK(rclose(fd) == 0 && rclose(pair[0]) == 0 && rclose(pair[1]) == 0 && rclose(listener) == 0, "rclose");
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

static bool is_all(const char *p, size_t n, char c)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != c)
			return false;
	return true;
}

/* Writes into memory that the other end has mapped. Who has received what was sent after a mapping, or after its end, or
 * after a write, finds it so: a later mapping at the same offset gets none of what is written to it into the earlier. */
static int maps(void)
{
	enum { SIZE = 300000, OFFSET = 1 << 20, ROUNDS = 8 };
	int listener = listens(), pair[2];
	connected(listener, pair);
	char *bytes = malloc(SIZE), *taken[2] = { malloc(SIZE), malloc(SIZE) };
	CHECK(riowrite(pair[0], bytes, 1, OFFSET, 0) == (size_t)-1 && errno == EINVAL, "a write to nothing");
	CHECK(riomap(pair[1], &listener, sizeof listener, PROT_WRITE, 0, 0) == -1 && errno == EOPNOTSUPP, "a stack is mapped");
	for (int round = 0; round < ROUNDS; round++) {
		char *to = taken[round % 2], *other = taken[1 - round % 2], c = (char)('a' + round);
		memset(bytes, c, SIZE);
		memset(to, 0, SIZE);
		memset(other, 0, SIZE);
		CHECK(riomap(pair[1], to, SIZE, PROT_WRITE, 0, OFFSET) == OFFSET, "riomap: %s", strerror(errno));
		passes(pair[1], pair[0]);
		CHECK(riowrite(pair[0], bytes, 13, OFFSET + 3, 0) == 13, "riowrite: %s", strerror(errno));
		passes(pair[0], pair[1]);
		CHECK(is_all(to, 3, 0) && is_all(to + 3, 13, c) && is_all(to + 16, SIZE - 16, 0), "13 bytes in round %d", round);
		CHECK(riowrite(pair[0], bytes, SIZE, OFFSET, 0) == SIZE, "riowrite: %s", strerror(errno));
		passes(pair[0], pair[1]);
		CHECK(is_all(to, SIZE, c) && is_all(other, SIZE, 0), "all bytes in round %d", round);
		CHECK(riowrite(pair[0], bytes, 2, OFFSET + SIZE - 1, 0) == 1, "a write beyond the end");
		passes(pair[0], pair[1]); /* it is there: the end of a mapping under a write ends the connection */
		CHECK(riounmap(pair[1], to, SIZE) == 0, "riounmap: %s", strerror(errno));
		passes(pair[1], pair[0]);
		CHECK(riowrite(pair[0], bytes, 1, OFFSET, 0) == (size_t)-1 && errno == EINVAL, "a write after riounmap");
	}
	CHECK(riomap(pair[0], bytes, SIZE, PROT_NONE, 0, 0) == 0 && riounmap(pair[0], bytes, SIZE) == 0 &&
	      riounmap(pair[0], bytes, SIZE) == -1 && errno == EINVAL, "memory that is not the peer's");
	CHECK(riomap(pair[1], bytes, SIZE, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)bytes, "riomap chooses an offset");
	CHECK(rclose(pair[0]) == 0 && rclose(pair[1]) == 0 && rclose(listener) == 0, "rclose");
	free(bytes);
	free(taken[0]);
	free(taken[1]);
	puts("map: ok");
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
	if (argc == 3 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1 && strcmp(argv[1], "map") == 0)
		return maps();
	fprintf(stderr, "usage: sockets fork | close | map ADDRESS\n");
	return 2;
}
