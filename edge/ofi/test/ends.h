/*
 * A program that connects to itself, without a daemon: the provider's objects, the two ends, their completions.
 * Included by each of the tests that do so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../provider.h"
#include "nobody.h"

#define WANT(x) do { if (!(x)) die(__FILE__, __LINE__, #x); } while (0)
#define OK(x) WANT((x) == 0)

struct fi_provider *fi_prov_ini(void);

#pragma GCC diagnostic ignored "-Wunused-function"
enum { PATIENCE = 60, KEY = 7 };

static void die(const char *file, int line, const char *what)
{
	fprintf(stderr, "FAIL: %s, line %d: want %s\n", file, line, what);
	_exit(1);
}

/* --- two ends of a connection --- */

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_pep *pep;
static struct fi_info *info;

struct end { struct fid_ep *ep; struct fid_cq *cq; };
static struct end one, two; /* who connects, who accepts */
static void (*prepare)(struct end *); /* what else is to be bound */

static uint32_t event(fid_t fid)
{
	struct fi_eq_cm_entry cm;
	uint32_t type;
	WANT(fi_eq_sread(eq, &type, &cm, sizeof cm, -1, 0) == sizeof cm && cm.fid == fid);
	return type;
}

static void open_end(struct end *e, struct fi_info *of, uint64_t flags)
{
	struct fi_cq_attr ca = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
	OK(fi_cq_open(domain, &ca, &e->cq, NULL));
	OK(fi_endpoint(domain, of, &e->ep, NULL));
	OK(fi_ep_bind(e->ep, &eq->fid, 0));
	OK(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV | flags));
	if (prepare != NULL)
		prepare(e);
	OK(fi_enable(e->ep));
}

/* One asks p for a connection. */
static struct fi_info *ask(struct fid_pep *p, uint64_t flags)
{
	struct fi_eq_cm_entry cm;
	uint32_t type;
	char name[64];
	size_t size = sizeof name;
	OK(fi_getname(&p->fid, name, &size));
	open_end(&one, info, flags);
	OK(fi_connect(one.ep, name, NULL, 0));
	WANT(fi_eq_sread(eq, &type, &cm, sizeof cm, -1, 0) == sizeof cm && type == FI_CONNREQ && cm.fid == &p->fid);
	return cm.info;
}

static void accept_it(void)
{
	OK(fi_accept(two.ep, NULL, 0));
	WANT(event(&two.ep->fid) == FI_CONNECTED);
	WANT(event(&one.ep->fid) == FI_CONNECTED);
}

/* flags: of both ends' queues */
static void connect_both(uint64_t flags)
{
	struct fi_info *of = ask(pep, flags);
	open_end(&two, of, flags);
	fi_freeinfo(of);
	accept_it();
}

static void close_end(struct end *e)
{
	OK(fi_close(&e->ep->fid));
	OK(fi_close(&e->cq->fid));
}

static void close_both(void)
{
	uint32_t type;
	char room[100];
	close_end(&one);
	close_end(&two);
	WANT(fi_eq_read(eq, &type, room, sizeof room, 0) == -FI_EAGAIN); /* an event of nobody's */
}

static bool nothing(struct end *e)
{
	struct fi_cq_data_entry c;
	return fi_cq_read(e->cq, &c, 1) == -FI_EAGAIN;
}

/* The next completion; an error's is negative. */
static int next(struct end *e, struct fi_cq_err_entry *c)
{
	*c = (struct fi_cq_err_entry){ 0 };
	ssize_t n = fi_cq_sread(e->cq, c, 1, NULL, -1);
	if (n != -FI_EAVAIL) {
		WANT(n == 1);
		return 0;
	}
	WANT(fi_cq_readerr(e->cq, c, 0) == 1 && c->err > 0);
	return -c->err;
}

static int back(struct end *e, const void *context)
{
	struct fi_cq_err_entry c;
	int err = next(e, &c);
	WANT(c.op_context == context);
	return err;
}

/* --- from beginning to end --- */

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_eq_attr ea = { .wait_obj = FI_WAIT_FD };
	device.fd = epoll_create1(0);
	fi_prov_ini();
	WANT(hints != NULL);
	OK(edge_provider.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	OK(edge_provider.fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_eq_open(fabric, &ea, &eq, NULL));
	OK(fi_passive_ep(fabric, info, &pep, NULL));
	OK(fi_pep_bind(pep, &eq->fid, 0));
	OK(fi_listen(pep));
}

struct test { const char *name; void (*run)(void); };

/* All of them, or the one that argv names. */
static int run(const char *name, const struct test *tests, size_t n, int argc, char **argv)
{
	alarm(PATIENCE);
	open_all();
	for (size_t i = 0; i < n; i++)
		if (argc == 1 || strcmp(argv[1], tests[i].name) == 0)
			tests[i].run();
	OK(fi_close(&pep->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&eq->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
	edge_provider.cleanup();
	close(device.fd);
	printf("%s: ok\n", name);
	return 0;
}
