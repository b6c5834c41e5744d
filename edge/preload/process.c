/* The beginning of a process, its forks and its end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "weak.h"

#define END_MS 5000 /* what closed streams have to send the rest when the process ends */

/* By this a second copy of the library, behind the first, sees that it is not needed. */
EXPORT const int edge_preload_version = 1;

/* Standard input or output, as inetd gives it, of which the C library has FILE that do not call what stands here. */
static bool standard(int fd) {
	struct stat a, b;
	bool is = false;
	for (int i = 0; i <= 2; i++)
		is |= fstat(fd, &a) == 0 && fstat(i, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
	return is;
}

/* Sockets that the process was given: a listening one is offered, a connected one is like one just accepted. */
void inherit(int fd) {
	int on = 0;
	epoll_inherit(fd);
	socklen_t n = sizeof on;
	bool fits = suits(fd);
	if ((!fits && !required) || real.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) || (!on && standard(fd)))
		return;
	if (!fits) {
		if (!on)
			bar(fd);
		return;
	}
	if (!on) {
		union address a;
		if (getpeername(fd, &a.any, &(socklen_t){sizeof a}))
			twin_away(fd);
		else
			adopt(fd, real.fcntl64(fd, F_GETFL) & O_NONBLOCK, NULL);
		return;
	}
	lock();
	struct sock *s = sock_new(fd, LISTENING);
	if (s) {
		s->kept.passed = true;
		list(s);
	}
	unlock();
}

static void inherit_all(void) {
	DIR *d = opendir("/proc/self/fd");
	if (!d)
		return;
	for (struct dirent *e; (e = readdir(d));) {
		int fd = atoi(e->d_name);
		if (e->d_name[0] != '.' && fd != dirfd(d))
			inherit(fd);
	}
	closedir(d);
}

/* Guard comes before the lock of libedge, whose handlers run inside of those that were set later: so these are set when
 * libedge has its own. */
static void before_fork(void) {
	enter();
	share_tidy();
	pthread_mutex_lock(&guard);
	rest_close_accepted();
	share_before_fork();
}

static void after_fork(void) {
	pass_on();
	share_forked();
	pthread_mutex_unlock(&guard);
	share_after_fork();
	leave();
}

static void in_child(void) {
	upgrade_after_fork();
	held_after_fork();
	wait_after_fork();
	table_after_fork();
	share_in_child();
	epoll_after_fork();
	own_after_fork();
	pthread_mutex_init(&guard, NULL);
}

static void after_fork_in_child(void) {
	in_child();
	leave();
}

static bool handlers;

/* Weak, as what else no other C library has (weak.h): pthread_atfork would bring it in. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern void *__dso_handle;

/* pthread_atfork for libedge, too (own.syms). */
int own_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
	return __register_atfork(before, parent, child, &__dso_handle);
}

static void process_handlers(void) {
	if (!handlers)
		own_pthread_atfork(before_fork, after_fork, after_fork_in_child);
	handlers = true;
}

/* Before there is a device guard is not held in a fork: another thread of the parent's may have it, and be in lists. */
static void first_in_child(void) {
	run_is();
	if (!handlers)
		in_child();
}

/* The number of a handle changed. By guard. */
static void moved(int handle, int from) {
	if (handle == hub)
		waitsets_hook(from);
	epoll_moved(handle, from);
}

static const struct above calls_above = {.progress = progress, .finish = finish, .renumbered = renumbered,
	.inherited = share_inherited, .item_changed = item_changed, .item_plain = item_plain, .items_drop = items_drop,
	.set_left = epoll_left, .poll_socks = poll_socks, .opened = process_handlers};

__attribute__((constructor)) static void start(void) {
	real_load();
	if (!__register_atfork || getauxval(AT_SECURE))
		return; /* another C library, or a set-uid program */
	if (dlsym(RTLD_DEFAULT, "edge_preload_version") != &edge_preload_version || !run_begin())
		return;
	if (required)
		rings_forbid();
	above = &calls_above;
	own_on_move(moved);
	active = true;
	run_is();
	own_pthread_atfork(NULL, NULL, first_in_child);
	inherit_all();
}

/* TCP would send on what was written. */
static void finish_process(void) {
	static atomic_flag once = ATOMIC_FLAG_INIT;
	if (!device || borrowed() || within() || atomic_flag_test_and_set(&once))
		return; /* within: the handler of a signal that came while this thread has locks */
	share_settle(now_ns() + END_MS * MILLI);
	end_others();
	settle_all(now_ns() + END_MS * MILLI);
	lock();
	share_close_all();
	table_close_all();
	rest_close_all();
	edge_device_close(device, END_MS);
	device = NULL;
	hub = -1;
	unlock();
}

__attribute__((destructor)) static void stop(void) {
	if (device && !borrowed() && !within())
		flush_files();
	finish_process();
}

EXPORT void _exit(int code) {
	real_need();
	finish_process();
	real._exit(code);
	__builtin_unreachable();
}

EXPORT void _Exit(int) __attribute__((alias("_exit"), noreturn));

/* --- exec --- */

/* The device ends with the program: what its peers do not have yet would be lost. */
static void before_exec(void) {
	real_need();
	if (!device || borrowed() || within())
		return;
	share_settle(now_ns() + END_MS * MILLI);
	settle_all(now_ns() + END_MS * MILLI);
	lock();
	edge_device_drain(device, END_MS);
	unlock();
}

EXPORT int execve(const char *path, char *const argv[], char *const env[]) {
	before_exec();
	return real.execve(path, argv, env);
}

EXPORT int execvpe(const char *file, char *const argv[], char *const env[]) {
	before_exec();
	return real.execvpe(file, argv, env);
}

EXPORT int fexecve(int fd, char *const argv[], char *const env[]) {
	before_exec();
	return real.fexecve(fd, argv, env);
}

EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

/* of: what is called with the arguments, up to NULL, and with env, which may come behind them. */
#define LISTED(name, of, env) \
	EXPORT int name(const char *what, const char *first, ...) { \
		va_list va; \
		size_t n = 1; \
		va_start(va, first); \
		for (const char *a = first; a; a = va_arg(va, char *)) \
			n++; \
		va_end(va); \
		char *argv[n]; \
		va_start(va, first); \
		argv[0] = (char *)(uintptr_t)first; \
		for (size_t i = 1; i < n; i++) \
			argv[i] = va_arg(va, char *); \
		char *const *with = env; \
		va_end(va); \
		return of(what, argv, with); \
	}
LISTED(execl, execve, environ)
LISTED(execlp, execvpe, environ)
LISTED(execle, execve, va_arg(va, char *const *))
