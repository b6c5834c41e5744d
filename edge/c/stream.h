/* Streams (PROTOCOL clause 11): stream.c bytes, stream_open.c beginnings and ends. */
#ifndef EDGE_STREAM_H
#define EDGE_STREAM_H

#include "verbs.h"

enum { PIECES = 64 };

struct piece { edge_op op; uint32_t n; };

struct inbound {
	pthread_mutex_t mu; /* one copies at a time; taken before edge_device.mu */
	uint64_t tail, head, granted;
	bool fin;
};

struct outbound {
	pthread_mutex_t mu; /* likewise */
	uint64_t sent, acked, freed;
	bool shut, fin;
	uint32_t oldest, flying, size;
	uint32_t bound; /* of what the peer has not read; 0: its ring's size */
	struct piece pieces[PIECES];
};

enum stream_state { S_MEMORY, S_CONNECTING, S_OPEN };

struct edge_stream {
	edge_device *d;
	edge_conn *c;
	edge_region *region; /* the receive ring, and behind it the send buffer; NULL: not there yet */
	uint32_t ring;
	enum stream_state state;
	int err;       /* a reason of ours for its end, beside that of the connection */
	bool closed;   /* the program is done with it: it lingers */
	bool crowded;  /* a write waits for room for an operation */
	bool awaits;   /* operations that complete make room that it lacks, or end it: await_more */
	bool accepts;  /* it was asked for by the peer */
	uint32_t word, aimed; /* whom its events are to wake (A8.7), and do, as far as the daemon knows; 0: the descriptor */
	size_t skip;   /* of the connection's data, what is not the program's */
	edge_remote *peer;
	struct inbound in;
	struct outbound out;
	int64_t linger_at;
	edge_listener *listener; /* until it is accepted */
	edge_stream *next, **at; /* in edge_listener.ready, or streams.lingering or ended */
	struct edge_watched watch;
	struct job job;
};

struct streams {
	edge_region *spare; /* of streams that ended */
	uint32_t nspare, nstreams;
	edge_stream *lingering, *ended; /* closed by the program: on their way out; to be freed */
	int64_t linger_due;
};

/* stream.c */
void stream_arrived(edge_stream *s, const struct note *n);
void stream_completed(edge_stream *s, int err);
void stream_failed(edge_stream *s, int err);
void stream_await(edge_stream *s, bool on);
bool stream_pay(edge_stream *s);
void stream_advance(edge_stream *s);
void stream_aim(edge_stream *s, uint32_t word);
void stream_cut(edge_stream *s, int err);
int stream_end(const edge_stream *s);

/* stream_open.c */
void stream_step(edge_stream *s);
void stream_linger(edge_device *d, int64_t now);
void stream_reap(edge_device *d);
void streams_forked(edge_device *d);
void spares_drop(edge_device *d);
bool stream_in_flight(const edge_conn *c);

#endif
