/*
 * Waiting. Whoever is in the library pumps: takes what the daemon said, for everybody. Of those that wait one leads:
 * it polls, then sleeps in epoll_wait; the others wait for their condition variables. A pump that changed something
 * signals those waiters that have what they wait for; a leader that leaves makes another one lead.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "control.h"
#include "ring.h"
#include "waiting.h"

#define PULSE_LOOK (2 * SECOND)
#define PULSE_LOOKS 3          /* in a row without a beat: what we see is not that we were stopped ourselves */
#define SOCKET_EACH 64         /* rounds of the ring between two looks at the socket */
#define SOCKET_TIME 200000     /* or ns, for those who do not wait: a look is a system call */
#define WAKES_PER_WINDOW 4     /* as TCP, which wakes a writer when a third of its buffer is free */
#define MOST_ASKED 64          /* a wake-up for so many operations costs little for each */
#define END_TIME (20 * MILLI)  /* likewise, where the daemon says what it sent: the socket's end it does not */

int wait_open(edge_device *d)
{
	struct waiting *w = d->w;
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->timer_at = NEVER;
	if (w->wake < 0 || w->bell < 0 || w->timer < 0 || w->epoll < 0)
		return system_error("eventfd, timerfd or epoll");
	watch_fd(w->epoll, w->wake, EPOLLIN, EPOLL_CTL_ADD);
	watch_fd(w->epoll, w->bell, EPOLLIN, EPOLL_CTL_ADD);
	watch_fd(w->epoll, w->timer, EPOLLIN, EPOLL_CTL_ADD);
	return 0;
}

void wait_close(edge_device *d)
{
	int *fds[] = { &d->w->epoll, &d->w->wake, &d->w->bell, &d->w->timer };
	for (int i = 0; i < 4; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* Makes wake or bell readable. */
static void ring(int fd, bool *rung)
{
	uint64_t one = 1;
	*rung = true;
	while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

static void clear(int fd)
{
	uint64_t n;
	while (read(fd, &n, sizeof n) < 0 && errno == EINTR)
		;
}

static void unring(int fd, bool *rung)
{
	if (*rung)
		clear(fd);
	*rung = false;
}

/* Something changed that others may wait for. */
void news(edge_device *d)
{
	d->w->news++;
}

/* Wakes who sleeps in the library, and on the descriptor, too, if so. */
static void ring_sleepers(struct waiting *w, bool loop)
{
	if (w->asleep)
		ring(w->wake, &w->woken);
	if (w->armed && loop)
		ring(w->bell, &w->rung);
	w->armed &= !loop;
}

/* Signals those who have what they wait for. A leader that sleeps looks for itself. */
static void tell(edge_device *d)
{
	struct waiting *w = d->w;
	for (struct waiter *x = w->waiters; x != NULL; x = x->next)
		if (x->ready(x->arg) || d->dead != 0)
			pthread_cond_signal(&x->cond);
	ring_sleepers(w, !w->quiet || w->leader);
}

/* Has everybody who waits look again. */
void wake_all(edge_device *d)
{
	for (struct waiter *x = d->w->waiters; x != NULL; x = x->next)
		pthread_cond_signal(&x->cond);
	ring_sleepers(d->w, true);
}

/* Has the timer make the descriptor readable when something is due. */
static void set_timer(edge_device *d)
{
	int64_t at = d->above->next_due(d);
	if (at == d->w->timer_at || d->w->timer < 0)
		return;
	d->w->timer_at = at;
	struct itimerspec t = { 0 };
	if (at != NEVER) {
		at = at < 1 ? 1 : at;
		t.it_value = (struct timespec){ .tv_sec = at / SECOND, .tv_nsec = at % SECOND };
	}
	timerfd_settime(d->w->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* A new daemon has another pulse. */
void pulse_forget(edge_device *d, int64_t now)
{
	d->w->pulse = (struct pulse){ .at = now };
}

/* Looks for a beat of the daemon, every 2 s. */
static void check_pulse(edge_device *d, int64_t now)
{
	struct pulse *p = &d->w->pulse;
	if (now - p->at < PULSE_LOOK)
		return;
	p->at = now;
	uint32_t beat = ring_pulse(d->ring);
	if (beat != p->beat)
		*p = (struct pulse){ .beat = beat, .at = now };
	else if (++p->still >= PULSE_LOOKS && beat != 0)
		p->silent = true;
}

/* Whether the socket has something, or may have. */
static bool look_due(const edge_device *d)
{
	enum told told = control_told(d);
	return told == SOMETHING || !d->attached || d->ctl->first != NULL ||
	       now_ns() - d->w->looked_at >= (told == UNTOLD ? SOCKET_TIME : END_TIME);
}

static void look_at_socket(edge_device *d)
{
	if (d->ctl->first != NULL)
		control_flush(d);
	d->w->looked_at = now_ns();
	if (control_receive(d))
		news(d);
}

/* Takes what has happened, and the socket too if asked or if that is due. Returns whether there was anything. */
int pump(edge_device *d, bool socket)
{
	struct waiting *w = d->w;
	if (d->dead != 0)
		return 0;
	uint64_t before = w->news;
	int n = ring_drain(d);
	if (n > 0)
		news(d);
	enum told told = control_told(d);
	if (socket || told == SOMETHING || ++w->rounds >= SOCKET_EACH) {
		w->rounds = 0;
		if (socket || told == UNTOLD || look_due(d))
			look_at_socket(d);
		int64_t now = now_ns();
		check_pulse(d, now);
		d->above->due(d, now);
		if (w->timer_at <= now) {
			clear(w->timer);
			w->timer_at = NEVER;
		}
		set_timer(d);
	}
	if (d->unsettled)
		d->above->settle(d);
	if (w->news != before) {
		n += n == 0;
		if (w->waiters != NULL || w->armed)
			tell(d);
	}
	return n;
}

/* Whether the socket or the timer is among what the set told of. */
static bool beside_ring(const edge_device *d, const struct epoll_event *e, int n)
{
	bool is = false;
	for (int i = 0; i < n; i++) {
		int fd = e[i].data.fd;
		is |= fd != d->w->wake && fd != d->w->bell && fd != d->ring->watch;
	}
	return is;
}

/* After edge_device_arm: asks the kernel once what the descriptor told of, and whether the socket is among it. */
static bool disarm(edge_device *d)
{
	struct waiting *w = d->w;
	struct epoll_event e[8];
	bool look = beside_ring(d, e, epoll_wait(w->epoll, e, 8, 0));
	unring(w->wake, &w->woken);
	unring(w->bell, &w->rung);
	if (!look)
		w->looked_at = now_ns();
	return look;
}

/* After edge_device_arm: wakes, and says whether to look at the socket. If the daemon has not rung, who slept was woken
 * by something of the program's; if by the socket or the timer, nothing is found, and the kernel is asked next time. */
static bool wakes(edge_device *d)
{
	struct waiting *w = d->w;
	bool rang = ring_rang(d->ring);
	if (rang || w->rung || w->passed) {
		w->passed = false;
		return disarm(d);
	}
	w->passed = true;
	return control_told(d) != NOTHING && look_due(d);
}

/* Returns how many operations are to end before the daemon wakes the program: a quarter of those in flight, so that one
 * wake-up serves many. That puts the first of them off by a quarter of the time that they all take, and by a
 * millisecond at most. 1 if a thread may wait for a certain one. */
static uint32_t asks(const struct waiting *w)
{
	uint32_t n = w->awaited == w->ops ? w->ops / WAKES_PER_WINDOW : 1;
	return n < 1 ? 1 : n < MOST_ASKED ? n : MOST_ASKED;
}

static void tell_polling(edge_device *d, bool polls)
{
	if (polls)
		ring_await(d->ring, asks(d->w));
	enum ring_polling how = !polls ? RING_NOT_POLLING : d->w->awaited > 0 ? RING_POLLS : RING_POLLS_FOR_PEER;
	if (d->w->polling != how)
		ring_polling(d->ring, d->w->polling = how); /* a hint to the daemon (A8.5) */
}

/* Whether a leader goes on polling; it gives way meanwhile. */
static bool poll_on(edge_device *d, int64_t *since)
{
	int64_t now = now_ns();
	if (!d->attached || !idle_polls(&d->w->idle, since, now))
		return false;
	tell_polling(d, true);
	bool rings = d->due != NULL; /* which takes time, too, and would be taken for others' work on the core */
	unlock(d);
	sched_yield();
	int64_t after = now_ns();
	pthread_mutex_lock(&d->mu);
	if (!rings)
		idle_yielded(&d->w->idle, after - now, after);
	return true;
}

/* Somebody needs to hear of operations that complete. Else the daemon wakes nobody for those that complete well: what
 * they were posted for needs no more, as bytes of a stream that has room for others. */
void await_more(edge_device *d)
{
	if (d->w->awaited++ == 0 && ring_stir(d->ring))
		ring_sleepers(d->w, true);
	if (d->ring->awaits > 1 && d->w->awaited > d->w->ops) {
		ring_await(d->ring, 1);
		full_fence(); /* what the daemon was silent about before it saw that, we see */
		if (ring_ready(d->ring))
			ring_sleepers(d->w, true);
	}
}

void await_less(edge_device *d)
{
	d->w->awaited--;
}

/* What became due since the latest look at the socket must wake who sleeps; what is due later than the timer need not
 * cost a system call. */
static void fall_asleep(edge_device *d)
{
	if (d->above->next_due(d) < d->w->timer_at)
		set_timer(d);
	ring_await(d->ring, asks(d->w));
	ring_sleep(d->ring, d->w->awaited > 0 ? RING_ASLEEP : RING_DOZING);
}

/* Sleeps until there may be something, or until then. The set is readable while the bell is rung, which is left to the
 * program's thread that sleeps on it and is about to come: beside that the descriptors are polled one by one. */
static void sleep_on(edge_device *d, int64_t until)
{
	struct waiting *w = d->w;
	uint32_t epoch = d->epoch;
	fall_asleep(d);
	if (ring_ready(d->ring)) {
		ring_sleep(d->ring, RING_AWAKE);
		pump(d, false);
		return;
	}
	int64_t asleep = now_ns(), left = until - asleep;
	if (left > PULSE_LOOK)
		left = PULSE_LOOK;
	struct pollfd p[] = { { .fd = w->wake, .events = POLLIN }, { .fd = w->timer, .events = POLLIN },
		{ .fd = d->ring->watch, .events = POLLIN },
		{ .fd = d->ctl->fd, .events = d->ctl->want_out ? POLLIN | POLLOUT : POLLIN } };
	bool beside = w->rung;
	w->asleep = true;
	unlock(d);
	struct epoll_event e[8];
	int ms = left <= 0 ? 0 : (int)((left + MILLI - 1) / MILLI);
	int n = beside ? poll(p, 4, ms) : epoll_wait(w->epoll, e, 8, ms);
	pthread_mutex_lock(&d->mu);
	w->asleep = false;
	if (d->dead == EDGE_ERR_FORKED)
		return;
	bool look = n <= 0 || d->epoch != epoch ||
	            (beside ? p[1].revents != 0 || p[3].revents != 0 : beside_ring(d, e, n));
	unring(w->wake, &w->woken);
	if (d->epoch == epoch) {
		ring_sleep(d->ring, RING_AWAKE);
		while (beside && n > 0 && p[2].revents != 0 && epoll_wait(d->ring->watch, e, 8, 0) > 0) /* A8.3 */
			;
	}
	idle_slept(&w->idle, now_ns() - asleep);
	pump(d, look);
}

static int waited_in_vain(edge_device *d, int64_t until)
{
	if (until == 0)
		return EDGE_ERR_AGAIN;
	if (d->w->pulse.silent)
		return fail(EDGE_ERR_DAEMON_SILENT, "%s", edge_strerror(EDGE_ERR_DAEMON_SILENT));
	return fail(EDGE_ERR_TIMEOUT, "not within the time that the call allows");
}

static void follow(edge_device *d, struct waiter *x, int64_t until)
{
	int64_t now = now_ns();
	if (until - now > PULSE_LOOK)
		until = now + PULSE_LOOK;
	struct timespec t = { .tv_sec = until / SECOND, .tv_nsec = until % SECOND };
	call_daemon(d);
	pthread_cond_timedwait(&x->cond, &d->mu, &t);
}

static void link_waiter(edge_device *d, struct waiter *x)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&x->cond, &attr);
	pthread_condattr_destroy(&attr);
	x->next = d->w->waiters;
	x->at = &d->w->waiters;
	if (x->next != NULL)
		x->next->at = &x->next;
	d->w->waiters = x;
}

/* Ends the waiting, and has another lead if nobody does; who sleeps on the descriptor shall look, if that is the only
 * one: the daemon was told to wake the leader alone. */
static void unlink_waiter(edge_device *d, struct waiter *x)
{
	*x->at = x->next;
	if (x->next != NULL)
		x->next->at = x->at;
	pthread_cond_destroy(&x->cond);
	if (!d->w->leader && d->w->waiters != NULL)
		pthread_cond_signal(&d->w->waiters->cond);
	else if (!d->w->leader)
		ring_sleepers(d->w, true);
}

/* wait_for, where no operation that completes well makes ready(arg) true. */
int wait_for_peer(edge_device *d, bool (*ready)(void *), void *arg, int64_t until)
{
	struct waiting *w = d->w;
	if (!ready(arg))
		pump(d, false);
	if (ready(arg) || d->dead != 0)
		return ready(arg) ? 0 : d->dead;
	if (until == 0) {
		pump(d, look_due(d));
		return ready(arg) ? 0 : d->dead != 0 ? d->dead : waited_in_vain(d, 0);
	}
	struct waiter x = { .ready = ready, .arg = arg };
	link_waiter(d, &x);
	bool leads = false;
	int64_t since = 0;
	int err = 0;
	for (uint32_t round = 1; !ready(arg); round++) {
		if (d->dead != 0) {
			err = d->dead;
			break;
		}
		if (until != NEVER && now_ns() >= until) {
			err = waited_in_vain(d, until);
			break;
		}
		if (!leads && w->leader) {
			follow(d, &x, until);
			continue;
		}
		leads = w->leader = true;
		if (poll_on(d, &since)) {
			if (pump(d, round % 16 == 0 && control_told(d) != NOTHING) > 0)
				since = 0;
		} else {
			tell_polling(d, false);
			sleep_on(d, until);
			since = 0;
		}
	}
	if (leads) {
		tell_polling(d, false);
		w->leader = false;
	}
	unlink_waiter(d, &x);
	return err;
}

/* Waits until ready(arg), or until then (0: looks once). */
int wait_for(edge_device *d, bool (*ready)(void *), void *arg, int64_t until)
{
	await_more(d);
	int err = wait_for_peer(d, ready, arg, until);
	await_less(d);
	return err;
}

/* Puts something on the list of edge_changed. */
void changed(edge_device *d, struct edge_watched *w)
{
	if (w->context == NULL || w->queued)
		return;
	w->queued = true;
	w->next = NULL;
	*d->w->last_changed = w;
	d->w->last_changed = &w->next;
	news(d);
}

void unwatch(edge_device *d, struct edge_watched *w)
{
	w->context = NULL;
	if (!w->queued)
		return;
	struct edge_watched **at = &d->w->changed;
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	if (*at == NULL)
		d->w->last_changed = at;
	w->queued = false;
}

int edge_changed(edge_device *d, void **contexts, size_t n)
{
	enter(d);
	size_t i = 0;
	for (struct edge_watched *w; i < n && (w = d->w->changed) != NULL; i++) {
		contexts[i] = w->context;
		w->queued = false;
		d->w->changed = w->next;
		if (d->w->changed == NULL)
			d->w->last_changed = &d->w->changed;
	}
	return leave(d, (int)i);
}

int edge_device_poll(edge_device *d)
{
	enter(d);
	struct waiting *w = d->w;
	bool mine = w->news == w->seen, asleep = w->armed && !w->leader && d->dead == 0;
	w->armed = false;
	if (w->loop.yield != 0 || w->loop.sleep != 0)
		idle_loop_returns(&w->idle, &w->loop, now_ns());
	int n = pump(d, asleep ? wakes(d) : look_due(d));
	if (n > 0) {
		w->passed = false;
		if (!w->leader)
			tell_polling(d, false); /* the caller works on it */
	}
	if (!mine && n == 0)
		n = 1; /* others took what this caller has not looked at */
	w->seen = w->news;
	if (n > 0)
		idle_loop_found(&w->loop);
	return leave(d, n);
}

int edge_device_linger(edge_device *d)
{
	enter(d);
	struct waiting *w = d->w;
	bool on = d->dead == 0 && !w->leader;
	if (on && w->news == w->seen && w->changed == NULL) {
		on = d->attached && idle_loop_polls(&w->idle, &w->loop, now_ns());
		if (on)
			tell_polling(d, true);
	}
	return leave(d, on);
}

void edge_device_quiet(edge_device *d, int on)
{
	enter(d);
	d->w->quiet = on;
	leave(d, 0);
}

int edge_device_fd(edge_device *d)
{
	return d->w->epoll;
}

int edge_device_arm(edge_device *d)
{
	enter(d);
	struct waiting *w = d->w;
	int armed = 0;
	if (d->dead == 0 && w->news == w->seen && d->w->changed == NULL) {
		unring(w->bell, &w->rung);
		if (!w->asleep) /* else who sleeps clears it */
			unring(w->wake, &w->woken);
		w->armed = true;
		armed = 1;
		if (!w->leader) { /* else the leader tells */
			tell_polling(d, false);
			w->loop.since = 0;
			w->loop.sleep = now_ns();
			fall_asleep(d);
			if (ring_ready(d->ring)) {
				ring_sleep(d->ring, RING_AWAKE);
				w->armed = false;
				w->loop.sleep = 0;
				armed = 0;
			}
		}
	}
	return leave(d, armed);
}
