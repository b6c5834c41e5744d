/* eq.c, cq.c, cntr.c: what programs read, and the domain that these belong to. */
#ifndef EDGE_OFI_QUEUE_H
#define EDGE_OFI_QUEUE_H

#include "fabric.h"

struct cq;

struct domain {
	struct fid_domain fid;
	struct fabric *f;
	struct mr *mrs[KEYS];
	struct ep *eps;
	void (*relieved)(struct cq *cq); /* there is room in one that was crowded */
	bool virtual; /* FI_MR_VIRT_ADDR: peers name memory by its addresses */
	bool keys;    /* FI_MR_PROV_KEY: keys are ours */
	bool local;   /* FI_MR_LOCAL: the program says which registered memory it names */
	uint32_t number, high; /* of libedge, and the upper half of its keys; high 0: peers have none (native.c) */
	int refs;
};

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
/* type, or an error (positive, with prov_errno libedge's), with info (the event's) and data. false: the event is lost,
 * and info is not the event's */
bool eq_push(struct eq *eq, uint32_t type, fid_t fid, int err, int prov_errno, struct fi_info *info, const void *data,
             size_t size);
void eq_forget(struct eq *eq, fid_t fid);
bool eq_empty(const struct eq *eq);

#endif
