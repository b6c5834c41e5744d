/* A program of PARMACS: parmacs PROCESSES [each]. Processes sum up an array, count under a lock, hand a number round in
 * turn by flags, and rank 0 looks at the results. each: a CREATE for each process. */
#include <stdio.h>
#include <string.h>
MAIN_ENV

#define N 20000
#define MOST 64

struct shared {
	LOCKDEC(id_lock)
	ALOCKDEC(cells, 4)
	BARDEC(start)
	PAUSEDEC(turn, MOST)
	int id, cell[4], ring, sums;
	double *x, sum;
	int *numbers[MOST];
} *g;

static int processes;
static double factor; /* a variable of each process: set before CREATE */

static void work(void)
{
	int me, i;
	double s = 0;
	LOCK(g->id_lock)
	me = g->id++;
	UNLOCK(g->id_lock)
	g->numbers[me] = (int *)G_MALLOC(sizeof(int)) /* memory of this process, which others read */
	*g->numbers[me] = me * me;
	for (i = N * me / processes; i < N * (me + 1) / processes; i++)
		g->x[i] *= factor;
	BARRIER(g->start, processes)
	for (i = (N - 1) - me; i >= 0; i -= processes) /* what others wrote */
		s += g->x[i];
	LOCK(g->id_lock)
	g->sum += s;
	g->sums++;
	UNLOCK(g->id_lock)
	for (i = 0; i < 100; i++) {
		ALOCK(g->cells, i % 4)
		g->cell[i % 4]++;
		AULOCK(g->cells, i % 4)
	}
	if (me > 0) {
		WAITPAUSE(g->turn, me)
		CLEARPAUSE(g->turn, me)
	}
	g->ring = 3 * g->ring + me;
	if (me + 1 < processes)
		SETPAUSE(g->turn, me + 1)
	BARRIER(g->start, processes)
}

int main(int argc, char **argv)
{
	int i, want = 0, squares = 0;
	double sum = 0;
	unsigned long begun, over;
	processes = argc > 1 ? atoi(argv[1]) : 1;
	g = (struct shared *)G_MALLOC(sizeof *g) /* before MAIN_INITENV */
	MAIN_INITENV(, 1 << 20)
	LOCKINIT(g->id_lock)
	ALOCKINIT(g->cells, 4)
	BARINIT(g->start, processes)
	PAUSEINIT(g->turn, MOST)
	g->x = (double *)G_MALLOC(N * sizeof(double))
	for (i = 0; i < N; i++)
		g->x[i] = i;
	factor = 2;
	printf("once\n");
	CLOCK(begun)
	if (argc > 2 && strcmp(argv[2], "each") == 0) {
		for (i = 1; i < processes; i++)
			CREATE(work)
		work();
	} else {
		CREATE(work, processes)
	}
	WAIT_FOR_END(processes - 1)
	CLOCK(over)
	for (i = 0; i < N; i++)
		sum += 2.0 * i;
	for (i = 0; i < processes; i++) {
		want = 3 * want + i;
		squares += *g->numbers[i] - i * i;
	}
	if (g->sum != sum || g->sums != processes || g->ring != want || squares != 0 || over < begun) {
		fprintf(stderr, "sum %f, want %f; %d of %d; ring %d, want %d; %d\n", g->sum, sum, g->sums, processes, g->ring,
			want, squares);
		return 1;
	}
	for (i = 0; i < 4; i++)
		if (g->cell[i] != 25 * processes)
			return 1;
	printf("right\n");
	G_FREE(g)
	MAIN_END
}
