/* epoll.c, sets.c and poll.c. By guard unless it says otherwise. */
#ifndef EDGE_PRELOAD_EPSET_H
#define EDGE_PRELOAD_EPSET_H

#include "agree.h"

struct epset {
	struct waiter waiter;
	int fd;                      /* one of its descriptors */
	int descriptors;
	int users;                   /* threads that wait */
	int turn;                    /* rounds since the kernel was asked */
	bool open;                   /* streams may be put into it */
	int shine;                   /* eventfd for those outside; -1: nobody was */
	bool shines;
	struct item *first, **last;  /* perhaps ready */
	struct item *all;
	struct epset *next;          /* of those with shine */
};

struct item {
	struct link link;
	struct epset *set;
	int fd;
	struct epoll_event want;
	bool queued, spent; /* spent: one shot, which was fired */
	struct item *next;  /* in the queue */
	struct item *other, **at; /* of the set */
};

/* sets.c */
struct epset *set_of(int fd); /* NULL: fd is none, as far as is known. Needs no guard */
/* The set, made ours if it is not: what sleeps in it then wakes for streams. NULL: errno says why. */
struct epset *set_claim(int fd);
void set_unused(struct epset *set); /* frees it, unless it has descriptors or threads wait */
void set_show(struct epset *set, bool again); /* has a set with shine be readable, or not */
/* The descriptor of the set into which the socket fd was put before it connected, and one more. -1: several sets. */
int early_in(int fd, struct epoll_event *want);
void early_note(int epfd, int op, int fd, const struct epoll_event *e); /* unlocked */
void early_forget(int fd);

/* epoll.c */
void item_free(struct item *i);
void item_changed(struct item *i);
void item_plain(struct item *i);
void items_drop(struct sock *s);
void epoll_after_fork(void);
void epoll_closed(int fd);
void epoll_range(unsigned first, unsigned last);
void epoll_left(struct epset *set); /* by a thread that waited. By guard */
void epoll_shared(int from, int to);  /* a dup. Unlocked */
bool epoll_watch(int fd);             /* fd is a set that somebody waits on from outside. Unlocked */
void epoll_show(void);                /* has such sets be readable, or not. By guard */
void epoll_moved(int handle, int from); /* by guard */
void epoll_inherit(int fd);           /* one that another process had, or a dup of one of ours. Unlocked */
/* Moves a socket that was put into a set before it connects to our part of the set. false: it cannot. By guard. */
bool epoll_move(struct sock *s, int fd);

/* poll.c, unlocked */
int poll_ours(struct pollfd *p, nfds_t n, int64_t until, const sigset_t *mask);
/* Waits for streams, and for descriptors of the kernel where the sock is NULL. The caller has counts. */
int poll_socks(struct pollfd *p, struct sock **socks, nfds_t n);

#endif
