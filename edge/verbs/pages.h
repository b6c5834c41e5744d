/* Pages of the program's that are registered with the daemon in place: what they are, taking them over, and which they
 * are now. libibverbs here and the libfabric provider (../ofi) use them; each guards them by a lock of its own. */
#ifndef EDGE_VERBS_PAGES_H
#define EDGE_VERBS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "edge.h"

/* Told of what goes wrong; NULL: nobody is. */
extern void (*pages_say)(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum { PAGE = 4096, SEGMENTS = 16 };

/* maps.c */
struct mapping { /* a part of /proc/self/maps */
	uintptr_t start, end;
	ino_t inode;
	bool plain; /* private, writable, and of no file */
	bool heap;  /* malloc's */
};
/* Calls look for what is mapped from start to end, in order, until it returns false. */
bool maps_each(uintptr_t start, uintptr_t end, bool (*look)(const struct mapping *m, void *arg), void *arg);
bool maps_plain(uintptr_t start, uintptr_t end);            /* all of it is plain */
bool maps_heap(uintptr_t at, struct mapping *heap);         /* at lies in the heap */
/* What malloc mapped for one allocation, of which [start, end) is a part. */
bool maps_allocation(uintptr_t start, uintptr_t end, struct mapping *whole);
int maps_has(uintptr_t start, uintptr_t end, ino_t inode); /* all of it is of that file; -1: the kernel does not say */

/* adopt.c. Memory that a memfd has taken the place of, with its bytes. */
int adopt(uintptr_t start, uintptr_t end, ino_t *inode); /* the memfd, or -1 with errno */
void disown(uintptr_t start, uintptr_t end, int memfd, ino_t inode); /* the other way; closes memfd */

/* seg.c */
struct seg {
	uintptr_t start, end;
	edge_device *dev;
	edge_region *region;
	int memfd;
	ino_t inode;
	unsigned refs; /* memory regions */
	bool wider;    /* than what was registered: a heap, or an allocation */
	bool whole;    /* of segs_forking: all of it is still mapped */
};
/* Has them registered with dev: 0 or an errno; at most SEGMENTS of them. EOPNOTSUPP: memory that cannot be, as that
 * which another device has. */
int seg_hold(edge_device *dev, uintptr_t start, uintptr_t end, struct seg **held, int *n);
void seg_release(struct seg **held, int n);
struct seg *seg_find(uintptr_t at);
void segs_sweep(edge_device *dev); /* before it is closed: drops those that no memory region holds */
bool our_stack(uintptr_t start, uintptr_t end); /* of the calling thread: its pages cannot be exchanged under it */
void segs_forking(void); /* before fork, after which seg.c goes on by itself: a child has no segments */

#endif
