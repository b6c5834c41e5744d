/* When to poll, give way or sleep, for all that waits in C: libedge's own waits, loops of programs on its descriptor
 * (edge-run's among them), the libfabric provider, and threads of both that wait for each other (edge/preload/brief.c).
 * internal/idle is the same in Go. It reads no clock, has no lock, and depends on nothing else; times are in ns. */
#ifndef EDGE_IDLE_H
#define EDGE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

enum idle_how { IDLE_ADAPTIVE, IDLE_BLOCK, IDLE_BUSY }; /* as enum edge_wait of edge.h */

struct idle {
	enum idle_how how;
	int64_t spin;  /* how long to poll at least */
	int64_t grown; /* how long now, if that is longer */
	int64_t busy_until, busy_pause; /* others need the core */
};

/* Of one who has polled since then (0: begins now) in vain: whether to go on, and give way meanwhile. */
bool idle_polls(const struct idle *i, int64_t *since, int64_t now);
void idle_yielded(struct idle *i, int64_t took, int64_t now); /* giving way, until now, took so long */
void idle_slept(struct idle *i, int64_t time);                /* a sleep took so long */

/* A loop of a program, which waits for other things as well. All zero at first. */
struct idle_loop {
	int64_t since;        /* it has polled, and found nothing; 0: it does not */
	int64_t yield, sleep; /* since when it gives way, or sleeps; 0: it does not */
	uint32_t vain, skip;  /* polls in vain, in a row; waits before the next one */
};

bool idle_loop_polls(struct idle *i, struct idle_loop *l, int64_t now);
void idle_loop_returns(struct idle *i, struct idle_loop *l, int64_t now); /* from what it did since it was last here */
void idle_loop_found(struct idle_loop *l);

#endif
