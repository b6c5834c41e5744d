/*
 * libedge-fi: the libfabric provider "edge", for endpoints of type FI_EP_MSG. Under ofi_rxm it gives FI_EP_RDM, tags
 * and address vectors, which is what MPI wants.
 *
 * Each connection of libfabric is a stream of libedge (PROTOCOL clause 11), or, since a daemon does not connect a node
 * to itself, a Unix socket to another process of this host. What stands in it is the provider's own (wire.c): messages,
 * and reads, writes and atomics of registered memory, which the owner's provider performs while its program is in it.
 * So any memory may be used and registered, at the cost of one copy at each side, and progress is manual.
 *
 * Where keys are the provider's (FI_MR_PROV_KEY), the daemon has registered memory as well, if it can have it, and
 * reads, writes and atomics of integers are operations of libedge (native.c), without the owner's program.
 *
 * The layers, from below, each with a header of its own. None includes or calls one above it (make layers); what layers
 * above are told goes through pointers to functions.
 *
 *   base      addr.c addresses, and the names of nodes; none.c what the provider does not offer
 *   fabric    fabric.c progress and waiting; link.c streams, and sockets to processes of this host
 *   queue     eq.c, cq.c queues of events and completions; cntr.c counters
 *   endpoint  ep.c endpoints; post.c what programs post; rx.c buffers for messages; wire.c what stands in streams;
 *             native.c operations of libedge; atomic.c atomics; mr.c registered memory, with ../verbs/pages.h; cm.c
 *             connecting; pep.c listening
 *   provider  open.c fabrics; domain.c domains; info.c what fi_getinfo tells
 *
 * One lock for each fabric, fabric.mu, guards everything; functions here are called with it held, unless they are
 * libfabric's own or their comment says "unlocked".
 */
#ifndef EDGE_OFI_ADDR_H
#define EDGE_OFI_ADDR_H

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
	TOKEN = 16,         /* see native.c */
	ASK_MS = 2000,      /* for the daemon to answer */
	REQUEST = 18 + CM_DATA + TOKEN, /* bytes of a request at most: see cm.c */
	STEP = 4 << 20,     /* bytes that one endpoint reads before the others have their turn */
	ATOMIC_BYTES = 4096, /* of the operand of an atomic */
	ORDERED = 4096,      /* of a read that no later write may overtake */
	CQ_MOST = 1 << 14   /* completions that wait to be read, beyond which peers cause no more by writes with data */
};

extern struct fi_provider edge_provider;
#define WARN(subsystem, ...) FI_WARN(&edge_provider, subsystem, __VA_ARGS__)

/* addr.c, unlocked: FI_SOCKADDR_IN6, an IPv6 address that has the node's identity in it, and a port */

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

/* none.c, unlocked */
int no_bind(struct fid *fid, struct fid *bound, uint64_t flags);
int no_control(struct fid *fid, int command, void *arg);
int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif
