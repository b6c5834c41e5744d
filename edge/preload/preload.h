/*
 * libedge-preload: sockets of unmodified programs over streams of libedge, in place of TCP.
 *
 * A TCP socket stays what it is behind its descriptor: connect, accept, getpeername, fork and close act on it. Its data
 * moves to a stream once both sides have agreed (upgrade.c), before the first byte. A program whose other side does not
 * agree goes on over TCP and notices nothing.
 *
 *   calls.c    connect, listen, accept, close, dup, fcntl, ...: what changes descriptors
 *   io.c       read, write and their relatives; file.c: FILE
 *   poll.c     poll and select
 *   epoll.c    epoll; sets.c: which descriptors are sets
 *   wait.c     how a thread sleeps; bed.c: in what; signals.c: what interrupts it
 *   own.c      the library's own descriptors; raw.c: system calls that go past the C library's functions, io_uring
 *   upgrade.c  how both ends agree; connector.c, acceptor.c: the ends; held.c: what is written before they have
 *   owner.c    whose a socket of this host is
 *   shared.c   streams that parent and child have
 *   sock.c     the table of descriptors; process.c: beginning, fork and end of the process
 *   map.c      which addresses are ours; real.c: the C library's functions
 *
 * One lock, guard, is for everything but the bytes: states, waiters, epoll sets, the device's progress. It is never
 * held while a thread sleeps. Entries of the table are read without it: their memory is never returned, and counted.
 */
#ifndef EDGE_PRELOAD_H
#define EDGE_PRELOAD_H

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
#include "real.h"

#define EXPORT __attribute__((visibility("default")))
#define MILLI INT64_C(1000000)
#define SECOND (1000 * MILLI)
#define NEVER INT64_MAX

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
enum step { BEGUN, ASKS_PEER, ASKS_OWNER, WAITS, SHOWS };

/* What dials of clause 20 say, and with it a nonce, or the secret of a listener, and the addresses. */
enum { NONCE_SIZE = 16, MOST_DATA = 1 + NONCE_SIZE + 128, PROBE = 'P', SHOWN = 'N', ASK = 'A' };
#define ELSEWHERE "nobody listens at that address" /* the refusal of a probe that is meant for a program not ours */

struct sock {
	_Atomic int refs; /* descriptors, and calls under way; 0: free */
	_Atomic enum state state;
	int fd;                  /* one of its descriptors */
	_Atomic bool nonblock;
	edge_stream *stream;     /* DIALLING, STREAM */
	struct share *_Atomic share; /* STREAM: children have it, too. SHARED: by this */
	edge_listener *listener; /* LISTENING: tcp/PORT; OFFERED: the offer */
	edge_conn *probe;        /* OFFERED: asks whether anybody of ours listens. DIALLING: see step. NULL: answered */
	enum step step;          /* DIALLING */
	bool connecting;         /* OFFERED: TCP is not connected yet */
	bool waits;              /* LISTENING: this process waited for connections */
	bool orphan;             /* its program has closed it: fd is a copy of ours */
	uint32_t watched, arrived; /* what the hub watches of TCP, and what it said: bits of epoll */
	unsigned char nonce[NONCE_SIZE];  /* OFFERED, DIALLING: of the probe */
	unsigned char secret[NONCE_SIZE]; /* LISTENING, ACCEPTED, DIALLING: of the listener, which its children have, too */
	char *held;              /* what the program wrote before the verdict */
	uint32_t nheld, room;    /* room: for it; 0: not known yet */
	struct sock *more, **more_at; /* LISTENING: in listeners */
	_Atomic int error;       /* of the stream, not told yet */
	_Atomic bool broken;     /* the stream failed, and the program was told */
	_Atomic bool read_shut, write_shut;
	int64_t until;           /* OFFERED, DIALLING: when TCP is used instead. LISTENING: when to ask the daemon again */
	int64_t pause;           /* LISTENING: how long until then */
	uint64_t target;         /* OFFERED: in the cache of verdicts */
	const char *peer;
	char service[65];
	char tuple[128];         /* of addresses, which both sides must see alike */
	struct link *links;      /* who waits; by guard */
	struct sock *next, **at; /* OFFERED, DIALLING, LISTENING: in undecided; else free ones */
};

extern pthread_mutex_t guard;
void lock(void);   /* guard, within enter and leave */
void unlock(void);
void end_others(void); /* the calling thread ends the process: others leave the library, or stop in it */
extern edge_device *device;  /* NULL: not attached */
extern int hub;              /* epoll: the device's descriptor and connecting sockets; -1: none */
extern struct sock *undecided;
extern bool active;          /* this process takes part */

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
void table_withdraw(const char *why);
void table_range(unsigned first, unsigned last);
int table_streams(struct sock **to, int most); /* all that are STREAM; -1: these are more. By guard */

/* upgrade.c: by guard, but what says otherwise. */
bool device_ready(void);
void progress(void);                      /* takes what happened, wakes who waits for it */
void become_plain(struct sock *s, const char *why);
void when_ready(struct sock *s);          /* the stream is open: may be STREAM now */
void renumbered(struct sock *s, int fd);  /* another one of its descriptors; -1: it has none any more */
void finish(struct sock *s);              /* the last descriptor was closed; it goes on if it is orphan then */
void upgrade_after_fork(void);
int offer_service(struct sock *s);        /* s->service */
bool watch_tcp(struct sock *s, uint32_t what); /* the hub tells of it, in arrived. false: it cannot */
void bound_stream(struct sock *s);        /* SO_SNDBUF may have changed */
bool suits(int fd);                       /* a TCP socket whose data may move. Unlocked */
extern bool required;                     /* a connection that would go on over TCP ends instead */
/* Addresses, and names made of them. */
void write_end(char *to, size_t size, const union address *a);
void name_offer(struct sock *s, const union address *from, const union address *to);
bool split(const char *tuple, union address *from, union address *to);
bool both_ends(int fd, union address *local, union address *remote);
bool anonymous(const union address *a);
bool same_address(const union address *a, const union address *b);
size_t said(unsigned char *to, unsigned char kind, const unsigned char *word, const char *tuple);
#define FOLD 14695981039346656037u
uint64_t fold(uint64_t h, const void *p, size_t n); /* FNV-1a */

/* connector.c, by guard */
bool offer(int fd, struct sock **s, const union address *to);
void withdraw(struct sock *s);            /* the offer of a socket whose connect failed */
bool watch_connect(struct sock *s);       /* the hub tells when TCP is connected. false: it cannot */
void connected(struct sock *s);
void look_at_offer(struct sock *s);

/* acceptor.c, by guard */
extern struct sock *listeners;
void list(struct sock *s);                /* a new LISTENING one */
void unlist(struct sock *s);
void enlist(struct sock *s);              /* the process waits for connections: offers tcp/PORT, unless somebody does */
void enlist_early(struct sock *s);        /* the same before it waits */
void answer_probes(struct sock *s);
void pass_on(void);                       /* after fork, in the parent */
void acceptor_after_fork(void);
void begin(struct sock *s);               /* first use of an accepted socket */
void adopt(int fd, bool nonblock, const struct sock *from); /* accepted; NULL: by another process. Unlocked */
void look_at_dial(struct sock *s);

/* held.c, by guard */
size_t held_room(struct sock *s);         /* bytes that can be kept */
size_t keep(struct sock *s, const struct iovec *v, size_t n); /* of an undecided socket: how many were kept */
bool held_to_stream(struct sock *s);      /* false: the stream has no room for all of them yet */
void held_to_tcp(struct sock *s);
void drive_on(void);                      /* has that happen though the program calls nothing more */
void drop_held(struct sock *s);
bool must_outlive(const struct sock *s);
int outlive(struct sock *s);              /* the program closes it before the verdict: a descriptor of ours, or -1 */
void held_after_fork(void);
void settle_all(int64_t until);           /* unlocked: before the process ends */

bool start_thread(void *(*run)(void *));  /* of ours, which hears no signals */

/* shared.c */
void share_tidy(void);                    /* unlocked, before each fork */
void share_before_fork(void);             /* by guard */
void share_after_fork(void);              /* unlocked, in the parent */
bool share_inherited(struct sock *s);     /* in the child: it is SHARED now */
void share_in_child(void);
void share_settle(int64_t until);         /* unlocked, before the process ends */
void share_close_all(void);               /* by guard */
bool share_drain(struct sock *s);         /* what children wrote goes on the stream. false: it has no room for all */
/* As edge_stream_read (flags: MSG_PEEK), of one that is SHARED, and _write, also while children have it. */
ssize_t share_read(struct sock *s, void *p, size_t n, int flags);
ssize_t share_write(struct sock *s, const void *p, size_t n);
/* Of one that is SHARED. */
int share_wait(struct sock *s, int want, int64_t until); /* 0 or an errno: EINTR, ETIMEDOUT. Unlocked */
int share_number(const struct sock *s);   /* the kernel's descriptor that is ready when the socket is */
void share_ask(struct sock *s);           /* the program is to learn when there is something to read */
int share_epoll(struct sock *s, int set, int op, struct epoll_event *e);
void share_shut(struct sock *s);          /* for writing */
void share_end(struct sock *s);           /* by guard */

/* owner.c */
bool may_hold(const struct sock *s, uint32_t uid); /* the other end's socket, if it is in this namespace */
bool same_secret(const unsigned char *a, const unsigned char *b); /* and is one: not zeros */

/* upgrade.c: by guard, but what says otherwise. */
int64_t next_verdict(void);
/* Brings an undecided socket to STREAM or PLAIN. 0; or an errno: EAGAIN, EINTR. Unlocked. */
int settle(struct sock *s, bool nonblock);
/* Bits of poll(2) of a decided or undecided socket, without those of TCP. By guard. */
int events(struct sock *s);

/* Has run(arg) run where the thread leaves a call without returning: it is cancelled, or a handler jumps. The C library
 * keeps these for old programs; pthread_cleanup_push does not see jumps. */
void _pthread_cleanup_push(struct _pthread_cleanup_buffer *b, void (*run)(void *), void *arg);
void _pthread_cleanup_pop(struct _pthread_cleanup_buffer *b, int run);

/* own.c: what stands for a descriptor of the library's own is its handle. */
int own_take(int fd);    /* a handle for fd. -1: errno says why not */
int own_number(int fd);  /* of a handle; a number is its own */
bool own_is(int fd);     /* of a number */
void own_stay(int fd);   /* children of fork keep this handle */
bool own_move(int fd);   /* off a number. false: errno says why not. By guard */
int own_close(int fd);
int own_close_range(unsigned first, unsigned last, int flags);
int own_epoll_ctl(int set, int op, int fd, struct epoll_event *e);
ssize_t own_read(int fd, void *p, size_t n);
ssize_t own_write(int fd, const void *p, size_t n);
void own_after_fork(void);

/* raw.c */
bool rings(void);      /* this process has io_uring, by which it may use its sockets: they stay with TCP */
void rings_look(void); /* whether it has */

/* wait.c: a waiter is a thread that sleeps, or an epoll set. Links join it to what it waits for. By guard. */
enum bell { BY_FD, BY_WORD, BY_CROWD };
struct waiter {
	int fd;        /* eventfd. -1: a thread without a bed (bed.c) */
	int set;       /* epoll: fd, the hub if it watches, and of an epoll set the program's descriptors; -1: none */
	sem_t word;    /* a thread without a bed sleeps here, */
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
extern bool woken; /* the device rang one who slept, and was not looked at since */
int64_t now_ns(void);
extern const char own; /* marks what is in a set and not the program's */
bool wait_open(struct waiter *w, int set); /* errno says why not */
bool wait_ready(void);   /* what all threads need, when the hub is there. By guard */
void wait_moved(int handle, int from); /* the number of a handle changed. By guard */
int64_t after(int64_t s, int64_t ns); /* the time then; NEVER: beyond all of it */
struct waiter *own_waiter(void); /* of the calling thread */
void link_add(struct link *l, struct sock *s, struct waiter *w);
void link_remove(struct link *l);
void changed(struct sock *s);
void ring(struct waiter *w);
void wake(struct waiter *w); /* one of those asleep */
/* Gives way to others on the core, if that is better than to sleep: then look again. */
bool linger(struct waiter *w);
void linger_end(struct waiter *w); /* ends the waiting in which linger was called */
/* Announces that the caller goes to sleep. false: something happened meanwhile. */
bool sleep_begin(struct waiter *w);
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
	struct sleeping *outer; /* of the thread: that call's handler made this one */
};
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
int rest(void);        /* around a system call that may take long */
void resume(int inside);
/* Sleeps until s has one of the events, and more than so many bytes to read unless that is 0, or until. 0 or an errno:
 * EINTR, ETIMEDOUT. Unlocked. */
int wait_for(struct sock *s, int want, size_t more, int64_t until);
void wait_after_fork(void);

/* bed.c, by guard: a bed is the descriptors in which a thread sleeps, so that it can watch the hub. */
extern int crowd;                   /* eventfd that wakes all threads without a bed that poll; -1: none */
bool bed_take(struct waiter *w);    /* for a thread that goes to sleep. false: there is none */
bool bed_free(void);                /* bed_take would find one */
void bed_keep(struct waiter *w);    /* a thread ends */
bool beds_open(void);
void beds_after_fork(void);
void beds_hook(int from);           /* the hub's number changed */
void set_hook(struct waiter *w, int from);
void crowd_call(void);              /* wakes them for one's sake */
void crowd_answer(void);            /* that one is awake */

/* signals.c: signals that came while the thread was in the library wait until it leaves. */
bool signals_put_off(void);
void signals_let_in(void);
void signals_begin(void);   /* of a call that waits: forgets handlers that ran before it */
bool signals_seen(void);    /* a handler ran since then: the call does not sleep, and ends with EINTR */
bool signals_restart(void); /* unless all of them have SA_RESTART, and the call is one to which that applies */

/* epoll.c and sets.c, by guard unless it says otherwise */
void item_changed(struct item *i);
void item_plain(struct item *i);
void items_drop(struct sock *s);
void epoll_after_fork(void);
void epoll_closed(int fd);
void epoll_range(unsigned first, unsigned last);
void epoll_left(struct epset *set); /* by a thread that waited. By guard */
void epoll_shared(int from, int to);  /* a dup. Unlocked */
bool epoll_watch(int fd);             /* fd is a set that somebody waits on from outside. Unlocked */
void epoll_show(void);                /* has such sets be readable, or not. By guard */
void epoll_moved(int handle, int from); /* by guard */
void epoll_inherit(int fd);           /* one that another process had, or a dup of one of ours. Unlocked */
/* Moves a socket that was put into a set before it connects to our part of the set. false: it cannot. By guard. */
bool epoll_move(struct sock *s, int fd);

/* poll.c, unlocked */
int poll_ours(struct pollfd *p, nfds_t n, int64_t until, const sigset_t *mask);
/* Waits for streams, and for descriptors of the kernel where the sock is NULL. The caller has counts. */
int poll_socks(struct pollfd *p, struct sock **socks, nfds_t n);

/* calls.c */
void twin_away(int fd); /* a socket that came from somewhere, or went: it stays with TCP unless it is connected */

/* process.c */
void inherit(int fd); /* another process had it */
extern const char *daemon_socket; /* NULL: libedge's default */
extern uint32_t stream_buffer;    /* bytes */
void process_handlers(void);
bool borrowed(void); /* a child of vfork runs in this memory: what it closes stays open here */
void note(const char *of, const char *what);      /* to the file $EDGE_RUN_LOG */
void say(const struct sock *s, const char *what);

/* io.c */
int fail_with(int err);
void look_after(void);  /* after a call of libedge without guard, before sock_put */
int tcp_error(int err); /* an errno of a libedge's error */

/* file.c */
void move_file(int fd); /* of 0 to 2 */
void flush_files(void);

#endif
