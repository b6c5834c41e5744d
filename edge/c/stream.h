/* Streams (PROTOCOL clause 11): stream.c bytes, stream_open.c beginnings and ends, stream_memory.c what they lie in,
 * stream_rest.c several streams on one connection. */
#ifndef EDGE_STREAM_H
#define EDGE_STREAM_H

#include "verbs.h"

enum { PIECES = 64 };

#define IMM_DATA (0u << 30)   /* a piece that starts at this position, modulo 2^30, is in the ring */
#define IMM_CREDIT (1u << 30) /* so many bytes more were read */
#define IMM_FIN (2u << 30)    /* the stream ends at this position */
#define IMM_REST (3u << 30)   /* likewise, and the end rests; with bytes: the next stream begins */
#define IMM_KIND (3u << 30)
#define IMM_COUNT ((1u << 30) - 1)

struct piece { edge_op op; uint32_t n; };

struct inbound {
	pthread_mutex_t mu; /* one copies at a time; taken before edge_device.mu */
	uint64_t tail, head, granted, used; /* used: the greatest tail of the streams before on the connection */
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

struct rest { /* stream_rest.c */
	bool asked;       /* the program wants the connection for another stream, */
	bool begins;      /* which this end is to begin */
	bool said, heard; /* Rest, which who is to begin hears and the other end says */
	bool begun;       /* we began the next one, and the peer has not answered */
	uint32_t opening; /* bytes at the beginning of the ring, by which the peer began it; 0: not yet, or answered */
};

enum stream_state { S_MEMORY, S_CONNECTING, S_OPEN };

struct edge_stream {
	edge_device *d;
	edge_conn *c;
	edge_region *region; /* the receive ring, and behind it the send buffer; NULL: not there yet */
	uint32_t ring; /* its size, as out.size that of the buffer; 0: not there yet */
	enum stream_state state;
	int err;       /* a reason of ours for its end, beside that of the connection */
	bool closed;   /* the program is done with it: it lingers */
	bool crowded;  /* a write waits for room for an operation */
	bool awaits;   /* operations that complete make room that it lacks, or end it: await_more */
	bool accepts;  /* it was asked for by the peer */
	uint32_t word, aimed; /* whom its events are to wake (A8.7), and do as the daemon knows; 0: the descriptor */
	size_t skip;   /* of the connection's data, what is not the program's */
	edge_remote *peer;
	struct inbound in;
	struct outbound out;
	struct rest rest;
	int64_t linger_at;
	edge_listener *listener; /* until it is accepted */
	edge_stream *next, **at; /* in edge_listener.ready, or streams.lingering or ended */
	struct edge_watched watch;
	struct job job;
};

struct streams {
	edge_region *spare; /* of streams that ended, or registered in advance */
	struct job ahead;   /* registers one; an obj: it runs */
	edge_stream *heir;  /* waits for that */
	uint32_t nspare, nstreams;
	uint32_t nfurnished; /* of nstreams: that have memory */
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
bool stream_may_post(edge_stream *s);
int stream_post(edge_stream *s, size_t n, uint32_t imm);

/* stream_rest.c */
bool rest_due(const edge_stream *s);
bool rest_arrived(edge_stream *s, uint64_t count, uint32_t len);

/* stream_open.c */
void stream_step(edge_stream *s);
void stream_has_memory(edge_stream *s, int err); /* s->region is there, or why not */
void stream_linger(edge_device *d, int64_t now);
void stream_reap(edge_device *d);
void streams_forked(edge_device *d);
bool stream_in_flight(const edge_conn *c);

/* stream_memory.c */
int memory_get(edge_stream *s); /* stream_has_memory follows, now or later; not after an error */
void memory_keep(edge_stream *s);
void spares_drop(edge_device *d);

#endif
