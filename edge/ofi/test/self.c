/*
 * self [TEST]: the provider without a daemon: a program that connects to itself, by a Unix socket. Where the fuzzer
 * throws dice, here is what the manual pages of libfabric promise, one after the other. It is run under the address,
 * the undefined-behaviour and the thread sanitizer.
 */
#include <sys/wait.h>

#include "ends.h"

/* --- what is promised --- */

/* fi_msg(3): FI_INJECT returns the buffer at once, and is no word on completions; fi_inject has none. */
static void injects(void)
{
	char buf[8] = "inject", got[8];
	struct iovec v = { buf, sizeof buf };
	struct fi_msg m = { .msg_iov = &v, .iov_count = 1, .context = &m };
	connect_both(0);
	for (int i = 0; i < 3; i++)
		OK(fi_recv(two.ep, got, sizeof got, NULL, 0, got));
	OK(fi_inject(one.ep, buf, sizeof buf, 0));
	WANT(nothing(&one));
	OK(fi_sendmsg(one.ep, &m, FI_INJECT));
	WANT(back(&one, &m) == 0);
	OK(fi_sendmsg(one.ep, &m, FI_INJECT | FI_COMPLETION));
	WANT(back(&one, &m) == 0 && nothing(&one));
	for (int i = 0; i < 3; i++)
		WANT(back(&two, got) == 0);
	close_both();
}

/* fi_endpoint(3): what fails completes though nobody asked for it; fi_cq(3): with the flags that say what it was. */
static void selective(void)
{
	char buf[8] = "select", got[8];
	struct fi_cq_err_entry c;
	struct iovec v = { buf, sizeof buf };
	struct fi_msg m = { .msg_iov = &v, .iov_count = 1, .context = &m };
	connect_both(FI_SELECTIVE_COMPLETION);
	OK(fi_recv(two.ep, got, sizeof got, NULL, 0, got));
	OK(fi_send(one.ep, buf, sizeof buf, NULL, 0, buf));
	OK(fi_recvmsg(two.ep, &(struct fi_msg){ .msg_iov = &v, .iov_count = 1, .context = &v }, FI_COMPLETION));
	OK(fi_sendmsg(one.ep, &m, FI_COMPLETION));
	WANT(back(&one, &m) == 0 && back(&two, &v) == 0);
	OK(fi_write(one.ep, buf, sizeof buf, NULL, 0, 0, KEY, buf)); /* there is no such memory */
	while (nothing(&one))
		WANT(nothing(&two));
	WANT(next(&one, &c) == -FI_ENOKEY && c.op_context == buf && c.flags == (FI_WRITE | FI_RMA));
	close_both();
}

/* fi_cq(3): no completion in time, or fi_cq_signal, is FI_EAGAIN. */
static void signals(void)
{
	struct fi_cq_data_entry c;
	connect_both(0);
	WANT(fi_cq_sread(one.cq, &c, 1, NULL, 0) == -FI_EAGAIN);
	WANT(fi_cq_sread(one.cq, &c, 1, NULL, 1) == -FI_EAGAIN);
	OK(fi_cq_signal(one.cq));
	WANT(fi_cq_sread(one.cq, &c, 1, NULL, -1) == -FI_EAGAIN);
	close_both();
}

/* Waits until a thread of ours sleeps. */
static void asleep(pid_t tid)
{
	char path[64], line[512], *state;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
	do {
		FILE *f = fopen(path, "r");
		WANT(f != NULL && fgets(line, sizeof line, f) != NULL);
		fclose(f);
		state = strrchr(line, ')');
		WANT(state != NULL);
	} while (state[2] != 'S');
}

static _Atomic pid_t sleeper_is;

static void *sleeper(void *arg)
{
	sleeper_is = gettid();
	WANT(back(arg, &sleeper_is) == -FI_ECANCELED);
	return NULL;
}

/* Two threads sleep on one queue; one gives up, and what comes then is the other's. */
static void sleepers(void)
{
	struct fi_cq_data_entry c;
	pthread_t t;
	char got[8];
	connect_both(0);
	OK(fi_recv(one.ep, got, sizeof got, NULL, 0, &sleeper_is));
	OK(pthread_create(&t, NULL, sleeper, &one));
	while (sleeper_is == 0)
		;
	asleep(sleeper_is);
	WANT(fi_cq_sread(one.cq, &c, 1, NULL, 1) == -FI_EAGAIN);
	OK(fi_cancel(&one.ep->fid, &sleeper_is));
	OK(pthread_join(t, NULL));
	close_both();
}

/* A thread sleeps on a queue, another one asks another queue in vain, and gives way: whenever it stops, the sleeper is
 * woken by what comes. */
static void asks(void)
{
	pthread_t t;
	char got[8];
	connect_both(0);
	OK(fi_recv(one.ep, got, sizeof got, NULL, 0, &sleeper_is));
	sleeper_is = 0;
	OK(pthread_create(&t, NULL, sleeper, &one));
	while (sleeper_is == 0)
		;
	asleep(sleeper_is);
	for (int i = 0; i < 300; i++)
		WANT(nothing(&two) && armed);
	OK(fi_cancel(&one.ep->fid, &sleeper_is));
	OK(pthread_join(t, NULL));
	close_both();
}

enum { EACH = 2000, POSTED = 16 };
static _Atomic unsigned left;
static _Atomic unsigned char came[2 * EACH];

static void *sends(void *arg)
{
	struct fi_cq_data_entry c;
	unsigned from = arg == NULL ? 0 : EACH, done = 0;
	for (unsigned i = from; i < from + EACH; i++)
		OK(fi_senddata(one.ep, "message", 8, NULL, i, 0, NULL));
	while (done < EACH) {
		ssize_t n = fi_cq_sread(one.cq, &c, 1, NULL, 100); /* those of both threads */
		WANT(n == 1 || n == -FI_EAGAIN);
		done += n == 1;
		if (left == 0 && n != 1)
			break;
	}
	return NULL;
}

static void *receives(void *arg)
{
	struct fi_cq_data_entry c;
	(void)arg;
	while (left > 0) {
		ssize_t n = fi_cq_sread(two.cq, &c, 1, NULL, -1);
		WANT(n == 1 || (n == -FI_EAGAIN && left == 0));
		if (n != 1)
			break;
		WANT(c.data < 2 * EACH && came[c.data]++ == 0 && memcmp(c.op_context, "message", 8) == 0);
		OK(fi_recv(two.ep, c.op_context, 8, NULL, 0, c.op_context));
		left--;
	}
	OK(fi_cq_signal(two.cq)); /* the other one may sleep */
	return NULL;
}

/* FI_THREAD_SAFE: two threads post and read at one end, two at the other. */
static void threads(void)
{
	static char bufs[POSTED][8];
	pthread_t t[4];
	connect_both(0);
	left = 2 * EACH;
	for (int i = 0; i < POSTED; i++)
		OK(fi_recv(two.ep, bufs[i], 8, NULL, 0, bufs[i]));
	for (int i = 0; i < 4; i++)
		OK(pthread_create(&t[i], NULL, i < 2 ? receives : sends, i % 2 ? &left : NULL));
	for (int i = 0; i < 4; i++)
		OK(pthread_join(t[i], NULL));
	close_both();
}

/* fi_cm(3): buffers come back before fi_shutdown returns, and nothing is received any more; the peer gets what was
 * sent. Neither end waits for the other's program, which does not close its endpoint. */
static void shuts(void)
{
	static char memory[64], big[1 << 20];
	struct fi_cq_err_entry c;
	struct fid_mr *mr;
	char got[8], late[8];
	connect_both(0);
	OK(fi_mr_reg(domain, memory, sizeof memory, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, KEY, 0, &mr, NULL));
	OK(fi_recv(one.ep, got, sizeof got, NULL, 0, got));
	OK(fi_recv(two.ep, late, sizeof late, NULL, 0, late));
	OK(fi_recv(two.ep, late, sizeof late, NULL, 0, &late[1]));
	OK(fi_send(one.ep, "last", 5, NULL, 0, &one));
	WANT(back(&one, &one) == 0);
	OK(fi_send(two.ep, big, sizeof big, NULL, 0, big)); /* nobody takes it, and what is behind it is not done */
	OK(fi_write(two.ep, "written", 8, NULL, 0, 0, KEY, memory));
	OK(fi_shutdown(one.ep, 0));
	struct fi_cq_data_entry e;
	WANT(fi_cq_read(one.cq, &e, 1) == -FI_EAVAIL && next(&one, &c) == -FI_ECANCELED && c.op_context == got);
	WANT(fi_recv(one.ep, got, sizeof got, NULL, 0, got) == -FI_ENOTCONN);
	int shut = 0, whole = 0;
	while (shut < 2) {
		struct fi_eq_cm_entry cm;
		uint32_t type;
		ssize_t n = fi_eq_read(eq, &type, &cm, sizeof cm, 0);
		WANT(n == -FI_EAGAIN || (n == sizeof cm && type == FI_SHUTDOWN));
		shut += n == sizeof cm;
		while ((n = fi_cq_read(two.cq, &e, 1)) != -FI_EAGAIN) {
			if (n == 1) {
				whole += e.op_context == late && e.len == 5 && strcmp(late, "last") == 0;
				WANT(e.op_context == late || e.op_context == big);
				continue;
			}
			WANT(fi_cq_readerr(two.cq, &c, 0) == 1 && c.op_context != late);
		}
	}
	WANT(whole == 1 && memory[0] == 0);
	OK(fi_close(&mr->fid));
	close_both();
}

/* An endpoint that is closed gives back what was posted, once. */
static void closes(void)
{
	char got[4][8];
	struct fi_cq_err_entry c;
	unsigned seen = 0;
	connect_both(0);
	for (int i = 0; i < 4; i++)
		OK(fi_recv(one.ep, got[i], sizeof got[i], NULL, 0, got[i]));
	OK(fi_cancel(&one.ep->fid, got[2]));
	WANT(fi_cancel(&one.ep->fid, got[2]) == -FI_ENOENT);
	WANT(fi_close(&one.cq->fid) == -FI_EBUSY);
	OK(fi_close(&one.ep->fid));
	WANT(event(&two.ep->fid) == FI_SHUTDOWN);
	OK(fi_close(&two.ep->fid));
	for (int i = 0; i < 4; i++) {
		WANT(next(&one, &c) == -FI_ECANCELED);
		seen |= 1u << ((char (*)[8])c.op_context - got);
	}
	WANT(seen == 15 && nothing(&one));
	OK(fi_close(&one.cq->fid));
	OK(fi_close(&two.cq->fid));
}

static struct fid_pep *listen_too(void)
{
	struct fid_pep *p;
	OK(fi_passive_ep(fabric, info, &p, NULL));
	OK(fi_pep_bind(p, &eq->fid, 0));
	OK(fi_listen(p));
	return p;
}

/* The next event is an error of fid. */
static void event_fails(fid_t fid, int err)
{
	struct fi_eq_err_entry e = { 0 };
	uint32_t type;
	char room[100];
	WANT(fi_eq_sread(eq, &type, room, sizeof room, -1, 0) == -FI_EAVAIL);
	WANT(fi_eq_readerr(eq, &e, 0) == sizeof e && e.fid == fid && e.err == err);
}

static void refused(void)
{
	event_fails(&one.ep->fid, FI_ECONNREFUSED);
	close_end(&one);
}

/* Who asks for a connection does not wait for a program that has put the request away. */
static void refuses(void)
{
	for (int i = 0; i < 2; i++) { /* the endpoint is closed; the program may reject, too */
		struct fi_info *of = ask(pep, 0);
		open_end(&two, of, 0);
		close_end(&two);
		refused();
		if (i == 0)
			OK(fi_reject(pep, of->handle, "no", 2));
		fi_freeinfo(of);
	}
	struct fi_info *of = ask(pep, 0); /* rejected before that */
	open_end(&two, of, 0);
	OK(fi_reject(pep, of->handle, NULL, 0));
	WANT(fi_accept(two.ep, NULL, 0) == -FI_EOPBADSTATE);
	close_end(&two);
	refused();
	fi_freeinfo(of);
	struct fid_pep *p = listen_too(); /* the passive endpoint is closed before there is an endpoint */
	of = ask(p, 0);
	OK(fi_close(&p->fid));
	refused();
	open_end(&two, of, 0);
	WANT(fi_accept(two.ep, NULL, 0) < 0);
	close_end(&two);
	fi_freeinfo(of);
	p = listen_too(); /* or after: that goes on */
	of = ask(p, 0);
	open_end(&two, of, 0);
	fi_freeinfo(of);
	OK(fi_close(&p->fid));
	accept_it();
	close_both();
}

/* A service that the next daemon does not let us offer: the program is told, once. */
static void deaf(void)
{
	struct fid_pep *p = listen_too();
	struct fabric *f = container_of(fabric, struct fabric, fid);
	unlistened = EDGE_ERR_EXISTS;
	pthread_mutex_lock(&f->mu);
	struct watched *w = &container_of(p, struct pep, fid)->watched;
	w->step(w);
	w->step(w);
	pthread_mutex_unlock(&f->mu);
	unlistened = EDGE_ERR_AGAIN;
	event_fails(&p->fid, FI_EADDRINUSE);
	uint32_t type;
	char room[100];
	WANT(fi_eq_read(eq, &type, room, sizeof room, 0) == -FI_EAGAIN);
	OK(fi_close(&p->fid));
}

/* A child of fork that lives on has all sockets as well: it keeps no connection alive, and nothing stays behind that is
 * closed here. */
static void forks(void)
{
	struct fid_pep *p = listen_too();
	int hold[2], status;
	char name[64], c;
	size_t size = sizeof name;
	OK(fi_getname(&p->fid, name, &size));
	connect_both(0);
	OK(pipe(hold));
	pid_t child = fork();
	if (child == 0) {
		close(hold[1]);
		_exit(read(hold[0], &c, 1) != 0); /* until the parent is done */
	}
	close(hold[0]);
	OK(fi_close(&p->fid));
	OK(fi_close(&one.ep->fid));
	WANT(event(&two.ep->fid) == FI_SHUTDOWN);
	OK(fi_close(&two.ep->fid));
	for (int i = 0; i < 100; i++)
		WANT(nothing(&one) && nothing(&two));
	OK(fi_close(&one.cq->fid));
	OK(fi_close(&two.cq->fid));
	open_end(&one, info, 0);
	OK(fi_connect(one.ep, name, NULL, 0));
	refused();
	close(hold[1]);
	WANT(waitpid(child, &status, 0) == child && status == 0);
}

/* fi_endpoint(3), max_order_war_size: a write does not overtake a short read, though the answer waits for room. */
static void orders(void)
{
	static char big[1 << 20], got_big[1 << 20];
	static uint64_t word = 1, now = 2, was;
	struct fid_mr *mr;
	connect_both(0);
	OK(fi_mr_reg(domain, &word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	OK(fi_send(two.ep, big, sizeof big, NULL, 0, big)); /* nobody takes it: what follows waits */
	OK(fi_read(one.ep, &was, sizeof was, NULL, 0, 0, KEY, &was));
	OK(fi_write(one.ep, &now, sizeof now, NULL, 0, 0, KEY, &now));
	while (word != now)
		WANT(nothing(&two));
	OK(fi_close(&mr->fid)); /* which what is read does not need any more either */
	OK(fi_recv(one.ep, got_big, sizeof got_big, NULL, 0, got_big));
	WANT(back(&one, got_big) == 0 && back(&one, &was) == 0 && back(&one, &now) == 0 && back(&two, big) == 0);
	WANT(was == 1);
	close_both();
}

/* What fi_getinfo tells is what there is, and to programs of older releases in their words. */
static void tells(void)
{
	struct fi_info *hints = fi_allocinfo(), *got;
	WANT(hints != NULL);
	OK(edge_provider.getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &got));
	WANT(got->domain_attr->mr_mode == FI_MR_SCALABLE);
	fi_freeinfo(got);
	hints->domain_attr->mr_mode = FI_MR_BASIC;
	OK(edge_provider.getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &got));
	WANT(got->domain_attr->mr_mode == FI_MR_BASIC);
	fi_freeinfo(got);
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
	WANT(got->domain_attr->mr_mode == hints->domain_attr->mr_mode);
	WANT(!(got->tx_attr->msg_order & (FI_ORDER_RAS | FI_ORDER_WAS))); /* unless it is asked for */
	fi_freeinfo(got);
	hints->tx_attr->msg_order = FI_ORDER_WAS;
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
	WANT((got->tx_attr->msg_order & (FI_ORDER_RAS | FI_ORDER_WAS)) == (FI_ORDER_RAS | FI_ORDER_WAS));
	fi_freeinfo(got);
	hints->tx_attr->msg_order = 0;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR; /* without FI_MR_PROV_KEY */
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
	WANT(got->domain_attr->mr_mode == 0 && got->mode == 0 && got->domain_attr->cntr_cnt > 0);
	WANT(got->caps == (CAPS | got->domain_attr->caps) && got->domain_attr->caps == (FI_LOCAL_COMM | FI_REMOTE_COMM));
	WANT((got->tx_attr->caps | got->rx_attr->caps) == CAPS); /* where peers are is no matter of a direction */
	fi_freeinfo(got);
	hints->caps = FI_MSG | FI_SEND;
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
	WANT(!(got->caps & (FI_RMA | FI_RECV | FI_READ | FI_RMA_EVENT | FI_FENCE)));
	fi_freeinfo(got);
	hints->caps = FI_MSG | FI_TAGGED;
	WANT(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got) == -FI_ENODATA);
	hints->caps = hints->tx_attr->caps = hints->rx_attr->caps = CAPS;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
		FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW; /* as MPICH has it */
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got));
	WANT(!(got->tx_attr->caps & (FI_RECV | FI_REMOTE_READ)) && !(got->rx_attr->caps & (FI_SEND | FI_READ)));
	WANT(got->ep_attr->max_order_war_size == ORDERED);
	fi_freeinfo(got);
	hints->ep_attr->max_order_war_size = ORDERED + 1; /* a long read is sampled while it is sent */
	WANT(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &got) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* FI_EDGE_FATAL: which ends of a connection end the process. */
static void fatal(void)
{
	static const struct { int err, status; } ends[] = { { 0, 0 }, { EDGE_ERR_RESET, 0 }, { EDGE_ERR_FORKED, 0 },
		{ EDGE_ERR_DAEMON_DOWN, 1 }, { EDGE_ERR_DRAINING, 1 }, { EDGE_ERR_PEER_DOWN, 1 }, { EDGE_ERR_QUOTA, 1 },
		{ EDGE_ERR_STREAM, 1 } };
	for (size_t i = 0; i < 2 * sizeof ends / sizeof *ends; i++) {
		bool on = i % 2;
		int status, err = ends[i / 2].err;
		pid_t child = fork();
		if (child == 0) {
			WANT(freopen("/dev/null", "w", stderr) != NULL);
			container_of(fabric, struct fabric, fid)->fatal = on;
			connection_lost(container_of(fabric, struct fabric, fid), err);
			_exit(0);
		}
		WANT(waitpid(child, &status, 0) == child && WIFEXITED(status));
		WANT(WEXITSTATUS(status) == (on ? ends[i / 2].status : 0));
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { { "injects", injects }, { "selective", selective }, { "signals", signals },
		{ "sleepers", sleepers }, { "asks", asks }, { "threads", threads }, { "shuts", shuts }, { "closes", closes },
		{ "refuses", refuses }, { "deaf", deaf }, { "forks", forks }, { "orders", orders }, { "tells", tells },
		{ "fatal", fatal } };
	return run("self", tests, sizeof tests / sizeof *tests, argc, argv);
}
