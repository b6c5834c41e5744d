/* Event channels. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_channel *c = cm_context() != NULL ? calloc(1, sizeof *c) : NULL;
	if (c == NULL || !inbox_open(&c->inbox)) {
		free(c);
		return NULL;
	}
	c->channel.fd = c->inbox.fd;
	return &c->channel;
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct cm_channel *c = (struct cm_channel *)channel;
	if (inbox_close(&c->inbox))
		free(c);
}

void tell(struct id *about, struct id *listen, enum rdma_cm_event_type type, int status, const struct greeting *g)
{
	struct cm_event *e = calloc(1, sizeof *e);
	if (e == NULL)
		return;
	e->e.of = about;
	e->cm.id = &about->id;
	e->cm.listen_id = listen != NULL ? &listen->id : NULL;
	e->cm.event = type;
	e->cm.status = status;
	if (g != NULL)
		memcpy(e->data, g->data, g->size);
	if (g != NULL && IS_UD(about)) {
		e->cm.param.ud = (struct rdma_ud_param){ .private_data = g->size > 0 ? e->data : NULL,
			.private_data_len = g->size, .ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
			.qp_num = g->qpn, .qkey = g->high };
		union ibv_gid ours;
		struct ibv_global_route *r = &e->cm.param.ud.ah_attr.grh;
		write_ip(&about->id.route.addr.dst_addr, r->dgid.raw);
		write_ip(&about->id.route.addr.src_addr, ours.raw);
		int index = own_gid(&ours);
		r->sgid_index = (uint8_t)(index > 0 ? index : 0);
	} else if (g != NULL) {
		struct rdma_conn_param *p = &e->cm.param.conn;
		*p = (struct rdma_conn_param){ .private_data = g->size > 0 ? e->data : NULL, .private_data_len = g->size,
			.responder_resources = g->initiator, .initiator_depth = g->responder, .flow_control = 1, .retry_count = 7,
			.rnr_retry_count = g->rnr, .qp_num = g->qpn };
	}
	struct id *to = listen != NULL ? listen : about;
	inbox_put(&((struct cm_channel *)to->id.channel)->inbox, &e->e);
	say("identifier %p: %s, %d", (void *)about, rdma_event_str(type), status);
}

/* From here on the identifiers stay until the event is acknowledged. */
static void taken(struct event *e)
{
	struct rdma_cm_event *cm = &((struct cm_event *)e)->cm;
	struct id *about = (struct id *)cm->id, *listen = (struct id *)cm->listen_id;
	about->told++;
	about->from = NULL;
	if (listen != NULL)
		listen->told++;
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct cm_event *e = (struct cm_event *)inbox_take(&((struct cm_channel *)channel)->inbox, taken);
	if (e == NULL)
		return -1;
	*event = &e->cm;
	return 0;
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	if (event == NULL)
		return fails(EINVAL);
	lock();
	((struct id *)event->id)->told--;
	if (event->listen_id != NULL)
		((struct id *)event->listen_id)->told--;
	unlock();
	free((char *)event - offsetof(struct cm_event, cm));
	return 0;
}

int await(struct id *v)
{
	if (!v->alone)
		return 0;
	if (v->id.event != NULL)
		rdma_ack_cm_event(v->id.event);
	v->id.event = NULL;
	if (rdma_get_cm_event(v->id.channel, &v->id.event) != 0)
		return -1;
	int status = v->id.event->status;
	return status == 0 ? 0 : fails(status < 0 ? -status : ECONNREFUSED);
}
