/* own.c: descriptors of the library itself. What stands for one is its handle, which stays the same when the number
 * changes; handles are above all numbers. */
#ifndef EDGE_PRELOAD_OWN_H
#define EDGE_PRELOAD_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/types.h>

int own_take(int fd);    /* a handle for fd. -1: errno says why not */
int own_number(int fd);  /* of a handle; a number is its own */
int own_count(void);     /* how many there are */
bool own_is(int fd);     /* of a number */
int own_floor(void);     /* no number that is taken now is below */
void own_stay(int fd, bool stays); /* whether children of fork keep this handle */
void own_on_move(void (*tell)(int handle, int from)); /* who is told, in own_dup, that a handle had the number from */
int own_dup(int from, int to, int flags);
int own_close(int fd);
int own_close_range(unsigned first, unsigned last, int flags, bool guarded);
int own_epoll_ctl(int set, int op, int fd, struct epoll_event *e);
ssize_t own_read(int fd, void *p, size_t n);
ssize_t own_write(int fd, const void *p, size_t n);
ssize_t own_recv(int fd, void *p, size_t n, int flags);
ssize_t own_send(int fd, const void *p, size_t n, int flags);
void own_after_fork(void);

#endif
