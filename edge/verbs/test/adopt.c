/* Without a daemon: memory is taken over and given back while threads write to the same pages. No write is lost. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

int main(void)
{
	pthread_t t[THREADS];
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages_say = say;
	uintptr_t start = (uintptr_t)memory, end = start + PAGES * PAGE;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, count, (void *)(uintptr_t)i);
	for (int i = 0; i < ROUNDS; i++) {
		ino_t inode;
		int fd = adopt(start, end, &inode);
		if (fd < 0 || !maps_has(start, end, inode) || maps_plain(start, end))
			say("round %d: the memory is not that of the memfd", i);
		disown(start, end, fd, inode);
		if (!maps_plain(start, end))
			say("round %d: the memory is not the program's again", i);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	int status;
	pid_t child = fork();
	if (child == 0) { /* a fault of the program's own still ends it */
		alarm(60);
		mprotect(memory, PAGE, PROT_READ);
		*(volatile char *)memory = 1;
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
		say("a write to memory that is read-only gives %#x", status);
	puts("adopt: ok");
	return 0;
}
