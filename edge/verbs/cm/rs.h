/* rsockets: the calls of sockets, on streams of libedge (PROTOCOL clause 11). */
#ifndef EDGE_VERBS_RS_H
#define EDGE_VERBS_RS_H

#include <rdma/rsocket.h>

#include "cm.h"

/* A socket. Its number is a descriptor, of which nothing is read: so no other file has the same. */
struct rs {
	int fd;
	bool nonblock, dialling;
	bool closed;     /* rclose was called; by whoever uses it last it is freed. Under the lock, as users is */
	unsigned users;  /* threads in raccept */
	edge_listener *listener;
	edge_stream *stream;
	struct sockaddr_storage ours, peer; /* of family 0: there is none */
	struct rio *io;  /* riomap.c; NULL: it has no mapped memory */
};

struct rs *rs_find(int fd);              /* NULL with errno: there is none */
int rs_failed(int err);                  /* -1, and errno for an error of libedge */
/* The stream of a connected socket; NULL with errno. One that is being dialled is waited for, if it may be. */
edge_stream *rs_stream(struct rs *s, bool waits);
short rs_events(struct rs *s, short wanted); /* as poll has them */
/* rdata.c: who asks again and again, without waiting, gives way as who polls a completion queue (cq.c). */
void rs_asked(bool in_vain);

/* riomap.c */
int rio_room(struct rs *s, int entries); /* of the peer's mapped memory, before it is connected: 0, or -1 with errno */
int rio_room_of(const struct rs *s);
void rio_offer(struct rs *s);            /* the socket is connected */
bool rio_full(struct rs *s);             /* riowrite has no room now */
void rio_free(struct rs *s);

/* Threads are not cancelled in the rest of a function, which waits in libedge, with locks of this library. */
static inline int cancel_later(void)
{
	cancel_off();
	return 0;
}

static inline void cancel_now(const int *later)
{
	(void)later;
	cancel_on();
}

#define UNCANCELLED __attribute__((cleanup(cancel_now), unused)) const int later_ = cancel_later()

#endif
