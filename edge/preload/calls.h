/* What programs call, in place of the C library's. Unlocked. */
#ifndef EDGE_PRELOAD_CALLS_H
#define EDGE_PRELOAD_CALLS_H

#include "epset.h"

/* raw.c */
bool rings(void);      /* this process has io_uring, by which it may use its sockets: they stay with TCP */
void rings_look(void); /* whether it has */
void rings_forbid(void); /* it shall have none, nor its children */

/* calls.c */
bool suits(int fd);     /* a TCP socket whose data may move */
void bar(int fd);       /* a connection that was accepted and has no entry, if streams are required. Unlocked */
void twin_away(int fd); /* a socket that came from somewhere, or went: it stays with TCP unless it is connected */

/* process.c */
void inherit(int fd); /* another process had it */

/* io.c */
int tcp_error(int err); /* an errno of a libedge's error */

/* file.c */
void move_file(int fd); /* of 0 to 2 */
void flush_files(void);

#endif
