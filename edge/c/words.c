/*
 * Words on which threads of the program sleep (ABI A8.7), each for streams of its own: the daemon wakes that thread and
 * no other. They lie in the control page of the rings. There is a second mapping of it, at a place that stays the same
 * from one daemon to the next: threads sleep on addresses, and look at them, without the device's lock. Between two
 * daemons memory of the process is in that place.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring.h"
#include "waiting.h"

enum { PAGE = 4096 };

struct edge_word { _Atomic uint32_t value; char apart[ABI_WORDS_APART - sizeof(uint32_t)]; };

static struct edge_word *first(const struct words *w)
{
	return (struct edge_word *)(void *)(w->page + ABI_WORDS_AT);
}

static void futex_wake(struct edge_word *x, int threads)
{
	syscall(SYS_futex, &x->value, FUTEX_WAKE, threads, NULL, NULL, 0);
}

/* Before the memory under the words changes: those who sleep wake, and who is about to sleep does not. */
static void wake_all_words(struct words *w)
{
	for (int i = 0; i < ABI_WORDS; i++)
		if (w->used >> i & 1) {
			atomic_store(&first(w)[i].value, 0);
			futex_wake(&first(w)[i], INT_MAX);
		}
}

/* Pages whose devices are gone. A thread may still look at its word there: it is not in the library. */
static char *unused_pages; /* linked by their first bytes */
static pthread_mutex_t unused_mu = PTHREAD_MUTEX_INITIALIZER;

static bool own_page(struct words *w, int flags)
{
	void *p = mmap(w->page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (p == MAP_FAILED)
		return false;
	w->page = p;
	return true;
}

/* There are rings. */
void words_attach(edge_device *d)
{
	struct words *w = &d->w->words;
	if (w->page == NULL || !(d->features & EDGE_FEATURE_WORDS))
		return;
	wake_all_words(w);
	if (mremap(d->ring->map, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, w->page) == MAP_FAILED)
		return; /* only this process wakes who sleeps there: they look again when their streams end */
	madvise(w->page, PAGE, MADV_DONTFORK); /* A11.2 */
	w->shared = true;
}

/* The rings are about to go. */
void words_detach(edge_device *d)
{
	struct words *w = &d->w->words;
	if (w->page == NULL)
		return;
	wake_all_words(w);
	if (w->shared)
		own_page(w, MAP_FIXED);
	w->shared = false;
}

void words_free(edge_device *d)
{
	char *page = d->w->words.page;
	if (page != NULL) {
		words_detach(d);
		pthread_mutex_lock(&unused_mu);
		*(char **)(void *)page = unused_pages;
		unused_pages = page;
		pthread_mutex_unlock(&unused_mu);
	}
	d->w->words = (struct words){ 0 };
}

/* In a child, which does not have the page (A11.2). The thread may be about to look at its word: a handler forked. */
void words_forked(edge_device *d)
{
	struct words *w = &d->w->words;
	if (w->shared)
		own_page(w, MAP_FIXED);
	*w = (struct words){ 0 };
}

static bool first_page(struct words *w)
{
	pthread_mutex_lock(&unused_mu);
	w->page = unused_pages;
	if (w->page != NULL)
		unused_pages = *(char **)(void *)w->page;
	pthread_mutex_unlock(&unused_mu);
	return w->page != NULL || own_page(w, 0);
}

uint32_t word_number(const edge_device *d, const edge_word *x)
{
	const struct words *w = &d->w->words;
	return x == NULL || !w->shared ? 0 : (uint32_t)(x - first(w)) + 1;
}

static edge_word *take(edge_device *d)
{
	struct words *w = &d->w->words;
	if (d->dead != 0 || !d->attached || !(d->features & EDGE_FEATURE_WORDS))
		return NULL;
	if (w->page == NULL && first_page(w))
		words_attach(d);
	for (int i = 0; w->shared && i < ABI_WORDS; i++)
		if (!(w->used >> i & 1)) {
			w->used |= UINT64_C(1) << i;
			return &first(w)[i];
		}
	return NULL;
}

edge_word *edge_word_open(edge_device *d)
{
	enter(d);
	edge_word *x = take(d);
	leave(d, 0);
	return x;
}

void edge_word_close(edge_device *d, edge_word *x)
{
	enter(d);
	struct words *w = &d->w->words;
	if (w->page != NULL && x != NULL)
		w->used &= ~(UINT64_C(1) << (x - first(w)));
	leave(d, 0);
}

int edge_word_arm(edge_device *d, edge_word *x)
{
	enter(d);
	struct waiting *w = d->w;
	bool armed = d->dead == 0 && w->news == w->seen && w->changed == NULL;
	if (armed) {
		atomic_store(&x->value, w->awaited > 0 ? RING_ASLEEP : RING_DOZING);
		full_fence();
		armed = !ring_ready(d->ring);
		if (!armed)
			atomic_store(&x->value, RING_AWAKE);
	}
	return leave(d, armed);
}

int edge_word_sleep(edge_word *x, int64_t until)
{
	uint32_t value = atomic_load(&x->value);
	if (value == RING_AWAKE)
		return 0;
	struct timespec t = { .tv_sec = until / SECOND, .tv_nsec = until % SECOND };
	long r = syscall(SYS_futex, &x->value, FUTEX_WAIT_BITSET, value, &t, NULL, FUTEX_BITSET_MATCH_ANY);
	return r != 0 && (errno == EINTR || errno == ETIMEDOUT) ? errno : 0;
}

void edge_word_rest(edge_word *x)
{
	atomic_store(&x->value, RING_AWAKE);
}

void edge_word_wake(edge_word *x)
{
	if (atomic_load(&x->value) != RING_AWAKE && atomic_exchange(&x->value, RING_AWAKE) != RING_AWAKE)
		futex_wake(x, 1);
}
