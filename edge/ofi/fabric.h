/* fabric.c: progress and waiting; link.c: bytes in both directions. */
#ifndef EDGE_OFI_FABRIC_H
#define EDGE_OFI_FABRIC_H

#include "addr.h"
#include "idle.h"

/* What a queue has for those who sleep until something is in it. */
struct waiter {
	struct fabric *f;
	int epoll, event; /* -1: nobody may sleep */
	uint32_t sleepers;
	bool waiting, signalled;
};

/* What edge_changed and the epoll set of sockets return: the first member of what they are about. */
struct watched {
	void (*step)(struct watched *w); /* something happened to it. NULL: nothing is to be done */
	bool queued;          /* in fabric.ready */
	struct watched *ready;
};

/* What edge_completions returns: the first member of what an operation of libedge is about. */
struct work { void (*done)(struct work *w, const edge_completion *c); };

/* A program that asks again and again whether there is something: give_way. */
struct asking {
	struct waiter waiter;
	struct idle idle;
	bool patient;   /* never give way */
	uint32_t vain;  /* questions since the last one that was answered */
	int64_t at, since; /* the latest of them, and the first that nothing else came between */
};

struct fabric {
	struct fid_fabric fid;
	pthread_mutex_t mu;
	edge_device *dev;
	int refs;        /* domains, event queues, passive endpoints */
	int waiting;     /* waiters that somebody sleeps on */
	struct watched *ready; /* endpoints that have more to read than was their turn */
	int local;       /* an epoll set of the sockets to processes of this host */
	uint32_t nlocal, polls; /* connections among them; how often progress was asked for */
	struct asking asking;
	void (*unwanted)(struct fi_info *info); /* nobody takes the request to connect that it tells of */
	struct refusal *refusals;
	struct connreq *requests;
	uint32_t working; /* operations of libedge that are under way */
	struct stages *stages; /* see native.c */
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
void queue_step(struct fabric *f, struct watched *w); /* it has more to read than was its turn */
void unqueue_step(struct fabric *f, struct watched *w);
void finish_work(struct fabric *f, int timeout_ms); /* of those, waiting for the first */
void connection_lost(struct fabric *f, int err);

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

#endif
