/* map.c, which libedge-fi has, too. */
#ifndef EDGE_MAP_H
#define EDGE_MAP_H

#include <netinet/in.h>
#include <stdbool.h>

union address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
};

typedef void map_complain(const char *format, ...);
void map_load(map_complain *complain); /* which hears of rules that are passed over */
void map_forget(void);
bool map_empty(void);
/* The peer that an address belongs to, for a service at port; NULL: nobody's. IPv4 in IPv6 counts as IPv4. */
const char *map_peer(const union address *a, int port);
int address_port(const union address *a);

#endif
