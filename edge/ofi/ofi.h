/*
 * libedge-fi: the libfabric provider "edge", for endpoints of type FI_EP_MSG. Under ofi_rxm it gives FI_EP_RDM, tags
 * and address vectors, which is what MPI wants.
 *
 * Each connection of libfabric is a stream of libedge (PROTOCOL clause 11), or, since a daemon does not connect a node
 * to itself, a Unix socket to another process of this host. What stands in it is the provider's own
 * (wire.c): messages, and reads and writes of registered memory, which the owner's provider performs while its program
 * is in it. So any memory may be used and registered, at the cost of one copy at each side, and progress is manual.
 *
 *   info.c    what fi_getinfo tells           addr.c    addresses, and the names of nodes
 *   fabric.c  the device, progress, waiting   domain.c  domains, registered memory
 *   eq.c cq.c queues of events, completions   cntr.c    counters
 *   cm.c      connecting; pep.c: listening    ep.c      endpoints
 *   post.c    what programs post              atomic.c  atomics
 *   rx.c      buffers for messages            wire.c    what stands in streams
 *   link.c    streams, and sockets to processes of this host
 *
 * One lock for each fabric, fabric.mu, guards everything; functions here are called with it held, unless they are
 * libfabric's own or their comment says "unlocked".
 */
#ifndef EDGE_OFI_H
#define EDGE_OFI_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "edge.h"

enum {
	HEADER = 40,        /* bytes of a header in the stream */
	IOVS = 8,           /* pieces of local memory in one operation */
	CM_DATA = 256,      /* bytes that connect, accept and reject carry */
	SCRATCH = 32 << 10, /* where headers and short payloads are put together */
	INJECT = 16 << 10,
	TX_MOST = 1024, RX_MOST = 4096, /* operations, and buffers posted, on one endpoint */
	QUEUE_MOST = 65536, /* messages: see post.c */
	KEYS = 1024,        /* buckets of a domain's registered memory */
	REQUESTS = 128,     /* of peers to connect, that a passive endpoint holds */
	PENDING = 16,       /* sockets whose request has not arrived */
	REQUEST = 18 + CM_DATA, /* bytes of a request: see cm.c */
	STEP = 4 << 20,     /* bytes that one endpoint reads before the others have their turn */
	ATOMIC_BYTES = 4096, /* of the operand of an atomic */
	ORDERED = 4096,      /* of a read that no later write may overtake */
	CQ_MOST = 1 << 14   /* completions that wait to be read, beyond which peers cause no more by writes with data */
};

extern struct fi_provider edge_provider;
#define WARN(subsystem, ...) FI_WARN(&edge_provider, subsystem, __VA_ARGS__)

/* --- addr.c, unlocked: FI_SOCKADDR_IN6, an IPv6 address that has the node's identity in it, and a port --- */

typedef struct sockaddr_in6 address;

int self_load(void);                       /* asks the daemon who we are; 0 or a negative fi_errno */
const char *self_name(void);
void self_address(address *a, int port);
int node_address(address *a, const char *node, int port); /* of a node, by name, identity, IP address (run.map) */
int node_of(const address *a, char name[65]);             /* what to dial */
bool is_self(const address *a);
void addresses_free(void);
void identity_put(address *a, const unsigned char id[8], int port);
void identity_get(const address *a, unsigned char id[8]);
int fi_error(int edge_error);              /* a positive fi_errno for an error of libedge */

/* --- fabric.c --- */

struct ep;
struct pep;

/* What a queue has for those who sleep until something is in it. */
struct waiter {
	struct fabric *f;
	int epoll, event; /* -1: nobody may sleep */
	uint32_t sleepers;
	bool waiting, signalled;
};

/* What edge_changed and the epoll set of sockets return: the first member of what they are about. */
struct watched { enum { ENDPOINT, PASSIVE, REFUSAL, MORE } kind; };

struct fabric {
	struct fid_fabric fid;
	pthread_mutex_t mu;
	edge_device *dev;
	int refs;        /* domains, event queues, passive endpoints */
	int waiting;     /* waiters that somebody sleeps on */
	struct ep *ready; /* endpoints that have more to read than was their turn */
	int local;       /* an epoll set of the sockets to processes of this host */
	uint32_t nlocal, polls; /* connections among them; how often progress was asked for */
	struct waiter idle;     /* give_way */
	uint32_t vain;          /* questions since the last one that was answered */
	int64_t patience, asked_at, asked_since, busy_until; /* ns */
	struct refusal *refusals;
	struct connreq *requests;
	int more;        /* an eventfd in local: endpoints have more to read, whoever sleeps shall look */
	struct watched more_watched;
	bool fatal;      /* see connection_lost */
	char scratch[SCRATCH];
};

int waiter_open(struct waiter *w, struct fabric *f);
void waiter_close(struct waiter *w);
void waiter_tell(struct waiter *w);     /* something is in the queue */
bool waiter_arm(struct waiter *w);      /* false: there has been progress, look again */
bool waiter_settled(struct waiter *w);  /* nobody sleeps any more who has been told */
void waiter_sleep(struct waiter *w, int64_t timeout_ns); /* negative: without end */
int waiter_control(struct waiter *w, enum fi_wait_obj object, int command, void *arg);
int64_t left_ns(int64_t until);
int64_t until_ns(int timeout_ms);
void give_way(struct fabric *f);
void progress(struct fabric *f);
bool forked(struct fabric *f);
void connection_lost(struct fabric *f, int err);
int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

/* --- link.c: bytes in both directions --- */

struct link { edge_stream *stream; int fd; /* -1: it is a stream */ };

int link_error(struct link *l);        /* EDGE_ERR_AGAIN while it connects, 0, or why there is none */
ssize_t link_read(struct link *l, void *p, size_t n); /* as edge_stream_read without waiting */
ssize_t link_write(struct link *l, const void *p, size_t n);
void link_shut(struct link *l);        /* we write no more */
void link_cut(struct link *l);         /* at once, in both directions */
void link_close(struct fabric *f, struct link *l, bool whole); /* whole: what was written arrives */
int local_watch(struct fabric *f, int fd, struct watched *w);
void local_unwatch(struct fabric *f, int fd);
void local_close(struct fabric *f, int fd); /* and unwatches */
int local_listen(const address *a);    /* a socket, or a negative fi_errno */
int local_connect(const address *a);
int local_accept(int fd);              /* a socket of a process of the same user; -1: there is none */

/* --- cq.c, cntr.c, eq.c --- */

struct domain;

struct cq {
	struct fid_cq fid;
	struct domain *d;
	struct waiter w;
	enum fi_cq_format format;
	enum fi_wait_obj object;
	struct fi_cq_err_entry *ring; /* err 0: it went well */
	uint32_t size, head, tail;
	int refs;
	bool interrupted;
	bool crowded; /* endpoints stopped reading: see cq_takes */
};

int cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);
void cq_push(struct cq *cq, const struct fi_cq_err_entry *e);
bool cq_empty(const struct cq *cq);
bool cq_takes(struct cq *cq); /* one that nobody asked for; false: endpoints read on once there is room */

struct cntr {
	struct fid_cntr fid;
	struct domain *d;
	struct waiter w;
	enum fi_wait_obj object;
	uint64_t value, errors;
	uint64_t seen;   /* the value that was read last */
	uint64_t wanted; /* the least that somebody waits for */
	bool changed;    /* since cntr_news */
	int refs;
};

/* What is counted, which are bits in a row. */
#define COUNTED (FI_READ | FI_WRITE | FI_RECV | FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE)
enum { COUNTERS = 6 };
_Static_assert(COUNTED / FI_READ == (1 << COUNTERS) - 1, "in a row, and FI_READ is the first");

int cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
void cntr_count(struct cntr *c, bool failed); /* c may be NULL */
bool cntr_news(struct cntr *c);

struct event {
	struct event *next;
	uint32_t type;
	struct fi_eq_err_entry e; /* err 0: it is no error */
	struct fi_info *info;
	bool written;             /* by the program: data are its */
	size_t size;
	char data[];
};

struct eq {
	struct fid_eq fid;
	struct fabric *f;
	struct waiter w;
	enum fi_wait_obj object;
	struct event *first, **last;
	void *err_data;
	int refs;
};

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context);
/* type, or an error (positive, with prov_errno libedge's), with info (the event's) and data */
void eq_push(struct eq *eq, uint32_t type, fid_t fid, int err, int prov_errno, struct fi_info *info, const void *data,
             size_t size);
void eq_forget(struct eq *eq, fid_t fid);
bool eq_empty(const struct eq *eq);

/* --- domain.c --- */

struct mr {
	struct fid_mr fid;
	struct domain *d;
	struct mr *next;
	char *base;
	size_t size;
	uint64_t first; /* what peers call the first byte */
	uint64_t access;
	struct cntr *cntr; /* of what changes it */
};

struct domain {
	struct fid_domain fid;
	struct fabric *f;
	struct mr *mrs[KEYS];
	struct ep *eps;
	bool basic;   /* FI_MR_BASIC: virtual addresses, and keys of ours */
	int refs;
};

int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context);
struct mr *mr_find(struct domain *d, uint64_t key);

/* --- ep.c --- */

struct span { struct iovec iov[IOVS]; uint32_t n, at; size_t off; };

struct iovec span_piece(const struct span *s);
void span_skip(struct span *s, size_t n);
size_t span_set(struct span *s, const struct iovec *iov, size_t n); /* returns its length */

struct header { uint8_t kind, flags; uint16_t status; uint32_t id; uint64_t size, addr, key, data; };

enum sort { TELL, ASK, ANSWER }; /* what the peer does not answer; what it does; what answers it */

struct op {
	struct op *next;
	uint32_t id;
	enum sort sort;
	bool waits;     /* it is sent, and waits for the answer */
	bool fenced;    /* it waits for the answers to all before it */
	struct header h;
	uint64_t flags; /* of the completion */
	bool quiet;     /* that is for failures alone */
	void *context;
	struct mr *mr;
	char *copy;     /* of injected bytes; of an atomic: where results go, a struct span, and its operands */
	struct span from;
	uint64_t left;  /* bytes of payload to send */
	uint32_t head;  /* bytes of the header that are sent */
	char header[HEADER];
};

struct rx { struct span to; size_t size; void *context; bool asked; /* FI_COMPLETION */ };

/* What is being read. */
struct inbound {
	char header[HEADER];
	uint32_t got;
	struct header h;
	bool begun;     /* the header is known, and where the payload goes */
	bool dropped;   /* nowhere, and nothing follows: the endpoint is shut */
	uint64_t left, room;
	int status;     /* an error of libedge: the payload is dropped */
	struct span to;
	struct rx rx;   /* of a message */
	struct op *op;  /* of ours that it answers */
	struct mr *mr;  /* that it writes to */
};

enum ep_state { IDLE, CONNECTING, GREETING, ACCEPTING, CONNECTED, ENDED };

/* first: what the stream has no room for yet; held: what waits at a fence, and unanswered what it waits for. */
struct ops {
	struct op **table;
	uint32_t n, of;
	struct op *free, *first, **last, *held, **held_last;
	uint32_t count[3], unanswered;
};
struct buffers { struct rx *ring; uint32_t size, mask, head, tail; }; /* mask: of a power of two of places */

/* Buffers that endpoints share. */
struct srx {
	struct fid_ep fid;
	struct domain *d;
	struct buffers rx;
	struct ep *waiting, **last; /* for a buffer, in the order of their messages */
	uint64_t flags;
	int refs;
};

struct cm { struct connreq *request; address self, peer; size_t size; char data[CM_DATA]; };

struct ep {
	struct watched watched;
	struct fid_ep fid;
	struct domain *d;
	struct eq *eq;
	struct cq *tx_cq, *rx_cq;
	bool tx_selective, rx_selective;
	struct cntr *cntrs[COUNTERS]; /* see ep_cntr */
	enum ep_state state;
	bool enabled, shut, stalled, queued;
	uint64_t tx_flags, rx_flags;
	uint32_t tx_size;
	struct link link;
	struct ops ops;
	struct buffers rx;
	struct srx *srx; /* in its place */
	bool waits;      /* in srx->waiting */
	struct ep *next_waiting;
	char *operands;  /* of an atomic that is being read: 2 * ATOMIC_BYTES, once there was one */
	struct inbound in;
	struct cm cm;
	struct ep *ready;
	struct ep *next, **at;
};

int ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
void ep_end(struct ep *e, int err); /* an error of libedge; 0: the peer closed in good order */
void ep_drop_buffers(struct ep *e); /* for messages: they come back, also the one that is being filled */
struct cntr *ep_cntr(const struct ep *e, uint64_t flags); /* NULL: nobody counts that */
/* Counts what the flags of c say, and puts it into the queue, unless it is quiet and went well. */
void ep_tell(struct ep *e, struct cq *cq, const struct fi_cq_err_entry *c, bool quiet);
/* NULL: there are so many of the sort, or no memory */
struct op *op_get(struct ep *e, enum sort sort, uint32_t most);
void op_free(struct ep *e, struct op *op);
void op_complete(struct ep *e, struct op *op, int err); /* and frees it */
void rx_complete(struct ep *e, const struct rx *rx, const struct header *h, uint64_t size, int err);
void ep_forget_mr(struct ep *e, struct mr *mr);
int ep_enable(struct ep *e);
int ep_getopt(fid_t fid, int level, int name, void *value, size_t *size);
int ep_setopt(fid_t fid, int level, int name, const void *value, size_t size);
int no_ctx_tx(struct fid_ep *s, int index, struct fi_tx_attr *attr, struct fid_ep **ep, void *context);
int no_ctx_rx(struct fid_ep *s, int index, struct fi_rx_attr *attr, struct fid_ep **ep, void *context);

/* --- rx.c --- */

int buffers_open(struct buffers *b, size_t wanted);
bool rx_take(struct ep *e, struct rx *rx);
void rx_leave(struct ep *e);
void ep_resume(struct ep *e);
ssize_t ep_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context);
ssize_t ep_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t n, fi_addr_t from, void *context);
ssize_t ep_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags);
ssize_t ep_cancel(fid_t fid, void *context);
ssize_t ep_rx_left(struct fid_ep *fid);
int srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **ep, void *context);

/* --- cm.c, pep.c --- */

struct pep {
	struct watched watched;
	struct fid_pep fid;
	struct fabric *f;
	struct eq *eq;
	struct fi_info *info;
	address self;
	edge_listener *listener;
	int fd;                   /* for processes of this host */
	uint32_t nrequests;       /* that the program has not answered */
	int pending[PENDING];     /* sockets that have not said yet what they want */
	uint32_t npending;
	bool failed;              /* the program was told that the daemon does not offer the service any more */
};

/* A peer's wish to connect: info.handle of FI_CONNREQ. Once it is answered nothing but the handle is left of it, which
 * the program may still reject: pep is NULL, as are request and, -1, fd. */
struct connreq {
	struct fid fid;
	struct fabric *f;
	struct pep *pep;
	struct ep *ep; /* that was made for it */
	edge_request *request;
	int fd;
	address peer;
	struct connreq *next, **at; /* in fabric.requests */
};

/* A stream that carries nothing but K_REJECT. */
struct refusal {
	struct watched watched;
	struct fabric *f;
	struct link link;
	size_t size, sent;
	struct refusal *next;
	char bytes[];
};

extern struct fi_ops_cm ep_cm_ops;
int pep_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context);
void pep_step(struct pep *p);
void connreq_refuse(struct connreq *r); /* unless it is answered */
void connreq_drop(struct connreq *r);   /* and frees it */
struct connreq *connreq_of(fid_t handle);
void cm_step(struct ep *e);                        /* a stream that connects */
void cm_answered(struct ep *e, bool accepted);
void refusal_step(struct refusal *r);
void refusals_drop(struct fabric *f);
size_t request_size(const char *p);
int address_out(const address *a, void *to, size_t *size);

/* --- post.c, wire.c --- */

enum kind { K_MESSAGE = 1, K_WRITE, K_READ, K_DATA, K_DONE, K_ACCEPT, K_REJECT, K_ATOMIC };
enum { F_DATA = 1, F_ANSWER = 2 }; /* header.flags: data counts; K_DONE is asked for */

/* In the flags of post: no completion unless it fails, whatever the endpoint says. A bit that no program has. */
#define SILENT ((uint64_t)1 << 63)
#define INJECTED (FI_INJECT | SILENT)

extern struct fi_ops_msg ep_msg_ops;
extern struct fi_ops_rma ep_rma_ops;
ssize_t post(struct fid_ep *fid, const struct header *h, const struct iovec *iov, size_t n, char *copy,
             uint64_t flags, uint64_t completion, void *context); /* unlocked */
void header_put(char to[HEADER], const struct header *h);
struct header header_of(const char from[HEADER]);
void op_send(struct ep *e, struct op *op);
void op_keep(struct ep *e, struct op *op); /* after that or op_post: what could not be sent yet is copied */
void op_post(struct ep *e, struct op *op); /* the program's: once fences let it */
void ops_release(struct ep *e);            /* what fences do not hold any more */
bool ops_unsent(const struct ep *e);
void inbound_drop(struct ep *e);
void ep_write(struct ep *e);
void ep_read(struct ep *e);
void ep_step(struct ep *e);

/* --- atomic.c, unlocked --- */

extern struct fi_ops_atomic ep_atomic_ops;
bool atomic_good(const struct header *h);
int64_t atomic_answer(const struct header *h);
uint64_t atomic_access(const struct header *h);
uint64_t atomic_reach(const struct header *h); /* bytes of the owner's memory */
int atomic_perform(const struct header *h, char *memory, const char *in, char *results);
int query_atomic(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                 uint64_t flags);

/* --- info.c --- */

#define CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | \
              FI_REMOTE_WRITE | FI_RMA_EVENT | FI_FENCE)
#define TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

int no_bind(struct fid *fid, struct fid *bound, uint64_t flags);
int no_control(struct fid *fid, int command, void *arg);
int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif
