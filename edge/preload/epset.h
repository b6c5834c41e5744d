/* What epoll.c and sets.c share. By guard. */
#ifndef EDGE_PRELOAD_EPSET_H
#define EDGE_PRELOAD_EPSET_H

#include "preload.h"

enum { DESCRIPTORS = 1 << 20 };

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

#endif
