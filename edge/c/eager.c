/* Composed messages: one is the operation that it becomes, from its beginning (ABI A6.17). */
#include "ring.h"
#include "verbs.h"

static int compose(edge_conn *c, const edge_work *w, edge_op *op)
{
	edge_device *d = c->d;
	struct abi_sqe e;
	int err = conn_usable(c);
	if (err == 0)
		err = check_feature(d, EDGE_FEATURE_EAGER, "composed messages");
	if (err != 0)
		return err;
	if ((w->kind != EDGE_WRITE && w->kind != EDGE_SEND) || w->flags != 0 || w->imm != 0 || w->local == NULL ||
	    w->inline_size > 0 || w->npieces > 0)
		return fail(EDGE_ERR_INVALID, "edge_compose takes a write or send of local, local_off and size; flags and imm "
		            "belong to edge_commit");
	if (w->size < 1 || w->size > EDGE_MAX_EAGER)
		return fail(EDGE_ERR_TOO_LONG, "a composed message has 1 to %d bytes, not %zu", EDGE_MAX_EAGER, w->size);
	err = work_encode(c, w, &e);
	if (err == 0 && w->local->kind == GRANTED)
		err = fail(EDGE_ERR_INVALID, "a message is composed in memory of edge_register, not of edge_grant");
	if (err != 0)
		return err;
	if (!op_room(c, 1))
		return EDGE_ERR_AGAIN;
	e.op = ABI_OP_COMPOSE;
	err = op_launch(d, c, w, &e, op);
	if (err == 0) {
		d->ops->slots[op->slot].composing = (uint32_t)w->size;
		ring_publish(d);
	}
	return err;
}

int edge_compose(edge_conn *c, const edge_work *w, edge_op *op)
{
	enter(c->d);
	int err = compose(c, w, op);
	if (err == EDGE_ERR_AGAIN && pump(c->d, false) > 0)
		err = compose(c, w, op);
	return leave(c->d, err);
}

static int put(const edge_op *op, struct abi_sqe *e)
{
	edge_device *d = op->dev;
	if (d->dead != 0)
		return d->dead;
	struct slot *s = &d->ops->slots[op->slot];
	int err = op_settled(op) ? op_result(op) : 0;
	if (err != 0)
		return err;
	if (op_settled(op) || s->composing == 0)
		return fail(EDGE_ERR_INVALID, "the message is committed or discarded already");
	if (e->u.local.off > s->composing || e->u.local.length > s->composing - e->u.local.off)
		return fail(EDGE_ERR_BOUNDS, "%llu bytes at %llu, of a message of %u", (unsigned long long)e->u.local.length,
		            (unsigned long long)e->u.local.off, s->composing);
	if (!ring_room(d->ring, 1))
		return EDGE_ERR_AGAIN;
	e->conn = s->conn->id;
	e->token = op_key(op);
	if (e->op != ABI_OP_WROTE)
		s->composing = 0;
	ring_put(d->ring, e);
	ring_publish(d);
	return 0;
}

/* Says something about a message. */
static int say(const edge_op *op, struct abi_sqe *e)
{
	if (op->dev == NULL)
		return fail(EDGE_ERR_INVALID, "this is no message: edge_compose makes one");
	enter(op->dev);
	int err = put(op, e);
	if (err == EDGE_ERR_AGAIN && pump(op->dev, false) > 0)
		err = put(op, e);
	return leave(op->dev, err);
}

int edge_wrote(const edge_op *op, size_t off, size_t size)
{
	return say(op, &(struct abi_sqe){ .op = ABI_OP_WROTE, .u.local = { .off = off, .length = size } });
}

int edge_commit(const edge_op *op, size_t size, uint32_t flags, uint32_t imm)
{
	if ((flags & ~(uint32_t)(EDGE_BACKWARD_FENCE | EDGE_FORWARD_FENCE | EDGE_NOTIFY)) != 0)
		return fail(EDGE_ERR_INVALID, "edge_commit takes fences and EDGE_NOTIFY, not flags %u", flags);
	return say(op, &(struct abi_sqe){ .op = ABI_OP_COMMIT, .flags = (uint8_t)flags,
		.imm = flags & EDGE_NOTIFY ? imm : 0, .u.local.length = size });
}

int edge_discard(const edge_op *op)
{
	return say(op, &(struct abi_sqe){ .op = ABI_OP_DISCARD });
}
