#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

struct real real;
bool real_known;

/* dlsym returns what is behind this library in the order of symbols, mostly the C library. */
void real_load(void) {
#define FIND(type, name, args) \
	if (!real.name) \
		*(void **)&real.name = dlsym(RTLD_NEXT, #name);
	REAL_CALLS(FIND)
#undef FIND
	if (!real.fcntl64)
		*(void **)&real.fcntl64 = dlsym(RTLD_NEXT, "fcntl"); /* of another C library */
	if (!real.read || !real.close || !real.ppoll || !real.epoll_ctl)
		abort(); /* a C library without these is not the one this was built for */
	real_known = true;
}

int fail_with(int err) {
	errno = err;
	return -1;
}
