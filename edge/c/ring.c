/* The rings (ABI A6) and doorbells (A8). What the daemon writes is checked: it may be broken. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring.h"

static _Atomic uint32_t *word(const struct ring *r, size_t off)
{
	return (_Atomic uint32_t *)(void *)(r->map + off);
}

/* Orders our store before the look at what the other side stored (A6.5). ThreadSanitizer knows no fences; it sees one
 * side of the ring alone anyway. */
void full_fence(void)
{
#ifdef __SANITIZE_THREAD__
	__sync_synchronize();
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static bool power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* Maps the rings of A6.1, A6.2. It does not take memfd over. */
int ring_map(struct ring *r, int memfd, const struct abi_hello_reply *m)
{
	uint32_t times = m->sq_entries == 0 ? 0 : m->cq_entries / m->sq_entries;
	if (!power_of_two(m->sq_entries) || !power_of_two(m->cq_entries) || m->sq_entries > 65536 || times < 2 ||
	    times > 16)
		return fail(EDGE_ERR_VERSION, "the daemon made rings of %u and %u entries", m->sq_entries, m->cq_entries);
	size_t size = ABI_RINGS + (size_t)m->sq_entries * 64 + (size_t)m->cq_entries * 32;
	size = (size + 4095) & ~(size_t)4095;
	int need = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, seals = fcntl(memfd, F_GET_SEALS);
	struct stat st;
	if (seals < 0 || (seals & need) != need || fstat(memfd, &st) != 0 || (uint64_t)st.st_size != size)
		return fail(EDGE_ERR_VERSION, "the daemon's rings are not sealed, or of another size than it says");
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (map == MAP_FAILED)
		return system_error("mmap of the rings");
	madvise(map, size, MADV_DONTFORK); /* A11.2 */
	*r = (struct ring){ .peeked = r->peeked, .map = map, .size = size, .sq = (char *)map + ABI_RINGS,
		.sq_entries = m->sq_entries, .cq_entries = m->cq_entries, .watch = -1 };
	r->cq = r->sq + (size_t)m->sq_entries * 64;
	return 0;
}

/* Forgets the rings; mapped: they are in this process, and not in a parent. */
void ring_close(edge_device *d, bool mapped)
{
	struct ring *r = d->ring;
	if (r->map == NULL)
		return;
	if (mapped && r->peeked) /* somebody may be about to look: there stays something to look at, for ever */
		mmap(r->map, r->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else if (mapped)
		munmap(r->map, r->size);
	bell_drop(d->due);
	d->due = NULL;
	bell_drop(r->submit);
	close(r->watch);
	*r = (struct ring){ .watch = -1, .peeked = r->peeked };
}

/* Whether there is room for so many submissions. */
bool ring_room(struct ring *r, uint32_t entries)
{
	if (r->map == NULL || r->broken)
		return false;
	if (r->sq_entries - (r->tail - r->taken) < entries) {
		uint32_t head = atomic_load_explicit(word(r, ABI_SQ_HEAD), memory_order_acquire);
		if (r->tail - head > r->sq_entries)
			r->broken = true; /* pump gives up */
		else
			r->taken = head;
	}
	return !r->broken && r->sq_entries - (r->tail - r->taken) >= entries;
}

void ring_put(struct ring *r, const void *e)
{
	const size_t size = sizeof(struct abi_sqe);
	memcpy(r->sq + (size_t)(r->tail++ & (r->sq_entries - 1)) * size, e, size);
}

/* Shows what was put, and has the daemon woken if it sleeps (A8.2). */
void ring_publish(edge_device *d)
{
	struct ring *r = d->ring;
	atomic_store_explicit(word(r, ABI_SQ_TAIL), r->tail, memory_order_release);
	full_fence();
	_Atomic uint32_t *asleep = word(r, ABI_DAEMON_ASLEEP);
	if (atomic_load_explicit(asleep, memory_order_relaxed) != 0 && atomic_exchange(asleep, 0) != 0)
		bell_due(d, r->submit);
}

bool ring_ready(const struct ring *r)
{
	return r->map != NULL && atomic_load_explicit(word(r, ABI_CQ_TAIL), memory_order_acquire) != r->head;
}

/* ring_ready of one who has set peeked under the lock, and does not have it now. What it reads may be old: then the
 * answer is true, or an entry came just now. Unlocked. */
bool ring_peek(const struct ring *r)
{
	char *map = __atomic_load_n(&r->map, __ATOMIC_ACQUIRE);
	if (map == NULL)
		return true;
	uint32_t head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
	return atomic_load_explicit((_Atomic uint32_t *)(void *)(map + ABI_CQ_TAIL), memory_order_acquire) != head;
}

/* Says that we sleep, or wakes (A8.3): what the daemon rang already stays. */
void ring_sleep(struct ring *r, enum ring_sleep how)
{
	if (r->map == NULL)
		return;
	r->dozes = how == RING_DOZING;
	atomic_store_explicit(word(r, ABI_CLIENT_ASLEEP), how, memory_order_relaxed);
	if (how != RING_AWAKE)
		full_fence();
}

/* Says how many operations are to end before the daemon wakes us, or yields to us while we poll (A8.8). */
void ring_await(struct ring *r, uint32_t operations)
{
	if (r->map == NULL || r->awaits == operations)
		return;
	r->awaits = operations;
	atomic_store_explicit(word(r, ABI_AWAITS), operations, memory_order_relaxed);
}

/* From now on completions wake who dozes, too. Returns whether the ring has entries that were no reason before. */
bool ring_stir(struct ring *r)
{
	if (r->map == NULL || !r->dozes)
		return false;
	r->dozes = false;
	uint32_t dozing = RING_DOZING; /* or the daemon rang meanwhile */
	atomic_compare_exchange_strong(word(r, ABI_CLIENT_ASLEEP), &dozing, RING_ASLEEP);
	full_fence();
	return ring_ready(r);
}

/* Wakes, and returns whether the daemon rang. */
bool ring_rang(struct ring *r)
{
	return r->map == NULL || atomic_exchange(word(r, ABI_CLIENT_ASLEEP), 0) == 0;
}

void ring_polling(struct ring *r, enum ring_polling how)
{
	if (r->map != NULL)
		atomic_store_explicit(word(r, ABI_CLIENT_POLLING), how, memory_order_relaxed);
}

uint32_t ring_pulse(const struct ring *r)
{
	return r->map == NULL ? 0 : atomic_load_explicit(word(r, ABI_PULSE), memory_order_relaxed);
}

/* How many packets the daemon has sent (A6.3); 0: it does not say. */
uint32_t ring_told(const struct ring *r)
{
	return r->map == NULL ? 0 : atomic_load_explicit(word(r, ABI_TOLD), memory_order_relaxed);
}

/* Takes what is in the completion ring and returns how many entries. A daemon that breaks the ring is lost. */
int ring_drain(edge_device *d)
{
	struct ring *r = d->ring;
	if (r->map == NULL)
		return 0;
	int n = 0;
	uint32_t tail = atomic_load_explicit(word(r, ABI_CQ_TAIL), memory_order_acquire);
	if (tail - r->head > r->cq_entries)
		r->broken = true;
	while (!r->broken && r->head != tail) {
		struct abi_cqe e; /* copied before it is looked at (A6.5) */
		memcpy(&e, r->cq + (size_t)(r->head & (r->cq_entries - 1)) * sizeof e, sizeof e);
		r->head++;
		n++;
		r->broken |= !d->above->completed(d, &e);
	}
	if (n > 0)
		atomic_store_explicit(word(r, ABI_CQ_HEAD), r->head, memory_order_release);
	if (r->broken)
		d->above->lost(d, EDGE_ERR_DAEMON_DOWN, "the daemon broke the rules of the rings (ABI A6)");
	return n;
}
