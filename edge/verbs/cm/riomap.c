/*
 * Memory of a socket's that the peer writes into by riowrite, without a call here. It is exported on the connection of
 * the socket's stream, under the name io/NUMBER. Which offsets it has stands in a table, which is the peer's to read:
 * each side exports an empty one, named iomap, of as many entries as RDMA_IOMAPSIZE says, and the other side writes
 * there what it maps. Such a write has the fence that bytes of the stream have, so who has received what was sent after
 * riomap finds the entry.
 *
 * riowrite copies, as rsend does, and what follows it in the stream comes after it. Of the bytes of a call the last ones,
 * up to the end of their word, take effect when all before are in place: the peer's program may poll the last byte.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rs.h"

enum { MOST = 128, WINDOW = 16, PART = 64 << 10, WORD = 8 };

struct entry { uint64_t offset, size, number; }; /* number: of the export's name; 0: nothing is mapped */

struct map { /* of ours */
	struct map *next;
	void *at;
	size_t size;
	struct ibv_mr *mr;    /* NULL: not for the peer */
	edge_export *export_;
	unsigned entry;       /* in the peer's table */
};

struct rio {
	pthread_mutex_t mu;
	unsigned room;        /* entries of our table */
	edge_region *table;   /* NULL: it has none yet */
	struct { uint64_t number; edge_remote *memory; } known[MOST]; /* by our table's entries */
	struct map *maps;
	edge_remote *theirs;  /* the peer's table; NULL: not known yet */
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
	if (io == NULL || io->room == 0 || io->table != NULL)
		return;
	int err = edge_register(lib.dev, sizeof(struct entry) * MOST, &io->table, ASK_MS);
	if (err == 0)
		err = edge_export_region(io->table, edge_stream_conn(s->stream), "iomap", EDGE_REMOTE_WRITE, 0,
		                         sizeof(struct entry) * io->room, NULL, ASK_MS);
	if (err != 0)
		say("no table of mapped memory: %s", edge_message(err));
}

/* Tells the peer what an entry of its table is. */
static int write_entry(struct rs *s, unsigned entry, struct entry is)
{
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_BACKWARD_FENCE, .inline_data = &is, .inline_size = sizeof is,
		.remote = s->io->theirs, .remote_off = sizeof is * entry };
	return edge_post_wait(edge_stream_conn(s->stream), &w, NULL, ASK_MS);
}

/* A free entry of the peer's table; -1: there is none. */
static int free_entry(struct rs *s)
{
	struct rio *io = s->io;
	if (io->theirs == NULL && edge_import(edge_stream_conn(s->stream), "iomap", &io->theirs, ASK_MS) != 0)
		return -1; /* the peer takes none */
	int i = 0;
	while (i < MOST && io->used[i])
		i++;
	return i < MOST && (i + 1) * sizeof(struct entry) <= edge_remote_size(io->theirs) ? i : -1;
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
		if (err == 0 && (err = write_entry(s, m->entry, (struct entry){ offset, m->size, io->numbers })) != 0)
			edge_export_revoke(m->export_, ASK_MS);
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
	return edge_export_revoke(m->export_, ASK_MS) == 0 && ibv_dereg_mr(m->mr) == 0;
}

EXPORT int riounmap(int fd, void *at, size_t size)
{
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
		if (write_entry(s, m->entry, (struct entry){ 0 }) != 0)
			say("the peer is not told that memory is unmapped");
		err = take_back(m) ? 0 : EIO;
		io->used[m->entry] = err != 0;
	}
	if (err == 0) {
		*link = m->next;
		free(m);
	}
	pthread_mutex_unlock(&io->mu);
	return err == 0 ? 0 : fails(err);
}

/* What the peer has mapped at an offset; *at: where in it, *room: bytes from there on. NULL: nothing. The peer may write
 * anything into our table at any time; how long the memory is its export says. */
static edge_remote *find(struct rs *s, uint64_t offset, uint64_t *at, uint64_t *room)
{
	struct rio *io = s->io;
	const volatile struct entry *table = io->table != NULL ? edge_region_bytes(io->table) : NULL;
	for (unsigned i = 0; table != NULL && i < io->room; i++) {
		struct entry e = { table[i].offset, table[i].size, table[i].number };
		char name[32];
		if (e.number == 0 || offset < e.offset || offset - e.offset >= e.size)
			continue;
		snprintf(name, sizeof name, "io/%llu", (unsigned long long)e.number);
		if (io->known[i].number != e.number) {
			if (edge_import(edge_stream_conn(s->stream), name, &io->known[i].memory, ASK_MS) != 0)
				return NULL;
			io->known[i].number = e.number;
		}
		uint64_t size = edge_remote_size(io->known[i].memory);
		*at = offset - e.offset;
		*room = size > *at ? size - *at : 0;
		return *room > 0 ? io->known[i].memory : NULL;
	}
	return NULL;
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
	edge_remote *to = find(s, offset, &at, &room);
	if (to == NULL)
		return EDGE_ERR_INVALID;
	size_t n = size < room ? size : room, last = (at + n - 1) % WORD + 1;
	last = last < n ? last : n;
	if (n > last) {
		n = n - last < PART ? n - last : PART;
		last = 0;
	}
	edge_work w = { .remote = to, .remote_off = at, .inline_data = p, .inline_size = (uint32_t)last };
	if (last == 0)
		w.size = n;
	int err = post(s, &w, wait_ms);
	return err == 0 ? (ssize_t)n : err;
}

EXPORT size_t riowrite(int fd, const void *p, size_t size, off_t offset, int flags)
{
	struct rs *s = rs_find(fd);
	int wait_ms = s != NULL && !s->nonblock && !(flags & MSG_DONTWAIT) ? EDGE_FOREVER : 0;
	struct rio *io = s != NULL && rs_stream(s, wait_ms != 0) != NULL ? of(s) : NULL;
	if (io == NULL)
		return (size_t)-1;
	size_t done = 0;
	ssize_t n = 1;
	pthread_mutex_lock(&io->mu);
	for (; n > 0 && done < size; done += n > 0 ? (size_t)n : 0)
		n = write_part(s, (const char *)p + done, size - done, (uint64_t)offset + done, wait_ms);
	pthread_mutex_unlock(&io->mu);
	rs_asked(n == EDGE_ERR_AGAIN);
	return done > 0 || n >= 0 ? done : (size_t)rs_failed((int)n);
}

bool rio_full(struct rs *s)
{
	struct rio *io = s->io;
	if (io == NULL || pthread_mutex_trylock(&io->mu) != 0)
		return false;
	bool full = !edge_op_done(&io->op[io->next % WINDOW]);
	pthread_mutex_unlock(&io->mu);
	return full;
}

/* What was written is on its way still, as bytes of the stream are: then the memory goes with the device. */
void rio_free(struct rs *s)
{
	enum { FLY_MS = 1000 };
	struct rio *io = s->io;
	if (io == NULL)
		return;
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
	free(io);
}
