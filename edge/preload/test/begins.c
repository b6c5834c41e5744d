/*
 * A connector that is not edge-run: it speaks PROTOCOL clause 20 by libedge, and does what edge-run does seldom or
 * never. The other side is "again serve", under edge-run. Lines on standard output say how far it is; it goes on by
 * lines on standard input.
 *
 *   begins gives ADDRESS PORT   a stream that is used again is taken, and given up before the acceptor heard of that:
 *                               the whole connection goes over TCP
 *   begins mute ADDRESS PORT    it takes the answer, and says nothing until a line; then it goes on on the stream, or
 *   begins turns ADDRESS PORT   over TCP, without closing the stream, as when its daemon has gone
 *   begins left ADDRESS PORT    it takes the answer, and says nothing, but reads TCP to its end
 *   begins lost ADDRESS PORT    it takes the answer, and uses the stream and ends in good order after a line
 *   begins late ADDRESS PORT    it begins a stream for a connection that the acceptor uses over TCP already, and learns
 *                               that
 *   begins early ADDRESS PORT [banner]  a stream is asked for at the owner of the port, and used
 *   begins flees ADDRESS PORT   that is accepted, and given up before the acceptor heard of it: all goes over TCP
 *   begins dry ADDRESS PORT     that is asked for when the acceptor uses TCP already: it is refused, with the reason
 *   begins crowd ADDRESS PORT N N are asked for, of connections that do not exist: the owner does not keep all
 *   begins aged ADDRESS PORT    a stream rests until the acceptor closes it
 *   begins only ADDRESS PORT N  N streams are begun for connections that do not exist
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "edge.h"

enum { NONCE = 16, PATIENCE = 30000, MOST = 64 };
#define PEER "b"

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("FAIL: line %d: %s: %s\n", __LINE__, #x, edge_detail()); \
			exit(1); \
		} \
	} while (0)

struct head { uint32_t serial, bytes; };
static const struct head head = {1, 0}; /* of which the client is the first to end */

static edge_device *device;
static struct sockaddr_in server;

struct connection {
	int fd;
	char tuple[64];
	unsigned char data[1 + NONCE + 64]; /* a message with the tuple */
	size_t size;
};

/* A socket that is bound, and not connected. */
static struct connection bound(void) {
	struct connection c = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	struct sockaddr_in from;
	socklen_t size = sizeof from;
	char here[INET_ADDRSTRLEN], there[INET_ADDRSTRLEN];
	int probe = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(connect(probe, (struct sockaddr *)&server, sizeof server) == 0);
	CHECK(getsockname(probe, (struct sockaddr *)&from, &size) == 0);
	close(probe);
	from.sin_port = 0;
	CHECK(bind(c.fd, (struct sockaddr *)&from, size) == 0 && getsockname(c.fd, (struct sockaddr *)&from, &size) == 0);
	inet_ntop(AF_INET, &from.sin_addr, here, sizeof here);
	inet_ntop(AF_INET, &server.sin_addr, there, sizeof there);
	snprintf(c.tuple, sizeof c.tuple, "%s:%d>%s:%d", here, ntohs(from.sin_port), there, ntohs(server.sin_port));
	memcpy(c.data + 1 + NONCE, c.tuple, strlen(c.tuple));
	c.size = 1 + NONCE + strlen(c.tuple);
	return c;
}

static void connected(struct connection *c) { CHECK(connect(c->fd, (struct sockaddr *)&server, sizeof server) == 0); }

/* Asks the owner of the port, and says what it answers. */
static void probe(struct connection *c, char *answer, size_t n) {
	edge_conn *asked;
	char service[16];
	snprintf(service, sizeof service, "tcp/%d", ntohs(server.sin_port));
	c->data[0] = 'Q';
	memset(c->data + 1, 7, NONCE);
	edge_dial_options o = {.size = sizeof o, .data = c->data, .data_size = c->size};
	CHECK(edge_dial_start(device, PEER, service, &o, &asked, PATIENCE) == 0);
	CHECK(edge_conn_wait(asked, PATIENCE) == EDGE_ERR_REFUSED);
	snprintf(answer, n, "%s", edge_conn_reason(asked) ? edge_conn_reason(asked) : "");
	edge_conn_free(asked);
}

static bool hears; /* the server speaks first */

static void hear(edge_stream *s) {
	char banner[6];
	for (size_t n = 0; n < sizeof banner; n++)
		CHECK(edge_stream_read(s, banner + n, 1, PATIENCE) == 1);
	CHECK(memcmp(banner, "banner", sizeof banner) == 0);
}

static void talk_on(edge_stream *s) {
	char mark;
	if (hears)
		hear(s);
	struct head back;
	CHECK(edge_stream_write(s, &head, sizeof head, PATIENCE) == sizeof head);
	CHECK(edge_stream_read(s, &mark, 1, PATIENCE) == 1);
	CHECK(edge_stream_read(s, &back, sizeof back, PATIENCE) == sizeof back && back.serial == head.serial);
}

static void talk_over_tcp(int fd) {
	char answer[1 + sizeof head];
	CHECK(send(fd, &head, sizeof head, MSG_NOSIGNAL) == sizeof head);
	CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer);
	CHECK(memcmp(answer + 1, &head, sizeof head) == 0);
}

/* A stream on which one connection was carried, and the next one may be. NULL: the other side has closed it. */
static edge_stream *try_rested(void) {
	struct connection c = bound();
	char service[80], answer[128];
	edge_listener *l;
	edge_request *r;
	edge_stream *s;
	snprintf(service, sizeof service, "tcp/%s", c.tuple);
	CHECK(edge_listen(device, service, &l, PATIENCE) == 0);
	probe(&c, answer, sizeof answer);
	connected(&c);
	CHECK(edge_listener_next(l, &r, PATIENCE) == 0 && edge_request_accept_stream(r, &s) == 0);
	talk_on(s);
	int err = edge_stream_rest(s, 1);
	CHECK(err == 0);
	close(c.fd);
	while ((err = edge_stream_resting(s)) == EDGE_ERR_AGAIN)
		edge_device_poll(device);
	edge_listener_close(l);
	if (err == 0)
		return s;
	edge_stream_close(s, 0);
	return NULL;
}

static edge_stream *rested(void) {
	edge_stream *s = try_rested();
	CHECK(s);
	return s;
}

static void begin(edge_stream *s, struct connection *c) {
	c->data[0] = 'B';
	memset(c->data + 1, 0, NONCE);
	CHECK(edge_stream_begin(s, c->data, c->size) == 0);
}

static void gives(void) {
	edge_stream *s = rested();
	struct connection c = bound();
	begin(s, &c);
	connected(&c);
	CHECK(edge_stream_wait(s, PATIENCE) == 0);
	edge_stream_close(s, 0);
	talk_over_tcp(c.fd);
	close(c.fd);
}

/* The server may speak before anything was confirmed (HOW "banner"). */
static void mute(bool turns) {
	hears = true;
	edge_stream *s = rested();
	struct connection c = bound();
	char line[16], banner[6];
	begin(s, &c);
	usleep(50000); /* mostly it is there before the connection */
	connected(&c);
	CHECK(edge_stream_wait(s, PATIENCE) == 0);
	puts("taken");
	CHECK(fgets(line, sizeof line, stdin));
	if (turns) {
		CHECK(send(c.fd, &head, sizeof head, MSG_NOSIGNAL) == sizeof head);
		CHECK(recv(c.fd, banner, sizeof banner, MSG_WAITALL) == sizeof banner && memcmp(banner, "banner", 6) == 0);
		CHECK(recv(c.fd, banner, 1, 0) == 1 && recv(c.fd, line, sizeof head, MSG_WAITALL) == sizeof head);
		CHECK(memcmp(line, &head, sizeof head) == 0);
	} else {
		CHECK(edge_stream_write(s, "", 1, PATIENCE) == 1);
		talk_on(s);
		edge_stream_close(s, PATIENCE);
	}
	close(c.fd);
}

static void left(void) {
	edge_stream *s = rested();
	struct connection c = bound();
	char banner[6];
	begin(s, &c);
	usleep(50000);
	connected(&c);
	CHECK(edge_stream_wait(s, PATIENCE) == 0);
	CHECK(recv(c.fd, banner, sizeof banner, MSG_WAITALL) == sizeof banner && memcmp(banner, "banner", 6) == 0);
	CHECK(recv(c.fd, banner, 1, 0) == 0);
	close(c.fd);
}

static void lost(void) {
	edge_stream *s = rested();
	struct connection c = bound();
	char line[16];
	begin(s, &c);
	connected(&c);
	CHECK(edge_stream_wait(s, PATIENCE) == 0);
	puts("taken");
	CHECK(fgets(line, sizeof line, stdin));
	CHECK(edge_stream_write(s, "", 1, PATIENCE) == 1 && edge_stream_write(s, &head, sizeof head, PATIENCE) > 0);
	edge_stream_shutdown(s);
	close(c.fd);
	puts("gone");
	CHECK(fgets(line, sizeof line, stdin));
}

static void late(void) {
	char answer[128], line[16];
	edge_stream *s = rested();
	struct connection c = bound();
	connected(&c);
	puts("connected");
	CHECK(fgets(line, sizeof line, stdin)); /* the acceptor has its verdict */
	begin(s, &c);
	int err = edge_stream_wait(s, PATIENCE);
	CHECK(err != 0 && err != EDGE_ERR_TIMEOUT);
	probe(&c, answer, sizeof answer);
	printf("%s\n", answer);
	CHECK(strstr(answer, "that connection is TCP's"));
	talk_over_tcp(c.fd);
	close(c.fd);
}

/* Asks the owner of the port for a stream. */
static edge_stream *asked(struct connection *c) {
	edge_stream *s;
	char service[16];
	snprintf(service, sizeof service, "tcp/%d", ntohs(server.sin_port));
	c->data[0] = 'Q';
	memset(c->data + 1, 7, NONCE);
	edge_dial_options o = {.size = sizeof o, .data = c->data, .data_size = c->size};
	CHECK(edge_stream_dial_start(device, PEER, service, &o, &s, PATIENCE) == 0);
	return s;
}

static const char *reason(const edge_stream *s) {
	const char *text = edge_conn_reason(edge_stream_conn(s));
	return text ? text : "";
}

static void early(bool flees) {
	struct connection c = bound();
	char service[80];
	edge_listener *l;
	snprintf(service, sizeof service, "tcp/%s", c.tuple);
	CHECK(edge_listen(device, service, &l, PATIENCE) == 0); /* so that the acceptor waits, should the request be late */
	edge_stream *s = asked(&c);
	connected(&c);
	int err = edge_stream_wait(s, PATIENCE);
	if (err)
		printf("%s\n", reason(s));
	CHECK(err == 0);
	if (flees) {
		edge_stream_close(s, 0);
		talk_over_tcp(c.fd);
	} else {
		CHECK(edge_stream_write(s, "", 1, PATIENCE) == 1);
		talk_on(s);
		edge_stream_close(s, PATIENCE);
	}
	close(c.fd);
}

static void dry(void) {
	char line[16];
	struct connection c = bound();
	connected(&c);
	puts("connected");
	CHECK(fgets(line, sizeof line, stdin)); /* the acceptor has its verdict */
	edge_stream *s = asked(&c);
	CHECK(edge_stream_wait(s, PATIENCE) == EDGE_ERR_REFUSED);
	printf("%s\n", reason(s));
	CHECK(strstr(reason(s), "that connection is TCP's"));
	talk_over_tcp(c.fd);
	close(c.fd);
}

/* The first ones are kept for a second; the last one is refused at once. */
static void crowd(int n) {
	edge_stream *s[4 * MOST];
	CHECK(n <= 4 * MOST);
	for (int i = 0; i < n; i++) {
		struct connection c = bound();
		s[i] = asked(&c);
		close(c.fd);
	}
	int last = edge_stream_wait(s[n - 1], PATIENCE), first = edge_stream_wait(s[0], 0);
	CHECK(first == EDGE_ERR_AGAIN);
	CHECK(last == EDGE_ERR_REFUSED && strstr(reason(s[n - 1]), "connect by TCP"));
	puts("refused");
	for (int i = 0; i < n; i++) {
		CHECK(edge_stream_wait(s[i], PATIENCE) == EDGE_ERR_REFUSED);
		edge_stream_close(s[i], 0);
	}
}

static void aged(void) {
	edge_stream *s = rested();
	int err = 0;
	for (int waits = 0; waits < PATIENCE && (err == 0 || err == EDGE_ERR_AGAIN); waits++) {
		edge_device_poll(device);
		err = edge_stream_resting(s);
		usleep(1000);
	}
	CHECK(err != 0 && err != EDGE_ERR_AGAIN);
}

/* All rest before the first one is begun: these rest for longer. */
static void only(int n) {
	edge_stream *s[MOST];
	int begun = 0;
	CHECK(n <= MOST);
	for (int i = 0; i < n; i++)
		s[i] = try_rested();
	for (int i = 0; i < n; i++) {
		struct connection c = bound();
		if (s[i] && edge_stream_resting(s[i]) == 0) {
			begin(s[i], &c);
			begun++;
		}
		close(c.fd);
	}
	printf("begun %d\n", begun);
	char line[16];
	CHECK(fgets(line, sizeof line, stdin));
}

int main(int argc, char **argv) {
	edge_config cfg = {.size = sizeof cfg};
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4)
		return 2;
	server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
	CHECK(inet_pton(AF_INET, argv[2], &server.sin_addr) == 1 && edge_open(&device, &cfg, PATIENCE) == 0);
	if (strcmp(argv[1], "gives") == 0)
		gives();
	else if (strcmp(argv[1], "mute") == 0 || strcmp(argv[1], "turns") == 0)
		mute(argv[1][0] == 't');
	else if (strcmp(argv[1], "left") == 0)
		left();
	else if (strcmp(argv[1], "lost") == 0)
		lost();
	else if (strcmp(argv[1], "late") == 0)
		late();
	else if (strcmp(argv[1], "early") == 0 || strcmp(argv[1], "flees") == 0)
		hears = argc == 5, early(argv[1][0] == 'f');
	else if (strcmp(argv[1], "aged") == 0)
		aged();
	else if (strcmp(argv[1], "dry") == 0)
		dry();
	else if (argc == 5 && strcmp(argv[1], "crowd") == 0)
		crowd(atoi(argv[4]));
	else if (argc == 5 && strcmp(argv[1], "only") == 0)
		only(atoi(argv[4]));
	else
		return 2;
	puts("done");
	return 0;
}
