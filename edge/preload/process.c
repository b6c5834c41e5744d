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

#include "preload.h"
#include "weak.h"

bool active, required;
const char *daemon_socket;
uint32_t stream_buffer;
static pid_t process_id;

bool borrowed(void) { return getpid() != process_id; }

#define BUFFER (512 << 10) /* of a stream, each way: programs expect the room that TCP gives them */
#define END_MS 5000 /* what closed streams have to send the rest when the process ends */

/* By this a second copy of the library, behind the first, sees that it is not needed. */
EXPORT const int edge_preload_version = 1;

static const char *journal;

void note(const char *of, const char *what) {
	if (!journal)
		return;
	int fd = open(journal, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), err = errno;
	if (fd >= 0) {
		dprintf(fd, "%s[%d] %s: %s\n", program_invocation_short_name, (int)getpid(), of, what);
		real.close(fd);
	}
	errno = err;
}

void say(const struct sock *s, const char *what) { note(*s->tuple ? s->tuple : s->service, what); }

/* Programs that hand a socket which they used already to another process: $EDGE_RUN_SKIP, else these. */
static bool skipped(void) {
	const char *list = secure_getenv("EDGE_RUN_SKIP"), *name = program_invocation_short_name;
	if (!list)
		list = "sshd,rsync,git-daemon,vsftpd,smbd";
	size_t n = strlen(name);
	for (const char *p = list; *p; p += strspn(p, ",: ")) {
		size_t word = strcspn(p, ",: ");
		if (word == n && memcmp(p, name, n) == 0)
			return true;
		p += word;
	}
	return false;
}

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
	if (!suits(fd) || real.getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n))
		return;
	if (!on && standard(fd))
		return;
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
	if (s)
		list(s);
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
	share_before_fork();
}

static void after_fork(void) {
	pass_on();
	pthread_mutex_unlock(&guard);
	share_after_fork();
	leave();
}

static void in_child(void) {
	upgrade_after_fork();
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

void process_handlers(void) {
	if (!handlers)
		own_pthread_atfork(before_fork, after_fork, after_fork_in_child);
	handlers = true;
}

/* Before there is a device guard is not held in a fork: another thread of the parent's may have it, and be in lists. */
static void first_in_child(void) {
	process_id = getpid();
	if (!handlers)
		in_child();
}

__attribute__((constructor)) static void start(void) {
	real_load();
	if (!__register_atfork || getauxval(AT_SECURE))
		return; /* another C library, or a set-uid program */
	if (dlsym(RTLD_DEFAULT, "edge_preload_version") != &edge_preload_version || skipped())
		return;
	const char *path = secure_getenv("EDGE_SOCKET"); /* servers may clear these */
	const char *buffer = secure_getenv("EDGE_RUN_BUFFER");
	journal = secure_getenv("EDGE_RUN_LOG");
	journal = journal ? strdup(journal) : NULL;
	daemon_socket = path ? strdup(path) : NULL;
	stream_buffer = buffer ? (uint32_t)strtoul(buffer, NULL, 10) : BUFFER;
	const char *demand = secure_getenv("EDGE_RUN_REQUIRE");
	required = demand && *demand && strcmp(demand, "0");
	map_load();
	if (map_empty()) {
		note("every connection", "tcp: /etc/edged/run.map (EDGE_RUN_CONFIG) and EDGE_RUN_MAP name no peer");
		return;
	}
	active = true;
	process_id = getpid();
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
