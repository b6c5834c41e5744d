/* The C half of the comparison with the Go client (drive/compare_test.go): PEER SERVICE MS. It prints operations of 8
 * bytes a second with a full queue, microseconds for one at a time (the median), and MB/s by writes of 1 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../edge.h"

#define OK(x) do { int e_ = (int)(x); if (e_ < 0) { fprintf(stderr, "%s: %s\n", #x, \
    edge_detail()); exit(1); } } while (0)

enum { WAIT = 20000, BIG = 1 << 20, DEEP = 16, BATCH = 16 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double rate(edge_conn *c, edge_region *r, edge_remote *m, double seconds)
{
	static edge_op ops[1024];
	edge_work w[BATCH] = { 0 };
	size_t posted = 0;
	for (int i = 0; i < BATCH; i++)
		w[i] = (edge_work){ .kind = EDGE_WRITE, .local = r, .size = 8, .remote = m };
	double begin = now();
	while (now() - begin < seconds) {
		if (posted >= 512)
			OK(edge_op_wait(&ops[(posted - 512) % 1024 + BATCH - 1], WAIT));
		int n = edge_post_batch(c, w, BATCH, &ops[posted % 1024]);
		if (n != BATCH)
			exit(1);
		posted += BATCH;
	}
	OK(edge_op_wait(&ops[(posted - 1) % 1024], WAIT));
	return (double)posted / (now() - begin);
}

static int order(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static double latency(edge_conn *c, edge_region *r, edge_remote *m, double seconds)
{
	static double took[1 << 20];
	size_t n = 0;
	double begin = now();
	while (now() - begin < seconds && n < sizeof took / sizeof *took) {
		edge_op op;
		double at = now();
		OK(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .local = r, .size = 8, .remote = m }, &op));
		OK(edge_op_wait(&op, WAIT));
		took[n++] = now() - at;
	}
	qsort(took, n, sizeof *took, order);
	return took[n / 2] * 1e6;
}

static double bulk(edge_conn *c, edge_region *r, edge_remote *m, double seconds)
{
	edge_op ops[DEEP] = { 0 };
	size_t n = 0;
	double begin = now();
	for (; now() - begin < seconds; n++) {
		OK(edge_op_wait(&ops[n % DEEP], WAIT));
		OK(edge_post(c, &(edge_work){ .kind = EDGE_WRITE, .local = r, .size = BIG, .remote = m }, &ops[n % DEEP]));
	}
	for (int i = 0; i < DEEP; i++)
		OK(edge_op_wait(&ops[i], WAIT));
	return (double)n * BIG / 1e6 / (now() - begin);
}

int main(int argc, char **argv)
{
	edge_device *d;
	edge_conn *c;
	edge_region *r;
	edge_remote *m;
	if (argc != 4)
		return 2;
	double seconds = atoi(argv[3]) / 1e3;
	OK(edge_open(&d, NULL, WAIT));
	OK(edge_dial(d, argv[1], argv[2], NULL, &c, WAIT));
	OK(edge_register(d, BIG, &r, WAIT));
	OK(edge_import(c, "mem", &m, WAIT));
	printf("%.0f %.2f %.0f\n", rate(c, r, m, seconds), latency(c, r, m, seconds), bulk(c, r, m, seconds));
	OK(edge_conn_close(c, WAIT));
	edge_conn_free(c);
	edge_device_close(d, 0);
	return 0;
}
