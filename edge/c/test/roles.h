/* For programs with a role for each first argument, which may be both ends of their connections. */
#ifndef EDGE_TEST_ROLES_H
#define EDGE_TEST_ROLES_H

#include "test.h"

typedef struct { const char *name; void (*run)(char **); int args; } role;

/* Runs the role that the first argument names, if it has as many further ones. */
static inline int play(const char *program, const role *roles, size_t n, int argc, char **argv)
{
	for (size_t i = 0; i < n; i++)
		if (argc > 1 && strcmp(argv[1], roles[i].name) == 0 && argc == roles[i].args + 2) {
			roles[i].run(argv + 2);
			return 0;
		}
	fprintf(stderr, "%s: no such role\n", program);
	return 2;
}

/* Of its own each time: the daemon takes back those of a device that was closed when it gets to it. */
static inline const char *service(bool another)
{
	static char name[32];
	static int n;
	if (another)
		snprintf(name, sizeof name, "odd/%d/%d", (int)getpid(), ++n);
	return name;
}

static inline void meet(edge_device *from, edge_device *to, edge_listener *l, edge_conn **c, edge_conn **s)
{
	edge_request *r;
	OK(edge_dial_start(from, edge_device_name(to), service(false), NULL, c, WAIT));
	const char *dialled = edge_conn_peer(*c);
	OK(edge_listener_next(l, &r, WAIT));
	OK(edge_request_accept(r, NULL, 0, s, 0));
	OK(edge_conn_wait(*c, WAIT));
	CHECK(strcmp(dialled, edge_device_name(to)) == 0); /* still readable */
	CHECK(strcmp(edge_conn_peer(*c), edge_device_name(to)) == 0);
}

static inline void stream_between(edge_device *from, edge_listener *l, const char *name, edge_stream **ours,
                                  edge_stream **peers)
{
	OK(edge_stream_dial_start(from, edge_device_name(from), name, NULL, ours, WAIT));
	while (edge_stream_accept(l, peers, 10) != 0)
		CHECK(edge_stream_wait(*ours, 10) == 0 || edge_stream_error(*ours) == EDGE_ERR_AGAIN);
	OK(edge_stream_wait(*ours, WAIT));
}

#endif
