/* Barriers (DSM clause 3.7). */
#include <string.h>

#include "rank.h"

/* Puts what this rank brings to a barrier at a place of the control region: its position, the digest of its
 * allocations, and its log since the last barrier if that is short. Returns the length in bytes. */
static size_t bring(size_t at)
{
	uint64_t base = know.bases[conf.rank], to = know.known[conf.rank], n = to - base;
	if (n > NEWS_WORDS || n > lay.pull)
		n = 0; /* others read it */
	store(at, to);
	store(at + 8, mem.digest);
	store(at + 16, n);
	for (uint64_t i = 0; i < n; i++)
		store(at + 24 + 8 * (size_t)i, *word(lay.ring + 8 * (size_t)((base + i) % lay.log)));
	return 24 + 8 * (size_t)n;
}

/* Waits at rank 0 for rank q, and finds out whether it is at the same place of the same program. */
static void await_arrival(int q, int how)
{
	int from;
	uint32_t note;
	while (know.arrived[q] == 0) {
		net_next(&from, &note, q, true);
		heed(from, note);
	}
	if (know.arrived[q] != how)
		fail("rank %d of %d and rank 0 wait for different things: one of them has returned, the other is at a barrier",
		     q, conf.ranks);
	if (load(lay.arrived + ARRIVAL * (size_t)q + 8) != mem.digest)
		fail("ranks 0 and %d have allocated differently", q);
}

/* Rank 0's part: it waits for all, and tells them the positions of all logs. */
static void gather(int how)
{
	size_t n = (size_t)conf.ranks, at = lay.released + 16 * n;
	for (int q = 1; q < conf.ranks; q++)
		await_arrival(q, how);
	bring(lay.arrived);
	net_free();
	for (size_t q = 0; q < n; q++) {
		size_t from = lay.arrived + ARRIVAL * q;
		uint64_t words = load(from + 16);
		words = words < NEWS_WORDS ? words : NEWS_WORDS;
		store(lay.released + 8 * q, load(from));
		store(lay.released + 8 * (n + q), words);
		memcpy(mem.ctl + at, mem.ctl + from + 24, 8 * (size_t)words);
		at += 8 * (size_t)words;
	}
	memset(know.arrived, 0, sizeof know.arrived); /* before any rank can arrive at the next barrier */
	net_owes();
	for (int q = 1; q < conf.ranks; q++)
		net_write(q, CONTROL, lay.released, lay.released, at - lay.released, NOTE(NOTE_RELEASED, 0));
	know.met++;
}

/* Carries changes home and waits for the others. The vector is in lay.released then. */
void meet(int how)
{
	release();
	uint64_t start = now_ns();
	know.barriers++;
	if (conf.rank == 0) {
		gather(how);
	} else {
		net_free();
		size_t n = bring(lay.out);
		net_owes();
		net_write(0, CONTROL, lay.out, lay.arrived + ARRIVAL * (size_t)conf.rank, n, NOTE(how, 0));
		while (know.met != know.barriers) {
			int from;
			uint32_t note;
			net_next(&from, &note, 0, true);
			heed(from, note);
		}
	}
	stats.barriers++;
	stats.barrier_ns += now_ns() - start;
}

void dsm_barrier(void)
{
	if (conf.ranks == 1)
		return;
	meet(NOTE_ARRIVED);
	acquire(lay.released, true);
	for (int q = 0; q < conf.ranks; q++)
		know.bases[q] = load(lay.released + 8 * (size_t)q);
	tell_stats(false);
}
