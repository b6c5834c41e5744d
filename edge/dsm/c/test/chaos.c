/*
 * In place of net.c, join.c and leave.c: a network between processes of one host that does anything that fences allow.
 * What was posted takes effect at any time until it is waited for, in any order but that of fences, word by word, and
 * its bytes are taken when it does. CHAOS names a file that all ranks of a run share, and CHAOS_SEED a number. With
 * CHAOS_LATE changes of pages take effect only when they are waited for.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net.h"

enum { RANKS = 8, RING = 256 };

/* Notifications from one rank to another, in order. */
struct ring {
	uint32_t note[RING];
	unsigned head, tail;
};

static struct shared {
	struct { int pid, data, ctl; unsigned ready; } rank[RANKS];
	struct ring ring[RANKS][RANKS]; /* to, from */
	unsigned over, failed, met;
} *all;

static unsigned char *memory[RANKS][2]; /* of each rank, by area */
static uint64_t dice;

static struct order {
	enum { READ, WRITE, SWAP, COMPARE_SWAP } verb;
	int rank;
	enum area area;
	size_t here, there, n;
	uint64_t operand, compare;
	uint32_t note;
	bool fenced;
} posted[MOST_POSTED];
static int nposted;
static bool answered;
static unsigned slow; /* microseconds */
static bool late;

struct net net;

static unsigned draw(unsigned n)
{
	dice = mix(dice);
	return (unsigned)(dice >> 33) % n;
}

/* Copies in words, in any order of two halves, and lets others run meanwhile. */
static void copy(unsigned char *to, const unsigned char *from, size_t n)
{
	size_t half = n / 16 * 8, at[2] = { 0, half }, len[2] = { half, n - half };
	for (unsigned i = 0, first = draw(2); i < 2; i++) {
		unsigned k = first ^ i;
		for (size_t j = 0; j < len[k]; j += 8) {
			size_t m = len[k] - j < 8 ? len[k] - j : 8;
			memcpy(to + at[k] + j, from + at[k] + j, m);
		}
		if (draw(64) == 0)
			sched_yield();
	}
}

/* A copy onto itself stores what it loaded before, over what others write meanwhile. */
static void onto_itself(unsigned char *p, size_t n)
{
	unsigned char *was = malloc(n);
	if (was == NULL)
		fail("malloc");
	memcpy(was, p, n);
	usleep(500);
	memcpy(p, was, n);
	free(was);
}

static void notify(int rank, uint32_t note)
{
	struct ring *r = &all->ring[rank][conf.rank];
	while (__atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) - __atomic_load_n(&r->head, __ATOMIC_ACQUIRE) == RING)
		sched_yield();
	r->note[r->tail % RING] = note;
	__atomic_store_n(&r->tail, r->tail + 1, __ATOMIC_RELEASE);
}

static void perform(const struct order *o)
{
	unsigned char *here = memory[conf.rank][o->area] + o->here, *there = memory[o->rank][o->area] + o->there;
	uint64_t *at = (uint64_t *)(void *)there;
	switch (o->verb) {
	case READ:
		if (o->area == CONTROL && o->rank != conf.rank && slow > 0)
			usleep(slow); /* what is read of a log may be written over meanwhile */
		if (here == there)
			onto_itself(here, o->n);
		else
			copy(here, there, o->n);
		return;
	case WRITE:
		copy(there, here, o->n);
		if (o->note == 0 && draw(8) == 0)
			copy(there, here, o->n); /* a frame that was lost and sent again */
		if (o->note != 0)
			notify(o->rank, o->note);
		return;
	case SWAP:
		know.was = __atomic_exchange_n(at, o->operand, __ATOMIC_SEQ_CST);
		answered = true;
		return;
	case COMPARE_SWAP:
		know.was = o->compare;
		__atomic_compare_exchange_n(at, &know.was, o->operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		answered = true;
	}
}

/* Performs one of what is posted, which may be any that is not fenced behind another. False: there is none. */
static bool some(void)
{
	if (nposted == 0)
		return false;
	int i = late ? nposted - 1 : (int)draw((unsigned)nposted);
	for (int j = 0; posted[i].fenced && j < i; j++)
		if (posted[j].rank == posted[i].rank) {
			i = j; /* that one first; it may be fenced itself */
			j = -1;
		}
	struct order o = posted[i];
	memmove(posted + i, posted + i + 1, (size_t)(--nposted - i) * sizeof *posted);
	perform(&o);
	return true;
}

static void post(struct order o)
{
	if (o.rank == conf.rank) {
		perform(&o);
		return;
	}
	if (nposted == MOST_POSTED)
		net_wait();
	stats.operations++;
	posted[nposted++] = o;
	if (late && o.area == CONTROL)
		some();
	while (!late && draw(4) == 0 && some())
		;
}

void net_read(int rank, enum area area, size_t here, size_t there, size_t n)
{
	post((struct order){ .verb = READ, .rank = rank, .area = area, .here = here, .there = there, .n = n });
}

void net_write(int rank, enum area area, size_t here, size_t there, size_t n, uint32_t note)
{
	post((struct order){ .verb = WRITE, .rank = rank, .area = area, .here = here, .there = there, .n = n,
		.note = rank == conf.rank ? 0 : note });
}

void net_swap(int rank, size_t at, uint64_t operand)
{
	answered = false;
	post((struct order){ .verb = SWAP, .rank = rank, .there = at, .operand = operand });
}

void net_compare_swap(int rank, size_t at, uint64_t compare, uint64_t operand)
{
	answered = false;
	post((struct order){ .verb = COMPARE_SWAP, .rank = rank, .there = at, .operand = operand, .compare = compare,
		.fenced = true });
}

void net_wait(void)
{
	while (some())
		;
	know.owing = false;
	know.wrote = 0;
}

void net_answer(void)
{
	while (!answered)
		some();
}

void net_owes(void)
{
	know.owing = true;
}

void net_free(void)
{
	if (know.owing)
		net_wait();
}

static void idle(void)
{
	if (__atomic_load_n(&all->failed, __ATOMIC_ACQUIRE))
		_exit(DSM_FAILED); /* another has said why */
	if (!some())
		sched_yield();
}

bool net_next(int *from, uint32_t *note, int rank, bool wait)
{
	for (;; idle()) {
		for (*from = 0; *from < conf.ranks; ++*from) {
			struct ring *r = &all->ring[conf.rank][*from];
			if ((rank >= 0 && *from != rank) || __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) == r->head)
				continue;
			*note = r->note[r->head % RING];
			__atomic_store_n(&r->head, r->head + 1, __ATOMIC_RELEASE);
			return true;
		}
		if (!wait)
			return false;
	}
}

static void tell(const char *text)
{
	(void)text;
	__atomic_store_n(&all->failed, 1, __ATOMIC_RELEASE);
}

static void *region(int pid, int fd, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
	int f = open(path, O_RDWR | O_CLOEXEC);
	void *p = f < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	if (p == MAP_FAILED)
		fail("chaos: %s cannot be mapped", path);
	close(f);
	return p;
}

void join(int memfd)
{
	const char *path = getenv("CHAOS"), *seed = getenv("CHAOS_SEED"), *delay = getenv("CHAOS_SLOW");
	int f = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int ctl = memfd_create("control", MFD_CLOEXEC), data = dup(memfd);
	if (conf.ranks > RANKS || f < 0 || ftruncate(f, sizeof *all) != 0 || ctl < 0 || data < 0 ||
	    ftruncate(ctl, (off_t)lay.size) != 0)
		fail("chaos: CHAOS names no file, or it is too small a world");
	all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	if (all == MAP_FAILED)
		fail("chaos: mmap");
	farewell = tell;
	slow = delay == NULL ? 0 : (unsigned)atoi(delay);
	late = getenv("CHAOS_LATE") != NULL;
	dice = mix((seed == NULL ? 0 : (uint64_t)atoll(seed)) * RANKS + (uint64_t)conf.rank);
	all->rank[conf.rank].pid = getpid();
	all->rank[conf.rank].data = data;
	all->rank[conf.rank].ctl = ctl;
	__atomic_store_n(&all->rank[conf.rank].ready, 1, __ATOMIC_RELEASE);
	for (int r = 0; r < conf.ranks; r++) {
		while (!__atomic_load_n(&all->rank[r].ready, __ATOMIC_ACQUIRE))
			idle();
		memory[r][DATA] = region(all->rank[r].pid, all->rank[r].data, mem.size);
		memory[r][CONTROL] = region(all->rank[r].pid, all->rank[r].ctl, lay.size);
	}
	mem.ctl = memory[conf.rank][CONTROL];
	__atomic_add_fetch(&all->over, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&all->over, __ATOMIC_ACQUIRE) % (unsigned)conf.ranks != 0)
		idle(); /* all have mapped all */
}

/* Waits until all ranks are here, by themselves: nothing that is posted takes effect meanwhile. */
void outside(void); /* test/behind.c */
void outside(void)
{
	unsigned n = (unsigned)conf.ranks, until = (__atomic_fetch_add(&all->met, 1, __ATOMIC_ACQ_REL) / n + 1) * n;
	while (__atomic_load_n(&all->met, __ATOMIC_ACQUIRE) < until) {
		if (__atomic_load_n(&all->failed, __ATOMIC_ACQUIRE))
			_exit(DSM_FAILED);
		sched_yield();
	}
}

void watch(void)
{
}

void leave(void)
{
	net_wait();
	farewell = NULL;
}
