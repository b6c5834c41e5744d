/* What the tests of the provider share: its objects, events, completions. Included by each of them once. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#define CHECK(x) do { long e_ = (long)(x); if (e_ < 0) fail(__LINE__, #x, e_); } while (0)
#define WANT(x) do { if (!(x)) fail(__LINE__, "want " #x, 0); } while (0)

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *cq;
static struct fid_pep *pep;
static struct fi_info *info;
static struct fid_ep *shared; /* buffers, in place of the endpoints' own */
static int mr_modes; /* that the program can do with */
static bool sleeps;
static const char *role;

static void fail(int line, const char *what, long err)
{
	fprintf(stderr, "FAIL: %s, line %d: %s: %s\n", role, line, what, err < 0 ? fi_strerror((int)-err) : "not so");
	exit(1);
}

static unsigned char byte_of(unsigned seed, size_t i)
{
	unsigned x = (unsigned)i * 2654435761u ^ seed * 40503u;
	return (unsigned char)((x ^ x >> 15) * 2246822519u >> 13);
}

static void fill(char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)byte_of(seed, i);
}

static bool same(const char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (char)byte_of(seed, i))
			return false;
	return true;
}

static void open_all(void)
{
	struct fi_info *hints = fi_allocinfo();
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
	hints->fabric_attr->prov_name = strdup("edge");
	hints->domain_attr->mr_mode = mr_modes;
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	WANT(info->addr_format == FI_SOCKADDR_IN6 && info->domain_attr->mr_mode == mr_modes);
	struct fi_eq_attr ea = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr ca = { .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD };
	CHECK(fi_fabric(info->fabric_attr, &fabric, NULL));
	CHECK(fi_domain(fabric, info, &domain, NULL));
	CHECK(fi_eq_open(fabric, &ea, &eq, NULL));
	CHECK(fi_cq_open(domain, &ca, &cq, NULL));
}

static void close_all(void)
{
	if (pep != NULL)
		CHECK(fi_close(&pep->fid));
	CHECK(fi_close(&cq->fid));
	CHECK(fi_close(&domain->fid));
	CHECK(fi_close(&eq->fid));
	CHECK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

static void serve(const char *file)
{
	char name[64], other[300];
	size_t n = sizeof name;
	CHECK(fi_passive_ep(fabric, info, &pep, NULL));
	CHECK(fi_pep_bind(pep, &eq->fid, 0));
	CHECK(fi_listen(pep));
	CHECK(fi_getname(&pep->fid, name, &n));
	snprintf(other, sizeof other, "%s.new", file);
	FILE *f = fopen(other, "w");
	WANT(f != NULL && fwrite(name, 1, n, f) == n && fclose(f) == 0 && rename(other, file) == 0);
}

static void address_of(const char *file, char name[64])
{
	FILE *f;
	while ((f = fopen(file, "r")) == NULL)
		usleep(10000);
	WANT(fread(name, 1, 28, f) == 28);
	fclose(f);
}

/* The next event, and of what: an error is negative. */
static int event(struct fid **fid, struct fi_eq_cm_entry **cm, size_t *data)
{
	static union { struct fi_eq_cm_entry cm; char room[400]; } buf;
	static struct fi_eq_err_entry e;
	uint32_t type;
	ssize_t n = fi_eq_sread(eq, &type, &buf, sizeof buf, -1, 0);
	if (n == -FI_EAVAIL) {
		memset(&e, 0, sizeof e);
		WANT(fi_eq_readerr(eq, &e, 0) == sizeof e);
		*fid = e.fid;
		*data = e.err_data_size;
		if (e.err_data_size > 0)
			memcpy(buf.cm.data, e.err_data, e.err_data_size);
		*cm = &buf.cm;
		return -e.err;
	}
	CHECK(n);
	*fid = buf.cm.fid;
	*cm = &buf.cm;
	*data = (size_t)n - sizeof buf.cm;
	return (int)type;
}

static struct fid_ep *endpoint(struct fi_info *of)
{
	struct fid_ep *ep;
	CHECK(fi_endpoint(domain, of, &ep, NULL));
	CHECK(fi_ep_bind(ep, &eq->fid, 0));
	CHECK(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	if (shared != NULL)
		CHECK(fi_ep_bind(ep, &shared->fid, 0));
	CHECK(fi_enable(ep));
	return ep;
}

/* Connects and returns what came of it; data compare. */
static int dial(const void *to, const char *said, const char *answer, struct fid_ep **ep)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	size_t n;
	*ep = endpoint(info);
	CHECK(fi_connect(*ep, to, said, strlen(said)));
	int type = event(&fid, &cm, &n);
	WANT(fid == &(*ep)->fid);
	WANT(answer == NULL || (n == strlen(answer) && memcmp(cm->data, answer, n) == 0));
	return type;
}

/* Waits for a request that says so and for the connection; NULL where the peer went away meanwhile. */
static struct fi_info *request(const char *said)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	size_t n;
	int type;
	while ((type = event(&fid, &cm, &n)) != FI_CONNREQ)
		WANT(type < 0 || type == FI_SHUTDOWN);
	WANT(fid == &pep->fid && n == strlen(said) && memcmp(cm->data, said, n) == 0);
	return cm->info;
}

static struct fid_ep *take(struct fi_info *of, const char *answer)
{
	struct fid *fid;
	struct fi_eq_cm_entry *cm;
	size_t n;
	struct fid_ep *ep = endpoint(of);
	CHECK(fi_accept(ep, answer, strlen(answer)));
	fi_freeinfo(of);
	int type = event(&fid, &cm, &n);
	if (type == FI_CONNECTED && fid == &ep->fid)
		return ep;
	CHECK(fi_close(&ep->fid));
	return NULL;
}

/* One completion: 0, or a negative error, in *e and the context. */
static int completion(struct fi_cq_data_entry *e)
{
	struct fi_cq_err_entry bad = { 0 };
	ssize_t n;
	do
		n = sleeps ? fi_cq_sread(cq, e, 1, NULL, -1) : fi_cq_read(cq, e, 1);
	while (n == -FI_EAGAIN);
	if (n == -FI_EAVAIL) {
		WANT(fi_cq_readerr(cq, &bad, 0) == 1 && bad.err > 0);
		*e = (struct fi_cq_data_entry){ bad.op_context, bad.flags, bad.len, bad.buf, bad.data };
		return -bad.err;
	}
	WANT(n == 1);
	return 0;
}

static int outcome(const void *context)
{
	struct fi_cq_data_entry e;
	int err = completion(&e);
	if (e.op_context != context)
		fail(__LINE__, "a completion of something else", err);
	return err;
}

/* One end waits until the other has come so far. */
static inline void say(struct fid_ep *ep)
{
	CHECK(fi_send(ep, "go", 2, NULL, 0, "go"));
	WANT(outcome("go") == 0);
}

static inline void hear(struct fid_ep *ep)
{
	char buf[8];
	CHECK(fi_recv(ep, buf, sizeof buf, NULL, 0, "hear"));
	WANT(outcome("hear") == 0 && memcmp(buf, "go", 2) == 0);
}
