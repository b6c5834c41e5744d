/*
 * stranger await IDENTITY: a queue pair that awaits a peer with the number PEER at the node of that identity;
 * prints its number, and at the end of its input whether it was linked. stranger dial NODE NUMBER: dials in the
 * place of that peer, by libedge alone; prints whether it was accepted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "edge.h"

enum { PEER = 0xffffff, WAIT_MS = 5000 };

static int await(const char *identity)
{
	struct ibv_context *c = ibv_open_device(ibv_get_device_list(NULL)[0]);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	union ibv_gid gid;
	ibv_query_gid(c, 1, 0, &gid);
	for (int i = 0; i < 8; i++) {
		char two[3] = { identity[2 * i], identity[2 * i + 1], 0 };
		gid.raw[8 + i] = (unsigned char)strtoul(two, NULL, 16);
	}
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .dest_qp_num = PEER,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.dgid = gid } };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN) != 0)
		return 1;
	printf("%u\n", qp->qp_num);
	fflush(stdout);
	char byte;
	return read(0, &byte, 1) < 0;
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
	if (argc == 3 && strcmp(argv[1], "await") == 0)
		return await(argv[2]);
	return argc == 4 && strcmp(argv[1], "dial") == 0 ? dial(argv[2], (uint32_t)strtoul(argv[3], NULL, 10)) : 2;
}
