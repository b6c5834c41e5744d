/*
 * torture serve PORT | torture run ADDRESS PORT OPERATIONS | torture fork | torture memory
 * | torture itself | torture events | torture gone | torture
 * signals
 *
 * Two programs of libibverbs that compare every byte. The client posts random writes, writes with immediate, reads,
 * atomics and sends; the server checks each message and answers it. Work requests complete once each, in order, and
 * with success until one fails; then all that are posted flush, and the client begins anew with another queue pair,
 * as often as it takes. At the end it says how often it had to.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { SLOTS = 32, SLOT = 64 << 10, DEPTH = 64, MEMORY = (SLOTS + 1) * SLOT, BUFFER = SLOT + 64, HEAD = 40,
       SECONDS = 60 };

#define CHECK(is, ...) do { if (!(is)) fail(__VA_ARGS__); } while (0)

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list va;
	va_start(va, format);
	fputs("torture: ", stderr);
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

static uint64_t random_state = UINT64_C(88172645463325252);

static uint32_t draw(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 11) % below;
}

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
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 } };
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
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                    IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
	e->rkey = peer.rkey;
	e->address = peer.address;
	e->broken = false;
	return true;
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
		CHECK(is_filled(b, s->size, s->seed), "read %lu of slot %d has other bytes than were written", j->number, j->slot);
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
		CHECK(w->status == IBV_WC_WR_FLUSH_ERR || w->status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(w->status));
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
		g[1] = (struct ibv_sge){ .addr = (uintptr_t)b + sizeof m, .length = (uint32_t)j->size, .lkey = c->e.buffers->lkey };
		w.num_sge = 2;
		if (sizeof m + j->size <= 64 && draw(2))
			w.send_flags = IBV_SEND_INLINE;
	}
	CHECK(ibv_post_send(c->e.qp, &w, &bad) == 0, "ibv_post_send");
	c->head++;
	return true;
}

/* One queue pair's life; true: it ended well. */
static bool session(struct client *c, uint64_t *left)
{
	uint64_t flushed = 0;
	c->head = c->tail = c->messages = c->answers = c->counter = 0;
	memset(c->slots, 0, sizeof c->slots);
	while (!c->e.broken && (*left > 0 || c->tail != c->head || c->answers != c->messages)) {
		if (*left > 0 && c->head - c->tail < DEPTH && post(c))
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
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	CHECK(bind(l, (struct sockaddr *)&at, sizeof at) == 0 && listen(l, 8) == 0, "port %d", port);
	for (;;) {
		e.tcp = accept(l, NULL, NULL);
		if (open_end(&e) && meet(&e))
			serve_one(&e);
		if (e.qp != NULL)
			ibv_destroy_qp(e.qp);
		close_end(&e);
		close(e.tcp);
	}
}

/* After fork neither side sees what the other does to its heap, registered or not. */
static int forks(void)
{
	struct end e = { 0 };
	CHECK(open_end(&e), "no device");
	char *near = malloc(100), *there = malloc(1000);
	/* Or the compiler knew what is there, and left out the child's write, since nobody else has the pointers. */
	__asm__ volatile("" : "+r"(near), "+r"(there) : : "memory");
	strcpy(near, "parent");
	strcpy(there, "registered");
	struct ibv_mr *mr = ibv_reg_mr(e.pd, there, 1000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr != NULL, "ibv_reg_mr");
	pid_t pid = fork();
	if (pid == 0) {
		bool same = strcmp(near, "parent") == 0 && strcmp(there, "registered") == 0;
		for (int i = 0; i < 1000; i++)
			strcpy(malloc(500), "child");
		strcpy(near, "child");
		struct end own = { 0 };
		struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
		bool opens = open_end(&own);
		init.send_cq = init.recv_cq = own.cq;
		own.qp = opens ? ibv_create_qp(own.pd, &init) : NULL;
		_exit(!same || own.qp == NULL || ibv_destroy_qp(own.qp) != 0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child sees other bytes, or has no device");
	CHECK(strcmp(near, "parent") == 0, "the child's write is seen: %s", near);
	void *late = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *shared = ibv_reg_mr(e.pd, late, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(shared != NULL && ibv_dereg_mr(shared) == 0, "the parent's device does not survive its child");
	CHECK(ibv_dereg_mr(mr) == 0 && strcmp(near, "parent") == 0 && strcmp(there, "registered") == 0, "after ibv_dereg_mr");
	close_end(&e);
	puts("fork: ok");
	return 0;
}

/* Regions of one allocation, of which neighbours share a page and one has them all, have keys each. */
static int memory(void)
{
	enum { PART = 100000, PARTS = 3, LATER = 2 };
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct end e = { 0 };
	CHECK(open_end(&e), "no device");
	char *big = malloc(PARTS * PART), *before = malloc(PARTS * PART);
	struct ibv_mr *mr[PARTS + 1];
	memset(big, 1, PARTS * PART);
	for (int i = 0; i < PARTS; i++) {
		int part = (i + LATER) % PARTS; /* not from the beginning on */
		mr[i] = ibv_reg_mr(e.pd, big + part * PART, PART, access);
		CHECK(mr[i] != NULL, "no region of part %d", part);
	}
	mr[PARTS] = ibv_reg_mr(e.pd, big, PARTS * PART, access);
	CHECK(mr[PARTS] != NULL, "no region of all parts");
	free(before); /* it may lie beside the other */
	before = malloc(PARTS * PART);
	struct ibv_mr *other = ibv_reg_mr(e.pd, before, PARTS * PART, access);
	CHECK(other != NULL && ibv_dereg_mr(other) == 0, "no region of another allocation");
	for (int i = 0; i <= PARTS; i++)
		CHECK(ibv_dereg_mr(mr[i]) == 0, "ibv_dereg_mr");
	for (int i = 0; i < PARTS * PART; i++)
		CHECK(big[i] == 1, "byte %d has changed", i);
	close_end(&e);
	puts("memory: ok");
	return 0;
}

/* A socket that hears what it says. */
static int echo(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t n = sizeof at;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = bind(fd, (struct sockaddr *)&at, sizeof at.sun_family) == 0 &&
		getsockname(fd, (struct sockaddr *)&at, &n) == 0 && connect(fd, (struct sockaddr *)&at, n) == 0;
	return ok ? fd : -1;
}

/* A queue pair that is its own peer: it writes to its own memory, and receives what it sends. */
static int itself(void)
{
	enum { SIZE = 5000, SENDS = 3 };
	struct end e = { .tcp = echo() };
	CHECK(open_end(&e) && meet(&e), "no queue pair");
	char *from = e.buffer + DEPTH * BUFFER;
	fill(from, SIZE, 1);
	struct ibv_sge g = { .addr = (uintptr_t)from, .length = SIZE, .lkey = e.buffers->lkey };
	struct ibv_send_wr w = { .wr_id = 1ull << 63, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	w.wr.rdma.rkey = e.rkey;
	w.wr.rdma.remote_addr = e.address;
	CHECK(ibv_post_send(e.qp, &w, &bad) == 0, "write");
	w.opcode = IBV_WR_SEND;
	for (int i = 0; i < SENDS; i++)
		CHECK(ibv_post_send(e.qp, &w, &bad) == 0, "send");
	struct ibv_wc c;
	int sent = 0, received = 0;
	for (int64_t until = now() + 20; sent < 1 + SENDS || received < SENDS;) {
		CHECK(now() < until, "%d of 4 were sent, %d of 3 received", sent, received);
		if (ibv_poll_cq(e.cq, 1, &c) == 0)
			continue;
		CHECK(c.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(c.status));
		if (c.wr_id >> 63) {
			sent++;
			continue;
		}
		const char *b = e.buffer + c.wr_id * BUFFER;
		bool split = c.wr_id % 3 == 0;
		CHECK(c.wr_id == (uint64_t)received++ && c.byte_len == SIZE, "buffer %lu, %u bytes", c.wr_id, c.byte_len);
		CHECK(memcmp(b, from, split ? HEAD : SIZE) == 0, "message %lu has other bytes", c.wr_id);
	}
	CHECK(is_filled(e.memory, SIZE, 1), "the memory has other bytes");
	CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
	close_end(&e);
	puts("itself: ok");
	return 0;
}

static _Atomic bool destroyed;

static void *destroy(void *srq)
{
	CHECK(ibv_destroy_srq(srq) == 0, "ibv_destroy_srq");
	destroyed = true;
	return NULL;
}

/* An object stays until the asynchronous events about it are acknowledged. */
static int events(void)
{
	enum { SOON_MS = 50 }; /* that it would need to go without */
	struct end e = { 0 };
	CHECK(open_end(&e), "no device");
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(e.pd, &init);
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	CHECK(srq != NULL && ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0, "no shared receive queue");
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(e.context, &event) == 0 && event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED &&
	      event.element.srq == srq, "another event");
	pthread_t t;
	CHECK(pthread_create(&t, NULL, destroy, srq) == 0, "no thread");
	poll(NULL, 0, SOON_MS);
	CHECK(!destroyed, "it has gone before its event was acknowledged");
	ibv_ack_async_event(&event);
	pthread_join(t, NULL);
	close_end(&e);
	puts("events: ok");
	return 0;
}

static void nothing(int number)
{
	(void)number;
}

/* A signal ends the wait for an event, as it ends a read. */
static int signals(void)
{
	struct end e = { 0 };
	struct sigaction on = { .sa_handler = nothing };
	struct itimerval often = { .it_interval = { .tv_usec = 50000 }, .it_value = { .tv_usec = 50000 } }, never = { 0 };
	CHECK(open_end(&e), "no device");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(e.context);
	struct ibv_cq *cq;
	void *context;
	CHECK(channel != NULL && sigaction(SIGALRM, &on, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0, "no timer");
	CHECK(ibv_get_cq_event(channel, &cq, &context) != 0 && errno == EINTR, "%s", strerror(errno));
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
	close_end(&e);
	puts("signals: ok");
	return 0;
}

static void *meets(void *e)
{
	CHECK(meet(e), "no queue pair");
	return NULL;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* That its peer has gone a queue pair notices no sooner than a NIC after its retries. */
static int gone(void)
{
	enum { LEAST_MS = 400, MOST_MS = 10000 };
	struct end a = { 0 }, b = { 0 };
	int pair[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && open_end(&a) && open_end(&b), "no device");
	a.tcp = pair[0];
	b.tcp = pair[1];
	pthread_t t;
	CHECK(pthread_create(&t, NULL, meets, &b) == 0 && meet(&a) && pthread_join(t, NULL) == 0, "no queue pairs");
	struct ibv_sge g = { .addr = (uintptr_t)a.buffer + DEPTH * BUFFER, .length = 100, .lkey = a.buffers->lkey };
	struct ibv_send_wr w = { .wr_id = 1ull << 63, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc c;
	CHECK(ibv_post_send(a.qp, &w, &bad) == 0, "send");
	while (ibv_poll_cq(b.cq, 1, &c) == 0)
		;
	CHECK(ibv_destroy_qp(b.qp) == 0, "ibv_destroy_qp");
	while (ibv_poll_cq(a.cq, 1, &c) == 0)
		;
	CHECK(c.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(c.status));
	int64_t began = now_ms();
	CHECK(ibv_post_send(a.qp, &w, &bad) == 0, "send");
	while (ibv_poll_cq(a.cq, 1, &c) == 0)
		CHECK(now_ms() < began + MOST_MS, "it does not fail");
	int64_t took = now_ms() - began;
	CHECK(c.status == IBV_WC_RETRY_EXC_ERR && took >= LEAST_MS, "%s after %ld ms", ibv_wc_status_str(c.status), (long)took);
	CHECK(ibv_destroy_qp(a.qp) == 0, "ibv_destroy_qp");
	close_end(&a);
	close_end(&b);
	puts("gone: ok");
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]));
	if (argc == 5 && strcmp(argv[1], "run") == 0)
		return run(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10));
	if (argc == 2 && strcmp(argv[1], "fork") == 0)
		return forks();
	if (argc == 2 && strcmp(argv[1], "memory") == 0)
		return memory();
	if (argc == 2 && strcmp(argv[1], "itself") == 0)
		return itself();
	if (argc == 2 && strcmp(argv[1], "events") == 0)
		return events();
	if (argc == 2 && strcmp(argv[1], "gone") == 0)
		return gone();
	if (argc == 2 && strcmp(argv[1], "signals") == 0)
		return signals();
	fprintf(stderr, "usage: torture serve PORT | run ADDRESS PORT OPERATIONS | fork | memory | itself | events | gone | signals\n");
	return 2;
}
