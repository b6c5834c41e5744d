/* Barriers (DSM clause 3.7). */
#include <string.h>

#include "rank.h"

/* Puts what this rank brings to a barrier at a place of the control region: its position, the digest of its
 * allocations, and its log since the last barrier if that is short. It follows no pages, and brings no changes (DSM
 * clause 3.8). Returns the length in bytes. */
static size_t bring(size_t at)
{
	uint64_t base = know.bases[conf.rank], to = know.known[conf.rank], n = to - base;
	if (n > NEWS_WORDS || n > lay.pull)
		n = 0; /* others read it */
	store(at, to);
	store(at + 8, mem.digest);
	store(at + 16, n);
	store(at + 24, 0);
	for (uint64_t i = 0; i < n; i++)
		store(at + ARRIVED_LOG + 8 * (size_t)i, *word(lay.ring + 8 * (size_t)((base + i) % lay.log)));
	return ARRIVED_LOG + 8 * (size_t)n;
}

/* Waits until rank q is at this barrier, at the same place of the same program. */
static void await_arrival(int q, int how)
{
	int from;
	uint32_t note;
	while (know.arrived[q] < know.barriers) {
		net_next(&from, &note, q, true);
		heed(from, note);
	}
	int first = q < conf.rank ? q : conf.rank, second = q < conf.rank ? conf.rank : q; /* both ranks say the same */
	bool over = know.finished[q] && know.arrived[q] == know.barriers;
	if (over != (how == NOTE_FINISHED))
		fail("ranks %d and %d wait for different things: one of them has returned, the other is at a barrier", first,
		     second);
	size_t at = arrival_place(know.barriers, q);
	if (load(at + 8) != mem.digest)
		fail("ranks %d and %d have allocated differently", first, second);
	store(lay.released + 8 * (size_t)q, load(at));
}

/* Carries changes home, says to all others that this rank is here, and waits until all have said so. The vector is in
 * lay.released then. */
void meet(int how)
{
	release();
	uint64_t start = now_ns();
	know.barriers++;
	net_free();
	size_t n = bring(lay.out);
	net_owes();
	for (int k = 1; k < conf.ranks; k++) /* not all to one at once */
		net_write((conf.rank + k) % conf.ranks, CONTROL, lay.out, arrival_place(know.barriers, conf.rank), n,
			  NOTE(how, 0));
	store(lay.released + 8 * (size_t)conf.rank, know.known[conf.rank]);
	for (int q = 0; q < conf.ranks; q++)
		if (q != conf.rank)
			await_arrival(q, how);
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
