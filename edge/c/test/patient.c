/*
 * patient: who is woken for how many operations (ABI A8.8), with a daemon that the test plays: it looks at what the
 * sleeping program asked for, and has operations end then.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include "roles.h"

enum { POSTED = 32 };

static edge_op ops[POSTED];

/* Waits for a certain operation, once the other end of the FIFO is open: then the first thread sleeps until several
 * have ended. */
static void *hurries(void *fifo)
{
	CHECK(open(fifo, O_RDONLY) >= 0);
	OK(edge_op_wait(&ops[1], WAIT));
	return NULL;
}

static void patient(char **arg)
{
	edge_device *d = open_device(64, EDGE_BLOCK);
	edge_completion done[POSTED];
	edge_conn *c;
	edge_remote *m;
	pthread_t t;
	OK(edge_dial(d, "peer", "service", NULL, &c, WAIT));
	OK(edge_import(c, "mem", &m, WAIT));
	edge_work w = { .kind = EDGE_WRITE, .inline_data = "x", .inline_size = 1, .remote = m };
	for (int i = 0; i < POSTED; i++) {
		w.context = i == 1 ? NULL : &ops[i];
		OK(edge_post(c, &w, &ops[i]));
	}
	IS(edge_completions_wait(d, done, POSTED, WAIT), 8);
	OK(pthread_create(&t, NULL, hurries, arg[0]));
	IS(edge_completions_wait(d, done, POSTED, WAIT), 1);
	OK(pthread_join(t, NULL));
	struct pollfd p = { .fd = edge_device_fd(d), .events = POLLIN };
	for (int left = 4; left > 0; left -= edge_completions(d, done, POSTED)) {
		edge_device_poll(d);
		if (edge_device_arm(d))
			CHECK(poll(&p, 1, WAIT) == 1);
	}
	edge_device_close(d, 0);
}

int main(int argc, char **argv)
{
	const role roles[] = { { "patient", patient, 1 } };
	return play("patient", roles, sizeof roles / sizeof *roles, argc, argv);
}
