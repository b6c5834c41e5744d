/* Orders, times, threads and forks that are allowed and not usual: one program, a role for each first argument. */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "roles.h"

enum { PAGES = 2 * 4096, MANY = 4200 /* more than a peer may export at once */ };

/* --- with a daemon that the test plays --- */

/* The daemon does not answer the registration. Nothing happens later at the addresses, which are another's then. */
static void adopt(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_region *r;
	char *p = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 7, PAGES);
	IS(edge_adopt(d, p, PAGES, &r, 50), EDGE_ERR_TIMEOUT);
	CHECK(p[0] == 7 && p[PAGES - 1] == 7);
	CHECK(munmap(p, PAGES) == 0);
	edge_device_close(d, 0); /* ends the registration, which is still asked for */
}

static void limit_files(rlim_t n)
{
	struct rlimit l;
	CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0);
	l.rlim_cur = n == 0 ? l.rlim_max : n;
	CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0);
}

/* A process that has no descriptors left is told so, and goes on when it has. */
static void scarce(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK), *other;
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64 };
	edge_region *r;
	int lowest = dup(0);
	close(lowest);
	limit_files((rlim_t)lowest);
	IS(edge_register(d, 4096, &r, WAIT), EDGE_ERR_SYSTEM);
	CHECK(strstr(edge_detail(), "open files") != NULL);
	limit_files((rlim_t)lowest + 4); /* enough until the daemon sends some */
	IS(edge_open(&other, &cfg, WAIT), EDGE_ERR_SYSTEM);
	limit_files(0);
	OK(edge_register(d, 4096, &r, WAIT));
	OK(edge_open(&other, &cfg, WAIT));
	edge_device_close(other, 0);
	edge_device_close(d, 0);
}

/* The first stream comes to nothing while it is accepted: its place in the backlog is the next one's. */
static void crowd(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_stream *s;
	OK(edge_stream_listen(d, "crowd", 1, &l, WAIT));
	OK(edge_stream_accept(l, &s, 5000));
	edge_stream_close(s, 0);
	edge_device_close(d, 0);
}

static int sockets(void)
{
	char path[300], to[64];
	int n = 0;
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir != NULL);
	for (struct dirent *e; (e = readdir(dir)) != NULL;) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t k = readlink(path, to, sizeof to);
		n += k > 7 && memcmp(to, "socket:", 7) == 0;
	}
	closedir(dir);
	return n;
}

static void *opens(void *arg)
{
	(void)arg;
	edge_device *d;
	IS(edge_open(&d, NULL, 1000), EDGE_ERR_TIMEOUT);
	return NULL;
}

/* The program forks while it attaches: the child must not keep the attachment alive (ABI A11.2). */
static void opening(char **arg)
{
	(void)arg;
	pthread_t t;
	int status;
	OK(pthread_create(&t, NULL, opens, NULL));
	while (sockets() == 0)
		;
	pid_t child = fork();
	if (child == 0)
		_exit(sockets());
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	OK(pthread_join(t, NULL));
}

/* A connection that is still dialled: calls wait for it as long as they may. */
static void dialling(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_conn *c;
	edge_remote *mem;
	edge_work w = { .kind = EDGE_SEND, .inline_data = "x", .inline_size = 1 };
	alarm(20);
	OK(edge_dial_start(d, "peer", "service", NULL, &c, WAIT));
	IS(edge_import(c, "mem", &mem, 0), EDGE_ERR_AGAIN);
	IS(edge_import(c, "mem", &mem, 50), EDGE_ERR_TIMEOUT);
	IS(edge_post(c, &w, NULL), EDGE_ERR_AGAIN);
	IS(edge_post_wait(c, &w, NULL, 50), EDGE_ERR_TIMEOUT);
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* The daemon does not run for seconds: who waits is told so, who only looks has nothing yet. */
static void silent(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_conn *c;
	edge_remote *mem;
	OK(edge_dial(d, "peer", "service", NULL, &c, WAIT));
	OK(edge_import(c, "mem", &mem, WAIT));
	edge_op op;
	edge_notification n;
	OK(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .inline_data = "x", .inline_size = 1, .remote = mem }, &op));
	IS(edge_op_wait(&op, 11000), EDGE_ERR_DAEMON_SILENT); /* which takes four looks, 2 s apart */
	IS(edge_op_wait(&op, 0), EDGE_ERR_AGAIN);
	IS(edge_notify_wait(c, &n, 0), EDGE_ERR_AGAIN);
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* The daemon answers a request to revoke after the connection has ended, and the program has freed the export. */
static void revokes(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_conn *c;
	edge_region *r, *other;
	edge_export *e;
	edge_notification n;
	OK(edge_dial(d, "peer", "service", NULL, &c, WAIT));
	OK(edge_register(d, 4096, &r, WAIT));
	OK(edge_export_region(r, c, "m", EDGE_REMOTE_READ, 0, 4096, &e, WAIT));
	IS(edge_export_revoke(e, 50), EDGE_ERR_TIMEOUT);
	CHECK(edge_notify_wait(c, &n, WAIT) != 0);
	OK(edge_export_revoke(e, WAIT));
	edge_export_free(e);
	OK(edge_register(d, 4096, &other, WAIT)); /* after it */
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* --- with a real one; the program is both ends of each connection --- */

/* What the daemon answers at once needs no time; and an end that was not waited for is found at the next call. */
static void zero(char **arg)
{
	(void)arg;
	edge_device *a = open_device(64, EDGE_ADAPTIVE), *b = open_device(64, EDGE_ADAPTIVE);
	edge_listener *l, *again;
	edge_conn *c, *s;
	edge_region *r;
	edge_export *e;
	OK(edge_listen(b, service(true), &l, 0));
	IS(edge_listen(a, service(false), &again, 0), EDGE_ERR_EXISTS);
	OK(edge_listen_start(a, service(false), &again));
	IS(edge_listener_wait(again, WAIT), EDGE_ERR_EXISTS);
	edge_listener_close(again);
	meet(a, b, l, &c, &s);
	OK(edge_register(b, 4096, &r, 0));
	OK(edge_export_region(r, s, "one", EDGE_REMOTE_READ, 0, 4096, &e, 0));
	OK(edge_export_revoke(e, 0));
	OK(edge_export_revoke(e, 0));
	OK(edge_export_region(r, s, "two", EDGE_REMOTE_READ, 0, 4096, &e, 0));
	OK(edge_region_close(r)); /* the export goes with it */
	OK(edge_export_revoke(e, 0));
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

static void interrupted(int signal)
{
	(void)signal;
}

/* Memory that is lent and taken back again and again, on one connection, while signals arrive. */
static void lend(char **arg)
{
	(void)arg;
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_conn *c, *s;
	edge_region *r;
	edge_export *e;
	edge_remote *m;
	OK(edge_listen(b, service(true), &l, WAIT));
	meet(a, b, l, &c, &s);
	OK(edge_register(b, 4096, &r, WAIT));
	struct sigaction handler = { .sa_handler = interrupted }; /* without SA_RESTART */
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	CHECK(sigaction(SIGALRM, &handler, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < MANY; i++) {
		char name[16];
		snprintf(name, sizeof name, "m%d", i);
		OK(edge_export_region(r, s, name, EDGE_REMOTE_READ, 0, 4096, &e, WAIT));
		OK(edge_import(c, name, &m, WAIT));
		OK(edge_export_revoke(e, WAIT));
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	OK(edge_conn_error(c));
	CHECK(edge_remote_size(m) == 4096); /* what was imported stays known */
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

enum { FREED = 4 };
static pthread_barrier_t together;

static void *free_conn(void *c)
{
	pthread_barrier_wait(&together);
	edge_conn_free(c);
	return NULL;
}

static void *free_stream(void *s)
{
	pthread_barrier_wait(&together);
	edge_stream_close(s, 0);
	return NULL;
}

/* A device is closed before all that belongs to it, which several threads free at once. */
static void order(char **arg)
{
	pthread_t t[2 * FREED];
	OK(pthread_barrier_init(&together, NULL, 2 * FREED));
	for (int round = 0; round < atoi(arg[0]); round++) {
		edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
		edge_listener *l, *ls;
		edge_conn *c[FREED], *s, *asks;
		edge_stream *st[FREED];
		edge_request *left;
		OK(edge_listen(b, service(true), &l, WAIT));
		char streams[40];
		snprintf(streams, sizeof streams, "%s/streams", service(false));
		OK(edge_stream_listen(b, streams, 0, &ls, WAIT));
		for (int i = 0; i < FREED; i++) {
			meet(a, b, l, &c[i], &s);
			edge_conn_free(s);
			OK(edge_stream_dial_start(a, edge_device_name(b), streams, NULL, &st[i], WAIT));
		}
		OK(edge_dial_start(a, edge_device_name(b), service(false), NULL, &asks, WAIT));
		OK(edge_listener_next(l, &left, WAIT));
		edge_device_close(b, 0);
		edge_request_refuse(left, "too late");
		edge_device_close(a, 0);
		edge_conn_free(asks);
		for (int i = 0; i < FREED; i++) {
			OK(pthread_create(&t[i], NULL, free_conn, c[i]));
			OK(pthread_create(&t[FREED + i], NULL, free_stream, st[i]));
		}
		for (int i = 0; i < 2 * FREED; i++)
			OK(pthread_join(t[i], NULL));
	}
}

static void *reads(void *s)
{
	static char buf[1 << 17];
	while (edge_stream_read(s, buf, sizeof buf, WAIT) > 0)
		;
	return NULL;
}

static void *writes(void *s)
{
	static char buf[1 << 17];
	while (edge_stream_write(s, buf, sizeof buf, WAIT) > 0)
		;
	return NULL;
}

/* Threads are reading and writing streams while the program forks, so many times. */
static void forks(char **arg)
{
	edge_device *a = open_device(64, EDGE_ADAPTIVE), *b = open_device(64, EDGE_ADAPTIVE);
	edge_listener *l;
	edge_stream *from, *to;
	pthread_t reader, writer;
	char byte;
	OK(edge_stream_listen(b, service(true), 0, &l, WAIT));
	OK(edge_stream_dial_start(a, edge_device_name(b), service(false), NULL, &from, WAIT));
	while (edge_stream_accept(l, &to, 10) != 0)
		CHECK(edge_stream_wait(from, 10) == 0 || edge_stream_error(from) == EDGE_ERR_AGAIN);
	OK(pthread_create(&reader, NULL, reads, to));
	OK(pthread_create(&writer, NULL, writes, from));
	for (int i = 0; i < atoi(arg[0]); i++) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			alarm(20);
			IS(edge_stream_read(to, &byte, 1, WAIT), EDGE_ERR_FORKED);
			IS(edge_stream_write(from, &byte, 1, WAIT), EDGE_ERR_FORKED);
			edge_stream_close(from, -1);
			edge_stream_close(to, -1);
			edge_device_close(a, WAIT);
			edge_device_close(b, WAIT);
			_exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	edge_stream_reset(from);
	edge_stream_reset(to);
	OK(pthread_join(reader, NULL));
	OK(pthread_join(writer, NULL));
	edge_stream_close(from, 0);
	edge_stream_close(to, 0);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

/* Who never polls is there in time for what comes right before it sleeps. */
static void blocks(char **arg)
{
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_conn *c, *s;
	edge_region *r;
	edge_remote *m;
	OK(edge_listen(b, service(true), &l, WAIT));
	meet(a, b, l, &c, &s);
	OK(edge_register(b, 4096, &r, WAIT));
	OK(edge_export_region(r, s, "m", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT));
	OK(edge_import(c, "m", &m, WAIT));
	edge_work w = { .kind = EDGE_WRITE, .inline_data = "x", .inline_size = 1, .remote = m };
	for (int i = 0; i < atoi(arg[0]); i++) {
		edge_op op;
		OK(edge_post(c, &w, &op));
		OK(edge_op_wait(&op, WAIT));
	}
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

/* So many writes one after another, each waited for on the device's descriptor. */
static void write_each(edge_device *d, edge_conn *c, edge_remote *m, int times)
{
	edge_work w = { .kind = EDGE_WRITE, .inline_data = "x", .inline_size = 1, .remote = m };
	struct pollfd p = { .fd = edge_device_fd(d), .events = POLLIN };
	for (int i = 0; i < times; i++) {
		edge_op op;
		OK(edge_post(c, &w, &op));
		for (;;) {
			edge_device_poll(d);
			if (edge_op_done(&op))
				break;
			if (edge_device_arm(d))
				CHECK(poll(&p, 1, 5000) == 1);
		}
	}
}

static void *waits(void *c)
{
	edge_notification n;
	IS(edge_notify_wait(c, &n, EDGE_FOREVER), EDGE_ERR_RESET);
	return NULL;
}

/* A thread sleeps in the library, another one on the device's descriptor: each is woken for what is its own. */
static void loop(char **arg)
{
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_conn *c, *s, *idle, *other;
	edge_region *r;
	edge_remote *m;
	pthread_t t;
	OK(edge_listen(b, service(true), &l, WAIT));
	meet(a, b, l, &c, &s);
	meet(a, b, l, &idle, &other);
	OK(edge_register(b, 4096, &r, WAIT));
	OK(edge_export_region(r, s, "m", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT));
	OK(edge_import(c, "m", &m, WAIT));
	OK(pthread_create(&t, NULL, waits, idle));
	write_each(a, c, m, atoi(arg[0]));
	edge_conn_free(other);
	OK(pthread_join(t, NULL));
	edge_conn_free(idle);
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

static void *reads_all(void *s)
{
	static char buf[4096];
	ssize_t n;
	while ((n = edge_stream_read(s, buf, sizeof buf, EDGE_FOREVER)) > 0)
		;
	CHECK(n == 0);
	return NULL;
}

static atomic_bool served;

/* Takes what a device is told, notifications among it, whose credit its peers wait for. */
static void *serves(void *device)
{
	struct pollfd p = { .fd = edge_device_fd(device), .events = POLLIN };
	while (!served) {
		edge_device_poll(device);
		if (edge_device_arm(device))
			poll(&p, 1, 10);
	}
	return NULL;
}

/* A thread that waits for what a peer writes is not to be woken for operations, and others on the device are, so many
 * times: for those that they post, and for pieces of a stream before the next ones, of which its peer reads none. */
static void dozes(char **arg)
{
	enum { SMALL = 32 << 10, BYTES = 512 * SMALL };
	static char bytes[BYTES];
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64, .wait = EDGE_BLOCK, .name = "peer", .send_buffer = SMALL,
		.receive_buffer = BYTES };
	edge_device *a, *b;
	edge_listener *l, *streams;
	edge_conn *c, *s;
	edge_region *r;
	edge_remote *m;
	edge_stream *waited, *other, *full, *unread;
	char name[64];
	pthread_t t, server;
	OK(edge_open(&a, &cfg, WAIT));
	OK(edge_open(&b, &cfg, WAIT));
	OK(edge_listen(b, service(true), &l, WAIT));
	meet(a, b, l, &c, &s);
	OK(edge_register(b, 4096, &r, WAIT));
	OK(edge_export_region(r, s, "m", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT));
	OK(edge_import(c, "m", &m, WAIT));
	snprintf(name, sizeof name, "%s-s", service(false));
	OK(edge_stream_listen(b, name, 0, &streams, WAIT));
	stream_between(a, streams, name, &waited, &other);
	stream_between(a, streams, name, &full, &unread);
	OK(pthread_create(&t, NULL, reads_all, waited));
	write_each(a, c, m, atoi(arg[0]));
	struct pollfd p = { .fd = edge_device_fd(a), .events = POLLIN };
	OK(pthread_create(&server, NULL, serves, b));
	for (size_t done = 0; done < BYTES;) {
		ssize_t n = edge_stream_write(full, bytes + done, BYTES - done, 0);
		if (n > 0)
			done += (size_t)n;
		edge_device_poll(a);
		if (n < 0 && !(edge_stream_events(full) & POLLOUT) && edge_device_arm(a))
			CHECK(poll(&p, 1, 1500) == 1); /* less than the reader sleeps for at most */
	}
	served = true;
	OK(pthread_join(server, NULL));
	OK(edge_stream_shutdown(other));
	OK(pthread_join(t, NULL));
	edge_stream *all[] = { waited, other, full, unread };
	for (int i = 0; i < 4; i++)
		edge_stream_close(all[i], 0);
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

static edge_work notifies;
static edge_conn *notified;
static _Atomic pid_t gives_up_is;

/* Waits in vain, and then has something happen that is not its own. */
static void *gives_up(void *c)
{
	edge_notification n;
	gives_up_is = gettid();
	IS(edge_notify_wait(c, &n, 100), EDGE_ERR_TIMEOUT);
	OK(edge_post(notified, &notifies, NULL));
	return NULL;
}

/* Waits until a thread sleeps, or has ended. */
static void asleep(pid_t tid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	for (bool busy = true; busy;) {
		FILE *f = fopen(path, "r");
		busy = f != NULL && fgets(line, sizeof line, f) != NULL && strstr(line, ") S") == NULL;
		if (f != NULL)
			fclose(f);
	}
}

/* The thread that slept in the library gives up: who sleeps on the descriptor relied on it. */
static void alone(char **arg)
{
	(void)arg;
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_conn *c, *idle, *other;
	edge_region *r;
	edge_remote *m;
	edge_notification n;
	pthread_t t;
	OK(edge_listen(b, service(true), &l, WAIT));
	meet(a, b, l, &c, &notified);
	meet(a, b, l, &idle, &other);
	OK(edge_register(a, 4096, &r, WAIT));
	OK(edge_export_region(r, c, "m", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT));
	OK(edge_import(notified, "m", &m, WAIT));
	notifies = (edge_work){ .kind = EDGE_WRITE, .flags = EDGE_NOTIFY, .inline_data = "x", .inline_size = 1,
		.remote = m };
	OK(pthread_create(&t, NULL, gives_up, idle));
	while (gives_up_is == 0)
		;
	asleep(gives_up_is);
	struct pollfd p = { .fd = edge_device_fd(a), .events = POLLIN };
	for (;;) {
		edge_device_poll(a);
		if (edge_notify_wait(c, &n, 0) == 0)
			break;
		if (edge_device_arm(a))
			CHECK(poll(&p, 1, 5000) == 1);
	}
	OK(pthread_join(t, NULL));
	edge_conn *all[] = { c, notified, idle, other };
	for (int i = 0; i < 4; i++)
		edge_conn_free(all[i]);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

static const role roles[] = {
	{ "adopt", adopt, 0 }, { "scarce", scarce, 0 }, { "crowd", crowd, 0 }, { "silent", silent, 0 },
	{ "opening", opening, 0 }, { "dialling", dialling, 0 }, { "revokes", revokes, 0 },
	{ "zero", zero, 0 }, { "lend", lend, 0 }, { "order", order, 1 }, { "forks", forks, 1 },
	{ "loop", loop, 1 }, { "alone", alone, 0 }, { "dozes", dozes, 1 }, { "blocks", blocks, 1 },
};

int main(int argc, char **argv)
{
	return play("odd", roles, sizeof roles / sizeof *roles, argc, argv);
}
