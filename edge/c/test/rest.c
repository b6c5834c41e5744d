/* Streams one after the other on one connection (PROTOCOL clause 11.9), between two devices of this program, and a peer
 * that does not follow the rules. rest SERVICE */
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "test.h"

enum { RING = 4096, MANY = 300 };

static edge_device *a, *b;

static void look(void)
{
	edge_device_poll(a);
	edge_device_poll(b);
	sched_yield();
}

/* Looks until x is true; a test that hangs ends. */
#define UNTIL(x) \
	do { \
		time_t end_ = time(NULL) + WAIT / 1000; \
		while (!(x)) { look(); CHECK(time(NULL) < end_); } \
	} while (0)

static void join(const char *service, edge_stream **x, edge_stream **y)
{
	edge_listener *l;
	OK(edge_stream_listen(b, service, 0, &l, WAIT));
	OK(edge_stream_dial_start(a, edge_device_name(b), service, NULL, x, WAIT));
	UNTIL(edge_stream_accept(l, y, 0) == 0);
	UNTIL(edge_stream_wait(*x, 0) == 0);
	edge_listener_close(l);
}

static void pass(edge_stream *from, edge_stream *to, uint32_t seed, size_t size)
{
	static unsigned char out[3 * RING], in[sizeof out];
	CHECK(size <= sizeof out);
	for (size_t i = 0; i < size; i++)
		out[i] = (unsigned char)(seed * 31 + i * 7 + i / 256);
	size_t sent = 0, got = 0;
	while (got < size) {
		ssize_t n = sent < size ? edge_stream_write(from, out + sent, size - sent, 0) : 0;
		CHECK(n >= 0 || n == EDGE_ERR_AGAIN);
		sent += n > 0 ? (size_t)n : 0;
		ssize_t m = 0;
		UNTIL((m = edge_stream_read(to, in + got, sizeof in - got, 0)) != EDGE_ERR_AGAIN || sent < size);
		CHECK(m > 0 || m == EDGE_ERR_AGAIN);
		got += m > 0 ? (size_t)m : 0;
	}
	CHECK(got == size && memcmp(in, out, size) == 0);
}

/* Many of them, of all lengths around that of the ring; which end is done first changes. */
static void one_after_the_other(edge_stream *x, edge_stream *y)
{
	char byte;
	for (uint32_t i = 0; i < MANY; i++) {
		char says[EDGE_STREAM_OPENING], heard[EDGE_STREAM_OPENING] = { 0 };
		size_t size = i % 5 == 0 ? i % 7 : i * 37 % (2 * RING);
		pass(x, y, i, size);
		pass(y, x, i + 1, i % 3 == 0 ? 0 : size + 1);
		edge_stream *first = i % 2 ? x : y, *then = i % 2 ? y : x;
		if (i % 4 < 2)
			OK(edge_stream_shutdown(first));
		else
			OK(edge_stream_rest(first, first == x));
		UNTIL(edge_stream_read(then, &byte, 1, 0) == 0);
		IS(edge_stream_begin(x, "early", 5), EDGE_ERR_AGAIN);
		OK(edge_stream_rest(then, then == x));
		if (i % 4 < 2)
			OK(edge_stream_rest(first, first == x));
		UNTIL(edge_stream_resting(x) == 0 && edge_stream_resting(y) == 0);
		memset(says, (int)i, sizeof says);
		size_t n = 1 + i % sizeof says;
		IS(edge_stream_begin(x, says, sizeof says + 1), EDGE_ERR_INVALID);
		IS(edge_stream_take(y), EDGE_ERR_INVALID);
		OK(edge_stream_begin(x, says, n));
		UNTIL(edge_stream_opening(y, heard) == n);
		CHECK(memcmp(says, heard, n) == 0);
		IS(edge_stream_wait(x, 0), EDGE_ERR_AGAIN);
		IS(edge_stream_write(x, "early", 5, 0), EDGE_ERR_AGAIN);
		IS(edge_stream_read(y, &byte, 1, 0), EDGE_ERR_AGAIN); /* what it began by is not the program's to read */
		IS(edge_stream_rest(y, 0), EDGE_ERR_BUSY);
		OK(edge_stream_take(y));
		UNTIL(edge_stream_wait(x, 0) == 0);
	}
}

/* Streams on which nobody writes: what each one took to begin is free again. */
static void speechless(edge_stream *x, edge_stream *y)
{
	char heard[EDGE_STREAM_OPENING], byte;
	for (uint32_t i = 0; i < MANY; i++) {
		OK(edge_stream_rest(x, 1));
		UNTIL(edge_stream_read(y, &byte, 1, 0) == 0);
		OK(edge_stream_rest(y, 0));
		UNTIL(edge_stream_resting(x) == 0 && edge_stream_resting(y) == 0);
		UNTIL(edge_stream_begin(x, "next", 4) == 0);
		UNTIL(edge_stream_opening(y, heard) == 4);
		UNTIL(edge_stream_take(y) == 0);
		UNTIL(edge_stream_wait(x, 0) == 0);
	}
}

/* Unread bytes do not rest, and an end that only closes has the other one's end. */
static void no_rest(edge_stream *x, edge_stream *y)
{
	char byte;
	IS(edge_stream_write(x, "!", 1, 0), 1);
	UNTIL(edge_stream_readable(y) == 1);
	IS(edge_stream_rest(y, 0), EDGE_ERR_BUSY);
	IS(edge_stream_read(y, &byte, 1, 0), 1);
	OK(edge_stream_rest(y, 0));
	UNTIL(edge_stream_read(x, &byte, 1, 0) == 0);
	IS(edge_stream_write(x, "!", 1, 0), 1); /* nobody reads this any more */
	OK(edge_stream_rest(x, 1));
	UNTIL(edge_stream_events(y) & POLLRDHUP);
	for (int i = 0; i < 1000; i++) {
		look();
		IS(edge_stream_resting(x), EDGE_ERR_AGAIN);
		IS(edge_stream_resting(y), EDGE_ERR_AGAIN);
	}
	edge_stream_close(x, -1);
	int err;
	UNTIL((err = edge_stream_resting(y)) != EDGE_ERR_AGAIN && err != 0);
	edge_stream_close(y, -1);
}

/* A stream that rests needs no operation to end: those that do, of others too, do not wake the program. */
static void wakes_nobody(edge_stream *x, edge_stream *y, edge_stream *other)
{
	int slept = 0, woken = 0;
	OK(edge_stream_rest(x, 1));
	UNTIL(edge_stream_events(y) & POLLRDHUP);
	while (slept < 20) {
		struct pollfd p = { .fd = edge_device_fd(a), .events = POLLIN };
		for (int still = 0; still < 3; still++) { /* what was said before is over */
			while (edge_device_poll(a), !edge_device_arm(a))
				;
			if (poll(&p, 1, 10) > 0)
				still = -1;
		}
		edge_device_poll(a);
		IS(edge_stream_write(other, "!", 1, 0), 1);
		if (!edge_device_arm(a))
			continue; /* the daemon was quick */
		slept++;
		woken += poll(&p, 1, 10) > 0;
	}
	if (woken > slept / 2) /* a timer may, now and then */
		die(__FILE__, __LINE__, "operations wake the program", woken);
	edge_stream_close(x, -1);
	edge_stream_close(y, -1);
}

/* Somebody whose stream is a plain connection says any of these by notifications; the last one is wrong. */
static const struct lie { const char *what; uint32_t says[4], sizes[4]; int n; bool rests; } lies[] = {
	{ "rests before the end", { 3u << 30 }, { 0 }, 1, false },
	{ "begins at once", { 3u << 30 }, { 5 }, 1, false },
	{ "begins before the other end rests", { 3u << 30 }, { 5 }, 1, true },
	{ "rests twice", { 3u << 30, 3u << 30 }, { 0, 0 }, 2, true },
	{ "rests elsewhere", { 3u << 30 | 1 }, { 0 }, 1, true },
	{ "writes after the end", { 2u << 30, 0 }, { 0, 5 }, 2, true },
	{ "begins elsewhere", { 2u << 30, 3u << 30 | 7 }, { 0, 5 }, 2, true },
	{ "begins with too much", { 2u << 30, 3u << 30 }, { 0, EDGE_STREAM_OPENING + 1 }, 2, true },
	{ "begins twice", { 2u << 30, 3u << 30, 3u << 30 }, { 0, 5, 5 }, 3, true },
};

static void lie(const char *service, const struct lie *of)
{
	edge_listener *l;
	edge_stream *y;
	edge_conn *c;
	edge_region *mem;
	edge_remote *ring = NULL;
	edge_dial_options o = { .size = sizeof o, .data = "stream/1", .data_size = 8 };
	OK(edge_stream_listen(b, service, 0, &l, WAIT));
	OK(edge_dial_start(a, edge_device_name(b), service, &o, &c, WAIT));
	UNTIL(edge_stream_accept(l, &y, 0) == 0);
	UNTIL(edge_conn_wait(c, 0) == 0);
	OK(edge_register(a, 2 * RING, &mem, WAIT));
	OK(edge_export_region(mem, c, "stream", EDGE_REMOTE_WRITE, 0, RING, NULL, WAIT));
	UNTIL(edge_import(c, "stream", &ring, 0) == 0);
	UNTIL(edge_stream_writable(y) > 0);
	if (of->rests)
		OK(edge_stream_rest(y, 0));
	for (int i = 0; i < of->n; i++) {
		edge_notification said;
		if (i > 0 && of->sizes[i - 1] == 0)
			do /* until the other end rests */
				UNTIL(edge_notify_wait(c, &said, 0) == 0);
			while (said.imm >> 30 != 3);
		edge_work w = { .kind = EDGE_WRITE, .flags = EDGE_NOTIFY | EDGE_BACKWARD_FENCE, .imm = of->says[i],
			.local = mem,
			.size = of->sizes[i], .remote = ring };
		edge_op op;
		OK(edge_post(c, &w, &op));
		if (i < of->n - 1)
			UNTIL(edge_op_done(&op));
	}
	UNTIL(edge_stream_error(y) != 0);
	if (edge_stream_error(y) != EDGE_ERR_STREAM)
		die(__FILE__, __LINE__, of->what, edge_stream_error(y));
	edge_stream_close(y, 0);
	edge_conn_free(c);
	edge_listener_close(l);
	UNTIL(edge_region_close(mem) == 0);
}

/* Memory in advance of a first stream is short, though that is dialled already, and that of the next one long. */
static void ahead(const char *service)
{
	enum { SHORT = 512 << 10, LONG = 2 << 20 };
	static char bytes[SHORT];
	edge_listener *l;
	edge_stream *ends[2][2];
	OK(edge_stream_listen(b, service, 0, &l, WAIT));
	for (int i = 0; i < 2; i++) {
		edge_stream *x, *y;
		size_t ring = i == 0 ? SHORT : LONG, sent = 0;
		OK(edge_stream_dial_start(a, edge_device_name(b), service, NULL, &x, WAIT));
		edge_stream_reserve(a);
		UNTIL(edge_stream_accept(l, &y, 0) == 0);
		UNTIL(edge_stream_wait(x, 0) == 0);
		while (sent < ring) {
			ssize_t n = edge_stream_write(y, bytes, sizeof bytes, 0);
			CHECK(n > 0 || n == EDGE_ERR_AGAIN);
			sent += n > 0 ? (size_t)n : 0;
			look();
		}
		IS((int)sent, (int)ring);
		IS(edge_stream_write(y, bytes, 1, 0), EDGE_ERR_AGAIN);
		ends[i][0] = x;
		ends[i][1] = y;
	}
	for (int i = 0; i < 4; i++)
		edge_stream_close(ends[i / 2][i % 2], 0);
	edge_listener_close(l);
}

int main(int argc, char **argv)
{
	edge_stream *x, *y, *third, *fourth;
	CHECK(argc == 2);
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64, .receive_buffer = RING, .send_buffer = RING };
	OK(edge_open(&a, &cfg, WAIT));
	OK(edge_open(&b, &cfg, WAIT));
	join(argv[1], &x, &y);
	one_after_the_other(x, y);
	speechless(x, y);
	no_rest(x, y);
	join(argv[1], &x, &y);
	join(argv[1], &third, &fourth);
	wakes_nobody(x, y, third);
	edge_stream_close(third, 0);
	edge_stream_close(fourth, 0);
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
		lie(argv[1], &lies[i]);
	edge_device_close(a, WAIT);
	edge_device_close(b, WAIT);
	cfg = (edge_config){ .size = sizeof cfg };
	OK(edge_open(&a, &cfg, WAIT));
	OK(edge_open(&b, &cfg, WAIT));
	ahead(argv[1]);
	edge_device_close(a, WAIT);
	edge_device_close(b, WAIT);
	return 0;
}
