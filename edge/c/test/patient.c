/*
 * patient: the program sleeps until several operations have ended (ABI A8.8). The test plays the daemon: it reads for
 * how many the program waits, and then has operations end. beside: operations on the connection of a stream.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

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

static time_t seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* With a real daemon. An operation of the program's on a stream's connection wakes it, though the stream has room and
 * needs to hear of none. Without that the program looks by itself every two seconds. */
static void beside(char **arg)
{
	(void)arg;
	edge_device *a = open_device(64, EDGE_BLOCK), *b = open_device(64, EDGE_BLOCK);
	edge_listener *l;
	edge_stream *s, *peer;
	edge_region *r;
	edge_remote *m;
	edge_completion done;
	OK(edge_stream_listen(b, service(true), 0, &l, WAIT));
	stream_between(a, l, service(false), &s, &peer);
	OK(edge_register(b, 4096, &r, WAIT));
	OK(edge_export_region(r, edge_stream_conn(peer), "m", EDGE_REMOTE_WRITE, 0, 4096, NULL, WAIT));
	OK(edge_import(edge_stream_conn(s), "m", &m, WAIT));
	edge_work w = { .kind = EDGE_WRITE, .inline_data = "x", .inline_size = 1, .remote = m, .context = &w };
	time_t began = seconds();
	for (int i = 0; i < 20; i++) {
		OK(edge_post(edge_stream_conn(s), &w, NULL));
		IS(edge_completions_wait(a, &done, 1, EDGE_FOREVER), 1);
	}
	CHECK(seconds() - began < 20);
	edge_stream_close(s, 0);
	edge_stream_close(peer, 0);
	edge_device_close(a, 0);
	edge_device_close(b, 0);
}

int main(int argc, char **argv)
{
	const role roles[] = { { "patient", patient, 1 }, { "beside", beside, 0 } };
	return play("patient", roles, sizeof roles / sizeof *roles, argc, argv);
}
