/*
 * The insides of libedge. One lock for each device (edge_device.mu) guards everything of it but what says otherwise.
 * Functions here are called with it held, unless their comment says "unlocked".
 *
 * Nothing blocks but wait_for (wait.c). Everything that takes several steps goes on in the handlers of replies and
 * events, which whoever is in the library runs: pump empties the completion ring and the control socket.
 */
#ifndef EDGE_INTERNAL_H
#define EDGE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "abi.h"
#include "edge.h"

#define SECOND INT64_C(1000000000)
#define MILLI INT64_C(1000000)
#define NEVER INT64_MAX

enum { MAX_NAME = ABI_STR, FAILURES = 1 << 16, CONN_BUCKETS = 4096, PIECES = 64, MAX_IMPORTS = 4096, OF_ONE_NAME = 16,
       SPARE = 32, BACKLOG = 128 };

/* A reply's handler. err is 0 or why there is no good reply; fd is a descriptor that came along, or -1, and the
 * handler's if it stores -1. It may not wait. */
struct call;
typedef void (*call_fn)(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fd);
struct call {
	uint64_t id;
	call_fn fn;
	void *obj;
	uint32_t num;
	int64_t at; /* when it was sent */
};

struct packet { /* that waits for room in the socket */
	struct packet *next;
	size_t size;
	int fd; /* goes along; -1: none. Not ours */
	char bytes[];
};

struct control { /* control.c */
	int fd;
	bool ready;          /* hello was answered */
	bool want_out;       /* epoll watches for room */
	bool dropped;        /* the kernel dropped descriptors of the latest packet */
	struct call **calls; /* by the low bits of id; NULL: free */
	uint32_t ncalls, hint;
	uint64_t serial;
	struct packet *first, **last;
};

struct ring { /* ring.c */
	char *map;
	size_t size;
	char *sq, *cq;
	uint32_t sq_entries, cq_entries;
	uint32_t tail, head; /* ours: submissions made, completions taken */
	uint32_t taken;      /* sq_head as it was last seen */
	int submit, watch;
	bool broken;
};

struct slot {
	_Atomic uint32_t gen; /* odd: in flight */
	uint32_t next;        /* in the list of free slots, or of completions to be taken */
	edge_conn *conn;      /* NULL: a buffer of a receive queue */
	edge_region *region;
	uint64_t *result;     /* of an atomic */
	uint32_t npieces;     /* further regions, in ops.pieces */
	uint32_t composing;   /* bytes of a message that is neither committed nor aborted; else 0 */
	edge_completion end;  /* to be taken, if it has a context */
};

struct failure { uint64_t key; uint32_t next; int err; };

struct pool { uint32_t first, n; }; /* free slots */

struct ops { /* op.c */
	struct slot *slots; /* depth of operations, and as many of receives behind them */
	edge_region *(*pieces)[EDGE_MAX_PIECES]; /* of each operation; NULL until one has pieces */
	uint32_t depth;
	struct pool free[2]; /* of operations, of receives */
	uint32_t done_first, done_last; /* completions to be taken */
	struct failure *failures;       /* FAILURES, and the heads of their chains */
	uint32_t *heads, nfailures;
	bool any_failure;
};

struct waiter {
	bool (*ready)(void *);
	void *arg;
	pthread_cond_t cond;
	struct waiter *next, **at;
};

struct waiting { /* wait.c */
	int epoll, wake, bell, timer; /* wake is for who sleeps in the library, bell for who sleeps on the descriptor */
	bool leader;  /* somebody polls or sleeps on behalf of all */
	bool asleep;  /* likewise, in epoll_wait */
	bool armed;
	bool quiet;           /* only the daemon makes the descriptor readable: edge_device_quiet */
	bool passed;          /* the last look after arm asked the kernel nothing, and found nothing */
	bool polling;         /* as the daemon was told */
	struct waiter *waiters;
	uint64_t news, seen;
	uint32_t rounds;      /* of the ring since the socket was looked at */
	int64_t spin, grown;  /* ns */
	int64_t busy_until, busy_pause;
	int64_t loop_since, loop_yield, loop_sleep; /* of a loop of the program: since when it polls, gives way, sleeps */
	uint32_t loop_vain, loop_skip; /* polls in vain, in a row at most LOOP_VAIN; waits before the next one */
	int64_t timer_at;
	uint32_t pulse, still;
	int64_t pulse_at;
	bool silent;
	bool woken, rung;     /* wake, bell are readable */
	int64_t looked_at;    /* at the socket */
};

enum attach_state { DOWN, GREETING, ATTACHED };

struct attachment { /* attach.c */
	enum attach_state state;
	uint32_t epoch;    /* counts attachments */
	uint32_t attempts; /* that have ended, well or not */
	int err;           /* of the latest attempt */
	int64_t retry_at, pause, since, greet_until, relisten_at, relisten_until;
	uint32_t window;
	uint64_t features;
	char node[ABI_STR + 1], name[ABI_STR + 1];
	bool lost, away; /* on_change is to say that the daemon is lost; has said so */
	char detail[160];
};

struct job { /* one registration under way: region.c */
	struct job *next;
	edge_region *region;
	int memfd; /* of the client, sent along; -1: the daemon makes the memory */
	void (*fn)(edge_device *, struct job *, int err);
	void *obj;
	int err;
	bool done;
};

struct orphan { struct orphan *next; struct abi_cqe e; };

struct edge_device {
	pthread_mutex_t mu;
	edge_config cfg;
	char *socket, *name;
	int dead; /* EDGE_ERR_CLOSED or EDGE_ERR_FORKED: for good */
	struct attachment at;
	struct control ctl;
	struct ring ring;
	struct ops ops;
	struct waiting w;
	edge_conn *conns[CONN_BUCKETS];
	edge_conn *all;   /* connections that are not freed */
	edge_conn *owing; /* which need room in the ring */
	bool ring_full;
	edge_listener *listeners;
	edge_region *regions;
	struct job *jobs, **last_job; /* the first is under way while job_runs */
	bool job_runs;
	edge_region *spare; /* of streams that ended */
	uint32_t nspare, dialing, norphans, serial, nstreams;
	bool orphan; /* closed; freed with its last connection or stream: leave */
	struct orphan *orphans;
	edge_stream *lingering, *graves; /* closed by the program: on their way out; to be freed */
	int64_t linger_due;
	struct edge_watched *changed, **last_changed;
	struct bounce *bounce;
	edge_device *next, *prev; /* fork.c */
};

struct edge_watched { /* what edge_changed tells of */
	void *context;
	bool queued;
	struct edge_watched *next;
};

enum region_kind { DAEMONS, ADOPTED, CALLERS };

struct edge_region {
	edge_device *d;
	uint32_t epoch, id;
	size_t size, mapped;
	char *bytes;
	enum region_kind kind;
	uint32_t inflight;
	bool closed;
	edge_region *next, **at;
};

struct note { uint64_t key, off; uint32_t imm, len; };

struct notes { struct note *ring; uint32_t head, tail, owed; }; /* notify.c */

struct edge_remote {
	edge_conn *c;
	uint64_t key, size;
	uint32_t perm, number;
	bool revoked, held; /* held: the program knows of it */
	edge_remote *next;
	char name[MAX_NAME + 1];
};

struct edge_export {
	edge_conn *c;
	edge_region *region;
	uint64_t key;
	size_t off, size;
	bool revoked;
	edge_export *next;
	char name[MAX_NAME + 1];
};

enum conn_state { DIALING, ASKED, ACCEPTING, OPEN, ENDED };

struct edge_conn {
	edge_device *d;
	uint32_t id, epoch, inflight, calls; /* calls: replies whose handlers name it */
	uint32_t posted;             /* receives */
	int nlate, late;             /* writes that failed after they were done locally; how the first did */
	enum conn_state state;
	int err;     /* why it ended */
	bool last;   /* no notification comes any more */
	bool aborting;
	bool closing, released, listed, owes;
	bool leaving; /* closing, and the close is to be sent once nothing is in flight */
	bool looked;  /* closing, and nobody waits for it: edge_conn_close may be called again */
	bool closed; /* the reply to close or abort came, or need not */
	struct notes notes;
	edge_remote *remotes, *withdrawn; /* of which the program knows */
	uint32_t nremotes;
	edge_export *exports;
	uint32_t exporting; /* exports that are not answered */
	edge_stream *stream;
	edge_conn *hash, *owing, *next, **at;
	void *data;
	size_t data_size;
	char *peer, *dialled, *service; /* the peer as it calls itself; as it was dialled, which the program may know */
	char *reason; /* with which the service refused it; NULL: it did not */
	uint32_t user;  /* who dialled from this node, and 1; 0: another node */
};

struct edge_listener {
	edge_device *d;
	int err;
	bool offered, known; /* to this daemon; to any, so that the next one is asked as well */
	bool streams;
	uint32_t serial, backlog, nready, nopening;
	struct edge_request *requests, **last_request;
	uint32_t nrequests;
	edge_stream *ready, **last_ready; /* established, to be accepted */
	struct edge_watched watch;
	edge_listener *next, **at;
	char service[MAX_NAME + 1];
};

struct edge_request {
	edge_conn *c;
	edge_listener *l;
	edge_request *next;
};

struct piece { edge_op op; uint32_t n; };

struct inbound {
	pthread_mutex_t mu; /* one copies at a time; taken before edge_device.mu */
	uint64_t tail, head, granted;
	bool fin;
};

struct outbound {
	pthread_mutex_t mu; /* likewise */
	uint64_t sent, acked, freed;
	bool shut, fin;
	uint32_t oldest, flying, size;
	uint32_t bound; /* of what the peer has not read; 0: its ring's size */
	struct piece pieces[PIECES];
};

enum stream_state { S_MEMORY, S_CONNECTING, S_OPEN };

struct edge_stream { /* stream.c */
	edge_device *d;
	edge_conn *c;
	edge_region *region; /* the receive ring, and behind it the send buffer; NULL: not there yet */
	uint32_t ring;
	enum stream_state state;
	int err;       /* a reason of ours for its end, beside that of the connection */
	bool closed;   /* the program is done with it: it lingers */
	bool crowded;  /* a write waits for room for an operation */
	bool accepts;  /* it was asked for by the peer */
	size_t skip;   /* of the connection's data, what is not the program's */
	edge_remote *peer;
	struct inbound in;
	struct outbound out;
	int64_t linger_at;
	edge_listener *listener; /* until it is accepted */
	edge_stream *next, **at; /* in edge_listener.ready, or edge_device.lingering or graves */
	struct edge_watched watch;
	struct job job;
};

struct bounce;

/* error.c, unlocked */
int fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void detail_stale(void);
int system_error(const char *call);
int status_error(uint32_t status, const char *text);
const char *error_text(int err);

/* ring.c */
int ring_map(struct ring *r, int memfd, const struct abi_hello_reply *m);
void ring_close(edge_device *d);
bool ring_room(edge_device *d, uint32_t entries);
void ring_put(struct ring *r, const void *e);
void ring_publish(struct ring *r);
bool ring_ready(const struct ring *r);
void ring_sleep(struct ring *r, bool asleep);
bool ring_rang(struct ring *r);
void ring_polling(struct ring *r, bool polling);
uint32_t ring_pulse(const struct ring *r);
int ring_drain(edge_device *d);

/* control.c */
int control_send(edge_device *d, void *packet, size_t size, enum abi_kind kind, int fd, call_fn fn, void *obj,
                 uint32_t num);
bool control_receive(edge_device *d);
void control_flush(edge_device *d);
void control_close(edge_device *d, int err);
void abort_number(edge_device *d, uint32_t conn);
int no_descriptor(const edge_device *d);

/* attach.c */
int attach_start(edge_device *d);
void attach_lost(edge_device *d, int err, const char *why);
void attach_timers(edge_device *d, int64_t now);
int64_t attach_due(const edge_device *d);
int attach_current(edge_device *d, int64_t until);
void offer(edge_listener *l);

/* wait.c */
int64_t now_ns(void);
int64_t deadline(int timeout_ms);
int64_t answer_by(int64_t until);
int wait_open(edge_device *d);
void wait_close(edge_device *d);
int pump(edge_device *d, bool socket);
int wait_for(edge_device *d, bool (*ready)(void *), void *arg, int64_t until);
void news(edge_device *d);
void wake_all(edge_device *d);
void watch_fd(edge_device *d, int fd, uint32_t events, int how);
void changed(edge_device *d, struct edge_watched *w);
void unwatch(edge_device *d, struct edge_watched *w);

/* conn.c, import.c */
edge_conn *conn_new(edge_device *d, const char *peer, const char *service);
void conn_enter(edge_conn *c, uint32_t id);
edge_conn *conn_find(edge_device *d, uint32_t id);
void conn_end(edge_conn *c, int err, bool last);
void conn_forget(edge_conn *c);
void conn_abort(edge_conn *c, int err);
int conn_usable(const edge_conn *c);
void conn_release(edge_conn *c);
void conn_gone(edge_conn *c);
void conn_dead(edge_conn *c);
void conn_send_close(edge_conn *c);
void conn_leave(edge_conn *c);
void conn_incoming(edge_device *d, const struct abi_incoming *m);
int conn_dial(edge_conn *c, struct abi_dial *m, int64_t until);
int fill_dial(struct abi_dial *m, const char *peer, const char *service, const edge_dial_options *o,
                const char *prefix);
int check_name(const char *what, const char *name, bool empty);
void put_str(struct abi_str *to, const char *s);
void get_str(char *to, const struct abi_str *s);
void advertised(edge_device *d, const struct abi_advert *m);
void withdrawn(edge_device *d, uint32_t conn, uint64_t key);
edge_remote *remote_find(edge_conn *c, const char *name);
void imports_free(edge_conn *c);

/* listener.c */
void refuse(edge_conn *c, const char *reason);
void listener_fail(edge_listener *l, int err);
int conn_accept(edge_conn *c, const void *data, size_t size);

/* region.c */
void job_start(edge_device *d, struct job *j);
void jobs_fail(edge_device *d, int err);
edge_region *region_new(edge_device *d, size_t size, enum region_kind kind);
int region_release(edge_region *r);
void region_unmap(edge_region *r);
int send_export(edge_region *r, edge_conn *c, const char *name, int perm, size_t off, size_t size, call_fn fn,
                void *obj);

/* op.c */
int ops_open(struct ops *o, uint32_t depth);
void ops_close(struct ops *o);
bool ops_take(edge_device *d, const struct abi_cqe *e);
bool ops_late(edge_device *d, const struct abi_cqe *e);
void ops_forget_conn(struct ops *o, const edge_conn *c);
void ops_fail_all(edge_device *d, int err);
bool op_room(const edge_conn *c, uint32_t entries);
int op_launch(edge_device *d, edge_conn *c, const edge_work *w, struct abi_sqe *e, edge_op *op);
uint64_t op_key(const edge_op *op);
int op_result(const edge_op *op);

/* work.c */
int work_encode(edge_conn *c, const edge_work *w, struct abi_sqe *e);
int op_put(edge_conn *c, const edge_work *w, edge_op *op);
int check_feature(const edge_device *d, uint64_t feature, const char *what);
int receive_put(edge_device *d, edge_conn *c, uint32_t queue, const edge_work *w, edge_op *op);
bool op_settled(const edge_op *op);

/* notify.c */
bool notified(edge_device *d, const struct abi_cqe *e);
bool notes_push(edge_conn *c, const struct abi_cqe *e);
void notes_attach(edge_conn *c);
void return_credit(edge_conn *c);
void pay_owing(edge_device *d);

/* device.c, unlocked; enter locks, leave unlocks */
void device_free(edge_device *d);
void enter(edge_device *d);
int leave(edge_device *d, int result);

/* bounce.c */
void bounce_close(edge_device *d);

/* stream.c */
void stream_arrived(edge_stream *s, const struct note *n);
void stream_failed(edge_stream *s, int err);
bool stream_pay(edge_stream *s);
void stream_advance(edge_stream *s);
void stream_cut(edge_stream *s, int err);
int stream_end(const edge_stream *s);

/* stream_open.c */
void stream_requests(edge_listener *l);
void stream_accepted(edge_stream *s, int err);
void stream_dialled(edge_stream *s, int err);
void stream_discard(edge_stream *s, int err);
void stream_linger(edge_device *d, int64_t now);
void stream_step(edge_stream *s);
void stream_reap(edge_device *d);

/* fork.c, unlocked */
void fork_enter(edge_device *d);
void fork_leave(edge_device *d);

#endif
