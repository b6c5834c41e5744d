/* A request that the caller waits for, whose reply is a number at most (ABI A5.12, A5.24). */
#include <stdlib.h>

#include "control.h"
#include "waiting.h"

struct asked {
	bool done, left; /* left: the caller has gone; the handler frees it */
	int err;
	uint64_t made;
};

/* The number of what the daemon made, or 0. */
static uint64_t made_by(const union abi_packet *m)
{
	switch (m->h.kind) {
	case ABI_EXPORT: return m->exported.key;
	case ABI_QUEUE: return m->queue.queue;
	}
	return 0;
}

/* Ends what was made: nobody knows of it. */
static void unmake(edge_device *d, enum abi_kind kind, uint64_t made)
{
	if (kind == ABI_EXPORT)
		control_tell(d, &(struct abi_revoke){ .key = made }, sizeof(struct abi_revoke), ABI_REVOKE);
	else
		control_tell(d, &(struct abi_queue){ .queue = (uint32_t)made }, sizeof(struct abi_queue), ABI_UNQUEUE);
}

static void answered(edge_device *d, struct call *call, int err, const union abi_packet *m, int *fd)
{
	(void)fd;
	struct asked *a = call->obj;
	uint64_t made = err == 0 && m != NULL ? made_by(m) : 0;
	if (!a->left) {
		*a = (struct asked){ .done = true, .err = err, .made = made };
		news(d);
		return;
	}
	if (made != 0)
		unmake(d, m->h.kind, made);
	free(a);
}

static bool is_answered(void *arg)
{
	return ((struct asked *)arg)->done;
}

/* Sends a request and waits for the reply. made, unless NULL, gets the key or queue that the daemon made; if the caller
 * gives up, it is ended when the reply comes. */
int ask(edge_device *d, void *packet, size_t size, enum abi_kind kind, uint64_t *made, int64_t until)
{
	struct asked *a = calloc(1, sizeof *a);
	int err = a == NULL ? EDGE_ERR_NO_MEMORY : control_send(d, packet, size, kind, -1, answered, a, 0);
	if (err != 0) {
		free(a);
		return err;
	}
	err = wait_for(d, is_answered, a, answer_by(until));
	if (!a->done) {
		a->left = true;
		return err;
	}
	err = a->err;
	if (err == 0 && made != NULL)
		*made = a->made;
	free(a);
	return err;
}
