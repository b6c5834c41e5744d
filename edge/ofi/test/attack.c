/*
 * A peer of the provider that speaks its language wrongly, by streams of libedge.
 *
 * attack attack FILE      once by each way of being wrong, to the server whose address is in FILE
 * attack listen FILE      answers those who connect wrongly, once each way, at the address that it writes to FILE
 * attack count attack|listen    how many ways there are
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../c/edge.h"

#define WANT(x) do { if (!(x)) fail(__LINE__, #x); } while (0)

enum { HEADER = 40, WAIT_MS = 20000, PORT = 4711, KEY = 77, MEMORY = 200000, LIMIT = 60 };
enum { MESSAGE = 1, WRITE, READ, DATA, DONE, ACCEPT, REJECT, ATOMIC };

static edge_device *dev;
static const char *way; /* what is being tried */

static void fail(int line, const char *what)
{
	fprintf(stderr, "FAIL: attack.c:%d: want %s; %s; %s\n", line, what, way != NULL ? way : "", edge_detail());
	exit(1);
}

struct header { uint8_t kind, flags; uint16_t status; uint32_t id; uint64_t size, addr, key, data; };

/* A gift of what this machine's bytes are: little endian. */
static void send_header(edge_stream *s, struct header h)
{
	_Static_assert(sizeof h == HEADER, "as it stands in the stream");
	edge_stream_write(s, &h, sizeof h, WAIT_MS); /* an error is found out by the end */
}

static void send_bytes(edge_stream *s, size_t n)
{
	static const char zeros[MEMORY];
	edge_stream_write(s, zeros, n, WAIT_MS);
}

static void read_all(edge_stream *s, void *p, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t k = edge_stream_read(s, (char *)p + got, n - got, WAIT_MS);
		WANT(k > 0);
		got += (size_t)k;
	}
}

/* The other side ends it, soon. */
static void ended(edge_stream *s)
{
	char buf[4096];
	ssize_t n;
	while ((n = edge_stream_read(s, buf, sizeof buf, WAIT_MS)) > 0)
		;
	WANT(n == 0 || (n != EDGE_ERR_TIMEOUT && n != EDGE_ERR_DAEMON_SILENT));
}

/* --- what a peer may not do --- */

static void unknown_kind(edge_stream *s) { send_header(s, (struct header){ .kind = 99 }); }
static void no_kind(edge_stream *s) { send_bytes(s, HEADER); }
static void unknown_flags(edge_stream *s) { send_header(s, (struct header){ .kind = MESSAGE, .flags = 0x80 }); }
static void data_unasked(edge_stream *s) { send_header(s, (struct header){ .kind = DATA, .size = 8 }); }
static void done_unasked(edge_stream *s) { send_header(s, (struct header){ .kind = DONE, .id = UINT32_MAX }); }
static void accepts_again(edge_stream *s) { send_header(s, (struct header){ .kind = ACCEPT }); }
static void rejects_late(edge_stream *s) { send_header(s, (struct header){ .kind = REJECT }); }

static void half_a_header(edge_stream *s)
{
	send_bytes(s, HEADER / 2);
	edge_stream_shutdown(s);
}

static void endless_message(edge_stream *s)
{
	send_header(s, (struct header){ .kind = MESSAGE, .size = UINT64_C(1) << 62 });
	send_bytes(s, 100000);
	edge_stream_shutdown(s);
}

static void sudden_end(edge_stream *s)
{
	send_header(s, (struct header){ .kind = MESSAGE, .size = 10 });
	send_bytes(s, 5);
	edge_stream_reset(s);
}

static void unknown_atomic(edge_stream *s)
{
	send_header(s, (struct header){ .kind = ATOMIC, .size = 8, .key = KEY, .data = UINT64_C(1) << 32 | 0xffff });
}

static void long_atomic(edge_stream *s)
{
	send_header(s, (struct header){ .kind = ATOMIC, .size = UINT64_C(0xffffffff), .key = KEY,
		.data = UINT64_C(0xffffffff) << 32 | 2 });
	send_bytes(s, 100000);
}

/* More than 1024 questions whose answers it does not take. */
static void asks_and_asks(edge_stream *s)
{
	for (int i = 0; i < 3000 && edge_stream_error(s) == 0; i++)
		send_header(s, (struct header){ .kind = READ, .id = (uint32_t)i, .size = MEMORY, .key = KEY });
	while (edge_stream_error(s) == 0) /* our reading would make room */
		edge_device_poll(dev);
}

static void expect(edge_stream *s, struct header h, uint8_t kind, int status)
{
	struct header got;
	send_header(s, h);
	if (h.kind != READ && h.size < MEMORY)
		send_bytes(s, h.size);
	read_all(s, &got, sizeof got);
	WANT(got.kind == kind && got.status == -status && got.size == 0 && got.id == h.id);
}

/* What fails, and no more than that. */
static void wrong_memory(edge_stream *s)
{
	expect(s, (struct header){ .kind = WRITE, .id = 1, .size = 5, .key = KEY + 1 }, DONE, EDGE_ERR_KEY);
	expect(s, (struct header){ .kind = WRITE, .id = 2, .size = 5, .key = KEY }, DONE, EDGE_ERR_PERMISSION);
	expect(s, (struct header){ .kind = READ, .id = 3, .size = 5, .key = UINT64_MAX }, DATA, EDGE_ERR_KEY);
	int bounds = EDGE_ERR_BOUNDS;
	expect(s, (struct header){ .kind = READ, .id = 4, .size = 2, .addr = MEMORY - 1, .key = KEY }, DATA, bounds);
	expect(s, (struct header){ .kind = READ, .id = 5, .size = UINT64_MAX, .addr = 1, .key = KEY }, DATA, bounds);
	expect(s, (struct header){ .kind = READ, .id = 6, .size = 1, .addr = UINT64_MAX, .key = KEY }, DATA, bounds);
	expect(s, (struct header){ .kind = ATOMIC, .id = 7, .size = 1, .key = KEY, .data = UINT64_C(1) << 32 | 2 }, DONE,
	       EDGE_ERR_PERMISSION);
	edge_stream_shutdown(s);
}

/* --- what who is asked for a connection may not answer --- */

static void says_too_much(edge_stream *s) { send_header(s, (struct header){ .kind = ACCEPT, .size = 257 }); }
static void rejects_at_length(edge_stream *s) { send_header(s, (struct header){ .kind = REJECT, .size = UINT64_MAX }); }
static void accepts_oddly(edge_stream *s) { send_header(s, (struct header){ .kind = ACCEPT, .flags = 4 }); }
static void speaks_first(edge_stream *s) { send_header(s, (struct header){ .kind = MESSAGE, .size = 1 }); }
static void reads_first(edge_stream *s) { send_header(s, (struct header){ .kind = READ, .size = 1 }); }
static void says_nothing(edge_stream *s) { edge_stream_shutdown(s); }
static void goes_away(edge_stream *s) { edge_stream_reset(s); }

struct way { const char *name; void (*act)(edge_stream *); };
#define WAY(f) { #f, f }
static const struct way attacks[] = { WAY(unknown_kind), WAY(no_kind), WAY(unknown_flags), WAY(data_unasked),
	WAY(done_unasked), WAY(accepts_again), WAY(rejects_late), WAY(half_a_header), WAY(endless_message),
	WAY(sudden_end), WAY(unknown_atomic), WAY(long_atomic), WAY(asks_and_asks), WAY(wrong_memory) };
static const struct way answers[] = { WAY(says_too_much), WAY(rejects_at_length), WAY(accepts_oddly),
	WAY(speaks_first), WAY(reads_first), WAY(no_kind), WAY(half_a_header), WAY(says_nothing), WAY(goes_away) };
enum { ATTACKS = sizeof attacks / sizeof *attacks, ANSWERS = sizeof answers / sizeof *answers };

static void attack(const char *file)
{
	struct sockaddr_in6 a;
	FILE *f;
	char node[17], service[32], request[18 + 6] = "efi1";
	while ((f = fopen(file, "r")) == NULL)
		usleep(10000);
	WANT(fread(&a, 1, sizeof a, f) == sizeof a);
	fclose(f);
	for (int i = 0; i < 8; i++)
		sprintf(node + 2 * i, "%02x", a.sin6_addr.s6_addr[8 + i]);
	snprintf(service, sizeof service, "fi/%u", ntohs(a.sin6_port));
	for (int i = 0; i < 8; i++) {
		char two[3] = { edge_device_node(dev)[2 * i], edge_device_node(dev)[2 * i + 1], 0 };
		request[4 + i] = (char)strtoul(two, NULL, 16);
	}
	request[14] = 6;
	memcpy(request + 18, "attack", 6);
	for (int i = 0; i < ATTACKS; i++) {
		struct header h;
		char hi[2];
		edge_stream *s;
		edge_dial_options o = { .size = sizeof o, .data = request, .data_size = sizeof request };
		way = attacks[i].name;
		WANT(edge_stream_dial(dev, node, service, &o, &s, WAIT_MS) == 0);
		read_all(s, &h, sizeof h);
		WANT(h.kind == ACCEPT && h.size == sizeof hi);
		read_all(s, hi, sizeof hi);
		attacks[i].act(s);
		ended(s);
		edge_stream_close(s, 0);
	}
}

static void answer(const char *file)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	char other[300], service[32];
	edge_listener *l;
	snprintf(service, sizeof service, "fi/%d", PORT);
	WANT(edge_stream_listen(dev, service, 0, &l, WAIT_MS) == 0);
	memcpy(a.sin6_addr.s6_addr, "\xfd\x65\x64\x67\x65", 5);
	for (int i = 0; i < 8; i++) {
		char two[3] = { edge_device_node(dev)[2 * i], edge_device_node(dev)[2 * i + 1], 0 };
		a.sin6_addr.s6_addr[8 + i] = (uint8_t)strtoul(two, NULL, 16);
	}
	snprintf(other, sizeof other, "%s.new", file);
	FILE *f = fopen(other, "w");
	WANT(f != NULL && fwrite(&a, 1, sizeof a, f) == sizeof a && fclose(f) == 0 && rename(other, file) == 0);
	for (int i = 0; i < ANSWERS; i++) {
		edge_stream *s;
		way = answers[i].name;
		WANT(edge_stream_accept(l, &s, WAIT_MS) == 0);
		answers[i].act(s);
		ended(s);
		edge_stream_close(s, 0);
	}
	edge_listener_close(l);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "count") == 0)
		return printf("%d\n", strcmp(argv[2], "attack") == 0 ? ATTACKS : ANSWERS) < 0;
	WANT(argc == 3);
	alarm(LIMIT);
	WANT(edge_open(&dev, NULL, WAIT_MS) == 0);
	if (strcmp(argv[1], "attack") == 0)
		attack(argv[2]);
	else
		answer(argv[2]);
	edge_device_close(dev, 0);
	printf("attack %s: ok\n", argv[1]);
	return 0;
}
