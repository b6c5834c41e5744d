/*
 * Memory of a socket's that the peer writes into by riowrite, without a call here. It is exported on the connection of
 * the socket's stream, under the name io/NUMBER. Which offsets it has stands in a table, which is the peer's to read:
 * each side exports an empty one, named iomap, of as many entries as RDMA_IOMAPSIZE says, and the other side writes
 * there what it maps. Such a write has the fence that bytes of the stream have, so who has received what was sent after
 * riomap finds the entry.
 *
 * riowrite copies, as rsend does, and what follows it in the stream comes after it. Of the bytes of a call the last
 * ones, up to the end of their word, take effect when all before are in place: the peer's program may poll the last
 * byte.
 *
 * A peer may write anything into the table, also the names of exports that there are not. Who does not wait is told so
 * (EAGAIN); who does is kept for ASK_MS for each such name, as rsend is kept by a peer that reads nothing, and other
 * calls on the socket go on meanwhile.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rs.h"

enum { MOST = 128, WINDOW = 16, PART = 64 << 10, WORD = 8 };

/* number: of the export's name, never used twice; 0: nothing is mapped. It is written last, and taken back first: who
 * reads the same before and after the others has read what belongs to it. */
struct entry { uint64_t offset, size, number; };

struct map { /* of ours */
	struct map *next;
	void *at;
	size_t size;
	struct ibv_mr *mr;    /* NULL: not for the peer */
	edge_export *export_;
	unsigned entry;       /* in the peer's table */
};

struct known { /* what an entry of our table names */
	uint64_t number;
	edge_remote *memory;  /* NULL: it was not announced yet */
	int64_t until;        /* ms: when it need not be expected any more */
};

struct rio {
	pthread_mutex_t mu;
	unsigned room;        /* entries of our table */
	edge_region *table;   /* NULL: it has none yet */
	struct known known[MOST]; /* by our table's entries */
	struct known *awaited; /* by a call that could not wait; NULL: nothing */
	struct map *maps;
	edge_remote *theirs;  /* the peer's table; NULL: not known yet */
	int64_t until;        /* ms: when nobody waits for it any more; 0: nobody has looked for it */
	bool used[MOST];      /* entries of it */
	uint64_t numbers;
	edge_region *parts;   /* WINDOW copies on their way; NULL: not yet */
	edge_op op[WINDOW];
	unsigned next;        /* part to be used */
};

/* That of a socket; NULL with errno: there is no memory. */
static struct rio *of(struct rs *s)
{
	lock();
	if (s->io == NULL && (s->io = calloc(1, sizeof *s->io)) != NULL)
		pthread_mutex_init(&s->io->mu, NULL);
	unlock();
	if (s->io == NULL)
		errno = ENOMEM;
	return s->io;
}

int rio_room(struct rs *s, int entries)
{
	struct rio *io = entries < 0 || entries > MOST || s->stream != NULL ? NULL : of(s);
	if (io == NULL)
		return fails(EINVAL);
	io->room = (unsigned)entries;
	return 0;
}

int rio_room_of(const struct rs *s)
{
	return s->io != NULL ? (int)s->io->room : 0;
}

/* The table lasts as long as the connection. */
void rio_offer(struct rs *s)
{
	struct rio *io = s->io;
	if (io == NULL)
		return;
	pthread_mutex_lock(&io->mu);
	int err = 0;
	if (io->room > 0 && io->table == NULL) {
		err = edge_register(lib.dev, sizeof(struct entry) * MOST, &io->table, ASK_MS);
		if (err == 0)
			err = edge_export_region(io->table, edge_stream_conn(s->stream), "iomap", EDGE_REMOTE_WRITE, 0,
			                         sizeof(struct entry) * io->room, NULL, ASK_MS);
	}
	pthread_mutex_unlock(&io->mu);
	if (err != 0)
		say("no table of mapped memory: %s", edge_message(err));
}

static int write_table(struct rs *s, size_t at, const void *p, size_t size)
{
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_BACKWARD_FENCE, .inline_data = p, .inline_size = (uint32_t)size,
		.remote = s->io->theirs, .remote_off = at };
	return edge_post_wait(edge_stream_conn(s->stream), &w, NULL, ASK_MS);
}

/* Tells the peer what an entry of its table is; that of number 0 is free. */
static int write_entry(struct rs *s, unsigned entry, const struct entry *is)
{
	size_t at = sizeof *is * entry, number = offsetof(struct entry, number);
	int err = is->number != 0 ? write_table(s, at, is, number) : 0;
	return err != 0 ? err : write_table(s, at + number, &is->number, sizeof is->number);
}

/* Waits for the peer's table to be announced, for a while after the first call for a socket; later it finds one that is
 * there. */
static void find_table(struct rs *s)
{
	struct rio *io = s->io;
	edge_remote *table = NULL;
	pthread_mutex_lock(&io->mu);
	if (io->until == 0)
		io->until = now_ms() + ASK_MS;
	int64_t left = io->until - now_ms();
	bool known = io->theirs != NULL;
	pthread_mutex_unlock(&io->mu);
	if (known || edge_import(edge_stream_conn(s->stream), "iomap", &table, left > 0 ? (int)left : 0) != 0)
		return; /* or the peer takes none */
	pthread_mutex_lock(&io->mu);
	io->theirs = table;
	pthread_mutex_unlock(&io->mu);
}

/* A free entry of the peer's table; -1: there is none. */
static int free_entry(struct rs *s)
{
	const struct rio *io = s->io;
	int i = 0;
	while (i < MOST && io->used[i])
		i++;
	return io->theirs != NULL && i < MOST && (i + 1) * sizeof(struct entry) <= edge_remote_size(io->theirs) ? i : -1;
}

/* Has the peer write into a buffer: 0 or an errno. */
static int give(struct rs *s, struct map *m, uint64_t offset)
{
	struct rio *io = s->io;
	char name[32];
	int i = free_entry(s);
	if (i < 0)
		return ENOMEM;
	if (cm_context() == NULL || (m->mr = ibv_reg_mr(cm_pd(), m->at, m->size, IBV_ACCESS_LOCAL_WRITE)) == NULL)
		return errno;
	const struct mr *mr = (struct mr *)m->mr;
	int err = mr->staged ? EOPNOTSUPP : mr->nsegs != 1 ? ENOMEM : 0; /* as ibv_reg_mr for peers */
	if (err == 0) {
		m->entry = (unsigned)i;
		snprintf(name, sizeof name, "io/%llu", (unsigned long long)++io->numbers);
		err = edge_export_region(mr->segs[0]->region, edge_stream_conn(s->stream), name, EDGE_REMOTE_WRITE,
		                         (uintptr_t)m->at - mr->segs[0]->start, m->size, &m->export_, ASK_MS);
		if (err == 0 && (err = write_entry(s, m->entry, &(struct entry){ offset, m->size, io->numbers })) != 0 &&
		    edge_export_revoke(m->export_, ASK_MS) == 0)
			edge_export_free(m->export_);
		err = err != 0 ? edge_errno(err) : 0;
	}
	if (err == 0)
		io->used[i] = true;
	else
		ibv_dereg_mr(m->mr);
	return err;
}

EXPORT off_t riomap(int fd, void *at, size_t size, int prot, int flags, off_t offset)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	if (s == NULL || rs_stream(s, true) == NULL)
		return -1;
	if (size == 0 || (prot != PROT_NONE && prot != PROT_WRITE) || flags != 0 || offset < -1)
		return fails(EINVAL);
	struct rio *io = of(s);
	struct map *m = io != NULL ? calloc(1, sizeof *m) : NULL;
	if (m == NULL)
		return fails(ENOMEM);
	if (offset == -1)
		offset = (off_t)(uintptr_t)at;
	if (prot == PROT_WRITE)
		find_table(s);
	pthread_mutex_lock(&io->mu);
	*m = (struct map){ .next = io->maps, .at = at, .size = size };
	int err = prot == PROT_WRITE ? give(s, m, (uint64_t)offset) : 0;
	if (err == 0)
		io->maps = m;
	pthread_mutex_unlock(&io->mu);
	if (err == 0)
		return offset;
	free(m);
	return fails(err);
}

/* Ends the peer's access; false: the daemon has not said so. */
static bool take_back(struct map *m)
{
	if (m->mr == NULL)
		return true;
	if (m->export_ != NULL) { /* else it went when this was tried before */
		if (edge_export_revoke(m->export_, ASK_MS) != 0)
			return false;
		edge_export_free(m->export_);
		m->export_ = NULL;
	}
	return ibv_dereg_mr(m->mr) == 0;
}

EXPORT int riounmap(int fd, void *at, size_t size)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	if (s == NULL)
		return -1;
	struct rio *io = s->io;
	if (io == NULL)
		return fails(EINVAL);
	pthread_mutex_lock(&io->mu);
	struct map **link = &io->maps, *m;
	while ((m = *link) != NULL && (m->at != at || m->size != size))
		link = &m->next;
	int err = m == NULL ? EINVAL : 0;
	if (err == 0 && m->mr != NULL) {
		bool told = write_entry(s, m->entry, &(struct entry){ 0 }) == 0;
		if (!told)
			say("the peer is not told that memory is unmapped");
		err = take_back(m) ? 0 : EIO;
		io->used[m->entry] = err != 0 || !told;
	}
	if (err == 0) {
		*link = m->next;
		free(m);
	}
	pthread_mutex_unlock(&io->mu);
	return err == 0 ? 0 : fails(err);
}

/* An entry that the peer may be writing: what is about to change counts as nothing. */
static struct entry read_entry(const struct entry *t)
{
	struct entry e = { .number = __atomic_load_n(&t->number, __ATOMIC_ACQUIRE) };
	e.offset = __atomic_load_n(&t->offset, __ATOMIC_RELAXED);
	e.size = __atomic_load_n(&t->size, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&t->number, __ATOMIC_RELAXED) == e.number ? e : (struct entry){ 0 };
}

/* Whether the memory that an entry names can be written to: 0, EDGE_ERR_AGAIN before it was announced, or another. */
static int learn(struct rs *s, struct known *k)
{
	char name[32];
	if (k->memory != NULL)
		return 0;
	snprintf(name, sizeof name, "io/%llu", (unsigned long long)k->number);
	int err = edge_import(edge_stream_conn(s->stream), name, &k->memory, 0);
	return err == EDGE_ERR_AGAIN && now_ms() >= k->until ? EDGE_ERR_INVALID : err;
}

static void forget(struct known *k)
{
	if (k->memory != NULL)
		edge_remote_free(k->memory);
	*k = (struct known){ 0 };
}

/* What the peer has mapped at an offset; *at: where in it, *room: bytes from there on. EDGE_ERR_INVALID: nothing. The
 * peer may write anything into our table at any time; how long the memory is its export says. */
static int find(struct rs *s, uint64_t offset, edge_remote **to, uint64_t *at, uint64_t *room)
{
	struct rio *io = s->io;
	const struct entry *table = io->table != NULL ? edge_region_bytes(io->table) : NULL;
	io->awaited = NULL;
	for (unsigned i = 0; table != NULL && i < io->room; i++) {
		struct entry e = read_entry(&table[i]);
		struct known *k = &io->known[i];
		if (e.number == 0 || offset < e.offset || offset - e.offset >= e.size)
			continue;
		if (k->number != e.number) {
			forget(k);
			*k = (struct known){ .number = e.number, .until = now_ms() + ASK_MS };
		}
		int err = learn(s, k);
		if (err == EDGE_ERR_AGAIN)
			io->awaited = k;
		if (err != 0)
			return err;
		uint64_t size = edge_remote_size(k->memory);
		*to = k->memory;
		*at = offset - e.offset;
		*room = size > *at ? size - *at : 0;
		return *room > 0 ? 0 : EDGE_ERR_INVALID;
	}
	return EDGE_ERR_INVALID;
}

/* Gives bytes to the transport; EDGE_ERR_AGAIN: there is no room for them now. */
static int post(struct rs *s, edge_work *w, int wait_ms)
{
	struct rio *io = s->io;
	edge_op *op = w->inline_size == 0 ? &io->op[io->next % WINDOW] : NULL;
	w->kind = EDGE_WRITE;
	w->flags = EDGE_BACKWARD_FENCE;
	if (op == NULL)
		return edge_post_wait(edge_stream_conn(s->stream), w, NULL, wait_ms);
	if (io->parts == NULL) {
		int err = edge_register(lib.dev, WINDOW * PART, &io->parts, ASK_MS);
		if (err != 0)
			return err;
	}
	int err = edge_op_wait(op, wait_ms);
	if (err == EDGE_ERR_AGAIN)
		return err;
	w->local = io->parts;
	w->local_off = io->next % WINDOW * PART;
	memcpy((char *)edge_region_bytes(io->parts) + w->local_off, w->inline_data, w->size);
	w->inline_data = NULL;
	err = edge_post_wait(edge_stream_conn(s->stream), w, op, wait_ms);
	io->next += err == 0;
	return err;
}

/* Writes what can be written as one part: how many bytes, or an error of libedge. */
static ssize_t write_part(struct rs *s, const char *p, size_t size, uint64_t offset, int wait_ms)
{
	uint64_t at, room;
	edge_remote *to;
	int err = find(s, offset, &to, &at, &room);
	if (err != 0)
		return err;
	size_t n = size < room ? size : room, last = (at + n - 1) % WORD + 1;
	last = last < n ? last : n;
	if (n > last) {
		n = n - last < PART ? n - last : PART;
		last = 0;
	}
	edge_work w = { .remote = to, .remote_off = at, .inline_data = p, .inline_size = (uint32_t)last };
	if (last == 0)
		w.size = n;
	err = post(s, &w, wait_ms);
	return err == 0 ? (ssize_t)n : err;
}

/* Lets other calls on the socket go on while one waits for an announcement. */
static void wait_announced(struct rio *io)
{
	pthread_mutex_unlock(&io->mu);
	polled();
	wait_for(-1, 1);
	pthread_mutex_lock(&io->mu);
}

EXPORT size_t riowrite(int fd, const void *p, size_t size, off_t offset, int flags)
{
	UNCANCELLED;
	struct rs *s = rs_find(fd);
	int wait_ms = s != NULL && !s->nonblock && !(flags & MSG_DONTWAIT) ? EDGE_FOREVER : 0;
	struct rio *io = s != NULL && rs_stream(s, wait_ms != 0) != NULL ? of(s) : NULL;
	if (io == NULL)
		return (size_t)-1;
	size_t done = 0;
	ssize_t n = 1;
	pthread_mutex_lock(&io->mu);
	for (; n > 0 && done < size; done += n > 0 ? (size_t)n : 0)
		while ((n = write_part(s, (const char *)p + done, size - done, (uint64_t)offset + done, wait_ms)) ==
		       EDGE_ERR_AGAIN && wait_ms != 0)
			wait_announced(io);
	pthread_mutex_unlock(&io->mu);
	rs_asked(n == EDGE_ERR_AGAIN);
	return done > 0 || n >= 0 ? done : (size_t)rs_failed((int)n);
}

bool rio_full(struct rs *s)
{
	struct rio *io = s->io;
	if (io == NULL || pthread_mutex_trylock(&io->mu) != 0)
		return false;
	bool full = !edge_op_done(&io->op[io->next % WINDOW]) ||
		(io->awaited != NULL && learn(s, io->awaited) == EDGE_ERR_AGAIN);
	pthread_mutex_unlock(&io->mu);
	return full;
}

/* A write of the peer's to memory that was taken back ends the connection, and with it what the peer has not read. So
 * the peer has DRAIN_MS to read that, and to end its direction as well, after which it writes no more. */
static void drain(struct rs *s)
{
	enum { DRAIN_MS = 5000 };
	const struct map *m = s->io->maps;
	while (m != NULL && m->mr == NULL)
		m = m->next;
	if (m == NULL || edge_stream_shutdown(s->stream) != 0)
		return;
	int64_t until = now_ms() + DRAIN_MS;
	while (!(edge_stream_events(s->stream) & (POLLRDHUP | POLLHUP | POLLERR)) && now_ms() < until) {
		polled();
		wait_for(-1, 1);
	}
}

/* What was written is on its way still, as bytes of the stream are: then the memory goes with the device. */
void rio_free(struct rs *s)
{
	enum { FLY_MS = 1000 };
	struct rio *io = s->io;
	if (io == NULL)
		return;
	drain(s);
	for (struct map *m; (m = io->maps) != NULL; free(m)) {
		io->maps = m->next;
		if (!take_back(m))
			say("mapped memory is not taken back from the peer");
	}
	for (int64_t until = now_ms() + FLY_MS, i = 0; io->parts != NULL && i < WINDOW; i++)
		edge_op_wait(&io->op[i], until > now_ms() ? (int)(until - now_ms()) : 0);
	if (io->parts != NULL)
		edge_region_close(io->parts);
	if (io->table != NULL)
		edge_region_close(io->table);
	for (int i = 0; i < MOST; i++)
		forget(&io->known[i]);
	free(io);
}
