/* Memory: what of the program's the daemon has registered, and what the library lends where it has not. */
#ifndef EDGE_VERBS_MEMORY_H
#define EDGE_VERBS_MEMORY_H

#include <sys/types.h>

#include "lib.h"

enum { PAGE = 4096, SEGMENTS = 16 };

/* maps.c */
struct mapping { /* a part of /proc/self/maps */
	uintptr_t start, end;
	ino_t inode;
	bool plain; /* private, writable, and of no file */
	bool heap;  /* malloc's */
};
/* Calls look for what is mapped from start to end, in order, until it returns false. */
void maps_each(uintptr_t start, uintptr_t end, bool (*look)(const struct mapping *m, void *arg), void *arg);
bool maps_plain(uintptr_t start, uintptr_t end);            /* all of it is plain */
bool maps_heap(uintptr_t at, struct mapping *heap);         /* at lies in the heap */
/* What malloc mapped for one allocation, of which [start, end) is a part. */
bool maps_allocation(uintptr_t start, uintptr_t end, struct mapping *whole);
bool maps_has(uintptr_t start, uintptr_t end, ino_t inode); /* all of it is mapped from that file */

/* adopt.c. Memory that a memfd has taken the place of, with its bytes. */
int adopt(uintptr_t start, uintptr_t end, ino_t *inode); /* the memfd, or -1 with errno */
void disown(uintptr_t start, uintptr_t end, int memfd, ino_t inode); /* the other way; closes memfd */

/* seg.c */
struct seg {
	uintptr_t start, end;
	edge_region *region;
	int memfd;
	ino_t inode;
	unsigned refs; /* memory regions */
	bool wider;    /* than what was registered: a heap, or an allocation */
	bool whole;    /* of segs_forking: all of it is still mapped */
};
int seg_hold(uintptr_t start, uintptr_t end, struct seg **held, int *n); /* 0 or an errno; at most SEGMENTS of them */
void seg_release(struct seg **held, int n);
struct seg *seg_find(uintptr_t at);
void segs_forking(void); /* before fork, after which seg.c goes on by itself */

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
