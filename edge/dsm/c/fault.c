/* Faults of the program in the shared memory. The handler runs the library: that is right since a fault happens where
 * the program, or what it called, touches that memory, and never within the library or malloc. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "rank.h"

enum { STACK = 256 << 10 };

static struct sigaction before; /* what was there for faults elsewhere */
static pid_t owner;             /* the process that called dsm_init */
static __thread bool mine __attribute__((tls_model("initial-exec"))); /* the thread that called dsm_init */

/* Whether the access writes, where the processor says so. */
static bool wrote(const ucontext_t *u)
{
#if defined __x86_64__
	return u->uc_mcontext.gregs[REG_ERR] & 2;
#else
	(void)u;
	return false;
#endif
}

/* A fault that is not ours: the handler from before takes it, or the access is done again without a handler. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO)
		before.sa_sigaction(sig, info, context);
	else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
		before.sa_handler(sig);
	else
		signal(sig, SIG_DFL);
}

static void handle(int sig, siginfo_t *info, void *context)
{
	size_t off = (size_t)((unsigned char *)info->si_addr - mem.app);
	if (!mem.shown || info->si_code <= 0 || off >= mem.size) {
		pass_on(sig, info, context);
		return;
	}
	if (getpid() != owner) {
		farewell = NULL; /* it would write into the parent's region */
		fail("a child of fork touches the shared memory; only the process that called dsm_init can");
	}
	if (!mine)
		fail("a thread touches the shared memory that did not call dsm_init; threads within a rank cannot");
	if (mem.state[off / PAGE] == DIRTY) { /* nothing can be done: the program jumped there, perhaps */
		pass_on(sig, info, context);
		return;
	}
	int saved = errno;
	page_fault(off / PAGE, wrote(context));
	errno = saved;
}

/* Begins to take faults. Other signals wait until a fault is over: their handlers could fault themselves. */
void fault_handle(void)
{
	stack_t stack = { .ss_size = STACK };
	stack.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction a = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigfillset(&a.sa_mask);
	mine = true;
	owner = getpid();
	if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL) != 0 || sigaction(SIGSEGV, &a, &before) != 0)
		fail("no handler for SIGSEGV, or no stack for it, can be had");
}

void fault_forget(void)
{
	mem.shown = false;
	sigaction(SIGSEGV, &before, NULL);
}
