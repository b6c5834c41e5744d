/* The connections of this rank: one to each other rank, by which each exports both its regions to the other. */
#ifndef DSM_NET_H
#define DSM_NET_H

#include "rank.h"

enum { MOST_POSTED = 1024 };

struct net {
	edge_device *dev;
	edge_region *areas[2];              /* by enum area */
	edge_conn *conns[MAX_RANKS];        /* NULL: this one, or not there yet */
	edge_remote *there[MAX_RANKS][2];
	edge_op ops[MOST_POSTED];           /* in flight */
	uint8_t of[MOST_POSTED];            /* whose memory each is on */
	int nops, atomic;                   /* atomic: of the latest, in ops */
};

extern struct net net;

void check(int rank, int err);
NORETURN void gone(int rank, int err);

/* join.c */
void join(int memfd);
/* leave.c */
void look(void);
void watch(void);
void leave(void);

#endif
