/* What the tests' programs have in common. */
#ifndef EDGE_TEST_H
#define EDGE_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../edge.h"

enum { WAIT = 20000 };

static inline void die(const char *file, int line, const char *where, int got)
{
	fprintf(stderr, "%s:%d: %s: %d (%s; %s)\n", file, line, where, got, got < 0 ? edge_strerror(got) : "",
	        edge_detail());
	_exit(1);
}

#define OK(x) do { int got_ = (int)(x); if (got_ < 0) die(__FILE__, __LINE__, #x, got_); } while (0)
#define IS(x, want) do { int got_ = (int)(x); if (got_ != (want)) die(__FILE__, __LINE__, #x, got_); } while (0)
#define CHECK(x) do { if (!(x)) die(__FILE__, __LINE__, #x, 0); } while (0)

static inline void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static inline edge_device *open_device(uint32_t depth, int wait)
{
	edge_device *d;
	edge_config cfg = { .size = sizeof cfg, .queue_depth = depth, .wait = wait, .name = "peer" };
	OK(edge_open(&d, &cfg, WAIT));
	return d;
}

#endif
