/* Registered memory (ABI A7.3 to A7.5), and grants (A7.19). Registrations go one after the other, since few may wait to
 * be mapped. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "region.h"
#include "waiting.h"

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

edge_region *region_new(edge_device *d, size_t size, enum region_kind kind)
{
	edge_region *r = calloc(1, sizeof *r);
	if (r == NULL)
		return NULL;
	*r = (edge_region){ .d = d, .size = size, .mapped = size, .kind = kind };
	return r;
}

static void enlist(edge_region *r)
{
	r->next = r->d->mem->regions;
	r->at = &r->d->mem->regions;
	if (r->next != NULL)
		r->next->at = &r->next;
	r->d->mem->regions = r;
}

static void delist(edge_region *r)
{
	if (r->at == NULL)
		return;
	*r->at = r->next;
	if (r->next != NULL)
		r->next->at = r->at;
	r->at = NULL;
}

/* Ends the registration with the daemon, if there is one. */
static void deregister(edge_device *d, uint32_t id);

static void run_jobs(edge_device *d);

/* The first job is over; the next one begins. */
static void job_over(edge_device *d, int err)
{
	struct job *j = d->mem->jobs;
	d->mem->jobs = j->next;
	if (d->mem->jobs == NULL)
		d->mem->last_job = &d->mem->jobs;
	j->err = err;
	j->done = true;
	j->fn(d, j, err); /* which may add others */
	d->mem->job_runs = false;
	run_jobs(d);
	news(d);
}

static void mapped(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fd)
{
	(void)c;
	(void)fd;
	if (m == NULL || d->mem->jobs == NULL)
		return; /* jobs_fail ends it */
	if (err != 0)
		region_unmap(d->mem->jobs->region);
	job_over(d, err);
}

static int map_memory(edge_region *r, const struct abi_register_reply *m, int fd)
{
	if (fd < 0)
		return no_descriptor(r->d);
	if (m->size < r->size || m->size > (uint64_t)1 << 62 || m->region == 0)
		return fail(EDGE_ERR_VERSION, "the daemon answered a registration by %llu bytes", (unsigned long long)m->size);
	struct stat st; /* an access beyond the end of the file would be a signal */
	int need = F_SEAL_SHRINK, seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & need) != need || fstat(fd, &st) != 0 || (uint64_t)st.st_size < m->size)
		return fail(EDGE_ERR_VERSION, "the daemon's memory can shrink, or is shorter than it says");
	void *p = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return system_error("mmap of registered memory");
	r->bytes = p;
	r->mapped = m->size;
	return 0;
}

static void registered(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fd)
{
	(void)c;
	struct job *j = d->mem->jobs;
	if (m == NULL || j == NULL)
		return;
	edge_region *r = j->region;
	if (err == 0) {
		r->id = m->registered.region;
		r->epoch = d->epoch;
	}
	if (err != 0 || j->memfd >= 0) {
		job_over(d, err);
		return;
	}
	err = map_memory(r, &m->registered, *fd);
	if (err != 0)
		deregister(d, r->id);
	struct abi_region next = { .region = r->id };
	if (err == 0)
		err = control_send(d, &next, sizeof next, ABI_MAPPED, -1, mapped, NULL, 0);
	if (err != 0)
		job_over(d, err);
}

static void run_jobs(edge_device *d)
{
	struct job *j = d->mem->jobs;
	if (d->mem->job_runs || j == NULL)
		return;
	d->mem->job_runs = true;
	const edge_region *r = j->region;
	struct abi_register m = { .size = r->size, .flags = r->kind == GRANTED ? ABI_HEAP : j->memfd >= 0 ? ABI_OWN : 0,
		.address = r->kind == GRANTED ? (uintptr_t)r->bytes : 0 };
	int err = control_send(d, &m, sizeof m, ABI_REGISTER, j->memfd, registered, NULL, 0);
	if (err != 0)
		job_over(d, err);
}

/* Begins a registration when those before are over. */
void job_start(edge_device *d, struct job *j)
{
	j->next = NULL;
	*d->mem->last_job = j;
	d->mem->last_job = &j->next;
	run_jobs(d);
}

void jobs_fail(edge_device *d, int err)
{
	struct job *j = d->mem->jobs;
	d->mem->jobs = NULL;
	d->mem->last_job = &d->mem->jobs;
	d->mem->job_runs = false;
	for (struct job *next; j != NULL; j = next) {
		next = j->next;
		j->err = err;
		j->done = true;
		region_unmap(j->region);
		j->fn(d, j, err);
	}
}

static void deregister(edge_device *d, uint32_t id)
{
	struct abi_region m = { .region = id };
	control_tell(d, &m, sizeof m, ABI_DEREGISTER);
}

/* Puts private memory with the same bytes in the place of what was adopted. */
static int disown(edge_region *r)
{
	void *p = mmap(NULL, r->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return system_error("mmap");
	memcpy(p, r->bytes, r->mapped);
	if (mremap(p, r->mapped, r->mapped, MREMAP_MAYMOVE | MREMAP_FIXED, r->bytes) == MAP_FAILED) {
		munmap(p, r->mapped);
		return system_error("mremap");
	}
	return 0;
}

/* Takes the memory from the program. */
void region_unmap(edge_region *r)
{
	if (r->bytes == NULL)
		return;
	if (r->kind == DAEMONS)
		munmap(r->bytes, r->mapped);
	else if (r->kind == ADOPTED)
		disown(r);
	r->bytes = NULL;
}

static void deregistered(edge_device *d, struct call *c, int err, const union abi_packet *m, int *fd)
{
	(void)d, (void)err, (void)m, (void)fd;
	edge_region *r = c->obj;
	region_unmap(r);
	free(r);
}

/* Gives a region of the library's back and frees it. */
int region_release(edge_region *r)
{
	struct abi_region m = { .region = r->id };
	delist(r);
	if (r->epoch == r->d->epoch && r->d->attached && r->d->dead == 0 &&
	    control_send(r->d, &m, sizeof m, ABI_DEREGISTER, -1, deregistered, r, 0) == 0)
		return 0;
	region_unmap(r);
	free(r);
	return 0;
}

/* A registration that somebody waits for; who gives up leaves it to the handler. */
struct patient { struct job job; bool left; };

static bool job_done(void *arg)
{
	return ((struct job *)arg)->done;
}

static void patient_done(edge_device *d, struct job *j, int err)
{
	struct patient *p = j->obj;
	if (!p->left)
		return;
	if (err == 0)
		deregister(d, j->region->id);
	region_unmap(j->region);
	free(j->region);
	if (j->memfd >= 0)
		close(j->memfd);
	free(p);
}

/* Registers r, whose memory memfd is (a descriptor of ours, closed here), or the daemon's to make. r is freed on
 * error. */
static int wait_job(edge_device *d, edge_region *r, int memfd, int64_t until)
{
	int err = attach_current(d, until);
	if (err == 0 && r->kind == GRANTED)
		err = check_feature(d, EDGE_FEATURE_HEAP, "grants");
	else if (err == 0 && memfd >= 0 && !(d->features & EDGE_FEATURE_MEMORY))
		err = fail(EDGE_ERR_VERSION, "this daemon takes no memory that clients made (feature MEMORY); "
		           "upgrade it, or use edge_register");
	struct patient *p = err == 0 ? calloc(1, sizeof *p) : NULL;
	if (p == NULL) {
		if (memfd >= 0)
			close(memfd);
		region_unmap(r);
		free(r);
		return err != 0 ? err : EDGE_ERR_NO_MEMORY;
	}
	p->job = (struct job){ .region = r, .memfd = memfd, .fn = patient_done, .obj = p };
	job_start(d, &p->job);
	err = wait_for(d, job_done, &p->job, answer_by(until));
	if (!p->job.done) {
		p->left = true;
		region_unmap(r); /* now: the caller may do anything with the addresses afterwards */
		return err;
	}
	err = p->job.err;
	if (memfd >= 0)
		close(memfd);
	free(p);
	if (err != 0) {
		region_unmap(r);
		free(r);
	}
	return err;
}

int edge_register(edge_device *d, size_t size, edge_region **region, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	if (size == 0 || size > (size_t)1 << 62)
		return fail(EDGE_ERR_INVALID, "a region of %zu bytes; ask for one byte at least", size);
	enter(d);
	edge_region *r = region_new(d, size, DAEMONS);
	int err = r == NULL ? EDGE_ERR_NO_MEMORY : wait_job(d, r, -1, until);
	if (err == 0) {
		enlist(r);
		*region = r;
	}
	return leave(d, err);
}

static int check_pages(const void *addr, size_t size)
{
	size_t page = page_size();
	if (size == 0 || (uintptr_t)addr % page != 0 || size % page != 0)
		return fail(EDGE_ERR_INVALID, "%zu bytes at %p are not whole pages; align address and size to %zu bytes",
		    size, addr,
		            page);
	return 0;
}

/* Makes a sealed memfd and maps it. Returns it, or an error: nothing has happened then. */
static int make_memfd(const char *name, size_t size, void **at)
{
	struct rlimit most; /* ftruncate beyond it is a signal that ends the program */
	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && size > most.rlim_cur)
		return fail(EDGE_ERR_SYSTEM, "%zu bytes are more than RLIMIT_FSIZE (ulimit -f) allows", size);
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return system_error("memfd_create");
	*at = ftruncate(fd, (off_t)size) == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (*at == MAP_FAILED) {
		int err = system_error("ftruncate or mmap of a memfd");
		close(fd);
		return err;
	}
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW); /* of a memfd of our own: it cannot fail */
	return fd;
}

/* Makes the memory of r here, which is registered by one request and not by two (ABI A7.5). Returns the memfd, for the
 * job, or -1: the daemon is to make it. */
int region_make(edge_region *r)
{
	void *at;
	if (!(r->d->features & EDGE_FEATURE_MEMORY) || r->size % page_size() != 0)
		return -1;
	int fd = make_memfd("edge-stream", r->size, &at);
	if (fd < 0)
		return -1;
	r->bytes = at;
	return fd;
}

/* Makes a sealed memfd of the bytes at addr and maps it over them. Returns it, or an error: nothing has happened
 * then. */
static int take_over(void *addr, size_t size)
{
	void *p;
	int fd = make_memfd("edge-adopted", size, &p);
	if (fd < 0)
		return fd;
	memcpy(p, addr, size);
	if (mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, addr) == MAP_FAILED) {
		int err = system_error("mremap");
		munmap(p, size);
		close(fd);
		return err;
	}
	return fd;
}

static int register_own(edge_device *d, enum region_kind kind, int memfd, void *addr, size_t size, edge_region **region,
                        int64_t until)
{
	int err = attach_current(d, until); /* before memory changes */
	if (err != 0)
		return err;
	int fd = kind == ADOPTED ? take_over(addr, size) : fcntl(memfd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return kind == ADOPTED ? fd : system_error("fcntl");
	edge_region *r = region_new(d, size, kind);
	if (r == NULL) {
		edge_region gone = { .bytes = addr, .mapped = size, .kind = kind };
		region_unmap(&gone);
		close(fd);
		return EDGE_ERR_NO_MEMORY;
	}
	r->bytes = addr;
	err = wait_job(d, r, fd, until);
	if (err == 0) {
		enlist(r);
		*region = r;
	}
	return err;
}

int edge_adopt(edge_device *d, void *addr, size_t size, edge_region **region, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	int err = check_pages(addr, size);
	if (err != 0)
		return err;
	enter(d);
	return leave(d, register_own(d, ADOPTED, -1, addr, size, region, until));
}

int edge_register_memfd(edge_device *d, int memfd, void *addr, size_t size, edge_region **region, int timeout_ms)
{
	int64_t until = deadline(timeout_ms);
	struct stat st;
	int err = check_pages(addr, size);
	if (err == 0 && (fstat(memfd, &st) != 0 || (uint64_t)st.st_size != size))
		err = fail(EDGE_ERR_INVALID, "the memfd must have exactly %zu bytes", size);
	if (err == 0 && fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
		err = fail(EDGE_ERR_INVALID, "the memfd cannot be sealed (%s); make it with MFD_ALLOW_SEALING",
		    strerror(errno));
	if (err != 0)
		return err;
	enter(d);
	return leave(d, register_own(d, CALLERS, memfd, addr, size, region, until));
}

/* By it the daemon reaches the memory of this process. */
static int own_memory(void)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return fd >= 0 ? fd : fail(EDGE_ERR_INVALID, "memory is granted by /proc/self/mem: %s", strerror(errno));
}

static int grant(edge_device *d, void *addr, size_t size, edge_region **region, int64_t until)
{
	int fd = own_memory();
	if (fd < 0)
		return fd;
	edge_region *r = region_new(d, size, GRANTED);
	if (r == NULL) {
		close(fd);
		return EDGE_ERR_NO_MEMORY;
	}
	r->bytes = addr;
	int err = wait_job(d, r, fd, until);
	if (err == 0) {
		enlist(r);
		*region = r;
	}
	return err;
}

int edge_grant(edge_device *d, void *addr, size_t size, edge_region **region, int timeout_ms)
{
	const uint64_t most = (uint64_t)1 << 46, top = (uint64_t)1 << 56;
	int64_t until = deadline(timeout_ms);
	if (size == 0 || size > most || (uintptr_t)addr > top - size)
		return fail(EDGE_ERR_INVALID, "%zu bytes at %p; grant 1 to 2^46 of this process's addresses", size, addr);
	enter(d);
	return leave(d, grant(d, addr, size, region, until));
}

void *edge_region_bytes(const edge_region *r)
{
	return r->bytes;
}

size_t edge_region_size(const edge_region *r)
{
	return r->size;
}

int edge_region_error(edge_region *r)
{
	enter(r->d);
	int err = r->d->dead != 0 ? r->d->dead : r->epoch == r->d->epoch &&
	    r->d->attached ? 0 : EDGE_ERR_STALE;
	return leave(r->d, err);
}

/* The new registration's memory takes the place of the old one's. */
static int replace(edge_region *r, edge_region *by)
{
	if (r->kind == DAEMONS) {
		memcpy(by->bytes, r->bytes, r->size);
		if (mremap(by->bytes, by->mapped, by->mapped, MREMAP_MAYMOVE | MREMAP_FIXED, r->bytes) == MAP_FAILED)
			return system_error("mremap");
	}
	r->id = by->id;
	r->epoch = by->epoch;
	by->bytes = NULL;
	return 0;
}

int edge_region_renew(edge_region *r, int timeout_ms)
{
	edge_device *d = r->d;
	int64_t until = deadline(timeout_ms);
	enter(d);
	int err = attach_current(d, until);
	if (err == 0 && r->epoch == d->epoch)
		return leave(d, 0);
	if (err == 0 && r->kind == CALLERS)
		err = fail(EDGE_ERR_INVALID, "a memfd can be registered once; make another one");
	edge_region *by = NULL;
	if (err == 0 && (by = region_new(d, r->kind == DAEMONS ? r->size : r->mapped, r->kind)) == NULL)
		err = EDGE_ERR_NO_MEMORY;
	int fd = -1;
	if (err == 0 && r->kind == ADOPTED) {
		err = fd = take_over(r->bytes, r->mapped);
		by->bytes = fd >= 0 ? r->bytes : NULL;
		if (fd < 0)
			free(by);
		err = fd < 0 ? fd : 0;
	}
	if (err == 0 && r->kind == GRANTED) {
		err = fd = own_memory();
		by->bytes = r->bytes;
		if (fd < 0)
			free(by);
		err = fd < 0 ? fd : 0;
	}
	if (err == 0)
		err = wait_job(d, by, fd, until);
	if (err != 0)
		return leave(d, err);
	if (by->mapped != r->mapped)
		err = fail(EDGE_ERR_VERSION, "the daemon's pages are of another size than before");
	else
		err = replace(r, by);
	if (err != 0)
		region_release(by);
	else
		free(by);
	return leave(d, err);
}

struct closing { bool done; int err; };

static bool closing_done(void *arg)
{
	return ((struct closing *)arg)->done;
}

static void region_closed(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)m, (void)fd;
	*(struct closing *)call->obj = (struct closing){ .done = true, .err = err };
	news(d);
}

int edge_region_close(edge_region *r)
{
	if (r == NULL)
		return 0;
	edge_device *d = r->d;
	enter(d);
	if (d->dead == 0)
		pump(d, false); /* what has completed is not in flight */
	if (r->inflight > 0 && d->dead == 0)
		return leave(d, EDGE_ERR_BUSY);
	delist(r);
	int err = 0;
	struct abi_region m = { .region = r->id };
	r->closed = true;
	if (d->dead == 0 && r->epoch == d->epoch && d->attached) {
		struct closing c = { 0 };
		err = control_send(d, &m, sizeof m, ABI_DEREGISTER, -1, region_closed, &c, 0);
		if (err == 0)
			err = wait_for(d, closing_done, &c, NEVER);
		if (err == 0)
			err = c.err;
	}
	if (err != 0 && d->dead == 0 && r->epoch == d->epoch) {
		r->closed = false;
		enlist(r);
		return leave(d, err);
	}
	region_unmap(r);
	free(r);
	return leave(d, 0);
}

/* Frees what the program did not close; the device is dead. */
void regions_free(edge_device *d)
{
	for (edge_region *r; (r = d->mem->regions) != NULL; free(r)) {
		d->mem->regions = r->next;
		region_unmap(r);
	}
}
