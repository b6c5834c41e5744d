/*
 * stranger await IDENTITY: a queue pair that awaits a peer with the number PEER at the node of that identity;
 * prints its number, and at the end of its input whether it was linked. stranger dial NODE NUMBER: dials in the
 * place of that peer, by libedge alone; prints whether it was accepted.
 *
 * stranger take IDENTITY: a queue pair of datagrams with RECEIVES buffers; prints its number, and for each byte of its
 * input how many datagrams came since, all of which must be whole and from the node of that identity. stranger flood
 * NODE NUMBER IDENTITY WHAT: sends to the queue pair of that number at NODE, of that IDENTITY, by libedge alone: "odd"
 * ones, of which it must take two, and "many", of which it must drop what it has no buffers for; or it holds CALLS
 * connections ("call") until the end of its input.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "edge.h"

enum { PEER = 0xffffff, WAIT_MS = 5000, KEY = 0x1234, CALLS = 300 };
enum { SMALL = 48, MIDDLE = 100, MOST = 4096, RECEIVES = 4, SIZE = 40 + MOST + 8 };

static union ibv_gid gid_of(const char *identity)
{
	union ibv_gid gid = { .raw = { 0xfd, 0x65, 0x64, 0x67, 0x65 } };
	for (int i = 0; i < 8; i++) {
		char two[3] = { identity[2 * i], identity[2 * i + 1], 0 };
		gid.raw[8 + i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return gid;
}

static int await(const char *identity)
{
	struct ibv_context *c = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	union ibv_gid gid = gid_of(identity);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .dest_qp_num = PEER,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.dgid = gid } };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN) != 0)
		return 1;
	printf("%u\n", qp->qp_num);
	char byte;
	return read(0, &byte, 1) < 0;
}

static bool post(struct ibv_qp *qp, struct ibv_mr *mr, uint64_t i)
{
	struct ibv_sge s = { .addr = (uintptr_t)mr->addr + i * SIZE, .length = SIZE, .lkey = mr->lkey };
	struct ibv_recv_wr w = { .wr_id = i, .sg_list = &s, .num_sge = 1 }, *bad;
	return ibv_post_recv(qp, &w, &bad) == 0;
}

/* How many datagrams came; -1: one was not what it should be. */
static int count(struct ibv_qp *qp, struct ibv_mr *mr, const union ibv_gid *from)
{
	struct ibv_wc w;
	int n = 0;
	uint64_t used[3 * RECEIVES];
	for (; n < 3 * RECEIVES && ibv_poll_cq(qp->recv_cq, 1, &w) > 0; n++) {
		const char *b = (char *)mr->addr + w.wr_id * SIZE;
		if (w.status != IBV_WC_SUCCESS || w.src_qp != PEER || !(w.wc_flags & IBV_WC_GRH) ||
		    (w.byte_len != 40 + SMALL && w.byte_len != 40 + MIDDLE && w.byte_len != 40 + MOST) ||
		    memcmp(&((const struct ibv_grh *)b)->sgid, from, sizeof *from) != 0)
			return -1;
		for (unsigned i = 40; i < w.byte_len; i++)
			if (b[i] != 'x')
				return -1;
		used[n] = w.wr_id;
	}
	for (int i = 0; i < n; i++)
		if (!post(qp, mr, used[i]))
			return -1;
	return n;
}

static int take(const char *identity)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	char *memory = malloc(RECEIVES * SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, RECEIVES * SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	if (qp == NULL || mr == NULL || ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY) != 0)
		return 1;
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE) != 0)
		return 1;
	for (uint64_t i = 0; i < RECEIVES; i++)
		if (!post(qp, mr, i))
			return 1;
	printf("%u\n", qp->qp_num);
	union ibv_gid from = gid_of(identity);
	for (char byte; read(0, &byte, 1) == 1;)
		printf("%d\n", count(qp, mr, &from));
	bool ended = ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dereg_mr(mr) == 0 &&
		ibv_dealloc_pd(pd) == 0 &&
		ibv_close_device(c) == 0;
	ibv_free_device_list(list);
	free(memory);
	return !ended;
}

struct head { uint32_t to, from, key, imm; uint8_t has_imm, solicited, unused[2]; union ibv_gid from_gid, to_gid; };

/* Sends one and waits until the other side has it, or has no buffer for so many bytes. */
static bool throw(edge_conn *c, edge_region *r, const struct head *h, size_t size)
{
	edge_op op;
	edge_work k = { .kind = EDGE_SEND, .local = r, .size = size };
	memset(edge_region_bytes(r), 'x', edge_region_size(r));
	memcpy(edge_region_bytes(r), h, sizeof *h);
	int err = edge_post(c, &k, &op);
	if (err == 0)
		err = edge_op_wait(&op, WAIT_MS);
	return err == 0 || err == EDGE_ERR_TOO_LONG;
}

static bool odd(edge_conn *c, edge_region *r, const struct head *good)
{
	struct head key = *good, number = *good, gid = *good, lies = *good;
	key.key ^= 1;
	number.to ^= 1 << 12;
	gid.to_gid.raw[15] ^= 1;
	lies.from_gid.raw[15] ^= 1; /* its node is known all the same */
	size_t most = sizeof *good + MOST, small = sizeof *good + SMALL;
	return throw(c, r, &key, small) && throw(c, r, &number, small) && throw(c, r, &gid, small) &&
		throw(c, r, good, 1) &&
		throw(c, r, good, sizeof *good - 1) && throw(c, r, good, most + 1) && throw(c, r, good, 2 * most) &&
		throw(c, r, &lies, small) && throw(c, r, good, most);
}

static int flood(const char *node, uint32_t to, const char *identity, const char *what)
{
	edge_device *d;
	edge_conn *c;
	edge_region *r;
	edge_config cfg = { .size = sizeof cfg };
	edge_dial_options o = { .size = sizeof o, .data = "EVU1", .data_size = 4 };
	char service[32];
	snprintf(service, sizeof service, "ib/%u", to >> 12);
	if (edge_open(&d, &cfg, WAIT_MS) != 0 || edge_register(d, 2 * SIZE + 200, &r, WAIT_MS) != 0)
		return 1;
	struct head h = { .to = to, .from = PEER, .key = KEY, .from_gid = gid_of(edge_device_node(d)),
		.to_gid = gid_of(identity) };
	bool calls = strcmp(what, "call") == 0, ok = true;
	for (int i = 0; i < (calls ? CALLS : 1); i++)
		if (edge_dial(d, node, service, &o, &c, WAIT_MS) != 0)
			return 1;
	if (strcmp(what, "odd") == 0)
		ok = odd(c, r, &h);
	for (int i = 0; strcmp(what, "many") == 0 && i < 3 * RECEIVES; i++)
		ok &= throw(c, r, &h, sizeof h + MIDDLE);
	char byte;
	puts(ok ? "sent" : "not taken");
	if (calls && read(0, &byte, 1) < 0)
		return 1;
	edge_device_close(d, WAIT_MS);
	return !ok;
}

static int dial(const char *node, uint32_t to)
{
	struct { char magic[4]; uint32_t from, to, high; } h = { { 'E', 'V', 'B', '1' }, PEER, to, 0 };
	edge_device *d;
	edge_conn *c;
	char service[32];
	snprintf(service, sizeof service, "ib/%u", to >> 12);
	edge_config cfg = { .size = sizeof cfg };
	if (edge_open(&d, &cfg, WAIT_MS) != 0)
		return 1;
	edge_dial_options o = { .size = sizeof o, .ordered = 1, .data = &h, .data_size = sizeof h };
	int err = edge_dial(d, node, service, &o, &c, WAIT_MS);
	puts(err == 0 ? "accepted" : err == EDGE_ERR_REFUSED ? "refused" : edge_strerror(err));
	edge_device_close(d, 0);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "take") == 0)
		return take(argv[2]);
	if (argc == 6 && strcmp(argv[1], "flood") == 0)
		return flood(argv[2], (uint32_t)strtoul(argv[3], NULL, 10), argv[4], argv[5]);
	if (argc == 3 && strcmp(argv[1], "await") == 0)
		return await(argv[2]);
	return argc == 4 && strcmp(argv[1], "dial") == 0 ? dial(argv[2], (uint32_t)strtoul(argv[3], NULL, 10)) : 2;
}
