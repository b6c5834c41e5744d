/*
 * libibverbs and librdmacm over libedge: programs that were built for RDMA NICs run without one, unchanged.
 *
 * One device, edge0, stands for the daemon. A queue pair is a connection of libedge (qp.h), ordered, and of the domain
 * that its protection domain is: so one key of registered memory (memory.h) is good for all its connections, and what
 * follows a refused work request is not performed. Those of datagrams share one to each process (ud.h). A completion
 * queue is a ring of this library (queue.h).
 *
 * The layers, from below, each with a header of its own; none includes or calls one above it (make layers), and what
 * layers above are told goes through pointers to functions.
 *
 *   base      lib.c the attachment, and the thread that attends to it; names.c GIDs, and the nodes that they name
 *   memory    maps.c what memory is; adopt.c taking memory over; seg.c registered ranges; stage.c memory of the
 *             library's; mr.c memory regions and keys
 *   queue     event.c events and descriptors that tell of them; cq.c completion queues
 *   endpoint  send.c, recv.c work requests; srq.c shared receive queues; ah.c, peer.c, ud.c datagrams (ud.h); link.c
 *             how queue pairs find each other; qp.c their states; ex.c the extended interfaces
 *   verbs     device.c devices, contexts and what they tell of themselves; text.c words
 *
 * One lock, lib.mu, guards everything; functions here are called with it held, unless they are exported or their
 * comment says "unlocked". Nobody sleeps with it.
 */
#ifndef EDGE_VERBS_LIB_H
#define EDGE_VERBS_LIB_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>

#include <infiniband/verbs.h>

#include "edge.h"

#define EXPORT __attribute__((visibility("default")))

/* What librdmacm uses of this library has names that no program has. */
#define lib edge_verbs_lib
#define lock edge_verbs_lock
#define unlock edge_verbs_unlock
#define cancel_off edge_verbs_cancel_off
#define cancel_on edge_verbs_cancel_on
#define lib_open edge_verbs_lib_open
#define step edge_verbs_step
#define wait_for edge_verbs_wait_for
#define give_way edge_verbs_give_way
#define wake_thread edge_verbs_wake_thread
#define watch edge_verbs_watch
#define say edge_verbs_say
#define now_ms edge_verbs_now_ms
#define names_load edge_verbs_names_load
#define ip_node edge_verbs_ip_node
#define gid_at edge_verbs_gid_at
#define own_gid edge_verbs_own_gid
#define inbox_open edge_verbs_inbox_open
#define inbox_close edge_verbs_inbox_close
#define inbox_put edge_verbs_inbox_put
#define inbox_take edge_verbs_inbox_take
#define inbox_forget edge_verbs_inbox_forget
#define link_join edge_verbs_link_join
#define link_up edge_verbs_link_up
#define link_down edge_verbs_link_down
#define qps edge_verbs_qps

enum {
	MAX_SGE = 8,          /* pieces of a work request */
	MAX_INLINE = 1024,    /* bytes */
	MIN_INLINE = 64,      /* of who asks for none */
	MAX_WR = 1 << 14,     /* work requests on a queue; what the daemon has no room for waits here */
	MAX_QP = 1 << 12,     /* of a process: the lower bits of their numbers */
	MAX_MESSAGE = 1 << 30,
	ASK_MS = 5000         /* for the daemon to answer */
};

/* A piece of work in libedge: the context of its completion. */
struct work { void (*done)(struct work *w, const edge_completion *c); };

struct watcher { /* of the layer above: what the thread of the library does besides completions */
	bool (*step)(void); /* returns whether something is awaited that no completion tells of */
	struct watcher *next;
};

struct lib {
	pthread_mutex_t mu;
	edge_device *dev;      /* NULL: not attached yet */
	unsigned char node[8]; /* our identity */
	unsigned opened;       /* contexts */
	unsigned polls;        /* calls of the program that took completions, about: counted without the lock */
	unsigned armed;        /* completion queues that are to tell of their next entry */
	unsigned sends, ended; /* operations of send queues that go on; those that have ended, modulo 2^32 */
	bool starved;          /* work waits that libedge had no room for */
	bool lost;             /* the daemon has gone; the contexts were told */
	struct watcher *watchers;
};
EXPORT extern struct lib lib;

static inline void polled(void) /* unlocked: a poll more or less is none */
{
	__atomic_store_n(&lib.polls, __atomic_load_n(&lib.polls, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* lib.c */
EXPORT int lib_open(void);       /* attaches; 0 or an error of libedge */
EXPORT void lock(void);
EXPORT void unlock(void);
/* unlocked: this thread is not cancelled in between; lock and unlock do the same. They may be nested. */
EXPORT void cancel_off(void);
EXPORT void cancel_on(void);
void progress(void);             /* takes the completions that there are */
EXPORT void step(void);                 /* runs the watchers */
/* unlocked: until fd is readable (-1: none), something happens, or ms are over; true: until a signal came. Threads are
 * cancelled in it where wait_signals has said what signals do. */
EXPORT bool wait_for(int fd, int ms);
/* unlocked: what this thread's wait_for has blocked from now on; NULL: what is blocked anyway */
void wait_signals(const sigset_t *blocked);
EXPORT void give_way(void);      /* unlocked: of a thread that polls in vain */
bool alone(void);                /* unlocked: it need not for now, since nobody else wants its core */
EXPORT void wake_thread(void);          /* it looks at what has changed */
EXPORT void watch(struct watcher *w);   /* for ever */
EXPORT int64_t now_ms(void);
EXPORT void say(const char *format, ...) __attribute__((format(printf, 1, 2))); /* to who set EDGE_VERBS_LOG */
extern void (*lib_lost)(void);   /* for the layers above: the daemon has gone */
extern void (*lib_forking)(void), (*lib_forked)(void); /* the latter in the child */
extern void (*lib_retry)(void);  /* some work has ended, and lib.starved was set */

/* names.c: unlocked but for names_load */
void names_load(void);
void read_identity(const char *hex, unsigned char id[8]); /* unchanged if it is none */
int gid_count(void);
EXPORT bool gid_at(int index, union ibv_gid *gid);
/* The node that a GID names, as edge_dial takes it; false: nobody's. */
bool gid_node(const union ibv_gid *gid, char node[65]);
EXPORT int own_gid(const union ibv_gid *gid); /* of ours; -1: it is none */
void gid_of(const char *identity, union ibv_gid *gid); /* that of index 0 of the node with that identity */
/* Whether the node with that identity and, here, that name is the one of a GID. */
bool gid_is(const union ibv_gid *gid, const char *identity, const char *name);
EXPORT bool ip_node(const struct sockaddr *a, char node[65]);

#endif
