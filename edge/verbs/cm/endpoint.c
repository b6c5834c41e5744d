/* Queue pairs of identifiers, addresses by name, and the synchronous interface. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

/* Makes the completion queue that a queue pair lacks, with a channel. */
static bool make_cq(struct rdma_cm_id *id, unsigned entries, struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*channel == NULL)
		*channel = ibv_create_comp_channel(id->verbs);
	*cq = *channel != NULL ? ibv_create_cq(id->verbs, (int)entries, id, *channel, 0) : NULL;
	return *cq != NULL;
}

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (pd == NULL)
		pd = id->pd != NULL ? id->pd : cm_pd();
	if (id->qp != NULL || pd == NULL)
		return fails(EINVAL);
	if ((a->send_cq == NULL && !make_cq(id, a->cap.max_send_wr + 1, &id->send_cq, &id->send_cq_channel)) ||
	    (a->recv_cq == NULL && !make_cq(id, a->cap.max_recv_wr + 1, &id->recv_cq, &id->recv_cq_channel)))
		return fails(ENOMEM);
	a->send_cq = a->send_cq != NULL ? a->send_cq : id->send_cq;
	a->recv_cq = a->recv_cq != NULL ? a->recv_cq : id->recv_cq;
	a->srq = a->srq != NULL ? a->srq : id->srq;
	id->qp = ibv_create_qp(pd, a);
	if (id->qp == NULL)
		return -1;
	id->pd = pd;
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RDMA_UDP_QKEY };
	int err = ibv_modify_qp(id->qp, &to, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY);
	for (int i = 0; err == 0 && id->ps == RDMA_PS_UDP && i < 2; i++) { /* it needs no peer */
		to.qp_state = i == 0 ? IBV_QPS_RTR : IBV_QPS_RTS;
		err = ibv_modify_qp(id->qp, &to, IBV_QP_STATE);
	}
	return err == 0 ? 0 : fails(err);
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *a)
{
	if (a->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_PD)
		return fails(EOPNOTSUPP);
	return rdma_create_qp(id, a->comp_mask & IBV_QP_INIT_ATTR_PD ? a->pd : NULL, (struct ibv_qp_init_attr *)a);
}

static void drop_cqs(struct rdma_cm_id *id)
{
	if (id->send_cq != NULL)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq != NULL)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq_channel != NULL)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq_channel != NULL)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct id *v = (struct id *)id;
	struct ibv_qp *qp = id->qp;
	lock();
	id->qp = NULL;
	if (v->lent)
		v->conn = NULL;
	unlock();
	if (qp != NULL)
		ibv_destroy_qp(qp);
	drop_cqs(id);
}

EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	id->srq = ibv_create_srq(pd != NULL ? pd : id->pd, a);
	return id->srq != NULL ? 0 : -1;
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq != NULL)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	struct id *v = (struct id *)id;
	enum ibv_qp_state to = a->qp_state;
	*mask = IBV_QP_STATE;
	switch (to) {
	case IBV_QPS_INIT:
		a->port_num = 1;
		a->pkey_index = 0;
		a->qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
		a->qkey = RDMA_UDP_QKEY;
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (IS_UD(v) ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
		return 0;
	case IBV_QPS_RTR:
		if (IS_UD(v))
			return 0;
		a->ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
		write_ip(&id->route.addr.dst_addr, a->ah_attr.grh.dgid.raw);
		a->path_mtu = IBV_MTU_4096;
		a->dest_qp_num = v->peer.qpn;
		a->rq_psn = 0;
		a->max_dest_rd_atomic = v->peer.initiator;
		a->min_rnr_timer = 12;
		*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
		return 0;
	case IBV_QPS_RTS:
		a->sq_psn = 0;
		*mask |= IBV_QP_SQ_PSN;
		if (IS_UD(v))
			return 0;
		a->timeout = 14;
		a->retry_cnt = 7;
		a->rnr_retry = v->rnr;
		a->max_rd_atomic = v->peer.responder;
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		return 0;
	default:
		return fails(EINVAL);
	}
}

static struct sockaddr *copy(const struct sockaddr *a, socklen_t size, socklen_t *len)
{
	struct sockaddr *c = size > 0 ? malloc(sizeof(struct sockaddr_storage)) : NULL;
	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(struct sockaddr_storage));
	memcpy(c, a, size);
	*len = size;
	return c;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *r)
{
	for (struct rdma_addrinfo *next; r != NULL; r = next) {
		next = r->ai_next;
		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r);
	}
}

EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                            struct rdma_addrinfo **res)
{
	int flags = hints != NULL ? hints->ai_flags : 0;
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	if (r == NULL)
		return fails(ENOMEM);
	r->ai_flags = flags;
	r->ai_qp_type = hints != NULL && hints->ai_qp_type != 0 ? hints->ai_qp_type : IBV_QPT_RC;
	r->ai_port_space = hints != NULL && hints->ai_port_space != 0 ? hints->ai_port_space : RDMA_PS_TCP;
	if (hints != NULL && hints->ai_src_len > 0)
		r->ai_src_addr = copy(hints->ai_src_addr, hints->ai_src_len, &r->ai_src_len);
	if (hints != NULL && hints->ai_dst_len > 0)
		r->ai_dst_addr = copy(hints->ai_dst_addr, hints->ai_dst_len, &r->ai_dst_len);
	if (node != NULL || service != NULL) {
		struct addrinfo *a, ask = { .ai_socktype = SOCK_STREAM, .ai_family = hints != NULL ? hints->ai_family : 0,
			.ai_flags = (flags & RAI_PASSIVE ? AI_PASSIVE : 0) | (flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0) };
		int err = getaddrinfo(node, service, &ask, &a);
		if (err != 0) {
			rdma_freeaddrinfo(r);
			errno = EINVAL;
			return err;
		}
		bool passive = flags & RAI_PASSIVE;
		struct sockaddr **to = passive ? &r->ai_src_addr : &r->ai_dst_addr;
		free(*to);
		*to = copy(a->ai_addr, a->ai_addrlen, passive ? &r->ai_src_len : &r->ai_dst_len);
		freeaddrinfo(a);
	}
	const struct sockaddr *any = r->ai_dst_addr != NULL ? r->ai_dst_addr : r->ai_src_addr;
	r->ai_family = any != NULL ? any->sa_family : AF_INET;
	*res = r;
	return 0;
}

/* A passive endpoint keeps what the queue pairs of its connections shall be. */
static int passive(struct id *v, struct rdma_addrinfo *r, struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	if (rdma_bind_addr(&v->id, r->ai_src_addr) != 0)
		return -1;
	if (pd != NULL)
		v->id.pd = pd;
	v->wanted_pd = pd;
	if (a == NULL)
		return 0;
	v->wanted = malloc(sizeof *a);
	if (v->wanted == NULL)
		return fails(ENOMEM);
	*v->wanted = *a;
	v->wanted->qp_type = (enum ibv_qp_type)r->ai_qp_type;
	return 0;
}

EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *r, struct ibv_pd *pd,
                          struct ibv_qp_init_attr *a)
{
	struct rdma_cm_id *made;
	if (rdma_create_id(NULL, &made, NULL, r->ai_port_space) != 0)
		return -1;
	int err;
	if (r->ai_flags & RAI_PASSIVE) {
		err = passive((struct id *)made, r, pd, a);
	} else {
		err = rdma_resolve_addr(made, r->ai_src_addr, r->ai_dst_addr, 2000);
		if (err == 0)
			err = rdma_resolve_route(made, 2000);
		if (err == 0 && a != NULL) {
			a->qp_type = (enum ibv_qp_type)r->ai_qp_type;
			err = rdma_create_qp(made, pd, a);
		}
	}
	if (err != 0) {
		int why = errno;
		rdma_destroy_ep(made);
		return fails(why);
	}
	*id = made;
	return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	if (id->srq != NULL)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct id *l = (struct id *)listen;
	struct rdma_cm_event *event;
	if (!l->alone)
		return fails(EINVAL);
	if (listen->event != NULL)
		rdma_ack_cm_event(listen->event);
	listen->event = NULL;
	if (rdma_get_cm_event(listen->channel, &event) != 0)
		return -1;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		rdma_ack_cm_event(event);
		return fails(EINVAL);
	}
	struct rdma_cm_id *made = event->id;
	if (rdma_migrate_id(made, NULL) != 0)
		return -1;
	made->event = event;
	if (l->wanted != NULL) {
		struct ibv_qp_init_attr a = *l->wanted;
		if (rdma_create_qp(made, l->wanted_pd, &a) != 0) {
			rdma_reject(made, NULL, 0);
			rdma_destroy_id(made);
			return -1;
		}
	}
	*id = made;
	return 0;
}

EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	(void)id, (void)event;
	return 0;
}
