/* The registered memory of streams: its receive ring, and behind it the send buffer. Memory of streams that ended is
 * kept for the next ones. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stream.h"

enum { SPARE = 32 };

/* Where the program does not say how long a buffer is, those of a device's first streams are long: program and daemon
 * give the core to each other less often then. */
enum { EARLY_STREAMS = 4, EARLY = 2 << 20, LATER = 512 << 10 };

/* Bytes of a stream's memory, whose buffers have so many each where the program does not say. */
static size_t memory_size(const edge_device *d, uint32_t each)
{
	uint32_t in = d->cfg.receive_buffer, out = d->cfg.send_buffer;
	return (size_t)(in != 0 ? in : each) + (out != 0 ? out : each);
}

/* Bytes of the memory of one that has so many others beside it, those that are still dialled included. */
static size_t next_size(const edge_device *d, uint32_t others)
{
	return memory_size(d, others < EARLY_STREAMS ? EARLY : LATER);
}

/* Its memory, which may have been another one's, says how long its buffers are. */
static void take(edge_stream *s, edge_region *r)
{
	uint32_t in = s->d->cfg.receive_buffer, out = s->d->cfg.send_buffer, size = (uint32_t)r->size;
	s->region = r;
	s->ring = in != 0 ? in : out != 0 ? size - out : size / 2;
	s->out.size = size - s->ring;
	s->d->streams->nfurnished++;
}

/* Clears what the peer wrote into the ring, so that another one that lies about positions has nobody else's bytes read.
 * After Fin that is what the peer said, since every byte was in place before (clause 11.4), and what it began the next
 * stream with (11.9), of which we may not have heard. What a peer wrote elsewhere is no secret of another. */
static void wipe(const edge_stream *s)
{
	uint64_t n = s->in.used > s->in.tail ? s->in.used : s->in.tail;
	if (n < EDGE_STREAM_OPENING)
		n = EDGE_STREAM_OPENING;
	memset(s->region->bytes, 0, s->in.fin && n < s->ring ? n : s->ring);
}

/* Takes the memory of a stream that is over. */
void memory_keep(edge_stream *s)
{
	edge_device *d = s->d;
	edge_region *r = s->region;
	d->streams->nfurnished -= r != NULL;
	if (r != NULL && d->streams->nspare < SPARE && r->epoch == d->epoch && d->attached && d->dead == 0) {
		wipe(s);
		r->next = d->streams->spare;
		d->streams->spare = r;
		d->streams->nspare++;
	} else if (r != NULL)
		region_release(r);
}

/* What a registration leaves: nothing, if it failed, but memory. */
static edge_region *made(struct job *j, int err)
{
	if (j->memfd >= 0)
		close(j->memfd);
	j->memfd = -1;
	if (err == 0)
		return j->region;
	region_unmap(j->region);
	free(j->region);
	return NULL;
}

/* Whether a registration that went beyond a limit begins again with less. */
static bool again(edge_device *d, struct job *j, int err)
{
	size_t less = memory_size(d, LATER);
	if ((err != EDGE_ERR_LIMIT && err != EDGE_ERR_MEMLOCK) || j->region->size <= less)
		return false;
	edge_region *r = region_new(d, less, DAEMONS);
	if (r == NULL)
		return false;
	made(j, err);
	j->region = r;
	j->memfd = region_make(r);
	j->done = false;
	job_start(d, j);
	return true;
}

static void job_done(edge_device *d, struct job *j, int err)
{
	edge_stream *s = j->obj;
	if (again(d, j, err))
		return;
	edge_region *r = made(j, err);
	if (r != NULL)
		take(s, r);
	stream_has_memory(s, err);
	if (s->closed)
		stream_step(s);
}

static void reserved(edge_device *d, struct job *j, int err)
{
	struct streams *x = d->streams;
	edge_stream *s = x->heir;
	if (again(d, j, err))
		return;
	j->obj = NULL;
	x->heir = NULL;
	if (s != NULL) {
		s->job = (struct job){ .region = j->region, .memfd = j->memfd, .fn = job_done, .done = true, .obj = s };
		job_done(d, &s->job, err);
		return;
	}
	edge_region *r = made(j, err);
	if (r != NULL) {
		r->next = x->spare;
		x->spare = r;
		x->nspare++;
	}
}

/* Registers memory for the next stream, unless there is some. For the first one, which may be dialled already, less:
 * many processes have one stream, or none yet, and it is soonest there. */
static void reserve(edge_device *d)
{
	struct streams *x = d->streams;
	if (x->spare != NULL || x->ahead.obj != NULL || d->dead != 0 || !d->attached)
		return;
	edge_region *r = region_new(d, x->nfurnished == 0 ? memory_size(d, LATER) : next_size(d, x->nstreams), DAEMONS);
	if (r == NULL)
		return;
	x->ahead = (struct job){ .region = r, .memfd = region_make(r), .fn = reserved, .obj = x };
	job_start(d, &x->ahead);
}

void edge_stream_reserve(edge_device *d)
{
	enter(d);
	reserve(d);
	leave(d, 0);
}

/* Gets memory: of a stream that ended, or registered in advance, or from the daemon. */
int memory_get(edge_stream *s)
{
	edge_device *d = s->d;
	edge_region *r = d->streams->spare;
	if (r != NULL) {
		d->streams->spare = r->next;
		d->streams->nspare--;
		r->next = NULL;
		take(s, r);
		stream_has_memory(s, 0);
		return 0;
	}
	if (d->streams->ahead.obj != NULL && d->streams->heir == NULL) {
		d->streams->heir = s;
		s->job.done = false;
		return 0;
	}
	r = region_new(d, next_size(d, d->streams->nstreams - 1), DAEMONS);
	if (r == NULL)
		return EDGE_ERR_NO_MEMORY;
	s->job = (struct job){ .region = r, .memfd = region_make(r), .fn = job_done, .obj = s };
	job_start(d, &s->job);
	return 0;
}

/* The memory of streams that ended was of a daemon that is gone. */
void spares_drop(edge_device *d)
{
	for (edge_region *r; (r = d->streams->spare) != NULL;) {
		d->streams->spare = r->next;
		d->streams->nspare--;
		region_unmap(r);
		free(r);
	}
}
