/*
 * librdmacm: connections by IP address and port. A listener at a port is the service rdma/PORT; the connection that
 * is dialled there becomes that of the queue pairs, which is why neither side dials for them. Which node an address
 * belongs to is said by the map that edge-run has as well. The private data of the program travel with the dial,
 * behind a struct of ours.
 *
 * Of datagrams (RDMA_PS_UDP) the service is rdma/uPORT. It tells the number and the Q_Key of a queue pair, and the
 * connection ends.
 *
 *   event.c     channels, and the events in them
 *   id.c        identifiers and their addresses
 *   connect.c   listening, dialling, accepting, and the ends
 *   endpoint.c  queue pairs of identifiers, and the synchronous interface
 *   rsocket.c   rsockets: streams of libedge by IP address and port; rdata.c their bytes, and rpoll (rs.h)
 *   text.c      words
 *
 * The lock is libibverbs'.
 */
#ifndef EDGE_VERBS_CM_H
#define EDGE_VERBS_CM_H

#include <rdma/rdma_cma.h>

#include "qp.h"

enum { PRIVATE = 255 };
#define IS_UD(v) ((v)->id.ps == RDMA_PS_UDP)

struct greeting { /* in dial and accept */
	char magic[4];
	uint32_t qpn, high;     /* of the queue pair; half of its domain's keys, or its Q_Key */
	unsigned char ip[16];   /* of the dialling side, IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
	uint8_t size;           /* of data */
	uint8_t responder, initiator, rnr;
	unsigned char data[PRIVATE];
};

enum standing { IDLE, LISTENING, ASKED, CALLING, ANSWERED, UP, OVER };

struct id {
	struct rdma_cm_id id;
	struct id *next;
	enum standing standing;
	struct id *from;        /* the listener that was asked, until the program has the event */
	bool alone;             /* has no channel of the program's: calls wait */
	bool chosen;            /* the port is ours to choose */
	char node[65];          /* of the peer, as it is dialled */
	edge_listener *listener; /* NULL in LISTENING: its twin has it */
	edge_request *request;  /* to be answered */
	edge_conn *conn;        /* dialled */
	bool lent;              /* and it is that of a queue pair, which frees it */
	struct greeting peer, ours; /* what the other side said; what we say to who is dialled */
	int64_t until, again;   /* ms: when a listener must be there; when it is dialled anew */
	uint8_t rnr;            /* retries that rdma_connect or rdma_accept named */
	uint32_t qpn;           /* of a queue pair that the program made by itself; 0: there is none */
	unsigned told;          /* events that are not acknowledged */
	struct ibv_qp_init_attr *wanted; /* of a passive endpoint: for the identifiers of requests */
	struct ibv_pd *wanted_pd;
};

struct cm_event {
	struct event e;
	struct rdma_cm_event cm;
	unsigned char data[PRIVATE];
};

struct cm_channel { struct rdma_event_channel channel; struct inbox inbox; };

/* id.c: who listens at the same port for the other family of addresses: a service is of both. */
struct id *twin(const struct id *v);

/* event.c */
void tell(struct id *about, struct id *listen, enum rdma_cm_event_type type, int status, const struct greeting *g);
int await(struct id *v); /* unlocked: for an identifier without a channel, its next event. 0, or -1 with errno */

/* id.c */
extern struct id *ids;
struct ibv_context *cm_context(void); /* unlocked; NULL with errno */
struct ibv_pd *cm_pd(void);
struct id *id_make(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
int fails(int error);    /* -1, and errno */
uint16_t port_of(const struct sockaddr *a);
void set_port(struct sockaddr *a, uint16_t port);
void choose_port(struct id *v);
void write_ip(const struct sockaddr *a, unsigned char ip[16]);
void read_ip(struct sockaddr *a, const unsigned char ip[16], uint16_t port);

/* connect.c */
bool cm_look(void);      /* a watcher */

#endif
