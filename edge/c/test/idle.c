/* When to poll, give way and sleep (idle.c), step by step; internal/idle has the same steps for Go. */
#include <stdio.h>
#include <stdlib.h>

#include "../idle.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define HOUR (3600 * 1000 * MS)

#define WANT(x) \
	do { \
		if (!(x)) { \
			printf("FAIL idle: line %d: want %s\n", __LINE__, #x); \
			exit(1); \
		} \
	} while (0)

/* Whether one who began at since polls for so long, and no longer. */
static bool polls_for(const struct idle *i, int64_t time)
{
	int64_t since = HOUR;
	return idle_polls(i, &since, HOUR + time) && !idle_polls(i, &since, HOUR + time + 1);
}

static void patience(void)
{
	struct idle i = { .spin = 50 * US };
	static const struct { int64_t slept, want; } steps[] = { { 30 * US, 100 * US }, { 199 * US, 200 * US },
		{ 1 * US, 200 * US }, { 200 * US, 50 * US }, { HOUR, 50 * US }, { 199 * US, 100 * US } };
	WANT(polls_for(&i, 50 * US));
	for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
		idle_slept(&i, steps[k].slept);
		WANT(polls_for(&i, steps[k].want));
	}
}

/* One slow yield costs a millisecond without polling, further ones cost more; quiet is forgiven. */
static void contention(void)
{
	struct idle i = { .spin = HOUR };
	int64_t now = 2 * HOUR, since = now;
	idle_yielded(&i, 200 * US, now);
	WANT(idle_polls(&i, &since, now));
	for (int64_t want = MS; want <= 128 * MS; want *= 2) {
		idle_yielded(&i, 200 * US + 1, now);
		WANT(!idle_polls(&i, &since, now + want - 1) && idle_polls(&i, &since, now + want));
		now += want;
	}
	idle_yielded(&i, 201 * US, now);
	WANT(!idle_polls(&i, &since, now + 128 * MS - 1) && idle_polls(&i, &since, now + 128 * MS));
	now += 2 * 128 * MS;
	idle_yielded(&i, 201 * US, now);
	WANT(idle_polls(&i, &since, now + MS));
}

static void ways(void)
{
	struct idle block = { .how = IDLE_BLOCK, .spin = 50 * US }, busy = { .how = IDLE_BUSY, .busy_until = HOUR };
	int64_t since = 0;
	WANT(!idle_polls(&block, &since, 1) && since == 0);
	WANT(idle_polls(&busy, &since, 1) && since == 1 && idle_polls(&busy, &since, HOUR - 1));
}

/* A loop polls for 2/5 of the least spin, and after polls in vain skips 1, 3, 7, ... 127 waits; something found
 * forgives it. */
static void loops(void)
{
	struct idle i = { .spin = 50 * US };
	struct idle_loop l = { 0 };
	int64_t now = HOUR;
	for (uint32_t skip = 1, round = 0; round < 9; round++) {
		WANT(idle_loop_polls(&i, &l, now) && l.yield == now);
		WANT(idle_loop_polls(&i, &l, now + 20 * US));
		WANT(!idle_loop_polls(&i, &l, now + 20 * US + 1) && l.yield == 0 && l.skip == skip);
		l.since = 0; /* it slept */
		for (uint32_t n = 0; n < skip; n++)
			WANT(!idle_loop_polls(&i, &l, now));
		skip = skip < 127 ? 2 * skip + 1 : 127;
		now += MS;
	}
	WANT(idle_loop_polls(&i, &l, now));
	idle_loop_found(&l);
	WANT(l.vain == 0 && idle_loop_polls(&i, &l, now));
	l.yield = now;
	idle_loop_returns(&i, &l, now + 300 * US); /* a slow yield */
	WANT(l.yield == 0 && i.busy_until > now);
	l.sleep = now;
	idle_loop_returns(&i, &l, now + 10 * US); /* a short sleep */
	WANT(i.grown == 100 * US && l.sleep == 0);
	struct idle patient = { .spin = 150 * US };
	l = (struct idle_loop){ 0 };
	WANT(idle_loop_polls(&patient, &l, now) && idle_loop_polls(&patient, &l, now + 60 * US));
	WANT(!idle_loop_polls(&patient, &l, now + 60 * US + 1));
}

int main(void)
{
	patience();
	contention();
	ways();
	loops();
	printf("idle: ok\n");
	return 0;
}
