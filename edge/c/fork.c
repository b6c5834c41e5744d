/* A child after fork has none of the parent's threads and must not touch what the parent shares with the daemon (ABI
 * A11.2): everything of the parent is dead there, and its descriptors are closed. */
#include <unistd.h>

#include "device.h"
#include "ring.h"

static pthread_mutex_t all_mu = PTHREAD_MUTEX_INITIALIZER;
static edge_device *all;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void)
{
	pthread_mutex_lock(&all_mu);
	for (edge_device *d = all; d != NULL; d = d->next)
		pthread_mutex_lock(&d->mu);
}

static void in_parent(void)
{
	for (edge_device *d = all; d != NULL; d = d->next)
		pthread_mutex_unlock(&d->mu);
	pthread_mutex_unlock(&all_mu);
}

static void in_child(void)
{
	for (edge_device *d = all, *next; d != NULL; d = next) {
		next = d->next;
		d->next = d->prev = NULL;
		d->dead = EDGE_ERR_FORKED;
		d->at->state = DOWN;
		d->attached = false;
		streams_forked(d);
		d->w->waiters = NULL; /* of threads that are not here */
		d->cfg.on_change = NULL; /* as its program was told */
		d->w->leader = d->w->asleep = false;
		struct bell *b = d->ring->submit;
		if (b != NULL) { /* a thread that is not here may have a count, and so nobody would close it */
			close(b->fd);
			b->fd = -1;
		}
		ring_close(d, false);
		if (d->ctl->fd >= 0)
			close(d->ctl->fd);
		d->ctl->fd = -1;
		for (struct job *j = d->mem->jobs; j != NULL; j = j->next)
			if (j->memfd >= 0) {
				close(j->memfd);
				j->memfd = -1;
			}
		words_forked(d);
		wait_close(d);
		pthread_mutex_unlock(&d->mu);
	}
	all = NULL;
	pthread_mutex_unlock(&all_mu);
}

static void install(void)
{
	pthread_atfork(before, in_parent, in_child);
}

void fork_enter(edge_device *d)
{
	pthread_once(&once, install);
	pthread_mutex_lock(&all_mu);
	d->next = all;
	d->prev = NULL;
	if (all != NULL)
		all->prev = d;
	all = d;
	pthread_mutex_unlock(&all_mu);
}

void fork_leave(edge_device *d)
{
	pthread_mutex_lock(&all_mu);
	if (d->prev != NULL)
		d->prev->next = d->next;
	else if (all == d)
		all = d->next;
	if (d->next != NULL && d->next->prev == d)
		d->next->prev = d->prev;
	d->next = d->prev = NULL;
	pthread_mutex_unlock(&all_mu);
}
