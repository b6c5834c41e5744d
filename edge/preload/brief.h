/* brief.c: how a thread waits for another one of this process that is in the middle of a few lines. Nothing tells when
 * it has left them, so that whoever waits looks again and again. */
#ifndef EDGE_PRELOAD_BRIEF_H
#define EDGE_PRELOAD_BRIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "idle.h"

/* One wait. All zero at first. */
struct brief {
	struct idle idle;
	int64_t since;
};

bool brief_yield(struct brief *b); /* gives way once. false: it did not, since that has gone on for too long */
void brief_wait(struct brief *b);  /* gives way, or sleeps for a moment */

#endif
