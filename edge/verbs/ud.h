/* Datagrams: queue pairs of the type UD, and the connections that carry what they send. */
#ifndef EDGE_VERBS_UD_H
#define EDGE_VERBS_UD_H

#include "qp.h"

enum { UD_MTU = 4096, GRH = 40 }; /* bytes: of a datagram at most; before it in the receiver's memory */

struct head { /* before a datagram on its connection */
	uint32_t to, from, key, imm; /* numbers of queue pairs, the Q_Key, the immediate */
	uint8_t has_imm, solicited, unused[2];
	union ibv_gid from_gid, to_gid;
};

/* ah.c */
struct ah { /* an address handle */
	struct ibv_ah ah;
	unsigned refs; /* the program's, and one of each work request */
	uint8_t sgid_index;
	union ibv_gid gid;
	char node[65]; /* as it is dialled */
};
/* Makes that of a datagram of size bytes, and returns what its completion has for a service level. */
uint8_t grh_write(struct ibv_grh *g, const struct head *h, size_t size);

/* peer.c */
extern const char ud_magic[4]; /* what is said by who dials */
struct peer; /* a process */
int peers_open(void);  /* once more a queue pair takes datagrams: 0 or an error of libedge */
void peers_close(void); /* one less */
void peers_forked(void);
bool peers_look(void); /* returns whether something is on its way */
void peer_accept(edge_request *r);
/* Sends a datagram of size bytes to the process of that slot. 0: w tells when it is gone. EDGE_ERR_AGAIN: not yet;
 * libedge has no room, or the process is being dialled. Otherwise it is lost. */
int peer_send(const struct ah *a, uint32_t slot, const struct stage *stage, size_t size, struct work *w);
void peer_heard(const edge_completion *c); /* such a datagram is gone */
/* Replaces a GID that is not of the process's node by one that is. */
void peer_gid(struct peer *p, union ibv_gid *gid);

/* ud.c */
int ud_issue(struct qp *q, struct send *s); /* as those of other queue pairs */
void ud_deliver(struct peer *from, char *bytes, size_t n); /* which it may overwrite */

#endif
