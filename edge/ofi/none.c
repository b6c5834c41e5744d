/* What the provider does not offer, in the tables of functions that libfabric wants; and its name. */
#include "addr.h"

struct fi_provider edge_provider = { .fi_version = FI_VERSION(1, 17), .name = "edge" }; /* info.c adds the rest */

int no_bind(struct fid *fid, struct fid *bound, uint64_t flags)
{
	(void)fid, (void)bound, (void)flags;
	return -FI_ENOSYS;
}

int no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}
