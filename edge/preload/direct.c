/*
 * Threads that sleep on words of their own. A thread that waits for streams alone, and for nothing of the kernel's, has
 * the daemon wake it when one of them has something: that is one call of the daemon's and one of the thread's, with no
 * descriptor, and no other thread runs. A stream for which several wait, or an epoll set does, goes by the hub instead.
 *
 * Somebody has to watch the hub meanwhile. That is a thread of ours, the tender: it is made when two threads of the
 * program sleep at once, so that a program of one thread remains one.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "sock.h"

enum { STACK = 256 << 10 }; /* of threads of ours */

static bool tended;

bool start_thread(void *(*run)(void *)) {
	pthread_attr_t a;
	pthread_t t;
	sigset_t all, old;
	if (pthread_attr_init(&a))
		return false;
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	bool started = pthread_create(&t, &a, run, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&a);
	return started;
}

static void *tend(void *nothing) {
	(void)nothing;
	struct sleeping x = {.w = own_waiter()};
	struct pollfd p;
	x.w->ours = true;
	lock();
	for (;;) {
		x.w->rung = false;
		above->progress();
		if (sleep_begin(&x) && sleep_poll(&x, &p, 1, SECOND, NULL) == 0 && sleepers == 0)
			break; /* the program's threads may have ended, and with the last one the process is to */
	}
	tended = false;
	unlock();
	return NULL;
}

void aim(struct sock *s, edge_word *word) {
	if (s->aim == word || s->state != STREAM || !s->stream)
		return;
	s->aim = word;
	edge_stream_aim(s->stream, word);
}

static bool waits_alone(const struct sock *s) { return s->links && !s->links->next; }

bool direct_takes(struct sleeping *x) {
	struct waiter *w = x->w;
	bool may = device && hub >= 0 && !w->mixed && !w->ours && w->asleep == 0;
	if (may && !tended && sleepers > own_sleepers)
		tended = start_thread(tend);
	may = may && tended;
	if (may && !w->aim)
		w->aim = edge_word_open(device);
	may = may && w->aim;
	for (nfds_t i = 0; i < x->n; i++)
		if (x->socks[i])
			aim(x->socks[i], may && waits_alone(x->socks[i]) ? w->aim : NULL);
	return may;
}

void direct_keep(struct waiter *w) {
	if (w->aim && device)
		edge_word_close(device, w->aim);
	w->aim = NULL;
}

void direct_after_fork(void) {
	tended = false;
}
