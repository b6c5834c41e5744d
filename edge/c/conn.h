/* Connections: conn.c their life, listener.c services, import.c memory that is exported on them, notify.c
 * notifications. */
#ifndef EDGE_CONN_H
#define EDGE_CONN_H

#include "region.h"
#include "waiting.h"

struct note { uint64_t key, off; uint32_t imm, len; };

/* What a connection tells the layer above that has it, instead of the program. */
struct conn_user {
	void (*advance)(edge_conn *c);                /* something changed */
	void (*completed)(edge_conn *c, int err);     /* an operation did */
	void (*failed)(edge_conn *c, int err);        /* one that was done locally */
	void (*arrived)(edge_conn *c, const struct note *n);
	bool (*pay)(edge_conn *c);                    /* says what is owed. false: there is no room */
	void (*settled)(edge_conn *c);                /* nothing is owed any more */
	void (*dialled)(edge_conn *c, int err);
	void (*accepted)(edge_conn *c, int err);
	void (*dead)(edge_conn *c);                   /* the device is */
};

/* What a listener tells the layer above that accepts for it. */
struct listener_user {
	void (*requests)(edge_listener *l); /* there is one */
	void (*closed)(edge_listener *l);
};

enum conn_state { DIALLING, ASKED, ACCEPTING, OPEN, ENDED };

struct ending { /* conn.c */
	bool last;     /* no notification comes any more */
	bool aborting;
	bool closing;
	bool leaving;  /* closing, and the close is to be sent once nothing is in flight */
	bool looked;   /* closing, and nobody waits for it: edge_conn_close may be called again */
	bool closed;   /* the reply to close or abort came, or need not */
	bool listed;   /* under its number */
	bool released; /* the program has no more use for it */
};

struct greeting { /* conn.c */
	char *peer, *dialled, *service; /* the peer as it calls itself; as it was dialled, which the program may know */
	char node[ABI_STR + 1]; /* its identity; empty: not known yet */
	char *reason;  /* with which the service refused it; NULL: it did not */
	void *data;
	size_t data_size;
	uint32_t user; /* who dialled from this node, and 1; 0: another node */
	uint32_t domain; /* to belong to, once accepted */
};

struct load { /* what keeps it from being freed, and late failures */
	uint32_t inflight, posted; /* operations, receives */
	uint32_t calls;            /* replies whose handlers name it */
	int nlate, late;           /* writes that failed after they were done locally; how the first did */
};

struct notes { struct note *ring; uint32_t head, tail, owed; bool owes; }; /* notify.c; owes: it is in conns.owing */

struct shares { /* import.c */
	edge_remote *remotes, *withdrawn; /* of which the program knows */
	uint32_t nremotes;
	edge_export *exports;
	uint32_t exporting; /* exports that are not answered */
};

struct edge_conn {
	edge_device *d;
	uint32_t id, epoch;
	enum conn_state state;
	int err; /* why it ended */
	struct ending end;
	struct greeting who;
	struct load work;
	struct notes notes;
	struct shares memory;
	const struct conn_user *user; /* NULL: the program's */
	void *owner;                  /* user's */
	edge_conn *hash, *owing, *next, **at;
};

struct orphan { struct orphan *next; struct abi_cqe e; };

enum { CONN_BUCKETS = 4096 };

struct conns {
	edge_conn *table[CONN_BUCKETS];
	edge_conn *all;   /* connections that are not freed */
	edge_conn *owing; /* which need room in the ring */
	bool ring_full;
	struct orphan *orphans; /* notifications */
	uint32_t norphans, dialling, serial;
	edge_listener *listeners;
	int64_t relisten_at, relisten_until;
};

struct edge_remote {
	edge_conn *c;
	uint64_t key, size;
	uint32_t perm, number, held; /* held: so often the program has it */
	bool revoked;
	edge_remote *next;
	char name[MAX_NAME + 1];
};

struct edge_export {
	edge_conn *c;
	edge_region *region;
	uint64_t key;
	size_t off, size;
	uint32_t asked; /* requests to revoke it that are not answered */
	bool revoked;
	bool freed;     /* by the program: it goes with the last answer */
	edge_export *next;
	char name[MAX_NAME + 1];
};

struct edge_listener {
	edge_device *d;
	int err;
	bool offered, known; /* to this daemon; to any, so that the next one is asked as well */
	uint32_t serial;
	struct edge_request *requests, **last_request;
	uint32_t nrequests;
	const struct listener_user *user; /* NULL: the program accepts */
	uint32_t backlog, nready, nopening; /* these are user's */
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

/* conn.c */
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
void conn_completed(edge_conn *c, int err);
int conn_dial(edge_conn *c, struct abi_dial *m, int64_t until);
int fill_dial(struct abi_dial *m, const char *peer, const char *service, const edge_dial_options *o,
              const char *prefix);
void conns_ended(edge_device *d, const struct abi_closed *m, bool last);
void conns_fail(edge_device *d, int err);
void conns_dead(edge_device *d);

/* import.c */
void advertised(edge_device *d, const struct abi_advert *m);
void withdrawn(edge_device *d, uint32_t conn, uint64_t key);
edge_remote *remote_find(edge_conn *c, const char *name);
void imports_free(edge_conn *c);
int send_export(edge_region *r, edge_conn *c, const char *name, int perm, size_t off, size_t size, call_fn fn,
                void *obj);

/* listener.c */
void incoming(edge_device *d, const struct abi_incoming *m);
int listen_on(edge_device *d, const char *service, const struct listener_user *user, uint32_t backlog,
              edge_listener **listener, int64_t until);
edge_request *request_take(edge_listener *l);
void refuse(edge_conn *c, const char *reason);
int conn_accept(edge_conn *c, const void *data, size_t size);
void offer_all(edge_device *d);
void offers_end(edge_device *d);
void offers_due(edge_device *d, int64_t now);

/* notify.c */
bool notified(edge_device *d, const struct abi_cqe *e);
bool notes_push(edge_conn *c, const struct abi_cqe *e);
void return_credit(edge_conn *c);
void pay_owing(edge_device *d);

#endif
