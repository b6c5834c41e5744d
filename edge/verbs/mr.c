/*
 * Memory regions. Peers name one by a key of 64 bits, which the daemon judges: half of it is the protection domain's,
 * and is told to its peers alone; the other half is the rkey, which the program passes on. Memory that cannot be taken
 * over (stacks, files, what others share) has no key, and what is sent from it or received into it is copied.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "memory.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum { BUCKETS = 4096 };

static struct mr *table[BUCKETS];
static unsigned nmrs;

struct mr *mr_find(uint32_t lkey)
{
	struct mr *m = table[lkey % BUCKETS];
	while (m != NULL && m->mr.lkey != lkey)
		m = m->hash;
	return m;
}

__attribute__((constructor)) static void first(void)
{
	pages_say = say;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	static uint32_t numbers;
	struct pd *p = calloc(1, sizeof *p);
	if (p == NULL || getrandom(&p->high, sizeof p->high, 0) != sizeof p->high) {
		free(p);
		errno = ENOMEM;
		return NULL;
	}
	lock();
	p->number = ++numbers;
	p->pd = (struct ibv_pd){ .context = c, .handle = p->number };
	unlock();
	return &p->pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct pd *p = (struct pd *)pd;
	lock();
	bool busy = p->refs > 0;
	unlock();
	if (busy)
		return EBUSY;
	free(p);
	return 0;
}

/* Has peers of the domain access the memory, as the region says. */
static int share(struct mr *m, struct pd *pd)
{
	int perm = (m->access & IBV_ACCESS_REMOTE_READ ? EDGE_REMOTE_READ : 0) |
		(m->access & IBV_ACCESS_REMOTE_WRITE ? EDGE_REMOTE_WRITE : 0) |
		(m->access & IBV_ACCESS_REMOTE_ATOMIC ? EDGE_REMOTE_ATOMIC : 0);
	if (perm == 0)
		return 0;
	if (m->nsegs != 1) {
		say("memory at %p lies in %d pieces, of which other regions have some: no peer can be given a key to it; "
		    "register it before them, or all at once", m->mr.addr, m->nsegs);
		return ENOMEM;
	}
	size_t off = (uintptr_t)m->mr.addr - m->segs[0]->start;
	if ((off ^ m->iova) % 8 != 0)
		perm &= ~EDGE_REMOTE_ATOMIC; /* at such addresses no atomic is aligned */
	int err = 0;
	do { /* until the lower half, which is the lkey as well, is no other region's */
		if (m->key != 0)
			edge_unshare(lib.dev, m->key, ASK_MS);
		m->key = 0;
		err = edge_share(m->segs[0]->region, pd->number, perm, off, m->mr.length, pd->high, m->iova, &m->key, ASK_MS);
	} while (err == 0 && ((uint32_t)m->key == 0 || mr_find((uint32_t)m->key) != NULL));
	if (err != 0)
		say("no key to memory: %s", edge_message(err));
	return err == 0 ? 0 : err == EDGE_ERR_LIMIT ? ENOMEM : EIO;
}

/* Gives a region of which no peer has a key one that no other has. */
static int draw(struct mr *m)
{
	do
		if (getrandom(&m->mr.lkey, 4, 0) != 4)
			return EIO;
	while (m->mr.lkey == 0 || mr_find(m->mr.lkey) != NULL);
	m->mr.rkey = m->mr.lkey;
	return 0;
}

static int begin(struct mr *m, struct pd *pd)
{
	uintptr_t a = (uintptr_t)m->mr.addr, end = a + m->mr.length;
	if (m->mr.length == 0 || end < a)
		return EINVAL;
	bool far = m->access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	int err = seg_hold(lib.dev, a & -(uintptr_t)PAGE, (end + PAGE - 1) & -(uintptr_t)PAGE, m->segs, &m->nsegs);
	if (err == EOPNOTSUPP && !far) {
		m->staged = true;
		m->nsegs = 0;
		return draw(m);
	}
	if (err == EOPNOTSUPP)
		say("memory at %p is a stack, a file's or shared: no peer can be given a key to it", m->mr.addr);
	if (err != 0)
		return err;
	err = share(m, pd);
	if (err == 0 && m->key == 0)
		err = draw(m);
	else if (err == 0)
		m->mr.lkey = m->mr.rkey = (uint32_t)m->key;
	if (err != 0)
		seg_release(m->segs, m->nsegs);
	return err;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB;
	if (access & ~known) { /* memory windows, zero-based addresses, on-demand paging */
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		errno = EINVAL;
		return NULL;
	}
	struct mr *m = calloc(1, sizeof *m);
	if (m == NULL)
		return NULL;
	*m = (struct mr){ .mr = { .context = pd->context, .pd = pd, .addr = addr, .length = length }, .iova = iova,
		.access = access };
	lock();
	int err = begin(m, (struct pd *)pd);
	if (err == 0) {
		struct mr **at = &table[m->mr.lkey % BUCKETS];
		m->hash = *at;
		*at = m;
		m->mr.handle = ++nmrs;
		((struct pd *)pd)->refs++;
	}
	unlock();
	if (err != 0) {
		free(m);
		errno = err;
		return NULL;
	}
	return &m->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr *m = (struct mr *)mr;
	lock();
	if (m->key != 0) {
		int err = edge_unshare(lib.dev, m->key, ASK_MS);
		if (err != 0) {
			unlock();
			say("a key is not taken back: %s", edge_message(err));
			return EIO;
		}
	}
	struct mr **at = &table[mr->lkey % BUCKETS];
	while (*at != m)
		at = &(*at)->hash;
	*at = m->hash;
	seg_release(m->segs, m->nsegs);
	((struct pd *)mr->pd)->refs--;
	unlock();
	free(m);
	return 0;
}

/* The region of a piece, if the piece lies in it; where it is in memory. */
static struct mr *locate(const struct pd *pd, const struct ibv_sge *e, uintptr_t *addr)
{
	struct mr *m = mr_find(e->lkey);
	uint64_t off = m == NULL ? 0 : e->addr - m->iova;
	if (m == NULL || m->mr.pd != &pd->pd || off > m->mr.length || e->length > m->mr.length - off)
		return NULL;
	*addr = (uintptr_t)m->mr.addr + off;
	return m;
}

int gather(const struct pd *pd, const struct ibv_sge *sge, int n, bool writes, struct gathered *g)
{
	g->n = 0;
	g->size = 0;
	g->staged = false;
	for (int i = 0; i < n; i++) {
		uintptr_t a;
		struct mr *m = sge[i].length == 0 ? NULL : locate(pd, &sge[i], &a);
		if (sge[i].length == 0)
			continue;
		if (m == NULL || (writes && !(m->access & IBV_ACCESS_LOCAL_WRITE)))
			return IBV_WC_LOC_PROT_ERR;
		g->size += sge[i].length;
		g->staged |= m->staged;
		struct seg *s = m->nsegs > 0 ? m->segs[0] : NULL;
		for (uintptr_t end = a + sge[i].length; a < end && !g->staged;) {
			if (a >= s->end || a < s->start)
				s = seg_find(a);
			uintptr_t to = end < s->end ? end : s->end;
			if (g->n == EDGE_MAX_PIECES) {
				g->staged = true;
				break;
			}
			g->piece[g->n++] = (edge_piece){ .region = s->region, .off = a - s->start, .size = to - a };
			a = to;
		}
	}
	return g->size > MAX_MESSAGE ? IBV_WC_LOC_LEN_ERR : 0;
}

void sge_out(const struct pd *pd, const struct ibv_sge *sge, int n, char *to)
{
	uintptr_t a;
	for (int i = 0; i < n; to += sge[i++].length)
		if (sge[i].length > 0 && locate(pd, &sge[i], &a) != NULL)
			memcpy(to, (void *)a, sge[i].length);
}

void sge_in(const struct pd *pd, const struct ibv_sge *sge, int n, const char *from, size_t size)
{
	uintptr_t a;
	for (int i = 0; i < n && size > 0; i++) {
		size_t part = sge[i].length < size ? sge[i].length : size;
		if (part > 0 && locate(pd, &sge[i], &a) != NULL)
			memcpy((void *)a, from, part);
		from += part;
		size -= part;
	}
}
