/*
 * How connections end, and the thread that watches them while the program computes. That thread uses nothing of the
 * rank but the connections and what others write into the control region, and ends the process when one ends otherwise
 * than in good order. A rank closes its connections once all ranks are at the end, so that PEER_CLOSED is good order.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net.h"

enum { LOOK_MS = 250, FAREWELL_MS = 2000, PARTING_MS = 20000 };

static pthread_t watcher;
static int stop = -1;

/* Ends the run if a rank has failed or is lost. The wait that looks once takes what the daemon said meanwhile. */
void look(void)
{
	for (int r = 0; r < conf.ranks; r++) {
		edge_remote *never;
		if (net.conns[r] == NULL)
			continue;
		if (load(lay.ending + (16 + MAX_TEXT) * (size_t)r) != 0)
			told(r);
		int err = edge_import(net.conns[r], "dsm: never exported", &never, 0);
		if (err != EDGE_ERR_AGAIN && err != EDGE_ERR_PEER_CLOSED)
			check(r, err);
	}
}

static void *watching(void *arg)
{
	(void)arg;
	struct pollfd p = { .fd = stop, .events = POLLIN };
	while (poll(&p, 1, LOOK_MS) <= 0)
		look();
	return NULL;
}

/* Starts the thread. Signals are the program's. */
void watch(void)
{
	sigset_t all, before;
	sigfillset(&all);
	stop = eventfd(0, EFD_CLOEXEC);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (stop < 0 || pthread_create(&watcher, NULL, watching, NULL) != 0)
		fail("a thread or an eventfd cannot be made; raise the limits of processes and open files");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Ends all connections in good order, and what join took. */
void leave(void)
{
	if (eventfd_write(stop, 1) == 0)
		pthread_join(watcher, NULL);
	farewell = NULL;
	close(stop);
	for (int r = 0; r < conf.ranks; r++)
		if (net.conns[r] != NULL)
			(void)edge_conn_close(net.conns[r], 0); /* begins it; nobody needs it any more */
	for (int r = 0; r < conf.ranks; r++)
		if (net.conns[r] != NULL) {
			(void)edge_conn_close(net.conns[r], PARTING_MS);
			edge_conn_free(net.conns[r]);
			net.conns[r] = NULL;
		}
	for (int i = 0; i < 2; i++)
		(void)edge_region_close(net.areas[i]); /* nothing is in flight */
	edge_device_close(net.dev, 0);
}
