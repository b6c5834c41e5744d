/* Loads libibverbs and librdmacm as NCCL and MPI's components do, uses both, and unloads them: what they have begun, a
 * thread, a handler of SIGSEGV and those of fork, must not be left without their code. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define CHECK(is, what) do { if (!(is)) { fprintf(stderr, "unload: %s\n", what); exit(1); } } while (0)

static void *verbs, *cm;

static void *symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);
	CHECK(p != NULL, name);
	return p;
}
#define OF(library, name) ((__typeof__(&name))symbol(library, #name))

static void use(void)
{
	struct ibv_device **list = OF(verbs, ibv_get_device_list)(NULL);
	CHECK(list != NULL && list[0] != NULL, "no device");
	struct ibv_context *c = OF(verbs, ibv_open_device)(list[0]);
	struct ibv_pd *pd = c != NULL ? OF(verbs, ibv_alloc_pd)(c) : NULL;
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, size_t, int) =
		(struct ibv_mr *(*)(struct ibv_pd *, void *, size_t, int))symbol(verbs, "ibv_reg_mr");
	struct ibv_mr *mr = pd != NULL ? reg(pd, p, 8192, IBV_ACCESS_LOCAL_WRITE) : NULL;
	CHECK(mr != NULL && OF(verbs, ibv_dereg_mr)(mr) == 0 && OF(verbs, ibv_dealloc_pd)(pd) == 0 &&
	      OF(verbs, ibv_close_device)(c) == 0, "no memory region");
	OF(verbs, ibv_free_device_list)(list);
	struct rdma_event_channel *events = OF(cm, rdma_create_event_channel)();
	struct rdma_cm_id *id;
	CHECK(events != NULL && OF(cm, rdma_create_id)(events, &id, NULL, RDMA_PS_TCP) == 0, "no identifier");
	CHECK(OF(cm, rdma_destroy_id)(id) == 0, "rdma_destroy_id");
	OF(cm, rdma_destroy_event_channel)(events);
}

int main(void)
{
	int status;
	verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	cm = dlopen("librdmacm.so.1", RTLD_NOW);
	CHECK(verbs != NULL && cm != NULL, dlerror());
	use();
	dlclose(cm);
	dlclose(verbs);
	CHECK(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL &&
	      dlopen("librdmacm.so.1", RTLD_NOW | RTLD_NOLOAD) != NULL, "a library is gone whose thread runs");
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "fork");
	puts("unload: ok");
	return 0;
}
