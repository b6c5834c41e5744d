/* Listening, dialling, accepting, and the ends of connections. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

enum { DIAL_MS = 20000, LISTENS_MS = 500, AGAIN_MS = 20, TRIES = 16, BACKLOG = 128 };
enum { CONSUMER = 28, NO_SERVICE = 8 }; /* reasons of a rejection (the specification's) */

static const char magic[4] = "ECM1";
static const char refusal[] = "rdma_reject ";

/* The queue pair of an identifier, or that the program made by itself and named. */
static struct qp *qp_of(const struct id *v)
{
	if (v->id.qp != NULL)
		return (struct qp *)v->id.qp;
	struct qp *q = v->qpn != 0 ? qps[v->qpn % MAX_QP] : NULL;
	return q != NULL && q->qp.qp_num == v->qpn ? q : NULL;
}

static size_t greet(struct greeting *g, const struct id *v, const struct rdma_conn_param *p)
{
	const struct qp *q = qp_of(v);
	*g = (struct greeting){ .qpn = q != NULL ? q->qp.qp_num : 0, .responder = 16,
		.initiator = 16, .rnr = 7, .port = port_of(&v->id.route.addr.src_addr) };
	if (q != NULL)
		g->high = is_ud(q) ? q->attr.qkey : PD(q)->high;
	memcpy(g->magic, magic, 4);
	write_ip(&v->id.route.addr.src_addr, g->ip);
	if (p != NULL) {
		g->size = p->private_data != NULL ? p->private_data_len : 0;
		memcpy(g->data, p->private_data, g->size);
		g->responder = p->responder_resources;
		g->initiator = p->initiator_depth;
		g->rnr = p->rnr_retry_count;
	}
	return offsetof(struct greeting, data) + g->size;
}

/* Takes what the other side said; false: it is no greeting. */
static bool heed(struct greeting *g, const void *data, size_t size)
{
	memset(g, 0, sizeof *g);
	if (size < offsetof(struct greeting, data) || size > sizeof *g)
		return false;
	memcpy(g, data, size);
	return memcmp(g->magic, magic, 4) == 0 && g->size == size - offsetof(struct greeting, data);
}

static void service_of(char name[32], const struct id *v, const struct sockaddr *a)
{
	snprintf(name, 32, "rdma/%s%u", IS_UD(v) ? "u" : "", port_of(a));
}

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct id *v = (struct id *)id;
	char service[32];
	(void)backlog; /* BACKLOG whatever it says: a program that asks for few would lose peers that NICs let wait */
	lock();
	int err = EDGE_ERR_EXISTS;
	for (int i = 0; err == EDGE_ERR_EXISTS && i < (v->chosen ? TRIES : 1); i++) {
		if (i > 0)
			choose_port(v);
		service_of(service, v, &id->route.addr.src_addr);
		err = edge_listen(lib.dev, service, &v->listener, ASK_MS);
	}
	const struct id *other = err == EDGE_ERR_EXISTS ? twin(v) : NULL;
	if (other != NULL && twin(other) == NULL)
		err = 0;
	if (err == 0)
		v->standing = LISTENING;
	unlock();
	if (err == 0)
		return 0;
	say("no service %s: %s", service, edge_message(err));
	return fails(err == EDGE_ERR_EXISTS ? EADDRINUSE : err == EDGE_ERR_DENIED ? EACCES : EIO);
}

/* The connection of an identifier becomes its queue pair's. */
static void join(struct id *v)
{
	struct qp *q = qp_of(v);
	v->standing = UP;
	if (q == NULL || IS_UD(v))
		return;
	q->attr.dest_qp_num = v->peer.qpn;
	q->attr.rnr_retry = v->rnr;
	v->lent = true;
	if (v->id.qp != NULL) /* else the program changes its state */
		q->qp.state = IBV_QPS_RTS;
	link_up(q, v->conn, v->peer.high);
}

static void dial(struct id *v)
{
	char service[32];
	const struct qp *q = qp_of(v);
	edge_dial_options o = { .size = sizeof o, .ordered = EDGE_OVERLAP, .data = &v->ours,
		.data_size = offsetof(struct greeting, data) + v->ours.size,
		.domain = q != NULL && !is_ud(q) ? PD(q)->number : 0 };
	service_of(service, v, &v->id.route.addr.dst_addr);
	int err = edge_dial_start(lib.dev, v->node, service, &o, &v->conn, DIAL_MS);
	v->standing = err == 0 ? CALLING : IDLE;
	if (err == 0)
		return;
	say("dialling %s of %s: %s", service, v->node, edge_message(err));
	tell(v, NULL, RDMA_CM_EVENT_UNREACHABLE, -EHOSTUNREACH, NULL);
}

EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *v = (struct id *)id;
	lock();
	v->qpn = p != NULL ? p->qp_num : 0;
	v->rnr = p != NULL ? p->rnr_retry_count : 7;
	v->until = now_ms() + LISTENS_MS;
	greet(&v->ours, v, p);
	dial(v);
	unlock();
	wake_thread();
	return await(v);
}

EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	struct id *v = (struct id *)id;
	lock();
	if (v->standing == ANSWERED)
		v->standing = UP;
	unlock();
	return 0;
}

EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	struct id *v = (struct id *)id;
	struct greeting g;
	lock();
	int err = v->request == NULL ? EDGE_ERR_INVALID : 0;
	if (err == 0) {
		v->qpn = p != NULL ? p->qp_num : 0;
		v->rnr = p != NULL ? p->rnr_retry_count : v->peer.rnr;
		size_t n = greet(&g, v, p);
		struct qp *q = qp_of(v);
		if (q != NULL && !IS_UD(v))
			link_join(q, v->request);
		err = edge_request_accept(v->request, &g, n, &v->conn, ASK_MS);
		v->request = NULL;
		if (err != 0 && q != NULL)
			q->link.served = false;
		if (IS_UD(v) && (err == EDGE_ERR_RESET || err == EDGE_ERR_PEER_CLOSED))
			err = 0; /* it has what it asked for, and left before we knew */
	}
	if (err == 0) {
		join(v);
		if (!IS_UD(v))
			tell(v, NULL, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	}
	unlock();
	if (err != 0) {
		say("accepting: %s", edge_message(err));
		return fails(err == EDGE_ERR_INVALID ? EINVAL : ECONNRESET);
	}
	return IS_UD(v) ? 0 : await(v);
}

/* The reason has the program's data, in hexadecimal. */
EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t size)
{
	struct id *v = (struct id *)id;
	char text[sizeof refusal + 2 * PRIVATE];
	strcpy(text, refusal);
	for (int i = 0; i < size && data != NULL; i++)
		sprintf(text + sizeof refusal - 1 + 2 * i, "%02x", ((const unsigned char *)data)[i]);
	lock();
	bool there = v->request != NULL;
	if (there)
		edge_request_refuse(v->request, text);
	v->request = NULL;
	v->standing = IDLE;
	unlock();
	return there ? 0 : fails(EINVAL);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the data of a rejection. */
static void unreject(struct greeting *g, const char *reason)
{
	memset(g, 0, sizeof *g);
	const char *p = reason != NULL ? strstr(reason, refusal) : NULL;
	if (p == NULL)
		return;
	for (p += sizeof refusal - 1; g->size < PRIVATE && digit(p[0]) >= 0 && digit(p[1]) >= 0; p += 2)
		g->data[g->size++] = (unsigned char)(digit(p[0]) << 4 | digit(p[1]));
}

EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	struct id *v = (struct id *)id;
	lock();
	enum standing was = v->standing;
	if (was == UP || was == OVER) {
		struct qp *q = qp_of(v);
		v->standing = OVER;
		if (v->lent)
			v->conn = NULL;
		if (q != NULL)
			link_down(q);
	}
	if (was == UP)
		tell(v, NULL, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	unlock();
	if (was != UP && was != OVER)
		return fails(EINVAL);
	return was == UP ? await(v) : 0;
}

/* Makes an identifier for a request. */
static void asked(struct id *l, edge_request *r)
{
	size_t n;
	const void *data = edge_request_data(r, &n);
	struct greeting g;
	bool greets = heed(&g, data, n);
	struct sockaddr_storage from = { 0 };
	if (greets)
		read_ip((struct sockaddr *)&from, g.ip, g.port);
	struct id *other = greets ? twin(l) : NULL;
	if (other != NULL && other->id.route.addr.src_addr.sa_family == from.ss_family)
		l = other; /* which listens for that family at the same port */
	int waiting = 0;
	for (const struct id *o = ids; o != NULL; o = o->next)
		waiting += o->from == l;
	if (waiting >= BACKLOG) {
		edge_request_refuse(r, "too many requests wait at the listener");
		return;
	}
	struct id *v = greets ? id_make(l->id.channel, l->id.context, l->id.ps) : NULL;
	if (v == NULL) {
		edge_request_refuse(r, "not of a connection manager");
		return;
	}
	char node[65];
	struct rdma_addr *a = &v->id.route.addr;
	read_ip(&a->dst_addr, g.ip, g.port);
	if (!ip_node(&a->dst_addr, node) || (strcmp(node, edge_request_peer(r)) != 0 &&
	    strcmp(node, edge_request_node(r)) != 0)) { /* who dials has that address by its own word only */
		memset(g.ip, 0, sizeof g.ip);
		read_ip(&a->dst_addr, g.ip, g.port);
	}
	a->src_storage = l->id.route.addr.src_storage;
	v->id.verbs = l->id.verbs;
	v->id.pd = l->id.pd;
	v->id.port_num = 1;
	v->request = r;
	v->peer = g;
	v->standing = ASKED;
	v->from = l;
	snprintf(v->node, sizeof v->node, "%s", edge_request_peer(r));
	tell(v, l, RDMA_CM_EVENT_CONNECT_REQUEST, 0, &v->peer);
}

/* Looks what became of a dial. Nobody may listen for a moment: perftest -R connects twice, and listens anew between. */
static void dialled(struct id *v)
{
	if (v->conn == NULL) {
		if (now_ms() >= v->again)
			dial(v);
		return;
	}
	int err = edge_conn_wait(v->conn, 0);
	size_t n;
	if (err == EDGE_ERR_AGAIN)
		return;
	const void *data = err == 0 ? edge_conn_data(v->conn, &n) : NULL;
	if (err == 0 && !heed(&v->peer, data, n))
		err = EDGE_ERR_STRANGER;
	if (err == 0 && IS_UD(v)) {
		edge_conn_free(v->conn);
		v->conn = NULL;
		v->standing = UP;
		tell(v, NULL, RDMA_CM_EVENT_ESTABLISHED, 0, &v->peer);
		return;
	}
	if (err == 0) {
		bool own = v->id.qp != NULL;
		join(v);
		v->standing = own ? UP : ANSWERED;
		tell(v, NULL, own ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_CONNECT_RESPONSE, 0, &v->peer);
		return;
	}
	if (err == EDGE_ERR_NO_SERVICE && now_ms() < v->until) {
		edge_conn_free(v->conn);
		v->conn = NULL;
		v->again = now_ms() + AGAIN_MS;
		return;
	}
	say("dialling %s: %s", v->node, edge_message(err));
	unreject(&v->peer, edge_conn_reason(v->conn));
	bool rejected = err == EDGE_ERR_REFUSED || err == EDGE_ERR_NO_SERVICE;
	tell(v, NULL, rejected ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_UNREACHABLE,
	     err == EDGE_ERR_REFUSED ? CONSUMER : err == EDGE_ERR_NO_SERVICE ? NO_SERVICE : -ETIMEDOUT, &v->peer);
	edge_conn_free(v->conn);
	v->conn = NULL;
	v->standing = IDLE;
}

bool cm_look(void)
{
	bool awaits = false;
	for (struct id *v = ids, *next; v != NULL; v = next) {
		next = v->next;
		edge_request *r;
		switch (v->standing) {
		case LISTENING:
			while (v->listener != NULL && edge_listener_next(v->listener, &r, 0) == 0)
				asked(v, r);
			break;
		case CALLING:
			dialled(v);
			awaits |= v->standing == CALLING;
			break;
		case ANSWERED: case UP: {
			struct qp *q = qp_of(v);
			if (v->lent && (q == NULL || q->link.conn != v->conn))
				v->conn = NULL; /* the program ended it */
			if (v->conn == NULL || edge_conn_error(v->conn) == 0)
				break;
			if (IS_UD(v)) { /* the peer knows what it asked for */
				edge_conn_free(v->conn);
				v->conn = NULL;
				break;
			}
			v->standing = OVER;
			tell(v, NULL, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
			break;
		}
		default:
			break;
		}
	}
	return awaits;
}
