/*
 * counts [TEST]: counters, fences and fi_cancel, as fi_cntr(3), fi_endpoint(3) and fi_cq(3) promise them. As self.c, it
 * is run under the address, the undefined-behaviour and the thread sanitizer.
 */
#include <poll.h>

#include "ends.h"

static const uint64_t kinds[COUNTERS] = { FI_READ, FI_WRITE, FI_RECV, FI_SEND, FI_REMOTE_READ, FI_REMOTE_WRITE };
enum { READS, WRITES, RECVS, SENDS, REMOTE_READS, REMOTE_WRITES };
static struct fid_cntr *of_one[COUNTERS], *of_two[COUNTERS];

static struct fid_cntr *counter(enum fi_wait_obj object)
{
	struct fi_cntr_attr attr = { .wait_obj = object };
	struct fid_cntr *c;
	OK(fi_cntr_open(domain, &attr, &c, NULL));
	return c;
}

static void count_with(struct end *e)
{
	struct fid_cntr **c = e == &one ? of_one : of_two;
	for (int i = 0; i < COUNTERS; i++) {
		c[i] = counter(FI_WAIT_UNSPEC);
		OK(fi_ep_bind(e->ep, &c[i]->fid, kinds[i]));
	}
}

static void close_counters(void)
{
	for (int i = 0; i < COUNTERS; i++) {
		OK(fi_close(&of_one[i]->fid));
		OK(fi_close(&of_two[i]->fid));
	}
	prepare = NULL;
}

/* Whether that is all that an end has counted: successes in the order of kinds, and errors. */
static bool counted(struct fid_cntr **c, const uint64_t n[COUNTERS], const uint64_t errors[COUNTERS])
{
	bool so = true;
	for (int i = 0; i < COUNTERS; i++)
		so = so && fi_cntr_read(c[i]) == n[i] && fi_cntr_readerr(c[i]) == errors[i];
	return so;
}

static const uint64_t none[COUNTERS];

/* fi_cntr(3): counters count every success, whether or not it has an entry in a queue, by what it was. */
static void counts(void)
{
	static uint64_t word, v[2] = { 1, 2 }, was;
	struct fid_mr *mr;
	char got[3][8];
	prepare = count_with;
	connect_both(FI_SELECTIVE_COMPLETION);
	OK(fi_mr_reg(domain, &word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	for (int i = 0; i < 3; i++)
		OK(fi_recv(two.ep, got[i], sizeof got[i], NULL, 0, got[i]));
	OK(fi_send(one.ep, "a", 2, NULL, 0, NULL));
	OK(fi_inject(one.ep, "b", 2, 0));
	struct fi_msg m = { .msg_iov = &(struct iovec){ "c", 2 }, .iov_count = 1 };
	OK(fi_sendmsg(one.ep, &m, FI_DELIVERY_COMPLETE));
	OK(fi_write(one.ep, v, 8, NULL, 0, 0, KEY, NULL));
	OK(fi_inject_write(one.ep, v, 8, 0, 0, KEY));
	OK(fi_atomic(one.ep, v, 1, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, NULL));
	OK(fi_read(one.ep, &was, 8, NULL, 0, 0, KEY, NULL));
	OK(fi_fetch_atomic(one.ep, v, 1, NULL, &was, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, NULL));
	OK(fi_compare_atomic(one.ep, v, 1, NULL, v, NULL, &was, NULL, 0, 0, KEY, FI_UINT64, FI_CSWAP, NULL));
	OK(fi_cntr_wait(of_one[READS], 3, -1));
	OK(fi_cntr_wait(of_one[WRITES], 3, -1));
	OK(fi_cntr_wait(of_one[SENDS], 3, -1));
	OK(fi_cntr_wait(of_two[REMOTE_READS], 3, -1));
	WANT(was == 3 && strcmp(got[2], "c") == 0);
	WANT(counted(of_one, (uint64_t[]){ 3, 3, 0, 3, 0, 0 }, none));
	WANT(counted(of_two, (uint64_t[]){ 0, 0, 3, 0, 3, 3 }, none));
	OK(fi_writedata(one.ep, v, 8, NULL, 99, 0, 0, KEY, NULL)); /* has an entry, and counts as any write */
	OK(fi_cntr_wait(of_two[REMOTE_WRITES], 4, -1));
	struct fi_cq_err_entry c;
	WANT(next(&two, &c) == 0 && c.data == 99 && nothing(&two) && nothing(&one));
	OK(fi_close(&mr->fid));
	close_both();
	close_counters();
}

/* fi_mr(3): a counter of registered memory counts what modifies it, whoever does. */
static void counts_memory(void)
{
	static uint64_t word, v = 1, was;
	struct fid_cntr *c = counter(FI_WAIT_UNSPEC);
	struct fid_mr *mr, *other;
	connect_both(FI_SELECTIVE_COMPLETION);
	OK(fi_mr_reg(domain, &word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, FI_RMA_EVENT, &mr, NULL));
	OK(fi_mr_reg(domain, &word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY + 1, 0, &other, NULL));
	WANT(fi_mr_bind(mr, &c->fid, FI_REMOTE_READ) == -FI_EBADFLAGS);
	OK(fi_mr_bind(mr, &c->fid, FI_REMOTE_WRITE));
	WANT(fi_mr_bind(mr, &c->fid, FI_REMOTE_WRITE) == -FI_EINVAL && fi_close(&c->fid) == -FI_EBUSY);
	OK(fi_write(one.ep, &v, 8, NULL, 0, 0, KEY, NULL));
	OK(fi_write(one.ep, &v, 8, NULL, 0, 0, KEY + 1, NULL));
	OK(fi_atomic(one.ep, &v, 1, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, NULL));
	OK(fi_fetch_atomic(one.ep, &v, 1, NULL, &was, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, NULL));
	OK(fi_fetch_atomic(one.ep, NULL, 1, NULL, &was, NULL, 0, 0, KEY, FI_UINT64, FI_ATOMIC_READ, NULL));
	OK(fi_write(one.ep, &v, 8, NULL, 0, 1, KEY, &v)); /* beyond it */
	OK(fi_read(one.ep, &was, 8, NULL, 0, 0, KEY, &was));
	WANT(back(&one, &v) == -FI_EFAULT && fi_cntr_wait(c, 4, 0) == -FI_ETIMEDOUT);
	OK(fi_write(two.ep, &v, 8, NULL, 0, 0, KEY, NULL));
	OK(fi_cntr_wait(c, 4, -1));
	WANT(fi_cntr_readerr(c) == 0);
	OK(fi_close(&mr->fid));
	OK(fi_close(&other->fid));
	OK(fi_close(&c->fid));
	close_both();
}

/* fi_cntr(3): what fails counts as an error, at the end that began it. */
static void fails(void)
{
	static char big[1 << 20];
	struct fi_cq_err_entry c;
	char got[2][4];
	uint64_t v = 1, was;
	prepare = count_with;
	connect_both(FI_SELECTIVE_COMPLETION);
	OK(fi_write(one.ep, &v, 8, NULL, 0, 0, KEY, &one)); /* there is no such memory */
	WANT(fi_cntr_wait(of_one[WRITES], 1, -1) == -FI_EAVAIL && next(&one, &c) == -FI_ENOKEY);
	OK(fi_fetch_atomic(one.ep, &v, 1, NULL, &was, NULL, 0, 0, KEY, FI_UINT64, FI_SUM, &one));
	WANT(fi_cntr_wait(of_one[READS], 1, -1) == -FI_EAVAIL && next(&one, &c) == -FI_ENOKEY);
	OK(fi_recv(two.ep, got[0], sizeof got[0], NULL, 0, got[0]));
	OK(fi_send(one.ep, "too long", 9, NULL, 0, &one));
	WANT(fi_cntr_wait(of_two[RECVS], 1, -1) == -FI_EAVAIL && next(&two, &c) == -FI_ETRUNC);
	OK(fi_recv(two.ep, got[0], sizeof got[0], NULL, 0, got[0]));
	OK(fi_cancel(&two.ep->fid, got[0]));
	WANT(next(&two, &c) == -FI_ECANCELED);
	WANT(counted(of_one, (uint64_t[]){ 0, 0, 0, 1, 0, 0 }, (uint64_t[]){ 1, 1, 0, 0, 0, 0 }));
	WANT(counted(of_two, none, (uint64_t[]){ 0, 0, 2, 0, 0, 0 }));
	/* What is under way when an endpoint is closed has failed, what nobody is told of (fi_inject) included. */
	for (int i = 0; i < 2; i++)
		OK(fi_recv(one.ep, got[i], sizeof got[i], NULL, 0, got[i]));
	OK(fi_send(one.ep, big, sizeof big, NULL, 0, big));
	OK(fi_write(one.ep, &v, 8, NULL, 0, 0, KEY, big));
	OK(fi_inject(one.ep, "lost", 5, 0));
	OK(fi_inject_write(one.ep, &v, 8, 0, 0, KEY));
	OK(fi_close(&one.ep->fid));
	WANT(counted(of_one, (uint64_t[]){ 0, 0, 0, 1, 0, 0 }, (uint64_t[]){ 1, 3, 2, 2, 0, 0 }));
	for (int i = 0; i < 4; i++)
		WANT(next(&one, &c) == -FI_ECANCELED);
	WANT(nothing(&one));
	OK(fi_close(&one.cq->fid));
	close_end(&two);
	close_counters();
}

/* What fi_cntr_open and fi_ep_bind do not take, and fi_close not yet. */
static void binds(void)
{
	struct fi_cntr_attr odd[] = { { .flags = 1 }, { .wait_obj = FI_WAIT_MUTEX_COND }, { .events = 1 } };
	struct fid_cntr *c = counter(FI_WAIT_NONE), *other;
	struct fid_ep *ep;
	int fd;
	for (int i = 0; i < 3; i++)
		WANT(fi_cntr_open(domain, &odd[i], &other, NULL) == (i == 0 ? -FI_EINVAL : -FI_ENOSYS));
	other = counter(FI_WAIT_NONE);
	WANT(fi_cntr_wait(c, 0, 0) == -FI_ENOSYS && fi_control(&c->fid, FI_GETWAIT, &fd) == -FI_ENOSYS);
	struct fid *fid = &c->fid;
	WANT(fi_trywait(fabric, &fid, 1) == -FI_EINVAL);
	OK(fi_endpoint(domain, info, &ep, NULL));
	WANT(fi_ep_bind(ep, &c->fid, FI_WRITE | FI_SELECTIVE_COMPLETION) == -FI_EBADFLAGS);
	OK(fi_ep_bind(ep, &c->fid, FI_READ | FI_WRITE));
	WANT(fi_ep_bind(ep, &other->fid, FI_SEND | FI_WRITE) == -FI_EINVAL); /* one for each sort, and nothing by halves */
	OK(fi_ep_bind(ep, &other->fid, FI_SEND));
	WANT(fi_close(&c->fid) == -FI_EBUSY && fi_close(&other->fid) == -FI_EBUSY);
	OK(fi_close(&ep->fid));
	OK(fi_close(&other->fid));
	connect_both(0);
	WANT(fi_ep_bind(one.ep, &c->fid, FI_READ) == -FI_EINVAL); /* it is enabled */
	close_both();
	OK(fi_close(&c->fid));
}

/* fi_cntr(3): programs add and set; a wait ends at the threshold, by an error, or in time. */
static void sets(void)
{
	struct fid_cntr *c = counter(FI_WAIT_FD);
	struct fid *fid = &c->fid;
	struct pollfd p = { .events = POLLIN };
	OK(fi_control(&c->fid, FI_GETWAIT, &p.fd));
	WANT(fi_cntr_read(c) == 0 && fi_cntr_readerr(c) == 0);
	OK(fi_cntr_wait(c, 0, -1));
	WANT(fi_cntr_wait(c, 1, 0) == -FI_ETIMEDOUT && fi_cntr_wait(c, 1, 1) == -FI_ETIMEDOUT);
	OK(fi_cntr_add(c, 7));
	OK(fi_cntr_wait(c, 7, -1));
	WANT(fi_cntr_wait(c, 8, 0) == -FI_ETIMEDOUT);
	OK(fi_cntr_set(c, 3));
	OK(fi_cntr_seterr(c, 5));
	OK(fi_cntr_adderr(c, 2));
	WANT(fi_cntr_read(c) == 3 && fi_cntr_readerr(c) == 7);
	WANT(fi_cntr_wait(c, 4, 1) == -FI_ETIMEDOUT); /* errors of before end no wait */
	WANT(fi_trywait(fabric, &fid, 1) == -FI_EAGAIN);
	for (int i = 0; i < 3; i++) { /* any change is news, once */
		OK(fi_trywait(fabric, &fid, 1));
		WANT(poll(&p, 1, 0) == 0);
		OK(i == 0 ? fi_cntr_add(c, 1) : i == 1 ? fi_cntr_set(c, 0) : fi_cntr_adderr(c, 1));
		WANT(poll(&p, 1, 0) == 1 && fi_trywait(fabric, &fid, 1) == -FI_EAGAIN);
	}
	OK(fi_close(&c->fid));
}

enum { MESSAGES = 100 };

static void *sends(void *arg)
{
	for (int i = 0; i < MESSAGES; i++) {
		OK(fi_send(one.ep, "n", 2, NULL, 0, arg));
		WANT(back(&one, arg) == 0);
	}
	return NULL;
}

/* A descriptor tells of what a peer does, whoever makes progress, and nothing is missed between fi_trywait and poll. */
static void polls(void)
{
	char got[8];
	pthread_t t;
	prepare = count_with;
	connect_both(0);
	struct fid *fid = &of_two[RECVS]->fid;
	struct pollfd p = { .events = POLLIN };
	OK(fi_control(fid, FI_GETWAIT, &p.fd));
	OK(pthread_create(&t, NULL, sends, &one));
	for (uint64_t n = 1; n <= MESSAGES; n++) {
		OK(fi_recv(two.ep, got, sizeof got, NULL, 0, got));
		while (fi_cntr_read(of_two[RECVS]) < n)
			if (fi_trywait(fabric, &fid, 1) == 0)
				WANT(poll(&p, 1, -1) == 1);
		WANT(back(&two, got) == 0);
	}
	OK(pthread_join(t, NULL));
	close_both();
	close_counters();
}

enum { THREADS = 3, ROUNDS = 100 };
static struct fid_cntr *shared;
static _Atomic unsigned turns[THREADS];

/* Waits until so many sleep. */
static void asleep(struct waiter *w, uint32_t n)
{
	for (uint32_t there = n + 1; there != n; sched_yield()) {
		pthread_mutex_lock(&w->f->mu);
		there = w->sleepers;
		pthread_mutex_unlock(&w->f->mu);
	}
}

static void *waits_in_turn(void *arg)
{
	_Atomic unsigned *turn = arg;
	for (unsigned i = 0; i < ROUNDS; i++) {
		OK(fi_cntr_wait(shared, i * THREADS + (unsigned)(turn - turns) + 1, -1));
		++*turn;
	}
	return NULL;
}

static void *waits_for_errors(void *arg)
{
	_Atomic unsigned *turn = arg;
	for (unsigned i = 0; i < ROUNDS; i++) {
		WANT(fi_cntr_wait(shared, 1, -1) == -FI_EAVAIL);
		++*turn;
	}
	return NULL;
}

static void begin(pthread_t t[THREADS], void *(*f)(void *))
{
	shared = counter(FI_WAIT_UNSPEC);
	for (int i = 0; i < THREADS; i++) {
		turns[i] = 0;
		OK(pthread_create(&t[i], NULL, f, &turns[i]));
	}
}

static void end(pthread_t t[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		OK(pthread_join(t[i], NULL));
	OK(fi_close(&shared->fid));
}

/* Threads that sleep on one counter wait for a value each: whose it is wakes, whoever else has looked before. */
static void thresholds(void)
{
	pthread_t t[THREADS];
	begin(t, waits_in_turn);
	for (unsigned i = 0; i < ROUNDS * THREADS; i++) {
		unsigned left = ROUNDS * THREADS - i;
		asleep(&container_of(shared, struct cntr, fid)->w, left < THREADS ? left : THREADS);
		OK(fi_cntr_add(shared, 1));
		while (turns[i % THREADS] == i / THREADS)
			sched_yield();
	}
	end(t);
}

/* fi_cntr(3): any change of the errors unblocks any thread inside fi_cntr_wait. */
static void unblocks(void)
{
	pthread_t t[THREADS];
	begin(t, waits_for_errors);
	for (unsigned i = 0; i < ROUNDS; i++) {
		asleep(&container_of(shared, struct cntr, fid)->w, THREADS);
		OK(i % 2 ? fi_cntr_adderr(shared, 1) : fi_cntr_seterr(shared, 1000 + i));
		for (int k = 0; k < THREADS; k++)
			while (turns[k] == i)
				sched_yield();
	}
	end(t);
}

/* --- threads that end --- */

static void *waits_for_ever(void *arg)
{
	struct fi_cq_err_entry c;
	WANT(arg != NULL ? fi_cq_sread(arg, &c, 1, NULL, -1) : fi_cntr_wait(shared, UINT64_MAX, -1));
	return NULL;
}

static void wait_and_cancel(struct waiter *w, struct fid_cq *cq)
{
	pthread_t t;
	void *how;
	OK(pthread_create(&t, NULL, waits_for_ever, cq));
	asleep(w, 1);
	OK(pthread_cancel(t));
	OK(pthread_join(t, &how));
	WANT(how == PTHREAD_CANCELED);
}

/* A thread that is canceled while it waits leaves all to others: a descriptor tells of the next news, and only then. */
static void leaves(void)
{
	char got[8];
	connect_both(0);
	shared = counter(FI_WAIT_UNSPEC);
	wait_and_cancel(&container_of(shared, struct cntr, fid)->w, NULL);
	OK(fi_cntr_adderr(shared, 1));
	struct fid *fid = &shared->fid;
	WANT(fi_trywait(fabric, &fid, 1) == -FI_EAGAIN);
	OK(fi_trywait(fabric, &fid, 1));
	wait_and_cancel(&container_of(two.cq, struct cq, fid)->w, two.cq);
	fid = &two.cq->fid;
	OK(fi_trywait(fabric, &fid, 1));
	OK(fi_recv(two.ep, got, sizeof got, NULL, 0, got));
	OK(fi_send(one.ep, "last", 5, NULL, 0, &one));
	WANT(back(&one, &one) == 0 && back(&two, got) == 0);
	OK(fi_trywait(fabric, &fid, 1));
	OK(fi_close(&shared->fid));
	close_both();
}

/* --- fences --- */

static char memory[1 << 20], copy[2][1 << 20];
enum { LAST = sizeof memory - 8 };

static ssize_t fenced(struct fid_ep *ep, char from[8], uint64_t flags)
{
	struct iovec v = { from, 8 };
	struct fi_rma_iov r = { LAST, 8, KEY };
	struct fi_msg_rma m = { .msg_iov = &v, .iov_count = 1, .rma_iov = &r, .rma_iov_count = 1, .context = from };
	return fi_writemsg(ep, &m, FI_FENCE | flags);
}

static ssize_t reads(struct fid_ep *ep, char *to)
{
	return fi_read(ep, to, sizeof memory, NULL, 0, 0, KEY, to);
}

/* fi_msg(3): the fenced operation and all after it wait until those before it have completed. So what a long read reads
 * is older than what is written behind it. Injected memory may be used again at once, also behind a fence. */
static void fences(void)
{
	struct fid_mr *mr;
	char first[8] = "first", second[8] = "second", got[8];
	connect_both(0);
	OK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	OK(fi_recv(two.ep, got, sizeof got, NULL, 0, got));
	OK(reads(one.ep, copy[0]));
	OK(fenced(one.ep, first, FI_INJECT));
	memcpy(first, "no more", 8);
	OK(fi_send(one.ep, "behind", 7, NULL, 0, &one));
	WANT(back(&two, got) == 0 && strcmp(got, "behind") == 0 && strcmp(memory + LAST, "first") == 0);
	WANT(back(&one, copy[0]) == 0 && copy[0][LAST] == 0);
	WANT(back(&one, &one) == 0 && back(&one, first) == 0);
	OK(reads(one.ep, copy[0])); /* both wait for the other's answer, and for their own fence */
	OK(reads(two.ep, copy[1]));
	OK(fenced(one.ep, first, 0));
	OK(fenced(two.ep, second, 0));
	WANT(back(&one, copy[0]) == 0 && back(&one, first) == 0 && back(&two, copy[1]) == 0 && back(&two, second) == 0);
	/* What is behind a fence is sent after fi_shutdown, and comes back once where the connection ends. */
	OK(reads(two.ep, copy[1]));
	OK(fenced(two.ep, second, 0));
	OK(reads(one.ep, copy[0]));
	OK(fenced(one.ep, first, 0));
	OK(fi_shutdown(one.ep, 0));
	WANT(back(&one, copy[0]) == 0 && back(&one, first) == 0 && strcmp(memory + LAST, "no more") == 0);
	WANT(event(&two.ep->fid) == FI_SHUTDOWN);
	WANT(back(&two, copy[1]) < 0 && back(&two, second) < 0 && nothing(&two));
	OK(fi_close(&mr->fid));
	close_both();
}

/* --- fi_cancel --- */

static struct fid_ep *buffers;

static void share(struct end *e)
{
	if (e == &two)
		OK(fi_ep_bind(e->ep, &buffers->fid, 0));
}

/* fi_endpoint(3): a buffer that endpoints share is completed as canceled, in the queue of one of them. */
static void cancels(void)
{
	struct fi_rx_attr attr = { .size = 4 };
	char got[3][8];
	OK(fi_srx_context(domain, &attr, &buffers, NULL));
	for (int i = 0; i < 3; i++)
		OK(fi_recv(buffers, got[i], sizeof got[i], NULL, 0, got[i]));
	WANT(fi_cancel(&buffers->fid, got[1]) == -FI_ENOCQ); /* nobody has a queue for it */
	prepare = share;
	connect_both(0);
	OK(fi_cancel(&buffers->fid, got[1]));
	WANT(back(&two, got[1]) == -FI_ECANCELED && fi_cancel(&buffers->fid, got[1]) == -FI_ENOENT);
	for (int i = 0; i < 3; i += 2) {
		OK(fi_send(one.ep, "message", 8, NULL, 0, &one));
		WANT(back(&one, &one) == 0 && back(&two, got[i]) == 0 && strcmp(got[i], "message") == 0);
	}
	close_both();
	prepare = NULL;
	OK(fi_close(&buffers->fid));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { { "counts", counts }, { "counts_memory", counts_memory }, { "fails", fails },
		{ "binds", binds }, { "sets", sets }, { "polls", polls }, { "thresholds", thresholds },
		{ "unblocks", unblocks }, { "leaves", leaves }, { "fences", fences }, { "cancels", cancels } };
	return run("counts", tests, sizeof tests / sizeof *tests, argc, argv);
}
