/* How ranks find each other (DSM section 1): all dial rank 0 and learn from it on which nodes the others are; then each
 * dials those of smaller numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net.h"

enum { STEP_MS = 250, DIAL_PAUSE_MS = 20, CALL_MS = 10000, FAREWELL_MS = 2000, SPIN_US = 250 /* Spin in Go */ };

static const char greeting[] = "edge-dsm 2 %d ranks %zu bytes %d locks %d words from %d at %s";
static const struct { const char *name; int perm; } exports[2] = {
	[CONTROL] = { "dsm control", EDGE_REMOTE_READ | EDGE_REMOTE_WRITE | EDGE_REMOTE_ATOMIC },
	[DATA] = { "dsm data", EDGE_REMOTE_READ | EDGE_REMOTE_WRITE },
};

static uint64_t until;                          /* when this rank gives up */
static char nodes[MAX_RANKS][NODE_TEXT + 1];    /* identities, by rank */

static void service(char *to, size_t size, int rank)
{
	snprintf(to, size, "dsm/%s/%d", conf.name, rank);
}

/* Names the ranks that are not there. */
static NORETURN void did_not_come(int only, const char *why)
{
	char list[160] = "";
	for (int r = 0; r < conf.ranks; r++)
		if (r != conf.rank && net.conns[r] == NULL && (only < 0 || r == only) && strlen(list) < sizeof list - 8)
			snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", list[0] == 0 ? "" : " ", r);
	fail("ranks [%s] did not come within %d ms; start them with the same EDGE_DSM: %.80s", list, conf.join_ms, why);
}

/* One step of waiting in join: another rank may be lost meanwhile. */
static void step(int only, int err, uint64_t limit)
{
	const char *why = edge_message(err);
	look();
	if (now_ns() >= limit)
		did_not_come(only, why);
	if (!edge_error_is(err, EDGE_ERR_TIMEOUT) && err != EDGE_ERR_AGAIN)
		nanosleep(&(struct timespec){ .tv_nsec = DIAL_PAUSE_MS * 1000000 }, NULL); /* it has not started yet */
}

/* Exports this rank's memory on a connection, and imports the other's. */
static void exchange(int rank, edge_conn *conn)
{
	net.conns[rank] = conn;
	for (int i = 0; i < 2; i++) {
		edge_export *export_;
		check(rank, edge_export_region(net.areas[i], conn, exports[i].name, exports[i].perm, 0,
			edge_region_size(net.areas[i]), &export_, CALL_MS));
	}
	for (int i = 0; i < 2; i++) {
		int err;
		while ((err = edge_import(conn, exports[i].name, &net.there[rank][i], STEP_MS)) == EDGE_ERR_TIMEOUT)
			step(-1, err, until);
		check(rank, err);
		if (edge_remote_size(net.there[rank][i]) != edge_region_size(net.areas[i]))
			fail("rank %d exports %llu bytes as \"%s\"", rank, (unsigned long long)edge_remote_size(net.there[rank][i]),
			     exports[i].name);
	}
}

static void dial(int rank, const char *node, uint64_t limit)
{
	char at[sizeof conf.name + 32], hello[512];
	service(at, sizeof at, rank);
	int n = snprintf(hello, sizeof hello, greeting, conf.ranks, conf.memory, conf.locks, conf.log, conf.rank,
	                 edge_device_node(net.dev));
	edge_dial_options o = { .size = sizeof o, .data = hello, .data_size = (size_t)n };
	for (;;) {
		edge_conn *conn;
		int err = edge_dial(net.dev, node, at, &o, &conn, CALL_MS);
		if (err == 0) {
			exchange(rank, conn);
			return;
		}
		if (err == EDGE_ERR_REFUSED)
			fail("rank %d refuses this one: %s", rank, edge_message(err));
		if (err != EDGE_ERR_NO_SERVICE && err != EDGE_ERR_PEER_UNKNOWN && err != EDGE_ERR_PEER_DOWN)
			fail("rank %d cannot be dialled: %s", rank, edge_message(err));
		step(rank == 0 ? 0 : -1, err, limit);
	}
}

/* What a dialler says of itself; false: it is refused, for the reason. */
static bool read_greeting(const edge_request *r, int *rank, char node[NODE_TEXT + 1], char *reason, size_t size)
{
	char hello[513];
	size_t n, memory;
	const void *data = edge_request_data(r, &n);
	n = n < sizeof hello - 1 ? n : sizeof hello - 1;
	memcpy(hello, data, n);
	hello[n] = 0;
	int ranks, locks, log, end = 0;
	_Static_assert(NODE_TEXT == 64, "the width in the format");
	if (sscanf(hello, "edge-dsm 2 %d ranks %zu bytes %d locks %d words from %d at %64s%n", &ranks, &memory, &locks,
	           &log, rank, node, &end) != 6 || hello[end] != 0) {
		snprintf(reason, size, "this is a rank of a dsm run, which speaks version 2 of its protocol");
		return false;
	}
	if (ranks != conf.ranks || memory != conf.memory || locks != conf.locks || log != conf.log) {
		snprintf(reason, size,
		         "rank %d has %d ranks, %zu bytes, %d locks and a log of %d words; all must have the same", conf.rank,
		         conf.ranks, conf.memory, conf.locks, conf.log);
		return false;
	}
	if (*rank <= conf.rank || *rank >= conf.ranks || net.conns[*rank] != NULL) {
		snprintf(reason, size, "there is a rank %d already, or none of that number is expected", *rank);
		return false;
	}
	return true;
}

/* Takes the connection of a rank of greater number, and refuses whoever is none. */
static void accept_one(edge_listener *l)
{
	for (;;) {
		edge_request *r;
		edge_conn *conn;
		int rank, err = edge_listener_next(l, &r, STEP_MS);
		if (edge_error_is(err, EDGE_ERR_TIMEOUT)) {
			step(-1, err, until);
			continue;
		}
		if (err != 0)
			fail("waiting for the other ranks: %s", edge_message(err));
		char node[NODE_TEXT + 1] = { 0 }, reason[200]; /* the roster has zeros behind each */
		if (!read_greeting(r, &rank, node, reason, sizeof reason)) {
			(void)edge_request_refuse(r, reason); /* it may have gone */
			continue;
		}
		if (edge_request_accept(r, NULL, 0, &conn, CALL_MS) != 0)
			continue; /* it has gone */
		memcpy(nodes[rank], node, sizeof node);
		exchange(rank, conn);
		return;
	}
}

/* Rank 0 tells the others on which nodes all ranks are. */
static void send_roster(void)
{
	for (int r = 0; r < conf.ranks; r++)
		memcpy(mem.ctl + lay.roster + (size_t)r * NODE_TEXT, nodes[r], NODE_TEXT);
	for (int r = 1; r < conf.ranks; r++)
		net_write(r, CONTROL, lay.roster, lay.roster, (size_t)conf.ranks * NODE_TEXT, NOTE(NOTE_ROSTER, 0));
	net_wait();
}

static void await_roster(void)
{
	edge_notification n;
	int err;
	while ((err = edge_notify_wait(net.conns[0], &n, STEP_MS)) == EDGE_ERR_TIMEOUT)
		step(-1, err, until);
	check(0, err);
	if (n.imm >> NOTE_SHIFT == NOTE_ENDING)
		told(0);
	if (n.imm != NOTE(NOTE_ROSTER, 0))
		broken(0, "its first notification is %#x", n.imm);
	for (int r = 0; r < conf.ranks; r++)
		memcpy(nodes[r], mem.ctl + lay.roster + (size_t)r * NODE_TEXT, NODE_TEXT);
}

/* Connects to all ranks. Rank 0 alone sees which ranks do not come, and says so: the others wait for its word. */
static void meet_all(edge_listener *l)
{
	uint64_t patience = (uint64_t)conf.join_ms * MILLI, start = now_ns();
	until = start + (conf.rank == 0 ? patience : 2 * patience + FAREWELL_MS * (uint64_t)MILLI);
	if (conf.rank > 0) {
		dial(0, conf.root, start + patience);
		await_roster();
	}
	for (int r = 1; r < conf.rank; r++)
		dial(r, nodes[r], until);
	snprintf(nodes[conf.rank], sizeof nodes[0], "%s", edge_device_node(net.dev));
	for (int r = conf.rank + 1; r < conf.ranks; r++)
		accept_one(l);
	if (conf.rank == 0)
		send_roster();
}

/* Tells the other ranks why this one ends. It waits for no more than their nodes' answers. */
static void tell(const char *text)
{
	size_t at = lay.ending + (16 + MAX_TEXT) * (size_t)conf.rank, n = strlen(text);
	uint64_t limit = now_ns() + FAREWELL_MS * (uint64_t)MILLI;
	edge_op ops[MAX_RANKS];
	n = n < MAX_TEXT ? n : MAX_TEXT;
	memcpy(mem.ctl + at + 16, text, n);
	store(at, n);
	for (int r = 0; r < conf.ranks; r++) {
		ops[r] = (edge_op){ 0 };
		if (net.there[r][CONTROL] != NULL) /* whoever does not hear it sees the connection end */
			(void)edge_post(net.conns[r], &(edge_work){ .kind = EDGE_WRITE, .flags = EDGE_NOTIFY,
				.imm = NOTE(NOTE_ENDING, 0), .local = net.areas[CONTROL], .local_off = at, .size = 16 + MAX_TEXT,
				.remote = net.there[r][CONTROL], .remote_off = at }, &ops[r]);
	}
	for (int r = 0; r < conf.ranks; r++) {
		uint64_t now = now_ns();
		if (ops[r].dev != NULL && now < limit)
			(void)edge_op_wait(&ops[r], (int)((limit - now) / MILLI) + 1);
	}
}

/* Registers both regions, data in memfd, and connects. */
void join(int memfd)
{
	char at[sizeof conf.name + 32];
	edge_listener *l;
	int err = edge_open(&net.dev, &(edge_config){ .size = sizeof (edge_config), .spin_us = SPIN_US }, CALL_MS);
	if (err != 0)
		fail("%s", edge_message(err));
	snprintf(conf.self, sizeof conf.self, "%s", edge_device_name(net.dev));
	err = edge_register_memfd(net.dev, memfd, mem.raw, conf.memory, &net.areas[DATA], CALL_MS);
	if (err != 0)
		fail("%zu bytes of memory: %s", conf.memory, edge_message(err));
	err = edge_register(net.dev, lay.size, &net.areas[CONTROL], CALL_MS);
	if (err != 0)
		fail("%zu bytes of memory: %s", lay.size, edge_message(err));
	mem.ctl = edge_region_bytes(net.areas[CONTROL]);
	farewell = tell;
	service(at, sizeof at, conf.rank);
	err = edge_listen(net.dev, at, &l, CALL_MS);
	if (err != 0)
		fail("service %s: %s", at, edge_message(err));
	meet_all(l);
	edge_listener_close(l);
}
