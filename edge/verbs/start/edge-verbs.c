/* edge-verbs [--sysfs] PROGRAM [ARGUMENT...]: runs a program with our libibverbs and librdmacm in the place of the
 * system's. They lie beside this program, or where it was installed. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic.h"

/* The folder of the libraries; NULL: there is none. */
static const char *libraries(void)
{
	static char dir[4096];
	char file[4096 + 32];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
	if (n > 0) {
		dir[n] = 0;
		*strrchr(dir, '/') = 0;
		snprintf(file, sizeof file, "%s/libibverbs.so.1", dir);
		if (access(file, R_OK) == 0)
			return dir;
	}
	return access(LIBRARIES "/libibverbs.so.1", R_OK) == 0 ? LIBRARIES : NULL;
}

int main(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		fprintf(argc < 2 ? stderr : stdout, "usage: edge-verbs [--sysfs] PROGRAM [ARGUMENT...]\n\nRuns a program of "
		        "RDMA NICs over the daemon edged; --sysfs: with the files of a NIC in /sys and /dev. "
		        "See edge-verbs(1).\n");
		return argc < 2 ? 2 : 0;
	}
	bool sysfs = strcmp(argv[1], "--sysfs") == 0;
	argv += sysfs;
	if (argv[1] == NULL) {
		fprintf(stderr, "edge-verbs: name the program after --sysfs\n");
		return 2;
	}
	const char *dir = libraries(), *before = getenv("LD_LIBRARY_PATH");
	if (dir == NULL) {
		fprintf(stderr, "edge-verbs: " LIBRARIES " has no libibverbs.so.1; install the package again\n");
		return 127;
	}
	char path[8192], nccl[4200];
	snprintf(path, sizeof path, "%s%s%s", dir, before != NULL && *before != 0 ? ":" : "", before != NULL ? before : "");
	snprintf(nccl, sizeof nccl, "%s/libibverbs.so.1", dir);
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("NCCL_IBVERBS_LIB", nccl, 0); /* it opens a file */
	if (sysfs && nic_files() != 0)
		return 126;
	execvp(argv[1], argv + 1);
	fprintf(stderr, "edge-verbs: %s: %s\n", argv[1], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
