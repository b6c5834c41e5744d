/* A rank that does one thing: rank WHAT. It says "ready" once all are there. The last rank is the one that does it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "test.h"

enum { N = 3 * 4096 };
static volatile unsigned char *a;
static volatile uintptr_t nowhere = 8;

static void *touch(void *arg)
{
	(void)arg;
	a[0]++;
	return NULL;
}

/* What the kernel does with memory that is not here, and with memory that dsm_touch has brought. */
static void system_calls(void)
{
	int zero = open("/dev/zero", O_RDONLY), null[2];
	CHECK(zero >= 0 && pipe(null) == 0, "open");
	a[0] = 7;
	dsm_barrier();
	if (dsm_rank() != 0)
		return;
	unsigned char *p = (unsigned char *)a; /* at home at the last rank, which wrote it */
	CHECK(write(null[1], p, 10) == -1 && errno == EFAULT, "write of a stale page");
	dsm_touch(p, N, 0);
	CHECK(write(null[1], p, 10) == 10, "write: %s", strerror(errno));
	CHECK(read(zero, p, N) == -1 && errno == EFAULT, "read into a page that was not written");
	dsm_touch(p, N, 1);
	CHECK(read(zero, p, N) == N && p[0] == 0, "read: %s", strerror(errno));
}

static ucontext_t back;

static void touch_here(void)
{
	a[0]++;
	setcontext(&back);
}

/* Touches the memory on a stack of 4 KiB, with no room for a handler and nothing below. Other ranks have written the
 * page meanwhile. */
static void on_a_small_stack(void)
{
	enum { ROOM = 4096 };
	static ucontext_t small;
	unsigned char *p = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p, ROOM, PROT_NONE) == 0 && getcontext(&small) == 0, "a small stack");
	small.uc_stack.ss_sp = p + ROOM;
	small.uc_stack.ss_size = ROOM;
	makecontext(&small, touch_here, 0);
	swapcontext(&back, &small);
	munmap(p, 2 * ROOM);
}

static sigjmp_buf after;

static void with_info(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	CHECK(info->si_addr == (void *)nowhere, "a handler is told of %p", info->si_addr);
	siglongjmp(after, 1);
}

static void without_info(int sig)
{
	(void)sig;
	siglongjmp(after, 1);
}

/* Has a handler of the program's for faults, before dsm_init. */
static void handle_before(bool info)
{
	struct sigaction s = { .sa_flags = info ? SA_SIGINFO : 0 };
	if (info)
		s.sa_sigaction = with_info;
	else
		s.sa_handler = without_info;
	CHECK(sigaction(SIGSEGV, &s, NULL) == 0, "a handler");
}

/* Faults elsewhere are the program's handler's, those in the shared memory the library's, again and again. */
static void fault_elsewhere(void)
{
	for (volatile int i = 0; i < 3; i++) {
		if (sigsetjmp(after, 1) == 0) {
			*(volatile int *)nowhere = 1;
			CHECK(false, "a fault has not come");
		}
		a[dsm_rank()]++;
		dsm_barrier();
	}
	for (int r = 0; r < dsm_ranks(); r++)
		CHECK(a[r] == 3, "%d, want 3", a[r]);
}

/* A child of fork that touches the memory ends; the run goes on. */
static void fork_child(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		(void)a[0];
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork");
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == DSM_FAILED, "the child ended with %x", status);
	a[dsm_rank()]++;
}

/* Jumps into a page that it has written: nothing that the library could do allows that. */
static void jump(void)
{
	memset((void *)(uintptr_t)a, 0xc3, 16); /* a return, on many processors */
	void (*f)(void);
	memcpy(&f, &(void *){ (void *)(uintptr_t)a }, sizeof f);
	f();
}

int main(int argc, char **argv)
{
	CHECK(argc == 2, "usage: rank WHAT");
	const char *what = argv[1];
	if (strncmp(what, "handler", 7) == 0)
		handle_before(strcmp(what, "handler with info") == 0);
	dsm_config c = { .size = sizeof c, .memory = 1 << 20, .locks = 8 };
	dsm_init(&c);
	bool last = dsm_rank() == dsm_ranks() - 1;
	size_t more = strcmp(what, "differ") == 0 && last ? 600 : 1;
	a = dsm_alloc(N, 1, dsm_ranks() - 1);
	dsm_alloc(more, 8, DSM_TURNS);
	if (strcmp(what, "held") == 0 && last)
		dsm_lock(5);
	dsm_barrier();
	printf("ready\n");
	fflush(stdout);
	if (strcmp(what, "system") == 0) {
		system_calls();
		dsm_barrier();
		dsm_exit();
		return 0;
	}
	if (strncmp(what, "handler", 7) == 0) {
		fault_elsewhere();
		dsm_exit();
		return 0;
	}
	if (strcmp(what, "fork") == 0) { /* the page is not here: another rank has written it */
		a[dsm_rank()]++;
		dsm_barrier();
		if (last)
			a[dsm_rank()]++; /* its pages are here: a child's touch is no fault */
		else
			fork_child();
		dsm_barrier();
		for (int r = 0; r < dsm_ranks(); r++)
			CHECK(a[r] == 2, "%d, want 2", a[r]);
		dsm_exit();
		return 0;
	}
	if (last && strcmp(what, "jump") == 0)
		jump();
	if (strcmp(what, "small") == 0) {
		for (int i = 0; i < 20; i++) {
			if (i % dsm_ranks() == dsm_rank())
				on_a_small_stack();
			dsm_barrier();
		}
		CHECK(a[0] == 20, "%d, want 20", a[0]);
		dsm_exit();
		return 0;
	}
	if (!last && strcmp(what, "compute") == 0)
		for (volatile uint64_t i = 0;; i++)
			; /* it is told while it computes */
	if (!last && strcmp(what, "held") == 0)
		dsm_lock(5);
	for (volatile uint64_t i = 0; last && strcmp(what, "held") == 0; i++)
		; /* until it is killed */
	if (last && strcmp(what, "return") == 0)
		return 0;
	if (last && strcmp(what, "twice") == 0) {
		dsm_lock(1);
		dsm_lock(1);
	}
	if (last && strcmp(what, "far") == 0)
		((volatile unsigned char *)a)[1 << 19]++;
	if (last && strcmp(what, "stray") == 0)
		*(volatile int *)nowhere = 1;
	if (last && strcmp(what, "thread") == 0) {
		pthread_t t;
		pthread_create(&t, NULL, touch, NULL);
		pthread_join(t, NULL);
	}
	for (;;) {
		a[dsm_rank()]++;
		dsm_barrier();
	}
}
