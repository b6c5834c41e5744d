/* The C library's own functions, which those of the same name here stand before. */
#ifndef EDGE_PRELOAD_REAL_H
#define EDGE_PRELOAD_REAL_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define REAL_CALLS(X) \
	X(ssize_t, read, (int, void *, size_t)) \
	X(ssize_t, write, (int, const void *, size_t)) \
	X(ssize_t, readv, (int, const struct iovec *, int)) \
	X(ssize_t, writev, (int, const struct iovec *, int)) \
	X(ssize_t, recv, (int, void *, size_t, int)) \
	X(ssize_t, send, (int, const void *, size_t, int)) \
	X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *)) \
	X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t)) \
	X(ssize_t, recvmsg, (int, struct msghdr *, int)) \
	X(ssize_t, sendmsg, (int, const struct msghdr *, int)) \
	X(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *)) \
	X(int, sendmmsg, (int, struct mmsghdr *, unsigned, int)) \
	X(ssize_t, sendfile, (int, int, off_t *, size_t)) \
	X(ssize_t, splice, (int, off64_t *, int, off64_t *, size_t, unsigned)) \
	X(int, socket, (int, int, int)) \
	X(int, connect, (int, const struct sockaddr *, socklen_t)) \
	X(int, listen, (int, int)) \
	X(int, accept4, (int, struct sockaddr *, socklen_t *, int)) \
	X(int, shutdown, (int, int)) \
	X(int, getsockopt, (int, int, int, void *, socklen_t *)) \
	X(int, setsockopt, (int, int, int, const void *, socklen_t)) \
	X(int, close, (int)) \
	X(int, close_range, (unsigned, unsigned, int)) \
	X(void, closefrom, (int)) \
	X(int, dup, (int)) \
	X(int, dup3, (int, int, int)) \
	X(int, dup2, (int, int)) \
	X(int, fcntl64, (int, int, ...)) \
	X(int, ioctl, (int, unsigned long, ...)) \
	X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)) \
	X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
	X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *)) \
	X(int, poll, (struct pollfd *, nfds_t, int)) \
	X(int, epoll_create1, (int)) \
	X(int, epoll_ctl, (int, int, int, struct epoll_event *)) \
	X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *)) \
	X(FILE *, fdopen, (int, const char *)) \
	X(int, vdprintf, (int, const char *, va_list)) \
	X(int, __vdprintf_chk, (int, int, const char *, va_list)) \
	X(int, pthread_setcanceltype, (int, int *)) \
	X(int, pthread_cancel, (pthread_t)) \
	X(int, sigaction, (int, const struct sigaction *, struct sigaction *)) \
	X(sighandler_t, signal, (int, sighandler_t)) \
	X(int, setuid, (uid_t)) \
	X(int, setgid, (gid_t)) \
	X(int, seteuid, (uid_t)) \
	X(int, setegid, (gid_t)) \
	X(int, setreuid, (uid_t, uid_t)) \
	X(int, setregid, (gid_t, gid_t)) \
	X(int, setresuid, (uid_t, uid_t, uid_t)) \
	X(int, setresgid, (gid_t, gid_t, gid_t)) \
	X(int, setgroups, (size_t, const gid_t *)) \
	X(int, execve, (const char *, char *const *, char *const *)) \
	X(int, execvpe, (const char *, char *const *, char *const *)) \
	X(int, fexecve, (int, char *const *, char *const *)) \
	X(int, initgroups, (const char *, gid_t)) \
	X(long, syscall, (long, ...)) \
	X(void, _exit, (int))

#define REAL_POINTER(type, name, args) type(*name) args;
struct real { REAL_CALLS(REAL_POINTER) };
#undef REAL_POINTER

extern struct real real;
extern bool real_known;
void real_load(void);
int fail_with(int err); /* sets errno and returns -1 */

/* Other libraries' constructors may come before ours. */
static inline void real_need(void) {
	if (__builtin_expect(!real_known, 0))
		real_load();
}

#endif
