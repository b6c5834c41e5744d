/*
 * words: threads that each wait for a stream of their own are woken for that alone. A child asks eight threads in
 * turn, one at a time, and waits for the answer: so each question should wake one thread, once. It passes over TCP, and
 * under edge-run with a daemon.
 */
#pragma GCC diagnostic ignored "-Wunused-function" /* of tcp.h */
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "tcp.h"
#include <dirent.h>

enum { PLAYERS = 8, WARM = 96, ROUNDS = 1600, FEW = ROUNDS / 4, TRIES = 64 };

static int fds[PLAYERS];
static long before, times;

static void ask(void) {
	int ends[PLAYERS];
	char b;
	for (int i = 0; i < PLAYERS; i++) { /* a connection that TCP kept is closed, and comes again */
		CHECK((ends[i] = accept(listener, NULL, NULL)) >= 0 && read(ends[i], &b, 1) == 1);
		CHECK(write(ends[i], "x", 1) == 1);
		if (read(ends[i], &b, 1) == 0)
			close(ends[i--]);
	}
	for (int i = 0; i <= WARM + ROUNDS; i++)
		CHECK(write(ends[i % PLAYERS], "?", 1) == 1 && read(ends[i % PLAYERS], &b, 1) == 1);
	_exit(0);
}

/* A stream: the child offers them as soon as it waits. */
static int opened(void) {
	for (int i = 0; i < TRIES; i++) {
		char b;
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
		CHECK(write(fd, "x", 1) == 1 && read(fd, &b, 1) == 1);
		if (streaming(fd)) {
			CHECK(write(fd, "x", 1) == 1);
			return fd;
		}
		CHECK(close(fd) == 0);
	}
	CHECK(!"a stream");
	return -1;
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
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		ask();
	for (int i = 0; i < PLAYERS; i++)
		fds[i] = opened();
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
