#include "idle.h"

#define MILLI INT64_C(1000000)
#define SLOW_YIELD 200000 /* a yield that took longer found a busy core: do not poll for a while */
#define MOST_PAUSE (128 * MILLI)
#define MOST_SPIN 4       /* times the least one, while sleeps prove short */
#define LOOP_PART 2 / 5   /* of the least one: how long a loop of the program polls, */
#define LOOP_VAIN 7       /* and if that is in vain at least 1 in 2^7 times */

static int64_t limit(const struct idle *i)
{
	return i->grown > i->spin ? i->grown : i->spin;
}

bool idle_polls(const struct idle *i, int64_t *since, int64_t now)
{
	if (i->how == IDLE_BLOCK)
		return false;
	if (*since == 0)
		*since = now;
	return i->how == IDLE_BUSY || (now >= i->busy_until && now - *since <= limit(i));
}

void idle_yielded(struct idle *i, int64_t took, int64_t now)
{
	if (took <= SLOW_YIELD)
		return;
	i->busy_pause = now - i->busy_until < i->busy_pause ? i->busy_pause * 2 : MILLI; /* while that goes on */
	if (i->busy_pause > MOST_PAUSE)
		i->busy_pause = MOST_PAUSE;
	i->busy_until = now + i->busy_pause;
}

/* A wake-up costs more than a short wait. */
void idle_slept(struct idle *i, int64_t time)
{
	int64_t most = MOST_SPIN * i->spin, longer = 2 * limit(i);
	i->grown = time >= most ? 0 : longer < most ? longer : most;
}

/* Yields are not free where others work on the core: the scheduler lets the one that yields wait. So a loop polls
 * briefly, and after polls that were in vain for ever fewer waits. */
bool idle_loop_polls(struct idle *i, struct idle_loop *l, int64_t now)
{
	bool on = false;
	if (l->since == 0 && l->skip > 0) {
		l->skip--;
	} else if (l->since != 0 && i->how == IDLE_ADAPTIVE && now - l->since > i->spin * LOOP_PART) {
		l->vain += l->vain < LOOP_VAIN;
		l->skip = (1u << l->vain) - 1;
	} else {
		on = idle_polls(i, &l->since, now);
	}
	l->yield = on ? now : 0;
	return on;
}

void idle_loop_returns(struct idle *i, struct idle_loop *l, int64_t now)
{
	if (l->yield != 0)
		idle_yielded(i, now - l->yield, now);
	if (l->sleep != 0)
		idle_slept(i, now - l->sleep);
	l->yield = l->sleep = 0;
}

void idle_loop_found(struct idle_loop *l)
{
	if (l->since != 0)
		l->vain = 0;
	l->since = 0;
}
