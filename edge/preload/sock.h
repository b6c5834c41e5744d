/*
 * libedge-preload: sockets of unmodified programs over streams of libedge, in place of TCP.
 *
 * A TCP socket stays what it is behind its descriptor: connect, accept, getpeername, fork and close act on it. Its data
 * moves to a stream once both sides have agreed (upgrade.c), before the first byte. A program whose other side does not
 * agree goes on over TCP and notices nothing.
 *
 * The layers, from below, each with a header of its own. None includes or calls one above it (make layers); what layers
 * above are told goes through struct above.
 *
 *   base       real.c the C library's functions; brief.c how a thread waits for another one's few lines; own.c
 *              descriptors of this library; map.c which addresses are ours; run.c settings and log
 *   socket     sock.c the table of descriptors; visit.c who is in the library; wait.c how a thread sleeps; direct.c how
 *              the daemon wakes it alone; waitset.c in what it sleeps if not; signals.c what interrupts it
 *   agreement  upgrade.c how both ends agree; connector.c, acceptor.c the ends; held.c what is written before;
 *              rest.c streams that are used again; early.c streams that are dialled at once; owner.c whose a socket of
 *              this host is; shared.c streams that parent and child have
 *   set        epoll.c epoll; sets.c which descriptors are sets; poll.c poll and select
 *   call       calls.c connect, accept, close, dup, ...: what changes descriptors; io.c read, write and the like;
 *              file.c FILE; raw.c system calls that go past the C library's functions, io_uring; process.c beginning,
 *              fork and end of the process
 *
 * One lock, guard, is for everything but the bytes: states, waiters, epoll sets, the device's progress. It is never
 * held while a thread sleeps. Entries of the table are read without it: their memory is never returned, and counted.
 */
#ifndef EDGE_PRELOAD_SOCK_H
#define EDGE_PRELOAD_SOCK_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "edge.h"
#include "map.h"
#include "own.h"
#include "real.h"
#include "run.h"

#define EXPORT __attribute__((visibility("default")))
#define MILLI INT64_C(1000000)
#define SECOND (1000 * MILLI)
#define NEVER INT64_MAX

enum { DESCRIPTORS = 1 << 20 }; /* numbers above are not known here */

/* sock.c */
enum state {
	PLAIN,     /* TCP for good */
	LISTENING, /* a listening socket, known to the daemon as tcp/PORT */
	OFFERED,   /* we connect, and wait for the other side to dial our offer */
	ACCEPTED,  /* it connected to us; nobody has used the socket yet */
	DIALLING,  /* we dial its offer */
	STREAM,    /* data is on the stream */
	FOREIGN,   /* a stream of the parent process, */
	SHARED     /* which the parent lets us use (shared.c) */
};

struct link;
struct share;

/* Of a socket that is DIALLING: what it waits for. */
enum step { BEGUN, AWAITS, ASKS_PEER, ASKS_OWNER, WAITS, SHOWS };

/* What dials of clause 20 say, and with it a nonce, or the secret of a listener, and the addresses. */
enum { NONCE_SIZE = 16, MOST_DATA = 1 + NONCE_SIZE + 128, PROBE = 'Q', SHOWN = 'N', ASK = 'A',
       AGAIN = 'B' };
#define ELSEWHERE "nobody listens at that address" /* the refusal of a probe that is meant for a program not ours, */
#define SETTLED "that connection is TCP's"         /* and of one for a connection of ours that has its verdict */

/* What decides whether its stream can be used again (rest.c). */
struct kept {
	uint64_t target; /* of a connector: in the cache of verdicts. 0: of an acceptor */
	int64_t fresh;   /* of a connector: until then who accepted counts as the owner of the port; 0: it does not */
	bool again;      /* the stream is such a one, */
	bool begun;      /* OFFERED: which the other side has not taken yet. DIALLING: it may still give it up */
	bool news;       /* DIALLING, begun: something happened since it was looked at */
	bool alone;      /* DIALLING, begun: its program does not wait any more, so that until is the end of that */
	bool confirms;   /* OFFERED: the other side waits for the byte of PROTOCOL 20.10 */
	int64_t late;    /* DIALLING: until then it may begin a stream, though it offers none */
	bool passed;     /* LISTENING: other processes may have it */
	bool early;      /* OFFERED, begun: the stream is a new one, dialled to the owner of the port (early.c) */
};

struct sock {
	_Atomic int refs; /* descriptors, and calls under way; 0: free */
	_Atomic enum state state;
	int fd;                  /* one of its descriptors */
	_Atomic bool nonblock;
	edge_stream *stream;     /* DIALLING, STREAM */
	edge_word *aim;          /* that its events wake; NULL: the hub */
	struct share *_Atomic share; /* STREAM: children have it, too. SHARED: by this */
	edge_listener *listener; /* LISTENING: tcp/PORT; OFFERED: the offer */
	edge_conn *probe;        /* OFFERED: asks whether anybody of ours listens. DIALLING: see step. NULL: answered */
	enum step step;          /* DIALLING */
	bool connecting;         /* OFFERED: TCP is not connected yet */
	bool waits;              /* LISTENING: this process waited for connections */
	bool orphan;             /* its program has closed it: fd is a copy of ours */
	struct { uint32_t watched, arrived; } tcp; /* what the hub watches of it, and what it said: bits of epoll */
	unsigned char nonce[NONCE_SIZE];  /* OFFERED, DIALLING: of the probe */
	unsigned char secret[NONCE_SIZE]; /* LISTENING, ACCEPTED, DIALLING: of the listener, which its children have, too */
	struct { char *bytes; uint32_t n, room; bool gone; } held; /* written before the verdict; room 0: not known yet;
	                                                            * gone: the stream has some of it already */
	struct { struct sock *next, **at; } listed; /* LISTENING: in listeners, */
	struct { union address at; bool six_only, shares; } bound; /* to this; shares: others may listen there, too */
	struct kept kept;
	_Atomic bool broken;     /* the stream failed, and the program was told */
	_Atomic bool read_shut, write_shut;
	int64_t until;           /* OFFERED, DIALLING: when TCP is used instead. LISTENING: when to ask the daemon again */
	int64_t pause;           /* LISTENING: how long until then */
	const char *peer;
	char service[65];
	char tuple[128];         /* of addresses, which both sides must see alike */
	struct link *links;      /* who waits; by guard */
	struct sock *next, **at; /* OFFERED, DIALLING, LISTENING: in undecided; else free ones */
};

struct epset;

/* What the layers above are told. process.c fills it in. By guard. */
struct item;
struct above {
	void (*progress)(void);                     /* takes what happened, wakes who waits for it */
	void (*finish)(struct sock *s);             /* the last descriptor was closed */
	void (*renumbered)(struct sock *s, int fd); /* another one of its descriptors; -1: it has none any more */
	bool (*inherited)(const struct sock *s);    /* in a child: of a stream of the parent's, whether it has it, too */
	void (*item_changed)(struct item *i);       /* that of a link */
	void (*item_plain)(struct item *i);
	void (*items_drop)(struct sock *s);
	void (*set_left)(struct epset *set);        /* by a thread that waited */
	int (*poll_socks)(struct pollfd *p, struct sock **socks, nfds_t n); /* unlocked */
	void (*opened)(void);                       /* the device, for the first time or again */
};
extern const struct above *above;

extern pthread_mutex_t guard;
void lock(void);   /* guard, within enter and leave */
void unlock(void);
void end_others(void); /* the calling thread ends the process: others leave the library, or stop in it */
extern edge_device *device;  /* NULL: not attached */
extern int hub;              /* epoll: the device's descriptor and connecting sockets; -1: none */
extern struct sock *undecided;

/* The entry of fd with a count, or NULL. */
struct sock *sock_get(int fd);
void sock_put(struct sock *s);
/* A new entry with one count, its descriptor's. NULL: fd is beyond the table. By guard. */
struct sock *sock_new(int fd, enum state state);
void sock_link(struct sock *s, int fd); /* one more descriptor */
bool sock_has(const struct sock *s, int fd);
void sock_unlink(int fd);               /* fd is closed */
void sock_decide(struct sock *s);       /* puts it into undecided; by guard */
void sock_decided(struct sock *s);
void bury(struct sock *s);   /* an orphan that is decided */
void table_after_fork(void);
void table_close_all(void);
struct sock *table_next(int *at); /* the entry at *at or above, which is then behind it. NULL: there is none */
void table_range(unsigned first, unsigned last);
void say(const struct sock *s, const char *what); /* to the log */
int table_streams(struct sock **to, int most); /* all that are STREAM; -1: these are more. By guard */

/* Has run(arg) run where the thread leaves a call without returning: it is cancelled, or a handler jumps. The C library
 * keeps these for old programs; pthread_cleanup_push does not see jumps. */
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *b, void (*run)(void *), void *arg);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *b, int run);

/* wait.c: a waiter is a thread that sleeps, or an epoll set. Links join it to what it waits for. By guard. */
enum bell { BY_FD, BY_WORD, BY_CROWD, BY_DAEMON };
struct waiter {
	int fd;        /* eventfd. -1: a thread without a wait set (waitset.c) */
	int set;       /* epoll: fd, the hub if it watches, and of an epoll set the program's descriptors; -1: none */
	edge_word *aim; /* that the daemon wakes for the thread's streams alone. NULL: it has none */
	bool direct;   /* it sleeps there */
	bool ours;     /* a thread of the library's, which never does */
	sem_t word;    /* a thread without a wait set sleeps here, */
	bool mixed;    /* or, if it waits for descriptors of the kernel as well, in poll with the crowd */
	enum bell bell; /* by which it was woken, if written */
	bool hooked;   /* the hub is in set */
	bool watches;  /* and wakes who sleeps in it */
	int asleep;    /* threads */
	int away;      /* of those, in handlers: nothing wakes them */
	struct waiter *next, **at; /* of those with threads asleep, the latest first */
	bool rung;     /* something happened since a thread looked */
	bool written;  /* the bell was rung, or is about to be */
	bool lingers;
};
struct link {
	struct sock *sock;
	struct waiter *waiter;
	struct item *item; /* of an epoll set */
	struct link *next, **at;
};

extern int sleepers, lingerers;
extern int own_sleepers; /* of sleepers, threads of the library's */
extern bool woken; /* the device rang one who slept, and was not looked at since */
int64_t now_ns(void);
extern const char own; /* marks what is in a set and not the program's */
bool wait_open(struct waiter *w, int set); /* errno says why not */
bool wait_ready(void);   /* what all threads need, when the hub is there. By guard */
int64_t after(int64_t s, int64_t ns); /* the time then; NEVER: beyond all of it */
struct waiter *own_waiter(void); /* of the calling thread */
void link_add(struct link *l, struct sock *s, struct waiter *w); /* with l->item set, if it is of an epoll set */
void link_remove(struct link *l);
void changed(struct sock *s);
void ring(struct waiter *w);
void wake(struct waiter *w); /* one of those asleep */
/* Gives way to others on the core, if that is better than to sleep: then look again. */
bool linger(struct waiter *w);
void linger_end(struct waiter *w); /* ends the waiting in which linger was called */
/* Sleeps in the kernel, without guard, up to ns (NEVER) and ends what sleep_begin began: what ppoll, or with epfd of 0
 * and above epoll_pwait, returned. A thread that is cancelled or jumps there leaves everything as it should be. */
struct sleeping {
	struct _pthread_cleanup_buffer left;
	struct waiter *w;
	struct link *links; /* to be removed then, if at is set, and the counts of socks put */
	struct sock **socks;
	nfds_t n;
	void *memory;       /* to be freed */
	struct epset *set;  /* to be left */
	int inside;
	bool away;          /* in a handler */
	int cancels;        /* then: the type of cancellation outside of it; -1: the same */
	struct sleeping *outer; /* of the thread: that call's handler made this one */
};
/* Announces that the caller goes to sleep. false: something happened meanwhile. */
bool sleep_begin(struct sleeping *x);
int sleep_poll(struct sleeping *x, struct pollfd *p, nfds_t n, int64_t ns, const sigset_t *mask);
int sleep_epoll(struct sleeping *x, int epfd, struct epoll_event *out, int max, int64_t ns, const sigset_t *mask);
/* Around a handler that interrupts the thread's sleep: it may take long, and others must not wait for it to wake them.
 * NULL: the thread does not sleep, or has left already. Unlocked. */
struct sleeping *sleep_leave(void);
void sleep_return(struct sleeping *x);
/* A thread is in the library from enter to leave, which nest, but not while it sleeps: it is not cancelled, whatever
 * its type of cancellation, and has locks that a signal's handler must not wait for. */
void enter(void);
void leave(void);
bool within(void);
int visits(void);      /* how often the thread is, one in the other */
int rest(void);        /* around a system call that may take long */
void resume(int inside);
/* The same of a call that has a count of s. A thread that leaves it without returning runs left(x), whose first call is
 * rest_left(x). */
struct resting { struct _pthread_cleanup_buffer left; struct sock *s; int inside; struct resting *outer; };
void rest_begin(struct resting *x, void (*left)(void *));
void rest_end(struct resting *x);
void rest_left(struct resting *x);
void rest_count(void); /* in a child: adds the counts of calls of this thread that rest or sleep */
bool rest_known(void); /* those are all. false: a handler that was not put off forked within another call */
void wait_after_fork(void);
void visit_count(void);       /* visit.c: the part of rest_count that is its */
void visits_after_fork(void);
void visit_stops(void);       /* by guard: if the process ends, which another thread does, this one stops */

/* direct.c, by guard: threads that sleep on words, by which the daemon wakes them. */
bool direct_takes(struct sleeping *x);      /* the thread is to sleep so. Has its streams wake it, or the hub if not */
void aim(struct sock *s, edge_word *word);  /* has what happens to a stream wake the word; NULL: the hub */
void direct_keep(struct waiter *w);         /* a thread ends */
void direct_after_fork(void);
bool start_thread(void *(*run)(void *));     /* of ours, which hears no signals. Needs no guard */

/* waitset.c, by guard: a wait set is the descriptors in which a thread sleeps, so that it can watch the hub. */
extern int crowd;                   /* eventfd that wakes all threads without a wait set that poll; -1: none */
bool waitset_take(struct waiter *w);    /* for a thread that goes to sleep. false: there is none */
bool waitset_free(void);                /* waitset_take would find one */
void waitset_keep(struct waiter *w);    /* a thread ends */
bool waitsets_open(void);
void waitsets_after_fork(void);
void waitsets_hook(int from);           /* the hub's number changed */
void set_hook(struct waiter *w, int from);
void crowd_call(void);              /* wakes them for one's sake */
void crowd_answer(void);            /* that one is awake */

/* signals.c: signals that came while the thread was in the library wait until it leaves. */
bool signals_put_off(void);
void signals_let_in(void);
void signals_begin(void);   /* of a call that waits: forgets handlers that ran before it */
bool signals_seen(void);    /* a handler ran since then: the call does not sleep, and ends with EINTR */
bool signals_restart(void); /* unless all of them have SA_RESTART, and the call is one to which that applies */
void look_after(void);  /* after a call of libedge without guard, before sock_put */

#endif
