/*
 * GIDs. That of index 0 is fd65:6467:6500:: with the identity of the node, which every daemon can dial. The others are
 * the node's IPv4 addresses, for programs that know only those; which node an address belongs to is said by the map
 * that edge-run has as well (/etc/edged/run.map, EDGE_RUN_MAP).
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../preload/map.h"
#include "lib.h"

enum { GIDS = 16 };

static const unsigned char by_identity[8] = { 0xfd, 0x65, 0x64, 0x67, 0x65, 0, 0, 0 };
static const unsigned char mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
static union ibv_gid gids[GIDS];
static int ngids;

void read_identity(const char *hex, unsigned char id[8])
{
	for (int i = 0; i < 8 && strlen(hex) == 16; i++) {
		char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
		id[i] = (unsigned char)strtoul(two, NULL, 16);
	}
}

static void passed_over(const char *format, ...)
{
	char line[400];
	va_list va;
	va_start(va, format);
	vsnprintf(line, sizeof line, format, va);
	va_end(va);
	say("%s", line);
}

/* Adds our IPv4 addresses that the map names: a peer resolves no others. */
static void add_addresses(void)
{
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all) != 0)
		return;
	for (struct ifaddrs *i = all; i != NULL && ngids < GIDS; i = i->ifa_next) {
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
			continue;
		union address a = { 0 };
		memcpy(&a.in, i->ifa_addr, sizeof a.in);
		if (map_peer(&a, 0) == NULL)
			continue;
		memcpy(gids[ngids].raw, mapped, 12);
		memcpy(gids[ngids].raw + 12, &a.in.sin_addr, 4);
		ngids++;
	}
	freeifaddrs(all);
}

void names_load(void)
{
	static bool loaded;
	if (!loaded)
		map_load(passed_over);
	loaded = true;
	memcpy(gids[0].raw, by_identity, 8);
	memcpy(gids[0].raw + 8, lib.node, 8);
	ngids = 1;
	add_addresses();
}

int gid_count(void)
{
	return ngids;
}

bool gid_at(int index, union ibv_gid *gid)
{
	if (index < 0 || index >= ngids)
		return false;
	*gid = gids[index];
	return true;
}

int own_gid(const union ibv_gid *gid)
{
	int i = ngids;
	while (--i >= 0 && memcmp(&gids[i], gid, sizeof *gid) != 0)
		;
	return i;
}

void gid_of(const char *identity, union ibv_gid *gid)
{
	memcpy(gid->raw, by_identity, 8);
	read_identity(identity, gid->raw + 8);
}

static void write_identity(const unsigned char id[8], char node[65])
{
	for (int i = 0; i < 8; i++)
		sprintf(node + 2 * i, "%02x", id[i]);
}

static bool is_loopback(const union address *a)
{
	return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr) :
		ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool ip_node(const struct sockaddr *sa, char node[65])
{
	union address a = { 0 };
	if (sa->sa_family == AF_INET6) {
		memcpy(&a.in6, sa, sizeof a.in6);
		if (memcmp(a.in6.sin6_addr.s6_addr, by_identity, 8) == 0) {
			write_identity(a.in6.sin6_addr.s6_addr + 8, node);
			return true;
		}
	} else if (sa->sa_family == AF_INET)
		memcpy(&a.in, sa, sizeof a.in);
	else
		return false;
	if (is_loopback(&a)) {
		write_identity(lib.node, node);
		return true;
	}
	const char *name = map_peer(&a, address_port(&a));
	if (name == NULL || strlen(name) > 64)
		return false;
	strcpy(node, name);
	return true;
}

bool gid_node(const union ibv_gid *gid, char node[65])
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	memcpy(a.sin6_addr.s6_addr, gid->raw, 16);
	return ip_node((struct sockaddr *)&a, node);
}

bool gid_is(const union ibv_gid *gid, const char *identity, const char *name)
{
	char node[65];
	return gid_node(gid, node) && (strcasecmp(node, identity) == 0 || strcmp(node, name) == 0);
}
