/* An end of a connection of libibverbs, and what compares bytes: of the programs here. */
#ifndef EDGE_VERBS_ENDS_H
#define EDGE_VERBS_ENDS_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { SLOTS = 32, SLOT = 64 << 10, DEPTH = 64, MEMORY = (SLOTS + 1) * SLOT, BUFFER = SLOT + 64, HEAD = 40 };
enum { INLINE = 1024 };

#define CHECK(is, ...) do { if (!(is)) fail(__VA_ARGS__); } while (0)

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list va;
	va_start(va, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, va);
	fputc('\n', stderr);
	exit(1);
}

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr, *buffers, *tails;
	struct ibv_qp *qp;
	char *memory;  /* that the peer reaches: slots, then a counter */
	char *buffer;  /* DEPTH for receives, DEPTH for sends and reads */
	char *tail;    /* shared memory, which the library copies: of a third of the receives all but HEAD bytes */
	int tcp;
	uint32_t high; /* of the peer's */
	uint64_t address, received;
	uint32_t rkey;
	bool broken;
};
struct wire { uint32_t qpn, rkey; uint64_t address; union ibv_gid gid; };
struct message { uint64_t number; uint32_t size, is_answer; };

static void fill(char *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)((seed * 31 + i) * 2654435761u >> 13);
}

static bool is_filled(const char *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (char)((seed * 31 + i) * 2654435761u >> 13))
			return false;
	return true;
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static bool transfer(int fd, void *p, size_t n, bool out)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = out ? send(fd, (char *)p + at, n - at, MSG_NOSIGNAL) : recv(fd, (char *)p + at, n - at, 0);
		if (k <= 0)
			return false;
		at += (size_t)k;
	}
	return true;
}

static int dial(const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	inet_pton(AF_INET, address, &to.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
		return fd;
	close(fd);
	return -1;
}

static int listen_at(int port)
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 8) == 0, "port %d", port);
	return l;
}

/* Opens everything but the queue pair; false: the daemon is not there. */
static bool open_end(struct end *e)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	if (list == NULL || list[0] == NULL || (e->context = ibv_open_device(list[0])) == NULL)
		return false;
	ibv_free_device_list(list);
	e->pd = ibv_alloc_pd(e->context);
	e->cq = ibv_create_cq(e->context, 4 * DEPTH, NULL, NULL, 0);
	e->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	e->buffer = (char *)malloc(2 * DEPTH * BUFFER + 100) + 40; /* not of whole pages */
	e->mr = ibv_reg_mr(e->pd, e->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
	                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	e->buffers = ibv_reg_mr(e->pd, e->buffer, 2 * DEPTH * BUFFER, IBV_ACCESS_LOCAL_WRITE);
	e->tail = mmap(NULL, DEPTH * BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	e->tails = ibv_reg_mr(e->pd, e->tail, DEPTH * BUFFER, IBV_ACCESS_LOCAL_WRITE);
	return e->mr != NULL && e->buffers != NULL && e->tails != NULL;
}

static void close_end(struct end *e)
{
	if (e->mr != NULL)
		CHECK(ibv_dereg_mr(e->mr) == 0, "ibv_dereg_mr");
	if (e->buffers != NULL)
		CHECK(ibv_dereg_mr(e->buffers) == 0, "ibv_dereg_mr");
	if (e->tails != NULL)
		CHECK(ibv_dereg_mr(e->tails) == 0, "ibv_dereg_mr");
	if (e->cq != NULL)
		CHECK(ibv_destroy_cq(e->cq) == 0 && ibv_dealloc_pd(e->pd) == 0, "something is in use");
	if (e->context != NULL)
		ibv_close_device(e->context);
	if (e->memory != NULL) {
		munmap(e->memory, MEMORY);
		munmap(e->tail, DEPTH * BUFFER);
		free(e->buffer - 40);
	}
	*e = (struct end){ .tcp = e->tcp };
}

static void post_receive(struct end *e, uint64_t i)
{
	uint64_t at = i % DEPTH * BUFFER;
	struct ibv_sge s[2] = { { .addr = (uintptr_t)e->buffer + at, .length = BUFFER, .lkey = e->buffers->lkey },
		{ .addr = (uintptr_t)e->tail + at, .length = BUFFER - HEAD, .lkey = e->tails->lkey } };
	struct ibv_recv_wr w = { .wr_id = i, .sg_list = s, .num_sge = 1 }, *bad;
	if (i % 3 == 0) {
		s[0].length = HEAD;
		w.num_sge = 2;
	}
	CHECK(ibv_post_recv(e->qp, &w, &bad) == 0, "ibv_post_recv");
}

/* Makes a queue pair and links it with that at the other end of the socket. */
static bool meet(struct end *e)
{
	struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
			.max_inline_data = INLINE } };
	e->qp = ibv_create_qp(e->pd, &init);
	if (e->qp == NULL)
		return false;
	struct wire mine = { .qpn = e->qp->qp_num, .rkey = e->mr->rkey, .address = (uintptr_t)e->memory }, peer;
	ibv_query_gid(e->context, 1, 0, &mine.gid);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 7 };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
	e->received = 0;
	for (uint64_t i = 0; i < DEPTH; i++)
		post_receive(e, i);
	if (!transfer(e->tcp, &mine, sizeof mine, true) || !transfer(e->tcp, &peer, sizeof peer, false))
		return false;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer.qpn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 1 } } };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                    IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
	e->rkey = peer.rkey;
	e->address = peer.address;
	e->broken = false;
	return true;
}

/* Links a queue pair with itself. */
static void be_own_peer(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PORT) == 0, "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .dest_qp_num = e->qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1 } };
	ibv_query_gid(e->context, 1, 0, &a.ah_attr.grh.dgid);
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN) == 0, "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .rnr_retry = 7 };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_RNR_RETRY) == 0, "RTS");
}

#endif
