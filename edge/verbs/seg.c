/*
 * Segments: the ranges of whole pages that were taken over, which do not overlap. Memory regions share them, since two
 * buffers that malloc gave may share a page. A heap is taken over as a whole, and so is what malloc mapped for one
 * allocation, so that the regions in it lie in one segment each: a peer names a region by one key, which is of one
 * segment. Of a large allocation that is hardly used yet a part is taken over.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages.h"

enum { MOST_HEAP = 64 << 20, MOST_ALLOCATION = 1 << 30, ALONE_FROM = 32 << 10, REGISTER_MS = 20000,
       FEW_PAGES = 64 << 10 };

static struct seg **segs; /* in the order of addresses */
static int nsegs, room;

/* The first segment that ends behind an address. */
static int place(uintptr_t at)
{
	int lo = 0, hi = nsegs;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (segs[mid]->end <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct seg *seg_find(uintptr_t at)
{
	int i = place(at);
	return i < nsegs && segs[i]->start <= at ? segs[i] : NULL;
}

static void take_out(int i)
{
	free(segs[i]);
	memmove(&segs[i], &segs[i + 1], (size_t)(--nsegs - i) * sizeof *segs);
}

/* Gives the memory back that nothing uses; false: operations in flight do. */
static bool drop(int i)
{
	struct seg *s = segs[i];
	if (edge_region_close(s->region) == EDGE_ERR_BUSY)
		return false;
	disown(s->start, s->end, s->memfd, s->inode);
	take_out(i);
	return true;
}

void segs_sweep(edge_device *dev)
{
	for (int i = nsegs; i-- > 0;)
		if (segs[i]->dev == dev && segs[i]->refs == 0 && !drop(i)) { /* the region goes with the device */
			disown(segs[i]->start, segs[i]->end, segs[i]->memfd, segs[i]->inode);
			take_out(i);
		}
}

static int refusal(int err)
{
	if (pages_say != NULL)
		pages_say("memory is not registered: %s", edge_message(err));
	return err == EDGE_ERR_MEMLOCK || err == EDGE_ERR_LIMIT || err == EDGE_ERR_NO_MEMORY ? ENOMEM : EIO;
}

/* Takes memory over and registers it. */
static int take(edge_device *dev, uintptr_t start, uintptr_t end, struct seg **made)
{
	if (nsegs == room) {
		struct seg **more = realloc(segs, (size_t)(room + 64) * sizeof *more);
		if (more == NULL)
			return ENOMEM;
		segs = more;
		room += 64;
	}
	struct seg *s = calloc(1, sizeof *s);
	if (s == NULL)
		return ENOMEM;
	*s = (struct seg){ .dev = dev, .start = start, .end = end };
	s->memfd = adopt(start, end, &s->inode);
	if (s->memfd < 0) {
		free(s);
		return errno;
	}
	int err = edge_register_memfd(dev, s->memfd, (void *)start, end - start, &s->region, REGISTER_MS);
	if (err != 0) {
		err = refusal(err);
		disown(start, end, s->memfd, s->inode);
		free(s);
		return err;
	}
	int at = place(start);
	memmove(&segs[at + 1], &segs[at], (size_t)(nsegs++ - at) * sizeof *segs);
	segs[at] = *made = s;
	return 0;
}

/* A thread's stack stays where it is; that of the first one grows, but is not plain (maps.c). */
bool our_stack(uintptr_t start, uintptr_t end)
{
	static _Thread_local uintptr_t low, high;
	pthread_attr_t a;
	void *at = NULL;
	size_t size = 0;
	if (high == 0 && pthread_getattr_np(pthread_self(), &a) == 0) {
		pthread_attr_getstack(&a, &at, &size);
		pthread_attr_destroy(&a);
		low = (uintptr_t)at;
		high = low + size;
	}
	return start < high && end > low;
}

/* Whether most of an allocation has never been written to: taking it over would make all of it resident. */
static bool sparse(uintptr_t start, uintptr_t end)
{
	size_t pages = (end - start) / PAGE, there = 0;
	unsigned char *in = end - start > MOST_HEAP ? malloc(pages) : NULL;
	if (in != NULL && mincore((void *)start, end - start, in) == 0) {
		for (size_t i = 0; i < pages; i++)
			there += in[i] & 1;
		free(in);
		return there < pages / 2;
	}
	free(in);
	return false;
}

/* Takes over what lies between two segments, or all of the heap or the allocation there, if that can be had. */
static int add(edge_device *dev, uintptr_t start, uintptr_t end, struct seg **made)
{
	int at = place(start);
	uintptr_t low = at > 0 ? segs[at - 1]->end : 0, high = at < nsegs ? segs[at]->start : UINTPTR_MAX;
	struct mapping all;
	bool heap = maps_heap(start, &all), part = heap || maps_allocation(start, end, &all);
	uintptr_t from = all.start > low ? all.start : low, to = all.end < high ? all.end : high;
	if (!part || all.end - all.start > (heap ? MOST_HEAP : MOST_ALLOCATION) || all.end < end || our_stack(from, to))
		return take(dev, start, end, made);
	if (!heap && end - start <= FEW_PAGES && sparse(all.start, all.end)) {
		uintptr_t low_part = all.start + (start - all.start) / MOST_HEAP * MOST_HEAP;
		uintptr_t high_part = all.start + (end - all.start + MOST_HEAP - 1) / MOST_HEAP * MOST_HEAP;
		/* The last part is the longer one, by whichever of its ends it is found. */
		if (high_part < all.end && all.end - high_part < MOST_HEAP)
			high_part = all.end;
		if (low_part > all.start && all.end - low_part < MOST_HEAP)
			low_part -= MOST_HEAP;
		from = low_part > from ? low_part : from;
		to = high_part < to ? high_part : to;
	}
	if (heap) {
		mallopt(M_TRIM_THRESHOLD, MOST_HEAP); /* what malloc gives back and takes again would be other memory */
		mallopt(M_MMAP_THRESHOLD, ALONE_FROM); /* and what is beyond its end would lie in a segment of its own */
	}
	int err = take(dev, from, to, made);
	if (err == ENOMEM)
		return take(dev, start, end, made);
	if (err == 0)
		(*made)->wider = true;
	return err;
}

/* Whether a segment is still what is mapped there, and registered with the daemon that is there now. */
static bool sound(const struct seg *s, uintptr_t start, uintptr_t end)
{
	uintptr_t a = start > s->start ? start : s->start, b = end < s->end ? end : s->end;
	return edge_region_error(s->region) == 0 && maps_has(a, b, s->inode) > 0;
}

int seg_hold(edge_device *dev, uintptr_t start, uintptr_t end, struct seg **held, int *n)
{
	int err = 0;
	*n = 0;
	for (int i = place(start); i < nsegs && segs[i]->start < end; i++)
		if (segs[i]->refs == 0 || !sound(segs[i], start, end)) {
			if (segs[i]->refs > 0 || !drop(i))
				return EBUSY; /* the program unmapped memory that is registered */
			i--;
		}
	while (err == 0 && start < end) {
		struct seg *s = seg_find(start);
		int next = place(start);
		uintptr_t to = next < nsegs && segs[next]->start < end ? segs[next]->start : end;
		if (*n == SEGMENTS)
			err = ENOMEM;
		else if (s == NULL)
			err = maps_plain(start, to) && !our_stack(start, to) ? add(dev, start, to, &s) : EOPNOTSUPP;
		if (err == 0 && s->dev != dev)
			err = EOPNOTSUPP;
		if (err == 0) {
			s->refs++;
			held[(*n)++] = s;
			start = s->end;
		}
	}
	if (err != 0)
		seg_release(held, *n);
	return err;
}

void seg_release(struct seg **held, int n)
{
	for (int i = 0; i < n; i++)
		if (--held[i]->refs == 0)
			drop(place(held[i]->start)); /* or later, when that is tried again */
}

/*
 * fork. Parent and child share the pages that were taken over, and with them a heap, which each of them would change
 * under the other's hands. So the child gets copies, and the parent waits until it has them. This comes before
 * libedge's handlers, which write to that heap: handlers run in the order in which they were registered. Of a segment
 * beyond COPIES bytes that is no wider than what was registered it gets the first and the last page alone: the pages
 * between hold nothing else.
 */
#define COPIES ((size_t)MOST_HEAP)

static int forking[2] = { -1, -1 };
static bool apart = true; /* the child can have copies, or needs none */

void segs_forking(void)
{
	bool any = false;
	int spare = -1; /* for maps_has */
	if (nsegs > 0 && pipe2(forking, O_CLOEXEC) == 0)
		spare = fcntl(forking[0], F_DUPFD_CLOEXEC, 0);
	apart = nsegs == 0 || spare >= 0;
	if (spare >= 0)
		close(spare);
	for (int i = 0; i < nsegs && apart; i++) {
		int has = maps_has(segs[i]->start, segs[i]->end, segs[i]->inode);
		segs[i]->whole = has > 0;
		apart = has >= 0;
		any |= has > 0;
	}
	if (!any && forking[0] >= 0) {
		close(forking[0]);
		close(forking[1]);
		forking[0] = forking[1] = -1;
	}
}

/* In the child, where nothing but calls of the kernel is safe: the memfd has the bytes. */
static bool copy_pages(const struct seg *s, uintptr_t from, uintptr_t to)
{
	size_t size = to - from;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t n = 0;
	for (size_t at = 0; p != MAP_FAILED && at < size; at += (size_t)n)
		if ((n = pread(s->memfd, (char *)p + at, size - at, (off_t)(from - s->start + at))) <= 0)
			return false;
	return p != MAP_FAILED &&
		syscall(SYS_mremap, p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, from) == (long)from;
}

/* Ends a child whose heap would be the parent's, as one without memory. SIGKILL does not end the first process of a
 * namespace. */
_Noreturn static void end_child(void)
{
	kill(getpid(), SIGKILL);
	_exit(128 + SIGKILL);
}

static void segs_forked(bool child)
{
	char byte = 0;
	if (child && !apart)
		end_child();
	for (int i = 0; child && forking[0] >= 0 && i < nsegs; i++) {
		const struct seg *s = segs[i];
		bool all = s->wider || s->end - s->start <= COPIES;
		if (s->whole && !(all ? copy_pages(s, s->start, s->end) : copy_pages(s, s->start, s->start + PAGE) &&
		                  copy_pages(s, s->end - PAGE, s->end)))
			end_child();
	}
	nsegs = child ? 0 : nsegs;
	if (forking[0] < 0)
		return;
	close(forking[1]); /* of the parent's, which reads the end once the child has closed its own */
	if (!child)
		while (read(forking[0], &byte, 1) < 0 && errno == EINTR)
			;
	close(forking[0]);
	forking[0] = forking[1] = -1;
}

static void in_parent(void)
{
	segs_forked(false);
}

static void in_child(void)
{
	segs_forked(true);
}

__attribute__((destructor)) static void last(void)
{
	if (nsegs == 0)
		free(segs);
}

__attribute__((constructor)) static void first(void)
{
	pthread_atfork(NULL, in_parent, in_child);
}
