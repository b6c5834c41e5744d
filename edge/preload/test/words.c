/*
 * words: threads that each wait for a stream of their own are woken for that alone. A child asks eight threads in
 * turn, one at a time, and waits for the answer: so each question should wake one thread, once. It passes over TCP, and
 * under edge-run with a daemon.
 */
#pragma GCC diagnostic ignored "-Wunused-function" /* of tcp.h */
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "tcp.h"
#include <dirent.h>

enum { PLAYERS = 8, WARM = 96, ROUNDS = 1600, FEW = ROUNDS * 2 / 5 };

static int fds[PLAYERS], ends[PLAYERS];
static long before, times;

/* The child, which uses the accepted sockets first. */
static void ask(void) {
	char b;
	for (int i = 0; i < PLAYERS; i++)
		CHECK(close(fds[i]) == 0 && write(ends[i], "x", 1) == 1 && read(ends[i], &b, 1) == 1);
	for (int i = 0; i <= WARM + ROUNDS; i++)
		CHECK(write(ends[i % PLAYERS], "?", 1) == 1 && read(ends[i % PLAYERS], &b, 1) == 1);
	_exit(0);
}

/* How often threads have gone to sleep. */
static long slept(void) {
	long all = 0;
	DIR *d = opendir("/proc/self/task");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		char path[300], line[256];
		long n;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (f && fgets(line, sizeof line, f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				all += n;
		if (f)
			fclose(f);
	}
	closedir(d);
	return all;
}

/* The first thread is asked at every PLAYERS-th round. */
static void *answer(void *of) {
	int fd = *(int *)of;
	char b;
	for (int round = 0; read(fd, &b, 1) == 1; round += PLAYERS) {
		if (of == fds && round == WARM) /* threads have their words, and the library has a thread of its own */
			before = slept();
		if (of == fds && round == WARM + ROUNDS)
			times = slept() - before;
		CHECK(write(fd, &b, 1) == 1);
	}
	return NULL;
}

static void alone(void) {
	pthread_t t[PLAYERS];
	char b;
	for (int i = 0; i < PLAYERS; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(fds[i], (struct sockaddr *)&address, sizeof address) == 0);
		CHECK((ends[i] = accept(listener, NULL, NULL)) >= 0);
	}
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		ask();
	for (int i = 0; i < PLAYERS; i++)
		CHECK(close(ends[i]) == 0 && read(fds[i], &b, 1) == 1 && streaming(fds[i]) && write(fds[i], &b, 1) == 1);
	for (int i = 0; i < PLAYERS; i++)
		CHECK(pthread_create(&t[i], NULL, answer, &fds[i]) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
	for (int i = 0; i < PLAYERS; i++)
		CHECK(pthread_join(t[i], NULL) == 0 && close(fds[i]) == 0);
	printf("%d questions: threads slept %ld times\n", ROUNDS, times);
	CHECK(times <= ROUNDS + FEW);
}

int main(int argc, char **argv) {
	const struct test tests[] = {{"alone", alone}};
	return run_tests(argc, argv, tests, sizeof tests / sizeof *tests);
}
