/* Memory that is granted where it is (edge_grant, ABI A7.19). The program is both ends of its connections, but for its
 * daemon's. */
#include <sys/mman.h>

#include "roles.h"

enum { SIZE = 300000, PAGE = 4096 }; /* several trips of a courier's */

static edge_device *a, *b;
static edge_listener *listener;
static edge_conn *c, *s;

static void join(void)
{
	a = open_device(64, EDGE_ADAPTIVE);
	b = open_device(64, EDGE_ADAPTIVE);
	OK(edge_listen(b, service(true), &listener, WAIT));
	meet(a, b, listener, &c, &s);
}

static void part(void)
{
	edge_conn_free(c);
	edge_conn_free(s);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

static int transfer(int kind, edge_region *local, size_t off, size_t size, edge_remote *m, uint64_t at)
{
	edge_op op;
	OK(edge_post_wait(c, &(edge_work){ .kind = kind, .local = local, .local_off = off, .size = size, .remote = m,
		.remote_off = at }, &op, WAIT));
	return edge_op_wait(&op, WAIT);
}

static void fill(unsigned char *p, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		p[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

/* The daemon has no couriers. */
static void denied(char **arg)
{
	(void)arg;
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_region *r;
	char byte;
	IS(edge_grant(d, &byte, 1, &r, WAIT), EDGE_ERR_DENIED);
	CHECK(strstr(edge_message(EDGE_ERR_DENIED), "limits.couriers") != NULL);
	edge_device_close(d, 0);
}

/* Written and read between memory of malloc, at odd addresses, and static memory. */
static void both_ways(void)
{
	static unsigned char mine[SIZE], back[SIZE];
	unsigned char *theirs = malloc(SIZE + 2);
	edge_region *from, *to, *home;
	edge_remote *m;
	edge_op op;
	edge_notification n;
	CHECK(theirs != NULL);
	memset(theirs, 7, SIZE + 2);
	fill(mine, SIZE, 1);
	OK(edge_grant(a, mine, SIZE, &from, WAIT));
	OK(edge_grant(b, theirs + 1, SIZE, &to, WAIT));
	CHECK(edge_region_bytes(to) == theirs + 1 && edge_region_size(to) == SIZE);
	OK(edge_region_error(to));
	OK(edge_export_region(to, s, "both", EDGE_REMOTE_READ | EDGE_REMOTE_WRITE, 0, SIZE, NULL, WAIT));
	OK(edge_import(c, "both", &m, WAIT));
	OK(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .flags = EDGE_NOTIFY, .imm = 5, .local = from, .size = SIZE,
		.remote = m }, &op));
	OK(edge_notify_wait(s, &n, WAIT));
	CHECK(n.imm == 5 && n.size == SIZE);
	CHECK(memcmp(theirs + 1, mine, SIZE) == 0 && theirs[0] == 7 && theirs[SIZE + 1] == 7);
	OK(edge_op_wait(&op, WAIT));
	OK(edge_grant(a, back, SIZE, &home, WAIT));
	OK(transfer(EDGE_READ, home, 0, SIZE, m, 0));
	CHECK(memcmp(back, mine, SIZE) == 0);
	OK(edge_region_close(home));
	OK(edge_region_close(to)); /* no access follows */
	CHECK(transfer(EDGE_WRITE, from, 0, 1, m, 0) < 0);
	free(theirs);
	OK(edge_region_close(from));
}

#ifdef __x86_64__
/* The upper half of a process's addresses, where its code, libraries and stacks are; some of them have no memory. */
static void addresses(void)
{
	const size_t half = (size_t)1 << 46;
	static uint64_t value = 4711;
	uint64_t found = 0, on_stack = 42;
	char *gone = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	edge_region *all, *mine;
	edge_remote *m;
	CHECK(gone != MAP_FAILED && munmap(gone, PAGE) == 0);
	OK(edge_grant(b, (void *)half, half, &all, WAIT));
	OK(edge_export_region(all, s, "all", EDGE_REMOTE_READ, 0, edge_region_size(all), NULL, WAIT));
	OK(edge_import(c, "all", &m, WAIT));
	OK(edge_grant(a, &found, sizeof found, &mine, WAIT));
	OK(transfer(EDGE_READ, mine, 0, 8, m, (uintptr_t)&value - half));
	CHECK(found == value);
	IS(transfer(EDGE_READ, mine, 0, 8, m, (uintptr_t)gone - half), EDGE_ERR_MEMORY);
	OK(transfer(EDGE_READ, mine, 0, 8, m, (uintptr_t)&on_stack - half)); /* others go on */
	CHECK(found == on_stack);
	OK(edge_region_close(mine));
	OK(edge_region_close(all));
}
#endif

static void refusals(void)
{
	static char bytes[64];
	edge_region *r;
	edge_op op;
	int context;
	IS(edge_grant(a, bytes, 0, &r, WAIT), EDGE_ERR_INVALID);
	IS(edge_grant(a, bytes, ((size_t)1 << 46) + 1, &r, WAIT), EDGE_ERR_INVALID);
	IS(edge_grant(a, (void *)(uintptr_t)-PAGE, 1, &r, WAIT), EDGE_ERR_INVALID);
	OK(edge_grant(a, bytes, sizeof bytes, &r, WAIT));
	edge_piece two[2] = { { r, 0, 8 }, { r, 8, 8 } };
	IS(edge_post(c, &(edge_work){ .kind = EDGE_SEND, .local = r, .size = 8 }, &op), EDGE_ERR_INVALID);
	IS(edge_post(c, &(edge_work){ .kind = EDGE_SEND, .pieces = two, .npieces = 1 }, &op), EDGE_ERR_INVALID);
	IS(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .pieces = two, .npieces = 2 }, &op), EDGE_ERR_INVALID);
	IS(edge_post(c, &(edge_work){ .kind = EDGE_RECEIVE, .local = r, .size = 8, .context = &context }, &op),
	   EDGE_ERR_INVALID);
	edge_region *table;
	edge_remote *m;
	OK(edge_register(b, PAGE, &table, WAIT));
	OK(edge_export_region(table, s, "table", EDGE_REMOTE_WRITE, 0, PAGE, NULL, WAIT));
	OK(edge_import(c, "table", &m, WAIT));
	IS(edge_compose(c, &(edge_work){ .kind = EDGE_WRITE, .local = r, .size = 8, .remote = m }, &op), EDGE_ERR_INVALID);
	memcpy(bytes, "one piece", 9);
	OK(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .pieces = two, .npieces = 1, .remote = m }, &op));
	OK(edge_op_wait(&op, WAIT));
	CHECK(memcmp(edge_region_bytes(table), bytes, 8) == 0);
	IS(edge_export_region(r, c, "no", EDGE_REMOTE_READ | EDGE_REMOTE_ATOMIC, 0, 8, NULL, WAIT), EDGE_ERR_INVALID);
	CHECK(strstr(edge_detail(), "heap grant") != NULL);
	uint64_t key;
	IS(edge_share(r, 1, EDGE_REMOTE_READ, 0, 8, 0, 0, &key, WAIT), EDGE_ERR_INVALID);
	OK(edge_region_close(r));
	OK(edge_region_close(table));
}

static void grants(char **arg)
{
	(void)arg;
	join();
	both_ways();
#ifdef __x86_64__ /* elsewhere a process has other addresses */
	addresses();
#endif
	refusals();
	part();
}

/* The peer, another process, writes without end: SERVICE NAME. */
static void writes(char **arg)
{
	edge_device *d = open_device(64, EDGE_ADAPTIVE);
	edge_region *r;
	edge_remote *m;
	OK(edge_dial(d, arg[0], arg[1], NULL, &c, WAIT));
	OK(edge_import(c, "mem", &m, WAIT));
	OK(edge_register(d, SIZE, &r, WAIT));
	memset(edge_region_bytes(r), 1, SIZE);
	edge_work w = { .kind = EDGE_WRITE, .local = r, .size = SIZE, .remote = m };
	while (edge_post_wait(c, &w, NULL, WAIT) == 0)
		;
	edge_conn_free(c);
	edge_device_close(d, 0);
}

/* Memory that peers write to is the program's alone once its device is closed: NODE SERVICE. */
static void closes(char **arg)
{
	static unsigned char bytes[SIZE];
	edge_region *r;
	a = open_device(64, EDGE_ADAPTIVE);
	OK(edge_listen(a, arg[0], &listener, WAIT));
	say("ready");
	OK(edge_accept(listener, &c, WAIT));
	OK(edge_grant(a, bytes, SIZE, &r, WAIT));
	OK(edge_export_region(r, c, "mem", EDGE_REMOTE_WRITE, 0, SIZE, NULL, WAIT));
	while (((volatile unsigned char *)bytes)[SIZE - 1] == 0)
		edge_device_poll(a);
	edge_device_close(a, 0);
	memset(bytes, 9, SIZE);
	edge_conn_free(c);
	say("closed"); /* the peer has ended when the test goes on */
	CHECK(getchar() == '\n');
	for (int i = 0; i < SIZE; i++)
		CHECK(((volatile unsigned char *)bytes)[i] == 9);
}

/* Granted again to the daemon that came in the place of its own. */
static void renews(char **arg)
{
	(void)arg;
	static char mine[64], theirs[64];
	edge_region *from, *to;
	edge_remote *m;
	edge_notification n;
	join();
	OK(edge_grant(a, mine, sizeof mine, &from, WAIT));
	OK(edge_grant(b, theirs, sizeof theirs, &to, WAIT));
	say("ready");
	IS(edge_notify_wait(c, &n, WAIT), EDGE_ERR_DAEMON_DOWN);
	IS(edge_notify_wait(s, &n, WAIT), EDGE_ERR_DAEMON_DOWN);
	edge_conn_free(c);
	edge_conn_free(s);
	say("lost");
	CHECK(getchar() == '\n');
	OK(edge_region_renew(from, WAIT));
	OK(edge_region_renew(to, WAIT));
	CHECK(edge_region_bytes(to) == theirs);
	edge_listener_close(listener);
	OK(edge_listen(b, service(true), &listener, WAIT));
	meet(a, b, listener, &c, &s);
	OK(edge_export_region(to, s, "mem", EDGE_REMOTE_WRITE, 0, sizeof theirs, NULL, WAIT));
	OK(edge_import(c, "mem", &m, WAIT));
	strcpy(mine, "after the restart");
	OK(transfer(EDGE_WRITE, from, 0, sizeof mine, m, 0));
	CHECK(strcmp(theirs, mine) == 0);
	part();
}

static const role roles[] = {
	{ "denied", denied, 0 }, { "grants", grants, 0 }, { "writes", writes, 2 }, { "closes", closes, 1 },
	{ "renews", renews, 0 },
};

int main(int argc, char **argv)
{
	return play("grant", roles, sizeof roles / sizeof *roles, argc, argv);
}
