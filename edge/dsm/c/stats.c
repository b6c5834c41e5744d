/* What a rank has done, for Prometheus: $EDGE_DSM_STATS is a folder in which rank r of run NAME keeps NAME.r.prom, as
 * the textfile collector of node_exporter reads it, or "-": standard error, at the end. The names are those of package
 * dsmprom. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rank.h"

static uint64_t since; /* when counting began */

void dsm_get_stats(dsm_stats *to)
{
	*to = stats;
	to->total_ns = now_ns() - since;
}

void dsm_reset_stats(void)
{
	stats = (dsm_stats){ 0 };
	since = now_ns();
}

enum { EVERY_MS = 1000, TEXT = 16384, PATH = 1024 };

/* Where to, and the names there. */
static struct {
	const char *where; /* NULL: nobody wants to know */
	char run[2 * sizeof conf.name];
	char path[PATH], fresh[PATH];
	uint64_t told;
} tell;

/* Text that grows to the end of its room. */
struct text {
	size_t n;
	char at[TEXT];
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(t->at + t->n, sizeof t->at - t->n, format, args);
	va_end(args);
	t->n = n < 0 || t->n + (size_t)n >= sizeof t->at ? sizeof t->at - 1 : t->n + (size_t)n;
}

/* Finds out where to, once, when conf is complete. */
void tell_begin(void)
{
	tell.where = getenv("EDGE_DSM_STATS");
	if (tell.where != NULL && tell.where[0] == 0)
		tell.where = NULL;
	if (tell.where == NULL)
		return;
	const char *name = conf.name[0] != 0 ? conf.name : "alone";
	size_t n = 0;
	for (const char *c = name; *c != 0; c++) { /* as a label */
		if (*c == '"' || *c == '\\' || *c == '\n')
			tell.run[n++] = '\\';
		tell.run[n++] = *c == '\n' ? 'n' : *c;
	}
	char file[sizeof conf.name]; /* as part of a file's name */
	snprintf(file, sizeof file, "%s", name);
	for (char *c = file; *c != 0; c++)
		if (*c == '/')
			*c = '-';
	int length = snprintf(tell.path, sizeof tell.path, "%s/%s.%d.prom", tell.where, file, conf.rank);
	int more = snprintf(tell.fresh, sizeof tell.fresh, "%s/.%s.%d.XXXXXX", tell.where, file, conf.rank);
	if (length >= PATH || more >= PATH)
		fail("EDGE_DSM_STATS names a folder of more than %d bytes; choose a shorter one", PATH / 2);
}

/* The program's locale may have another decimal point, so that no number is printed as a double. */
static void put(struct text *t, const char *name, const char *value)
{
	add(t, "# TYPE edge_dsm_%s_total counter\nedge_dsm_%s_total{run=\"%s\",rank=\"%d\"} %s\n", name, name, tell.run,
	    conf.rank, value);
}

static void put_all(struct text *t)
{
	dsm_stats s;
	dsm_get_stats(&s);
	const struct {
		const char *name;
		uint64_t n;
	} counts[] = {
		{ "operations", s.operations }, { "faults", s.faults }, { "fetches", s.fetches }, { "pages_fetched", s.pages },
		{ "twins", s.twins }, { "diffs", s.diffs }, { "runs", s.runs }, { "run_bytes", s.bytes },
		{ "notices", s.notices }, { "stale_pages", s.stale }, { "refreshed_pages", s.refreshes },
		{ "log_overruns", s.overruns }, { "protects", s.protects }, { "locks", s.locks }, { "lock_waits", s.waits },
		{ "barriers", s.barriers },
	}, times[] = {
		{ "run_seconds", s.total_ns }, { "data_seconds", s.data_ns }, { "flush_seconds", s.flush_ns },
		{ "acquire_seconds", s.acquire_ns }, { "lock_seconds", s.lock_ns }, { "barrier_seconds", s.barrier_ns },
	};
	char value[40];
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		snprintf(value, sizeof value, "%" PRIu64, counts[i].n);
		put(t, counts[i].name, value);
	}
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		snprintf(value, sizeof value, "%" PRIu64 ".%09" PRIu64, times[i].n / 1000000000, times[i].n % 1000000000);
		put(t, times[i].name, value);
	}
}

/* A file appears whole: it gets its name when it is. */
static bool write_file(const struct text *t)
{
	char fresh[PATH];
	memcpy(fresh, tell.fresh, sizeof fresh);
	int fd = mkstemp(fresh);
	if (fd < 0)
		return false;
	bool whole = write(fd, t->at, t->n) == (ssize_t)t->n && fchmod(fd, 0644) == 0;
	whole = close(fd) == 0 && whole && rename(fresh, tell.path) == 0;
	if (!whole) {
		int why = errno;
		unlink(fresh);
		errno = why;
	}
	return whole;
}

/* Writes what this rank has done: at the end, and at barriers once in a second. A run does not fail for want of it. */
void tell_stats(bool end)
{
	if (tell.where == NULL || (!end && strcmp(tell.where, "-") == 0))
		return;
	uint64_t now = now_ns();
	if (!end && now - tell.told < (uint64_t)EVERY_MS * MILLI)
		return;
	tell.told = now;
	static struct text t; /* the program may have a small stack */
	t.n = 0;
	put_all(&t);
	if (strcmp(tell.where, "-") == 0) {
		if (write(STDERR_FILENO, t.at, t.n) < 0) {
			/* nobody listens */
		}
	} else if (!write_file(&t)) {
		fprintf(stderr, "dsm: EDGE_DSM_STATS: %s cannot be written: %s\n", tell.path, strerror(errno));
		tell.where = NULL;
	}
}
