/* The rings of submissions and completions (ABI A6). */
#ifndef EDGE_RING_H
#define EDGE_RING_H

#include "base.h"

struct ring {
	char *map;
	size_t size;
	char *sq, *cq;
	uint32_t sq_entries, cq_entries;
	uint32_t tail, head; /* ours: submissions made, completions taken */
	uint32_t taken;      /* sq_head as it was last seen */
	struct bell *submit; /* NULL: none yet */
	int watch;
	bool broken;
	bool peeked; /* by threads without the lock: ring_peek */
	uint32_t awaits; /* as the daemon was told, how many operations are to end before it wakes us (A8.8) */
	bool dozes; /* as the daemon was told: completions of operations are no reason to wake (A8.3) */
};

void full_fence(void);
int ring_map(struct ring *r, int memfd, const struct abi_hello_reply *m);
void ring_close(edge_device *d, bool mapped);
bool ring_room(struct ring *r, uint32_t entries);
void ring_put(struct ring *r, const void *e);
void ring_publish(edge_device *d);
bool ring_ready(const struct ring *r);
bool ring_peek(const struct ring *r);
enum ring_sleep { RING_AWAKE, RING_ASLEEP, RING_DOZING };
void ring_sleep(struct ring *r, enum ring_sleep how);
void ring_await(struct ring *r, uint32_t operations);
bool ring_stir(struct ring *r);
bool ring_rang(struct ring *r);
enum ring_polling { RING_NOT_POLLING, RING_POLLS, RING_POLLS_FOR_PEER };
void ring_polling(struct ring *r, enum ring_polling how);
uint32_t ring_pulse(const struct ring *r);
uint32_t ring_told(const struct ring *r);
int ring_drain(edge_device *d);

#endif
