/* Operations on the memory of other ranks, and what they notify of. */
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "net.h"

struct net net;

/* Ends the run, since an operation on the memory of a rank failed, or a look at any (-1), or its connection ended. */
void gone(int rank, int err)
{
	const char *why = edge_message(err);
	if (rank < 0 || edge_error_is(err, EDGE_ERR_DAEMON_DOWN) || err == EDGE_ERR_CLOSED || err == EDGE_ERR_FORKED)
		fail("%s", why); /* it is not the other rank's */
	lost("dsm: rank %d on %s was lost: %.100s", rank, edge_conn_peer(net.conns[rank]), why);
}

/* Ends the run if err is an error. What a rank that failed said about it is the best cause. */
void check(int rank, int err)
{
	if (err >= 0)
		return;
	for (int r = 0; r < conf.ranks; r++)
		if (r != conf.rank && load(lay.ending + (16 + MAX_TEXT) * (size_t)r) != 0)
			told(r);
	gone(rank, err);
}

static void post(int rank, edge_work *w, enum area area)
{
	if (net.nops == MOST_POSTED)
		net_wait();
	stats.operations++;
	w->remote = net.there[rank][area];
	check(rank, edge_post_wait(net.conns[rank], w, &net.ops[net.nops], EDGE_FOREVER));
	net.of[net.nops++] = (uint8_t)rank;
}

static unsigned char *bytes_of(enum area area)
{
	return area == DATA ? mem.raw : mem.ctl;
}

void net_read(int rank, enum area area, size_t here, size_t there, size_t n)
{
	if (rank == conf.rank) {
		memmove(bytes_of(area) + here, bytes_of(area) + there, n);
		return;
	}
	post(rank, &(edge_work){ .kind = EDGE_READ, .local = net.areas[area], .local_off = here, .size = n,
		.remote_off = there }, area);
}

/* note, unless 0, is what the other rank is told once the bytes are in place. */
void net_write(int rank, enum area area, size_t here, size_t there, size_t n, uint32_t note)
{
	if (rank == conf.rank) {
		memmove(bytes_of(area) + there, bytes_of(area) + here, n);
		return;
	}
	post(rank, &(edge_work){ .kind = EDGE_WRITE, .flags = note != 0 ? EDGE_NOTIFY : 0, .imm = note,
		.local = net.areas[area], .local_off = here, .size = n, .remote_off = there }, area);
}

/* Atomics on memory of this rank are atomic with those of others (edge.h, enum edge_func). */
void net_swap(int rank, size_t at, uint64_t operand)
{
	net.atomic = -1;
	if (rank == conf.rank) {
		know.was = __atomic_exchange_n(word(at), operand, __ATOMIC_SEQ_CST);
		return;
	}
	post(rank, &(edge_work){ .kind = EDGE_ATOMIC, .size = 8, .func = EDGE_SWAP, .operand = operand, .remote_off = at,
		.result = &know.was }, CONTROL);
	net.atomic = net.nops - 1;
}

void net_compare_swap(int rank, size_t at, uint64_t compare, uint64_t operand)
{
	net.atomic = -1;
	if (rank == conf.rank) {
		know.was = compare;
		__atomic_compare_exchange_n(word(at), &know.was, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		return;
	}
	post(rank, &(edge_work){ .kind = EDGE_ATOMIC, .flags = EDGE_BACKWARD_FENCE, .size = 8, .func = EDGE_COMPARE_SWAP,
		.compare = compare, .operand = operand, .remote_off = at, .result = &know.was }, CONTROL);
	net.atomic = net.nops - 1;
}

void net_wait(void)
{
	for (int i = 0; i < net.nops; i++)
		check(net.of[i], edge_op_wait(&net.ops[i], EDGE_FOREVER));
	net.nops = 0;
	know.owing = false;
	know.wrote = 0;
}

void net_answer(void)
{
	if (net.atomic >= 0)
		check(net.of[net.atomic], edge_op_wait(&net.ops[net.atomic], EDGE_FOREVER));
}

/* Writes from lay.out are not waited for by those who post them: the other rank's next step, or the answer of an atomic
 * behind, says more than the acknowledgement would, and sooner. */
void net_owes(void)
{
	know.owing = true;
}

void net_free(void)
{
	if (know.owing)
		net_wait();
}

/* Takes the notification of a rank; false: there is none. */
static bool take(int rank, uint32_t *note, int timeout_ms)
{
	edge_notification n;
	int err = edge_notify_wait(net.conns[rank], &n, timeout_ms);
	if (err == EDGE_ERR_AGAIN)
		return false;
	check(rank, err);
	*note = n.imm;
	return true;
}

/* Takes one of any rank; false: there is none. */
static bool take_any(int *from, uint32_t *note)
{
	for (*from = 0; *from < conf.ranks; ++*from)
		if (net.conns[*from] != NULL && take(*from, note, 0))
			return true;
	return false;
}

bool net_next(int *from, uint32_t *note, int rank, bool wait)
{
	if (rank >= 0) {
		*from = rank;
		return take(rank, note, wait ? EDGE_FOREVER : 0);
	}
	for (;;) {
		int news = edge_device_poll(net.dev);
		if (take_any(from, note))
			return true;
		if (!wait)
			return false;
		if (news > 0)
			continue;
		if (edge_device_linger(net.dev)) {
			sched_yield();
		} else if (edge_device_arm(net.dev)) {
			struct pollfd p = { .fd = edge_device_fd(net.dev), .events = POLLIN };
			poll(&p, 1, -1);
		}
	}
}
