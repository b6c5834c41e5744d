/*
 * Reads, writes and atomics that involve no code of the owner's: its program does something else meanwhile.
 *
 * sided sided-serve FILE    sided sided FILE
 * sided flood-serve FILE    sided flood FILE N    N writes, each read again, and atomics among them; when the
 *                                                 connection ends it is made again, and all begins anew
 * sided measure-serve FILE    sided measure FILE  us of one operation, MB/s of sixteen at once; STREAM=1: with keys of
 *                                                 the program's, so that the owner's provider performs them
 *
 * FILE.fifo, which is there, keeps the server from the provider until the client opens it.
 */
#include <fcntl.h>

#include "common.h"

enum { BIG = 3000000, SMALL = 10000, ADDS = 100, ROUNDS = 5, SLOT = 70000, SLOTS = 8, WINDOW = 16, LIMIT = 40 };

struct place { uint64_t addr, key; };
struct places { struct place all, constant, word; };

static struct fid_mr *registered(void *p, size_t n, uint64_t access)
{
	struct fid_mr *mr;
	static uint64_t key; /* if it is ours to choose */
	CHECK(fi_mr_reg(domain, p, n, access, 0, ++key, 0, &mr, NULL));
	return mr;
}

static struct place place_of(void *p, struct fid_mr *mr)
{
	return (struct place){ mr_modes != 0 ? (uintptr_t)p : 0, fi_mr_key(mr) };
}

/* Waits for the other program, without a call of libfabric. */
static void rendezvous(const char *file, int how)
{
	char name[300];
	snprintf(name, sizeof name, "%s.fifo", file);
	int fd = open(name, how);
	WANT(fd >= 0 && close(fd) == 0);
}

/* Completions of several operations, in whatever order they come: context and outcome of each. */
struct ended { const void *context; int err; };

static void all_end(const struct ended *e, size_t n)
{
	struct fi_cq_data_entry c;
	for (size_t i = 0; i < n; i++) {
		int err = completion(&c);
		size_t k = 0;
		while (k < n && e[k].context != c.op_context)
			k++;
		WANT(k < n && e[k].err == err);
	}
}

static void both_end(const void *a, const void *b)
{
	all_end((struct ended[]){ { a, 0 }, { b, 0 } }, 2);
}

static char *mine, *theirs;
static void *mine_desc, *theirs_desc;

static const size_t lengths[] = { 1, 8, 24, 25, 4096, 16384, 16385, 262144, 1000003, BIG };

static void transfers(struct fid_ep *ep, struct place to)
{
	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		size_t n = lengths[i], part = n / 3;
		struct iovec v[3] = { { theirs, part }, { theirs + part, 0 }, { theirs + part, n - part } };
		void *desc[3] = { theirs_desc, theirs_desc, theirs_desc };
		fill(mine, n, i);
		memset(theirs, 0, n);
		CHECK(fi_write(ep, mine, n, mine_desc, 0, to.addr, to.key, mine));
		CHECK(fi_readv(ep, v, desc, 3, 0, to.addr, to.key, v)); /* after the write */
		both_end(mine, v);
		WANT(same(theirs, n, i));
	}
	/* Bytes that lie in no registered memory, and those that the program needs no more at once. */
	char here[SMALL];
	fill(here, SMALL, 90);
	CHECK(fi_write(ep, here, SMALL, NULL, 0, to.addr, to.key, here));
	WANT(outcome(here) == 0);
	memset(here, 0, SMALL);
	CHECK(fi_read(ep, here, SMALL, NULL, 0, to.addr, to.key, here));
	WANT(outcome(here) == 0 && same(here, SMALL, 90));
	fill(here, SMALL, 91);
	CHECK(fi_inject_write(ep, here, SMALL, 0, to.addr, to.key));
	CHECK(fi_inject_write(ep, "inject", 6, 0, to.addr + 17, to.key));
	fill(here, SMALL, 91);
	memcpy(here + 17, "inject", 6);
	CHECK(fi_read(ep, theirs, SMALL, theirs_desc, 0, to.addr, to.key, theirs));
	WANT(outcome(theirs) == 0 && memcmp(theirs, here, SMALL) == 0);
}

static uint64_t fetch(struct fid_ep *ep, struct place at, enum fi_datatype type, enum fi_op op, uint64_t v)
{
	uint64_t was = 0;
	CHECK(fi_fetch_atomic(ep, &v, 1, NULL, &was, NULL, 0, at.addr, at.key, type, op, &was));
	WANT(outcome(&was) == 0);
	return was;
}

static void atomics(struct fid_ep *ep, struct place at)
{
	uint64_t one = 1, was = 0, compare = ADDS, v = 5;
	for (int i = 0; i < ADDS; i++)
		WANT(fetch(ep, at, FI_UINT64, FI_SUM, 1) == (uint64_t)i);
	CHECK(fi_compare_atomic(ep, &v, 1, NULL, &compare, NULL, &was, NULL, 0, at.addr, at.key, FI_UINT64, FI_CSWAP,
	                        &was));
	WANT(outcome(&was) == 0 && was == ADDS);
	WANT(fetch(ep, at, FI_INT64, FI_MIN, (uint64_t)-7) == 5);
	WANT(fetch(ep, at, FI_UINT64, FI_MAX, 9) == (uint64_t)-7);
	WANT(fetch(ep, at, FI_UINT64, FI_BAND, 0xff) == (uint64_t)-7);
	WANT(fetch(ep, at, FI_UINT64, FI_BXOR, 0xf0) == 0xf9);
	WANT(fetch(ep, at, FI_UINT32, FI_BOR, 0x80000000) == 0x09);
	WANT(fetch(ep, at, FI_UINT64, FI_ATOMIC_WRITE, 1000) == 0x80000009);
	CHECK(fi_inject_atomic(ep, &one, 1, 0, at.addr, at.key, FI_UINT64, FI_SUM));
	WANT(fetch(ep, at, FI_UINT64, FI_ATOMIC_READ, 77) == 1001);
	CHECK(fi_atomic(ep, &one, 1, NULL, 0, at.addr, at.key, FI_INT64, FI_SUM, &one));
	WANT(outcome(&one) == 0);
}

/* What the owner's provider does, since its program is back: in the order of all. */
static void both_ways(struct fid_ep *ep, const struct places *at)
{
	double half = 0.5;
	uint64_t was = 0;
	memset(theirs, 0, BIG);
	fill(mine, BIG, 30);
	for (int i = 0; i < ROUNDS; i++) { /* a message comes after what was written before it */
		CHECK(fi_write(ep, theirs, BIG, theirs_desc, 0, at->all.addr, at->all.key, theirs));
		CHECK(fi_write(ep, mine, BIG, mine_desc, 0, at->all.addr, at->all.key, mine));
		CHECK(fi_inject(ep, "go", 2, 0));
		both_end(theirs, mine);
		hear(ep);
	}
	/* Two atomics that the owner's provider performs, around one that it does not. */
	CHECK(fi_atomic(ep, &half, 1, NULL, 0, at->word.addr + 8, at->word.key, FI_DOUBLE, FI_SUM, &half));
	CHECK(fi_fetch_atomic(ep, NULL, 1, NULL, &was, NULL, 0, at->word.addr + 8, at->word.key, FI_UINT64, FI_ATOMIC_READ,
	                      &was));
	CHECK(fi_atomic(ep, &half, 1, NULL, 0, at->word.addr + 8, at->word.key, FI_DOUBLE, FI_PROD, NULL));
	all_end((struct ended[]){ { &half, 0 }, { &was, 0 }, { NULL, 0 } }, 3);
	WANT(memcmp(&was, &half, 8) == 0);
}

/* What is not allowed fails, and nothing else does: also what was posted behind it. */
static void errors(struct fid_ep *ep, const struct places *at)
{
	char here[SMALL];
	fill(mine, SMALL, 40);
	CHECK(fi_write(ep, mine, SMALL, mine_desc, 0, at->all.addr, at->all.key ^ 0x5555, "key"));
	CHECK(fi_write(ep, mine, SMALL, mine_desc, 0, at->all.addr, at->all.key, mine));
	CHECK(fi_read(ep, here, SMALL, NULL, 0, at->all.addr, at->all.key, here));
	fill(mine + SMALL, SMALL, 41);
	CHECK(fi_inject_write(ep, mine + SMALL, SMALL, 0, at->all.addr + SMALL, at->all.key));
	memset(mine + SMALL, 0, SMALL);
	all_end((struct ended[]){ { "key", -FI_ENOKEY }, { mine, 0 }, { here, 0 } }, 3);
	WANT(same(here, SMALL, 40));
	CHECK(fi_read(ep, here, SMALL, NULL, 0, at->all.addr + SMALL, at->all.key, here));
	WANT(outcome(here) == 0 && same(here, SMALL, 41));
	CHECK(fi_write(ep, mine, 8, mine_desc, 0, at->constant.addr, at->constant.key, mine));
	WANT(outcome(mine) == -FI_EACCES);
	CHECK(fi_read(ep, mine, 9, mine_desc, 0, at->all.addr + BIG - 8, at->all.key, mine));
	WANT(outcome(mine) == -FI_EFAULT);
}

static void client(const char *file)
{
	struct fid_ep *ep;
	struct places at;
	char to[64];
	mine = malloc(BIG);
	theirs = malloc(BIG);
	struct fid_mr *m = registered(mine, BIG, FI_READ | FI_WRITE), *t = registered(theirs, BIG, FI_READ);
	mine_desc = fi_mr_desc(m);
	theirs_desc = fi_mr_desc(t);
	address_of(file, to);
	for (int round = 0; round < 2; round++) {
		WANT(dial(to, "sided", "", &ep) == FI_CONNECTED);
		CHECK(fi_recv(ep, &at, sizeof at, NULL, 0, &at));
		WANT(outcome(&at) == 0);
		transfers(ep, at.all);
		atomics(ep, at.word);
		rendezvous(file, O_WRONLY);
		hear(ep);
		both_ways(ep, &at);
		errors(ep, &at);
		say(ep);
		hear(ep);
		CHECK(fi_read(ep, mine, 100, mine_desc, 0, at.all.addr, at.all.key, mine));
		WANT(outcome(mine) == -FI_ENOKEY); /* it is not registered any more */
		CHECK(fi_close(&ep->fid));
	}
	CHECK(fi_close(&m->fid));
	CHECK(fi_close(&t->fid));
	free(mine);
	free(theirs);
}

static void server(const char *file)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	struct places at;
	size_t n;
	serve(file);
	for (int round = 0; round < 2; round++) {
		char *all = calloc(1, BIG);
		uint64_t *word = calloc(2, sizeof *word), constant = 99;
		struct fid_mr *a = registered(all, BIG, FI_REMOTE_READ | FI_REMOTE_WRITE),
			*w = registered(word, 16, FI_REMOTE_READ | FI_REMOTE_WRITE), *c = registered(&constant, 8, FI_REMOTE_READ);
		at = (struct places){ place_of(all, a), place_of(&constant, c), place_of(word, w) };
		struct fid_ep *ep = take(request("sided"), "");
		WANT(ep != NULL);
		CHECK(fi_send(ep, &at, sizeof at, NULL, 0, &at));
		WANT(outcome(&at) == 0);
		rendezvous(file, O_RDONLY); /* all of transfers and atomics is done meanwhile */
		WANT(word[0] == 1002 && memcmp(all + 17, "inject", 6) == 0);
		say(ep);
		for (int i = 0; i < ROUNDS; i++) {
			hear(ep);
			WANT(same(all, BIG, 30));
			say(ep);
		}
		hear(ep);
		WANT(constant == 99);
		CHECK(fi_close(&a->fid));
		say(ep);
		WANT(event(&fid, &cm, &n) == FI_SHUTDOWN && fid == &ep->fid);
		CHECK(fi_close(&ep->fid));
		CHECK(fi_close(&w->fid));
		CHECK(fi_close(&c->fid));
		free(all);
		free(word);
	}
}

/* --- flood --- */

/* Looks whether the memory has what was written last. False: the connection ended. */
static bool flood(struct fid_ep *ep, const struct places *at, unsigned count)
{
	static uint64_t was;
	uint64_t added = 0;
	for (unsigned i = 0; i < count; i++) {
		char *from = mine + i % SLOTS * SLOT, *to = theirs + i % SLOTS * SLOT;
		size_t n = 1 + i * 2654435761u % SLOT;
		uint64_t one = 1, addr = at->all.addr + i % SLOTS * SLOT;
		bool adds = i % 8 == 7, well = true;
		struct fi_cq_data_entry e;
		int left = 0;
		fill(from, n, i);
		ssize_t err = fi_write(ep, from, n, mine_desc, 0, addr, at->all.key, from);
		left += err == 0;
		if (err == 0 && (err = fi_read(ep, to, n, theirs_desc, 0, addr, at->all.key, to)) == 0)
			left++;
		if (err == 0 && adds && (err = fi_fetch_atomic(ep, &one, 1, NULL, &was, NULL, 0, at->word.addr, at->word.key,
		                                               FI_UINT64, FI_SUM, &was)) == 0)
			left++;
		WANT(err == 0 || err == -FI_ENOTCONN);
		for (; left > 0; left--)
			well &= completion(&e) == 0;
		if (err != 0 || !well)
			return false;
		WANT(memcmp(from, to, n) == 0 && (!adds || was == added++));
	}
	return true;
}

static void flood_client(const char *file, unsigned count)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	struct fi_cq_data_entry e;
	struct fid_ep *ep;
	struct places at;
	size_t n;
	int cut = 0;
	struct fid_mr *m = registered(mine = malloc(SLOTS * SLOT), SLOTS * SLOT, FI_READ | FI_WRITE),
		*t = registered(theirs = malloc(SLOTS * SLOT), SLOTS * SLOT, FI_READ);
	mine_desc = fi_mr_desc(m);
	theirs_desc = fi_mr_desc(t);
	for (bool whole = false; !whole;) {
		char to[64];
		address_of(file, to);
		if (dial(to, "flood", NULL, &ep) == FI_CONNECTED) {
			whole = fi_recv(ep, &at, sizeof at, NULL, 0, &at) == 0 && completion(&e) == 0 && flood(ep, &at, count);
			if (whole)
				say(ep);
			WANT(event(&fid, &cm, &n) == FI_SHUTDOWN && fid == &ep->fid);
			cut += !whole;
		} else {
			usleep(20000);
		}
		CHECK(fi_close(&ep->fid));
	}
	CHECK(fi_close(&m->fid));
	CHECK(fi_close(&t->fid));
	printf("flood: whole, cut %d\n", cut);
}

static void flood_server(const char *file)
{
	struct fi_cq_data_entry e;
	char buf[8];
	serve(file);
	for (bool whole = false; !whole;) {
		char *all = calloc(SLOTS, SLOT);
		uint64_t *word = calloc(1, sizeof *word);
		struct fid_mr *a = registered(all, SLOTS * SLOT, FI_REMOTE_READ | FI_REMOTE_WRITE),
			*w = registered(word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE);
		struct places at = { .all = place_of(all, a), .word = place_of(word, w) };
		struct fid_ep *ep = take(request("flood"), "");
		if (ep != NULL) {
			whole = fi_recv(ep, buf, sizeof buf, NULL, 0, buf) == 0 && fi_send(ep, &at, sizeof at, NULL, 0, &at) == 0;
			for (int i = 0; whole && i < 2; i++)
				whole = completion(&e) == 0;
			CHECK(fi_close(&ep->fid));
			while (fi_cq_read(cq, &e, 1) == -FI_EAVAIL)
				completion(&e);
		}
		CHECK(fi_close(&a->fid));
		CHECK(fi_close(&w->fid));
		free(all);
		free(word);
	}
}

/* --- measuring --- */

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

enum what { WRITES, READS, ADDS_ONE };

static void post(struct fid_ep *ep, enum what what, size_t n, const struct places *at)
{
	static uint64_t one = 1, was;
	ssize_t err;
	do
		err = what == WRITES ? fi_write(ep, mine, n, mine_desc, 0, at->all.addr, at->all.key, mine) :
		      what == READS ? fi_read(ep, theirs, n, theirs_desc, 0, at->all.addr, at->all.key, theirs) :
		      fi_fetch_atomic(ep, &one, 1, NULL, &was, NULL, 0, at->word.addr, at->word.key, FI_UINT64, FI_SUM, &was);
	while (err == -FI_EAGAIN);
	CHECK(err);
}

/* ns that count operations take, depth of them at once. */
static int64_t took(struct fid_ep *ep, enum what what, size_t n, const struct places *at, int depth, int count)
{
	struct fi_cq_data_entry e;
	int64_t begin = now_ns();
	for (int posted = 0, ended = 0; ended < count; ended++) {
		for (; posted < count && posted < ended + depth; posted++)
			post(ep, what, n, at);
		WANT(completion(&e) == 0);
	}
	return now_ns() - begin;
}

static void measure(struct fid_ep *ep, const struct places *at)
{
	static const struct { const char *name; enum what what; size_t n; } rows[] = { { "write 8", WRITES, 8 },
		{ "write 65536", WRITES, 65536 }, { "write 1048576", WRITES, 1 << 20 }, { "read 8", READS, 8 },
		{ "read 65536", READS, 65536 }, { "read 1048576", READS, 1 << 20 }, { "add 8", ADDS_ONE, 8 } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int count = rows[i].n > 100000 ? 50 : 300;
		took(ep, rows[i].what, rows[i].n, at, WINDOW, count / 5);
		double us = (double)took(ep, rows[i].what, rows[i].n, at, 1, count) / 1e3 / count;
		double rate = (double)rows[i].n * 4 * count / (double)took(ep, rows[i].what, rows[i].n, at, WINDOW, 4 * count);
		printf("%s us %.1f\n", rows[i].name, us);
		if (rows[i].n > 8)
			printf("%s MB/s %.0f\n", rows[i].name, rate * 1e3);
	}
}

static void measure_client(const char *file)
{
	struct fid_ep *ep;
	struct places at;
	char to[64];
	struct fid_mr *m = registered(mine = calloc(1, BIG), BIG, FI_WRITE),
		*t = registered(theirs = calloc(1, BIG), BIG, FI_READ);
	mine_desc = fi_mr_desc(m);
	theirs_desc = fi_mr_desc(t);
	address_of(file, to);
	WANT(dial(to, "measure", "", &ep) == FI_CONNECTED);
	CHECK(fi_recv(ep, &at, sizeof at, NULL, 0, &at));
	WANT(outcome(&at) == 0);
	measure(ep, &at);
	say(ep);
	hear(ep);
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&m->fid));
	CHECK(fi_close(&t->fid));
}

static void measure_server(const char *file)
{
	char *all = calloc(1, BIG);
	struct fid_mr *a = registered(all, BIG, FI_REMOTE_READ | FI_REMOTE_WRITE);
	struct places at = { .all = place_of(all, a), .word = place_of(all, a) };
	serve(file);
	struct fid_ep *ep = take(request("measure"), "");
	WANT(ep != NULL);
	CHECK(fi_send(ep, &at, sizeof at, NULL, 0, &at));
	WANT(outcome(&at) == 0);
	hear(ep); /* polls meanwhile */
	say(ep);
	CHECK(fi_close(&ep->fid));
	CHECK(fi_close(&a->fid));
	free(all);
}

int main(int argc, char **argv)
{
	role = argc > 1 ? argv[1] : "";
	if (argc < 3)
		fail(__LINE__, "usage: sided sided-serve|sided|flood-serve|flood FILE [N]", 0);
	sleeps = getenv("FI_WAIT") != NULL;
	alarm(LIMIT);
	if (getenv("STREAM") == NULL)
		mr_modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	open_all();
	if (strcmp(role, "sided-serve") == 0)
		server(argv[2]);
	else if (strcmp(role, "flood-serve") == 0)
		flood_server(argv[2]);
	else if (strcmp(role, "flood") == 0)
		flood_client(argv[2], argc > 3 ? (unsigned)atoi(argv[3]) : 1000);
	else if (strcmp(role, "measure-serve") == 0)
		measure_server(argv[2]);
	else if (strcmp(role, "measure") == 0)
		measure_client(argv[2]);
	else
		client(argv[2]);
	close_all();
	printf("%s: ok\n", role);
	return 0;
}
