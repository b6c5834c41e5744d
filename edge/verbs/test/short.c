/*
 * short serve PORT | short run ADDRESS PORT | short meet PORT | short flush ADDRESS PORT
 *
 * The server's daemon has no room for the pieces of all buffers (limits.ops_per_user): it refuses
 * some of them, which the library posts anew in one piece. Every message arrives whole.
 *
 * flush, with a peer that does meet: the client's daemon has no room for all work requests, and the queue pair comes
 * into error meanwhile, by the first of them or by the program. All complete.
 */
#include "ends.h"

enum { MESSAGES = 300, SIZE = 1000, SECONDS = 60, ROUNDS = 20, SENDS = 1000 };

/* The memory of the second pieces is the server's own here, or the buffers would be in one piece from the start. */
static void own_tails(struct end *e)
{
	CHECK(ibv_dereg_mr(e->tails) == 0 && munmap(e->tail, DEPTH * BUFFER) == 0, "ibv_dereg_mr");
	e->tail = mmap(NULL, DEPTH * BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	e->tails = ibv_reg_mr(e->pd, e->tail, DEPTH * BUFFER, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->tails != NULL, "ibv_reg_mr");
}

static struct ibv_wc next(struct end *e, const char *what, int n)
{
	struct ibv_wc w;
	for (int64_t until = now() + SECONDS; ibv_poll_cq(e->cq, 1, &w) == 0;)
		CHECK(now() < until, "%s %d does not complete", what, n);
	CHECK(w.status == IBV_WC_SUCCESS, "%s %d: %s", what, n, ibv_wc_status_str(w.status));
	return w;
}

static int serve(int port)
{
	struct end e = { .tcp = accept(listen_at(port), NULL, NULL) };
	uint64_t turn[DEPTH], turns = 0, newest = 0; /* of each buffer that is posted */
	int late = 0;
	CHECK(open_end(&e), "no device");
	own_tails(&e);
	CHECK(meet(&e), "no queue pair");
	for (; turns < DEPTH; turns++)
		turn[turns] = turns;
	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_wc w = next(&e, "receive", i);
		char m[SIZE], *b = e.buffer + w.wr_id * BUFFER;
		bool split = w.wr_id % 3 == 0;
		CHECK(w.wr_id < DEPTH && w.byte_len == SIZE, "buffer %lu, %u bytes", w.wr_id, w.byte_len);
		memcpy(m, b, split ? HEAD : SIZE);
		if (split)
			memcpy(m + HEAD, e.tail + w.wr_id * BUFFER, SIZE - HEAD);
		CHECK(is_filled(m, SIZE, (uint64_t)i), "message %d in buffer %lu has other bytes", i, w.wr_id);
		late += turn[w.wr_id] < newest;
		newest = turn[w.wr_id] > newest ? turn[w.wr_id] : newest;
		turn[w.wr_id] = turns++;
		post_receive(&e, w.wr_id);
		if (i == 0) /* all buffers are with the daemon, or refused */
			CHECK(transfer(e.tcp, "x", 1, true), "the client has gone");
	}
	CHECK(late > 0, "no buffer was refused");
	CHECK(transfer(e.tcp, "x", 1, true) && ibv_destroy_qp(e.qp) == 0, "the end");
	close_end(&e);
	puts("short: ok");
	return 0;
}

static int run(const char *address, int port)
{
	struct end e = { .tcp = dial(address, port) };
	char said;
	CHECK(e.tcp >= 0 && open_end(&e) && meet(&e), "no queue pair");
	for (int i = 0; i < MESSAGES; i++) {
		char *b = e.buffer + DEPTH * BUFFER;
		fill(b, SIZE, (uint64_t)i);
		struct ibv_sge g = { .addr = (uintptr_t)b, .length = SIZE, .lkey = e.buffers->lkey };
		struct ibv_send_wr w = { .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
		CHECK(ibv_post_send(e.qp, &w, &bad) == 0, "ibv_post_send");
		next(&e, "send", i);
		CHECK(i > 0 || transfer(e.tcp, &said, 1, false), "the server has gone");
	}
	CHECK(transfer(e.tcp, &said, 1, false) && ibv_destroy_qp(e.qp) == 0, "the end");
	close_end(&e);
	return 0;
}

static int meets(int port)
{
	struct end e = { .tcp = accept(listen_at(port), NULL, NULL) };
	char said;
	CHECK(open_end(&e), "no device");
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(meet(&e) && transfer(e.tcp, &said, 1, false), "round %d", i);
		CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
		for (struct ibv_wc w; ibv_poll_cq(e.cq, 1, &w) > 0;)
			;
		CHECK(transfer(e.tcp, &said, 1, true), "round %d", i);
	}
	close_end(&e);
	return 0;
}

/* Posts writes with immediate. Of each the daemon may have room for the write and none for what tells of it. */
static void post_writes(struct end *e, bool bad_key)
{
	struct ibv_sge g = { .addr = (uintptr_t)(e->buffer + DEPTH * BUFFER), .length = SLOT, .lkey = e->buffers->lkey };
	struct ibv_send_wr w[DEPTH], *bad;
	for (int i = 0; i < DEPTH; i++)
		w[i] = (struct ibv_send_wr){ .wr_id = SENDS + (uint64_t)i, .next = i + 1 < DEPTH ? &w[i + 1] : NULL,
			.sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.wr.rdma = { .remote_addr = e->address, .rkey = e->rkey } };
	if (bad_key) {
		w[0].opcode = IBV_WR_RDMA_WRITE;
		w[0].wr.rdma.rkey ^= 0x55;
	}
	CHECK(ibv_post_send(e->qp, w, &bad) == 0, "ibv_post_send");
}

static int flush(const char *address, int port)
{
	struct end e = { .tcp = dial(address, port) };
	char said = 0;
	CHECK(e.tcp >= 0 && open_end(&e), "no device");
	for (int i = 0; i < ROUNDS; i++) {
		bool bad_key = i % 2 == 0, failed = bad_key;
		CHECK(meet(&e), "round %d: no queue pair", i);
		post_writes(&e, bad_key);
		if (!bad_key)
			CHECK(ibv_modify_qp(e.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE) == 0, "ERR");
		for (uint64_t n = SENDS; n < SENDS + DEPTH;) {
			struct ibv_wc w;
			for (int64_t until = now() + SECONDS / 4; ibv_poll_cq(e.cq, 1, &w) == 0;)
				CHECK(now() < until, "round %d: send %lu does not complete", i, n - SENDS);
			if (w.wr_id < SENDS)
				continue; /* a receive */
			CHECK(w.wr_id == n++, "round %d: send %lu out of turn", i, w.wr_id - SENDS);
			enum ibv_wc_status want = failed ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR;
			CHECK(w.status == want || (!bad_key && w.status == IBV_WC_SUCCESS), "round %d: send %lu: %s", i,
			      w.wr_id - SENDS, ibv_wc_status_str(w.status));
			failed = false;
		}
		CHECK(transfer(e.tcp, &said, 1, true), "the peer has gone");
		CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
		for (struct ibv_wc w; ibv_poll_cq(e.cq, 1, &w) > 0;)
			;
		CHECK(transfer(e.tcp, &said, 1, false), "the peer has gone");
	}
	close_end(&e);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "run") == 0)
		return run(argv[2], atoi(argv[3]));
	if (argc == 3 && strcmp(argv[1], "meet") == 0)
		return meets(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "flush") == 0)
		return flush(argv[2], atoi(argv[3]));
	fprintf(stderr, "usage: short serve PORT | run ADDRESS PORT | meet PORT | flush ADDRESS PORT\n");
	return 2;
}
