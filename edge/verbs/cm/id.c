/* Identifiers and their addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cm.h"

enum { FIRST_PORT = 32768, PORTS = 28232, EVENTS_MS = 5 };

struct id *ids;
static struct ibv_context *context;
static struct ibv_pd *pd;

int fails(int error)
{
	errno = error;
	return -1;
}

struct ibv_context *cm_context(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static struct watcher watcher = { .step = cm_look };
	pthread_mutex_lock(&once);
	if (context == NULL) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
		pd = context != NULL ? ibv_alloc_pd(context) : NULL;
		ibv_free_device_list(list);
		if (context != NULL) {
			lock();
			watch(&watcher);
			unlock();
		} else
			errno = ENODEV;
	}
	pthread_mutex_unlock(&once);
	return context;
}

struct ibv_pd *cm_pd(void)
{
	return pd;
}

EXPORT struct ibv_context **rdma_get_devices(int *n)
{
	struct ibv_context **list = cm_context() != NULL ? calloc(2, sizeof *list) : NULL;
	if (list != NULL)
		list[0] = context;
	if (n != NULL)
		*n = list != NULL;
	return list;
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

struct id *id_make(struct rdma_event_channel *channel, void *of, enum rdma_port_space ps)
{
	struct id *v = calloc(1, sizeof *v);
	if (v == NULL)
		return NULL;
	v->id = (struct rdma_cm_id){ .channel = channel, .context = of, .ps = ps,
		.qp_type = ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC };
	v->rnr = 7;
	v->next = ids;
	ids = v;
	return v;
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *of, enum rdma_port_space ps)
{
	if (cm_context() == NULL)
		return -1;
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB && ps != RDMA_PS_UDP)
		return fails(EOPNOTSUPP); /* IP over InfiniBand */
	bool alone = channel == NULL;
	if (alone && (channel = rdma_create_event_channel()) == NULL)
		return -1;
	lock();
	struct id *v = id_make(channel, of, ps);
	if (v != NULL)
		v->alone = alone;
	unlock();
	if (v == NULL)
		return fails(ENOMEM);
	*id = &v->id;
	return 0;
}

struct id *twin(const struct id *v)
{
	const struct sockaddr *a = &v->id.route.addr.src_addr;
	struct id *o = ids;
	for (; o != NULL; o = o->next) {
		const struct sockaddr *b = &o->id.route.addr.src_addr;
		if (o != v && o->standing == LISTENING && IS_UD(o) == IS_UD(v) && port_of(a) == port_of(b) &&
		    a->sa_family != b->sa_family)
			break;
	}
	return o;
}

/* Ends what the identifier stands for; its queue pair stays the program's. */
static void end(struct id *v)
{
	struct id *other = v->listener != NULL ? twin(v) : NULL;
	if (other != NULL)
		other->listener = v->listener;
	else if (v->listener != NULL)
		edge_listener_close(v->listener);
	if (v->request != NULL)
		edge_request_refuse(v->request, "");
	if (v->conn != NULL && !v->lent)
		edge_conn_free(v->conn);
	v->listener = NULL;
	v->request = NULL;
	v->conn = NULL;
	v->standing = IDLE;
}

/* Ends the requests at a listener of which the program has not heard. */
static void forget_requests(const struct id *l)
{
	for (struct id **at = &ids, *v; (v = *at) != NULL;) {
		if (v->from != l) {
			at = &v->next;
			continue;
		}
		*at = v->next;
		end(v);
		inbox_forget(&((struct cm_channel *)v->id.channel)->inbox, v);
		free(v);
	}
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct id *v = (struct id *)id;
	if (id->event != NULL)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	lock();
	struct id **at = &ids;
	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	end(v);
	forget_requests(v);
	inbox_forget(&((struct cm_channel *)id->channel)->inbox, v);
	while (v->told > 0) { /* another thread has an event of it */
		unlock();
		wait_for(-1, EVENTS_MS);
		lock();
	}
	unlock();
	if (v->alone)
		rdma_destroy_event_channel(id->channel);
	free(v->wanted);
	free(v);
	return 0;
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct id *v = (struct id *)id;
	struct rdma_event_channel *before = id->channel;
	bool alone = channel == NULL;
	if (alone && (channel = rdma_create_event_channel()) == NULL)
		return -1;
	lock();
	struct inbox *from = &((struct cm_channel *)before)->inbox, *to = &((struct cm_channel *)channel)->inbox;
	for (struct event **at = &from->first, *e; (e = *at) != NULL;) { /* what waits goes along */
		struct cm_event *c = (struct cm_event *)e;
		if (e->of != v || c->cm.listen_id != NULL) {
			at = &e->next;
			continue;
		}
		struct cm_event *copy = malloc(sizeof *copy);
		if (copy != NULL) {
			*copy = *c;
			if (copy->cm.param.conn.private_data != NULL) /* the first member of param.ud as well */
				copy->cm.param.conn.private_data = copy->data;
			inbox_put(to, &copy->e);
		}
		at = &e->next;
	}
	inbox_forget(from, v);
	forget_requests(v); /* their events are in the other channel: the peers are refused */
	bool was = v->alone;
	id->channel = channel;
	v->alone = alone;
	unlock();
	if (was)
		rdma_destroy_event_channel(before);
	return 0;
}

uint16_t port_of(const struct sockaddr *a)
{
	return ntohs(a->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port :
	             ((const struct sockaddr_in *)a)->sin_port);
}

void set_port(struct sockaddr *a, uint16_t port)
{
	*(a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port : &((struct sockaddr_in *)a)->sin_port) =
		htons(port);
}

void choose_port(struct id *v)
{
	uint16_t n = 0;
	if (getrandom(&n, sizeof n, 0) < 0)
		n = (uint16_t)(uintptr_t)v;
	v->chosen = true;
	set_port(&v->id.route.addr.src_addr, (uint16_t)(FIRST_PORT + n % PORTS));
}

void write_ip(const struct sockaddr *a, unsigned char ip[16])
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (a->sa_family == AF_INET6) {
		memcpy(ip, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
		return;
	}
	memcpy(ip, mapped, 12);
	memcpy(ip + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
}

void read_ip(struct sockaddr *a, const unsigned char ip[16], uint16_t port)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (memcmp(ip, mapped, 12) == 0) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
		memcpy(&in.sin_addr, ip + 12, 4);
		memcpy(a, &in, sizeof in);
		return;
	}
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	memcpy(&in.sin6_addr, ip, 16);
	memcpy(a, &in, sizeof in);
}

static size_t size_of(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* An address of ours to be reached at: of the same family if there is one. */
static void own_address(struct sockaddr *a, int family)
{
	union ibv_gid g;
	for (int i = family == AF_INET ? 1 : 0; gid_at(i, &g); i++) {
		read_ip(a, g.raw, 0);
		if (a->sa_family == family)
			return;
	}
	gid_at(0, &g);
	read_ip(a, g.raw, 0);
}

static void bound(struct id *v)
{
	struct rdma_cm_id *id = &v->id;
	id->verbs = context;
	id->port_num = 1;
	if (id->pd == NULL)
		id->pd = pd;
	if (port_of(&id->route.addr.src_addr) == 0)
		choose_port(v);
	unsigned char ip[16];
	write_ip(&id->route.addr.src_addr, ip);
	struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;
	memcpy(ib->sgid.raw, ip, 16);
	ib->pkey = 0xffff;
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *a)
{
	if (a->sa_family != AF_INET && a->sa_family != AF_INET6)
		return fails(EAFNOSUPPORT);
	lock();
	memcpy(&id->route.addr.src_storage, a, size_of(a));
	bound((struct id *)id);
	unlock();
	return 0;
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct id *v = (struct id *)id;
	(void)timeout_ms; /* the map is a file */
	lock();
	memcpy(&id->route.addr.dst_storage, dst, size_of(dst));
	if (src != NULL)
		memcpy(&id->route.addr.src_storage, src, size_of(src));
	else if (id->route.addr.src_addr.sa_family == 0)
		own_address(&id->route.addr.src_addr, dst->sa_family);
	bound(v);
	write_ip(dst, id->route.addr.addr.ibaddr.dgid.raw);
	if (ip_node(dst, v->node))
		tell(v, NULL, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	else {
		char text[INET6_ADDRSTRLEN] = "";
		const void *ip = dst->sa_family == AF_INET ? (void *)&((struct sockaddr_in *)dst)->sin_addr :
			(void *)&((struct sockaddr_in6 *)dst)->sin6_addr;
		inet_ntop(dst->sa_family, ip, text, sizeof text);
		say("no node has the address %s: name it in /etc/edged/run.map or EDGE_RUN_MAP", text);
		tell(v, NULL, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL);
	}
	unlock();
	return await(v);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	lock();
	tell((struct id *)id, NULL, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	unlock();
	return await((struct id *)id);
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(port_of(&id->route.addr.src_addr));
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return htons(port_of(&id->route.addr.dst_addr));
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t size)
{
	(void)id, (void)level, (void)option, (void)value, (void)size;
	return 0; /* of classes of traffic, the reuse of addresses, timeouts: nothing here depends on them */
}
