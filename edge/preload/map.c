/*
 * Which addresses are ours: lines "ADDRESS[/BITS][:PORT] PEER" of the file $EDGE_RUN_CONFIG (/etc/edged/run.map), then
 * $EDGE_RUN_MAP, with commas in place of ends of lines, and "=" or a blank before the peer. The longest prefix wins, of
 * equal ones that with a port, then the later. IPv6 with a port is "[ADDRESS]:PORT" or "[ADDRESS/BITS]:PORT". The peer
 * "-" is nobody.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"

struct rule {
	unsigned char prefix[16]; /* IPv4 as ::ffff:a.b.c.d */
	int bits, port;
	char peer[65];
};

static struct rule *rules;
static int nrules;

static void unfold(unsigned char to[16], const union address *a) {
	if (a->any.sa_family == AF_INET6) {
		memcpy(to, &a->in6.sin6_addr, 16);
		return;
	}
	memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	memcpy(to + 12, &a->in.sin_addr, 4);
}

int address_port(const union address *a) {
	return ntohs(a->any.sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
}

/* Takes "10.0.0.0/24:80" apart; 0 if it is none. */
static bool parse_address(char *text, struct rule *r) {
	char *port = NULL, *bits;
	if (*text == '[') {
		char *end = strchr(++text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		*end = 0;
		port = end[1] ? end + 2 : NULL;
	} else if (strchr(text, ':') == strrchr(text, ':') && (port = strchr(text, ':'))) {
		*port++ = 0;
	}
	if ((bits = strchr(text, '/')))
		*bits++ = 0;
	union address a = {0};
	bool four = inet_pton(AF_INET, text, &a.in.sin_addr) == 1;
	a.any.sa_family = four ? AF_INET : AF_INET6;
	if (!four && inet_pton(AF_INET6, text, &a.in6.sin6_addr) != 1)
		return false;
	unfold(r->prefix, &a);
	int most = four ? 32 : 128;
	char *rest = "";
	long n = bits ? strtol(bits, &rest, 10) : most;
	if (n < 0 || n > most || *rest || (bits && !*bits))
		return false;
	r->bits = (int)n + 128 - most;
	long p = port ? strtol(port, &rest, 10) : 0;
	if (p < 0 || p > 65535 || *rest || (port && p == 0))
		return false;
	r->port = (int)p;
	return true;
}

static void add(char *line, const char *where, map_complain *complain) {
	char whole[128], *save;
	line[strcspn(line, "#\r\n")] = 0;
	snprintf(whole, sizeof whole, "%s", line);
	char *addr = strtok_r(line, " \t=", &save);
	if (!addr)
		return;
	char *peer = strtok_r(NULL, " \t=", &save);
	struct rule r = {0};
	if (!peer || strtok_r(NULL, " \t", &save) || strlen(peer) >= sizeof r.peer || !parse_address(addr, &r)) {
		complain("edge-run: %s: \"%s\" is passed over: want ADDRESS[/BITS][:PORT] PEER, addresses in digits\n", where,
		        whole);
		return;
	}
	strcpy(r.peer, peer);
	struct rule *more = realloc(rules, sizeof *rules * (size_t)(nrules + 1));
	if (more) {
		rules = more;
		rules[nrules++] = r;
	}
}

void map_load(map_complain *complain) {
	const char *named = secure_getenv("EDGE_RUN_CONFIG"), *path = named ? named : "/etc/edged/run.map";
	FILE *f = fopen(path, "re");
	if (f) {
		char line[512];
		while (fgets(line, sizeof line, f))
			add(line, path, complain);
		fclose(f);
	} else if (named || errno != ENOENT) {
		complain("edge-run: %s: %s; its rules are missing\n", path, strerror(errno));
	}
	const char *env = secure_getenv("EDGE_RUN_MAP");
	char *copy = env ? strdup(env) : NULL, *save;
	for (char *part = copy ? strtok_r(copy, ",\n", &save) : NULL; part; part = strtok_r(NULL, ",\n", &save))
		add(part, "EDGE_RUN_MAP", complain);
	free(copy);
}

void map_forget(void) {
	free(rules);
	rules = NULL;
	nrules = 0;
}

bool map_empty(void) { return nrules == 0; }

static bool fits(const struct rule *r, const unsigned char addr[16], int port) {
	int whole = r->bits / 8, rest = r->bits % 8;
	if ((r->port && r->port != port) || memcmp(r->prefix, addr, (size_t)whole))
		return false;
	return rest == 0 || (r->prefix[whole] ^ addr[whole]) >> (8 - rest) == 0;
}

const char *map_peer(const union address *a, int port) {
	if (nrules == 0 || (a->any.sa_family != AF_INET && a->any.sa_family != AF_INET6))
		return NULL;
	unsigned char addr[16];
	unfold(addr, a);
	const struct rule *best = NULL;
	for (int i = 0; i < nrules; i++) {
		const struct rule *r = &rules[i];
		if (fits(r, addr, port) &&
		    (!best || r->bits > best->bits || (r->bits == best->bits && (r->port || !best->port))))
			best = r;
	}
	return best && strcmp(best->peer, "-") ? best->peer : NULL;
}
