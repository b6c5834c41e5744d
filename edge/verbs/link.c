/*
 * How two queue pairs find each other. Numbers of queue pairs have two parts: the process, by a service ib/SLOT that it
 * offers, and the queue pair there. Of two that name each other the one with the greater (number, identity) dials, as
 * both can tell; the other holds the request until it has been told of its peer, and accepts it only from the node that
 * its destination GID names. Both say their number, the number that they want, and half of the keys of their memory.
 *
 * One that names itself dials and accepts, and has both ends.
 *
 * That RTS does not wait: what is posted before the other side is there waits in the queue. A dial that finds nobody is
 * repeated, since the other process may be about to offer its service.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ud.h"

enum { SLOTS = 1 << 12, PENDING = 128, OF_NODE = PENDING / 4, BUCKETS = 1024 };
enum { HOLD_MS = 60000, DIAL_MS = 60000, AGAIN_MS = 50, CLOSE_MS = 500, RETRIES_MS = 500 };

struct hello { char magic[4]; uint32_t from, to, high; };
static const char magic[4] = "EVB1";

struct pending { struct pending *next; edge_request *request; struct hello hello; int64_t until; };

static edge_listener *listener;
static uint32_t slot;
static struct pending *pending;
static unsigned npending, beginning; /* requests held; queue pairs that are not linked yet */
static unsigned doubles; /* queue pairs with both ends of a connection */
static bool retrying;    /* queue pairs have not given up peers that have gone */
static struct qp *buckets[BUCKETS];

uint32_t link_slot(void)
{
	return slot << 12;
}

static struct qp **bucket(const edge_conn *c)
{
	return &buckets[((uintptr_t)c >> 6) % BUCKETS];
}

struct qp *link_qp(const edge_conn *c)
{
	struct qp *q = *bucket(c);
	while (q != NULL && q->link.conn != c)
		q = q->link.next;
	for (int i = 0; q == NULL && doubles > 0 && i < MAX_QP; i++)
		if (qps[i] != NULL && qps[i]->link.back == c)
			q = qps[i];
	return q;
}

edge_conn *link_receiving(const struct qp *q)
{
	return q->link.back != NULL ? q->link.back : q->link.conn;
}

bool link_gives_up(struct qp *q, int err)
{
	struct link *l = &q->link;
	if (err != EDGE_ERR_PEER_CLOSED && err != EDGE_ERR_RESET)
		return true;
	int64_t now = now_ms();
	if (l->given_up == 0) {
		const struct ibv_qp_attr *a = &q->attr; /* the specification: 4.096 us, doubled timeout times, for each try */
		int64_t ms = (INT64_C(4096) << a->timeout % 32) * (a->retry_cnt + 1) / 1000000;
		l->given_up = now + (a->timeout != 0 && ms < RETRIES_MS ? ms : RETRIES_MS);
		retrying = true;
		wake_thread();
	}
	return now >= l->given_up;
}

static void look_at_retries(void)
{
	retrying = false;
	for (int i = 0; i < MAX_QP; i++) {
		struct qp *q = qps[i];
		if (q == NULL || q->link.given_up == 0 || q->qp.state != IBV_QPS_RTS)
			continue;
		if (now_ms() >= q->link.given_up)
			send_retire(q);
		else
			retrying = true;
	}
}

static bool is_own_peer(const struct qp *q)
{
	return q->qp.qp_num == q->attr.dest_qp_num && own_gid(&q->attr.ah_attr.grh.dgid) >= 0;
}

static void drop_back(struct qp *q)
{
	if (q->link.back == NULL)
		return;
	edge_conn_free(q->link.back);
	q->link.back = NULL;
	doubles--;
}

static void enter(struct qp *q, edge_conn *c)
{
	q->link.conn = c;
	q->link.next = *bucket(c);
	*bucket(c) = q;
}

static void leave(struct qp *q)
{
	struct qp **at = bucket(q->link.conn);
	while (*at != q)
		at = &(*at)->link.next;
	*at = q->link.next;
	q->link.conn = NULL;
}

/* The queue pair and its peer can reach each other. */
static void linked(struct qp *q, uint32_t high)
{
	q->link.state = LINKED;
	q->link.high = high;
	int err = q->srq != NULL && !q->link.served ? edge_queue_serve(q->srq->queue, link_receiving(q), ASK_MS) : 0;
	if (err != 0)
		say("queue pair %#x takes nothing from its shared receive queue: %s", q->qp.qp_num, edge_message(err));
	recv_issue(q);
	send_issue(q);
}

void link_join(struct qp *q, edge_request *r)
{
	edge_request_join(r, PD(q)->number);
	q->link.served = q->srq != NULL && edge_request_serve(r, q->srq->queue, ASK_MS) == 0;
}

void link_up(struct qp *q, edge_conn *c, uint32_t high)
{
	enter(q, c);
	linked(q, high);
}

static void broken(struct qp *q, int err)
{
	say("queue pair %#x is not linked to %#x at %s: %s", q->qp.qp_num, q->attr.dest_qp_num, q->link.node,
	    edge_message(err));
	q->link.state = BROKEN;
	q->link.err = err;
	send_issue(q);
}

static void dial(struct qp *q)
{
	char service[32];
	struct hello h = { .from = q->qp.qp_num, .to = q->attr.dest_qp_num, .high = PD(q)->high };
	memcpy(h.magic, magic, 4);
	edge_dial_options o = { .size = sizeof o, .ordered = EDGE_OVERLAP, .data = &h, .data_size = sizeof h,
		.domain = PD(q)->number };
	snprintf(service, sizeof service, "ib/%u", q->attr.dest_qp_num >> 12);
	edge_conn *c;
	int64_t left = q->link.until - now_ms();
	q->link.state = DIALLING;
	q->link.again = 0;
	int err = edge_dial_start(lib.dev, q->link.node, service, &o, &c, left > 1 ? (int)left : 1);
	if (err == 0) {
		enter(q, c);
		return;
	}
	beginning--;
	broken(q, err);
}

/* Whether a dial that failed is worth repeating. */
static bool may_come(int err)
{
	return err == EDGE_ERR_NO_SERVICE || err == EDGE_ERR_PEER_UNKNOWN || err == EDGE_ERR_REFUSED ||
		err == EDGE_ERR_RESET || err == EDGE_ERR_PEER_DOWN;
}

static void look_at_dial(struct qp *q)
{
	edge_conn *c = q->link.conn;
	if (c == NULL) {
		if (now_ms() >= q->link.again)
			dial(q);
		return;
	}
	int err = edge_conn_wait(c, 0);
	if (err == EDGE_ERR_AGAIN)
		return;
	size_t n = 0;
	const struct hello *h = err == 0 ? edge_conn_data(c, &n) : NULL;
	if (err == 0 && (n != sizeof *h || memcmp(h->magic, magic, 4) != 0 || h->to != q->qp.qp_num ||
	    !gid_is(&q->attr.ah_attr.grh.dgid, edge_conn_node(c), edge_conn_peer(c))))
		err = EDGE_ERR_STRANGER; /* not who was meant */
	if (err == 0) {
		beginning--;
		linked(q, h->high);
		return;
	}
	leave(q);
	edge_conn_free(c);
	drop_back(q);
	if (may_come(err) && now_ms() < q->link.until) {
		q->link.again = now_ms() + AGAIN_MS;
		return;
	}
	beginning--;
	broken(q, err);
}

/* Accepts the request that a queue pair awaits. */
static void take(struct qp *q, struct pending *p)
{
	struct hello h = { .from = q->qp.qp_num, .to = p->hello.from, .high = PD(q)->high };
	edge_conn *c;
	memcpy(h.magic, magic, 4);
	link_join(q, p->request);
	int err = edge_request_accept(p->request, &h, sizeof h, &c, ASK_MS);
	if (err != 0) {
		say("queue pair %#x does not accept: %s", q->qp.qp_num, edge_message(err));
		return; /* the peer dials anew */
	}
	if (is_own_peer(q)) { /* it is linked when it knows that the dial was accepted */
		q->link.back = c;
		doubles++;
		return;
	}
	beginning--;
	enter(q, c);
	linked(q, p->hello.high);
}

/* The queue pair that a request is for, if that waits for it; NULL: not yet. */
static struct qp *meant(const struct pending *p, bool *never)
{
	struct qp *q = qps[p->hello.to % MAX_QP];
	*never = now_ms() >= p->until;
	if (q == NULL || q->qp.qp_num != p->hello.to || q->attr.dest_qp_num != p->hello.from)
		return NULL;
	bool awaits = q->link.state == AWAITED || (q->link.state == DIALLING && q->link.back == NULL && is_own_peer(q));
	if (!awaits)
		return NULL;
	if (gid_is(&q->attr.ah_attr.grh.dgid, edge_request_node(p->request), edge_request_peer(p->request)))
		return q;
	*never = true;
	return NULL;
}

static void look_at_requests(void)
{
	for (struct pending **at = &pending, *p; (p = *at) != NULL;) {
		bool never;
		struct qp *q = meant(p, &never);
		if (q == NULL && !never) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		npending--;
		if (q != NULL)
			take(q, p);
		else
			edge_request_refuse(p->request, "no queue pair waits for that node");
		free(p);
	}
}

/* Whether one more request may wait: those of one node leave room for others. */
static bool may_wait(const edge_request *r)
{
	int n = 0;
	for (const struct pending *p = pending; p != NULL; p = p->next)
		n += strcmp(edge_request_node(p->request), edge_request_node(r)) == 0;
	return npending < PENDING && n < OF_NODE;
}

static void hold(edge_request *r)
{
	size_t n;
	const struct hello *h = edge_request_data(r, &n);
	if (n == sizeof ud_magic && memcmp(h, ud_magic, n) == 0) {
		peer_accept(r);
		return;
	}
	struct pending *p = n == sizeof *h && memcmp(h->magic, magic, 4) == 0 && may_wait(r) ? calloc(1, sizeof *p) : NULL;
	if (p == NULL) {
		edge_request_refuse(r, n == sizeof *h ? "too many requests wait for their queue pairs" : "not a queue pair's");
		return;
	}
	*p = (struct pending){ .next = pending, .request = r, .hello = *h, .until = now_ms() + HOLD_MS };
	pending = p;
	npending++;
}

/* Returns whether something is on its way. */
static bool look(void)
{
	enum { AT_ONCE = 16 }; /* others wait for the lock meanwhile */
	edge_request *r;
	int n = 0;
	for (; n < AT_ONCE && listener != NULL && edge_listener_next(listener, &r, 0) == 0; n++)
		hold(r);
	if (pending != NULL)
		look_at_requests();
	for (int i = 0; beginning > 0 && i < MAX_QP; i++)
		if (qps[i] != NULL && qps[i]->link.state == DIALLING)
			look_at_dial(qps[i]);
	if (retrying)
		look_at_retries();
	bool waits = sends_look();
	return peers_look() || waits || n == AT_ONCE || beginning > 0 || retrying;
}

int links_open(void)
{
	static struct watcher watcher = { .step = look };
	if (listener != NULL)
		return 0;
	uint32_t from = 0;
	if (getrandom(&from, sizeof from, 0) != sizeof from)
		return EDGE_ERR_SYSTEM;
	int err = EDGE_ERR_EXISTS;
	for (uint32_t i = 0; i < SLOTS - 1 && err == EDGE_ERR_EXISTS; i++) {
		char service[32];
		slot = (from + i) % (SLOTS - 1) + 1;
		snprintf(service, sizeof service, "ib/%u", slot);
		err = edge_listen(lib.dev, service, &listener, ASK_MS);
	}
	if (err != 0) {
		say("no service ib/%u: %s", slot, edge_message(err));
		listener = NULL;
		return err;
	}
	watch(&watcher);
	return 0;
}

void link_begin(struct qp *q)
{
	struct ibv_qp_attr *a = &q->attr;
	struct link *l = &q->link;
	*l = (struct link){ .until = now_ms() + DIAL_MS };
	if (!gid_node(&a->ah_attr.grh.dgid, l->node)) {
		broken(q, EDGE_ERR_PEER_UNKNOWN);
		return;
	}
	union ibv_gid ours;
	gid_at(a->ah_attr.grh.sgid_index, &ours);
	int order = q->qp.qp_num != a->dest_qp_num ? (q->qp.qp_num > a->dest_qp_num ? 1 : -1) : is_own_peer(q) ? 0 :
		memcmp(ours.raw, a->ah_attr.grh.dgid.raw, sizeof ours.raw);
	beginning++;
	l->state = AWAITED;
	if (order >= 0)
		dial(q);
	step();
	wake_thread();
}

void link_end(struct qp *q)
{
	struct link *l = &q->link;
	if (l->state == AWAITED || l->state == DIALLING)
		beginning--;
	if (l->conn != NULL)
		edge_conn_abort(l->conn);
	if (l->back != NULL)
		edge_conn_abort(l->back);
	if (l->state != ALONE) {
		l->state = BROKEN;
		l->err = IBV_WC_WR_FLUSH_ERR;
	}
}

/* Waits until nothing that libedge does names the queue pair. */
static bool drained(struct qp *q, int64_t until)
{
	progress();
	while (q->pending > 0 && now_ms() < until) {
		unlock();
		wait_for(-1, 1);
		lock();
		progress();
	}
	return q->pending == 0;
}

void link_close(struct qp *q)
{
	struct link *l = &q->link;
	while (l->closing) { /* another thread ends it */
		unlock();
		wait_for(-1, 1);
		lock();
	}
	l->closing = true;
	edge_conn *c = l->conn;
	if (l->state == LINKED && edge_conn_error(c) == 0) {
		int64_t until = now_ms() + CLOSE_MS; /* the peer learns what it has sent us */
		l->state = BROKEN;
		l->err = IBV_WC_WR_FLUSH_ERR;
		while (edge_conn_close(c, 0) == EDGE_ERR_AGAIN && now_ms() < until) {
			unlock();
			wait_for(-1, 1);
			lock();
			progress();
		}
	}
	link_end(q);
	if (!drained(q, now_ms() + ASK_MS))
		say("queue pair %#x has work in flight that does not end", q->qp.qp_num);
	if (c != NULL) {
		leave(q);
		edge_conn_free(c);
	}
	drop_back(q);
	*l = (struct link){ 0 };
}

void link_down(struct qp *q)
{
	link_close(q);
	qp_error(q);
}

void links_forked(void)
{
	peers_forked();
	listener = NULL;
	pending = NULL;
	npending = beginning = doubles = 0;
	retrying = false;
	memset(buckets, 0, sizeof buckets);
	memset(qps, 0, sizeof qps);
}
