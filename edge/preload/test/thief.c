/*
 * thief serve PORT N [FIFO]: a server that answers each of N connections by what it reads; with FIFO it accepts late:
 * after a byte came there. thief connect ADDRESS PORT N: its client. Both are run under edge-run.
 *
 * thief steal PORT N FIFO: another user of the server's host. It reads new connections at PORT from /proc/net/tcp, and
 * claims the stream of each that the client offers, before the server does: with the addresses alone, with an empty
 * nonce, and with the one that it asks the server's process for. It writes a byte to FIFO after each attempt, and ends
 * with 1 if a claim succeeded, after N connections or when the FIFO has no reader.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "edge.h"

enum { NONCE = 16, PATIENCE = 100 };

static int fail(const char *what) {
	printf("FAIL: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int serve(int port, int n, const char *fifo) {
	int l = socket(AF_INET, SOCK_STREAM, 0), on = 1, late = fifo ? open(fifo, O_RDONLY) : -1;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 64))
		fail("listen");
	for (int i = 0; i < n; i++) {
		char b[64];
		ssize_t got;
		if (fifo && read(late, b, 1) != 1)
			fail("the thief does nothing");
		int fd = accept(l, NULL, NULL);
		if (fd < 0)
			fail("accept");
		if ((got = read(fd, b, sizeof b)) > 0 && write(fd, b, (size_t)got) == got)
			read(fd, b, 1);
		close(fd);
	}
	return 0;
}

static int connects(const char *address, int port, int n) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int wrong = 0;
	inet_pton(AF_INET, address, &a.sin_addr);
	for (int i = 0; i < n; i++) {
		char word[32], b[32] = {0};
		int fd = socket(AF_INET, SOCK_STREAM, 0), size = snprintf(word, sizeof word, "password %d", i);
		if (connect(fd, (struct sockaddr *)&a, sizeof a) || write(fd, word, (size_t)size) != size)
			fail("connect");
		ssize_t got = read(fd, b, sizeof b - 1);
		wrong += got != size || strcmp(b, word);
		close(fd);
	}
	printf("%d connections, %d of them not answered by the server\n", n, wrong);
	return wrong > 0;
}

static edge_device *device;
static int taken, tried;

static void claim(const char *service, const void *data, size_t n) {
	edge_stream *s;
	edge_dial_options o = {.size = sizeof o, .data = data, .data_size = n};
	if (edge_stream_dial(device, getenv("PEER") ? getenv("PEER") : "a", service, &o, &s, 1000))
		return;
	char b[64];
	ssize_t got = edge_stream_read(s, b, sizeof b, 1000);
	printf("TAKEN: %s: \"%.*s\"\n", service, got > 0 ? (int)got : 0, b);
	edge_stream_write(s, "mine", 4, 1000);
	edge_stream_close(s, -1);
	taken++;
}

/* Asks whoever offers tcp/PORT on this host, as a process that has the accepted socket may. */
static bool ask(int port, const char *tuple, unsigned char *nonce) {
	unsigned char data[256] = {'A'};
	char service[16];
	edge_conn *c;
	size_t n = strlen(tuple);
	memcpy(data + 1 + NONCE, tuple, n);
	snprintf(service, sizeof service, "tcp/%d", port);
	edge_dial_options o = {.size = sizeof o, .data = data, .data_size = 1 + NONCE + n};
	if (edge_dial_start(device, edge_device_name(device), service, &o, &c, 200))
		return false;
	edge_conn_wait(c, 200);
	const char *text = edge_conn_reason(c), *at = text ? strstr(text, "nonce ") : NULL;
	unsigned byte;
	bool told = at;
	for (int i = 0; i < NONCE && told; i++) {
		told = sscanf(at + 6 + 2 * i, "%2x", &byte) == 1;
		nonce[i] = (unsigned char)byte;
	}
	edge_conn_free(c);
	return told;
}

/* to: lets a late server accept. false: it has gone. */
static bool steal_one(int port, const char *tuple, int to) {
	unsigned char data[256] = {'N'};
	char service[160];
	size_t n = strlen(tuple);
	snprintf(service, sizeof service, "tcp/%s", tuple);
	memcpy(data + 1 + NONCE, tuple, n);
	claim(service, data, 1 + NONCE + n);
	claim(service, tuple, n);
	bool goes_on = to < 0 || write(to, "x", 1) == 1;
	if (ask(port, tuple, data + 1))
		claim(service, data, 1 + NONCE + n);
	tried++;
	return goes_on;
}

static int steal(int port, int n, const char *fifo) {
	static unsigned seen[65536]; /* in which look; a port may come again when its connection has ended */
	edge_config cfg = {.size = sizeof cfg};
	int to = -1;
	if (edge_open(&device, &cfg, 5000)) {
		printf("FAIL: %s\n", edge_detail());
		return 1;
	}
	signal(SIGPIPE, SIG_IGN);
	if (strcmp(fifo, "-") && (to = open(fifo, O_WRONLY)) < 0)
		return fail(fifo);
	printf("ready\n");
	fflush(stdout);
	alarm(PATIENCE);
	bool over = false;
	for (unsigned look = 2; !over && tried < n; look++) {
		char line[256], from[INET_ADDRSTRLEN], here[INET_ADDRSTRLEN], tuple[64];
		FILE *f = fopen("/proc/net/tcp", "r");
		while (f && !over && fgets(line, sizeof line, f)) {
			unsigned la, lp, ra, rp, state;
			if (sscanf(line, " %*d: %x:%x %x:%x %x", &la, &lp, &ra, &rp, &state) != 5 || state != 1 ||
			    (int)lp != port)
				continue;
			bool known = seen[rp & 65535] + 1 >= look;
			seen[rp & 65535] = look;
			if (known)
				continue;
			inet_ntop(AF_INET, &ra, from, sizeof from);
			inet_ntop(AF_INET, &la, here, sizeof here);
			snprintf(tuple, sizeof tuple, "%s:%u>%s:%u", from, rp, here, lp);
			over = !steal_one(port, tuple, to);
		}
		if (f)
			fclose(f);
	}
	printf("tried %d, taken %d\n", tried, taken);
	edge_device_close(device, 0);
	return taken > 0;
}

/* thief own PORT: offers tcp/PORT before the server can, so that it hears the nonces. */
static int own(int port) {
	edge_config cfg = {.size = sizeof cfg};
	edge_listener *l;
	edge_request *r;
	char service[160];
	snprintf(service, sizeof service, "tcp/%d", port);
	if (edge_open(&device, &cfg, 5000) || edge_listen(device, service, &l, 5000)) {
		printf("FAIL: %s\n", edge_detail());
		return 1;
	}
	printf("ready\n");
	alarm(PATIENCE);
	while (edge_listener_next(l, &r, PATIENCE * 1000) == 0) {
		unsigned char data[256];
		size_t n;
		const void *p = edge_request_data(r, &n);
		if (n < sizeof data)
			memcpy(data, p, n);
		edge_request_refuse(r, "thank you");
		if (n <= 1 + NONCE || n >= sizeof data)
			continue;
		data[0] = 'N';
		snprintf(service, sizeof service, "tcp/%.*s", (int)(n - 1 - NONCE), (char *)data + 1 + NONCE);
		for (int i = 0; i < 5; i++) /* before and after the server has accepted */
			claim(service, data, n);
		printf("heard %d\n", ++tried);
	}
	return 0;
}

/* thief silent PEER ADDRESS PORT N: a client that offers N connections as edge-run does, and answers no dial. */
static int silent(const char *peer, const char *address, int port, int n) {
	edge_config cfg = {.size = sizeof cfg};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}, from;
	inet_pton(AF_INET, address, &to.sin_addr);
	char known[16], service[160], tuple[64], here[INET_ADDRSTRLEN];
	snprintf(known, sizeof known, "tcp/%d", port);
	if (edge_open(&device, &cfg, 5000))
		return fail("the daemon");
	for (int i = 0; i < n; i++) {
		unsigned char data[128] = {'Q', 1};
		edge_listener *l;
		edge_conn *c;
		int fd = socket(AF_INET, SOCK_STREAM, 0), probe = socket(AF_INET, SOCK_DGRAM, 0);
		socklen_t size = sizeof from;
		if (connect(probe, (struct sockaddr *)&to, sizeof to) || getsockname(probe, (struct sockaddr *)&from, &size))
			return fail("the address");
		from.sin_port = 0;
		close(probe);
		if (bind(fd, (struct sockaddr *)&from, sizeof from) || getsockname(fd, (struct sockaddr *)&from, &size))
			return fail("bind");
		inet_ntop(AF_INET, &from.sin_addr, here, sizeof here);
		size = (socklen_t)snprintf(tuple, sizeof tuple, "%s:%d>%s:%d", here, ntohs(from.sin_port), address, port);
		snprintf(service, sizeof service, "tcp/%s", tuple);
		memcpy(data + 1 + NONCE, tuple, size);
		edge_dial_options o = {.size = sizeof o, .data = data, .data_size = 1 + NONCE + size};
		if (edge_listen(device, service, &l, 5000) || edge_dial_start(device, peer, known, &o, &c, 2000))
			return fail(edge_detail());
		edge_conn_wait(c, 2000);
		if (connect(fd, (struct sockaddr *)&to, sizeof to))
			return fail("connect");
		while (edge_listener_pending(l) == 0) /* the server dials */
			edge_device_poll(device);
	}
	printf("silent\n");
	pause();
	return 0;
}

/* thief offer SERVICE: whether this user may. */
static int offers(const char *service) {
	edge_config cfg = {.size = sizeof cfg};
	edge_listener *l;
	int err = edge_open(&device, &cfg, 5000);
	err = err ? err : edge_listen(device, service, &l, 5000);
	printf("%s: %s\n", service, err ? edge_strerror(err) : "offered");
	return err != 0;
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 4 && strcmp(argv[1], "serve") == 0)
		return serve(atoi(argv[2]), atoi(argv[3]), argc > 4 ? argv[4] : NULL);
	if (argc == 5 && strcmp(argv[1], "connect") == 0)
		return connects(argv[2], atoi(argv[3]), atoi(argv[4]));
	if (argc == 5 && strcmp(argv[1], "steal") == 0)
		return steal(atoi(argv[2]), atoi(argv[3]), argv[4]);
	if (argc == 3 && strcmp(argv[1], "own") == 0)
		return own(atoi(argv[2]));
	if (argc == 6 && strcmp(argv[1], "silent") == 0)
		return silent(argv[2], argv[3], atoi(argv[4]), atoi(argv[5]));
	if (argc == 3 && strcmp(argv[1], "offer") == 0)
		return offers(argv[2]);
	return 2;
}
