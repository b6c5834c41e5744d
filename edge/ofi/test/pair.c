/*
 * Two programs that use the provider by itself, and compare every byte.
 *
 * pair verbs-serve FILE    pair verbs FILE      each operation and each error, once
 * pair flood-serve FILE    pair flood FILE N    N messages of all lengths, and reads among them; when the connection
 *                                               ends it is made again, and all begins anew
 *
 * The server writes its address to FILE. Whatever hangs ends by SIGALRM. FI_WAIT sleeps in place of polling.
 */
#include "common.h"

enum { KEY = 77, BIG = 3000000, DEPTH = 64, FLOOD = 200000, LIMIT = 40 };

/* --- verbs --- */

static char mine[BIG], theirs[BIG];

static const size_t lengths[] = { 0, 1, 7, 1000, 4096, 16000, 16384, 32728, 32729, 65536, 262144, 1000003, BIG };
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void send_all(struct fid_ep *ep)
{
	struct fi_cq_data_entry e;
	for (unsigned i = 0; i < LENGTHS; i++) {
		size_t n = lengths[i], part = n / 3;
		struct iovec v[3] = { { mine, part }, { mine + part, 0 }, { mine + part, n - part } };
		struct fi_msg m = { .msg_iov = v, .iov_count = 3, .context = &v, .data = 1000 + i };
		fill(mine, n, i);
		if (n <= 16384 && i % 2 == 0) {
			CHECK(fi_injectdata(ep, mine, n, 1000 + i, 0));
			memset(mine, 0, n);
			continue;
		}
		CHECK(fi_sendmsg(ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA | (i % 3 == 0 ? FI_DELIVERY_COMPLETE : 0)));
		WANT(completion(&e) == 0 && e.op_context == &v && e.flags == (FI_SEND | FI_MSG));
	}
}

static void receive_all(struct fid_ep *ep)
{
	struct fi_cq_data_entry e;
	for (unsigned i = 0; i < LENGTHS; i++) {
		struct iovec v[2] = { { theirs, 5 }, { theirs + 5, BIG - 5 } };
		CHECK(fi_recvv(ep, v, NULL, 2, 0, theirs));
		WANT(completion(&e) == 0 && e.op_context == theirs && e.len == lengths[i] && e.data == 1000 + i);
		WANT(e.flags == (FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA) && same(theirs, e.len, i));
	}
}

static void remote_client(struct fid_ep *ep)
{
	fill(mine, BIG, 50);
	for (unsigned i = 0; i < LENGTHS; i++) {
		CHECK(fi_write(ep, mine, lengths[i], NULL, 0, 0, KEY, mine));
		WANT(outcome(mine) == 0);
		CHECK(fi_read(ep, theirs, lengths[i], NULL, 0, 0, KEY, theirs));
		WANT(outcome(theirs) == 0 && memcmp(mine, theirs, lengths[i]) == 0);
		memset(theirs, 0, lengths[i]);
	}
	CHECK(fi_inject_write(ep, "inject", 6, 0, 17, KEY));
	CHECK(fi_read(ep, theirs, 6, NULL, 0, 17, KEY, theirs));
	WANT(outcome(theirs) == 0 && memcmp(theirs, "inject", 6) == 0);
	/* What is not allowed fails, and nothing else does. */
	CHECK(fi_write(ep, mine, 9, NULL, 0, BIG - 8, KEY, mine));
	WANT(outcome(mine) == -FI_EFAULT);
	CHECK(fi_read(ep, mine, 9, NULL, 0, UINT64_MAX - 3, KEY, mine));
	WANT(outcome(mine) == -FI_EFAULT);
	CHECK(fi_write(ep, mine, BIG, NULL, 0, 0, KEY + 1, mine));
	WANT(outcome(mine) == -FI_EACCES);
	CHECK(fi_read(ep, mine, 100, NULL, 0, 0, KEY + 2, mine));
	WANT(outcome(mine) == -FI_ENOKEY);
	CHECK(fi_writedata(ep, mine, 100, NULL, 99, 0, 0, KEY, mine));
	WANT(outcome(mine) == 0);
	say(ep);
	hear(ep);
	CHECK(fi_read(ep, mine, 100, NULL, 0, 0, KEY, mine));
	WANT(outcome(mine) == -FI_ENOKEY); /* it is not registered any more */
}

static void remote_server(struct fid_ep *ep)
{
	struct fid_mr *mr, *only_read, *twice;
	struct fi_cq_data_entry e;
	char go[8];
	CHECK(fi_mr_reg(domain, mine, BIG, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL));
	CHECK(fi_mr_reg(domain, theirs, BIG, FI_REMOTE_READ, 0, KEY + 1, 0, &only_read, NULL));
	WANT(fi_mr_reg(domain, theirs, 1, FI_REMOTE_READ, 0, KEY, 0, &twice, NULL) == -FI_ENOKEY);
	CHECK(fi_recv(ep, go, sizeof go, NULL, 0, "go"));
	say(ep);
	WANT(completion(&e) == 0 && e.data == 99 && e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
	WANT(outcome("go") == 0);
	WANT(same(mine, 100, 50));
	CHECK(fi_close(&mr->fid));
	CHECK(fi_close(&only_read->fid));
	say(ep);
}

static void errors_client(struct fid_ep *ep)
{
	struct iovec v = { mine, 100 };
	struct fi_msg m = { .msg_iov = &v, .iov_count = 1, .context = mine };
	CHECK(fi_sendmsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	WANT(outcome(mine) == -FI_ETRUNC);
	say(ep);
	WANT(fi_sendmsg(ep, &m, FI_COMMIT_COMPLETE) == -FI_EBADFLAGS);
	WANT(fi_inject(ep, mine, 100000, 0) == -FI_EINVAL);
}

static void errors_server(struct fid_ep *ep)
{
	char small[10];
	CHECK(fi_recv(ep, small, sizeof small, NULL, 0, small));
	WANT(outcome(small) == -FI_ETRUNC && same(small, 10, 50));
	hear(ep);
	CHECK(fi_recv(ep, small, sizeof small, NULL, 0, small));
	CHECK(fi_cancel(&ep->fid, small));
	WANT(outcome(small) == -FI_ECANCELED);
}

enum { INJECTED = 100, SIZE = 16384 };

/* More than all buffers hold is injected before the peer receives anything. */
static void inject_client(struct fid_ep *ep, const char *file)
{
	char name[300];
	for (unsigned i = 0; i < INJECTED; i++) {
		fill(mine, SIZE, i);
		CHECK(fi_inject(ep, mine, SIZE, 0));
	}
	snprintf(name, sizeof name, "%s.injected", file);
	FILE *f = fopen(name, "w");
	WANT(f != NULL && fclose(f) == 0);
}

static void inject_server(struct fid_ep *ep, const char *file)
{
	char name[300];
	snprintf(name, sizeof name, "%s.injected", file);
	while (access(name, F_OK) != 0)
		usleep(1000);
	remove(name);
	for (unsigned i = 0; i < INJECTED; i++) {
		CHECK(fi_recv(ep, mine, SIZE, NULL, 0, mine));
		WANT(outcome(mine) == 0 && same(mine, SIZE, i));
	}
}

static void verbs_server(const char *file)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	size_t n;
	serve(file);
	struct fid_ep *ep = take(request("hello"), "welcome");
	WANT(ep != NULL);
	receive_all(ep);
	remote_server(ep);
	errors_server(ep);
	say(ep);
	inject_server(ep, file);
	CHECK(fi_recv(ep, theirs, 10, NULL, 0, theirs));
	say(ep); /* the peer closes, and the buffer comes back */
	WANT(outcome(theirs) == -FI_ECANCELED);
	WANT(event(&fid, &cm, &n) == FI_SHUTDOWN && fid == &ep->fid);
	WANT(fi_send(ep, mine, 1, NULL, 0, NULL) == -FI_ENOTCONN);
	CHECK(fi_close(&ep->fid));
	struct fi_info *i = request("again");
	CHECK(fi_reject(pep, i->handle, "not you", 7));
	fi_freeinfo(i);
	i = request("bye");
	CHECK(fi_reject(pep, i->handle, NULL, 0));
	fi_freeinfo(i);
}

static void verbs_client(const char *file)
{
	struct fid_ep *ep, *none;
	char to[64];
	address_of(file, to);
	WANT(dial(to, "hello", "welcome", &ep) == FI_CONNECTED);
	send_all(ep);
	hear(ep);
	remote_client(ep);
	fill(mine, 100, 50);
	errors_client(ep);
	hear(ep);
	inject_client(ep, file);
	hear(ep);
	CHECK(fi_close(&ep->fid));
	WANT(dial(to, "again", "not you", &none) == -FI_ECONNREFUSED);
	CHECK(fi_close(&none->fid));
	WANT(dial(to, "bye", "", &none) == -FI_ECONNREFUSED);
	CHECK(fi_close(&none->fid));
	to[2] = to[3] = 0; /* port 0: nobody listens there */
	WANT(dial(to, "x", "", &none) == -FI_ECONNREFUSED);
	CHECK(fi_close(&none->fid));
	to[20] ^= 0x55; /* a node that nobody knows */
	WANT(dial(to, "x", "", &none) < 0);
	CHECK(fi_close(&none->fid));
}

/* --- flood --- */

static size_t length_of(unsigned i)
{
	unsigned x = i * 2654435761u;
	return i % 50 == 49 ? x % FLOOD : i % 3 == 0 ? x % 20000 : x % 300;
}

static char slots[DEPTH][FLOOD];

/* Sends all, with at most DEPTH under way. False: the connection ended, and everything under way has come back. */
static bool flood(struct fid_ep *ep, unsigned count)
{
	struct fi_cq_data_entry e;
	static char got[4096];
	unsigned sent = 0, done = 0;
	bool over = false;
	while (done < count && !(over && done == sent)) {
		for (; !over && sent < count && sent - done < DEPTH; sent++) {
			char *p = slots[sent % DEPTH];
			size_t n = length_of(sent);
			fill(p, n, sent);
			ssize_t err = sent % 64 == 63 ? fi_read(ep, got, sizeof got, NULL, 0, 0, KEY, NULL)
			                              : fi_senddata(ep, p, n, NULL, sent, 0, NULL);
			if (err == -FI_EAGAIN)
				break;
			WANT(err == 0 || err == -FI_ENOTCONN);
			over = err != 0;
			if (over)
				break;
		}
		if (done == sent)
			continue;
		int err = completion(&e);
		done++;
		over |= err != 0;
		if (err == 0 && (e.flags & FI_READ))
			WANT(same(got, sizeof got, 7));
	}
	return !over;
}

static void flood_client(const char *file, unsigned count)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	struct fid_ep *ep;
	size_t n;
	int cut = 0;
	for (bool whole = false; !whole;) {
		char to[64];
		address_of(file, to);
		if (dial(to, "flood", NULL, &ep) == FI_CONNECTED) {
			whole = flood(ep, count);
			if (!whole) {
				WANT(event(&fid, &cm, &n) == FI_SHUTDOWN && fid == &ep->fid);
				cut++;
			} else {
				hear(ep);
			}
		} else {
			usleep(20000);
		}
		CHECK(fi_close(&ep->fid));
	}
	printf("flood: whole, cut %d\n", cut);
}

/* Receives until the connection ends. True: all came. */
static bool drain(struct fid_ep *ep, unsigned count)
{
	struct fi_cq_data_entry e;
	unsigned next = 0;
	for (unsigned i = 0; i < DEPTH; i++)
		if (fi_recv(ep, slots[i], FLOOD, NULL, 0, slots[i]) != 0)
			return false; /* it has ended; those that were posted come back to nobody */
	while (next < count) {
		if (completion(&e) != 0)
			return false;
		if (!(e.flags & FI_RECV))
			continue;
		WANT(e.data == next && e.len == length_of(next) && same(e.op_context, e.len, next));
		next += next % 64 == 62 ? 2 : 1;
		ssize_t err = fi_recv(ep, e.op_context, FLOOD, NULL, 0, e.op_context);
		WANT(err == 0 || err == -FI_ENOTCONN);
	}
	CHECK(fi_send(ep, "go", 2, NULL, 0, NULL));
	return true;
}

static void flood_server(const char *file, unsigned count)
{
	static char board[4096];
	struct fid_mr *mr;
	struct fi_cq_data_entry e;
	fill(board, sizeof board, 7);
	CHECK(fi_mr_reg(domain, board, sizeof board, FI_REMOTE_READ, 0, KEY, 0, &mr, NULL));
	serve(file);
	for (bool whole = false; !whole;) {
		struct fid_ep *ep = take(request("flood"), "");
		if (ep == NULL)
			continue;
		whole = drain(ep, count);
		while (whole && completion(&e) == 0) /* until the peer closes */
			;
		CHECK(fi_close(&ep->fid));
		while (fi_cq_read(cq, &e, 1) == -FI_EAVAIL)
			completion(&e);
	}
	CHECK(fi_close(&mr->fid));
	printf("flood: all came\n");
}

int main(int argc, char **argv)
{
	role = argc > 1 ? argv[1] : "";
	if (argc < 3)
		fail(__LINE__, "usage: pair verbs-serve|verbs|flood-serve|flood FILE [N]", 0);
	sleeps = getenv("FI_WAIT") != NULL;
	alarm(LIMIT);
	open_all();
	unsigned count = argc > 3 ? (unsigned)atoi(argv[3]) : 5000;
	if (strcmp(role, "verbs-serve") == 0)
		verbs_server(argv[2]);
	else if (strcmp(role, "verbs") == 0)
		verbs_client(argv[2]);
	else if (strcmp(role, "flood-serve") == 0)
		flood_server(argv[2], count);
	else
		flood_client(argv[2], count);
	close_all();
	printf("%s: ok\n", role);
	return 0;
}
