/*
 * sockets TEST ADDRESS: what one program shows of rsockets at an address of its own host: fork, close, map, share,
 * remap, leave, lie, table, both. Each is described at its function.
 */
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "edge.h"
#include "ends.h"

enum { PORT = 7471, ENTRIES = 4, WAIT = 30000 };

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
	int entries = ENTRIES;
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
	CHECK(rsend(from, &said, 1, 0) == 1 && rrecv(to, &heard, 1, MSG_WAITALL) == 1 && heard == said,
	      "no byte passes: %s", strerror(errno));
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

/* Writes into memory that the other end has mapped. Who has received what was sent after a mapping, or after its end,
 * or after a write, finds it so: a later mapping at the same offset gets none of what is written to it into the
 * earlier. */
static int maps(void)
{
	enum { SIZE = 300000, OFFSET = 1 << 20, ROUNDS = 8 };
	int listener = listens(), pair[2];
	connected(listener, pair);
	char *bytes = malloc(SIZE), *taken[2] = { malloc(SIZE), malloc(SIZE) };
	CHECK(riowrite(pair[0], bytes, 1, OFFSET, 0) == (size_t)-1 && errno == EINVAL, "a write to nothing");
	CHECK(riomap(pair[1], &listener, sizeof listener, PROT_WRITE, 0, 0) == -1 && errno == EOPNOTSUPP,
	      "a stack is mapped");
	for (int round = 0; round < ROUNDS; round++) {
		char *to = taken[round % 2], *other = taken[1 - round % 2], c = (char)('a' + round);
		memset(bytes, c, SIZE);
		memset(to, 0, SIZE);
		memset(other, 0, SIZE);
		CHECK(riomap(pair[1], to, SIZE, PROT_WRITE, 0, OFFSET) == OFFSET, "riomap: %s", strerror(errno));
		passes(pair[1], pair[0]);
		CHECK(riowrite(pair[0], bytes, 13, OFFSET + 3, 0) == 13, "riowrite: %s", strerror(errno));
		passes(pair[0], pair[1]);
		CHECK(is_all(to, 3, 0) && is_all(to + 3, 13, c) && is_all(to + 16, SIZE - 16, 0),
		      "13 bytes in round %d", round);
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

/* A child of fork has a copy of what its parent mapped for a peer, and no way to it; the peer goes on with the
 * parent. */
static int shares(void)
{
	enum { SIZE = 300000 };
	int listener = listens(), pair[2], go[2], status;
	connected(listener, pair);
	char *to = malloc(SIZE), *bytes = malloc(SIZE), byte;
	memset(to, 'a', SIZE);
	CHECK(riomap(pair[1], to, SIZE, PROT_WRITE, 0, 0) == 0 && pipe(go) == 0, "riomap: %s", strerror(errno));
	passes(pair[1], pair[0]);
	pid_t pid = fork();
	if (pid == 0) {
		close(go[1]);
		if (!is_all(to, SIZE, 'a'))
			_exit(2);
		if (riowrite(pair[0], to, 1, 0, 0) != (size_t)-1 || errno != EBADF ||
		    riomap(pair[1], to, SIZE, PROT_WRITE, 0, 0) != -1 || errno != EBADF ||
		    riounmap(pair[1], to, SIZE) != -1 || errno != EBADF)
			_exit(3);
		memset(to, 'c', SIZE / 2);
		_exit(read(go[0], &byte, 1) != 0 || !is_all(to, SIZE / 2, 'c') || !is_all(to + SIZE / 2, SIZE - SIZE / 2, 'a'));
	}
	memset(bytes, 'b', SIZE);
	CHECK(riowrite(pair[0], bytes, SIZE, 0, 0) == SIZE, "riowrite: %s", strerror(errno));
	passes(pair[0], pair[1]);
	CHECK(close(go[1]) == 0 && waitpid(pid, &status, 0) == pid && status == 0, "the child: %#x", status);
	CHECK(is_all(to, SIZE, 'b'), "the child's writes are seen");
	CHECK(riounmap(pair[1], to, SIZE) == 0 && is_all(to, SIZE, 'b'), "riounmap: %s", strerror(errno));
	CHECK(rclose(pair[0]) == 0 && rclose(pair[1]) == 0 && rclose(listener) == 0, "rclose");
	free(to);
	free(bytes);
	puts("share: ok");
	return 0;
}

/* Memory that is mapped again and again costs no more than once. */
static int remaps(void)
{
	enum { SIZE = 4096, FIRST = 100, ROUNDS = 500, LEAST = ROUNDS * 64 };
	int listener = listens(), pair[2];
	connected(listener, pair);
	char *to = malloc(1 << 20);
	size_t before = 0;
	for (int round = 0; round < FIRST + ROUNDS; round++) {
		CHECK(riomap(pair[1], to, SIZE, PROT_WRITE, 0, 0) == 0, "riomap: %s", strerror(errno));
		passes(pair[1], pair[0]);
		CHECK(riowrite(pair[0], &round, sizeof round, 0, 0) == sizeof round, "riowrite: %s", strerror(errno));
		passes(pair[0], pair[1]);
		CHECK(memcmp(to, &round, sizeof round) == 0, "round %d", round);
		CHECK(riounmap(pair[1], to, SIZE) == 0, "riounmap: %s", strerror(errno));
		before = round == FIRST ? mallinfo2().uordblks : before;
	}
	size_t after = mallinfo2().uordblks;
	CHECK(after < before + LEAST, "%zu bytes more after %d mappings", after - before, ROUNDS);
	CHECK(rclose(pair[0]) == 0 && rclose(pair[1]) == 0 && rclose(listener) == 0, "rclose");
	free(to);
	puts("remap: ok");
	return 0;
}

static void *leaves(void *fd)
{
	CHECK(rclose(*(int *)fd) == 0, "rclose");
	return NULL;
}

/* Who closes a socket with mappings leaves the peer what it has sent, also if that writes into them before it reads. */
static int leave(void)
{
	enum { SIZE = 100000 };
	int listener = listens(), pair[2];
	connected(listener, pair);
	char *to = malloc(SIZE), *bytes = malloc(SIZE);
	struct pollfd end = { .fd = pair[0], .events = POLLRDHUP };
	memset(bytes, 'l', SIZE);
	CHECK(riomap(pair[1], to, SIZE, PROT_WRITE, 0, 0) == 0 && rsend(pair[1], bytes, SIZE, 0) == SIZE, "riomap, rsend");
	pthread_t t;
	CHECK(pthread_create(&t, NULL, leaves, &pair[1]) == 0, "no thread");
	CHECK(rpoll(&end, 1, WAIT) == 1, "the end does not come");
	memset(bytes, 0, SIZE);
	CHECK(riowrite(pair[0], "late", 4, 0, 0) == 4, "riowrite: %s", strerror(errno));
	CHECK(rrecv(pair[0], bytes, SIZE, MSG_WAITALL) == SIZE && is_all(bytes, SIZE, 'l') &&
	      rrecv(pair[0], bytes, 1, 0) == 0, "what was sent before the end: %s", strerror(errno));
	CHECK(rclose(pair[0]) == 0 && pthread_join(t, NULL) == 0 && rclose(listener) == 0, "rclose");
	CHECK(memcmp(to, "late", 4) == 0, "what was written before the end is lost");
	free(to);
	free(bytes);
	puts("leave: ok");
	return 0;
}

/* A peer that is no rsocket, and the socket that it is connected to. */
struct liar { edge_device *d; edge_stream *t; edge_conn *conn; edge_region *r; int listener, fd; };

static void meet_liar(struct liar *l)
{
	struct { char magic[4]; uint16_t port; unsigned char ip[16]; } caller = { .magic = "EVS1" };
	edge_config c = { .size = sizeof c, .name = "liar" };
	edge_dial_options o = { .size = sizeof o, .data = &caller, .data_size = sizeof caller };
	char service[32];
	int entries = ENTRIES;
	l->listener = listens();
	snprintf(service, sizeof service, "rdma/s%d", PORT);
	CHECK(rsetsockopt(l->listener, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries) == 0, "RDMA_IOMAPSIZE");
	CHECK(edge_open(&l->d, &c, WAIT) == 0 && edge_register(l->d, 4096, &l->r, WAIT) == 0, "no device");
	CHECK(edge_stream_dial_start(l->d, edge_device_node(l->d), service, &o, &l->t, WAIT) == 0, "no dial");
	l->fd = raccept(l->listener, NULL, NULL);
	CHECK(l->fd >= 0 && edge_stream_wait(l->t, WAIT) == 0, "no stream");
	l->conn = edge_stream_conn(l->t);
}

static void leave_liar(struct liar *l)
{
	CHECK(rclose(l->fd) == 0 && rclose(l->listener) == 0, "the end");
	edge_stream_close(l->t, 0);
	edge_device_close(l->d, WAIT);
}

/* A peer may name memory that it does not export, and one export in several entries: who does not wait is not kept, and
 * finds the memory when it is there. */
static int lies(void)
{
	struct entry { uint64_t offset, size, number; } e = { 0, 1 << 20, 77 };
	struct liar l;
	edge_remote *table;
	edge_export *x;
	char said = 0;
	meet_liar(&l);
	CHECK(edge_import(l.conn, "iomap", &table, WAIT) == 0, "no table");
	for (int i = 0; i < 2; i++) {
		edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_BACKWARD_FENCE, .inline_data = &e, .inline_size = sizeof e,
			.remote = table, .remote_off = (uint64_t)i * sizeof e };
		CHECK(edge_post_wait(l.conn, &w, NULL, WAIT) == 0, "no write");
		e.offset = e.size;
	}
	CHECK(edge_stream_write(l.t, "x", 1, WAIT) == 1 && rrecv(l.fd, &said, 1, MSG_WAITALL) == 1, "no byte passes");
	for (off_t at = 0; at <= (off_t)e.offset; at += (off_t)e.offset)
		CHECK(riowrite(l.fd, "lost", 4, at, MSG_DONTWAIT) == (size_t)-1 && errno == EAGAIN, "riowrite: %s",
		      strerror(errno));
	CHECK(edge_export_region(l.r, l.conn, "io/77", EDGE_REMOTE_WRITE, 0, 4096, &x, WAIT) == 0, "no export");
	CHECK(riowrite(l.fd, "true", 4, 0, 0) == 4 && riowrite(l.fd, "also", 4, (off_t)e.offset + 4, 0) == 4,
	      "riowrite: %s", strerror(errno));
	CHECK(rsend(l.fd, "x", 1, 0) == 1 && edge_stream_read(l.t, &said, 1, WAIT) == 1, "no byte passes back");
	CHECK(memcmp(edge_region_bytes(l.r), "truealso", 8) == 0, "other bytes");
	CHECK(edge_export_revoke(x, WAIT) == 0, "the end");
	leave_liar(&l);
	puts("lie: ok");
	return 0;
}

/* The peer's table is found whenever it comes, also if the first call has waited for it in vain. One that may not be
 * written to costs each call nothing but its failure. */
static int tables(void)
{
	enum { SIZE = 4096, FIRST = 100, ROUNDS = 500, LEAST = ROUNDS * 64, SECONDS = 30 };
	struct liar late, mean;
	size_t before = 0;
	char *to = malloc(1 << 20);
	meet_liar(&late);
	CHECK(riomap(late.fd, to, SIZE, PROT_WRITE, 0, 0) == -1 && errno == ENOMEM, "riomap without a table: %s",
	      strerror(errno));
	CHECK(edge_export_region(late.r, late.conn, "iomap", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT) == 0, "no table");
	for (int64_t until = now() + SECONDS; riomap(late.fd, to, SIZE, PROT_WRITE, 0, 0) != 0; sched_yield())
		CHECK(now() < until, "riomap when the table is there: %s", strerror(errno));
	edge_stream_shutdown(late.t);
	leave_liar(&late);
	meet_liar(&mean);
	CHECK(edge_export_region(mean.r, mean.conn, "iomap", EDGE_REMOTE_READ, 0, 4096, NULL, WAIT) == 0, "no table");
	for (int round = 0; round < FIRST + ROUNDS; round++) {
		CHECK(riomap(mean.fd, to, SIZE, PROT_WRITE, 0, 0) == -1 && errno == EACCES, "riomap in vain: %s",
		      strerror(errno));
		edge_device_poll(mean.d); /* it is told of each */
		before = round == FIRST ? mallinfo2().uordblks : before;
	}
	size_t after = mallinfo2().uordblks;
	CHECK(after < before + LEAST, "%zu bytes more after %d failures", after - before, ROUNDS);
	leave_liar(&mean);
	free(to);
	puts("table: ok");
	return 0;
}

/* Listens by librdmacm: 0 or an errno. */
static int cm_listens(struct rdma_event_channel *channel, struct rdma_cm_id **id, int family)
{
	struct sockaddr_in6 any = { .sin6_family = (sa_family_t)family, .sin6_port = htons(PORT) };
	CHECK(rdma_create_id(channel, id, NULL, RDMA_PS_TCP) == 0 && rdma_bind_addr(*id, (struct sockaddr *)&any) == 0,
	      "rdma_bind_addr: %s", strerror(errno));
	return rdma_listen(*id, 1) == 0 ? 0 : errno;
}

/* A port is listened at for IPv4 and for IPv6, once each, until both end. */
static int both(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id[2], *other;
	for (int first = 0; first < 2; first++) {
		CHECK(channel != NULL && cm_listens(channel, &id[0], AF_INET6) == 0 &&
		      cm_listens(channel, &id[1], AF_INET) == 0, "not for both: %s", strerror(errno));
		CHECK(cm_listens(channel, &other, AF_INET) == EADDRINUSE && rdma_destroy_id(other) == 0, "twice for one");
		CHECK(rdma_destroy_id(id[first]) == 0, "rdma_destroy_id");
		int said = cm_listens(channel, &other, first == 0 ? AF_INET : AF_INET6);
		CHECK(said == EADDRINUSE && rdma_destroy_id(other) == 0, "the other has ended as well: %s", strerror(said));
		CHECK(rdma_destroy_id(id[1 - first]) == 0, "rdma_destroy_id");
	}
	int said = cm_listens(channel, &other, AF_INET);
	CHECK(said == 0 && rdma_destroy_id(other) == 0, "both have ended, and the port is taken: %s", strerror(said));
	rdma_destroy_event_channel(channel);
	puts("both: ok");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; int (*run)(void); } tests[] = { { "fork", forks }, { "close", closes },
		{ "map", maps }, { "share", shares }, { "remap", remaps }, { "leave", leave },
		{ "lie", lies }, { "table", tables },
		{ "both", both } };
	setvbuf(stdout, NULL, _IOLBF, 0);
	at.sin_port = htons(PORT);
	for (size_t i = 0; argc == 3 && i < sizeof tests / sizeof *tests; i++)
		if (strcmp(argv[1], tests[i].name) == 0 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1)
			return tests[i].run();
	fprintf(stderr, "usage: sockets fork | close | map | share | remap | leave | lie | table | both ADDRESS\n");
	return 2;
}
