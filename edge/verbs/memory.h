/* Memory: what of the program's the daemon has registered, and what the library lends where it has not. */
#ifndef EDGE_VERBS_MEMORY_H
#define EDGE_VERBS_MEMORY_H

#include "lib.h"
#include "pages.h"

/* stage.c. Registered memory of the library's own. */
struct stage { struct stage *next; edge_region *region; size_t off; char *bytes; unsigned class; };
struct stage *stage_get(size_t size); /* NULL: there is none */
void stage_put(struct stage *s);

/* mr.c */
struct pd { struct ibv_pd pd; uint32_t number, high; unsigned refs; };
struct mr {
	struct ibv_mr mr;
	struct mr *hash;
	uint64_t iova;
	unsigned access;
	bool staged; /* of memory that cannot be registered: bytes are copied */
	int nsegs;
	uint64_t key; /* with which peers name it; 0: they may not */
	struct seg *segs[SEGMENTS];
};
struct mr *mr_find(uint32_t lkey);
/* What a list of pieces is in registered memory. */
struct gathered {
	edge_piece piece[EDGE_MAX_PIECES];
	uint32_t n;
	size_t size;
	bool staged; /* of some piece, or there are too many: the bytes must be copied */
};
/* 0 or an enum ibv_wc_status: the pieces do not lie in regions of pd, or may not be written, as they are to be. */
int gather(const struct pd *pd, const struct ibv_sge *sge, int n, bool writes, struct gathered *g);
void sge_out(const struct pd *pd, const struct ibv_sge *sge, int n, char *to);                /* gathers by copying */
void sge_in(const struct pd *pd, const struct ibv_sge *sge, int n, const char *from, size_t size); /* and the reverse */

#endif
