/* Registered memory of the library's own: for inline data, and for what lies in memory that cannot be registered.
 * Blocks come in sizes of powers of two; the smaller ones are cut from common pieces. Given back, they wait for the
 * next. */
#include <stdlib.h>

#include "memory.h"

enum { LEAST = 9, CHUNK = 17, CLASSES = 31 };

static struct stage *unused[CLASSES];

static bool cut(unsigned class)
{
	size_t size = (size_t)1 << class, all = class < CHUNK ? (size_t)1 << CHUNK : size;
	edge_region *r;
	int err = edge_register(lib.dev, all, &r, ASK_MS);
	if (err != 0) {
		say("no memory to copy through: %s", edge_message(err));
		return false;
	}
	for (size_t off = 0; off < all; off += size) {
		struct stage *s = calloc(1, sizeof *s);
		if (s == NULL)
			return off > 0;
		*s = (struct stage){ .region = r, .off = off, .bytes = (char *)edge_region_bytes(r) + off, .class = class };
		stage_put(s);
	}
	return true;
}

struct stage *stage_get(size_t size)
{
	unsigned class = LEAST;
	while (class < CLASSES && (size_t)1 << class < size)
		class++;
	if (class == CLASSES)
		return NULL;
	while (unused[class] != NULL && edge_region_error(unused[class]->region) != 0)
		unused[class] = unused[class]->next; /* of a daemon that has gone */
	if (unused[class] == NULL && !cut(class))
		return NULL;
	struct stage *s = unused[class];
	unused[class] = s->next;
	return s;
}

void stage_put(struct stage *s)
{
	if (s == NULL)
		return;
	s->next = unused[s->class];
	unused[s->class] = s;
}
