/* Address handles, and the header that stands before each datagram in the receiver's memory. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

#include "ud.h"

enum { HOPS = 64, PROTOCOL_UDP = 17, SL_UDP = 8, SL_IPV6 = 1, SL_IPV4 = 2 };

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	union ibv_gid ours;
	if (!a->is_global || a->port_num != 1 || !gid_at(a->grh.sgid_index, &ours)) {
		errno = EINVAL; /* an Ethernet device has no other addresses */
		return NULL;
	}
	struct ah *h = calloc(1, sizeof *h);
	if (h == NULL)
		return NULL;
	*h = (struct ah){ .ah = { .context = pd->context, .pd = pd }, .refs = 1, .sgid_index = a->grh.sgid_index,
		.gid = a->grh.dgid };
	if (!gid_node(&h->gid, h->node)) {
		say("no node has that GID; groups of receivers are not offered");
		free(h);
		errno = EHOSTUNREACH;
		return NULL;
	}
	lock();
	((struct pd *)pd)->refs++;
	unlock();
	return &h->ah;
}

void ah_put(struct ah *h)
{
	if (h != NULL && --h->refs == 0)
		free(h);
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	lock();
	((struct pd *)ah->pd)->refs--;
	ah_put((struct ah *)ah);
	unlock();
	return 0;
}

static bool is_ipv4(const union ibv_gid *g)
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	return memcmp(g->raw, mapped, sizeof mapped) == 0;
}

static uint16_t checksum(const void *p)
{
	uint32_t sum = 0;
	for (int i = 0; i < 10; i++) {
		uint16_t word;
		memcpy(&word, (const char *)p + 2 * i, 2);
		sum += word;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~(sum + (sum >> 16));
}

/* As RoCE v2 has it: IPv6, or 20 bytes of nothing and a header of IPv4. UCX looks for which it is where Mellanox's NICs
 * say it, in the service level. */
uint8_t grh_write(struct ibv_grh *g, const struct head *h, size_t size)
{
	*g = (struct ibv_grh){ 0 };
	if (is_ipv4(&h->from_gid) && is_ipv4(&h->to_gid)) {
		struct iphdr ip = { .version = 4, .ihl = 5, .tot_len = htons((uint16_t)(sizeof ip + size)), .ttl = HOPS,
			.protocol = PROTOCOL_UDP };
		memcpy(&ip.saddr, h->from_gid.raw + 12, 4);
		memcpy(&ip.daddr, h->to_gid.raw + 12, 4);
		ip.check = checksum(&ip);
		memcpy((char *)g + sizeof *g - sizeof ip, &ip, sizeof ip);
		return SL_UDP | SL_IPV4;
	}
	g->version_tclass_flow = htonl(6u << 28);
	g->paylen = htons((uint16_t)size);
	g->next_hdr = PROTOCOL_UDP;
	g->hop_limit = HOPS;
	g->sgid = h->from_gid;
	g->dgid = h->to_gid;
	return SL_UDP | SL_IPV6;
}

static void read_grh(const struct ibv_grh *g, union ibv_gid *from, union ibv_gid *to)
{
	if (ntohl(g->version_tclass_flow) >> 28 == 6) {
		*from = g->sgid;
		*to = g->dgid;
		return;
	}
	const char *ip = (const char *)g + sizeof *g - sizeof(struct iphdr);
	*from = *to = (union ibv_gid){ .raw = { [10] = 0xff, [11] = 0xff } };
	memcpy(from->raw + 12, ip + offsetof(struct iphdr, saddr), 4);
	memcpy(to->raw + 12, ip + offsetof(struct iphdr, daddr), 4);
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                               struct ibv_ah_attr *a)
{
	union ibv_gid from, to;
	(void)c;
	if (!(wc->wc_flags & IBV_WC_GRH)) {
		errno = EINVAL;
		return -1;
	}
	read_grh(grh, &from, &to);
	int ours = own_gid(&to);
	*a = (struct ibv_ah_attr){ .is_global = 1, .port_num = port, .grh = { .dgid = from, .hop_limit = HOPS,
		.sgid_index = (uint8_t)(ours > 0 ? ours : 0) } };
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr a;
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &a) == 0 ? ibv_create_ah(pd, &a) : NULL;
}
