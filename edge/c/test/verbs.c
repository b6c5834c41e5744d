/* Atomics, pieces, local completion, messages and composed ones, against C and Go: one program, a role for each first
 * argument. The Go roles are in drive/verbs_test.go, and behave alike. */
#include "test.h"

enum { MEM = 1 << 16, BUFFER = 1024, POSTED = 4, REFUSE = 99, MARK = MEM / 2 - 8 };

static edge_device *dev;
static edge_conn *conn;
static edge_request *request; /* not accepted yet; NULL: there is none */
static edge_region *mem;
static edge_queue *queue;

/* Places to point at: a work's context. */
static char places[256];

/* Posts a buffer; counts it, unless the peer has closed. */
static int posted;

static void receive(size_t i)
{
	edge_work w = { .kind = EDGE_RECEIVE, .local = mem, .local_off = i * BUFFER, .size = BUFFER,
		.context = &places[i] };
	edge_piece two[] = { { mem, i * BUFFER, 100 }, { mem, i * BUFFER + 100, BUFFER - 100 } };
	if (i % 2 == 0)
		w = (edge_work){ .kind = EDGE_RECEIVE, .pieces = two, .npieces = 2, .context = &places[i] };
	int err = queue != NULL ? edge_queue_post(queue, &w, NULL) :
		request != NULL ? edge_request_post(request, &w, NULL) : edge_post(conn, &w, NULL);
	if (err != EDGE_ERR_PEER_CLOSED) {
		OK(err);
		posted++;
	}
}

static edge_completion next(void)
{
	edge_completion c;
	IS(edge_completions_wait(dev, &c, 1, WAIT), 1);
	return c;
}

/* Sends back what came, with an immediate that is one more. One with REFUSE goes back without patience, to nobody;
 * that this is over is told by a mark in the memory. */
static void answer(const edge_completion *got)
{
	size_t i = (size_t)((char *)got->context - places);
	edge_work w = { .kind = EDGE_SEND, .flags = got->has_imm ? EDGE_NOTIFY : 0, .imm = got->imm + 1, .local = mem,
		.local_off = i * BUFFER, .size = got->size, .patience_us = got->imm == REFUSE ? -1 : 0 };
	edge_op op;
	OK(edge_post_wait(conn, &w, &op, WAIT));
	IS(edge_op_wait(&op, WAIT), got->imm == REFUSE ? EDGE_ERR_NO_BUFFER : 0);
	if (got->imm == REFUSE)
		*((volatile char *)edge_region_bytes(mem) + MEM / 2 + MARK) = 1;
	receive(i);
}

/* Accepts a connection that has its buffers, or its queue, already. One before it is refused: its buffer comes back. */
static void accept_early(edge_listener *l)
{
	OK(edge_listener_next(l, &request, WAIT));
	edge_queue *shared = queue;
	queue = NULL;
	receive(0);
	OK(edge_request_refuse(request, "the first is refused"));
	edge_completion c = next();
	CHECK(c.err == EDGE_ERR_ABORTED && c.context == places && c.conn == NULL);
	posted = 0;
	queue = shared;
	OK(edge_listener_next(l, &request, WAIT));
	edge_work odd = { .kind = EDGE_WRITE, .local = mem, .size = 8 };
	IS(edge_request_post(request, &odd, NULL), EDGE_ERR_INVALID);
	if (queue != NULL)
		OK(edge_request_serve(request, queue, WAIT));
	for (size_t i = 0; i < POSTED; i++)
		receive(i);
	OK(edge_request_accept(request, NULL, 0, &conn, WAIT));
	request = NULL;
}

/* Exports memory for atomics, and answers messages until the peer closes. */
static void give(char **arg)
{
	edge_listener *l;
	bool early = strncmp(arg[1], "early", 5) == 0;
	dev = open_device(64, EDGE_ADAPTIVE);
	OK(edge_listen(dev, arg[0], &l, WAIT));
	OK(edge_register(dev, MEM, &mem, WAIT));
	if (strstr(arg[1], "queue") != NULL)
		OK(edge_queue_open(dev, &queue, WAIT));
	say("ready");
	if (early) {
		accept_early(l);
	} else {
		OK(edge_accept(l, &conn, WAIT));
		if (queue != NULL)
			OK(edge_queue_serve(queue, conn, WAIT));
		for (size_t i = 0; i < POSTED; i++)
			receive(i);
	}
	IS(edge_region_close(mem), EDGE_ERR_BUSY);
	IS(edge_export_region(mem, conn, "odd", EDGE_REMOTE_ATOMIC, 4, 8, NULL, WAIT), EDGE_ERR_INVALID);
	OK(edge_export_region(mem, conn, "plain", EDGE_REMOTE_READ, MEM / 2, 8, NULL, WAIT));
	OK(edge_export_region(mem, conn, "mem", EDGE_REMOTE_READ | EDGE_REMOTE_WRITE | EDGE_REMOTE_ATOMIC, MEM / 2, MEM / 2,
	                      NULL, WAIT));
	edge_completion c;
	edge_notification note;
	while (edge_conn_error(conn) == 0) {
		if (edge_completions_wait(dev, &c, 1, 20) != 1) {
			edge_notify_wait(conn, &note, 0);
			continue;
		}
		CHECK(c.kind == EDGE_RECEIVE);
		posted--;
		if (c.err == 0) {
			CHECK(c.conn == conn);
			answer(&c);
		} else if (c.err == EDGE_ERR_TOO_LONG) {
			receive((size_t)((char *)c.context - places));
		}
	}
	IS(edge_conn_error(conn), EDGE_ERR_PEER_CLOSED);
	if (queue != NULL)
		OK(edge_queue_close(queue, WAIT));
	for (; posted > 0; posted--) {
		c = next();
		IS(c.err, EDGE_ERR_PEER_CLOSED);
	}
	edge_conn_free(conn);
	OK(edge_region_close(mem));
	edge_device_close(dev, 0);
}

static void posts(const edge_work *w, int err)
{
	edge_op op;
	OK(edge_post_wait(conn, w, &op, WAIT));
	IS(edge_op_wait(&op, WAIT), err);
}

static void atomics(edge_remote *to, edge_remote *plain)
{
	uint64_t was = 7;
	OK(edge_atomic(to, EDGE_FETCH_ADD, 0, 5, &was, WAIT));
	CHECK(was == 0);
	OK(edge_atomic(to, EDGE_FETCH_ADD, 0, 1, NULL, WAIT));
	OK(edge_compare_swap(to, 0, 6, 100, &was, WAIT));
	CHECK(was == 6);
	OK(edge_compare_swap(to, 0, 6, 7, &was, WAIT));
	CHECK(was == 100);
	edge_work w = { .kind = EDGE_ATOMIC, .func = EDGE_FETCH_MIN_SIGNED, .size = 4, .remote = to, .remote_off = 12,
		.operand = (uint32_t)-3, .result = &was };
	posts(&w, 0);
	CHECK(was == 0);
	w.func = EDGE_SWAP;
	posts(&w, 0);
	CHECK(was == (uint32_t)-3);
	static uint64_t found[200];
	uint64_t sum = 0;
	w = (edge_work){ .kind = EDGE_ATOMIC, .func = EDGE_FETCH_ADD, .size = 8, .remote = to, .remote_off = 16,
		.operand = 1 };
	for (int i = 0; i < 200; i++) {
		w.context = &found[i];
		w.result = &found[i];
		OK(edge_post_wait(conn, &w, NULL, WAIT));
		if (i % 32 == 31)
			for (int k = 0; k < 32; k++)
				IS(next().err, 0);
	}
	for (int i = 0; i < 200 % 32; i++)
		IS(next().kind, EDGE_ATOMIC);
	for (int i = 0; i < 200; i++)
		sum += found[i];
	CHECK(sum == 199 * 200 / 2);
	IS(edge_atomic(to, EDGE_SWAP, 4, 1, NULL, WAIT), EDGE_ERR_MISALIGNED);
	IS(edge_atomic(plain, EDGE_SWAP, 0, 1, NULL, WAIT), EDGE_ERR_PERMISSION);
	IS(edge_atomic(to, EDGE_SWAP, MEM / 2, 1, NULL, WAIT), EDGE_ERR_BOUNDS);
	IS(edge_atomic(to, 11, 0, 1, NULL, WAIT), EDGE_ERR_INVALID);
	w.local = mem;
	IS(edge_post(conn, &w, NULL), EDGE_ERR_INVALID);
}

/* Gathers pieces of odd places and sizes, and scatters what was written into others. */
static void pieces(edge_remote *to)
{
	unsigned char *p = edge_region_bytes(mem);
	edge_piece out[EDGE_MAX_PIECES + 1], in[5];
	unsigned char want[1024];
	size_t n = 0;
	for (size_t i = 0; i < EDGE_MAX_PIECES + 1; i++) {
		out[i] = (edge_piece){ mem, 8192 + 97 * (EDGE_MAX_PIECES - i), 3 + 2 * i };
		for (size_t k = 0; k < out[i].size && i < EDGE_MAX_PIECES; k++, n++)
			want[n] = p[out[i].off + k] = (unsigned char)(n * 31 + i);
	}
	edge_work w = { .kind = EDGE_WRITE, .pieces = out, .npieces = EDGE_MAX_PIECES, .remote = to, .remote_off = 4097 };
	posts(&w, 0);
	size_t left = n;
	for (size_t i = 0; i < 5; i++) {
		in[i] = (edge_piece){ mem, 32768 + 3000 * i + i, i < 4 ? 11 * i : left };
		left -= in[i].size;
	}
	w = (edge_work){ .kind = EDGE_READ, .pieces = in, .npieces = 5, .remote = to, .remote_off = 4097 };
	posts(&w, 0);
	for (size_t i = 0, at = 0; i < 5; at += in[i++].size)
		CHECK(memcmp(p + in[i].off, want + at, in[i].size) == 0);
	w = (edge_work){ .kind = EDGE_WRITE, .pieces = out, .npieces = EDGE_MAX_PIECES + 1, .remote = to };
	IS(edge_post(conn, &w, NULL), EDGE_ERR_INVALID);
	w.npieces = 2;
	out[0].off = MEM - 1;
	IS(edge_post(conn, &w, NULL), EDGE_ERR_BOUNDS);
	w.npieces = 1;
	w.local = mem;
	IS(edge_post(conn, &w, NULL), EDGE_ERR_INVALID);
}

/* One buffer, changed after each write of it is done, arrives as it was each time. */
static void local_done(edge_remote *to)
{
	unsigned char *p = edge_region_bytes(mem);
	for (unsigned i = 0; i < 64; i++) {
		memset(p + 8192, (int)i, 100);
		edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_LOCAL_DONE, .local = mem, .local_off = 8192, .size = 100,
			.remote = to, .remote_off = 100 * i };
		posts(&w, 0);
	}
	edge_work w = { .kind = EDGE_READ, .flags = EDGE_BACKWARD_FENCE, .local = mem, .local_off = 16384, .size = 6400,
		.remote = to };
	posts(&w, 0);
	for (unsigned i = 0; i < 6400; i++)
		CHECK(p[16384 + i] == i / 100);
	IS(edge_conn_late(conn, NULL), 0);
}

static void talks(edge_work w, size_t size)
{
	unsigned char *p = edge_region_bytes(mem);
	edge_completion c[2];
	receive(2);
	w.kind = EDGE_SEND;
	w.context = &places[100];
	OK(edge_post(conn, &w, NULL));
	c[0] = next();
	c[1] = next();
	edge_completion *got = &c[c[0].kind != EDGE_RECEIVE];
	CHECK(got->kind == EDGE_RECEIVE && got->context == &places[2] && got->err == 0 && got->conn == conn);
	CHECK(got->size == size && !got->has_imm == !(w.flags & EDGE_NOTIFY) && (!got->has_imm || got->imm == w.imm + 1));
	CHECK(c[0].err == 0 && c[1].err == 0 && c[got == c].kind == EDGE_SEND);
	const unsigned char *sent = w.inline_size > 0 ? w.inline_data : p + 8192;
	CHECK(memcmp(p + 2 * BUFFER, sent, size) == 0);
}

static void messages(edge_remote *to)
{
	unsigned char *p = edge_region_bytes(mem);
	for (size_t i = 0; i < BUFFER; i++)
		p[8192 + i] = (unsigned char)(i * 7);
	for (uint32_t i = 0; i < 20; i++)
		talks((edge_work){ .flags = EDGE_NOTIFY, .imm = i, .local = mem, .local_off = 8192, .size = i * 53 }, i * 53);
	talks((edge_work){ .inline_data = "five!", .inline_size = 5 }, 5);
	static const uint32_t sizes[] = { 24, 25, 80, 81, 500, EDGE_MAX_INLINE };
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		talks((edge_work){ .inline_data = p + 8192, .inline_size = sizes[i] }, sizes[i]);
	edge_work more = { .kind = EDGE_SEND, .inline_data = p, .inline_size = EDGE_MAX_INLINE + 1 };
	IS(edge_post(conn, &more, NULL), EDGE_ERR_INVALID);
	talks((edge_work){ .flags = EDGE_NOTIFY, .imm = 1000 }, 0);
	edge_piece three[] = { { mem, 8192, 100 }, { mem, 8292, 1 }, { mem, 8293, 200 } };
	talks((edge_work){ .pieces = three, .npieces = 3 }, 301);
	posts(&(edge_work){ .kind = EDGE_SEND, .local = mem, .size = BUFFER + 1 }, EDGE_ERR_TOO_LONG);
	talks((edge_work){ .inline_data = "on", .inline_size = 2 }, 2);
	/* The answer to this meets no buffer, and its sender has no patience. */
	posts(&(edge_work){ .kind = EDGE_SEND, .flags = EDGE_NOTIFY, .imm = REFUSE, .inline_data = "x",
		.inline_size = 1 }, 0);
	for (char mark = 0; mark == 0;)
		OK(edge_remote_read(to, &mark, 1, MARK, WAIT));
	posts(&(edge_work){ .kind = EDGE_SEND, .inline_data = "x", .inline_size = 1 }, 0);
	receive(2);
	edge_completion c = next(); /* of the second */
	CHECK(c.kind == EDGE_RECEIVE && c.err == 0 && c.size == 1 && !c.has_imm);
	edge_work bad = { .kind = EDGE_RECEIVE, .local = mem, .size = 8 };
	IS(edge_post(conn, &bad, NULL), EDGE_ERR_INVALID);
	bad.context = places;
	bad.flags = EDGE_NOTIFY;
	IS(edge_post(conn, &bad, NULL), EDGE_ERR_INVALID);
}

/* Says something of a message, again while the queue is full. */
#define SAY(err, x) do { while ((err = (x)) == EDGE_ERR_AGAIN) edge_device_poll(dev); } while (0)

/* Writes that travel while they are composed: the newest version of each byte arrives, with the commit; what is
 * discarded never does. */
static void composed_writes(edge_remote *to)
{
	enum { N = 3000, AT = 8192, ROUNDS = 30 };
	unsigned char *p = edge_region_bytes(mem), got[N], want[N];
	edge_op op;
	int err;
	OK(edge_remote_read(to, want, N, 5000, WAIT));
	for (unsigned round = 0; round < ROUNDS; round++) {
		edge_work w = { .kind = EDGE_WRITE, .local = mem, .local_off = AT, .size = N, .remote = to,
			.remote_off = 5000 };
		SAY(err, edge_compose(conn, &w, &op));
		OK(err);
		for (unsigned step = 0; step < 20; step++) {
			size_t lo = step * 997 % (N - 200);
			memset(p + AT + lo, (int)(round + step), 200);
			SAY(err, edge_wrote(&op, lo, 200));
			OK(err);
		}
		if (round % 4 == 3) {
			SAY(err, edge_discard(&op));
			OK(err);
			IS(edge_op_wait(&op, WAIT), EDGE_ERR_ABORTED);
			IS(edge_wrote(&op, 0, 1), EDGE_ERR_ABORTED);
		} else {
			memcpy(want, p + AT, N - 10);
			SAY(err, edge_commit(&op, N - 10, EDGE_BACKWARD_FENCE, 0));
			OK(err);
			IS(edge_commit(&op, N, 0, 0), EDGE_ERR_INVALID);
			IS(edge_op_wait(&op, WAIT), 0);
		}
		OK(edge_remote_read(to, got, N, 5000, WAIT));
		CHECK(memcmp(got, want, N) == 0);
	}
}

/* Composed sends take the peer's buffers in the order of commits. */
static void composed_sends(void)
{
	enum { N = 900, AT = 8192 };
	unsigned char *p = edge_region_bytes(mem);
	edge_op op[2];
	int err;
	for (int i = 0; i < 2; i++) {
		edge_work w = { .kind = EDGE_SEND, .local = mem, .local_off = AT + 1000 * (size_t)i, .size = N,
			.context = &places[100 + i] };
		receive((size_t)i);
		OK(edge_compose(conn, &w, &op[i]));
		memset(p + w.local_off, 'a' + i, N);
		SAY(err, edge_wrote(&op[i], 100, 600));
		OK(err);
	}
	IS(edge_region_close(mem), EDGE_ERR_BUSY);
	for (int i = 1; i >= 0; i--) {
		SAY(err, edge_commit(&op[i], N - 1, EDGE_NOTIFY, (uint32_t)i));
		OK(err);
	}
	for (int n = 0, came = 0; n < 4; n++) {
		edge_completion c = next();
		IS(c.err, 0);
		if (c.kind != EDGE_RECEIVE) {
			CHECK(c.kind == EDGE_SEND);
			continue;
		}
		int i = 1 - came;
		CHECK(c.context == &places[came] && c.size == N - 1 && c.has_imm && c.imm == (uint32_t)i + 1);
		CHECK(memcmp(p + came * BUFFER, p + AT + 1000 * i, N - 1) == 0);
		came++;
	}
}

static void composed_badly(edge_remote *to)
{
	edge_work w = { .kind = EDGE_WRITE, .local = mem, .size = 100, .remote = to }, bad;
	edge_op op[17];
#define BAD(err, change) do { bad = w; change; IS(edge_compose(conn, &bad, op), err); } while (0)
	BAD(EDGE_ERR_INVALID, bad.kind = EDGE_READ);
	BAD(EDGE_ERR_INVALID, bad.flags = EDGE_NOTIFY);
	BAD(EDGE_ERR_INVALID, bad.local = NULL);
	BAD(EDGE_ERR_TOO_LONG, bad.size = 0);
	BAD(EDGE_ERR_TOO_LONG, bad.size = EDGE_MAX_EAGER + 1);
	BAD(EDGE_ERR_BOUNDS, bad.local_off = MEM - 99);
	BAD(EDGE_ERR_BOUNDS, bad.remote_off = MEM / 2 - 99);
	for (int i = 0; i < 17; i++)
		OK(edge_compose(conn, &w, &op[i]));
	IS(edge_op_wait(&op[16], WAIT), EDGE_ERR_LIMIT);
	OK(edge_post(conn, &w, &op[16])); /* in its place */
	IS(edge_commit(&op[16], 100, 0, 0), EDGE_ERR_INVALID);
	IS(edge_op_wait(&op[16], WAIT), 0);
	IS(edge_wrote(&op[0], 90, 11), EDGE_ERR_BOUNDS);
	IS(edge_commit(&op[0], 101, 0, 0), EDGE_ERR_BOUNDS);
	IS(edge_commit(&op[0], 100, EDGE_LOCAL_DONE, 0), EDGE_ERR_INVALID);
	for (int i = 0; i < 16; i++) {
		int err;
		SAY(err, edge_discard(&op[i]));
		OK(err);
		IS(edge_op_wait(&op[i], WAIT), EDGE_ERR_ABORTED);
	}
	posts(&w, 0);
}

/* A message that is being composed ends with its connection. */
static void leaves(char **arg)
{
	edge_op op;
	dev = open_device(64, EDGE_ADAPTIVE);
	OK(edge_dial(dev, arg[0], arg[1], NULL, &conn, WAIT));
	OK(edge_register(dev, MEM, &mem, WAIT));
	OK(edge_compose(conn, &(edge_work){ .kind = EDGE_SEND, .local = mem, .size = 5000 }, &op));
	OK(edge_wrote(&op, 0, 5000));
	OK(edge_conn_abort(conn));
	IS(edge_op_wait(&op, WAIT), EDGE_ERR_ABORTED);
	IS(edge_wrote(&op, 0, 1), EDGE_ERR_ABORTED);
	IS(edge_commit(&op, 1, 0, 0), EDGE_ERR_ABORTED);
	IS(edge_discard(&op), EDGE_ERR_ABORTED);
	OK(edge_region_close(mem));
	edge_conn_free(conn);
	edge_device_close(dev, 0);
}

static void take(char **arg)
{
	edge_remote *to, *plain;
	dev = open_device(64, EDGE_ADAPTIVE);
	OK(edge_dial(dev, arg[0], arg[1], NULL, &conn, WAIT));
	OK(edge_register(dev, MEM, &mem, WAIT));
	OK(edge_import(conn, "mem", &to, WAIT));
	OK(edge_import(conn, "plain", &plain, WAIT));
	atomics(to, plain);
	pieces(to);
	local_done(to);
	messages(to);
	composed_writes(to);
	composed_sends();
	composed_badly(to);
	receive(3); /* it comes back when the connection ends */
	OK(edge_conn_close(conn, WAIT));
	edge_completion c = next();
	CHECK(c.context == &places[3] && c.err < 0);
	edge_conn_free(conn);
	OK(edge_region_close(mem));
	edge_device_close(dev, 0);
}

/* What a daemon does not know fails with a word about it, and loses nothing. */
static void older(char **arg)
{
	edge_remote *to;
	edge_queue *q;
	(void)arg;
	dev = open_device(64, EDGE_ADAPTIVE);
	OK(edge_dial(dev, "peer", "service", NULL, &conn, WAIT));
	OK(edge_register(dev, MEM, &mem, WAIT));
	OK(edge_import(conn, "mem", &to, WAIT));
	edge_piece two[] = { { mem, 0, 1 }, { mem, 8, 1 } };
	const edge_work all[] = {
		{ .kind = EDGE_ATOMIC, .func = EDGE_SWAP, .size = 8, .remote = to },
		{ .kind = EDGE_WRITE, .pieces = two, .npieces = 2, .remote = to },
		{ .kind = EDGE_WRITE, .inline_data = two, .inline_size = 25, .remote = to },
		{ .kind = EDGE_SEND, .inline_data = "x", .inline_size = 1 },
		{ .kind = EDGE_RECEIVE, .local = mem, .size = 8, .context = places },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		IS(edge_post(conn, &all[i], NULL), EDGE_ERR_VERSION);
		CHECK(strstr(edge_detail(), "upgrade it") != NULL);
	}
	edge_op op;
	IS(edge_compose(conn, &(edge_work){ .kind = EDGE_WRITE, .local = mem, .size = 8, .remote = to }, &op),
	   EDGE_ERR_VERSION);
	IS(edge_queue_open(dev, &q, WAIT), EDGE_ERR_VERSION);
	IS(edge_export_region(mem, conn, "mem", EDGE_REMOTE_ATOMIC, 0, 8, NULL, WAIT), EDGE_ERR_VERSION);
	edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_LOCAL_DONE, .pieces = two, .npieces = 1, .remote = to };
	OK(edge_post(conn, &w, NULL));
	say("well");
	_exit(0);
}

static int heard, accepted;

/* Accepts streams of those whose data are good, and refuses others before there is a stream. */
static void choose(char **arg)
{
	edge_listener *l;
	edge_request *r;
	edge_stream *s[2];
	dev = open_device(64, EDGE_ADAPTIVE);
	OK(edge_listen(dev, arg[0], &l, WAIT));
	say("ready");
	for (; heard < 4; heard++) {
		const void *data;
		size_t n;
		OK(edge_listener_next(l, &r, WAIT));
		bool stream = edge_request_stream(r, &data, &n);
		if (stream && n == 4 && memcmp(data, "good", 4) == 0)
			OK(edge_request_accept_stream(r, &s[accepted++]));
		else if (stream)
			OK(edge_request_refuse(r, "not you"));
		else
			IS(edge_request_accept_stream(r, &s[0]), EDGE_ERR_INVALID);
	}
	IS(accepted, 2);
	for (int i = 0; i < 2; i++) {
		char buf[8];
		size_t n;
		OK(edge_stream_wait(s[i], WAIT));
		CHECK(edge_stream_data(s[i], &n) != NULL && n == 4);
		IS(edge_stream_read(s[i], buf, sizeof buf, WAIT), 5);
		IS(edge_stream_write(s[i], buf, 5, WAIT), 5);
		IS(edge_stream_read(s[i], buf, sizeof buf, WAIT), 0);
		edge_stream_close(s[i], WAIT);
	}
	edge_device_close(dev, WAIT);
}

static void chosen(char **arg)
{
	static const char *const says[] = { "bad", "good", NULL, "good" };
	edge_stream *s[4];
	dev = open_device(64, EDGE_ADAPTIVE);
	for (int i = 0; i < 4; i++) {
		edge_dial_options o = { .size = sizeof o, .data = says[i], .data_size = says[i] ? strlen(says[i]) : 0 };
		if (says[i] == NULL) {
			IS(edge_dial(dev, arg[0], arg[1], NULL, &conn, WAIT), EDGE_ERR_REFUSED);
			continue;
		}
		int err = edge_stream_dial(dev, arg[0], arg[1], &o, &s[i], WAIT);
		IS(err, i == 0 ? EDGE_ERR_REFUSED : 0);
		if (i == 0)
			continue;
		IS(edge_stream_write(s[i], "hello", 5, WAIT), 5);
		OK(edge_stream_shutdown(s[i]));
	}
	for (int i = 1; i < 4; i += 2) {
		char buf[8];
		IS(edge_stream_read(s[i], buf, sizeof buf, WAIT), 5);
		edge_stream_close(s[i], WAIT);
	}
	edge_device_close(dev, WAIT);
}

/* What was written to streams, closed or open, has arrived when the device is drained, whatever it ends by. */
static void drains(char **arg)
{
	static char much[200000], buf[sizeof much + 1];
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_stream *from[2], *to[2];
	OK(edge_stream_listen(b, arg[0], 0, &l, WAIT));
	for (int i = 0; i < 2; i++) {
		OK(edge_stream_dial_start(a, edge_device_name(b), arg[0], NULL, &from[i], WAIT));
		while (edge_stream_accept(l, &to[i], 10) != 0)
			CHECK(edge_stream_wait(from[i], 10) == 0 || edge_stream_error(from[i]) == EDGE_ERR_AGAIN);
		IS(edge_stream_write(from[i], much, sizeof much, WAIT), sizeof much);
	}
	edge_stream_close(from[0], -1);
	OK(edge_device_drain(a, WAIT));
	IS(edge_device_drain(a, 0), 0);
	edge_device_close(a, 0);
	edge_stream_close(from[1], 0);
	for (int i = 0; i < 2; i++) {
		size_t got = 0;
		ssize_t n;
		while ((n = edge_stream_read(to[i], buf, sizeof buf, WAIT)) > 0)
			got += (size_t)n;
		IS(got, sizeof much);
		IS(n, i == 0 ? 0 : EDGE_ERR_RESET);
		edge_stream_close(to[i], 0);
	}
	edge_device_close(b, 0);
}

/* A dial that is refused. */
static void refused(char **arg)
{
	dev = open_device(64, EDGE_ADAPTIVE);
	IS(edge_dial(dev, arg[0], arg[1], NULL, &conn, WAIT), EDGE_ERR_REFUSED);
	edge_device_close(dev, 0);
}

static const struct { const char *name; void (*run)(char **); int args; } roles[] = {
	{ "give", give, 2 }, { "take", take, 2 }, { "refused", refused, 2 }, { "leaves", leaves, 2 }, { "older", older, 0 },
	{ "choose", choose, 1 }, { "chosen", chosen, 2 }, { "drains", drains, 1 },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
		if (argc > 1 && strcmp(argv[1], roles[i].name) == 0 && argc == roles[i].args + 2) {
			roles[i].run(argv + 2);
			return 0;
		}
	fprintf(stderr, "verbs: no such role\n");
	return 2;
}
