/* What no other C library has: where it is missing, the library is loaded and does nothing (process.c), so that
 * programs of musl run which a program under edge-run starts. */
#ifndef EDGE_PRELOAD_WEAK_H
#define EDGE_PRELOAD_WEAK_H

#pragma weak __register_atfork
#pragma weak sem_clockwait

#endif
