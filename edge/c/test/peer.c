/* What the tests run against daemons: one program, a scenario for each first argument. It ends with status 0 when all
 * was as it must be, and says on standard output when it is ready. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

enum { MEM = 1 << 20 };

static unsigned char pattern(uint64_t at, uint32_t seed)
{
	uint64_t x = (at / 8 + seed) * UINT64_C(0x9e3779b97f4a7c15);
	return (unsigned char)(x >> (at % 8 * 8));
}

static void fill(unsigned char *p, size_t n, uint64_t at, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(at + i, seed);
}

static bool same(const unsigned char *p, size_t n, uint64_t at, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != pattern(at + i, seed)) {
			fprintf(stderr, "byte %llu differs\n", (unsigned long long)(at + i));
			return false;
		}
	return true;
}

/* Exports memory to one peer, and answers each notification by a write of its imm + 1 into the peer's "back" until
 * the peer closes. */
static void serve(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_listener *l;
	edge_conn *c;
	edge_region *mem;
	edge_remote *back;
	edge_export *e;
	size_t n;
	OK(edge_listen(d, arg[0], &l, WAIT));
	say("ready");
	OK(edge_accept(l, &c, WAIT));
	CHECK(edge_conn_data(c, &n) != NULL && n == 5);
	OK(edge_register(d, MEM, &mem, WAIT));
	OK(edge_export_region(mem, c, "mem", EDGE_REMOTE_READ | EDGE_REMOTE_WRITE, 0, MEM, &e, WAIT));
	OK(edge_export_region(mem, c, "readable", EDGE_REMOTE_READ, 4096, 4096, NULL, WAIT));
	OK(edge_import(c, "back", &back, WAIT));
	edge_notification note;
	int err;
	while ((err = edge_notify_wait(c, &note, WAIT)) == 0) {
		CHECK(note.export_ == e && edge_export_memory(e) == mem);
		uint32_t answer = note.imm + 1;
		edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_NOTIFY, .imm = answer, .inline_data = &answer,
			.inline_size = sizeof answer, .remote = back };
		OK(edge_post_wait(c, &w, NULL, WAIT));
	}
	IS(err, EDGE_ERR_PEER_CLOSED);
	IS(edge_conn_error(c), EDGE_ERR_PEER_CLOSED);
	edge_conn_free(c);
	edge_listener_close(l);
	OK(edge_region_close(mem));
	edge_device_close(d, 0);
}

static void refusals(edge_conn *c, edge_remote *mem, edge_remote *readable, edge_region *local)
{
	edge_op op;
	edge_work w = { .kind = EDGE_WRITE, .local = local, .size = 16, .remote = mem, .remote_off = MEM - 8 };
	IS(edge_post(c, &w, &op), EDGE_ERR_BOUNDS);
	w.remote = readable, w.remote_off = 0;
	IS(edge_post(c, &w, &op), EDGE_ERR_PERMISSION);
	w.kind = 9;
	IS(edge_post(c, &w, &op), EDGE_ERR_INVALID);
	w = (edge_work){ .kind = EDGE_READ, .flags = EDGE_NOTIFY, .local = local, .size = 1, .remote = mem };
	IS(edge_post(c, &w, &op), EDGE_ERR_INVALID);
	w = (edge_work){ .kind = EDGE_READ, .size = 1, .remote = mem };
	IS(edge_post(c, &w, &op), EDGE_ERR_INVALID);
	w.reserved[1] = 1;
	IS(edge_post(c, &w, &op), EDGE_ERR_INVALID);
	edge_remote *none;
	IS(edge_import(c, "nothing", &none, 0), EDGE_ERR_AGAIN);
	IS(edge_import(c, "nothing", &none, 10), EDGE_ERR_TIMEOUT);
	edge_notification note;
	IS(edge_notify_wait(c, &note, 0), EDGE_ERR_AGAIN);
}

/* Writes all of the memory in pieces with a full queue, reads it back, and has notifications answered. */
static void exchange(edge_device *d, edge_conn *c, edge_remote *mem, edge_region *local, uint32_t seed)
{
	enum { PIECE = 4096 };
	unsigned char *p = edge_region_bytes(local);
	fill(p, MEM, 0, seed);
	size_t posted = 0, done = 0;
	static char places[MEM / PIECE];
	while (done < MEM / PIECE) {
		edge_work w[8] = { 0 };
		size_t n = 0;
		for (; n < 8 && posted + n < MEM / PIECE; n++)
			w[n] = (edge_work){ .kind = EDGE_WRITE, .local = local, .local_off = (posted + n) * PIECE, .size = PIECE,
				.remote = mem, .remote_off = (posted + n) * PIECE, .context = &places[posted + n] };
		int k = edge_post_batch(c, w, n, NULL);
		if (k > 0)
			posted += (size_t)k;
		else if (k != EDGE_ERR_AGAIN)
			OK(k);
		edge_completion e[16];
		int m = edge_completions(d, e, 16);
		for (int i = 0; i < m; i++) {
			IS(e[i].err, 0);
			CHECK(*(char *)e[i].context == (char)(seed % 2)); /* each once */
			*(char *)e[i].context ^= 1;
		}
		done += (size_t)m;
	}
	memset(p, 0, MEM);
	edge_op op;
	OK(edge_post_wait(c, &(edge_work){ .kind = EDGE_READ, .flags = EDGE_BACKWARD_FENCE, .local = local, .size = MEM,
	                                   .remote = mem }, &op, WAIT));
	OK(edge_op_wait(&op, WAIT));
	CHECK(edge_op_done(&op) && edge_op_error(&op) == 0 && same(p, MEM, 0, seed));
}

static void use(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_conn *c;
	edge_region *local, *back;
	edge_remote *mem, *readable;
	edge_export *e;
	edge_dial_options o = { .size = sizeof o, .data = "hello", .data_size = 5 };
	IS(edge_dial(d, arg[0], "nobody offers this", NULL, &c, WAIT), EDGE_ERR_NO_SERVICE);
	OK(edge_dial_start(d, arg[0], arg[1], &o, &c, WAIT));
	OK(edge_conn_wait(c, WAIT));
	OK(edge_register(d, MEM, &local, WAIT));
	OK(edge_register(d, 8, &back, WAIT));
	OK(edge_export_region(back, c, "back", EDGE_REMOTE_WRITE, 0, 8, &e, WAIT));
	OK(edge_import(c, "mem", &mem, WAIT));
	OK(edge_import(c, "readable", &readable, WAIT));
	CHECK(edge_remote_size(mem) == MEM && edge_remote_perm(readable) == EDGE_REMOTE_READ);
	refusals(c, mem, readable, local);
	exchange(d, c, mem, local, 2);
	exchange(d, c, mem, local, 3);
	for (uint32_t i = 0; i < 1000; i++) { /* more than the credit of 256 */
		edge_notification note;
		OK(edge_post_wait(c, &(edge_work){ .kind = EDGE_WRITE, .flags = EDGE_NOTIFY, .imm = i, .inline_data = &i,
		                                   .inline_size = 4, .remote = mem }, NULL, WAIT));
		OK(edge_notify_wait(c, &note, WAIT));
		CHECK(note.imm == i + 1 && note.size == 4 && note.off == 0 && note.export_ == e);
		CHECK(*(volatile uint32_t *)edge_region_bytes(back) == i + 1);
	}
	static unsigned char big[600001], again[600001];
	fill(big, sizeof big, 5, 7);
	OK(edge_remote_write(mem, big, sizeof big, 77, WAIT));
	OK(edge_remote_read(mem, again, sizeof again, 77, WAIT));
	CHECK(memcmp(big, again, sizeof big) == 0);
	IS(edge_remote_read(mem, again, 2, MEM - 1, WAIT), EDGE_ERR_BOUNDS);
	OK(edge_export_revoke(e, WAIT));
	OK(edge_conn_close(c, WAIT));
	IS(edge_post(c, &(edge_work){ .kind = EDGE_READ, .local = local, .size = 1, .remote = mem }, NULL),
	    EDGE_ERR_CLOSED);
	edge_conn_free(c);
	OK(edge_region_close(local));
	edge_device_close(d, 0);
}

/* Memory that the program made: malloc'ed pages, adopted and given back, and a memfd. */
static void memory(char **arg)
{
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_conn *c;
	edge_region *r, *f, *back;
	edge_remote *mem;
	CHECK(edge_device_features(d) & EDGE_FEATURE_MEMORY);
	edge_dial_options o = { .size = sizeof o, .data = "hello", .data_size = 5 };
	OK(edge_dial(d, arg[0], arg[1], &o, &c, WAIT));
	OK(edge_register(d, 8, &back, WAIT));
	OK(edge_export_region(back, c, "back", EDGE_REMOTE_WRITE, 0, 8, NULL, WAIT));
	OK(edge_import(c, "mem", &mem, WAIT));
	unsigned char *p = aligned_alloc(4096, MEM);
	fill(p, MEM, 0, 11);
	IS(edge_adopt(d, p + 1, 4096, &r, WAIT), EDGE_ERR_INVALID);
	OK(edge_adopt(d, p, MEM, &r, WAIT));
	CHECK(same(p, MEM, 0, 11) && edge_region_bytes(r) == p);
	exchange(d, c, mem, r, 12);
	OK(edge_region_close(r));
	CHECK(same(p, MEM, 0, 12));
	free(p);
	int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(fd >= 0 && ftruncate(fd, MEM) == 0);
	p = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	IS(edge_register_memfd(d, fd, p, MEM / 2, &f, WAIT), EDGE_ERR_INVALID);
	OK(edge_register_memfd(d, fd, p, MEM, &f, WAIT));
	exchange(d, c, mem, f, 13);
	IS(edge_register_memfd(d, fd, p, MEM, &r, WAIT), EDGE_ERR_INVALID);
	OK(edge_region_close(f));
	munmap(p, MEM);
	close(fd);
	OK(edge_conn_close(c, WAIT));
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* A loop of one thread that never blocks but in poll: echoes what streams send until so many have ended. */
struct echo { edge_stream *s; char bytes[20000]; size_t from, to; bool eof; };

static bool echo_on(struct echo *e)
{
	for (;;) {
		if (e->from == e->to && !e->eof) {
			ssize_t n = edge_stream_read(e->s, e->bytes, sizeof e->bytes, 0);
			if (n == EDGE_ERR_AGAIN)
				return true;
			if (n < 0)
				return false;
			e->from = 0;
			e->to = (size_t)n;
			if (n == 0) {
				e->eof = true;
				OK(edge_stream_shutdown(e->s));
				return false;
			}
		}
		ssize_t n = edge_stream_write(e->s, e->bytes + e->from, e->to - e->from, 0);
		if (n == EDGE_ERR_AGAIN)
			return true;
		if (n < 0)
			return false;
		e->from += (size_t)n;
	}
}

static void echo(char **arg)
{
	edge_device *d = open_device(256, EDGE_ADAPTIVE);
	edge_listener *l;
	int left = atoi(arg[1]);
	OK(edge_stream_listen(d, arg[0], 8, &l, WAIT));
	edge_listener_watch(l, l);
	say("ready");
	while (left > 0) {
		edge_device_poll(d);
		void *what[16];
		int n = edge_changed(d, what, 16);
		for (int i = 0; i < n; i++) {
			edge_stream *s;
			if (what[i] != l) {
				struct echo *e = what[i];
				if (echo_on(e))
					continue;
				if (!e->eof)
					fprintf(stderr, "a stream ended by %d\n", edge_stream_error(e->s));
				edge_stream_close(e->s, -1);
				free(e);
				left--;
				continue;
			}
			while (edge_stream_accept(l, &s, 0) == 0) {
				struct echo *e = calloc(1, sizeof *e);
				e->s = s;
				edge_stream_watch(s, e);
			}
		}
		if (n == 0 && edge_device_linger(d))
			sched_yield();
		else if (n == 0 && edge_device_arm(d)) {
			struct pollfd p = { .fd = edge_device_fd(d), .events = POLLIN };
			CHECK(poll(&p, 1, WAIT) > 0);
		}
	}
	edge_listener_close(l);
	edge_device_close(d, WAIT);
}

struct talk { edge_device *d; char **arg; uint32_t seed; size_t bytes; edge_stream *s; };

struct part { const unsigned char *p; size_t n; };

/* At most 20000 at a time. */
static ssize_t put_part(void *arg, size_t at, void *to, size_t size)
{
	const struct part *part = arg;
	size_t n = size < 20000 ? size : 20000;
	n = n < part->n - at ? n : part->n - at;
	memcpy(to, part->p + at, n);
	return (ssize_t)n;
}

static void *talk_write(void *arg)
{
	struct talk *t = arg;
	unsigned char buf[50000];
	for (size_t at = 0; at < t->bytes;) {
		size_t n = 1 + (at * 7919 + t->seed) % sizeof buf;
		n = n < t->bytes - at ? n : t->bytes - at;
		fill(buf, n, at, t->seed);
		struct part part = { buf, n };
		if (n % 2 == 0) /* which ends before so many */
			IS(edge_stream_fill(t->s, put_part, &part, n + 7, WAIT), (int)n);
		else
			IS(edge_stream_write(t->s, buf, n, WAIT), (int)n);
		at += n;
	}
	OK(edge_stream_shutdown(t->s));
	IS(edge_stream_write(t->s, buf, 1, 0), EDGE_ERR_SHUT);
	return NULL;
}

static void *talk(void *arg)
{
	struct talk *t = arg;
	pthread_t writer;
	OK(edge_stream_dial(t->d, t->arg[0], t->arg[1], NULL, &t->s, WAIT));
	pthread_create(&writer, NULL, talk_write, t);
	unsigned char buf[30000];
	ssize_t n;
	size_t at = 0;
	while ((n = edge_stream_read(t->s, buf, sizeof buf, WAIT)) > 0) {
		CHECK(same(buf, (size_t)n, at, t->seed));
		at += (size_t)n;
	}
	IS(n, 0);
	CHECK(at == t->bytes);
	pthread_join(writer, NULL);
	IS(edge_stream_error(t->s), 0);
	edge_stream_close(t->s, -1);
	return NULL;
}

/* Streams from several threads at once, each of whose bytes come back: PEER SERVICE STREAMS BYTES. */
static void streams(char **arg)
{
	enum { MOST = 64 };
	edge_device *d = open_device(256, EDGE_ADAPTIVE);
	int n = atoi(arg[2]);
	pthread_t threads[MOST];
	struct talk talks[MOST];
	for (int i = 0; i < n; i++) {
		talks[i] = (struct talk){ .d = d, .arg = arg, .seed = (uint32_t)i, .bytes = (size_t)atol(arg[3]) };
		pthread_create(&threads[i], NULL, talk, &talks[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	edge_device_close(d, WAIT);
}

/* Thousands of streams that are open at once, in one thread: PEER SERVICE STREAMS. */
static void many(char **arg)
{
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .receive_buffer = 4096, .send_buffer = 4096, .queue_depth = 1024 };
	OK(edge_open(&d, &cfg, WAIT));
	int n = atoi(arg[2]);
	edge_stream **s = calloc((size_t)n, sizeof *s);
	for (int i = 0; i < n + 50; i++) { /* of which 50 at once wait for an answer */
		if (i < n)
			OK(edge_stream_dial_start(d, arg[0], arg[1], NULL, &s[i], WAIT));
		if (i >= 50)
			OK(edge_stream_wait(s[i - 50], WAIT));
	}
	for (uint32_t i = 0; i < (uint32_t)n; i++)
		IS(edge_stream_write(s[i], &i, sizeof i, WAIT), sizeof i);
	for (uint32_t i = 0; i < (uint32_t)n; i++) {
		uint32_t got;
		IS(edge_stream_read(s[i], &got, sizeof got, WAIT), sizeof got);
		CHECK(got == i);
		edge_stream_close(s[i], -1);
	}
	free(s);
	edge_device_close(d, WAIT);
}

/* What a stream says of itself, without waiting. */
static void polled(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_stream *s;
	char buf[8];
	OK(edge_stream_dial_start(d, arg[0], "nobody offers this", NULL, &s, WAIT));
	IS(edge_stream_wait(s, WAIT), EDGE_ERR_NO_SERVICE);
	IS(edge_errno(edge_stream_error(s)), ECONNREFUSED);
	CHECK((edge_stream_events(s) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
	edge_stream_close(s, 0);
	OK(edge_stream_dial_start(d, arg[0], arg[1], NULL, &s, WAIT));
	CHECK(edge_stream_error(s) == EDGE_ERR_AGAIN || edge_stream_error(s) == 0);
	OK(edge_stream_wait(s, WAIT));
	IS(edge_stream_read(s, buf, 8, 0), EDGE_ERR_AGAIN);
	IS(edge_stream_read(s, buf, 8, 10), EDGE_ERR_TIMEOUT);
	while (!(edge_stream_events(s) & POLLOUT))
		;
	CHECK(!(edge_stream_events(s) & POLLIN));
	IS(edge_stream_write(s, "12345678", 8, 0), 8);
	while (edge_stream_readable(s) < 8)
		;
	IS(edge_stream_peek(s, buf, 3, 0), 3);
	IS(edge_stream_read(s, buf, 8, 0), 8);
	CHECK(memcmp(buf, "12345678", 8) == 0);
	OK(edge_stream_shutdown(s));
	while (!(edge_stream_events(s) & POLLRDHUP))
		;
	IS(edge_stream_read(s, buf, 8, 0), 0);
	CHECK(edge_stream_events(s) & POLLHUP);
	IS(edge_stream_error(s), 0);
	edge_stream_close(s, -1);
	OK(edge_stream_dial(d, arg[0], arg[1], NULL, &s, WAIT));
	edge_stream_reset(s); /* the other end counts it */
	IS(edge_stream_read(s, buf, 8, WAIT), EDGE_ERR_CLOSED);
	edge_stream_close(s, 0);
	edge_device_close(d, WAIT);
}

static int changes[2];

static void on_change(void *arg, int err)
{
	CHECK(arg == changes);
	changes[err == 0]++;
}

/* The daemon is restarted under it, twice as the test says so: PEER. */
static void restart(char **arg)
{
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .on_change = on_change, .arg = changes };
	OK(edge_open(&d, &cfg, WAIT));
	edge_listener *l;
	edge_region *r;
	edge_conn *c;
	OK(edge_listen(d, "kept", &l, WAIT));
	OK(edge_register(d, MEM, &r, WAIT));
	unsigned char *p = edge_region_bytes(r);
	fill(p, MEM, 0, 1);
	OK(edge_dial(d, arg[0], arg[1], NULL, &c, WAIT));
	say("ready");
	edge_notification note;
	IS(edge_notify_wait(c, &note, WAIT), EDGE_ERR_DAEMON_DOWN);
	IS(edge_conn_error(c), EDGE_ERR_DAEMON_DOWN);
	edge_conn_free(c);
	CHECK(edge_error_is(edge_region_error(r), EDGE_ERR_DAEMON_DOWN));
	say("lost");
	OK(edge_accept(l, &c, WAIT)); /* of the daemon that came meanwhile */
	IS(changes[0], 1);
	IS(changes[1], 1);
	IS(edge_export_region(r, c, "mem", EDGE_REMOTE_READ, 0, MEM, NULL, WAIT), EDGE_ERR_STALE);
	OK(edge_region_renew(r, WAIT));
	CHECK(edge_region_bytes(r) == p && same(p, MEM, 0, 1));
	OK(edge_export_region(r, c, "mem", EDGE_REMOTE_READ, 0, MEM, NULL, WAIT));
	IS(edge_notify_wait(c, &note, WAIT), EDGE_ERR_PEER_CLOSED);
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* The peer is killed while it is written to: PEER SERVICE. */
static void killed(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_stream *s;
	OK(edge_stream_dial(d, arg[0], arg[1], NULL, &s, WAIT));
	static char buf[100000];
	say("ready");
	ssize_t n;
	while ((n = edge_stream_write(s, buf, sizeof buf, WAIT)) > 0)
		;
	IS(n, EDGE_ERR_RESET);
	IS(edge_stream_read(s, buf, 1, WAIT), EDGE_ERR_RESET);
	edge_stream_close(s, -1);
	edge_device_close(d, 0);
}

/* The peer takes its ring away: PEER SERVICE. */
static void refused(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_stream *s;
	char buf[8];
	OK(edge_stream_dial(d, arg[0], arg[1], NULL, &s, WAIT));
	IS(edge_stream_write(s, "a", 1, WAIT), 1);
	say("ready");
	CHECK(getchar() == '\n');
	IS(edge_stream_write(s, "b", 1, WAIT), 1); /* the library has not looked since then */
	IS(edge_stream_read(s, buf, 1, WAIT), EDGE_ERR_KEY);
	edge_stream_close(s, -1);
	edge_device_close(d, 0);
}

/* A child after fork: PEER SERVICE. */
static void forked(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE), *mine;
	edge_stream *s;
	edge_region *r;
	char buf[8];
	OK(edge_stream_dial(d, arg[0], arg[1], NULL, &s, WAIT));
	OK(edge_register(d, 4096, &r, WAIT));
	edge_word *word = edge_word_open(d);
	CHECK(word != NULL);
	edge_word_arm(d, word);
	pid_t child = fork(); /* as a handler does that comes before the next line */
	if (child == 0) {
		IS(edge_word_sleep(word, INT64_MAX), 0);
		IS(edge_stream_write(s, "x", 1, WAIT), EDGE_ERR_FORKED);
		IS(edge_stream_read(s, buf, 1, WAIT), EDGE_ERR_FORKED);
		IS(edge_region_error(r), EDGE_ERR_FORKED);
		IS(edge_device_error(d), EDGE_ERR_FORKED);
		edge_stream_close(s, -1);
		edge_device_close(d, 0);
		mine = open_device(64, EDGE_ADAPTIVE);
		OK(edge_stream_dial(mine, arg[0], arg[1], NULL, &s, WAIT));
		IS(edge_stream_write(s, "child", 5, WAIT), 5);
		IS(edge_stream_read(s, buf, 5, WAIT), 5);
		edge_stream_close(s, -1);
		edge_device_close(mine, WAIT);
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	IS(edge_stream_write(s, "parent", 6, WAIT), 6); /* not disturbed */
	IS(edge_stream_read(s, buf, 6, WAIT), 6);
	OK(edge_region_close(r));
	edge_stream_close(s, -1);
	edge_device_close(d, WAIT);
}

/* A daemon that breaks the rules: whatever happens is an error, in time. */
static void hostile(char **arg)
{
	(void)arg;
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64 };
	int err = edge_open(&d, &cfg, 2000);
	if (err < 0) {
		printf("open %d\n", err);
		return;
	}
	edge_conn *c;
	edge_region *r;
	edge_remote *remote;
	edge_listener *l;
	edge_stream *s;
	int seen = edge_register(d, 8192, &r, 500);
	if (seen == 0) {
		memset(edge_region_bytes(r), 1, 8192);
		seen = edge_listen(d, "service", &l, 200);
	}
	if (seen == 0 && (seen = edge_dial(d, "peer", "service", NULL, &c, 500)) == 0) {
		seen = edge_import(c, "mem", &remote, 500);
		if (seen == 0) {
			edge_op op;
			seen = edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .local = r, .size = 8, .remote = remote }, &op);
			if (seen == 0)
				seen = edge_op_wait(&op, 500);
		}
		edge_notification note;
		if (seen == 0)
			seen = edge_notify_wait(c, &note, 500);
		if (edge_stream_dial(d, "peer", "stream", NULL, &s, 500) == 0) {
			char buf[64];
			edge_stream_write(s, "hello", 5, 500);
			while (edge_stream_read(s, buf, sizeof buf, 200) > 0)
				;
			edge_stream_close(s, 100);
		}
		edge_conn_free(c);
	}
	printf("use %d\n", seen);
	edge_device_close(d, 100);
}

static const struct { const char *name; void (*run)(char **); int args; } roles[] = {
	{ "serve", serve, 1 }, { "use", use, 2 }, { "memory", memory, 2 }, { "echo", echo, 2 }, { "streams", streams, 4 },
	{ "many", many, 3 }, { "polled", polled, 2 }, { "restart", restart, 2 }, { "killed", killed, 2 },
	{ "refused", refused, 2 },
	{ "forked", forked, 2 }, { "hostile", hostile, 0 },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (argc > 1 && strcmp(argv[1], roles[i].name) == 0 && argc == roles[i].args + 2) {
			roles[i].run(argv + 2);
			return 0;
		}
	fprintf(stderr, "peer: no such role\n");
	return 2;
}
