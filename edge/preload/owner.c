/* Whose a socket of this host is: the kernel's answer for one TCP connection, by sock_diag. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <unistd.h>

#include "agree.h"

bool same_secret(const unsigned char *a, const unsigned char *b) {
	unsigned char differs = 0, some = 0;
	for (int i = 0; i < NONCE_SIZE; i++) { /* as long for every content */
		differs |= a[i] ^ b[i];
		some |= a[i];
	}
	return some && !differs;
}

static void fill(struct inet_diag_sockid *id, const union address *local, const union address *remote) {
	bool six = local->any.sa_family == AF_INET6;
	id->idiag_sport = six ? local->in6.sin6_port : local->in.sin_port;
	id->idiag_dport = six ? remote->in6.sin6_port : remote->in.sin_port;
	memcpy(id->idiag_src, six ? (const void *)&local->in6.sin6_addr : &local->in.sin_addr, six ? 16 : 4);
	memcpy(id->idiag_dst, six ? (const void *)&remote->in6.sin6_addr : &remote->in.sin_addr, six ? 16 : 4);
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

enum found { MISSING, NOBODYS, FOUND };

/* The user of the process that accepted the connection whose ends are these. NOBODYS: nobody has accepted it. */
static enum found owner(const union address *local, const union address *remote, uint32_t *uid) {
	struct { struct nlmsghdr h; struct inet_diag_req_v2 r; } q = {
		.h = {.nlmsg_len = sizeof q, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.r = {.sdiag_family = (unsigned char)local->any.sa_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u}};
	union { struct nlmsghdr h; char bytes[1024]; } a;
	fill(&q.r.id, local, remote);
	int fd = real.socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0)
		return MISSING;
	ssize_t n = real.send(fd, &q, sizeof q, 0) < 0 ? -1 : real.recv(fd, &a, sizeof a, MSG_DONTWAIT);
	real.close(fd);
	const struct inet_diag_msg *m = NLMSG_DATA(&a.h);
	if (n < (ssize_t)(NLMSG_HDRLEN + sizeof *m) || a.h.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return MISSING;
	*uid = m->idiag_uid;
	return m->idiag_inode == 0 ? NOBODYS : FOUND;
}

static bool here(union address to) {
	bool six = to.any.sa_family == AF_INET6;
	*(six ? &to.in6.sin6_port : &to.in.sin_port) = 0;
	int fd = real.socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool is = fd < 0 || (bind(fd, &to.any, six ? sizeof to.in6 : sizeof to.in) == 0 ||
	                      errno != EADDRNOTAVAIL);
	if (fd >= 0)
		real.close(fd);
	return is;
}

bool may_hold(const struct sock *s, uint32_t uid) {
	union address from, to;
	uint32_t is = 0;
	if (uid == 0 || !split(s->tuple, &from, &to))
		return uid == 0;
	enum found found = owner(&to, &from, &is);
	return found == FOUND ? is == uid : found == MISSING && !here(to); /* missing: in another network namespace */
}
