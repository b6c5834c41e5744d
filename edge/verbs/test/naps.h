/* A thread that polls on and on sleeps between its polls. What wakes it makes no work beside. */
#ifndef EDGE_VERBS_NAPS_H
#define EDGE_VERBS_NAPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "ends.h"

static __thread unsigned written; /* calls of write by this thread, the libraries' among them */
static _Atomic bool cancels;

/* In the library's call of write its thread is cancelled: libc's own is a point of cancellation. */
ssize_t write(int fd, const void *p, size_t n)
{
	written++;
	if (atomic_exchange(&cancels, false)) {
		pthread_cancel(pthread_self());
		pthread_testcancel();
	}
	return syscall(SYS_write, fd, p, n);
}

enum { NAPS = 300, NAP_US = 1000 };

/* Posts writes now and then, from a queue pair that is its own peer, to its own memory. */
static void *naps_post(void *arg)
{
	struct end *e = arg;
	struct ibv_sge g = { .addr = (uintptr_t)e->memory, .length = 8, .lkey = e->mr->lkey };
	struct ibv_send_wr w = { .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr = { .rdma = { .remote_addr = (uintptr_t)e->memory + 8, .rkey = e->mr->rkey } } }, *bad;
	for (int i = 0; i < NAPS; i++) {
		usleep(NAP_US);
		CHECK(ibv_post_send(e->qp, &w, &bad) == 0, "write %d", i);
	}
	return NULL;
}

/* The thread that sleeps on the daemon's bell, and takes what it rang for, rings no bell for itself. */
static int naps(void)
{
	struct end e = { 0 };
	struct ibv_wc c;
	pthread_t t;
	CHECK(open_end(&e), "no device");
	struct ibv_qp_init_attr init = { .send_cq = e.cq, .recv_cq = e.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = NAPS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK((e.qp = ibv_create_qp(e.pd, &init)) != NULL, "ibv_create_qp: %s", strerror(errno));
	be_own_peer(&e);
	CHECK(pthread_create(&t, NULL, naps_post, &e) == 0, "no thread");
	written = 0;
	for (int done = 0; done < NAPS; done += ibv_poll_cq(e.cq, 1, &c))
		;
	CHECK(written < NAPS / 10, "%u calls of write while %d writes ended", written, NAPS);
	CHECK(pthread_join(t, NULL) == 0 && ibv_destroy_qp(e.qp) == 0, "the end");
	close_end(&e);
	puts("naps: ok");
	return 0;
}

#endif
