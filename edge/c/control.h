/* The control socket (ABI A3 to A5). */
#ifndef EDGE_CONTROL_H
#define EDGE_CONTROL_H

#include "base.h"

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

struct control {
	int fd, epoll;       /* epoll: the set that has fd */
	bool ready;          /* hello was answered */
	bool want_out;       /* epoll watches for room */
	bool dropped;        /* the kernel dropped descriptors of the latest packet */
	struct call **calls; /* by the low bits of id; NULL: free */
	uint32_t ncalls, hint;
	uint64_t serial;
	uint32_t received;   /* packets of this daemon's */
	struct packet *first, **last;
};

int control_send(edge_device *d, void *packet, size_t size, enum abi_kind kind, int fd, call_fn fn, void *obj,
                 uint32_t num);
void control_tell(edge_device *d, void *packet, size_t size, enum abi_kind kind); /* nobody wants the reply */
enum told { UNTOLD = -1, NOTHING, SOMETHING }; /* UNTOLD: by a daemon that does not count */
enum told control_told(const edge_device *d);
bool control_receive(edge_device *d);
void control_flush(edge_device *d);
void control_close(edge_device *d, int err);
void control_free(struct control *k);
int no_descriptor(const edge_device *d);

#endif
