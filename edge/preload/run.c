/* What edge-run was told by the environment, and the log. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "map.h"
#include "real.h"
#include "run.h"

bool active, required, reuses;
const char *daemon_socket;
uint32_t stream_buffer;
static pid_t process_id;
static const char *journal;

void run_is(void) { process_id = getpid(); }

bool borrowed(void) { return getpid() != process_id; }

static void print(int fd, const char *format, ...) {
	va_list va;
	va_start(va, format);
	real.vdprintf(fd, format, va); /* the program's own one may be for a stream */
	va_end(va);
}

void complain(const char *format, ...) {
	va_list va;
	va_start(va, format);
	real.vdprintf(2, format, va);
	va_end(va);
}

void note(const char *of, const char *what) {
	if (!journal)
		return;
	int fd = open(journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), err = errno;
	if (fd >= 0) {
		print(fd, "%s[%d] %s: %s\n", program_invocation_short_name, (int)getpid(), of, what);
		real.close(fd);
	}
	errno = err;
}

/* What the kernel calls a program that it has just begun, so that the daemon need not ask it. NULL: it may differ. */
const char *program_name(void) {
	const char *p = program_invocation_short_name;
	size_t n = strspn(p, "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
	return n > 0 && n < 16 && !p[n] ? p : NULL;
}

/* Programs that hand a socket which they used already to another process: $EDGE_RUN_SKIP, else these. */
static bool skipped(void) {
	const char *list = secure_getenv("EDGE_RUN_SKIP"), *name = program_invocation_short_name;
	if (!list)
		list = "sshd,rsync,git-daemon,vsftpd,smbd";
	size_t n = strlen(name);
	for (const char *p = list; *p; p += strspn(p, ",: ")) {
		size_t word = strcspn(p, ",: ");
		if (word == n && memcmp(p, name, n) == 0)
			return true;
		p += word;
	}
	return false;
}

static bool is_set(const char *name, bool unless) {
	const char *value = secure_getenv(name);
	return value && *value ? strcmp(value, "0") != 0 : unless;
}

bool run_begin(void) {
	if (skipped())
		return false;
	const char *path = secure_getenv("EDGE_SOCKET"); /* servers may clear these */
	const char *buffer = secure_getenv("EDGE_RUN_BUFFER");
	journal = secure_getenv("EDGE_RUN_LOG");
	journal = journal ? strdup(journal) : NULL;
	daemon_socket = path ? strdup(path) : NULL;
	stream_buffer = buffer ? (uint32_t)strtoul(buffer, NULL, 10) : 0;
	required = is_set("EDGE_RUN_REQUIRE", false);
	reuses = is_set("EDGE_RUN_REUSE", true) && !required;
	map_load(complain);
	if (!map_empty())
		return true;
	note("every connection", "tcp: /etc/edged/run.map (EDGE_RUN_CONFIG) and EDGE_RUN_MAP name no peer");
	return false;
}
