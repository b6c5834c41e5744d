/* What can go wrong, in words. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base.h"
#include "abi_agree.h"

static _Thread_local char detail[256];
static _Thread_local int detail_of; /* the error that detail is about; 0: none of the thread's latest call */

#define NUMBERED(name, number, more, text) { EDGE_ERR_##name, number, more, text },
static const struct { int err, number, more; const char *text; } errors[] = {
	{ EDGE_OK, 0, 0, "success" },
	ABI_ERRORS(NUMBERED) /* of ABI A9 */
	{ EDGE_ERR_NO_DAEMON, ENETDOWN, 0,
	  "no daemon answers; start edged, or name its socket in EDGE_SOCKET or edge_config.socket" },
	{ EDGE_ERR_DAEMON_DOWN, ENETDOWN, 0,
	  "the daemon went away; dial anew and renew registered memory (edge_region_renew) once edged runs again" },
	{ EDGE_ERR_DAEMON_SILENT, ETIMEDOUT, 0,
	  "the daemon is there but does not run: it is stopped, hung or starved of processor time; let edged go on, "
	  "or restart it" },
	{ EDGE_ERR_STALE, ENETDOWN, EDGE_ERR_DAEMON_DOWN,
	  "the memory was registered with a daemon that has gone; register it anew by edge_region_renew" },
	{ EDGE_ERR_STREAM, EPROTO, 0,
	  "the peer does not follow the rules of streams; use streams of the same release at both ends" },
	{ EDGE_ERR_REVOKED, EACCES, EDGE_ERR_KEY,
	  "the peer revoked the remote memory; import it again once it is exported anew" },
	{ EDGE_ERR_AGAIN, EAGAIN, 0, "nothing yet, or the queue is full; try again later" },
	{ EDGE_ERR_FORKED, EBADF, 0, "the object belongs to the parent process; open a device in this one" },
	{ EDGE_ERR_CLOSED, EBADF, 0, "it was closed" },
	{ EDGE_ERR_SYSTEM, EIO, 0, "a system call failed" },
	{ EDGE_ERR_NO_MEMORY, ENOMEM, 0, "out of memory" },
	{ EDGE_ERR_SHUT, EPIPE, 0, "this side has said that it writes no more" },
};

static int find(int err)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].err == err)
			return (int)i;
	return -1;
}

const char *edge_strerror(int err)
{
	int i = find(err);
	return i < 0 ? "an error of a later release; upgrade the library to know it" : errors[i].text;
}

const char *edge_detail(void)
{
	return detail;
}

const char *edge_message(int err)
{
	return err != 0 && err == detail_of ? detail : edge_strerror(err);
}

void detail_stale(void)
{
	detail_of = 0;
}

int edge_errno(int err)
{
	int i = find(err);
	return i < 0 ? EIO : errors[i].number;
}

int edge_error_is(int err, int kind)
{
	int i = find(err);
	return err == kind || (i >= 0 && errors[i].more != 0 && errors[i].more == kind);
}

int fail(int err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(detail, sizeof detail, format, args);
	va_end(args);
	detail_of = err;
	return err;
}

int system_error(const char *call)
{
	return fail(EDGE_ERR_SYSTEM, "%s: %s", call, strerror(errno));
}

/* The error of a status of A9, which for some says more than C programs need to tell apart. */
int status_error(uint32_t status, const char *text)
{
	int err = status > 0x7fff ? EDGE_ERR_INTERNAL : -(int)status;
#define ALIKE(number, name) case number: err = EDGE_ERR_##name; break;
	switch (status) {
	ABI_ALIKE(ALIKE)
	}
	if (text != NULL)
		fail(err, "%s", text[0] != 0 ? text : edge_strerror(err));
	return err;
}
