/* Random programs without data races, which must find what their sequential runs find: random SEED PROGRAMS [LOG]. The
 * tests have the same programs in Go (drive/random_test.go), for runs in which some ranks are in C and others in Go. */
#include "test.h"

enum { OVER_LOCK = 7, OVER = 4 };

/* A program. At each phase every element of plain arrays has at most one writer, and those without are read by all;
 * each set of elements of locked is changed under its lock alone, and over, with an element on each page, under one
 * that is held over barriers. */
struct program {
	uint64_t seed;
	int ranks, me, phases, plain, sets, each, rounds; /* each: elements of a set, far apart */
	uint8_t *bytes;
	uint64_t *words;
	uint16_t (*odd)[3];
	uint32_t *locked;
	uint64_t *over;
};

static uint64_t hash(const struct program *p, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return mix(mix(mix(mix(p->seed ^ a) ^ b) ^ c) ^ d);
}

/* The rank that writes an element in a phase; ranks: none. */
static int writer(const struct program *p, int i, int phase)
{
	if (hash(p, 1, (uint64_t)i >> 6, (uint64_t)phase, 0) % 3 == 0)
		return (int)(hash(p, 2, (uint64_t)i, (uint64_t)phase, 0) % (uint64_t)(p->ranks + 1)); /* neighbours differ */
	return (int)(hash(p, 3, (uint64_t)i >> 4, (uint64_t)phase, 0) % (uint64_t)(p->ranks + 1));
}

/* What an element holds at the beginning of a phase in a sequential run. */
static uint64_t value(const struct program *p, int i, int phase)
{
	while (--phase >= 0)
		if (writer(p, i, phase) < p->ranks)
			return hash(p, 4, (uint64_t)i, (uint64_t)phase, 0);
	return 0;
}

static int home(const struct program *p, int array)
{
	switch (hash(p, 15, (uint64_t)array, 0, 0) % 3) {
	case 0:
		return DSM_BLOCKS;
	case 1:
		return DSM_TURNS;
	}
	return (int)(hash(p, 16, (uint64_t)array, 0, 0) % (uint64_t)p->ranks);
}

static struct program make(uint64_t seed)
{
	struct program p = { .seed = seed, .ranks = dsm_ranks(), .me = dsm_rank() };
	p.phases = 2 + (int)(hash(&p, 10, 0, 0, 0) % 3);
	p.plain = 300 + (int)(hash(&p, 11, 0, 0, 0) % 1500);
	p.sets = 1 + (int)(hash(&p, 12, 0, 0, 0) % 5);
	p.each = 1 + (int)(hash(&p, 13, 0, 0, 0) % 5);
	p.rounds = (int)(hash(&p, 14, 0, 0, 0) % 7);
	p.bytes = dsm_alloc((size_t)p.plain, 1, home(&p, 0));
	p.words = dsm_alloc((size_t)p.plain, 8, home(&p, 1));
	p.odd = dsm_alloc((size_t)p.plain, 6, home(&p, 2));
	p.locked = dsm_alloc((size_t)(p.each * p.sets * 97), 4, home(&p, 3));
	p.over = dsm_alloc(512 * OVER, 8, home(&p, 4));
	return p;
}

static void element(struct program *p, int i, int phase)
{
	int w = writer(p, i, phase);
	if (w != p->me && w < p->ranks)
		return;
	uint64_t v = value(p, i, phase);
	CHECK(p->bytes[i] == (uint8_t)v && p->words[i] == v && p->odd[i][1] == (uint16_t)v,
	      "seed %llu, phase %d, element %d: %x, %llx, %x, want %llx", (unsigned long long)p->seed, phase, i,
	      p->bytes[i], (unsigned long long)p->words[i], p->odd[i][1], (unsigned long long)v);
	if (w != p->me)
		return;
	v = hash(p, 4, (uint64_t)i, (uint64_t)phase, 0);
	if (i % 7 == 0)
		dsm_touch(&p->words[i], 8, 1); /* also where others of the page have been written */
	p->bytes[i] = (uint8_t)v;
	p->words[i] = v;
	p->odd[i][0] = 1, p->odd[i][1] = (uint16_t)v, p->odd[i][2] = 2;
}

static uint32_t *at(struct program *p, int set, int j)
{
	return &p->locked[j * p->sets * 97 + set];
}

/* Adds one to all elements of a set, under its lock, and of the next set meanwhile. Every other time there is nothing
 * between the two unlocks. */
static void critical(struct program *p, int set)
{
	dsm_lock(set);
	uint32_t v = *at(p, set, 0);
	for (int j = 1; j < p->each; j++) {
		CHECK(*at(p, set, j) == v, "seed %llu, set %d: element %d is %u, element 0 is %u", (unsigned long long)p->seed,
		      set, j, *at(p, set, j), v);
		*at(p, set, j) = v + 1;
	}
	if (set + 1 < p->sets) {
		dsm_lock(set + 1);
		for (int j = 0; j < p->each; j++)
			++*at(p, set + 1, j);
		if (v & 1)
			++*at(p, set, 0);
		dsm_unlock(set + 1);
		if (v % 2 == 0)
			++*at(p, set, 0);
	} else {
		++*at(p, set, 0);
	}
	dsm_unlock(set);
}

/* The rank that holds OVER_LOCK while it passes the barrier of a phase; p->ranks if no rank does. */
static int holder(const struct program *p, int phase)
{
	return (int)(hash(p, 17, (uint64_t)phase, 0, 0) % (uint64_t)(p->ranks + 1));
}

/* How often it was taken in the phases before. */
static uint64_t held(const struct program *p, int phase)
{
	uint64_t n = 0;
	while (--phase >= 0)
		n += holder(p, phase) < p->ranks;
	return n;
}

/* Takes the lock of over before the barrier of a phase, if that is this rank's turn, and changes half of over. */
static void hold(struct program *p, int phase)
{
	if (holder(p, phase) != p->me)
		return;
	dsm_lock(OVER_LOCK);
	uint64_t n = held(p, phase);
	for (int i = 0; i < OVER; i++)
		CHECK(p->over[512 * i] == n, "seed %llu, phase %d, over %d: %llu, want %llu", (unsigned long long)p->seed,
		      phase, i, (unsigned long long)p->over[512 * i], (unsigned long long)n);
	for (int i = 0; i < OVER / 2; i++)
		p->over[512 * i] = n + 1;
}

/* Changes the other half behind the barrier, if this rank has the lock, and gives it back. */
static void let(struct program *p, int phase)
{
	if (phase < 0 || holder(p, phase) != p->me)
		return;
	for (int i = OVER / 2; i < OVER; i++)
		p->over[512 * i] = held(p, phase) + 1;
	dsm_unlock(OVER_LOCK);
}

/* Whether the lock goes back at once in a phase, and not behind everything else. */
static bool early(const struct program *p, int phase)
{
	return hash(p, 18, (uint64_t)phase, 0, 0) % 2 == 0;
}

static int set_of(const struct program *p, int rank, int phase, int k)
{
	return (int)(hash(p, 5, (uint64_t)rank, (uint64_t)phase, (uint64_t)k) % (uint64_t)p->sets);
}

/* Compares all sets with what all ranks together must have added. */
static void sums(struct program *p)
{
	for (int set = 0; set < p->sets; set++) {
		uint32_t want = 0;
		for (int r = 0; r < p->ranks; r++)
			for (int phase = 0; phase < p->phases; phase++)
				for (int k = 0; k < p->rounds; k++) {
					int s = set_of(p, r, phase, k);
					want += s == set || s + 1 == set;
				}
		CHECK(*at(p, set, 0) == want, "seed %llu: set %d is %u at the end, want %u", (unsigned long long)p->seed, set,
		      *at(p, set, 0), want);
	}
	dsm_lock(OVER_LOCK);
	CHECK(p->over[512 * (OVER - 1)] == held(p, p->phases), "seed %llu: over is %llu at the end, want %llu",
	      (unsigned long long)p->seed, (unsigned long long)p->over[512 * (OVER - 1)],
	      (unsigned long long)held(p, p->phases));
	dsm_unlock(OVER_LOCK);
}

int main(int argc, char **argv)
{
	dsm_config c = { .size = sizeof c, .memory = 4 << 20, .locks = OVER_LOCK + 1,
		.log = (int)argument(argc, argv, 3, 0) };
	dsm_init(&c);
	uint64_t seed = (uint64_t)argument(argc, argv, 1, 1), n = (uint64_t)argument(argc, argv, 2, 1);
	for (uint64_t end = seed + n; seed < end; seed++) {
		struct program p = make(seed);
		for (int phase = 0; phase < p.phases; phase++) {
			if (early(&p, phase))
				let(&p, phase - 1);
			for (int i = 0; i < p.plain; i++)
				element(&p, i, phase);
			for (int k = 0; k < p.rounds; k++)
				critical(&p, set_of(&p, p.me, phase, k));
			if (!early(&p, phase))
				let(&p, phase - 1);
			hold(&p, phase);
			dsm_barrier();
		}
		let(&p, p.phases - 1);
		sums(&p);
		dsm_barrier(); /* nobody holds the lock of over over a barrier of the next, while others look at this one's */
	}
	dsm_stats s;
	dsm_get_stats(&s);
	CHECK(c.log != 0 || s.overruns == 0, "a log of 8192 words was overrun %llu times: its records are not understood",
	      (unsigned long long)s.overruns);
	dsm_exit();
	printf("faults %llu refreshes %llu overruns %llu waits %llu\n", (unsigned long long)s.faults,
	       (unsigned long long)s.refreshes, (unsigned long long)s.overruns, (unsigned long long)s.waits);
	return 0;
}
