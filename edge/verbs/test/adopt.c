/* Without a daemon: memory is taken over and given back while threads write to the same pages, and signals come. No
 * write is lost, and what is not for the library goes to the program's handlers as if ours were not there. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pages.h"

enum { PAGES = 64, THREADS = 2, ROUNDS = 300 };

static char *memory;
static _Atomic int stop;

static void say(const char *format, ...)
{
	va_list va;
	va_start(va, format);
	vfprintf(stderr, format, va);
	va_end(va);
	fputc('\n', stderr);
	exit(1);
}

/* Counts in a word of each page, and looks whether the word has what it wrote last. */
static void *count(void *arg)
{
	size_t at = 16 * (size_t)(uintptr_t)arg;
	uint64_t n = 0;
	for (; !stop; n++)
		for (int i = 0; i < PAGES; i++) {
			volatile uint64_t *word = (uint64_t *)(memory + i * PAGE + at);
			if (*word != n)
				say("page %d has %lu, not %lu: a write was lost", i, (unsigned long)*word, (unsigned long)n);
			*word = n + 1;
		}
	return NULL;
}

static void round_trip(void)
{
	uintptr_t start = (uintptr_t)memory, end = start + PAGES * PAGE;
	ino_t inode;
	int fd = adopt(start, end, &inode);
	if (fd < 0 || maps_has(start, end, inode) != 1 || maps_plain(start, end))
		say("the memory is not that of the memfd");
	disown(start, end, fd, inode);
	if (!maps_plain(start, end))
		say("the memory is not the program's again");
}

/* Runs it in a child, which begins with or without a handler of ours: the status that it ends with. */
static int in_child(void (*run)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		const struct rlimit most = { 20, 20 }; /* s: one that waits for itself handles no signal */
		setrlimit(RLIMIT_CPU, &most);
		alarm(300);
		run();
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		say("no child");
	return status;
}

static void ends_by(int number, void (*run)(void), const char *what)
{
	int status = in_child(run);
	if (number == 0 ? status != 0 : !WIFSIGNALED(status) || WTERMSIG(status) != number)
		say("%s: status %#x", what, status);
}

static void violate(void)
{
	mprotect(memory, PAGE, PROT_READ);
	*(volatile char *)memory = 1;
}

/* The thread that takes memory over handles signals, which write to that memory. */
static void on_time(int number)
{
	(void)number;
	++*(volatile uint64_t *)memory;
}

static void signalled(void)
{
	signal(SIGUSR1, on_time);
	timer_t t;
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	const struct itimerspec often = { { 0, 20000 }, { 0, 20000 } };
	if (timer_create(CLOCK_MONOTONIC, &e, &t) != 0 || timer_settime(t, 0, &often, NULL) != 0)
		say("no timer");
	for (int i = 0; i < ROUNDS; i++)
		round_trip();
}

/* A handler that came before ours is called once, with the signals blocked that it asks for, and may leave by a jump.
 */
static sigjmp_buf out;
static void jumps(int number)
{
	sigset_t blocked;
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	if (number != SIGSEGV || !sigismember(&blocked, SIGUSR2) || sigismember(&blocked, SIGUSR1) ||
	    sigismember(&blocked, SIGSEGV))
		say("the handler of a fault has other signals blocked than it asked for");
	siglongjmp(out, 1);
}

static void recovers(void)
{
	struct sigaction a = { .sa_handler = jumps, .sa_flags = SA_NODEFER | SA_RESETHAND };
	sigaddset(&a.sa_mask, SIGUSR2);
	sigaction(SIGSEGV, &a, NULL);
	round_trip();
	if (sigsetjmp(out, 1) == 0)
		violate();
	mprotect(memory, PAGE, PROT_READ | PROT_WRITE);
	round_trip();
	violate(); /* the handler was for one fault */
}

/* A handler that comes after ours, and comes back to it: once it restores that, as Python's does, and once it calls it.
 * It has each fault once. */
static struct sigaction older;
static int had;

static void restores(int number)
{
	if (had++ > 0)
		_exit(1);
	sigaction(number, &older, NULL);
	raise(number);
}

static void calls(int number, siginfo_t *info, void *context)
{
	if (had++ > 1) /* the second time it is told that nobody else wants it */
		_exit(1);
	older.sa_sigaction(number, info, context);
}

static void comes_back(struct sigaction a)
{
	round_trip();
	if (sigaction(SIGSEGV, &a, &older) != 0 || !(older.sa_flags & SA_SIGINFO))
		say("no handler before");
	round_trip();
	violate();
}

static void restored(void)
{
	comes_back((struct sigaction){ .sa_handler = restores, .sa_flags = SA_NODEFER });
}

static void called(void)
{
	comes_back((struct sigaction){ .sa_sigaction = calls, .sa_flags = SA_SIGINFO });
}

static void sent(void)
{
	round_trip();
	kill(getpid(), SIGSEGV);
	_exit(0);
}

/* Of memory that has a hole nothing is taken over, and all can be written as before. */
static void holed(void)
{
	ino_t inode;
	munmap(memory + PAGE, PAGE);
	if (adopt((uintptr_t)memory, (uintptr_t)memory + 3 * PAGE, &inode) >= 0)
		say("memory with a hole is taken over");
	memory[0] = memory[2 * PAGE] = 1;
}

int main(void)
{
	pthread_t t[THREADS];
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages_say = say;
	ends_by(SIGSEGV, recovers, "a handler from before");
	ends_by(SIGSEGV, restored, "a handler that restores the one before it");
	ends_by(SIGSEGV, called, "a handler that calls the one before it");
	ends_by(SIGSEGV, sent, "a signal that was sent");
	ends_by(0, signalled, "signals in the midst");
	ends_by(0, holed, "memory with a hole");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, count, (void *)(uintptr_t)i);
	for (int i = 0; i < ROUNDS; i++)
		round_trip();
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ends_by(SIGSEGV, violate, "a write to memory that is read-only");
	puts("adopt: ok");
	return 0;
}
