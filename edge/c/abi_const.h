/* The numbers of docs/ABI.md, written by go generate ./internal/abi; change the register there, not this file. */
#ifndef EDGE_ABI_CONST_H
#define EDGE_ABI_CONST_H

enum { /* A2.2, A3.7, A10.1 */
	ABI_VERSION = 2,
	ABI_SQE_SIZE = 64,
	ABI_CQE_SIZE = 32,
	ABI_MIN_DEPTH = 8,
	ABI_MAX_DEPTH = 65536,
	ABI_CREDIT = 256,
	ABI_INLINE = 24,
	ABI_BYTES = 1024,
	ABI_BYTES_IN_ENTRY = 56,
	ABI_PIECES = 16,
	ABI_IN_ENTRY = 3,
	ABI_WORDS = 64,
	ABI_MAX_EAGER = 65536,
	ABI_MAX_PACKET = 65536,
	ABI_STR = 64,
	ABI_DATA = 512,
	ABI_TEXT = 1024,
};

enum abi_kind { /* A4 */
	ABI_HELLO = 1,
	ABI_REGISTER = 2,
	ABI_MAPPED = 3,
	ABI_DEREGISTER = 4,
	ABI_DIAL = 5,
	ABI_LISTEN = 6,
	ABI_UNLISTEN = 7,
	ABI_ACCEPT = 8,
	ABI_REFUSE = 9,
	ABI_EXPORT = 10,
	ABI_REVOKE = 11,
	ABI_CLOSE = 12,
	ABI_ABORT = 13,
	ABI_MAP = 14,
	ABI_ADVISE = 15,
	ABI_USAGE = 16,
	ABI_QUEUE = 24,
	ABI_UNQUEUE = 25,
	ABI_JOIN = 26,
	ABI_INCOMING = 64,
	ABI_ADVERT = 65,
	ABI_WITHDRAWN = 66,
	ABI_ENDED = 67,
	ABI_CLOSED = 68,
};

enum { /* A6.6: op */
	ABI_OP_WRITE = 1,
	ABI_OP_READ = 2,
	ABI_OP_CREDIT = 3,
	ABI_OP_ATOMIC = 4,
	ABI_OP_SEND = 5,
	ABI_OP_RECEIVE = 6,
	ABI_OP_TELL = 7,
	ABI_OP_PIECES = 8,
	ABI_OP_REDIRECT = 9,
	ABI_OP_END_REDIRECT = 10,
	ABI_OP_COMPOSE = 11,
	ABI_OP_WROTE = 12,
	ABI_OP_COMMIT = 13,
	ABI_OP_DISCARD = 14,
	ABI_OP_AIM = 15,
	ABI_OP_BYTES = 16,
	ABI_OP_RESUME = 17,
};

enum { /* A6.11: kind */
	ABI_COMPLETION = 1,
	ABI_NOTIFICATION = 2,
	ABI_RECEIVED = 3,
	ABI_LATE = 9,
	ABI_REDIRECTED = 10,
};

enum { /* A9 */
	ABI_STATUS_OK = 0,
	ABI_STATUS_KEY = 1,
	ABI_STATUS_OWNER = 2,
	ABI_STATUS_PERMISSION = 3,
	ABI_STATUS_BOUNDS = 4,
	ABI_STATUS_CLOSED = 5,
	ABI_STATUS_PEER_DOWN = 6,
	ABI_STATUS_PEER_UNKNOWN = 7,
	ABI_STATUS_NO_SERVICE = 8,
	ABI_STATUS_REFUSED = 9,
	ABI_STATUS_LIMIT = 10,
	ABI_STATUS_ABORTED = 11,
	ABI_STATUS_TIMEOUT = 12,
	ABI_STATUS_MTU = 13,
	ABI_STATUS_PEER_VERSION = 14,
	ABI_STATUS_STRANGER = 15,
	ABI_STATUS_RESET = 16,
	ABI_STATUS_MEMORY = 17,
	ABI_STATUS_TOO_LONG = 18,
	ABI_STATUS_NO_BUFFER = 19,
	ABI_STATUS_TAKEN = 20,
	ABI_STATUS_STOPPED = 21,
	ABI_STATUS_LOCAL = 200,
	ABI_STATUS_NO_CONNECTION = 201,
	ABI_STATUS_OPS_PER_USER = 202,
	ABI_STATUS_MISALIGNED = 203,
	ABI_STATUS_INVALID = 256,
	ABI_STATUS_UNKNOWN_KIND = 257,
	ABI_STATUS_MEMLOCK = 258,
	ABI_STATUS_BUSY = 259,
	ABI_STATUS_EXISTS = 260,
	ABI_STATUS_NO_REGION = 261,
	ABI_STATUS_DRAINING = 262,
	ABI_STATUS_DENIED = 263,
	ABI_STATUS_VERSION = 264,
	ABI_STATUS_INTERNAL = 265,
};

/* X(name after EDGE_ERR_, errno, the error that it is as well, text). */
#define ABI_ERRORS(X) \
	X(KEY, EACCES, EDGE_OK, "the remote memory is not exported (any more); import it again") \
	X(PERMISSION, EACCES, EDGE_OK, "the remote memory does not allow this access; export it with that permission") \
	X(BOUNDS, EFAULT, EDGE_OK, "the range lies outside the memory; check offset and length against its size") \
	X(PEER_CLOSED, ECONNRESET, EDGE_OK, "the peer closed the connection") \
	X(PEER_DOWN, EHOSTDOWN, EDGE_OK, \
	  "the peer stopped answering or restarted; dial again when it is back (edgectl peer)") \
	X(PEER_UNKNOWN, EHOSTUNREACH, EDGE_OK, \
	  "no node of that name was heard on any link; check the name, and that edged runs there on a common " \
	  "link (edgectl peer)") \
	X(NO_SERVICE, ECONNREFUSED, EDGE_OK, \
	  "nobody at the peer listens for that service; start the server or check the service's name") \
	X(REFUSED, ECONNREFUSED, EDGE_OK, "the service refused the connection") \
	X(LIMIT, ENOBUFS, EDGE_OK, \
	  "a quota of the daemon is reached; release what is not needed or raise the limit in its configuration") \
	X(ABORTED, ECONNABORTED, EDGE_OK, "the connection, or the message composed on it, was aborted by this side") \
	X(TIMEOUT, ETIMEDOUT, EDGE_OK, "no answer in time; check the links (edgectl link) or allow more time") \
	X(MTU, EMSGSIZE, EDGE_OK, \
	  "no frame size works on the path; give the links and switches between the peers the same MTU " \
	  "(edgectl doctor)") \
	X(STRANGER, EACCES, EDGE_OK, \
	  "not authorised; each of the two nodes must authorise the other's key: edgectl key show there, " \
	  "edgectl peers add KEY NAME here") \
	X(RESET, ECONNRESET, EDGE_OK, "the peer left without closing the connection: it died or aborted; dial again") \
	X(MEMORY, ENOMEM, EDGE_OK, \
	  "memory of a space did not become resident in time; let it pin more, release what is held, or raise " \
	  "limits.filled (edgectl doctor)") \
	X(TOO_LONG, EMSGSIZE, EDGE_OK, \
	  "the message is longer than the buffer posted for it; post longer ones or send less") \
	X(NO_BUFFER, ENOBUFS, EDGE_OK, \
	  "the peer has posted no buffer for the message; allow more patience, or have it post more") \
	X(STOPPED, ECANCELED, EDGE_OK, \
	  "not performed, since an earlier operation of the connection was refused; look at that one's error") \
	X(NO_CONN, ENOTCONN, EDGE_OK, "the daemon has no such connection") \
	X(QUOTA, ENOBUFS, EDGE_ERR_LIMIT, \
	  "this user's programs have as many operations in flight as the daemon allows; wait for some or raise " \
	  "limits.ops_per_user") \
	X(MISALIGNED, EINVAL, EDGE_OK, \
	  "atomics are performed at multiples of their size, 4 or 8 bytes, from the start of the exported " \
	  "memory; align the offset") \
	X(INVALID, EINVAL, EDGE_OK, "invalid argument") \
	X(MEMLOCK, ENOMEM, EDGE_OK, "memory cannot be pinned; raise the daemon's limit of locked memory") \
	X(BUSY, EBUSY, EDGE_OK, "operations in flight use the region; wait for them first") \
	X(EXISTS, EADDRINUSE, EDGE_OK, "the name is taken; choose another or end the present use") \
	X(DRAINING, ECONNREFUSED, EDGE_ERR_DAEMON_DOWN, \
	  "the daemon takes nothing new, since it drains or stops; use what exists, or wait for its restart") \
	X(DENIED, EACCES, EDGE_OK, "this user may not use the daemon; join the group of its socket or ask its owner") \
	X(VERSION, EPROTONOSUPPORT, EDGE_OK, \
	  "versions differ; upgrade so that library, daemon and peer are of the same release") \
	X(INTERNAL, EIO, EDGE_OK, "the daemon failed; its log says more")

/* X(status, name after EDGE_ERR_): programs get the error of another status. */
#define ABI_ALIKE(X) \
	X(ABI_STATUS_OWNER, KEY) \
	X(ABI_STATUS_PEER_VERSION, VERSION) \
	X(ABI_STATUS_TAKEN, EXISTS) \
	X(ABI_STATUS_LOCAL, BOUNDS) \
	X(ABI_STATUS_UNKNOWN_KIND, VERSION) \
	X(ABI_STATUS_NO_REGION, INVALID)

#endif
