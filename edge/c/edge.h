/*
 * libedge: remote direct memory access over plain Ethernet, for C. It speaks docs/ABI.md to the daemon edged, as
 * package edge does for Go, with the same model, errors and behaviour.
 *
 * Model. A device is an attachment to the daemon. Memory for operations is registered with it: a region. A connection
 * joins two applications, found by node and service. One side exports part of a region under a name, the other
 * imports it, and reads and writes it by operations that involve no code of the owner.
 *
 * Results. Functions return 0 or a count, or a negative edge_error. edge_message says what an error means and what
 * to do; edge_detail has more about the thread's latest failure. Objects come back by pointers, unchanged on error.
 *
 * Time. timeout_ms is the longest wait in milliseconds: EDGE_FOREVER waits without end, 0 looks once. A wait that
 * ended without what it waited for is EDGE_ERR_AGAIN with 0 and EDGE_ERR_TIMEOUT otherwise (EDGE_ERR_DAEMON_SILENT
 * when the daemon has not run for seconds); what was asked for goes on unless the function says so. What the daemon
 * answers at once (edge_register, edge_listen, edge_export_region...) has a second for that answer, even with 0.
 *
 * Threads. Any number of threads may use a device and all that belongs to it: one lock for each device, not held
 * while somebody waits or copies long data. Who frees an object (the functions that say so) must be the last to use
 * it. The library has no thread and no signal handler. It works while a function of it runs: a program that does
 * something else for long calls edge_device_poll now and then, or when edge_device_fd is readable, because credit,
 * the ends of streams and attaching anew wait for that, and the daemon cuts clients that do not read some 4,000
 * messages (ABI A10.4).
 *
 * Fork. In the child everything of the parent fails with EDGE_ERR_FORKED, and may be freed; the child may open a
 * device of its own. The bytes of regions, adopted ones too, are shared by parent and child, not copied.
 *
 * Restart of the daemon. The device attaches to the new daemon by itself and offers the services of its listeners
 * again. Connections have ended with EDGE_ERR_DAEMON_DOWN and are dialled anew. Regions keep their bytes;
 * edge_region_renew registers them again, in place.
 */
#ifndef EDGE_H
#define EDGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define EDGE_API __attribute__((visibility("default")))
#else
#define EDGE_API
#endif

#define EDGE_FOREVER (-1)

typedef struct edge_device edge_device;
typedef struct edge_region edge_region;
typedef struct edge_conn edge_conn;
typedef struct edge_remote edge_remote; /* memory that the peer exported */
typedef struct edge_export edge_export; /* memory exported to the peer of one connection */
typedef struct edge_listener edge_listener;
typedef struct edge_request edge_request; /* a peer's wish to connect */
typedef struct edge_queue edge_queue;     /* buffers for the messages of several connections */
typedef struct edge_stream edge_stream;
typedef struct edge_word edge_word;

/* What can go wrong. To -999 the numbers are those of ABI A9, negated; numbers that are not here may come. */
enum edge_error {
	EDGE_OK = 0,
	/* abi: errors (go generate ./internal/abi) */
	EDGE_ERR_KEY = -1,            /* the remote memory is not exported (any more); import it again */
	EDGE_ERR_PERMISSION = -3,     /* the remote memory does not allow this access; export it with that permission */
	EDGE_ERR_BOUNDS = -4,         /* the range lies outside the memory; check offset and length against its size */
	EDGE_ERR_PEER_CLOSED = -5,    /* the peer closed the connection */
	EDGE_ERR_PEER_DOWN = -6,      /* the peer stopped answering or restarted */
	EDGE_ERR_PEER_UNKNOWN = -7,   /* no node of that name was heard on any link */
	EDGE_ERR_NO_SERVICE = -8,     /* nobody at the peer listens for that service */
	EDGE_ERR_REFUSED = -9,        /* the service refused the connection */
	EDGE_ERR_LIMIT = -10,         /* a quota of the daemon is reached */
	EDGE_ERR_ABORTED = -11,       /* the connection, or the message composed on it, was aborted by this side */
	EDGE_ERR_TIMEOUT = -12,       /* no answer in time; check the links (edgectl link) or allow more time */
	EDGE_ERR_MTU = -13,           /* no frame size works on the path */
	EDGE_ERR_STRANGER = -15,      /* not authorised */
	EDGE_ERR_RESET = -16,         /* the peer left without closing the connection: it died or aborted; dial again */
	EDGE_ERR_MEMORY = -17,        /* memory of a space did not become resident in time */
	EDGE_ERR_TOO_LONG = -18,      /* the message is longer than the buffer posted for it */
	EDGE_ERR_NO_BUFFER = -19,     /* the peer has posted no buffer for the message */
	EDGE_ERR_STOPPED = -21,       /* not performed, since an earlier operation of the connection was refused */
	EDGE_ERR_NO_CONN = -201,      /* the daemon has no such connection */
	EDGE_ERR_QUOTA = -202,        /* the user's clients have too many operations in flight; is a LIMIT */
	EDGE_ERR_MISALIGNED = -203,   /* an atomic's offset is no multiple of its size */
	EDGE_ERR_INVALID = -256,      /* invalid argument */
	EDGE_ERR_MEMLOCK = -258,      /* memory cannot be pinned; raise the daemon's limit of locked memory */
	EDGE_ERR_BUSY = -259,         /* operations in flight use the region; wait for them first */
	EDGE_ERR_EXISTS = -260,       /* the name is taken; choose another or end the present use */
	EDGE_ERR_DRAINING = -262,     /* the daemon takes nothing new, since it drains or stops; is a DAEMON_DOWN */
	EDGE_ERR_DENIED = -263,       /* this user may not use the daemon; join the group of its socket or ask its owner */
	EDGE_ERR_VERSION = -264,      /* versions differ */
	EDGE_ERR_INTERNAL = -265,     /* the daemon failed; its log says more */
	/* end of abi */
	EDGE_ERR_NO_DAEMON = -1001,   /* no daemon answers at the socket */
	EDGE_ERR_DAEMON_DOWN = -1002, /* the daemon went away; the device attaches again by itself */
	EDGE_ERR_DAEMON_SILENT = -1003, /* the daemon is there but does not run */
	EDGE_ERR_STALE = -1004,       /* registered with a daemon that has gone: edge_region_renew; is a DAEMON_DOWN */
	EDGE_ERR_STREAM = -1005,      /* the peer does not follow the rules of streams (PROTOCOL clause 11) */
	EDGE_ERR_REVOKED = -1006,     /* the peer revoked the remote memory; is a KEY */
	EDGE_ERR_AGAIN = -1007,       /* nothing yet, or the queue is full */
	EDGE_ERR_FORKED = -1008,      /* the object belongs to the parent process; open a device of your own */
	EDGE_ERR_CLOSED = -1009,      /* used after it was closed */
	EDGE_ERR_SYSTEM = -1010,      /* a system call failed; edge_detail says which and why */
	EDGE_ERR_NO_MEMORY = -1011,   /* malloc failed */
	EDGE_ERR_SHUT = -1012         /* written after edge_stream_shutdown */
};

/* Texts of errors. edge_message is what to show people: the particular cause of the error that the calling thread's
 * latest call returned, or else edge_strerror, what such errors mean. edge_detail is the text of the thread's latest
 * failure, whatever came after it. The thread's next call may overwrite both. edge_errno is the nearest errno of
 * sockets: ECONNRESET, ETIMEDOUT, EPIPE... edge_error_is says whether err is of that kind: the kind itself, or one that
 * says above "is a". */
EDGE_API const char *edge_message(int err);
EDGE_API const char *edge_strerror(int err);
EDGE_API const char *edge_detail(void);
EDGE_API int edge_errno(int err);
EDGE_API int edge_error_is(int err, int kind);

/* How a thread that waits finds out about progress: it polls for a moment, giving way after each look, and then
 * sleeps; never polls; or polls without end, which needs a core to itself. */
enum edge_wait { EDGE_ADAPTIVE, EDGE_BLOCK, EDGE_BUSY };

/* How to attach. Set size to sizeof (edge_config) and what you do not care for to zero; or pass NULL. */
typedef struct edge_config {
	size_t size;
	const char *socket;      /* NULL: $EDGE_SOCKET, or /run/edged/edged.sock */
	const char *name;        /* of the program, shown by edgectl client; NULL: the kernel's */
	uint32_t queue_depth;    /* operations in flight: a power of two from 8; 0: 1024 */
	uint32_t shard;          /* wished, from 1; 0: any */
	int wait;                /* enum edge_wait */
	uint32_t spin_us;        /* how long EDGE_ADAPTIVE polls at first, a loop (linger) 2/5 of it, in us; 0: 50 */
	uint32_t receive_buffer; /* of a stream, a power of two, 4 KiB to 512 MiB; 0: 2 MiB for the first 4, then 512 KiB */
	uint32_t send_buffer;    /* likewise */
	/* Called without locks by the thread that noticed, when it leaves the library: with EDGE_ERR_DAEMON_DOWN when the
	 * daemon is lost, with 0 when the device has attached again, in that order. It must not close the device. */
	void (*on_change)(void *arg, int err);
	void *arg;
	int resume;              /* not 0: it uses edge_conn_resume. Programs from before this member end with arg */
} edge_config;

/* Attaches to the daemon. timeout_ms bounds that alone; at most 10 s are waited. The start returns at once with a
 * device that edge_device_attached waits for: 0, or why it is not attached. */
EDGE_API int edge_open(edge_device **dev, const edge_config *config, int timeout_ms);
EDGE_API int edge_open_start(edge_device **dev, const edge_config *config);
EDGE_API int edge_device_attached(edge_device *dev, int timeout_ms);
/* Ends the attachment and frees the device, its regions and listeners. Connections and streams that are still open
 * are aborted, and are freed by the program as always, before or after. Streams that were closed have timeout_ms to
 * send what they were given. */
EDGE_API void edge_device_close(edge_device *dev, int timeout_ms);
/* Waits until the peers have what was written to streams, those that were closed among them: before exec, which ends
 * the device with the program. With timeout_ms 0 it looks once; no descriptor says when to look again. */
EDGE_API int edge_device_drain(edge_device *dev, int timeout_ms);
EDGE_API int edge_device_error(edge_device *dev); /* 0 while attached, or EDGE_ERR_DAEMON_DOWN */
EDGE_API const char *edge_device_name(edge_device *dev); /* of this node: what peers dial */
EDGE_API const char *edge_device_node(edge_device *dev); /* its identity in hexadecimal */
EDGE_API uint64_t edge_device_features(edge_device *dev); /* in force (ABI A2.4) */

/* What not every daemon has. Without it the functions that need it fail with EDGE_ERR_VERSION. */
#define EDGE_FEATURE_MEMORY ((uint64_t)1 << 0)   /* memory of the program's */
#define EDGE_FEATURE_ATOMICS ((uint64_t)1 << 3)  /* EDGE_ATOMIC, EDGE_REMOTE_ATOMIC */
#define EDGE_FEATURE_PIECES ((uint64_t)1 << 4)   /* work with several pieces */
#define EDGE_FEATURE_MESSAGES ((uint64_t)1 << 5) /* EDGE_SEND, EDGE_RECEIVE, receive queues */
#define EDGE_FEATURE_LOCAL ((uint64_t)1 << 6)    /* EDGE_LOCAL_DONE, which has no effect without */
#define EDGE_FEATURE_EAGER ((uint64_t)1 << 8)    /* edge_compose */
#define EDGE_FEATURE_HEAP ((uint64_t)1 << 10)    /* edge_grant */
#define EDGE_FEATURE_DOMAINS ((uint64_t)1 << 11) /* edge_share, work.key, EDGE_TELL */
#define EDGE_FEATURE_SCATTER ((uint64_t)1 << 12) /* EDGE_RECEIVE with several pieces */
#define EDGE_FEATURE_WORDS ((uint64_t)1 << 13)   /* edge_word_open */
#define EDGE_FEATURE_OVERLAP ((uint64_t)1 << 14) /* EDGE_OVERLAP */
#define EDGE_FEATURE_EARLY ((uint64_t)1 << 16)   /* edge_request_post, edge_request_serve */
#define EDGE_FEATURE_BYTES ((uint64_t)1 << 17)   /* work with more than 24 bytes inline */
#define EDGE_FEATURE_RESUME ((uint64_t)1 << 18)  /* edge_conn_resume */

/* Takes what has happened, without waiting. Returns how much that was, for loops that look whether it was anything. */
EDGE_API int edge_device_poll(edge_device *dev);
/* Whether there may be completions that edge_completions has not given: by a look at memory, without a lock or a
 * system call, for programs that poll. 0: there are none, or another thread is taking them off the ring just now. It
 * does not see what the control socket tells, such as the end of a connection: call edge_device_poll now and then. */
EDGE_API int edge_device_ready(edge_device *dev);
/* A descriptor that polls readable, after edge_device_arm, when something happened; of 8 or more operations in flight
 * when a quarter has ended, or a millisecond later. The loop: edge_device_poll; look at operations, notifications,
 * streams; edge_device_arm; if that said 1, wait for the descriptor. It is the device's, and may lie in an epoll set
 * of yours. Arm returns 0 after progress. One thread at a time sleeps on it; others may wait in the library. */
EDGE_API int edge_device_fd(edge_device *dev);
EDGE_API int edge_device_arm(edge_device *dev);
/* For a loop that waits as enum edge_wait says, and not by sleeping at once: before edge_device_arm, when the look
 * found nothing. 1: give way by sched_yield, and poll again. 0: arm, and sleep. Of several threads one at a time. */
EDGE_API int edge_device_linger(edge_device *dev);
/* on: what functions of the library take in other threads does not make the descriptor readable. It is for programs
 * whose threads all look, by edge_device_arm, after each call: 0 says that there is something for the loop. */
EDGE_API void edge_device_quiet(edge_device *dev, int on);

/* Words: for programs whose threads sleep each for streams of its own. The daemon wakes the thread whose stream has
 * something, and no other. One thread sleeps on the descriptor meanwhile, for everything else, and wakes others by
 * their words. Each thread has a word, to which its streams are aimed. The loop: edge_device_poll; look at the streams;
 * edge_word_arm, and if that said 1, edge_word_sleep.
 *
 * edge_word_open returns NULL if the daemon has none (EDGE_FEATURE_WORDS), or 64 are in use. A word lasts until
 * edge_word_close, or the end of the device; it outlives the daemon. */
EDGE_API edge_word *edge_word_open(edge_device *dev);
EDGE_API void edge_word_close(edge_device *dev, edge_word *word);
EDGE_API int edge_word_arm(edge_device *dev, edge_word *word); /* like edge_device_arm */
/* Sleeps until the word is woken: 0, which may also come for nothing, ETIMEDOUT, at that time of CLOCK_MONOTONIC in ns,
 * or EINTR. It uses no lock. */
EDGE_API int edge_word_sleep(edge_word *word, int64_t until);
EDGE_API void edge_word_wake(edge_word *word);
EDGE_API void edge_word_rest(edge_word *word); /* not armed any more: the thread is awake for another reason */

/* --- memory --- */

/* What a peer may do with exported memory. For atomics the export begins at a multiple of 8 in its region. */
enum { EDGE_REMOTE_READ = 1, EDGE_REMOTE_WRITE = 2, EDGE_REMOTE_ATOMIC = 4 };

/* New pinned memory of size bytes, zeroed, made by the daemon. */
EDGE_API int edge_register(edge_device *dev, size_t size, edge_region **region, int timeout_ms);
/* Memory that exists: whole pages from addr, mapped private and writable, as from malloc or mmap. The bytes are
 * copied once into a memory of their own, which is mapped over the same addresses: pointers stay good, and nothing is
 * copied afterwards. No thread may write to them during the call. edge_region_close makes them ordinary memory again:
 * before free. Needs EDGE_FEATURE_MEMORY. After fork parent and child share them. */
EDGE_API int edge_adopt(edge_device *dev, void *addr, size_t size, edge_region **region, int timeout_ms);
/* A memfd of the caller's, made with MFD_ALLOW_SEALING, whole pages, mapped shared and writable at addr. It is sealed
 * against changes of its size and further mappings for writing. The descriptor stays the caller's to close, the
 * mapping to unmap after edge_region_close. Once for each memfd. Needs EDGE_FEATURE_MEMORY. */
EDGE_API int edge_register_memfd(edge_device *dev, int memfd, void *addr, size_t size, edge_region **region,
                                 int timeout_ms);
/* Memory that exists, where it is: size bytes of this process from addr on, up to 2^46, mapped or not. The daemon
 * copies to and from it: for memory that is used seldom. It is local memory of writes and reads in one piece, or
 * exported, not for atomics. Where no memory is: EDGE_ERR_MEMORY. Peers also write what is read-only here. It must stay
 * until edge_region_close or edge_device_close has returned. Needs EDGE_FEATURE_HEAP and limits.couriers. */
EDGE_API int edge_grant(edge_device *dev, void *addr, size_t size, edge_region **region, int timeout_ms);
EDGE_API void *edge_region_bytes(const edge_region *region);
EDGE_API size_t edge_region_size(const edge_region *region);
EDGE_API int edge_region_error(edge_region *region); /* 0, or EDGE_ERR_STALE: its daemon has gone */
/* Registers a stale region with the present daemon, at the same address with the same bytes (which the call copies:
 * no thread may write them meanwhile). Exports are made anew. Not for memory of edge_register_memfd. */
EDGE_API int edge_region_renew(edge_region *region, int timeout_ms);
/* Revokes its exports, unpins, unmaps and frees it. EDGE_ERR_BUSY: nothing happened, operations in flight use it. */
EDGE_API int edge_region_close(edge_region *region);

/* Lets the peer of conn access size bytes from off, and announces them under name. The export belongs to the
 * connection and is freed with it. */
EDGE_API int edge_export_region(edge_region *region, edge_conn *conn, const char *name, int perm, size_t off,
                                size_t size, edge_export **export_, int timeout_ms);
/* When it returns 0 no access by the peer follows. After an error call it again. */
EDGE_API int edge_export_revoke(edge_export *export_, int timeout_ms);
EDGE_API edge_region *edge_export_memory(const edge_export *export_);
EDGE_API size_t edge_export_offset(const edge_export *export_);
EDGE_API const char *edge_export_name(const edge_export *export_);
EDGE_API void edge_export_free(edge_export *export_); /* one that was revoked; others go with the connection */

/* Waits until the peer exports memory under that name; of several, the newest. It belongs to the connection and is
 * freed with it, or by as many calls of edge_remote_free as of edge_import that returned it. */
EDGE_API int edge_import(edge_conn *conn, const char *name, edge_remote **remote, int timeout_ms);
EDGE_API void edge_remote_free(edge_remote *remote);
EDGE_API uint64_t edge_remote_size(const edge_remote *remote);
EDGE_API int edge_remote_perm(const edge_remote *remote);
/* Domains (EDGE_FEATURE_DOMAINS): memory that peers of many connections reach by the same keys, as a protection domain
 * of libibverbs is. A domain is any number of the program's but 0. A connection belongs to it from its beginning on
 * (edge_dial_options, edge_request_join), is best ordered, and stops: after an operation of the peer that this node
 * refused it refuses all later ones (EDGE_ERR_STOPPED). With edge_config.resume and EDGE_FEATURE_RESUME one that our
 * daemon has no room for (EDGE_ERR_QUOTA) takes along all begun behind it, until edge_conn_resume: then they may be
 * posted again. EDGE_ERR_AGAIN: the queue is full, and the daemon was told nothing.
 * edge_share lets the peers of domain access size bytes from off by *key, whose upper half is high and whose lower half
 * is drawn. They name the memory by addresses from base on (work.key, work.remote_off), which the caller tells them.
 * For atomics base and the memory agree modulo 8. When edge_unshare returns 0 no access follows. */
EDGE_API int edge_share(edge_region *region, uint32_t domain, int perm, size_t off, size_t size, uint32_t high,
                        uint64_t base, uint64_t *key, int timeout_ms);
EDGE_API int edge_unshare(edge_device *dev, uint64_t key, int timeout_ms);
EDGE_API int edge_conn_resume(edge_conn *conn);

/* --- connections --- */

enum edge_order {
	EDGE_UNORDERED = 0,
	EDGE_ORDERED = 1, /* every operation takes effect after the one before it */
	/* Every operation begins after the one before it: writes and messages take effect in their order, several reads and
	 * atomics are answered at a time. A read without a fence behind it may see what a later write put there; of two
	 * reads the earlier may see the newer bytes, if frames are lost or memory is not resident (PROTOCOL clause 5.3). As
	 * EDGE_ORDERED with a daemon without EDGE_FEATURE_OVERLAP. */
	EDGE_OVERLAP = 2
};

typedef struct edge_dial_options {
	size_t size;           /* sizeof (edge_dial_options) */
	int ordered;           /* one of enum edge_order, in both directions */
	const void *data;      /* for the side that accepts, up to 512 bytes (504 for streams) */
	size_t data_size;
	const char *scheduler; /* "adaptive", "wd", "wsrr", "srr"; NULL: the daemon's */
	uint32_t domain;       /* that the connection belongs to (edge_share); 0: none */
} edge_dial_options;

/* Connects to a service at a peer: a node's name, or its identity in hexadecimal. Returns when the peer has accepted.
 * options may be NULL. edge_dial_start returns at once; edge_conn_wait says how it went. */
EDGE_API int edge_dial(edge_device *dev, const char *peer, const char *service, const edge_dial_options *options,
                       edge_conn **conn, int timeout_ms);
EDGE_API int edge_dial_start(edge_device *dev, const char *peer, const char *service, const edge_dial_options *options,
                             edge_conn **conn, int timeout_ms);
EDGE_API int edge_conn_wait(edge_conn *conn, int timeout_ms);
/* Offers a service on this node. It outlives the daemon. edge_listen_start asks, edge_listener_wait is the answer. */
EDGE_API int edge_listen(edge_device *dev, const char *service, edge_listener **listener, int timeout_ms);
EDGE_API int edge_listen_start(edge_device *dev, const char *service, edge_listener **listener);
EDGE_API int edge_listener_wait(edge_listener *listener, int timeout_ms);
/* Waits for a connection and accepts it. Requests that fail meanwhile are passed over. */
EDGE_API int edge_accept(edge_listener *listener, edge_conn **conn, int timeout_ms);
/* The same in two steps. Accept and refuse free the request, whatever they return. */
EDGE_API int edge_listener_next(edge_listener *listener, edge_request **request, int timeout_ms);
EDGE_API const char *edge_request_peer(const edge_request *request);
/* 1 and the user who dials, as the kernel reports it, if it is a program of this node; 0 if another node dials. */
EDGE_API int edge_request_user(const edge_request *request, uint32_t *uid);
EDGE_API const void *edge_request_data(const edge_request *request, size_t *size);
/* The identity of the node that dials, in hexadecimal, as its key proved it. */
EDGE_API const char *edge_request_node(const edge_request *request);
/* Has the connection belong to a domain (edge_share) once it is accepted. */
EDGE_API void edge_request_join(edge_request *request, uint32_t domain);
EDGE_API int edge_request_accept(edge_request *request, const void *data, size_t size, edge_conn **conn,
                                 int timeout_ms);
/* Whether the request is for a stream (edge_stream_dial); then *data are those of the dialler's options. */
EDGE_API int edge_request_stream(const edge_request *request, const void **data, size_t *size);
/* Accepts it as one, without waiting: edge_stream_wait says how it went. Frees the request, whatever it returns. */
EDGE_API int edge_request_accept_stream(edge_request *request, edge_stream **stream);
EDGE_API int edge_request_refuse(edge_request *request, const char *reason);
EDGE_API void edge_listener_close(edge_listener *listener); /* withdraws the service, refuses what waits, and frees */

/* As it was dialled until it has answered, then as it calls itself. Both are valid until the connection is freed. */
EDGE_API const char *edge_conn_peer(const edge_conn *conn);
EDGE_API const char *edge_conn_service(const edge_conn *conn);
/* The identity of the peer's node in hexadecimal, as its key proved it; empty until the peer has answered. */
EDGE_API const char *edge_conn_node(const edge_conn *conn);
/* By which the service refused a dial (EDGE_ERR_REFUSED), perhaps behind other words, while conn is there; or NULL. */
EDGE_API const char *edge_conn_reason(const edge_conn *conn);
/* What the other side gave to dial or accept. */
EDGE_API const void *edge_conn_data(const edge_conn *conn, size_t *size);
/* 0 while the connection lives or notifications of it are on their way, and then why it ended. */
EDGE_API int edge_conn_error(edge_conn *conn);
/* Ends the connection in good order: completes what is in flight, also sends that wait for a buffer of the peer, and
 * tells the peer. Then nothing that was posted on it uses memory any more. Aborts it when time is over; but timeout_ms
 * 0 begins that end and lets it go on: EDGE_ERR_AGAIN until it is over, which further calls tell, as does
 * edge_conn_error. */
EDGE_API int edge_conn_close(edge_conn *conn, int timeout_ms);
/* Ends it at once. Operations in flight fail with EDGE_ERR_ABORTED, or have been done. */
EDGE_API int edge_conn_abort(edge_conn *conn);
/* Frees the connection, its exports and imports; aborts it first if it is not closed: that waits for nothing. */
EDGE_API void edge_conn_free(edge_conn *conn);

/* --- operations --- */

enum edge_kind {
	EDGE_WRITE = 1,  /* local to remote */
	EDGE_READ = 2,   /* remote to local */
	EDGE_ATOMIC = 4, /* func on remote memory */
	EDGE_SEND = 5,   /* local to the oldest buffer that the peer posted */
	EDGE_RECEIVE = 6, /* a buffer for a message */
	EDGE_TELL = 7    /* a message that says how long a write before it was, and uses up a buffer of the peer's */
};

/* What an atomic does to the 4 or 8 bytes at remote_off, in one step, exactly once: atomic with other atomics on that
 * memory and with the processor's own of programs that map it, not with writes and reads. They are numbers in the byte
 * order of the host that has the memory. */
enum edge_func {
	EDGE_SWAP = 1,         /* stores operand */
	EDGE_COMPARE_SWAP = 2, /* stores operand if the value is compare */
	EDGE_FETCH_ADD = 3,    /* modulo the size */
	EDGE_FETCH_AND = 4, EDGE_FETCH_OR = 5, EDGE_FETCH_XOR = 6,
	EDGE_FETCH_MIN = 7, EDGE_FETCH_MAX = 8,              /* as unsigned numbers */
	EDGE_FETCH_MIN_SIGNED = 9, EDGE_FETCH_MAX_SIGNED = 10
};

enum {
	EDGE_BACKWARD_FENCE = 1, /* takes effect after every earlier operation of the connection */
	EDGE_FORWARD_FENCE = 2,  /* later operations of the connection take effect after this one */
	EDGE_NOTIFY = 4,         /* once a write or atomic is complete the owner is notified, with imm; a send has imm */
	EDGE_LOCAL_DONE = 8,     /* a write is done once its local bytes may change; edge_conn_late tells of failures */
	EDGE_MAX_INLINE = 1024,  /* with EDGE_FEATURE_BYTES; else 24. Beyond 24 each 56 bytes take a place of the queue */
	EDGE_MAX_PIECES = 16
};
#define EDGE_MAX_MESSAGE ((size_t)1 << 31) /* bytes */

/* A range of local memory. */
typedef struct edge_piece {
	edge_region *region;
	size_t off, size;
} edge_piece;

/* One operation. Post copies it. The bytes that local or pieces name are the operation's until it is done: unchanged
 * under a write or send, untouched under a read or receive. Clear the struct first: fields are added in the place of
 * reserved ones. */
typedef struct edge_work {
	int kind;
	uint32_t flags;
	uint32_t imm;
	uint32_t inline_size;    /* of a write or send: up to EDGE_MAX_INLINE bytes at inline_data, in place of local */
	const void *inline_data;
	edge_region *local;
	size_t local_off;
	size_t size;
	edge_remote *remote;
	uint64_t remote_off;
	void *context;           /* not NULL: edge_completions returns it when the operation has ended. A receive has one */
	const edge_piece *pieces; /* up to EDGE_MAX_PIECES in place of local, local_off and size, gathered from */
	uint32_t npieces;        /* or scattered into in their order, each but the last below 4 GiB. Not of an atomic */
	int func;                /* of an atomic: enum edge_func. Its size is 4 or 8, it has no local memory */
	uint64_t operand, compare;
	uint64_t *result;        /* gets what was there before the atomic is done; NULL: not wanted */
	int64_t patience_us;     /* in us, how long a message waits for a buffer (Messages); 0: no end; negative: not */
	uint64_t key;            /* of memory the peer shared (edge_share), in place of remote; remote_off: the address */
	uint64_t wrote;          /* of EDGE_TELL: bytes of the latest write, at most 2 GiB, or 0. It has NOTIFY and imm */
	uint64_t reserved[2];
} edge_work;

/* An operation in flight or done: a value to keep or to drop. Nothing has to be released. A zero one is done. */
typedef struct edge_op {
	edge_device *dev;
	uint32_t slot, gen;
} edge_op;

/* Starts an operation and returns at once. EDGE_ERR_AGAIN: the queue is full. op may be NULL. */
EDGE_API int edge_post(edge_conn *conn, const edge_work *work, edge_op *op);
/* Starts n operations in order and wakes the daemon once. Returns how many, or why not even the first. */
EDGE_API int edge_post_batch(edge_conn *conn, const edge_work *work, size_t n, edge_op *ops);
EDGE_API int edge_post_wait(edge_conn *conn, const edge_work *work, edge_op *op, int timeout_ms); /* waits for room */
EDGE_API int edge_op_done(const edge_op *op);
/* 0 for an operation that succeeded or is in flight, else what went wrong. A failure is remembered until 65,536 later
 * operations of the device have failed as well. */
EDGE_API int edge_op_error(const edge_op *op);
/* Waits until it has ended and returns how. After a timeout it is in flight still. */
EDGE_API int edge_op_wait(const edge_op *op, int timeout_ms);

typedef struct edge_completion {
	void *context;
	int err;
	int kind;        /* of the work */
	edge_conn *conn; /* that it was posted on, or its message came on; NULL: none, or it was freed */
	size_t size;     /* of the message received, in bytes */
	uint32_t imm;    /* of the message, if has_imm */
	int has_imm;
	int tells;       /* size is of a write of the peer's (EDGE_TELL), and nothing was put into the buffer */
} edge_completion;

/* Takes up to n of the operations that were posted with a context and have ended, oldest first, without waiting:
 * returns how many. Until it is taken such an operation holds its place in the queue. */
EDGE_API int edge_completions(edge_device *dev, edge_completion *completions, size_t n);
/* The same, waiting for the first, or as edge_device_arm for several. */
EDGE_API int edge_completions_wait(edge_device *dev, edge_completion *completions, size_t n, int timeout_ms);
/* How many writes with EDGE_LOCAL_DONE failed after they were done, and in *first, unless NULL, how the first of them
 * did. When an operation with EDGE_BACKWARD_FENCE is done all is known of the writes before it. */
EDGE_API int edge_conn_late(edge_conn *conn, int *first);

/* An atomic on the 8 bytes at off; *was, unless NULL, gets what was there. They wait for it, and for room. After a
 * timeout it is unknown whether it is performed. edge_compare_swap stored new_ if *was is old. */
EDGE_API int edge_atomic(edge_remote *remote, int func, uint64_t off, uint64_t operand, uint64_t *was, int timeout_ms);
EDGE_API int edge_compare_swap(edge_remote *remote, uint64_t off, uint64_t old, uint64_t new_, uint64_t *was,
                               int timeout_ms);

/* Reads and writes of ordinary memory of any size, through registered memory of the device's: they cost a copy. They
 * return when all bytes are in place. */
EDGE_API int edge_remote_write(edge_remote *remote, const void *p, size_t size, uint64_t off, int timeout_ms);
EDGE_API int edge_remote_read(edge_remote *remote, void *p, size_t size, uint64_t off, int timeout_ms);

/* Messages. A peer's sends use up the buffers that were posted as EDGE_RECEIVE, in order; each comes back by
 * edge_completions with size and imm. A device can have queue_depth of them posted beside its operations. A message
 * that is longer than its buffer fails at both ends with EDGE_ERR_TOO_LONG and uses the buffer up. Without a buffer a
 * send waits patience_us, on an ordered connection of a domain from its turn on, and holds up other sends of the
 * connection alone. When it ends its buffers come back with the reason. Until a buffer comes back edge_region_close of
 * its memory is EDGE_ERR_BUSY.
 *
 * A receive queue has buffers for all connections that it serves. A connection joins before it has buffers of its own.
 * The queue ends with the daemon; its buffers come back with EDGE_ERR_DAEMON_DOWN then. */
EDGE_API int edge_queue_open(edge_device *dev, edge_queue **queue, int timeout_ms);
EDGE_API int edge_queue_serve(edge_queue *queue, edge_conn *conn, int timeout_ms);
EDGE_API int edge_queue_post(edge_queue *queue, const edge_work *work, edge_op *op); /* of an EDGE_RECEIVE */
/* Gives a connection that is asked for a buffer, or has it take from a queue, before it is accepted: its first message
 * finds one. When the request is refused, or its peer gives up, the buffers come back with an error and no conn. They
 * need EDGE_FEATURE_EARLY. */
EDGE_API int edge_request_post(edge_request *request, const edge_work *work, edge_op *op);
EDGE_API int edge_request_serve(edge_request *request, edge_queue *queue, int timeout_ms);
/* Ends the queue and frees it; its buffers come back with EDGE_ERR_PEER_CLOSED. EDGE_ERR_BUSY: connections take from
 * it. Before edge_device_close. */
EDGE_API int edge_queue_close(edge_queue *queue, int timeout_ms);

/* Messages that travel while they are composed. edge_compose begins a write or send of local memory, 1 to
 * EDGE_MAX_EAGER bytes; flags and imm are said to edge_commit. The memory is the message's until it is done, but the
 * caller may write it until edge_commit, in any order and as often as it likes. edge_wrote says what is written, so
 * that it may travel, into memory that the peer's program cannot see; what is written again is said again, and what
 * was never said travels with the commit. edge_commit publishes the first size bytes, at once and in the order of
 * commits: from then on *op is an operation like any other, whose bytes must not change. edge_discard drops the message
 * instead: it ends with EDGE_ERR_ABORTED.
 *
 * *op is the message from the beginning, takes the place of an operation, and has one completion, if work has a
 * context. A connection can have 16 that are neither committed nor discarded; edge_conn_close waits for them. All
 * four return at once; EDGE_ERR_AGAIN: the queue is full, say it again. With another error than that, EDGE_ERR_INVALID
 * or EDGE_ERR_BOUNDS, edge_wrote, edge_commit and edge_discard tell that the message has ended. */
enum { EDGE_MAX_EAGER = 1 << 16 };
EDGE_API int edge_compose(edge_conn *conn, const edge_work *work, edge_op *op);
EDGE_API int edge_wrote(const edge_op *op, size_t off, size_t size);
EDGE_API int edge_commit(const edge_op *op, size_t size, uint32_t flags, uint32_t imm);
EDGE_API int edge_discard(const edge_op *op);

/* A write of the peer with EDGE_NOTIFY is complete in our memory. */
typedef struct edge_notification {
	edge_export *export_; /* that was written to; NULL if it was revoked meanwhile */
	uint64_t off;         /* of the first byte, within the export */
	uint32_t size;        /* in bytes */
	uint32_t imm;
} edge_notification;

/* Takes the oldest notification, waiting for one: those before the connection's end, then the reason of the end. */
EDGE_API int edge_notify_wait(edge_conn *conn, edge_notification *notification, int timeout_ms);

/* --- streams: bytes in both directions, as TCP has them (PROTOCOL clause 11) --- */
/* Pins the memory of the next stream, unless there is some to spare, and does not wait for that. */
EDGE_API void edge_stream_reserve(edge_device *dev);
/* Connects to a stream service at a node. The start returns at once with a stream that edge_stream_wait and
 * edge_stream_events tell of. edge_stream_wait: 0 once connected, EDGE_ERR_AGAIN or why it failed. */
EDGE_API int edge_stream_dial(edge_device *dev, const char *peer, const char *service, const edge_dial_options *options,
                              edge_stream **stream, int timeout_ms);
EDGE_API int edge_stream_dial_start(edge_device *dev, const char *peer, const char *service,
                                    const edge_dial_options *options, edge_stream **stream, int timeout_ms);
EDGE_API int edge_stream_wait(edge_stream *stream, int timeout_ms);
/* Offers a stream service; close it by edge_listener_close. Up to backlog streams are made ready before they are
 * asked for (0: 16), each with pinned buffers. */
EDGE_API int edge_stream_listen(edge_device *dev, const char *service, uint32_t backlog, edge_listener **listener,
                                int timeout_ms);
EDGE_API int edge_stream_accept(edge_listener *listener, edge_stream **stream, int timeout_ms);

/* Returns up to size bytes, as many as are there, once there are any; 0 after all that the peer wrote before it
 * closed. edge_stream_peek leaves them there. */
EDGE_API ssize_t edge_stream_read(edge_stream *stream, void *p, size_t size, int timeout_ms);
EDGE_API ssize_t edge_stream_peek(edge_stream *stream, void *p, size_t size, int timeout_ms);
/* Gives the bytes to the transport and returns how many: all, or fewer when time is over or the stream ends. Like
 * TCP, it returns before the peer has them. */
EDGE_API ssize_t edge_stream_write(edge_stream *stream, const void *p, size_t size, int timeout_ms);
/* Like edge_stream_write, of bytes that fill puts into the stream's registered memory, which saves a copy. fill puts up
 * to size bytes, those from offset at of the whole on, and returns how many: fewer at their end, 0 or less if there are
 * none, and then the call returns what was given before. fill may be asked for the same bytes again, and must not use
 * the stream. */
EDGE_API ssize_t edge_stream_fill(edge_stream *stream, ssize_t (*fill)(void *arg, size_t at, void *to, size_t size),
                                  void *arg, size_t size, int timeout_ms);
/* Tells the peer that nothing more is written; it reads 0 after the rest. Reading goes on. It does not wait. */
EDGE_API int edge_stream_shutdown(edge_stream *stream);
/* Ends the stream at once, for other threads too; the peer's calls fail with EDGE_ERR_RESET. Free it by close. */
EDGE_API void edge_stream_reset(edge_stream *stream);
/* Ends the stream in both directions and frees it. What was written is sent on for up to linger_ms (negative: 5000)
 * while functions of the device run, then the connection is cut. The call waits for none of it: edge_device_close
 * does. */
EDGE_API void edge_stream_close(edge_stream *stream, int linger_ms);

/* What can be done without waiting, in the bits of poll(2): POLLIN (data or the end), POLLOUT, POLLRDHUP (the peer
 * writes no more), POLLHUP (over in both directions), POLLERR. */
EDGE_API int edge_stream_events(edge_stream *stream);
/* Why the stream ended or is no stream, 0 while it works, EDGE_ERR_AGAIN while it connects: SO_ERROR by edge_errno. */
EDGE_API int edge_stream_error(edge_stream *stream);
EDGE_API size_t edge_stream_readable(edge_stream *stream); /* bytes to read: FIONREAD */
EDGE_API size_t edge_stream_writable(edge_stream *stream); /* bytes for which there is room */
EDGE_API size_t edge_stream_unsent(edge_stream *stream);   /* bytes written that the peer has not read: SIOCOUTQ */
/* Bounds what is written and not read by the peer, in bytes, as SO_SNDBUF does; 0: as much as the peer has room for.
 * The peer tells what it has read by the quarter of its ring, so a bound below a quarter counts as a quarter. */
EDGE_API void edge_stream_bound(edge_stream *stream, size_t bytes);

#define EDGE_STREAM_OPENING 256 /* bytes */
/* Several streams on one connection, one after the other (PROTOCOL clause 11.9), for programs that set up many. Both
 * ends must do this; else the end of the other one shows as that of a stream. Not while another thread is in a call on
 * the stream. edge_stream_rest ends the stream in both directions, as edge_stream_close does, but leaves it and its
 * connection to the caller; EDGE_ERR_BUSY: not everything was read, or it is not open; or why it ended. begins: this
 * end is to begin the next stream, and not the peer, as is agreed. edge_stream_resting: 0 when it may, or the peer
 * may; EDGE_ERR_AGAIN until then, or why the connection ended. edge_stream_begin begins it with 1 to
 * EDGE_STREAM_OPENING bytes for the peer's program, copied at once. EDGE_ERR_AGAIN: it does not rest, or there is no
 * room now. edge_stream_wait is 0 when the peer has taken it. edge_stream_opening copies the bytes by which the peer
 * has begun one to the caller's memory of EDGE_STREAM_OPENING and returns how many; 0: it has not, or they were
 * answered. edge_stream_take answers; EDGE_ERR_AGAIN: no room now. */
EDGE_API int edge_stream_rest(edge_stream *stream, int begins);
EDGE_API int edge_stream_resting(edge_stream *stream);
EDGE_API int edge_stream_begin(edge_stream *stream, const void *data, size_t size);
EDGE_API size_t edge_stream_opening(edge_stream *stream, void *to);
EDGE_API int edge_stream_take(edge_stream *stream);
/* Has what happens to the stream wake who sleeps on the word; NULL: make the descriptor readable, as at first. While it
 * is aimed at a word, calls that wait for it with a timeout, and edge_device_drain, may notice up to 2 s late. */
EDGE_API void edge_stream_aim(edge_stream *stream, edge_word *word);
EDGE_API const char *edge_stream_peer(const edge_stream *stream);
EDGE_API const char *edge_stream_service(const edge_stream *stream);
EDGE_API const void *edge_stream_data(const edge_stream *stream, size_t *size); /* of the dialler's options */
EDGE_API edge_device *edge_stream_device(const edge_stream *stream);
/* Its connection, for exports, imports and operations beside its bytes, of which one with EDGE_BACKWARD_FENCE comes
 * after the bytes written before, and before those written after. It is the stream's to close and to free; a
 * notification on it, or a failure of an operation, ends the stream. The name "stream" is taken. */
EDGE_API edge_conn *edge_stream_conn(const edge_stream *stream);

/* Has edge_changed return context when something changes: data, room, a connection to accept, the end. NULL ends
 * that. This is how a program with thousands of streams learns which of them to look at. */
EDGE_API void edge_stream_watch(edge_stream *stream, void *context);
EDGE_API void edge_listener_watch(edge_listener *listener, void *context);
EDGE_API int edge_listener_pending(edge_listener *listener); /* connections to accept without waiting */
/* Takes up to n contexts of what changed since it was last returned here, each once; returns how many. It looks at
 * nothing: edge_device_poll comes first. */
EDGE_API int edge_changed(edge_device *dev, void **contexts, size_t n);

#ifdef __cplusplus
}
#endif
#endif
