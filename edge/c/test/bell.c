/* A program forks while another thread of it wakes the daemon: the child has not got the doorbell (ABI A11.2).
 * bell SERVICE */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test.h"

enum { FDS = 1024 };

static _Atomic bool own[FDS]; /* eventfds of this process's, as the doorbell is not */
static _Atomic int rings = -1; /* the doorbell that a thread is about to ring */
static _Atomic bool holds;
static _Thread_local bool held_here; /* the thread may stand; main, which lets it go, must not */

int eventfd(unsigned n, int flags)
{
	int fd = (int)syscall(SYS_eventfd2, n, flags);
	if (fd >= 0 && fd < FDS)
		own[fd] = true;
	return fd;
}

/* The thread stands here while the other one forks. */
ssize_t write(int fd, const void *p, size_t n)
{
	if (held_here && holds && n == sizeof(uint64_t) && fd < FDS && !own[fd]) {
		rings = fd;
		while (holds)
			sched_yield();
	}
	return syscall(SYS_write, fd, p, n);
}

static void *writes(void *stream)
{
	held_here = true;
	while (holds)
		IS(edge_stream_write(stream, "x", 1, WAIT), 1);
	return NULL;
}

int main(int argc, char **argv)
{
	edge_config cfg = { .size = sizeof cfg, .queue_depth = 64 };
	edge_device *a, *b;
	edge_listener *l;
	edge_stream *x, *y;
	char bytes[64];
	pthread_t t;
	CHECK(argc == 2);
	OK(edge_open(&a, &cfg, WAIT));
	OK(edge_open(&b, &cfg, WAIT));
	OK(edge_stream_listen(b, argv[1], 0, &l, WAIT));
	OK(edge_stream_dial_start(a, edge_device_name(b), argv[1], NULL, &x, WAIT));
	for (time_t end = time(NULL) + WAIT / 1000; edge_stream_accept(l, &y, 1) != 0; edge_device_poll(a))
		CHECK(time(NULL) < end);
	OK(edge_stream_wait(x, WAIT));
	holds = true;
	CHECK(pthread_create(&t, NULL, writes, x) == 0);
	for (time_t end = time(NULL) + WAIT / 1000; rings < 0;) { /* the daemon sleeps at some time */
		edge_stream_read(y, bytes, sizeof bytes, 1);
		CHECK(time(NULL) < end);
	}
	pid_t child = fork();
	if (child == 0)
		_exit(fcntl(rings, F_GETFD) >= 0);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	holds = false;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(status == 0);
	edge_stream_close(x, 0);
	edge_stream_close(y, 0);
	edge_listener_close(l);
	edge_device_close(a, WAIT);
	edge_device_close(b, WAIT);
	return 0;
}
