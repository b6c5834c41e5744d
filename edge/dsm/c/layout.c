/* Which rank this is, and where things are in the control region: the same at all ranks (DSM section 2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rank.h"

struct config conf;
struct layout lay;
struct memory mem;
struct knowledge know;
dsm_stats stats;

enum { DEFAULT_MIB = 64, DEFAULT_LOCKS = 1024, DEFAULT_LOG = 8192, DEFAULT_JOIN = 60000,
	MOST_LOCKS = 1 << 20, MOST_LOG = 1 << 24 };
#define MOST_MEMORY ((size_t)1 << 40)

/* Takes the run and the rank from the environment. */
static void config_place(struct config *c)
{
	const char *value = getenv("EDGE_DSM");
	c->ranks = 1;
	if (value == NULL || value[0] == 0)
		return;
	int end = 0;
	if (sscanf(value, "%199[^,],%d,%d,%64[^,]%n", c->name, &c->rank, &c->ranks, c->root, &end) != 4 || value[end] != 0)
		fail("EDGE_DSM=%s: want NAME,RANK,RANKS,ROOT: RANK and RANKS are whole numbers", value);
	if (c->ranks < 1 || c->ranks > MAX_RANKS)
		fail("%d ranks; choose 1 to %d", c->ranks, MAX_RANKS);
	if (c->rank < 0 || c->rank >= c->ranks)
		fail("rank %d of %d; they count from 0", c->rank, c->ranks);
}

/* Takes how much memory is shared from the environment. */
static size_t config_memory(void)
{
	const char *value = getenv("EDGE_DSM_MIB");
	if (value == NULL || value[0] == 0)
		return (size_t)DEFAULT_MIB << 20;
	char *end;
	unsigned long long mib = strtoull(value, &end, 10);
	if (*end != 0 || mib < 1 || mib > MOST_MEMORY >> 20)
		fail("EDGE_DSM_MIB=%s: want a number of MiB, up to %zu", value, MOST_MEMORY >> 20);
	return (size_t)mib << 20;
}

/* Fills in what was not chosen, and checks the rest. */
void config_complete(struct config *to, const dsm_config *from)
{
	dsm_config zero = { 0 };
	if (from == NULL)
		from = &zero;
	else if (from->size != sizeof *from)
		fail("dsm_config.size is %zu; set it to sizeof (dsm_config)", from->size);
	config_place(to);
	to->memory = from->memory != 0 ? from->memory : config_memory();
	to->locks = from->locks != 0 ? from->locks : DEFAULT_LOCKS;
	to->log = from->log != 0 ? from->log : DEFAULT_LOG;
	to->join_ms = from->join_ms > 0 ? from->join_ms : DEFAULT_JOIN;
	if (to->memory > MOST_MEMORY)
		fail("%zu bytes of memory; choose up to %zu", to->memory, MOST_MEMORY);
	if (to->locks < 1 || to->locks > MOST_LOCKS)
		fail("%d locks; choose 1 to %d", to->locks, MOST_LOCKS);
	if (to->log < 16 || to->log > MOST_LOG || to->log % 2 != 0)
		fail("a log of %d words; choose an even number from 16 to %d", to->log, MOST_LOG);
	to->memory = (to->memory + PAGE - 1) / PAGE * PAGE;
}

static void place(size_t *at, size_t bytes)
{
	*at = lay.size;
	lay.size += (bytes + 7) & ~(size_t)7;
}

/* Computes the layout of conf. */
void layout_make(void)
{
	size_t n = (size_t)conf.ranks, locks = (size_t)conf.locks;
	lay.log = (size_t)conf.log;
	lay.pull = lay.log / 2;
	place(&lay.released, 8 * n);
	place(&lay.granted, vector_news());
	place(&lay.arrived, 2 * n * ARRIVAL);
	place(&lay.asked, 8 * n);
	place(&lay.ending, n * (16 + MAX_TEXT));
	place(&lay.roster, n * NODE_TEXT);
	place(&lay.out, ARRIVAL); /* a vector and news are shorter */
	place(&lay.got, 8 + vector_news());
	place(&lay.table, (locks + n - 1) / n * (16 + vector_news()));
	place(&lay.ring, 8 * lay.log);
	place(&lay.landing, n * 8 * lay.pull);
}

/* The home of a lock, and where it is in the control region there. */
size_t lock_place(int number, int *home)
{
	*home = number % conf.ranks;
	return lay.table + (size_t)(number / conf.ranks) * (16 + vector_news());
}

/* Where a rank writes what it brings to a barrier of that number. Nobody arrives at the one after the next before all
 * have left this one. */
size_t arrival_place(uint64_t barrier, int rank)
{
	return lay.arrived + ARRIVAL * (size_t)((barrier & 1) * (uint64_t)conf.ranks + (uint64_t)rank);
}

/* The length of what comes with a lock, in bytes: a vector, the rank that had the lock, and the end of its log. */
size_t vector_news(void)
{
	return 8 * ((size_t)conf.ranks + 1 + NEWS_WORDS);
}

/* A hash of a word. */
uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
