/* Endpoints, and what is between two of them. */
#ifndef EDGE_OFI_ENDPOINT_H
#define EDGE_OFI_ENDPOINT_H

#include "../verbs/pages.h"
#include "queue.h"

#define CAPS (FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | \
              FI_REMOTE_WRITE | FI_RMA_EVENT | FI_FENCE)
#define TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)

/* --- mr.c --- */

struct mr {
	struct fid_mr fid;
	struct domain *d;
	struct mr *next;
	char *base;
	size_t size;
	uint64_t first; /* what peers call the first byte */
	uint64_t access;
	struct cntr *cntr; /* of what changes it */
	bool counted;   /* there may be one: our program must see each access */
	bool refused;   /* the daemon does not have it */
	int nsegs;      /* 0: it was not needed yet, or refused */
	uint64_t shared; /* its key, of libedge; 0: none */
	struct seg *segs[SEGMENTS];
};

extern struct fi_ops_mr mr_ops;
struct mr *mr_find(struct domain *d, uint64_t key);
bool mr_hold(struct mr *m); /* has the daemon have it */
void mr_begin(void);        /* after edge_open, unlocked */
void mr_sweep(struct fabric *f); /* before edge_device_close */

/* --- ep.c --- */

struct span { struct iovec iov[IOVS]; uint32_t n, at; size_t off; };

struct iovec span_piece(const struct span *s);
void span_skip(struct span *s, size_t n);
size_t span_set(struct span *s, const struct iovec *iov, size_t n); /* returns its length */

struct header { uint8_t kind, flags; uint16_t status; uint32_t id; uint64_t size, addr, key, data; };

enum sort { TELL, ASK, ANSWER }; /* what the peer does not answer; what it does; what answers it */

enum { SMALL = 24 }; /* bytes that libedge takes inline in one place of its queue */

struct op {
	struct work work;
	struct op *next;
	struct ep *ep;
	uint32_t id;
	enum sort sort;
	bool waits;     /* it is sent, and waits for the answer */
	bool native;    /* libedge has it */
	bool injected;  /* the program needs the bytes no more */
	bool streamed;  /* it cannot go by native.c */
	bool fenced;    /* it waits for the answers to all before it */
	struct header h;
	uint64_t flags; /* of the completion */
	bool quiet;     /* that is for failures alone */
	void *context;
	struct mr *mr;
	char *copy;     /* of injected bytes; of an atomic: where results go, a struct span, and its operands */
	struct span from;
	struct mr *local[IOVS]; /* what it lies in, as the program says; NULL: unknown */
	struct stage *stage;    /* registered memory that has it meanwhile */
	char small[SMALL];
	uint64_t was;           /* the result of an atomic of libedge */
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
	bool releasing; /* ops_release runs */
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

/* --- native.c --- */

struct native {
	edge_conn *conn;   /* NULL: there is none */
	bool joining;      /* the peer accepted it, and the program is told of the connection once we know */
	bool up, off;      /* off: an operation was refused, or it ended */
	bool gone;         /* the endpoint is closed: the program's memory may be, too */
	int64_t until;     /* when joining is given up */
	char token[TOKEN]; /* by which it belongs to the stream */
	uint32_t high;     /* the upper half of the peer's keys; 0: it has none */
	uint32_t pending, writes; /* operations under way; those of them that change the peer's memory */
};

void native_begin(struct domain *d, const struct fi_info *info);
bool native_dial(struct ep *e, const char *node, const char *service); /* begins to; false: none comes */
void native_accept(struct ep *e, edge_request *q);
bool native_is(const edge_request *q, char token[TOKEN]); /* whether the request is for one */
void native_join(struct ep *e);
void native_end(struct ep *e);                     /* at once; what is under way still has to come back */
bool native_drain(struct ep *e);                   /* waits until it has; false: it does not */
bool native_fits(const struct ep *e, const struct op *op);
int native_post(struct ep *e, struct op *op);      /* 0, EDGE_ERR_AGAIN, or another error: it does not go this way */
void stages_close(struct fabric *f);

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
	bool enabled, shut, stalled;
	uint64_t tx_flags, rx_flags;
	uint32_t tx_size;
	struct link link;
	struct ops ops;
	struct buffers rx;
	struct srx *srx; /* in its place */
	bool waits;      /* in srx->waiting */
	struct ep *next_waiting;
	struct native native;
	char *operands;  /* of an atomic that is being read: 2 * ATOMIC_BYTES, once there was one */
	struct inbound in;
	struct cm cm;
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
void op_abandon(struct ep *e, struct op *op, int err);  /* likewise: the connection has ended */
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
void ep_relieved(struct cq *cq);
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
	struct offer *offers;     /* of connections for native.c whose request has not come, the oldest first */
	uint32_t noffers;
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
	edge_request *native; /* that came with it; NULL: none */
	char token[TOKEN];    /* which it says */
	bool token_given;
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
void connreq_refuse(struct connreq *r); /* unless it is answered */
void connreq_drop(struct connreq *r);   /* and frees it */
struct connreq *connreq_of(fid_t handle);
void connreq_unwanted(struct fi_info *info);
void cm_step(struct ep *e);                        /* a stream that connects */
void cm_answered(struct ep *e, const struct header *h);
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
ssize_t post(struct fid_ep *fid, const struct header *h, const struct iovec *iov, void **desc, size_t n, char *copy,
             uint64_t flags, uint64_t completion, void *context); /* unlocked */
void header_put(char to[HEADER], const struct header *h);
struct header header_of(const char from[HEADER]);
void op_send(struct ep *e, struct op *op);
void op_keep(struct ep *e, struct op *op); /* after that or op_post: what could not be sent yet is copied */
void op_post(struct ep *e, struct op *op); /* the program's: once fences let it */
void ops_release(struct ep *e);            /* what fences do not hold any more */
bool ops_unsent(const struct ep *e);
void ep_shut(struct ep *e);                /* writes no more, if it is shut and all that was posted is sent */
void inbound_drop(struct ep *e);
void ep_write(struct ep *e);
void ep_read(struct ep *e);
void ep_step(struct ep *e);

/* --- atomic.c, unlocked --- */

extern struct fi_ops_atomic ep_atomic_ops;
bool atomic_native(const struct header *h, const char *in, edge_work *w); /* whether libedge has it */
bool atomic_good(const struct header *h);
int64_t atomic_answer(const struct header *h);
uint64_t atomic_access(const struct header *h);
uint64_t atomic_reach(const struct header *h); /* bytes of the owner's memory */
int atomic_perform(const struct header *h, char *memory, const char *in, char *results);
int query_atomic(struct fid_domain *d, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr,
                 uint64_t flags);

#endif
