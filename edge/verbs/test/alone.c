/*
 * alone TEST: what one program with one host can show of libibverbs: fork, memory, itself, deep, events, signals,
 * cancel, gone, polls, naps, late. Each is described at its function.
 */
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include "ends.h"
#include "naps.h"
#include "scarce.h"

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
	scarce(&e, RLIMIT_AS, 1 << 20);
	scarce(&e, RLIMIT_NOFILE, 0);
	void *late = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *shared = ibv_reg_mr(e.pd, late, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(shared != NULL && ibv_dereg_mr(shared) == 0, "the parent's device does not survive its child");
	CHECK(ibv_dereg_mr(mr) == 0 && strcmp(near, "parent") == 0 && strcmp(there, "registered") == 0,
	      "after ibv_dereg_mr");
	close_end(&e);
	puts("fork: ok");
	return 0;
}

/* MiB of the memory that was taken over with an address; all of it is resident. 0: it was not. */
static unsigned long taken_mib(const void *at)
{
	unsigned long from, to, mib = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (uintptr_t)at && (uintptr_t)at < to &&
		    strstr(line, "memfd:edge-verbs") != NULL)
			mib = (to - from + (1 << 20) - 1) >> 20;
	if (f != NULL)
		fclose(f);
	return mib;
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
	/* Of an allocation that nobody has written to, only a part is taken over. */
	enum { HUGE_SIZE = 512 << 20, MOST_MIB = 64 };
	char *huge = malloc(HUGE_SIZE), *middle = huge + HUGE_SIZE / 2;
	struct ibv_mr *part = ibv_reg_mr(e.pd, middle, 4096, access);
	CHECK(part != NULL && taken_mib(middle) > 0 && taken_mib(middle) <= MOST_MIB, "of 512 MiB %lu are taken over",
	      taken_mib(middle));
	CHECK(ibv_dereg_mr(part) == 0, "ibv_dereg_mr");
	free(huge);
	/* Of one that is hardly longer than such a part all is taken over, wherever it lies. */
	const uintptr_t mib = 1 << 20;
	char *block = malloc(MOST_MIB * mib);
	char *round = (char *)(((uintptr_t)block + MOST_MIB * mib - 1) / (MOST_MIB * mib) * (MOST_MIB * mib));
	struct ibv_mr *first = ibv_reg_mr(e.pd, round - 100, 50, access);
	struct ibv_mr *second = ibv_reg_mr(e.pd, round - 1000, 2000, access);
	CHECK(first != NULL && second != NULL, "no second region of a block: %s", strerror(errno));
	CHECK(ibv_dereg_mr(first) == 0 && ibv_dereg_mr(second) == 0, "ibv_dereg_mr");
	free(block);
	/* So it is with the end of a longer one, whose last part is found from either of its sides. */
	for (int end = 0; end < 2; end++) {
		block = malloc(100 * mib);
		first = ibv_reg_mr(e.pd, block + (end ? 80 : 20) * mib, 50, access);
		second = ibv_reg_mr(e.pd, block + 64 * mib - 1000, 2000, access);
		CHECK(first != NULL && second != NULL, "no second region of a longer block: %s", strerror(errno));
		CHECK(ibv_dereg_mr(first) == 0 && ibv_dereg_mr(second) == 0, "ibv_dereg_mr");
		free(block);
	}
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

/* So many sends, and so many buffers of a shared receive queue, are posted at once, in one call each. */
static int deep(void)
{
	enum { SENDS = 8192, BUFFERS = 4096, SECONDS = 120, GONE = 10 };
	static struct ibv_recv_wr receives[BUFFERS], *bad_receive;
	static struct ibv_send_wr sends[SENDS], *bad;
	static struct ibv_sge to[BUFFERS], from[SENDS];
	struct end e = { 0 };
	CHECK(open_end(&e), "no device");
	uint64_t *in = (uint64_t *)e.memory, *out = in + BUFFERS;
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = BUFFERS, .max_sge = 1 } };
	struct ibv_cq *cq = ibv_create_cq(e.context, SENDS + BUFFERS, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(e.pd, &shared);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS, .max_send_sge = 1 } };
	e.qp = cq != NULL && srq != NULL ? ibv_create_qp(e.pd, &init) : NULL;
	CHECK(e.qp != NULL, "no queue pair: %s", strerror(errno));
	for (int i = 0; i < BUFFERS; i++) {
		to[i] = (struct ibv_sge){ .addr = (uintptr_t)&in[i], .length = 8, .lkey = e.mr->lkey };
		receives[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)i, .sg_list = &to[i], .num_sge = 1,
			.next = i + 1 < BUFFERS ? &receives[i + 1] : NULL };
	}
	for (int i = 0; i < SENDS; i++) {
		out[i] = (uint64_t)i;
		from[i] = (struct ibv_sge){ .addr = (uintptr_t)&out[i], .length = 8, .lkey = e.mr->lkey };
		sends[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i, .sg_list = &from[i], .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED, .next = i + 1 < SENDS ? &sends[i + 1] : NULL };
	}
	CHECK(ibv_post_srq_recv(srq, receives, &bad_receive) == 0, "%d buffers: %s", BUFFERS, strerror(errno));
	be_own_peer(&e);
	CHECK(ibv_post_send(e.qp, sends, &bad) == 0, "%d sends", SENDS);
	uint64_t sent = 0, received = 0;
	struct ibv_wc c;
	for (int64_t until = now() + SECONDS; sent < SENDS || received < SENDS;) {
		CHECK(now() < until, "%lu of %d were sent, %lu received", sent, SENDS, received);
		if (ibv_poll_cq(cq, 1, &c) == 0)
			continue;
		CHECK(c.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(c.status));
		if (c.opcode == IBV_WC_SEND) {
			CHECK(c.wr_id == sent++, "send %lu completes", c.wr_id);
			continue;
		}
		CHECK(in[c.wr_id] == received, "message %lu instead of %lu", in[c.wr_id], received);
		received++;
		receives[c.wr_id].next = NULL;
		CHECK(ibv_post_srq_recv(srq, &receives[c.wr_id], &bad_receive) == 0, "a buffer is not posted again");
	}
	CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
	int err; /* the connection may be about to end */
	for (int64_t until = now() + GONE; (err = ibv_destroy_srq(srq)) == EBUSY && now() < until;)
		poll(NULL, 0, 1);
	CHECK(err == 0 && ibv_destroy_cq(cq) == 0, "something is in use: %s", strerror(err));
	close_end(&e);
	puts("deep: ok");
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

static _Atomic int handled;
static void counts(int number)
{
	(void)number;
	handled++;
}

/* A signal ends the wait for an event, as it ends a read. */
static _Atomic bool raises;
int fcntl(int fd, int command, ...)
{
	va_list va;
	va_start(va, command);
	long arg = va_arg(va, long);
	va_end(va);
	if (atomic_exchange(&raises, false))
		raise(SIGUSR1);
	return (int)syscall(SYS_fcntl, fd, command, arg);
}

/* The library's sleep: which thread of the program is in it, and whether one that it gave the device's descriptor. */
static _Atomic int sleeper, watcher;
int ppoll(struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *signals)
{
	if (n > 0)
		atomic_store(n == 2 ? &watcher : &sleeper, (int)syscall(SYS_gettid));
	int (*next)(struct pollfd *, nfds_t, const void *, const void *) = dlsym(RTLD_NEXT, "ppoll");
	return next(p, n, t, signals);
}

struct waiting { struct ibv_comp_channel *channel; _Atomic int tid; int got, err; bool blocks; };

static void *waits(void *arg)
{
	struct waiting *w = arg;
	struct ibv_cq *cq;
	void *context;
	sigset_t one = { 0 };
	sigaddset(&one, SIGUSR1);
	if (w->blocks)
		pthread_sigmask(SIG_BLOCK, &one, NULL);
	pthread_kill(pthread_self(), SIGUSR1);
	w->tid = (int)syscall(SYS_gettid);
	w->got = ibv_get_cq_event(w->channel, &cq, &context);
	w->err = errno;
	if (w->got == 0)
		ibv_ack_cq_events(cq, 1);
	sigpending(&one);
	w->blocks = sigismember(&one, SIGUSR1);
	return NULL;
}

/* Starts a thread that waits for an event, and sleeps when this returns. With a completion queue it does so in the
 * device's descriptor, which the library's thread leaves to others while the program polls. */
static pthread_t asleep(struct waiting *w, struct ibv_cq *polled)
{
	pthread_t t;
	struct ibv_wc c;
	sleeper = watcher = 0;
	CHECK(pthread_create(&t, NULL, waits, w) == 0, "no thread");
	for (int64_t until = now() + 60; w->tid == 0 || (watcher != w->tid && (polled != NULL || sleeper != w->tid));) {
		CHECK(now() < until, "no thread sleeps");
		if (polled != NULL)
			CHECK(ibv_poll_cq(polled, 1, &c) == 0, "a completion");
		sched_yield();
	}
	return t;
}

/* Has a completion queue that is armed get an entry. */
static void complete(struct end *e)
{
	struct ibv_sge g = { .addr = (uintptr_t)e->memory, .length = 8, .lkey = e->mr->lkey };
	struct ibv_send_wr w = { .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)e->memory, .rkey = e->mr->rkey } }, *bad;
	CHECK(ibv_post_send(e->qp, &w, &bad) == 0, "write");
}

/* A queue pair that is its own peer, whose completions a channel tells of. */
static void open_own(struct end *e, struct ibv_comp_channel **channel)
{
	CHECK(open_end(e), "no device");
	*channel = ibv_create_comp_channel(e->context);
	ibv_destroy_cq(e->cq);
	e->cq = ibv_create_cq(e->context, 16, NULL, *channel, 0);
	struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(e->cq != NULL && (e->qp = ibv_create_qp(e->pd, &init)) != NULL, "no queue pair");
	be_own_peer(e);
}

/* A signal whose handler ran before the call, or which the thread blocks, does not end the wait. */
static void signals_before(void)
{
	struct end e = { 0 };
	struct ibv_comp_channel *channel;
	struct ibv_wc c;
	open_own(&e, &channel);
	for (int blocks = 0; blocks < 2; blocks++) {
		struct waiting w = { .channel = channel, .blocks = blocks };
		handled = 0;
		CHECK(ibv_req_notify_cq(e.cq, 0) == 0, "ibv_req_notify_cq");
		pthread_t t = asleep(&w, NULL);
		complete(&e);
		CHECK(pthread_join(t, NULL) == 0 && w.got == 0, "a signal before the call ends it: %s", strerror(w.err));
		CHECK(handled == 1 - blocks && w.blocks == blocks, "%d signals are handled", handled);
		CHECK(ibv_poll_cq(e.cq, 1, &c) == 1 && c.status == IBV_WC_SUCCESS, "no completion");
	}
	CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
	close_end(&e);
	CHECK(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
}

static int signals(void)
{
	struct end e = { 0 };
	struct sigaction on = { .sa_handler = counts };
	struct itimerval often = { .it_interval = { .tv_usec = 50000 }, .it_value = { .tv_usec = 50000 } }, never = { 0 };
	CHECK(open_end(&e), "no device");
	struct ibv_comp_channel *channel = ibv_create_comp_channel(e.context);
	struct ibv_cq *cq;
	void *context;
	CHECK(channel != NULL && sigaction(SIGALRM, &on, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0,
	      "no timer");
	CHECK(ibv_get_cq_event(channel, &cq, &context) != 0 && errno == EINTR, "%s", strerror(errno));
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGUSR1, &on, NULL) == 0, "no handler");
	raises = true; /* by the library's call of fcntl, after which it sleeps */
	CHECK(ibv_get_cq_event(channel, &cq, &context) != 0 && errno == EINTR && !raises, "%s", strerror(errno));
	CHECK(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
	close_end(&e);
	signals_before();
	puts("signals: ok");
	return 0;
}

static void *arms(void *cq)
{
	cancels = true;
	ibv_req_notify_cq(cq, 0); /* wakes the library's thread, with the lock */
	pthread_testcancel();
	return NULL;
}

/* A thread that is cancelled in a call leaves no lock, and what it watched to others. */
static int cancel(void)
{
	enum { WATCHING = 2, FIRST = 20, ROUNDS = 80, LEAST = ROUNDS * 32 }; /* bytes */
	struct end e = { 0 };
	struct ibv_comp_channel *channel;
	struct sigaction on = { .sa_handler = counts };
	struct ibv_cq *cq;
	struct ibv_wc c;
	void *said, *context;
	long before = 0, after;
	pthread_t t;
	open_own(&e, &channel);
	CHECK(sigaction(SIGUSR1, &on, NULL) == 0, "no handler");
	for (int i = -WATCHING; i < FIRST + ROUNDS; i++) {
		struct waiting w = { .channel = ibv_create_comp_channel(e.context) };
		t = asleep(&w, i < 0 ? e.cq : NULL);
		CHECK(pthread_cancel(t) == 0 && pthread_join(t, &said) == 0 && said == PTHREAD_CANCELED,
		      "a thread that waits is not cancelled");
		CHECK(ibv_destroy_comp_channel(w.channel) == 0, "ibv_destroy_comp_channel");
		for (int64_t until = now() + 60; watcher == w.tid; sched_yield())
			CHECK(now() < until, "nobody watches the daemon any more");
		before = i == FIRST ? (long)mallinfo2().uordblks : before;
	}
	after = (long)mallinfo2().uordblks - before;
	CHECK(after < LEAST, "%ld bytes more after %d cancellations", after, ROUNDS);
	CHECK(pthread_create(&t, NULL, arms, e.cq) == 0 && pthread_join(t, &said) == 0 && said == PTHREAD_CANCELED &&
	      !cancels, "a thread that holds the lock is not cancelled later");
	complete(&e);
	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == e.cq && ibv_poll_cq(cq, 1, &c) == 1, "no event");
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_destroy_qp(e.qp) == 0, "ibv_destroy_qp");
	close_end(&e);
	CHECK(ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
	puts("cancel: ok");
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
	CHECK(c.status == IBV_WC_RETRY_EXC_ERR && took >= LEAST_MS, "%s after %ld ms",
	      ibv_wc_status_str(c.status), (long)took);
	CHECK(ibv_destroy_qp(a.qp) == 0, "ibv_destroy_qp");
	close_end(&a);
	close_end(&b);
	puts("gone: ok");
	return 0;
}

/* Polls twice, as one that the kernel ends at any system call but those of read, write and exit. */
static void *polls_bare(void *arg)
{
	struct end *e = arg;
	struct ibv_wc c;
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	for (int i = 0; i < 2; i++)
		if (ibv_poll_cq(e->cq, 1, &c) != 0)
			syscall(SYS_exit, 0);
	e->received++;
	syscall(SYS_exit, 0);
	return NULL;
}

/* A poll that finds nothing makes no system call; only a thread that polls on and on gives way. */
static int polls(void)
{
	enum { THREADS = 100 }; /* a call in so many polls would be noticed */
	struct end e = { 0 };
	struct ibv_wc c;
	CHECK(open_end(&e) && ibv_poll_cq(e.cq, 1, &c) == 0, "no device");
	for (int i = 0; i < THREADS; i++) {
		pthread_t t;
		CHECK(pthread_create(&t, NULL, polls_bare, &e) == 0 && pthread_join(t, NULL) == 0, "no thread");
	}
	CHECK(e.received == THREADS, "%d threads of %d made a system call", THREADS - (int)e.received, THREADS);
	close_end(&e);
	puts("polls: ok");
	return 0;
}

/* The daemon at the socket. */
static pid_t daemon_pid(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct ucred who = { 0 };
	socklen_t n = sizeof who;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const char *path = getenv("EDGE_SOCKET");
	CHECK(path != NULL && strlen(path) < sizeof at.sun_path, "EDGE_SOCKET names no socket");
	strcpy(at.sun_path, path);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
	      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.pid > 0, "no daemon: %s", strerror(errno));
	close(fd);
	return who.pid;
}

/* A queue pair and its completion queue are destroyed while the daemon does not run. What was posted ends when they are
 * gone, of which the sanitizers tell. */
static int late(void)
{
	enum { AFTER_MS = 1000 };
	struct end e = { .tcp = echo() }, other = { 0 };
	pid_t pid = daemon_pid();
	CHECK(open_end(&e) && open_end(&other) && meet(&e), "no queue pair");
	struct ibv_sge g = { .addr = (uintptr_t)e.buffer + DEPTH * BUFFER, .length = 100, .lkey = e.buffers->lkey };
	struct ibv_send_wr w = { .wr_id = 1ull << 63, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc c;
	CHECK(ibv_post_send(e.qp, &w, &bad) == 0, "send");
	for (int n = 0; n < 2; n += ibv_poll_cq(e.cq, 1, &c))
		;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	CHECK(kill(pid, SIGSTOP) == 0, "the daemon does not stop: %s", strerror(errno));
	int err = ibv_modify_qp(e.qp, &a, IBV_QP_STATE);
	err = err != 0 ? err : ibv_destroy_qp(e.qp);
	err = err != 0 ? err : ibv_destroy_cq(e.cq);
	kill(pid, SIGCONT);
	CHECK(err == 0, "not destroyed: %s", strerror(err));
	e.cq = NULL;
	for (int64_t until = now_ms() + AFTER_MS; now_ms() < until;)
		CHECK(ibv_poll_cq(other.cq, 1, &c) == 0, "a completion of another queue");
	close_end(&e);
	close_end(&other);
	puts("late: ok");
	return 0;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; int (*run)(void); } tests[] = { { "fork", forks }, { "memory", memory },
		{ "itself", itself }, { "deep", deep }, { "events", events }, { "signals", signals },
		{ "cancel", cancel }, { "gone", gone }, { "polls", polls }, { "naps", naps }, { "late", late } };
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++)
		if (strcmp(argv[1], tests[i].name) == 0)
			return tests[i].run();
	fprintf(stderr, "usage: alone fork | memory | itself | deep | events | signals | cancel | gone | polls | naps | "
	        "late\n");
	return 2;
}
