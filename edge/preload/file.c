/* FILE, and what else of the C library's does not call what stands here. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "calls.h"

/* One over a stream, until it is closed. By guard. */
static struct file { int fd; FILE *is; bool flushed; struct file *next, **at; } *files;
static FILE *moved[3]; /* those in place of the C library's */

static ssize_t file_read(void *c, char *p, size_t n) { return read(((struct file *)c)->fd, p, n); }
static ssize_t file_write(void *c, const char *p, size_t n) {
	ssize_t r = write(((struct file *)c)->fd, p, n);
	return r < 0 ? 0 : r;
}
static int file_close(void *c) {
	struct file *f = c;
	int fd = f->fd;
	lock();
	*f->at = f->next;
	if (f->next)
		f->next->at = f->at;
	for (int i = 0; i < 3; i++)
		if (moved[i] == f->is)
			moved[i] = NULL;
	unlock();
	free(f);
	return close(fd);
}

static FILE *file_of(int fd, const char *mode) {
	cookie_io_functions_t calls = {.read = file_read, .write = file_write, .close = file_close};
	struct file *f = malloc(sizeof *f);
	FILE *made = f ? fopencookie(f, mode, calls) : NULL;
	if (!made) {
		free(f);
		return NULL;
	}
	made->_fileno = fd; /* which fileno returns; all else is done by calls */
	lock();
	*f = (struct file){.fd = fd, .is = made, .next = files, .at = &files};
	if (files)
		files->at = &f->next;
	files = f;
	unlock();
	return made;
}

/* exit does so when streams have ended already. One that another thread is busy with is left alone. */
void flush_files(void) {
	for (struct file *f;;) {
		lock();
		for (f = files; f && (f->flushed || ftrylockfile(f->is)); f = f->next)
			;
		if (f)
			f->flushed = true;
		unlock();
		if (!f)
			return;
		FILE *is = f->is;
		fflush_unlocked(is);
		funlockfile(is);
	}
}

/* A stream is standard input, output or error now. */
void move_file(int fd) {
	if (!moved[fd] && (moved[fd] = file_of(fd, fd == 0 ? "r" : "w")) && fd == 2)
		setvbuf(moved[fd], NULL, _IONBF, 0);
	if (moved[fd])
		*(fd == 0 ? &stdin : fd == 1 ? &stdout : &stderr) = moved[fd];
}

static bool perhaps_ours(int fd) {
	real_need();
	struct sock *s = sock_get(fd);
	bool ours = s && s->state != PLAIN && s->state != LISTENING;
	if (s)
		sock_put(s);
	return ours;
}

EXPORT FILE *fdopen(int fd, const char *mode) {
	if (!perhaps_ours(fd))
		return real.fdopen(fd, mode);
	return file_of(fd, mode);
}

static int print(int fd, const char *format, va_list va) {
	char *text;
	int n = vasprintf(&text, format, va), sent = 0;
	if (n < 0)
		return -1;
	for (ssize_t r; sent < n && (r = write(fd, text + sent, (size_t)(n - sent))) >= 0;)
		sent += (int)r;
	free(text);
	return sent < n ? -1 : n;
}

EXPORT int vdprintf(int fd, const char *format, va_list va) {
	return perhaps_ours(fd) ? print(fd, format, va) : real.vdprintf(fd, format, va);
}

EXPORT int __vdprintf_chk(int fd, int how, const char *format, va_list va) {
	return perhaps_ours(fd) ? print(fd, format, va) : real.__vdprintf_chk(fd, how, format, va);
}

EXPORT int dprintf(int fd, const char *format, ...) {
	va_list va;
	va_start(va, format);
	int n = vdprintf(fd, format, va);
	va_end(va);
	return n;
}

EXPORT int __dprintf_chk(int fd, int how, const char *format, ...) {
	va_list va;
	va_start(va, format);
	int n = __vdprintf_chk(fd, how, format, va);
	va_end(va);
	return n;
}
