/* Registered memory (ABI A7.3 to A7.5): region.c. */
#ifndef EDGE_REGION_H
#define EDGE_REGION_H

#include "control.h"

struct job { /* one registration under way */
	struct job *next;
	edge_region *region;
	int memfd; /* of the client, sent along; -1: the daemon makes the memory */
	void (*fn)(edge_device *, struct job *, int err);
	void *obj;
	int err;
	bool done;
};

struct memory {
	edge_region *regions;
	struct job *jobs, **last_job; /* the first is under way while job_runs */
	bool job_runs;
};

enum region_kind { DAEMONS, ADOPTED, CALLERS, GRANTED };

struct edge_region {
	edge_device *d;
	uint32_t epoch, id;
	size_t size, mapped;
	char *bytes;
	enum region_kind kind;
	uint32_t inflight;
	bool closed;
	edge_region *next, **at;
};

void job_start(edge_device *d, struct job *j);
void jobs_fail(edge_device *d, int err);
edge_region *region_new(edge_device *d, size_t size, enum region_kind kind);
int region_make(edge_region *r);
int region_release(edge_region *r);
void region_unmap(edge_region *r);
void regions_free(edge_device *d);

#endif
