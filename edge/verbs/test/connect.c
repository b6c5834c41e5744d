/*
 * connect ROUNDS: how long QPS queue pairs take to be linked, with one memory region that peers may write to and with
 * MANY. Each is its own peer, and linked when a write on it is complete. The least of the rounds, in ms.
 */
#include "ends.h"

enum { QPS = 100, MANY = 1000, PART = 4096 };

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

/* Links the queue pair of an end, which is its own peer, and writes a few bytes. */
static void begin(struct end *e, const struct ibv_mr *mr)
{
	struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	e->qp = ibv_create_qp(e->pd, &init);
	CHECK(e->qp != NULL, "ibv_create_qp: %s", strerror(errno));
	be_own_peer(e);
	struct ibv_sge g = { .addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr w = { .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr = { .rdma = { .remote_addr = (uintptr_t)mr->addr + 8, .rkey = mr->rkey } } }, *bad;
	CHECK(ibv_post_send(e->qp, &w, &bad) == 0, "write");
}

/* us for all of them. */
static int64_t link_all(struct end *e, const struct ibv_mr *mr)
{
	static struct ibv_qp *qp[QPS];
	int64_t began = now_us();
	for (int i = 0; i < QPS; i++) {
		begin(e, mr);
		qp[i] = e->qp;
	}
	struct ibv_wc c;
	for (int done = 0; done < QPS;) {
		int n = ibv_poll_cq(e->cq, 1, &c);
		CHECK(n == 0 || c.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(c.status));
		CHECK(now_us() < began + 60000000, "%d of %d are linked after a minute", done, QPS);
		done += n;
	}
	int64_t took = now_us() - began;
	for (int i = 0; i < QPS; i++)
		CHECK(ibv_destroy_qp(qp[i]) == 0, "ibv_destroy_qp");
	return took;
}

int main(int argc, char **argv)
{
	static struct ibv_mr *mr[MANY];
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct end e = { 0 };
	CHECK(open_end(&e), "no device");
	char *all = mmap(NULL, MANY * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *whole = ibv_reg_mr(e.pd, all, MANY * PART, access);
	int64_t least[2] = { INT64_MAX, INT64_MAX };
	CHECK(whole != NULL, "ibv_reg_mr");
	for (int round = argc == 2 ? atoi(argv[1]) : 1; round > 0; round--)
		for (int many = 0; many < 2; many++) {
			for (int i = 0; many && i < MANY; i++)
				CHECK((mr[i] = ibv_reg_mr(e.pd, all + i * PART, PART, access)) != NULL,
				      "region %d: %s", i, strerror(errno));
			int64_t took = link_all(&e, whole);
			least[many] = took < least[many] ? took : least[many];
			for (int i = 0; many && i < MANY; i++)
				CHECK(ibv_dereg_mr(mr[i]) == 0, "ibv_dereg_mr");
		}
	printf("%d queue pairs are linked in %.1f ms with 1 memory region, in %.1f ms with %d: %.2f\n", QPS,
	       (double)least[0] / 1000, (double)least[1] / 1000, MANY + 1, (double)least[1] / (double)least[0]);
	return 0;
}
