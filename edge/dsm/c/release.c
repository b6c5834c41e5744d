/* What this rank has changed: carried to the homes, and recorded in the log (DSM clauses 3.1 to 3.3). */
#include <endian.h>
#include <string.h>

#include "rank.h"

/* Posts the run of changed bytes. */
void end_run(void)
{
	if (mem.to > mem.from) {
		net_write((int)mem.home_of, DATA, mem.from, mem.from, mem.to - mem.from, 0);
		know.wrote |= (uint64_t)1 << mem.home_of; /* behind it: net_write may wait for all before, which clears it */
		stats.runs++;
		stats.bytes += mem.to - mem.from;
	}
	mem.from = mem.to = 0;
}

/* Adds bytes to the run of changed bytes before them, or begins another. */
static void changed(size_t home, size_t from, size_t to)
{
	if (mem.to == from && mem.home_of == home && mem.to > mem.from) {
		mem.to = to;
		return;
	}
	end_run();
	mem.home_of = home;
	mem.from = from;
	mem.to = to;
}

static uint64_t octet(const unsigned char *p)
{
	uint64_t x;
	memcpy(&x, p, sizeof x);
	return htole64(x) ; /* the first byte is the lowest */
}

/* Compares a page with its twin, and posts the grains that differ. */
void diff(size_t p)
{
	enum { BLOCK = 256 };
	const unsigned char *now = mem.raw + p * PAGE, *then = mem.twin + p * PAGE;
	size_t home = mem.home[p], grain = mem.grain[p];
	stats.diffs++;
	for (size_t at = 0; at < PAGE; at += BLOCK) {
		if (memcmp(now + at, then + at, BLOCK) == 0)
			continue;
		for (size_t i = at; i < at + BLOCK; i += 8) {
			uint64_t x = octet(now + i) ^ octet(then + i);
			for (size_t j = 0; x != 0 && j < 8; j += grain)
				if (x << (64 - 8 * (j + grain)) >> (64 - 8 * grain) != 0)
					changed(home, p * PAGE + i + j, p * PAGE + i + j + grain);
		}
	}
}

static void log_word(uint64_t at, uint64_t v)
{
	store(lay.ring + 8 * (size_t)(at % lay.log), v);
}

/* How many of the dirty pages, which are sorted, follow each other from i on. */
static size_t run_of(size_t i)
{
	size_t n = 1;
	while (i + n < mem.ndirty && mem.dirty[i + n] == mem.dirty[i] + n)
		n++;
	return n;
}

/* Adds the dirty pages to the log: a hash, the number of runs of pages, and each run. A record that nobody would read
 * at once is not written (DSM clause 3.2). */
static void record(void)
{
	uint64_t at = know.known[conf.rank], runs = 0;
	for (size_t i = 0; i < mem.ndirty; i += run_of(i))
		runs++;
	know.known[conf.rank] += runs + 2;
	if (runs + 2 > lay.pull)
		return;
	uint64_t h = mix(mix(at) ^ runs), next = at + 2;
	for (size_t i = 0, n; i < mem.ndirty; i += n) {
		n = run_of(i);
		uint64_t entry = (uint64_t)mem.dirty[i] << 32 | n;
		log_word(next++, entry);
		h = mix(h ^ entry);
	}
	log_word(at, h);
	log_word(at + 1, runs);
}

/* Begins to carry what this rank has changed to the homes, and adds the pages to its log. */
void carry(void)
{
	if (mem.ndirty == 0)
		return;
	uint64_t start = now_ns();
	set_states(mem.dirty, mem.ndirty, CLEAN); /* sorts them */
	for (size_t i = 0; i < mem.ndirty; i++)
		if (away(mem.dirty[i]))
			diff(mem.dirty[i]);
	end_run();
	record();
	mem.ndirty = 0;
	stats.flush_ns += now_ns() - start;
}

/* When it returns all is in place, and other ranks may learn how long the log is. */
void release(void)
{
	carry();
	if (know.wrote == 0)
		return;
	uint64_t start = now_ns();
	net_wait();
	stats.flush_ns += now_ns() - start;
}
