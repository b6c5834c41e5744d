/* What others have changed, by their logs (DSM clause 3.4). */
#include <string.h>

#include "rank.h"

/* How many words of the log of q, up to a vector at an offset of the control region, are not known here. */
static uint64_t behind(int q, size_t vector)
{
	uint64_t to = load(vector + 8 * (size_t)q);
	return q != conf.rank && to > know.known[q] ? to - know.known[q] : 0;
}

static size_t landing(int q, size_t i)
{
	return lay.landing + 8 * (lay.pull * (size_t)q + i);
}

/* Begins to read the next n words of the log of q. */
static void read_log(int q, size_t n)
{
	size_t from = (size_t)(know.known[q] % lay.log);
	size_t k = n < lay.log - from ? n : lay.log - from;
	net_read(q, CONTROL, landing(q, 0), lay.ring + 8 * from, 8 * k);
	if (k < n)
		net_read(q, CONTROL, landing(q, k), lay.ring, 8 * (n - k));
}

/* Takes the next n words of the log of q from what it brought to the barrier. False: they are not there. */
static bool land_news(int q, size_t n)
{
	size_t at = arrival_place(know.barriers, q);
	uint64_t have = load(at + 16);
	have = have < NEWS_WORDS ? have : NEWS_WORDS;
	if (have < n || know.bases[q] + (have - n) != know.known[q]) /* more is known from locks meanwhile */
		return false;
	memcpy(mem.ctl + landing(q, 0), mem.ctl + at + ARRIVED_LOG + 8 * (have - n), 8 * n);
	return true;
}

/* Takes the next n words of the log of q from what came with a lock and a vector. False: they are not there. */
static bool land_end(int q, size_t n, size_t vector)
{
	size_t at = vector + 8 * (size_t)conf.ranks;
	if (n > NEWS_WORDS || load(at) != (uint64_t)q)
		return false;
	memcpy(mem.ctl + landing(q, 0), mem.ctl + at + 8 * (1 + NEWS_WORDS - n), 8 * n);
	return true;
}

/* Carries what has changed of a dirty page home and fetches the page, which stays dirty: the program goes on
 * writing. */
static void refresh(size_t p)
{
	stats.refreshes++;
	diff(p);
	end_run();
	net_wait();
	net_read(mem.home[p], DATA, p * PAGE, p * PAGE, PAGE);
	net_wait();
	memcpy(mem.twin + p * PAGE, mem.raw + p * PAGE, PAGE);
}

/* Takes it that others have changed pages first up to last. */
static void notice(size_t first, size_t last)
{
	for (size_t p = first; p < last; p++) {
		if ((p * PAGE < mem.used && !away(p)) || mem.state[p] == STALE)
			continue;
		if (mem.state[p] == DIRTY) {
			refresh(p);
			continue;
		}
		mem.state[p] = STALE;
		mem.changed[mem.nchanged++] = (uint32_t)p;
		stats.stale++;
	}
}

/* Whether n words of the log of q are whole, and not written over meanwhile. */
static bool whole(int q, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (n - i < 2 || *word(landing(q, i + 1)) > n - i - 2)
			return false;
		uint64_t runs = *word(landing(q, i + 1)), h = mix(mix(know.known[q] + i) ^ runs);
		for (size_t j = 0; j < runs; j++)
			h = mix(h ^ *word(landing(q, i + 2 + j)));
		if (h != *word(landing(q, i)))
			return false;
		i += 2 + (size_t)runs;
	}
	return true;
}

/* Takes n words of the log of q. False: they are not whole. */
static bool notices(int q, size_t n)
{
	if (!whole(q, n)) /* of all of it first: what notice does cannot be undone */
		return false;
	for (size_t i = 0; i < n;) {
		size_t runs = (size_t)*word(landing(q, i + 1));
		if (runs > n - i - 2) /* read again: the rank could write to it meanwhile */
			broken(q, "its log changed while it was read");
		for (size_t j = 0; j < runs; j++) {
			uint64_t entry = *word(landing(q, i + 2 + j)), first = entry >> 32, pages = entry & UINT32_MAX;
			if (first + pages > mem.pages)
				broken(q, "its log names page %llu of %zu", (unsigned long long)(first + pages), mem.pages);
			stats.notices += pages;
			notice((size_t)first, (size_t)(first + pages));
		}
		i += 2 + runs;
	}
	return true;
}

/* Learns what others have changed up to a vector: reads the new parts of their logs, all at once, or takes them from
 * what came with the barrier or the lock, and makes the pages that they name stale. */
void acquire(size_t vector, bool barrier)
{
	uint64_t start = now_ns();
	bool any = false, reads = false, all = false;
	for (int q = 0; q < conf.ranks; q++) {
		uint64_t n = behind(q, vector);
		if (n == 0)
			continue;
		any = true;
		if (n > lay.pull)
			all = true;
		else if (!(barrier ? land_news(q, (size_t)n) : land_end(q, (size_t)n, vector))) {
			read_log(q, (size_t)n);
			reads = true;
		}
	}
	if (!any)
		return;
	if (reads) /* else nothing is to come: what this rank wrote to others is not waited for */
		net_wait();
	for (int q = 0; q < conf.ranks; q++) {
		uint64_t n = behind(q, vector);
		if (n > 0 && n <= lay.pull && !notices(q, (size_t)n))
			all = true;
		know.known[q] += n;
	}
	if (all) {
		stats.overruns++;
		notice(0, mem.pages);
	}
	set_states(mem.changed, mem.nchanged, STALE);
	mem.nchanged = 0;
	stats.acquire_ns += now_ns() - start;
}
