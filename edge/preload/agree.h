/* How both ends agree to leave TCP, and what is shared with children. */
#ifndef EDGE_PRELOAD_AGREE_H
#define EDGE_PRELOAD_AGREE_H

#include "sock.h"

/* upgrade.c: by guard, but what says otherwise. */
bool device_ready(void);
void device_ahead(void);                  /* begins to attach. Unlocked */
extern _Atomic unsigned progresses;       /* how often it was called */
void progress(void);                      /* takes what happened, wakes who waits for it */
void become_plain(struct sock *s, const char *why);
void become_stream(struct sock *s);       /* whatever it has to send */
void when_ready(struct sock *s);          /* the stream is open: may be STREAM now */
void renumbered(struct sock *s, int fd);  /* another one of its descriptors; -1: it has none any more */
void finish(struct sock *s);              /* the last descriptor was closed; it goes on if it is orphan then */
void upgrade_after_fork(void);
int offer_service(struct sock *s);        /* s->service */
bool watch_tcp(struct sock *s, uint32_t what); /* the hub tells of it, in arrived. false: it cannot */
void unwatch_tcp(struct sock *s);
/* Whether what arrived shows that TCP is used, or broken. Its end without bytes does not: the other side may have used
 * a stream, and closed it, which we hear later. */
bool tcp_used(struct sock *s);
void bound_stream(struct sock *s);        /* SO_SNDBUF may have changed */
/* Ends the TCP connection of the number fd (-1: none) and says why; s becomes FOREIGN, if it is not NULL. */
void forbid(int fd, struct sock *s, const char *why);
/* Addresses, and names made of them. */
void write_end(char *to, size_t size, const union address *a);
void name_offer(struct sock *s, const union address *from, const union address *to);
bool split(const char *tuple, union address *from, union address *to);
bool both_ends(int fd, union address *local, union address *remote);
bool anonymous(const union address *a);
bool same_address(const union address *a, const union address *b);
size_t said(unsigned char *to, unsigned char kind, const unsigned char *word, const char *tuple);

/* Sleeps until s has one of the events, and more than so many bytes to read unless that is 0, or until. 0 or an errno:
 * EINTR, ETIMEDOUT. Unlocked. */
int wait_for(struct sock *s, int want, size_t more, int64_t until);
void table_withdraw(const char *why);     /* what is not a stream yet stays with TCP */

/* connector.c, by guard */
#define FOLD 14695981039346656037u
uint64_t fold(uint64_t h, const void *p, size_t n); /* FNV-1a */
bool offer(int fd, bool nonblock, struct sock **s, const union address *to);
void withdraw(struct sock *s);            /* the offer of a socket whose connect failed */
bool watch_connect(struct sock *s);       /* the hub tells when TCP is connected. false: it cannot */
void connected(struct sock *s);
void look_at_offer(struct sock *s);
bool unanswered(const struct sock *s);    /* OFFERED, and the other side has no stream, as far as is known */

/* acceptor.c, by guard */
extern struct sock *listeners;
void list(struct sock *s);                /* a new LISTENING one */
void learn_bound(struct sock *l);         /* its address and options, when it is new and after each change */
void unlist(struct sock *s);
void enlist(struct sock *s);              /* the process waits for connections: offers tcp/PORT, unless somebody does */
void enlist_early(struct sock *s);        /* the same before it waits */
void answer_probes(struct sock *s);
bool covered(const union address *to);    /* a listening socket of ours takes connections to it */
int port_of(const struct sock *s);        /* at which a connection was accepted */
bool accepts_alone(int port);             /* this process has tcp/PORT, and no other one the listening socket */
void pass_on(void);                       /* after fork, in the parent */
void acceptor_after_fork(void);
void begin(struct sock *s);               /* first use of an accepted socket */
void adopt(int fd, bool nonblock, const struct sock *from); /* accepted; NULL: by another process. Unlocked */
void look_at_dial(struct sock *s);
void hear(const char *peer, const char *tuple, const unsigned char *nonce); /* of a probe */
/* Whether a nonce was heard just now, of this connection, then. An older one was of an earlier one: it is forgotten. */
bool heard_lately(const char *peer, const char *tuple);
void stays(const struct sock *s);         /* with TCP: whoever begins a stream for it learns that */
bool stayed(const char *peer, const char *tuple);

/* held.c, by guard */
size_t held_room(struct sock *s);         /* bytes that can be kept */
size_t keep(struct sock *s, const struct iovec *v, size_t n); /* of an undecided socket: how many were kept */
bool held_to_stream(struct sock *s);      /* false: the stream has no room for all of them yet */
void held_to_tcp(struct sock *s);
void drive_on(void);                      /* has that happen though the program calls nothing more */
void drop_held(struct sock *s);
bool holds(struct sock *s, size_t n);     /* n bytes can be kept, however long the other side takes */
int64_t time_limit(int fd, int option);   /* when a call that begins now ends by SO_RCVTIMEO or SO_SNDTIMEO */
/* settle for a call that waits, and writes so many bytes. EINPROGRESS: they can be kept. Unlocked. */
int settle_for(struct sock *s, int fd, int option, size_t bytes);
void leave_alone(struct sock *s);         /* its program does not wait: the other side decides soon, or TCP is used */
bool must_outlive(const struct sock *s);
int outlive(struct sock *s);              /* the program closes it before the verdict: a descriptor of ours, or -1 */
void held_after_fork(void);
void settle_all(int64_t until);           /* unlocked: before the process ends */

/* shared.c */
void share_tidy(void);                    /* unlocked, before each fork */
void share_before_fork(void);             /* by guard */
void share_forked(void);                  /* by guard, in the parent */
void share_after_fork(void);              /* then, unlocked */
bool share_inherited(const struct sock *s); /* in the child: it is SHARED now */
void share_in_child(void);
void share_settle(int64_t until);         /* unlocked, before the process ends */
void share_close_all(void);               /* by guard */
bool share_drain(struct sock *s);         /* what children wrote goes on the stream. false: it has no room for all */
/* As edge_stream_read (flags: MSG_PEEK), of one that is SHARED, and _write, also while children have it. */
ssize_t share_read(struct sock *s, void *p, size_t n, int flags);
ssize_t share_write(struct sock *s, const void *p, size_t n);
/* Of one that is SHARED. */
int share_wait(struct sock *s, int want, int64_t until); /* 0 or an errno: EINTR, ETIMEDOUT. Unlocked */
int share_number(const struct sock *s);   /* the kernel's descriptor that is ready when the socket is */
void share_ask(struct sock *s);           /* the program is to learn when there is something to read */
int share_epoll(struct sock *s, int set, int op, struct epoll_event *e);
void share_shut(struct sock *s);          /* for writing */
void share_end(struct sock *s);           /* by guard */

/* rest.c, by guard: streams that ended well at both ends and are used again. */
bool rest_keep(struct sock *s);           /* takes the stream of a socket that is closed. false: it is to be closed */
/* Connector: waits for a moment if the stream of a connection to name that has just been closed is about to be such a
 * one, which costs less than a new one does. Lets go of guard meanwhile. Programs whose connect does not wait have
 * others to serve, and mostly several connections, of which some are there. */
void rest_await(const char *peer, const char *name);
bool rest_reuse(struct sock *s);          /* connector: gives s, which has its tuple, such a stream */
bool rest_claim(struct sock *s);          /* acceptor: gives s the one that the other side has begun for it */
bool rest_expected(const struct sock *s); /* acceptor: the other side may be about to, */
void rest_unused(const struct sock *s);   /* acceptor: that one is not taken */
void rest_passed(struct sock *s);         /* another process gets the socket: a stream of it is not used again */
bool rest_forsaken(void);                 /* or did so in vain, and offers its own now */
bool rest_is(const void *context);        /* of edge_changed, which then goes to rest_changed */
void rest_changed(void *context);
void rest_look(int64_t now);              /* closes what is too old, */
int64_t rest_next(void);                  /* then */
void rest_close_accepted(void);           /* the process may not be the only one any more that accepts */
void rest_close_all(void);
void rest_after_fork(void);

/* early.c, by guard: streams that are dialled at the owner of the port. */
#define OFFER "connect by TCP, and offer a stream" /* the refusal of a probe that was heard */
/* false: it cannot. */
bool early_hold(edge_request *r, const char *peer, const char *tuple, const unsigned char *nonce);
bool early_claim(struct sock *s);         /* acceptor: gives s the one that the other side has dialled for it */
void early_unused(const struct sock *s);  /* acceptor: that one is not taken here */
bool early_close_all(void);               /* the process may not be the only one any more. Whether there were any */
void early_look(int64_t now);
int64_t early_next(void);
void early_after_fork(void);

/* owner.c */
bool may_hold(const struct sock *s, uint32_t uid); /* the other end's socket, if it is in this namespace */
bool same_secret(const unsigned char *a, const unsigned char *b); /* and is one: not zeros */

/* upgrade.c: by guard, but what says otherwise. */
int64_t next_verdict(void);
/* Brings an undecided socket to STREAM or PLAIN. 0; or an errno: EINTR, EAGAIN, at once if it is not to wait, or then,
 * or as soon as so many bytes can be kept (0: no matter). Unlocked. */
int settle(struct sock *s, bool nonblock, int64_t until, size_t bytes);
/* Bits of poll(2) of a decided or undecided socket, without those of TCP. By guard. */
int events(struct sock *s);

#endif
