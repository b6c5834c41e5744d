/*
 * What every layer of libedge has. The layers, each with a header of its own, from below: base, ring, control, wait,
 * memory, connection, verbs, stream, device. None includes or calls one above it; make layers says so. What happens
 * below is told above by struct above and struct conn_user.
 *
 * One lock for each device (edge_device.mu) guards everything of it but what says otherwise. Functions are called with
 * it held, unless their comment says "unlocked". Nothing blocks but wait_for (wait.c). Everything that takes several
 * steps goes on in the handlers of replies and events, which whoever is in the library runs.
 */
#ifndef EDGE_BASE_H
#define EDGE_BASE_H

#include <pthread.h>
#include <stdbool.h>

#include "abi.h"
#include "edge.h"

#define SECOND INT64_C(1000000000)
#define MILLI INT64_C(1000000)
#define NEVER INT64_MAX

enum { MAX_NAME = ABI_STR };

/* What the layers tell those above them. device.c fills it in. */
struct above {
	bool (*completed)(edge_device *d, const struct abi_cqe *e); /* an entry of the ring. false: it cannot be right */
	void (*happened)(edge_device *d, const union abi_packet *m); /* an event of the daemon */
	void (*lost)(edge_device *d, int err, const char *why);     /* the daemon is, or it broke a rule */
	void (*attached)(edge_device *d);       /* to a daemon, the first or another */
	void (*ended)(edge_device *d, int err); /* all that lived by that daemon's leave */
	void (*due)(edge_device *d, int64_t now);
	int64_t (*next_due)(const edge_device *d); /* when due has something to do */
	void (*settle)(edge_device *d);         /* device.unsettled: does what can be done now */
	void (*forget)(edge_device *d, const edge_conn *c); /* c is about to be freed */
	bool (*unused)(const edge_device *d);   /* of a device that was closed: nothing of it is left */
	void (*free)(edge_device *d);           /* then. Unlocked */
};

/* The doorbell by which the daemon is woken. It is closed with the last count: a thread that rings it has let go of the
 * lock, and the number may be another file's once it is closed. */
struct bell { _Atomic int refs; int fd; };

/* Each part is its layer's. */
struct edge_device {
	pthread_mutex_t mu;
	edge_config cfg;
	char *socket, *name;
	int dead;          /* EDGE_ERR_CLOSED or EDGE_ERR_FORKED: for good */
	bool attached;
	bool lost, away;   /* on_change is to say that the daemon is lost; has said so */
	bool unsettled;    /* above.settle has something to do */
	bool orphan;       /* closed; freed with its last connection or stream */
	uint32_t epoch;    /* counts attachments */
	uint32_t window;
	uint64_t features; /* in force with this daemon */
	struct bell *due;  /* with a count: whoever unlocks next rings it. NULL: nobody need */
	const struct above *above;
	struct ring *ring;
	struct control *ctl;
	struct waiting *w;
	struct attachment *at;
	struct memory *mem;
	struct conns *conns;
	struct ops *ops;
	struct bounce *bounce;
	struct streams *streams;
	edge_device *next, *prev; /* fork.c */
};

struct bell *bell_new(int fd); /* takes fd over; NULL: no memory, and it does not */
void bell_due(edge_device *d, struct bell *b);
void bell_drop(struct bell *b);
void call_daemon(edge_device *d); /* rings what is due, with the lock held */

/* base.c, unlocked; enter locks, leave unlocks */
void unlock(edge_device *d); /* for a while */
void enter(edge_device *d);
int leave(edge_device *d, int result);
void watch_fd(int epoll, int fd, uint32_t events, int how);
int64_t now_ns(void);
int64_t deadline(int timeout_ms);
int64_t answer_by(int64_t until);
int check_name(const char *what, const char *name, bool empty);
void put_str(struct abi_str *to, const char *s);
void get_str(char *to, const struct abi_str *s);
int check_feature(const edge_device *d, uint64_t feature, const char *what);

/* error.c, unlocked */
int fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
void detail_stale(void);
int system_error(const char *call);
int status_error(uint32_t status, const char *text);

#endif
