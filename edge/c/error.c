/* What can go wrong, in words. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

static _Thread_local char detail[256];
static _Thread_local int detail_of; /* the error that detail is about; 0: none of the thread's latest call */

static const struct { int err, number, more; const char *text; } errors[] = {
	{ EDGE_OK, 0, 0, "success" },
	{ EDGE_ERR_KEY, EACCES, 0, "the remote memory is not exported (any more); import it again" },
	{ EDGE_ERR_PERMISSION, EACCES, 0,
	  "the remote memory does not allow this access; export it with that permission" },
	{ EDGE_ERR_BOUNDS, EFAULT, 0, "the range lies outside the memory; check offset and length against its size" },
	{ EDGE_ERR_PEER_CLOSED, ECONNRESET, 0, "the peer closed the connection" },
	{ EDGE_ERR_PEER_DOWN, EHOSTDOWN, 0,
	  "the peer stopped answering or restarted; dial again when it is back (edgectl peer)" },
	{ EDGE_ERR_PEER_UNKNOWN, EHOSTUNREACH, 0,
	  "no node of that name was heard on any link; check the name, and that edged runs there on a common link "
	  "(edgectl peer)" },
	{ EDGE_ERR_NO_SERVICE, ECONNREFUSED, 0,
	  "nobody at the peer listens for that service; start the server or check the service's name" },
	{ EDGE_ERR_REFUSED, ECONNREFUSED, 0, "the service refused the connection" },
	{ EDGE_ERR_LIMIT, ENOBUFS, 0,
	  "a quota of the daemon is reached; release what is not needed or raise the limit in its configuration" },
	{ EDGE_ERR_ABORTED, ECONNABORTED, 0, "the connection was aborted by this side" },
	{ EDGE_ERR_TIMEOUT, ETIMEDOUT, 0, "no answer in time; check the links (edgectl link) or allow more time" },
	{ EDGE_ERR_MTU, EMSGSIZE, 0,
	  "no frame size works on the path; give the links and switches between the peers the same MTU (edgectl doctor)" },
	{ EDGE_ERR_STRANGER, EACCES, 0,
	  "not authorised; each of the two nodes must authorise the other's key: edgectl key show there, edgectl peers add "
	  "KEY NAME here" },
	{ EDGE_ERR_RESET, ECONNRESET, 0, "the peer left without closing the connection: it died or aborted; dial again" },
	{ EDGE_ERR_MEMORY, ENOMEM, 0,
	  "memory of a space did not become resident in time; let more be pinned, or try again" },
	{ EDGE_ERR_TOO_LONG, EMSGSIZE, 0,
	  "the message was longer than the buffer that it met; send less, or let the receiver post larger buffers" },
	{ EDGE_ERR_NO_BUFFER, ENOBUFS, 0,
	  "the peer had no buffer for the message in the time allowed; allow more or let the receiver post more buffers" },
	{ EDGE_ERR_NO_CONN, ENOTCONN, 0, "the daemon has no such connection" },
	{ EDGE_ERR_QUOTA, ENOBUFS, EDGE_ERR_LIMIT,
	  "this user's programs have as many operations in flight as the daemon allows; wait for some or raise "
	  "limits.ops_per_user" },
	{ EDGE_ERR_MISALIGNED, EINVAL, 0,
	  "atomics are performed at multiples of their size, 4 or 8 bytes, from the start of the exported memory" },
	{ EDGE_ERR_INVALID, EINVAL, 0, "invalid argument" },
	{ EDGE_ERR_MEMLOCK, ENOMEM, 0, "memory cannot be pinned; raise the daemon's limit of locked memory" },
	{ EDGE_ERR_BUSY, EBUSY, 0, "operations in flight use the region; wait for them first" },
	{ EDGE_ERR_EXISTS, EADDRINUSE, 0, "the name is taken; choose another or end the present use" },
	{ EDGE_ERR_DRAINING, ECONNREFUSED, EDGE_ERR_DAEMON_DOWN,
	  "the daemon takes nothing new, since it drains or stops; use what exists, or wait for its restart" },
	{ EDGE_ERR_DENIED, EACCES, 0,
	  "this user may not use the daemon; join the group of its socket or ask its owner" },
	{ EDGE_ERR_VERSION, EPROTONOSUPPORT, 0,
	  "versions differ; upgrade so that library, daemon and peer are of the same release" },
	{ EDGE_ERR_INTERNAL, EIO, 0, "the daemon failed; its log says more" },
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
	switch (status) {
	case 2: err = EDGE_ERR_KEY; break;
	case 14: case 257: err = EDGE_ERR_VERSION; break;
	case 200: err = EDGE_ERR_BOUNDS; break;
	case 261: err = EDGE_ERR_INVALID; break;
	}
	if (text != NULL)
		fail(err, "%s", text[0] != 0 ? text : edge_strerror(err));
	return err;
}
