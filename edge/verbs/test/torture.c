/*
 * torture serve PORT | torture run ADDRESS PORT OPERATIONS
 *
 * Two programs of libibverbs that compare every byte. The client posts random writes, writes with immediate, reads,
 * atomics, fenced writes of what reads bring, and sends; the server checks each message and answers it. Work requests
 * complete once each, in order, and with success until one fails; then all that are posted flush, and the client begins
 * anew with another queue pair, as often as it takes. At the end it says how often it had to.
 */
#include <poll.h>
#include <unistd.h>

#include "ends.h"

enum { SECONDS = 60 };

static uint64_t random_state = UINT64_C(88172645463325252);

static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 11) % below;
}

/* --- the client --- */

enum kind { WRITE, WRITE_IMM, READ, ATOMIC, SEND, KINDS };
struct job { enum kind kind; uint64_t number; int slot; size_t off, size; bool done; };
struct slot { uint64_t seed; size_t size; int readers; uint64_t unanswered; }; /* what the server's memory has */

struct client {
	struct end e;
	struct job jobs[DEPTH];
	uint64_t head, tail, messages, answers, counter;
	struct slot slots[SLOTS];
};

static void finish(struct client *c, struct job *j)
{
	char *b = c->e.buffer + (DEPTH + j->number % DEPTH) * BUFFER;
	if (j->kind == READ) {
		struct slot *s = &c->slots[j->slot];
		s->readers--;
		CHECK(is_filled(b, s->size, s->seed), "read %lu of slot %d has other bytes than were written",
		      j->number, j->slot);
	} else if (j->kind == ATOMIC) {
		uint64_t was;
		memcpy(&was, b, 8);
		CHECK(was == c->counter, "atomic %lu found %lu, not %lu", j->number, was, c->counter);
		c->counter++;
	}
}

static void completed(struct client *c, const struct ibv_wc *w, uint64_t *flushed)
{
	if (w->wr_id >> 63) { /* a work request of ours */
		struct job *j = &c->jobs[c->tail % DEPTH];
		CHECK(c->tail != c->head && (w->wr_id & ~(1ull << 63)) == j->number, "completion of %lu, not of %lu",
		      (unsigned long)(w->wr_id & ~(1ull << 63)), j->number);
		CHECK(w->status != IBV_WC_SUCCESS || !c->e.broken, "success after a failure");
		c->tail++;
		if (w->status == IBV_WC_SUCCESS)
			finish(c, j);
	} else if (w->status == IBV_WC_SUCCESS) {
		struct message m;
		memcpy(&m, c->e.buffer + w->wr_id % DEPTH * BUFFER, sizeof m);
		CHECK(w->wr_id == c->e.received && m.is_answer && m.number == c->answers && w->byte_len == sizeof m,
		      "answer %lu in buffer %lu, wanted %lu", m.number, w->wr_id, c->answers);
		c->answers++;
		post_receive(&c->e, w->wr_id + DEPTH);
		c->e.received++;
	} else
		++*flushed;
	if (w->status != IBV_WC_SUCCESS) {
		CHECK(w->status == IBV_WC_WR_FLUSH_ERR || !c->e.broken, "a second error: %s", ibv_wc_status_str(w->status));
		CHECK(w->status == IBV_WC_WR_FLUSH_ERR || w->status == IBV_WC_RETRY_EXC_ERR, "%s",
		      ibv_wc_status_str(w->status));
		c->e.broken = true;
	}
}

static bool take(struct client *c, uint64_t *flushed)
{
	struct ibv_wc w[16];
	int n = ibv_poll_cq(c->e.cq, 16, w);
	CHECK(n >= 0, "ibv_poll_cq");
	for (int i = 0; i < n; i++)
		completed(c, &w[i], flushed);
	return n > 0;
}

static bool choose(struct client *c, struct job *j)
{
	j->kind = draw(KINDS);
	j->slot = (int)draw(SLOTS);
	j->size = 1 + draw(draw(3) ? 2000 : SLOT - 1);
	struct slot *s = &c->slots[j->slot];
	bool answered = s->unanswered == 0 || s->unanswered <= c->answers;
	switch (j->kind) {
	case WRITE: case WRITE_IMM: return s->readers == 0 && answered;
	case READ: return s->size > 0;
	default: return c->messages - c->answers < DEPTH;
	}
}

/* Writes what a read brings to another slot, posted at once: the fence has it wait for the bytes. */
static void forward(struct client *c, const struct job *read, const char *b)
{
	struct job *j = &c->jobs[c->head % DEPTH];
	struct slot *from = &c->slots[read->slot], *to = &c->slots[j->slot = (int)draw(SLOTS)];
	if (c->head - c->tail >= DEPTH - 1 || to->readers > 0 || to->unanswered > c->answers)
		return;
	j->kind = WRITE;
	j->number = c->head++;
	struct ibv_sge g = { .addr = (uintptr_t)b, .length = (uint32_t)from->size, .lkey = c->e.buffers->lkey };
	struct ibv_send_wr w = { .wr_id = j->number | 1ull << 63, .sg_list = &g, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_FENCE, .wr = { .rdma = { .rkey = c->e.rkey,
		.remote_addr = c->e.address + (uint64_t)j->slot * SLOT } } }, *bad;
	CHECK(ibv_post_send(c->e.qp, &w, &bad) == 0, "ibv_post_send of a fenced write");
	*to = (struct slot){ .seed = from->seed, .size = from->size };
}

static size_t sum(const struct ibv_send_wr *w)
{
	return w->sg_list[0].length + (w->num_sge > 1 ? w->sg_list[1].length : 0);
}

static bool post(struct client *c)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND };
	struct job *j = &c->jobs[c->head % DEPTH];
	if (!choose(c, j) || (j->kind == WRITE_IMM && c->messages - c->answers >= DEPTH))
		return false;
	j->number = c->head;
	struct slot *s = &c->slots[j->slot];
	char *b = c->e.buffer + (DEPTH + j->number % DEPTH) * BUFFER;
	struct ibv_sge g[2] = { { .addr = (uintptr_t)b, .length = (uint32_t)j->size, .lkey = c->e.buffers->lkey } };
	struct ibv_send_wr w = { .wr_id = j->number | 1ull << 63, .sg_list = g, .num_sge = 1, .opcode = opcodes[j->kind] };
	struct ibv_send_wr *bad;
	w.wr.rdma.rkey = c->e.rkey;
	w.wr.rdma.remote_addr = c->e.address + (uint64_t)j->slot * SLOT;
	if (j->kind == WRITE || j->kind == WRITE_IMM) {
		fill(b, j->size, j->number);
		*s = (struct slot){ .seed = j->number, .size = j->size };
		if (j->kind == WRITE_IMM) {
			w.imm_data = (uint32_t)j->slot << 26 | (uint32_t)(j->number & 0x3ffffff);
			s->unanswered = ++c->messages;
		}
	} else if (j->kind == READ) {
		s->readers++;
		g[0].length = (uint32_t)s->size;
	} else if (j->kind == ATOMIC) {
		g[0].length = 8;
		w.wr.atomic.rkey = c->e.rkey;
		w.wr.atomic.remote_addr = c->e.address + (uint64_t)SLOTS * SLOT;
		w.wr.atomic.compare_add = 1;
	} else {
		struct message m = { .number = c->messages++, .size = (uint32_t)j->size };
		memcpy(b, &m, sizeof m);
		fill(b + sizeof m, j->size, m.number);
		g[0].length = sizeof m;
		g[1] = (struct ibv_sge){ .addr = (uintptr_t)b + sizeof m, .length = (uint32_t)j->size,
			.lkey = c->e.buffers->lkey };
		w.num_sge = 2;
	}
	if (sum(&w) <= INLINE && j->kind != READ && j->kind != ATOMIC && draw(2))
		w.send_flags = IBV_SEND_INLINE;
	CHECK(ibv_post_send(c->e.qp, &w, &bad) == 0, "ibv_post_send");
	c->head++;
	if (j->kind == READ && draw(2))
		forward(c, j, b);
	return true;
}

/* One queue pair's life; true: it ended well. */
static bool session(struct client *c, uint64_t *left)
{
	uint64_t flushed = 0;
	c->head = c->tail = c->messages = c->answers = c->counter = 0;
	memset(c->slots, 0, sizeof c->slots);
	while (!c->e.broken && (*left > 0 || c->tail != c->head || c->answers != c->messages)) {
		/* One less than there are buffers: a fenced write may use that of the read before it. */
		if (*left > 0 && c->head - c->tail < DEPTH - 1 && post(c))
			--*left;
		else
			take(c, &flushed);
	}
	bool well = !c->e.broken;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	CHECK(ibv_modify_qp(c->e.qp, &a, IBV_QP_STATE) == 0, "ERR");
	c->e.broken = true;
	for (int64_t until = now() + 20; c->tail != c->head || flushed < DEPTH;) {
		take(c, &flushed);
		CHECK(now() < until, "%lu work requests and %lu buffers did not flush", c->head - c->tail, DEPTH - flushed);
	}
	for (int i = 0; i < 100; i++)
		CHECK(!take(c, &flushed), "something completed twice");
	return well;
}

static int run(const char *address, int port, uint64_t operations)
{
	static struct client c;
	int cuts = 0;
	uint64_t left = operations;
	for (int64_t until = now() + SECONDS; left > 0;) {
		CHECK(now() < until, "%lu operations are left after %d s", left, SECONDS);
		c.e.tcp = dial(address, port);
		if (c.e.tcp < 0 || !open_end(&c.e) || !meet(&c.e)) {
			if (c.e.qp != NULL)
				ibv_destroy_qp(c.e.qp);
			c.e.qp = NULL;
		} else {
			cuts += !session(&c, &left);
			CHECK(ibv_destroy_qp(c.e.qp) == 0, "ibv_destroy_qp");
		}
		close_end(&c.e);
		close(c.e.tcp);
		poll(NULL, 0, left > 0 ? 50 : 0);
	}
	printf("whole, cut %d\n", cuts);
	return 0;
}

/* --- the server --- */

static void answer(struct end *e, uint64_t number)
{
	struct message m = { .number = number, .is_answer = 1 };
	struct ibv_sge g = { .addr = (uintptr_t)&m, .length = sizeof m };
	struct ibv_send_wr w = { .wr_id = 1ull << 63, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE }, *bad;
	CHECK(ibv_post_send(e->qp, &w, &bad) == 0, "ibv_post_send of an answer");
}

static void check(struct end *e, const struct ibv_wc *w, uint64_t number)
{
	CHECK(w->wr_id == e->received, "buffer %lu, wanted %lu", w->wr_id, e->received);
	if (w->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		uint32_t slot = w->imm_data >> 26;
		CHECK(is_filled(e->memory + (size_t)slot * SLOT, w->byte_len, w->imm_data & 0x3ffffff),
		      "%u bytes of slot %u are not those that were written", w->byte_len, slot);
		return;
	}
	struct message m;
	char *b = e->buffer + w->wr_id % DEPTH * BUFFER;
	if (w->wr_id % 3 == 0 && w->byte_len > HEAD)
		memcpy(b + HEAD, e->tail + w->wr_id % DEPTH * BUFFER, w->byte_len - HEAD);
	memcpy(&m, b, sizeof m);
	CHECK(m.number == number && w->byte_len == sizeof m + m.size && is_filled(b + sizeof m, m.size, m.number),
	      "message %lu of %u bytes, wanted %lu", m.number, w->byte_len, number);
}

static void serve_one(struct end *e)
{
	uint64_t number = 0;
	struct ibv_wc w;
	for (;;) {
		int n = ibv_poll_cq(e->cq, 1, &w);
		CHECK(n >= 0, "ibv_poll_cq");
		struct pollfd p = { .fd = e->tcp, .events = POLLIN };
		if (n == 0 && poll(&p, 1, 0) > 0)
			return; /* the client has gone */
		if (n == 0 || w.status != IBV_WC_SUCCESS || w.wr_id >> 63)
			continue;
		check(e, &w, number);
		post_receive(e, e->received + DEPTH);
		e->received++;
		answer(e, number++);
	}
}

static int serve(int port)
{
	static struct end e;
	int l = listen_at(port);
	for (;;) {
		e.tcp = accept(l, NULL, NULL);
		CHECK(e.tcp >= 0, "accept: %s", strerror(errno));
		if (open_end(&e) && meet(&e))
			serve_one(&e);
		if (e.qp != NULL)
			ibv_destroy_qp(e.qp);
		close_end(&e);
		close(e.tcp);
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	if (argc == 5 && strcmp(argv[1], "run") == 0)
		return run(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10));
	fprintf(stderr, "usage: torture serve PORT | run ADDRESS PORT OPERATIONS\n");
	return 2;
}
