/*
 * libedge-dsm: memory that the processes of a run, its ranks, share, on one host or several, over libedge. Plain loads
 * and stores work: what is missing is fetched when the program touches it. docs/DSM.md is the protocol, which package
 * edge/dsm speaks as well: ranks in C and in Go may be in one run.
 *
 *	int main(void)
 *	{
 *		dsm_init(NULL);                                      // rank and ranks from EDGE_DSM
 *		double *a = dsm_alloc(1 << 20, sizeof *a, DSM_BLOCKS); // the same calls in the same order on all ranks
 *		double *sum = dsm_alloc(1, sizeof *sum, 0);           // at home at rank 0
 *		size_t lo = dsm_share(1 << 20, dsm_rank()), hi = dsm_share(1 << 20, dsm_rank() + 1);
 *		for (size_t i = lo; i < hi; i++)
 *			a[i] = f(i);
 *		dsm_barrier();
 *		double s = g(a);
 *		dsm_lock(0);
 *		*sum += s;
 *		dsm_unlock(0);
 *		dsm_exit();
 *	}
 *
 * What a rank sees. Two accesses of different ranks to the same element, one of which writes, must be ordered by locks
 * or barriers. What a rank did before dsm_unlock is seen by the next that takes the lock, and by all who come after
 * that one. Ranks may write neighbouring elements of a page at once (dsm_alloc says what an element is).
 *
 * Failure. No function returns an error. When the run cannot go on (a rank died, the daemon has gone, the program broke
 * a rule of this header) one line on standard error says why, the other ranks are told, and the process ends with
 * status DSM_FAILED, without atexit and without writing what stdio has buffered. All other ranks end so, too: within a
 * second if a process died, also while they compute, and when the transport gives it up if a daemon or a host did.
 *
 * Threads. One thread, the one that called dsm_init, uses the memory and these functions. The library has a thread of
 * its own, which looks four times a second whether all ranks live. Signal handlers must not touch the memory, nor must
 * children of fork: what one writes to pages that are in use here would be the parent's.
 *
 * System calls. The kernel does not fetch: a system call that is given shared memory fails with EFAULT where the page
 * is not here or was not written yet. dsm_touch brings it here first.
 *
 * SIGSEGV. The library has a handler for it, on a stack of its own (sigaltstack). Faults elsewhere go to the handler
 * that was there before dsm_init. Pointers into the memory are the same at all ranks that are in C.
 */
#ifndef EDGE_DSM_H
#define EDGE_DSM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define DSM_API __attribute__((visibility("default")))
#else
#define DSM_API
#endif

#define DSM_FAILED 3 /* exit status of a rank whose run could not go on */

/* What all ranks of a run must agree on. Clear it first. */
typedef struct dsm_config {
	size_t size;   /* sizeof (dsm_config) */
	size_t memory; /* bytes to share, registered and pinned at every rank; 0: $EDGE_DSM_MIB MiB, or 64 MiB */
	int locks;     /* numbers of locks are below it; 0: 1024 */
	int log;       /* words of a rank's log of changed pages (DSM clause 2.4), even; 0: 8192 */
	int join_ms;   /* how long rank 0 waits for all others, and they for it, in milliseconds; 0: a minute */
} dsm_config;

/* Finds the other ranks and returns when all are there. EDGE_DSM=NAME,RANK,RANKS,ROOT in the environment says which
 * rank this is: name of the run, number of the rank from 0, how many there are, and the node of rank 0. Without it the
 * run has this one rank and needs no daemon. The daemon is that of $EDGE_SOCKET. config may be NULL. Once in a
 * process. */
DSM_API void dsm_init(const dsm_config *config);
/* Waits until all ranks call it, and ends this rank's part: the memory is gone. A process that ends without it makes
 * the run fail. It must hold no lock. */
DSM_API void dsm_exit(void);

DSM_API int dsm_rank(void);  /* from 0 */
DSM_API int dsm_ranks(void); /* how many there are */
/* Where rank's part of n things begins when ranks get equal parts in order; it ends where that of rank + 1 begins. */
DSM_API size_t dsm_share(size_t n, int rank);

/* Homes of dsm_alloc: ranks get equal parts in order, or pages in turn. Or the number of a rank, for all pages. */
enum { DSM_BLOCKS = -1, DSM_TURNS = -2 };

/* Returns n elements of so many bytes, zero at first, which begin at a page of 4096 bytes. All ranks make the same
 * calls in the same order: the next barrier finds out if they do not. The largest power of two up to 8 that divides an
 * element is the grain: bytes that no two ranks write without order. Elements of 1 byte are always right, but the
 * changes of a page travel in more pieces. home says where changes are carried to: at home a rank works without
 * messages. The memory is freed by dsm_exit. */
DSM_API void *dsm_alloc(size_t n, size_t element, int home);
/* The same, with a function that says at which rank each page of the allocation is at home, by its number there, how
 * many pages there are, and the number of ranks. It must say the same at all ranks. */
typedef int dsm_homes(size_t page, size_t pages, int ranks);
DSM_API void *dsm_alloc_homes(size_t n, size_t element, dsm_homes *home);

/* Brings size bytes from p here, in one read for each run of missing pages of one home, and if write is not 0 allows to
 * write them. It is faster than as many faults, and system calls may be given the bytes then: for reading until the
 * next dsm_lock or dsm_barrier, for writing until the next dsm_unlock or dsm_barrier, too. */
DSM_API void dsm_touch(const void *p, size_t size, int write);

/* Waits until no other rank has the lock of that number, which must not be taken twice. */
DSM_API void dsm_lock(int number);
DSM_API void dsm_unlock(int number);
/* Waits until all ranks are in it; each sees what all did before. */
DSM_API void dsm_barrier(void);

/* What this rank did since dsm_init or dsm_reset_stats; with EDGE_DSM_STATS=DIR in the environment it is also kept in
 * the file DIR/NAME.RANK.prom, for Prometheus, and with EDGE_DSM_STATS=- written to standard error at the end. Times
 * are in nanoseconds of the monotonic clock; what is left
 * of total_ns is the program's own. */
typedef struct dsm_stats {
	uint64_t operations; /* reads, writes and atomics on memory of other ranks */
	uint64_t faults;     /* accesses at which the handler had to do something */
	uint64_t fetches;    /* reads of pages */
	uint64_t pages;      /* that were read */
	uint64_t twins;      /* copies made before writing */
	uint64_t diffs;      /* pages compared with their twins */
	uint64_t runs;       /* writes of changed bytes */
	uint64_t bytes;      /* that they carried */
	uint64_t notices;    /* pages that others said they had changed */
	uint64_t stale;      /* of them, those that were in use here */
	uint64_t refreshes;  /* of them, those that this rank was writing as well */
	uint64_t overruns;   /* times that a log had gone on too far to be read */
	uint64_t protects;   /* system calls that changed what pages may be used for */
	uint64_t locks;      /* that were taken */
	uint64_t waits;      /* of them, those that another rank had */
	uint64_t barriers;
	uint64_t total_ns;
	uint64_t data_ns;    /* waiting for pages */
	uint64_t flush_ns;   /* comparing pages and carrying changes home */
	uint64_t acquire_ns; /* reading logs and making pages stale */
	uint64_t lock_ns, barrier_ns; /* waiting in them */
} dsm_stats;
DSM_API void dsm_get_stats(dsm_stats *stats);
DSM_API void dsm_reset_stats(void);

/* For the macros of PARMACS (edge_parmacs.m4), where processes are made in the middle of a program: every rank runs
 * main on memory of its own until it comes to CREATE, and from there on the memory of rank 0 is everybody's. Numbers of
 * locks and memory may be had at any time; those had after CREATE are of the rank that asked. */
DSM_API void *dsm_parmacs_malloc(size_t size);
DSM_API void dsm_parmacs_init(void);
/* processes: how many the program makes, or 0. Returns whether this rank is another than 0. */
DSM_API int dsm_parmacs_create(int processes);
DSM_API void dsm_parmacs_wait(void);
DSM_API void dsm_parmacs_end(void);
DSM_API int dsm_parmacs_lock(void);
DSM_API void dsm_parmacs_barrier(int processes);
DSM_API void dsm_parmacs_await(int lock, const volatile int *flag);
DSM_API void dsm_parmacs_nap(void);
DSM_API unsigned long dsm_parmacs_clock(void); /* microseconds */

#ifdef __cplusplus
}
#endif

#endif
