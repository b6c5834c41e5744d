/*
 * Connections for datagrams: one to each process that datagrams go to, dialled when the first does, and one from each
 * process that sends some. They are not the same in both directions: which process it is that dials it says itself,
 * while the daemon knows which one offers the service ib/SLOT.
 *
 * All that arrives shares one receive queue of BUFFERS buffers, which are free again as soon as a datagram is copied
 * or dropped. There are at most PEERS connections in each direction, and OF_NODE of one node: beyond that the one that
 * was used longest ago ends.
 *
 * A datagram waits in its sender's queue while its receiver is dialled, and in the daemon while that has no buffer: so
 * few are lost, but others of the queue wait as well. A node may not make them wait for long: each time that was in
 * vain quarters the time for the next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ud.h"

enum { PEERS = 1024, OF_NODE = 128, BUFFERS = 256, BUCKETS = 256 };
enum { ROOM = 4160, DIAL_MS = 2000, SILENT_MS = 100, PATIENCE_US = 500000, CREDIT_US = 500 };
_Static_assert(ROOM >= sizeof(struct head) + UD_MTU, "a datagram fits");

const char ud_magic[4] = { 'E', 'V', 'U', '1' };

enum standing { CALLED, THERE, SILENT };
struct peer {
	enum standing standing;
	bool ours;             /* we dialled */
	bool tired;            /* CALLED for longer than datagrams wait */
	char node[65];
	uint32_t slot;
	edge_conn *conn;       /* NULL: SILENT */
	struct peer *same_conn, *same_name; /* of one bucket; the latter of those that are ours */
	uint64_t used;         /* when: a count of all datagrams */
	int64_t until;         /* ms: CALLED: when datagrams wait no longer; SILENT: when it is dialled again */
	int64_t patience;      /* us */
	union ibv_gid gid;     /* of its node; what it says last */
};

struct peers { struct peer *list[PEERS]; unsigned n; };
static struct peers to, from;
static struct peer *by_conn[BUCKETS], *by_name[BUCKETS];
static unsigned calling, users; /* dials under way; queue pairs */
static bool held; /* datagrams wait for a dial */
static uint64_t count;

/* The buffers. Those of a daemon that has gone come back one by one. */
struct intake;
struct buffer { struct work work; struct intake *of; struct buffer *next; };
struct intake {
	edge_queue *queue;
	edge_region *region;
	bool over;
	unsigned posted;
	struct buffer *idle; /* libedge had no room for them */
	struct buffer all[BUFFERS];
};
static struct intake *intake;

static struct peer **conn_bucket(const edge_conn *c)
{
	return &by_conn[((uintptr_t)c >> 6) % BUCKETS];
}

static struct peer **name_bucket(const char *node, uint32_t slot)
{
	uint32_t h = slot;
	for (; *node != 0; node++)
		h = h * 31 + (unsigned char)*node;
	return &by_name[h % BUCKETS];
}

static struct peer *find(const edge_conn *c)
{
	struct peer *p = c != NULL ? *conn_bucket(c) : NULL;
	while (p != NULL && p->conn != c)
		p = p->same_conn;
	return p;
}

static void connected(struct peer *p, edge_conn *c)
{
	p->conn = c;
	p->same_conn = *conn_bucket(c);
	*conn_bucket(c) = p;
}

static void disconnect(struct peer *p)
{
	if (p->conn == NULL)
		return;
	struct peer **at = conn_bucket(p->conn);
	while (*at != p)
		at = &(*at)->same_conn;
	*at = p->same_conn;
	edge_conn_free(p->conn); /* what is in flight comes back */
	p->conn = NULL;
}

static void end(struct peer *p)
{
	struct peers *all = p->ours ? &to : &from;
	unsigned i = 0;
	while (all->list[i] != p)
		i++;
	all->list[i] = all->list[--all->n];
	if (p->ours) {
		struct peer **at = name_bucket(p->node, p->slot);
		while (*at != p)
			at = &(*at)->same_name;
		*at = p->same_name;
	}
	calling -= p->standing == CALLED;
	disconnect(p);
	free(p);
}

/* Enters a process. Another one may have to make room: of the same node, if that has many. */
static struct peer *make(struct peers *all, const char *node)
{
	struct peer *oldest = NULL, *of_node = NULL;
	int64_t patience = PATIENCE_US;
	unsigned n = 0;
	for (unsigned i = 0; i < all->n; i++) {
		struct peer *p = all->list[i];
		if (oldest == NULL || p->used < oldest->used)
			oldest = p;
		if (strcmp(p->node, node) != 0)
			continue;
		n++;
		if (p->patience < patience)
			patience = p->patience;
		if (of_node == NULL || p->used < of_node->used)
			of_node = p;
	}
	if (n >= OF_NODE || all->n == PEERS)
		end(n >= OF_NODE ? of_node : oldest);
	struct peer *p = calloc(1, sizeof *p);
	if (p == NULL)
		return NULL;
	*p = (struct peer){ .standing = SILENT, .ours = all == &to, .patience = patience, .used = ++count };
	snprintf(p->node, sizeof p->node, "%s", node);
	all->list[all->n++] = p;
	return p;
}

/* --- what arrives --- */

static void post(struct buffer *b)
{
	struct intake *in = b->of;
	edge_work k = { .kind = EDGE_RECEIVE, .context = &b->work, .local = in->region,
		.local_off = (size_t)(b - in->all) * ROOM, .size = ROOM };
	int err = edge_queue_post(in->queue, &k, NULL);
	if (err == 0) {
		in->posted++;
		return;
	}
	b->next = in->idle;
	in->idle = b;
	in->over |= err != EDGE_ERR_AGAIN;
}

static void drop(struct intake *in)
{
	edge_region_close(in->region);
	free(in);
}

static void arrived(struct work *w, const edge_completion *c)
{
	struct buffer *b = (struct buffer *)w;
	struct intake *in = b->of;
	struct peer *p = find(c->conn);
	in->posted--;
	in->over |= c->err == EDGE_ERR_DAEMON_DOWN;
	if (c->err == 0 && p != NULL) {
		p->used = ++count;
		ud_deliver(p, (char *)edge_region_bytes(in->region) + (size_t)(b - in->all) * ROOM, c->size);
	}
	if (!in->over)
		post(b);
	else if (in->posted == 0 && in != intake)
		drop(in);
}

static int open_intake(void)
{
	if (intake != NULL && !intake->over && edge_region_error(intake->region) == 0)
		return 0;
	struct intake *in = calloc(1, sizeof *in);
	if (in == NULL)
		return EDGE_ERR_NO_MEMORY;
	int err = edge_register(lib.dev, (size_t)BUFFERS * ROOM, &in->region, ASK_MS);
	if (err == 0 && (err = edge_queue_open(lib.dev, &in->queue, ASK_MS)) != 0)
		edge_region_close(in->region);
	if (err != 0) {
		free(in);
		return err;
	}
	if (intake != NULL) {
		edge_queue_close(intake->queue, 0);
		intake->over = true; /* and is freed with the last of its buffers */
		if (intake->posted == 0)
			drop(intake);
	}
	intake = in;
	for (int i = 0; i < BUFFERS; i++) {
		in->all[i] = (struct buffer){ .work.done = arrived, .of = in };
		post(&in->all[i]);
	}
	return 0;
}

int peers_open(void)
{
	int err = open_intake();
	users += err == 0;
	return err;
}

void peers_close(void)
{
	users--;
}

void peer_accept(edge_request *r)
{
	if (users == 0) {
		edge_request_refuse(r, "no queue pair takes datagrams");
		return;
	}
	for (unsigned i = from.n; i-- > 0;)
		if (edge_conn_error(from.list[i]->conn) != 0)
			end(from.list[i]);
	edge_conn *c = NULL;
	struct peer *p = NULL;
	bool early = edge_request_serve(r, intake->queue, ASK_MS) == 0; /* an older daemon has it join afterwards */
	int err = edge_request_accept(r, NULL, 0, &c, ASK_MS);
	if (err == 0 && !early)
		err = edge_queue_serve(intake->queue, c, ASK_MS);
	if (err == 0 && (p = make(&from, edge_conn_node(c))) == NULL) /* now that it is there another may have to go */
		err = EDGE_ERR_NO_MEMORY;
	if (err == 0) {
		connected(p, c);
		gid_of(edge_conn_node(c), &p->gid);
		p->standing = THERE;
		return;
	}
	say("a process of another node cannot send datagrams: %s", edge_message(err));
	if (c != NULL)
		edge_conn_free(c);
}

void peer_gid(struct peer *p, union ibv_gid *gid)
{
	if (memcmp(&p->gid, gid, sizeof *gid) == 0)
		return;
	if (!gid_is(gid, edge_conn_node(p->conn), edge_conn_peer(p->conn)))
		gid_of(edge_conn_node(p->conn), gid);
	p->gid = *gid;
}

/* --- what is sent --- */

static void hang_up(struct peer *p)
{
	calling -= p->standing == CALLED;
	p->standing = SILENT;
	p->until = now_ms() + SILENT_MS;
	disconnect(p);
}

static void call(struct peer *p)
{
	char service[32];
	edge_conn *c;
	edge_dial_options o = { .size = sizeof o, .data = ud_magic, .data_size = sizeof ud_magic };
	snprintf(service, sizeof service, "ib/%u", p->slot);
	int err = edge_dial_start(lib.dev, p->node, service, &o, &c, DIAL_MS);
	if (err != 0) {
		say("no datagrams to %s of %s: %s", service, p->node, edge_message(err));
		hang_up(p);
		return;
	}
	connected(p, c);
	p->standing = CALLED;
	p->tired = false;
	p->until = now_ms() + p->patience / 1000;
	if (calling++ == 0)
		wake_thread();
}

static int put(struct peer *p, const struct stage *s, size_t size, struct work *w)
{
	edge_work k = { .kind = EDGE_SEND, .context = w, .local = s->region, .local_off = s->off, .size = size,
		.patience_us = p->patience > 0 ? p->patience : -1 };
	p->used = ++count;
	return edge_post(p->conn, &k, NULL);
}

int peer_send(const struct ah *a, uint32_t slot, const struct stage *stage, size_t size, struct work *w)
{
	struct peer **bucket = name_bucket(a->node, slot), *p = *bucket;
	while (p != NULL && (p->slot != slot || strcmp(p->node, a->node) != 0))
		p = p->same_name;
	if (p == NULL) {
		if ((p = make(&to, a->node)) == NULL)
			return EDGE_ERR_NO_MEMORY;
		p->slot = slot;
		p->same_name = *bucket;
		*bucket = p;
		call(p);
	} else if (p->standing == SILENT && now_ms() >= p->until)
		call(p);
	if (p->standing == SILENT)
		return EDGE_ERR_PEER_DOWN;
	if (p->standing == CALLED) {
		held |= !p->tired;
		return p->tired ? EDGE_ERR_PEER_DOWN : EDGE_ERR_AGAIN;
	}
	int err = put(p, stage, size, w);
	if (err != 0 && err != EDGE_ERR_AGAIN)
		hang_up(p);
	return err;
}

void peer_heard(const edge_completion *c)
{
	struct peer *p = find(c->conn);
	if (p == NULL)
		return;
	if (c->err == EDGE_ERR_NO_BUFFER)
		p->patience /= 4;
	else if (c->err == 0 && p->patience < PATIENCE_US)
		p->patience += CREDIT_US;
}

/* Looks what became of a dial; true: datagrams to the process need not wait any longer. */
static bool look_at_call(struct peer *p)
{
	int err = edge_conn_wait(p->conn, 0);
	if (err == EDGE_ERR_AGAIN) {
		if (p->tired || now_ms() < p->until)
			return false;
		p->patience /= 4;
		p->tired = true;
		return true;
	}
	if (err != 0) {
		say("no datagrams to ib/%u of %s: %s", p->slot, p->node, edge_message(err));
		hang_up(p);
		return true;
	}
	calling--;
	p->standing = THERE;
	return true;
}

bool peers_look(void)
{
	bool go_on = false;
	for (unsigned i = 0; calling > 0 && i < to.n; i++)
		if (to.list[i]->standing == CALLED)
			go_on |= look_at_call(to.list[i]);
	if (go_on && held) {
		held = false;
		qps_retry();
	}
	for (struct buffer *b = intake != NULL && !intake->over ? intake->idle : NULL, *next; b != NULL; b = next) {
		next = b->next;
		intake->idle = next;
		post(b);
		if (intake->idle == b)
			return true; /* no room yet */
	}
	return calling > 0;
}

void peers_forked(void)
{
	to.n = from.n = calling = users = 0;
	held = false;
	memset(by_conn, 0, sizeof by_conn);
	memset(by_name, 0, sizeof by_name);
	intake = NULL;
}
