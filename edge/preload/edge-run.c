/* edge-run PROGRAM [ARGUMENT...]: runs a program with libedge-preload.so. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: edge-run [--map RULES] [--socket PATH] [--require] PROGRAM [ARGUMENT...]\n"
    "Runs a program whose TCP connections with peers of edged become streams; see docs/PROGRAMS.md.\n"
    "  --map RULES    ADDRESS[/BITS][:PORT]=PEER,...: EDGE_RUN_MAP, beside /etc/edged/run.map\n"
    "  --socket PATH  of the daemon: EDGE_SOCKET\n"
    "  --require      connections with those addresses become streams, or end: EDGE_RUN_REQUIRE\n";

/* The library lies beside this program, or in ../lib. */
static const char *library(void) {
	static char path[4200], self[4096];
	const char *given = secure_getenv("EDGE_RUN_LIBRARY");
	if (given)
		return given;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n > 0) {
		*strrchr(self, '/') = 0;
		for (int i = 0; i < 2; i++) {
			snprintf(path, sizeof path, "%s%s/libedge-preload.so", self, i ? "/../lib" : "");
			if (access(path, R_OK) == 0)
				return path;
		}
	}
	return "libedge-preload.so"; /* where the dynamic linker looks */
}

static void preload(const char *lib) {
	const char *before = secure_getenv("LD_PRELOAD");
	if (strpbrk(lib, " :")) { /* which part LD_PRELOAD's names */
		fprintf(stderr, "edge-run: %s: the dynamic linker takes no path with a blank or a colon; "
		                "put the library elsewhere, or name a link to it by EDGE_RUN_LIBRARY\n", lib);
		exit(126);
	}
	if (before && strstr(before, "libedge-preload.so"))
		return;
	char *all;
	if (asprintf(&all, "%s%s%s", lib, before && *before ? ":" : "", before ? before : "") < 0 ||
	    setenv("LD_PRELOAD", all, 1)) {
		perror("edge-run");
		exit(1);
	}
}

int main(int argc, char **argv) {
	int i = 1;
	for (; i < argc && argv[i][0] == '-'; i += 2) {
		const char *name = strcmp(argv[i], "--map") == 0      ? "EDGE_RUN_MAP"
		                   : strcmp(argv[i], "--socket") == 0 ? "EDGE_SOCKET"
		                                                      : NULL;
		if (strcmp(argv[i], "--") == 0) {
			i++;
			break;
		}
		if (strcmp(argv[i], "--require") == 0) {
			setenv("EDGE_RUN_REQUIRE", "1", 1);
			i--;
			continue;
		}
		if (!name || i + 1 >= argc) {
			fputs(usage, strcmp(argv[i], "--help") == 0 ? stdout : stderr);
			return strcmp(argv[i], "--help") == 0 ? 0 : 2;
		}
		setenv(name, argv[i + 1], 1);
	}
	if (i >= argc) {
		fputs(usage, stderr);
		return 2;
	}
	preload(library());
	execvp(argv[i], argv + i);
	fprintf(stderr, "edge-run: %s: %s\n", argv[i], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
