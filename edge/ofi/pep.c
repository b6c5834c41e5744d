/* Passive endpoints: they listen, under "fi/PORT" and at a socket, and hand requests of peers to the program. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"

enum { BEFORE = 18, TRIES = 64, OFFERS = 64 };

struct connreq *connreq_of(fid_t handle)
{
	return handle != NULL && handle->fclass == FI_CLASS_CONNREQ ? container_of(handle, struct connreq, fid) : NULL;
}

void connreq_refuse(struct connreq *r)
{
	struct pep *p = r->pep;
	r->pep = NULL;
	if (p != NULL && p->nrequests-- == REQUESTS && p->listener != NULL)
		edge_listener_watch(p->listener, p); /* has pep_step called again */
	if (r->request != NULL)
		edge_request_refuse(r->request, "the program does not take the connection");
	if (r->fd >= 0)
		local_close(r->f, r->fd);
	if (r->native != NULL)
		edge_request_refuse(r->native, "the program does not take the connection");
	r->request = r->native = NULL;
	r->fd = -1;
}

void connreq_drop(struct connreq *r)
{
	if (r == NULL)
		return;
	connreq_refuse(r);
	if (r->ep != NULL)
		r->ep->cm.request = NULL;
	*r->at = r->next;
	if (r->next != NULL)
		r->next->at = r->at;
	free(r);
}

static struct fi_ops connreq_ops = { .size = sizeof(struct fi_ops), .close = NULL, .bind = no_bind,
	.control = no_control, .ops_open = no_ops_open };

/* Whether who asks may call itself so: a daemon that knows the peer under its identity alone says that. */
static bool may_be(const edge_request *q, const char *data)
{
	char text[17];
	for (int i = 0; i < 8; i++)
		sprintf(text + 2 * i, "%02x", (unsigned char)data[4 + i]);
	const char *peer = q != NULL ? edge_request_peer(q) : text;
	return strlen(peer) != 16 || strspn(peer, "0123456789abcdef") != 16 || strcmp(peer, text) == 0;
}

/* Nobody takes the request that info tells of; both go. */
void connreq_unwanted(struct fi_info *info)
{
	connreq_drop(connreq_of(info->handle));
	fi_freeinfo(info);
}

/* --- connections for native.c, which come before the request that they belong to or after it --- */

struct offer { struct offer *next; edge_request *request; char token[TOKEN]; };

static void offer_refuse(struct pep *p)
{
	struct offer *o = p->offers;
	p->offers = o->next;
	p->noffers--;
	edge_request_refuse(o->request, "its request did not come");
	free(o);
}

/* One with that token, which is taken; NULL: it has not come. */
static edge_request *offer_take(struct pep *p, const char token[TOKEN])
{
	struct offer **at = &p->offers, *o;
	while ((o = *at) != NULL && memcmp(o->token, token, TOKEN) != 0)
		at = &o->next;
	edge_request *q = o != NULL ? o->request : NULL;
	if (o != NULL) {
		*at = o->next;
		p->noffers--;
		free(o);
	}
	return q;
}

static void offered(struct pep *p, edge_request *q)
{
	char token[TOKEN];
	if (!native_is(q, token)) {
		edge_request_refuse(q, "the service takes connections of the libfabric provider");
		return;
	}
	for (struct connreq *r = p->f->requests; r != NULL; r = r->next)
		if (r->pep == p && r->token_given && r->native == NULL && memcmp(r->token, token, TOKEN) == 0) {
			r->native = q;
			return;
		}
	if (p->noffers == OFFERS)
		offer_refuse(p);
	struct offer *o = calloc(1, sizeof *o), **last = &p->offers;
	if (o == NULL) {
		edge_request_refuse(q, "out of memory");
		return;
	}
	o->request = q;
	memcpy(o->token, token, TOKEN);
	while (*last != NULL)
		last = &(*last)->next;
	*last = o;
	p->noffers++;
}

/* A peer asks for a connection, by q or through a socket. */
static void asked(struct pep *p, edge_request *q, int fd, const char *data, size_t size)
{
	struct connreq *r = NULL;
	struct fi_info *info = NULL;
	bool good = size >= BEFORE && request_size(data) == size && may_be(q, data);
	if (good) {
		r = calloc(1, sizeof *r);
		info = fi_dupinfo(p->info);
	}
	void *dest = info != NULL ? malloc(sizeof(address)) : NULL;
	if (r == NULL || dest == NULL) {
		if (q != NULL)
			edge_request_refuse(q, good ? "out of memory" : "not a request of the libfabric provider of this release");
		else
			local_close(p->f, fd);
		free(r);
		if (info != NULL)
			fi_freeinfo(info);
		return;
	}
	*r = (struct connreq){ .fid = { .fclass = FI_CLASS_CONNREQ, .ops = &connreq_ops }, .f = p->f, .pep = p,
		.request = q, .fd = fd, .next = p->f->requests, .at = &p->f->requests };
	identity_put(&r->peer, (const unsigned char *)data + 4, (unsigned char)data[12] | (unsigned char)data[13] << 8);
	if (r->next != NULL)
		r->next->at = &r->next;
	p->f->requests = r;
	p->nrequests++;
	size_t n = size - BEFORE - (data[16] == 1 ? TOKEN : 0); /* of the program's data */
	r->token_given = data[16] == 1;
	if (r->token_given) {
		memcpy(r->token, data + BEFORE + n, TOKEN);
		r->native = offer_take(p, r->token);
	}
	free(info->dest_addr);
	memcpy(dest, &r->peer, sizeof r->peer);
	info->dest_addr = dest;
	info->dest_addrlen = sizeof r->peer;
	info->handle = &r->fid;
	if (!eq_push(p->eq, FI_CONNREQ, &p->fid.fid, 0, 0, info, data + BEFORE, n))
		connreq_unwanted(info);
}

/* Whether the request is there that a socket begins with, or will never come; then it is taken. */
static bool ask_socket(struct pep *p, int fd)
{
	char buf[REQUEST];
	ssize_t n = recv(fd, buf, sizeof buf, MSG_PEEK | MSG_DONTWAIT);
	size_t want = n >= BEFORE ? request_size(buf) : BEFORE;
	if (n < 0 ? errno == EAGAIN || errno == EINTR : n > 0 && want != 0 && (size_t)n < want)
		return false;
	if (n <= 0 || want == 0 || recv(fd, buf, want, MSG_DONTWAIT) != (ssize_t)want) {
		local_close(p->f, fd);
		return true;
	}
	local_unwatch(p->f, fd);
	asked(p, NULL, fd, buf, want);
	return true;
}

static void ask_local(struct pep *p)
{
	int fd;
	bool again = true;
	while (again) {
		again = false;
		while (p->npending < PENDING && p->nrequests < REQUESTS && (fd = local_accept(p->fd)) >= 0) {
			p->pending[p->npending++] = fd;
			local_watch(p->f, fd, &p->watched);
		}
		for (uint32_t i = 0; i < p->npending;) {
			if (!ask_socket(p, p->pending[i])) {
				i++;
				continue;
			}
			p->pending[i] = p->pending[--p->npending];
			again = true;
		}
	}
}

static void pep_step(struct watched *w)
{
	struct pep *p = (struct pep *)w;
	edge_request *q;
	int err = EDGE_ERR_AGAIN;
	while (p->nrequests < REQUESTS && (err = edge_listener_next(p->listener, &q, 0)) == 0) {
		const void *data;
		size_t size;
		if (edge_request_stream(q, &data, &size))
			asked(p, q, -1, data, size);
		else
			offered(p, q);
	}
	if (err != 0 && err != EDGE_ERR_AGAIN && !p->failed) { /* another program has it, since the daemon was restarted */
		p->failed = true;
		eq_push(p->eq, 0, &p->fid.fid, fi_error(err), err, NULL, NULL, 0);
	}
	ask_local(p);
}

static int offer(struct pep *p, int port)
{
	char service[32];
	snprintf(service, sizeof service, "fi/%d", port);
	p->self.sin6_port = htons((uint16_t)port);
	int fd = local_listen(&p->self);
	if (fd < 0)
		return fd;
	int err = edge_listen(p->f->dev, service, &p->listener, ASK_MS);
	if (err != 0) {
		close(fd);
		if (err != EDGE_ERR_EXISTS)
			WARN(FI_LOG_EP_CTRL, "listening at %s: %s: %s\n", service, edge_strerror(err), edge_detail());
		return err == EDGE_ERR_EXISTS ? -FI_EADDRINUSE : -fi_error(err);
	}
	p->fd = fd;
	edge_listener_watch(p->listener, p);
	return local_watch(p->f, fd, &p->watched);
}

static int pep_listen(struct fid_pep *fid)
{
	struct pep *p = container_of(fid, struct pep, fid);
	pthread_mutex_lock(&p->f->mu);
	int err = p->eq == NULL ? -FI_ENOEQ : p->listener != NULL ? -FI_EOPBADSTATE : 0;
	int port = ntohs(p->self.sin6_port);
	if (err == 0 && port != 0) {
		err = offer(p, port);
	} else if (err == 0) {
		uint16_t any;
		err = -FI_EADDRINUSE;
		for (int i = 0; i < TRIES && err == -FI_EADDRINUSE; i++)
			err = getrandom(&any, sizeof any, 0) != sizeof any ? -FI_EOTHER : offer(p, 1024 + any % (65536 - 1024));
		if (err != 0)
			p->self.sin6_port = 0;
	}
	pthread_mutex_unlock(&p->f->mu);
	return err;
}

int address_out(const address *a, void *to, size_t *size)
{
	size_t room = *size;
	*size = sizeof *a;
	memcpy(to, a, room < sizeof *a ? room : sizeof *a);
	return room < sizeof *a ? -FI_ETOOSMALL : 0;
}

static int pep_getname(fid_t fid, void *to, size_t *size)
{
	struct pep *p = container_of(fid, struct pep, fid.fid);
	return address_out(&p->self, to, size);
}

static int pep_setname(fid_t fid, void *from, size_t size)
{
	struct pep *p = container_of(fid, struct pep, fid.fid);
	address a;
	if (size < sizeof a || p->listener != NULL)
		return p->listener != NULL ? -FI_EOPBADSTATE : -FI_EINVAL;
	memcpy(&a, from, sizeof a);
	if (a.sin6_family != AF_INET6 || !(is_self(&a) || IN6_IS_ADDR_UNSPECIFIED(&a.sin6_addr)))
		return -FI_EADDRNOTAVAIL;
	p->self.sin6_port = a.sin6_port;
	return 0;
}

/* --- refusals: streams that carry nothing but K_REJECT --- */

static void refusal_free(struct refusal *r, bool whole)
{
	link_close(r->f, &r->link, whole);
	free(r);
}

static void refusal_step(struct watched *w)
{
	struct refusal *r = (struct refusal *)w;
	int err = link_error(&r->link);
	ssize_t n = err != 0 ? err : link_write(&r->link, r->bytes + r->sent, r->size - r->sent);
	if (n > 0)
		r->sent += (size_t)n;
	if (n == EDGE_ERR_AGAIN || (n >= 0 && r->sent < r->size))
		return;
	struct refusal **at = &r->f->refusals;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	refusal_free(r, n >= 0);
}

void refusals_drop(struct fabric *f)
{
	for (struct refusal *r; (r = f->refusals) != NULL;) {
		f->refusals = r->next;
		refusal_free(r, false);
	}
}

static int refuse(struct fabric *f, struct connreq *c, const void *data, size_t size)
{
	struct refusal *r = malloc(sizeof *r + HEADER + size);
	if (r == NULL)
		return -FI_ENOMEM;
	*r = (struct refusal){ .watched = { .step = refusal_step }, .f = f, .link = { .fd = c->fd },
		.size = HEADER + size };
	header_put(r->bytes, &(struct header){ .kind = K_REJECT, .size = size });
	if (size > 0)
		memcpy(r->bytes + HEADER, data, size);
	int err = c->request == NULL && c->fd < 0 ? EDGE_ERR_RESET : 0; /* fi_accept failed and used it up */
	if (c->request != NULL)
		err = edge_request_accept_stream(c->request, &r->link.stream);
	c->request = NULL;
	c->fd = -1;
	if (err != 0) { /* the peer is gone */
		free(r);
		return 0;
	}
	r->next = f->refusals;
	f->refusals = r;
	if (r->link.stream != NULL)
		edge_stream_watch(r->link.stream, r);
	else
		refusal_step(&r->watched); /* a socket has room for so little */
	return 0;
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t size)
{
	struct pep *p = container_of(fid, struct pep, fid);
	struct connreq *r = connreq_of(handle);
	if (r == NULL || size > CM_DATA)
		return -FI_EINVAL;
	pthread_mutex_lock(&p->f->mu);
	int err = refuse(p->f, r, data, size);
	if (err == 0)
		connreq_drop(r);
	pthread_mutex_unlock(&p->f->mu);
	return err;
}

/* --- their life --- */

static int pep_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
	struct pep *p = container_of(fid, struct pep, fid.fid);
	struct eq *eq = container_of(bound, struct eq, fid.fid);
	if (bound->fclass != FI_CLASS_EQ || flags != 0 || p->eq != NULL || eq->f != p->f)
		return -FI_EINVAL;
	pthread_mutex_lock(&p->f->mu);
	p->eq = eq;
	eq->refs++;
	pthread_mutex_unlock(&p->f->mu);
	return 0;
}

static int pep_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_BACKLOG ? 0 : -FI_ENOSYS;
}

static int pep_close(struct fid *fid)
{
	struct pep *p = container_of(fid, struct pep, fid.fid);
	struct fabric *f = p->f;
	pthread_mutex_lock(&f->mu);
	if (p->listener != NULL) {
		edge_listener_close(p->listener);
		p->listener = NULL;
		local_close(f, p->fd);
	}
	while (p->npending > 0)
		local_close(f, p->pending[--p->npending]);
	while (p->offers != NULL)
		offer_refuse(p);
	if (p->eq != NULL) {
		eq_forget(p->eq, fid);
		p->eq->refs--;
	}
	for (struct connreq *r = f->requests; r != NULL; r = r->next) {
		if (r->pep != p)
			continue;
		if (r->ep == NULL)
			connreq_refuse(r);
		r->pep = NULL; /* an endpoint may still accept it */
	}
	f->refs--;
	pthread_mutex_unlock(&f->mu);
	fi_freeinfo(p->info);
	free(p);
	return 0;
}

static int pep_getopt(fid_t fid, int level, int name, void *value, size_t *size)
{
	(void)fid;
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE)
		return -FI_ENOPROTOOPT;
	if (*size < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = CM_DATA;
	*size = sizeof(size_t);
	return 0;
}

static int pep_setopt(fid_t fid, int level, int name, const void *value, size_t size)
{
	(void)fid, (void)level, (void)name, (void)value, (void)size;
	return -FI_ENOPROTOOPT;
}

static struct fi_ops pep_fid_ops = { .size = sizeof(struct fi_ops), .close = pep_close, .bind = pep_bind,
	.control = pep_control, .ops_open = no_ops_open };
static struct fi_ops_ep pep_ops = { .size = offsetof(struct fi_ops_ep, tx_ctx), .getopt = pep_getopt,
	.setopt = pep_setopt };
static struct fi_ops_cm pep_cm_ops = { .size = sizeof(struct fi_ops_cm), .setname = pep_setname,
	.getname = pep_getname, .listen = pep_listen, .reject = pep_reject };

int pep_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep, void *context)
{
	struct fabric *f = container_of(fabric, struct fabric, fid);
	struct pep *p = calloc(1, sizeof *p);
	struct fi_info *copy = p != NULL ? fi_dupinfo(info) : NULL;
	if (copy == NULL) {
		free(p);
		return -FI_ENOMEM;
	}
	*p = (struct pep){ .watched = { .step = pep_step }, .f = f, .info = copy, .fd = -1,
		.fid = { .fid = { .fclass = FI_CLASS_PEP, .context = context, .ops = &pep_fid_ops }, .ops = &pep_ops,
			.cm = &pep_cm_ops } };
	self_address(&p->self, 0);
	if (info->src_addr != NULL && info->src_addrlen >= sizeof(address))
		p->self.sin6_port = ((address *)info->src_addr)->sin6_port;
	pthread_mutex_lock(&f->mu);
	f->refs++;
	pthread_mutex_unlock(&f->mu);
	*pep = &p->fid;
	return 0;
}
