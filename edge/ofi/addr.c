/*
 * Addresses: IPv6 addresses fd65:6467:6500::/64 ("edge") with the 8 bytes of a node's identity, and a port, for which
 * the node offers the service "fi/PORT". Identities are known to every daemon, so that processes can hand addresses on,
 * as MPI does. A node that the user names is fd65:6467:6501::/64 with a hash of the name: of use in this process alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../preload/map.h"
#include "addr.h"

enum { NAMES = 4096, OPEN_MS = 2000 };

static const unsigned char by_identity[8] = { 0xfd, 0x65, 0x64, 0x67, 0x65, 0, 0, 0 };
static const unsigned char by_name[8] = { 0xfd, 0x65, 0x64, 0x67, 0x65, 1, 0, 0 };

static void passed_over(const char *format, ...)
{
	va_list va;
	va_start(va, format);
	vdprintf(2, format, va);
	va_end(va);
}

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct { bool known; unsigned char id[8]; char name[65]; } self;
static struct name { struct name *next; uint64_t hash; char name[65]; } *names;
static int nnames;
static bool mapped;

int fi_error(int err)
{
	switch (err) {
	case 0: return FI_SUCCESS;
	case EDGE_ERR_NO_MEMORY: return FI_ENOMEM;
	case EDGE_ERR_PEER_UNKNOWN: return FI_EHOSTUNREACH;
	case EDGE_ERR_NO_SERVICE: case EDGE_ERR_REFUSED: return FI_ECONNREFUSED;
	case EDGE_ERR_STRANGER: case EDGE_ERR_PERMISSION: return FI_EACCES;
	case EDGE_ERR_ABORTED: return FI_ECANCELED;
	case EDGE_ERR_KEY: return FI_ENOKEY;
	case EDGE_ERR_BOUNDS: return FI_EFAULT;
	case EDGE_ERR_TOO_LONG: return FI_ETRUNC;
	}
	int e = edge_errno(err);
	return e == 0 || e == EAGAIN ? FI_EIO : e;
}

static bool parse_identity(const char *text, unsigned char id[8])
{
	if (strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16)
		return false;
	for (int i = 0; i < 8; i++) {
		char two[3] = { text[2 * i], text[2 * i + 1], 0 };
		id[i] = (unsigned char)strtoul(two, NULL, 16);
	}
	return true;
}

void identity_put(address *a, const unsigned char id[8], int port)
{
	*a = (address){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	memcpy(a->sin6_addr.s6_addr, by_identity, 8);
	memcpy(a->sin6_addr.s6_addr + 8, id, 8);
}

void identity_get(const address *a, unsigned char id[8])
{
	memcpy(id, a->sin6_addr.s6_addr + 8, 8);
}

/* A daemon keeps its identity: one question is enough. */
int self_load(void)
{
	pthread_mutex_lock(&guard);
	if (!mapped) {
		mapped = true;
		map_load(passed_over);
	}
	int err = 0;
	if (!self.known) {
		edge_device *dev = NULL;
		edge_config cfg = { .size = sizeof cfg, .wait = EDGE_BLOCK };
		err = edge_open(&dev, &cfg, OPEN_MS);
		if (err != 0) {
			FI_INFO(&edge_provider, FI_LOG_CORE, "%s: %s\n", edge_strerror(err), edge_detail());
		} else {
			self.known = parse_identity(edge_device_node(dev), self.id);
			snprintf(self.name, sizeof self.name, "%s", edge_device_name(dev));
			edge_device_close(dev, 0);
		}
	}
	if (err == 0 && !self.known)
		WARN(FI_LOG_CORE, "the daemon's identity is not 8 bytes; upgrade this provider\n");
	pthread_mutex_unlock(&guard);
	return self.known ? 0 : -FI_ENODATA;
}

const char *self_name(void)
{
	return self.name;
}

void self_address(address *a, int port)
{
	identity_put(a, self.id, port);
}

bool is_self(const address *a)
{
	return memcmp(a->sin6_addr.s6_addr, by_identity, 8) == 0 && memcmp(a->sin6_addr.s6_addr + 8, self.id, 8) == 0;
}

static int name_put(address *a, const char *name, int port)
{
	uint64_t hash = UINT64_C(14695981039346656037);
	for (const char *p = name; *p != 0; p++)
		hash = (hash ^ (unsigned char)*p) * UINT64_C(1099511628211);
	pthread_mutex_lock(&guard);
	struct name *n = names;
	while (n != NULL && n->hash != hash)
		n = n->next;
	int err = n != NULL && strcmp(n->name, name) != 0 ? -FI_EADDRINUSE : 0;
	if (n == NULL && (nnames >= NAMES || (n = calloc(1, sizeof *n)) == NULL))
		err = -FI_ENOMEM;
	else if (n->name[0] == 0) {
		n->hash = hash;
		snprintf(n->name, sizeof n->name, "%s", name);
		n->next = names;
		names = n;
		nnames++;
	}
	pthread_mutex_unlock(&guard);
	identity_put(a, (unsigned char *)&hash, port);
	memcpy(a->sin6_addr.s6_addr, by_name, 8);
	return err;
}

int node_address(address *a, const char *node, int port)
{
	unsigned char id[8];
	union address ip = { 0 };
	const char *name = node;
	if (inet_pton(AF_INET6, node, &ip.in6.sin6_addr) == 1) {
		ip.in6.sin6_family = AF_INET6;
		if (memcmp(ip.in6.sin6_addr.s6_addr, by_identity, 8) == 0) {
			identity_put(a, ip.in6.sin6_addr.s6_addr + 8, port);
			return 0;
		}
		name = map_peer(&ip, port);
	} else if (inet_pton(AF_INET, node, &ip.in.sin_addr) == 1) {
		ip.in.sin_family = AF_INET;
		name = map_peer(&ip, port);
	} else if (parse_identity(node, id)) {
		identity_put(a, id, port);
		return 0;
	}
	if (name == NULL || name[0] == 0 || strlen(name) > 64) {
		FI_INFO(&edge_provider, FI_LOG_CORE, "nobody of ours is at %s; name the node as the daemon does, or put its "
		        "address into /etc/edged/run.map\n", node);
		return -FI_ENODATA;
	}
	if (strcmp(name, self.name) == 0) {
		self_address(a, port);
		return 0;
	}
	return name_put(a, name, port);
}

int node_of(const address *a, char name[65])
{
	const unsigned char *ip = a->sin6_addr.s6_addr;
	if (a->sin6_family != AF_INET6)
		return -FI_EINVAL;
	if (memcmp(ip, by_identity, 8) == 0) {
		for (int i = 0; i < 8; i++)
			sprintf(name + 2 * i, "%02x", ip[8 + i]);
		return 0;
	}
	int err = -FI_EINVAL;
	uint64_t hash;
	memcpy(&hash, ip + 8, 8);
	pthread_mutex_lock(&guard);
	for (struct name *n = names; err != 0 && n != NULL && memcmp(ip, by_name, 8) == 0; n = n->next)
		if (n->hash == hash) {
			memcpy(name, n->name, 65);
			err = 0;
		}
	pthread_mutex_unlock(&guard);
	return err;
}

/* The library is about to be unloaded. */
void addresses_free(void)
{
	map_forget();
	for (struct name *n; (n = names) != NULL; free(n))
		names = n->next;
}
