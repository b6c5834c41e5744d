/*
 * What every part of libedge-dsm has. The layers, from below: base (layout.c, fail.c, stats.c), net (net.c, leave.c,
 * join.c), pages (page.c, fault.c, release.c, acquire.c), ranks (meet.c, lock.c, barrier.c), program (alloc.c, dsm.c,
 * parmacs.c). None calls one above it; make layers says so. All state is this one rank's and is used by the program's
 * thread, but for what leave.c and net.c say of the thread that watches.
 */
#ifndef DSM_RANK_H
#define DSM_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge.h"
#include "edge_dsm.h"

#define PAGE ((size_t)4096)
#define MILLI 1000000u

enum { MAX_RANKS = 64, MAX_TEXT = 240, NODE_TEXT = 64, NEWS_WORDS = 16, FOLLOW_WORDS = 8, CHANGE_WORDS = 2048,
	ARRIVED_LOG = 8 * 4, ARRIVAL = ARRIVED_LOG + 8 * (NEWS_WORDS + FOLLOW_WORDS + CHANGE_WORDS) };

/* Which rank of which run this is, complete. */
struct config {
	char name[200], root[65], self[65]; /* of the run; nodes of rank 0 and of this one */
	int rank, ranks, locks, log, join_ms;
	size_t memory;
};

/* Where things are in the control region, in bytes (DSM clause 2.2). A vector is a position in the log of every
 * rank. */
struct layout {
	size_t released, granted, arrived, asked, ending, roster, out, got, table, ring, landing, size;
	size_t log, pull; /* words of the ring, and those of a log that are read at once */
};

/* What a page is at this rank (DSM section 3). A page at home here is never stale, and needs no twin. */
enum state { STALE, CLEAN, DIRTY };

/* Notifications say what was written: a kind and a number (DSM clause 2.3). */
enum {
	NOTE_ARRIVED = 1, NOTE_FINISHED, NOTE_ASKED, NOTE_GRANTED, NOTE_ROSTER, NOTE_ENDING,
	NOTE_SHIFT = 28, NOTE_NUMBER = (1 << NOTE_SHIFT) - 1
};
#define NOTE(kind, number) ((uint32_t)(kind) << NOTE_SHIFT | (uint32_t)(number))

/* The shared memory as this rank has it. Two views show the same bytes: app to the program, protected by the states of
 * pages; raw to this library and to the daemon. */
struct memory {
	unsigned char *app, *raw, *twin;
	unsigned char *ctl; /* control region */
	size_t size, pages, used;
	uint8_t *state, *home, *grain; /* of each page */
	uint32_t *dirty, *changed;     /* pages written since the last release; made stale by this acquire */
	size_t ndirty, nchanged;
	size_t from, to, home_of;      /* run of changed bytes that is not posted yet: from up to to */
	size_t next, reach;            /* where a fetch is taken for part of a sweep, and how many pages it takes then */
	uint64_t digest;               /* of all allocations so far */
	bool shown;                    /* app shows raw: faults may come */
};

/* What this rank knows of the others. */
struct knowledge {
	uint64_t known[MAX_RANKS]; /* how much of each rank's log; of the own: how long it is */
	uint64_t bases[MAX_RANKS]; /* vector of the last barrier */
	uint64_t was;              /* result of the latest atomic */
	uint8_t *asked, *held;     /* for each lock: 1 + the rank that waits behind this one; whether this one has it */
	uint64_t unlocks, barriers; /* of this rank */
	uint64_t wrote;             /* homes, a bit each, to which changes were posted that nobody has waited for */
	int granted;               /* 1 + the lock that was granted; 0: none */
	uint64_t arrived[MAX_RANKS]; /* barriers at which each arrived: at most one more than this one */
	bool finished[MAX_RANKS];   /* it had returned before the last of them */
	bool owing;                /* operations that nobody has waited for use memory that this rank writes */
};

extern struct config conf;
extern struct layout lay;
extern struct memory mem;
extern struct knowledge know;
extern dsm_stats stats;

/* layout.c */
void config_complete(struct config *to, const dsm_config *from);
void layout_make(void);
size_t lock_place(int number, int *home);
size_t arrival_place(uint64_t barrier, int rank);
size_t vector_news(void);
uint64_t mix(uint64_t x);
uint64_t now_ns(void);
static inline uint64_t *word(size_t at) { return (uint64_t *)(void *)(mem.ctl + at); }
static inline uint64_t load(size_t at) { return __atomic_load_n(word(at), __ATOMIC_ACQUIRE); }
static inline void store(size_t at, uint64_t v) { __atomic_store_n(word(at), v, __ATOMIC_RELEASE); }

/* fail.c. None of them returns. fail: this rank's fault; lost: another was seen to end; told: another said why. */
#define NORETURN __attribute__((noreturn))
extern void (*farewell)(const char *text); /* NULL, or tells the other ranks why this one ends */
NORETURN void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
NORETURN void lost(const char *format, ...) __attribute__((format(printf, 1, 2)));
NORETURN void told(int rank);
NORETURN void broken(int rank, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *last_words(int rank, char text[MAX_TEXT + 1]);

/* net.c: operations on the memory of a rank, which may be this one, and notifications. */
enum area { CONTROL, DATA };
void net_read(int rank, enum area area, size_t here, size_t there, size_t n);
void net_write(int rank, enum area area, size_t here, size_t there, size_t n, uint32_t note);
void net_swap(int rank, size_t at, uint64_t operand);                        /* result: know.was, after net_answer */
void net_compare_swap(int rank, size_t at, uint64_t compare, uint64_t operand); /* fenced */
void net_wait(void);   /* until everything that was posted has taken effect */
void net_answer(void); /* until the latest atomic has */
bool net_next(int *from, uint32_t *note, int rank, bool wait); /* the oldest notification of a rank, or of any (-1) */
void net_free(void);   /* what was written from lay.out may change */
void net_owes(void);   /* a write from lay.out is not waited for */

/* page.c */
int pages_make(void);
void pages_show(void);
void pages_free(void);
void set_states(uint32_t *list, size_t n, enum state s);
void fetch(size_t first, size_t last);
void begin_writing(size_t first, size_t last);
void page_fault(size_t p, bool writes);
static inline bool away(size_t p) { return mem.home[p] != conf.rank; }

/* fault.c */
void fault_handle(void);
void fault_forget(void);

/* release.c, acquire.c */
void release(void);
void carry(void);
void diff(size_t p);
void end_run(void);
void acquire(size_t vector, bool barrier);

/* meet.c: what notifications tell */
void heed(int rank, uint32_t note);
void heed_all(void);

/* barrier.c */
void meet(int how);

/* alloc.c */
size_t alloc_pages(size_t bytes, size_t element, int home);

/* stats.c */
void tell_begin(void);
void tell_stats(bool end);

/* dsm.c: begins this rank's part in the run; if not show, the memory is private until show_memory. */
void begin(const dsm_config *config, bool show);
void show_memory(void);

#endif
