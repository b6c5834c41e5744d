#include "brief.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define SPIN 100000 /* ns: longer than a thread takes to wake on a core of its own */
#define NAP 50000   /* ns */

static int64_t clock_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

bool brief_yield(struct brief *b) {
	int64_t now = clock_ns();
	b->idle.spin = SPIN;
	if (!idle_polls(&b->idle, &b->since, now))
		return false;
	sched_yield();
	int64_t after = clock_ns();
	idle_yielded(&b->idle, after - now, after);
	return true;
}

/* The one who is waited for may need this core and have a lower priority, so that yields never let it run. */
void brief_wait(struct brief *b) {
	int err = errno;
	if (!brief_yield(b))
		nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
	errno = err;
}
