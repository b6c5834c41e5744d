/* Waiting, and the attachment to a daemon that all waiting is for. */
#ifndef EDGE_WAITING_H
#define EDGE_WAITING_H

#include "base.h"
#include "idle.h"

struct waiter {
	bool (*ready)(void *);
	void *arg;
	pthread_cond_t cond;
	struct waiter *next, **at;
};

struct edge_watched { /* what edge_changed tells of */
	void *context;
	bool queued;
	struct edge_watched *next;
};

struct pulse { uint32_t beat, still; int64_t at; bool silent; };

struct words { char *page; bool shared; uint64_t used; }; /* shared: with the daemon. used: bit i is of word i + 1 */

struct waiting { /* wait.c */
	int epoll, wake, bell, timer; /* wake is for who sleeps in the library, bell for who sleeps on the descriptor */
	bool leader;  /* somebody polls or sleeps on behalf of all */
	bool asleep;  /* likewise, in epoll_wait */
	bool armed;
	bool quiet;   /* only the daemon makes the descriptor readable: edge_device_quiet */
	bool passed;  /* the last look after arm asked the kernel nothing, and found nothing */
	uint32_t polling; /* enum ring_polling, as the daemon was told */
	bool woken, rung; /* wake, bell are readable */
	uint32_t awaited; /* reasons to be woken by completions of operations: await_more */
	uint32_t ops;     /* of these: operations of the program's own in flight, of which any may be the next to end */
	struct waiter *waiters;
	uint64_t news, seen;
	uint32_t rounds;   /* of the ring since the socket was looked at */
	int64_t looked_at; /* at the socket */
	int64_t timer_at;
	struct idle idle;
	struct idle_loop loop; /* of the program */
	struct pulse pulse;
	struct edge_watched *changed, **last_changed;
	struct words words;
};

int wait_open(edge_device *d);
void wait_close(edge_device *d);
int pump(edge_device *d, bool socket);
int wait_for(edge_device *d, bool (*ready)(void *), void *arg, int64_t until);
int wait_for_peer(edge_device *d, bool (*ready)(void *), void *arg, int64_t until);
void await_more(edge_device *d);
void await_less(edge_device *d);
void news(edge_device *d);
void wake_all(edge_device *d);
void changed(edge_device *d, struct edge_watched *w);
void unwatch(edge_device *d, struct edge_watched *w);
void pulse_forget(edge_device *d, int64_t now);

void words_attach(edge_device *d); /* words.c */
void words_detach(edge_device *d);
void words_free(edge_device *d);
void words_forked(edge_device *d);
uint32_t word_number(const edge_device *d, const edge_word *x);

int ask(edge_device *d, void *packet, size_t size, enum abi_kind kind, uint64_t *made, int64_t until); /* ask.c */

enum attach_state { DOWN, GREETING, ATTACHED };

struct attachment { /* attach.c */
	enum attach_state state;
	uint32_t attempts; /* that have ended, well or not */
	int err;           /* of the latest attempt */
	int64_t retry_at, pause, since, greet_until;
	char node[ABI_STR + 1], name[ABI_STR + 1];
	char detail[160];
};

int attach_start(edge_device *d);
void attach_lost(edge_device *d, int err, const char *why);
void attach_end(edge_device *d, int err);
void attach_timers(edge_device *d, int64_t now);
int64_t attach_due(const edge_device *d);
int attach_current(edge_device *d, int64_t until);

#endif
