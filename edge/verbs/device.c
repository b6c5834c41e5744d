/* The device edge0, contexts, and what they tell of themselves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "qp.h"

#undef ibv_query_port

enum { VENDOR = 0x656467, MOST = 1 << 16 };

static struct ibv_device device = { .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "edge0",
	.dev_name = "uverbs0", .dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/edge0" };

EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	lock();
	int err = lib_open();
	unlock();
	struct ibv_device **list = calloc(2, sizeof *list);
	if (list != NULL && err == 0)
		list[0] = &device;
	if (n != NULL)
		*n = list != NULL && err == 0;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *d)
{
	(void)d;
	return 0;
}

static __be64 guid(void)
{
	__be64 g;
	memcpy(&g, lib.node, sizeof g);
	return g;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *d)
{
	(void)d;
	return guid();
}

EXPORT int ibv_fork_init(void)
{
	return 0; /* seg.c gives children copies */
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

EXPORT int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	*a = (struct ibv_device_attr){ .fw_ver = "multiedge", .node_guid = guid(), .sys_image_guid = guid(),
		.max_mr_size = UINT64_C(1) << 40, .page_size_cap = ~(uint64_t)(PAGE - 1), .vendor_id = VENDOR,
		.vendor_part_id = 1, .hw_ver = 1, .max_qp = MAX_QP, .max_qp_wr = MAX_WR,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = MAX_SGE, .max_sge_rd = MAX_SGE, .max_cq = MOST, .max_cqe = 1 << 20, .max_mr = MOST, .max_pd = MOST,
		.max_qp_rd_atom = 16, .max_res_rd_atom = 16 * MAX_QP, .max_qp_init_rd_atom = 16, .atomic_cap = IBV_ATOMIC_GLOB,
		.max_ah = MOST, .max_srq = 64, .max_srq_wr = MAX_WR, .max_srq_sge = MAX_SGE, .max_pkeys = 1,
		.local_ca_ack_delay = 15, .phys_port_cnt = 1 };
	return 0;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *a, size_t size)
{
	if ((input != NULL && input->comp_mask != 0) || size < sizeof a->orig_attr)
		return EINVAL;
	memset(a, 0, size);
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof a->phys_port_cnt_ex)
		a->phys_port_cnt_ex = 1;
	return ibv_query_device(c, &a->orig_attr);
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t size)
{
	(void)c;
	if (port != 1)
		return EINVAL;
	struct ibv_port_attr p = { .state = lib.lost ? IBV_PORT_DOWN : IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096, .gid_tbl_len = gid_count(), .port_cap_flags = IBV_PORT_CM_SUP,
		.max_msg_sz = MAX_MESSAGE, .pkey_tbl_len = 1, .max_vl_num = 1, .active_width = 2, .active_speed = 32,
		.phys_state = lib.lost ? 2 : 5, .link_layer = IBV_LINK_LAYER_ETHERNET };
	memset(a, 0, size);
	memcpy(a, &p, size < sizeof p ? size : sizeof p);
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a)
{
	return query_port(c, port, (struct ibv_port_attr *)a, offsetof(struct ibv_port_attr, port_cap_flags2));
}

EXPORT int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	return port == 1 && gid_at(index, gid) ? 0 : -1;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e,
                             uint32_t flags, size_t size)
{
	struct ibv_gid_entry all = { .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = 1 };
	(void)c;
	if (port != 1 || flags != 0)
		return EINVAL;
	if (index > INT32_MAX || !gid_at((int)index, &all.gid))
		return ENODATA;
	memcpy(e, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t most, uint32_t flags,
                                    size_t size)
{
	size_t n = 0;
	while (n < most && _ibv_query_gid_ex(c, 1, (uint32_t)n, (void *)((char *)e + n * size), flags, size) == 0)
		n++;
	return n < (size_t)gid_count() ? -EINVAL : (ssize_t)n;
}

/* Of the private part of libibverbs, for ibv_devinfo: 1 is RoCE v2. */
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned index, int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned index, int *type)
{
	union ibv_gid gid;
	*type = 1;
	return ibv_query_gid(c, port, (int)index, &gid);
}

EXPORT int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *key)
{
	(void)c;
	*key = 0xffff;
	return port == 1 && index == 0 ? 0 : -1;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 key)
{
	(void)c;
	return port == 1 && key == 0xffff ? 0 : -1;
}

/* Some programs read what a NIC says in /sys by this. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *to, size_t size);
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *to, size_t size)
{
	const char *text = strcmp(file, "board_id") == 0 ? "MultiEdge" : strcmp(file, "fw_ver") == 0 ? "multiedge" :
		strstr(file, "gid_attrs/types/") != NULL ? "RoCE v2" : NULL;
	(void)dir;
	if (text == NULL)
		return -1;
	snprintf(to, size, "%s", text);
	return (int)strlen(to);
}

const char *ibv_get_sysfs_path(void);
EXPORT const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

/* The daemon has gone, and everything that was registered and connected with it. */
static void lost(void)
{
	for (struct context *c = contexts; c != NULL; c = c->next)
		async_tell(&c->v.context, IBV_EVENT_DEVICE_FATAL, NULL, NULL);
}

static void forked(void)
{
	links_forked();
	recv_forked();
	contexts = NULL;
}

static void offer(struct verbs_context *v)
{
	v->sz = sizeof *v;
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->create_qp_ex = create_qp_ex;
	v->create_cq_ex = create_cq_ex;
	v->create_srq_ex = create_srq_ex;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.ops.poll_cq = cq_poll;
	v->context.ops.req_notify_cq = cq_arm;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	v->context.ops.post_srq_recv = post_srq_recv;
	v->context.num_comp_vectors = 1;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct context *c = calloc(1, sizeof *c);
	if (c == NULL || !inbox_open(&c->events)) {
		free(c);
		return NULL;
	}
	lib_lost = lost;
	lib_retry = qps_retry;
	lib_forking = segs_forking;
	lib_forked = forked;
	lock();
	int err = lib_open();
	if (err == 0)
		err = links_open();
	if (err == 0 && lib.lost && edge_device_error(lib.dev) == 0)
		lib.lost = false; /* another daemon is there */
	if (err == 0) {
		c->next = contexts;
		contexts = c;
		lib.opened++;
	}
	unlock();
	if (err != 0) {
		inbox_close(&c->events);
		free(c);
		errno = ENODEV;
		return NULL;
	}
	offer(&c->v);
	c->v.context.device = d;
	c->v.context.async_fd = c->events.fd;
	c->v.context.cmd_fd = eventfd(0, EFD_CLOEXEC); /* programs look whether it is a descriptor */
	pthread_mutex_init(&c->v.context.mutex, NULL);
	return &c->v.context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct context *c = context_of(context);
	lock();
	struct context **at = &contexts;
	while (*at != NULL && *at != c)
		at = &(*at)->next;
	if (*at != NULL)
		*at = c->next;
	lib.opened--;
	unlock();
	bool unused = inbox_close(&c->events);
	if (context->cmd_fd >= 0)
		close(context->cmd_fd);
	if (unused)
		free(c);
	return 0;
}

/* At the end of the program: what peers sent is acknowledged, so that their last work requests do not fail. */
__attribute__((destructor)) static void leave(void)
{
	enum { LEAVE_MS = 300 };
	lock();
	bool any = false;
	for (int i = 0; lib.dev != NULL && i < MAX_QP; i++)
		if (qps[i] != NULL && qps[i]->link.state == LINKED)
			any |= edge_conn_close(qps[i]->link.conn, 0) == EDGE_ERR_AGAIN;
	int64_t until = now_ms() + LEAVE_MS;
	while (any && now_ms() < until) {
		any = false;
		progress();
		for (int i = 0; i < MAX_QP; i++)
			if (qps[i] != NULL && qps[i]->link.state == LINKED)
				any |= edge_conn_close(qps[i]->link.conn, 0) == EDGE_ERR_AGAIN;
		edge_completion c;
		edge_completions_wait(lib.dev, &c, 0, 1);
	}
	unlock();
}

/* A function that the library has for the sake of the loader was called. Programs look for drivers of NICs, which is no
 * news. */
void edge_verbs_missing(const char *name);
EXPORT void edge_verbs_missing(const char *name)
{
	if (strncmp(name, "verbs_register_driver", 21) != 0)
		say("%s is not offered", name);
}
