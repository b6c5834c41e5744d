/* run.c: what edge-run was told, and its log. */
#ifndef EDGE_PRELOAD_RUN_H
#define EDGE_PRELOAD_RUN_H

#include <stdbool.h>
#include <stdint.h>

extern bool active;    /* this process takes part */
extern bool reuses;    /* a connection may use the stream of one before it (rest.c) */
extern bool required;  /* a connection that would go on over TCP ends instead */
extern const char *daemon_socket; /* NULL: libedge's default */
extern uint32_t stream_buffer;    /* bytes; 0: as libedge has it, LEAST_BUFFER or more */
#define LEAST_BUFFER (512u << 10)

bool run_begin(void);  /* reads the settings. false: no peer is named */
void run_is(void);     /* this process, and not a parent of it, is the one */
const char *program_name(void); /* NULL: unknown */
bool borrowed(void);   /* a child of vfork runs in this memory: what it closes stays open here */
void note(const char *of, const char *what); /* to the file $EDGE_RUN_LOG */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2))); /* on standard error */

#endif
