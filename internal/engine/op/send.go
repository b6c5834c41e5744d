package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/op/message"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// Sends: local memory, or a few bytes by value, to the oldest buffer that the peer posted (clause 14). They leave as
// writes do; where a write has a key and an offset, a send has the number of its message and a place in it.

func init() {
	addKind(OpSend, opKind{request: wire.KindSend, next: wire.KindSendNext, emit: emitWrite, deliver: deliverSend,
		complete: completeSend})
}

// mostMessage is how many bytes a message has at most (clause 14.1).
const mostMessage = 1 << 31

// deliverSend puts a part into the message's buffer, and applies the operation with the last of them.
func deliverSend(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	const whole = wire.SegFirst | wire.SegLast
	a, received := c.arrival(now, o, g)
	if a == nil {
		return received, nil
	}
	lo, n, size := g.place, uint64(len(g.data)), min(a.Size(), mostMessage)
	switch {
	case lo > size || n > size-lo:
		c.tooLong(now, o, g.op, a)
		return true, nil
	case n == 0:
	case o.got.Covers(lo, lo+n):
		c.e.Count.Loss.SegmentsDuplicated++
	case !c.fits(&o.got, lo, lo+n):
		c.e.Count.Reject.RejectedNoRoom++
		return false, nil
	default:
		if a.Pieces == nil {
			c.deliver(a.Local[lo:lo+n], g, g.flags&whole == whole)
		} else {
			c.e.deliverPieces(a.Pieces, lo, g)
		}
		c.add(&o.got, lo, lo+n)
	}
	o.state = ropPartial
	o.flags |= g.flags &^ wire.SegNotify // it has a completion of its own
	if g.flags&wire.SegLast != 0 {
		o.last = lo + n
		a.Arrived = Arrived{Len: uint32(o.last)}
		if g.flags&wire.SegNotify != 0 {
			a.Imm, a.HasImm = g.imm, true
		}
	}
	if o.flags&whole == whole && o.got.Is(0, o.last) {
		c.arrived(now, o, g.op, a)
	}
	return true, nil
}

// arrival returns the buffer of the message that g is of. Without one nothing more is to be done, and received reports
// whether the segment may count as received.
func (c *Conn) arrival(now mono.Time, o *recvOp, g *segment) (a *message.Arrival, received bool) {
	m, number := c.messages(), uint32(g.key)
	if o.state == ropNone {
		o.key = g.key
	}
	if g.flags&wire.SegStrict != 0 && m.in.Lacks(number) {
		c.unbuffered(now, o, g.op)
		return nil, true
	}
	a, there := m.in.Take(number, g.op)
	switch {
	case !there: // strict, and the next: others wait (decided)
		c.unbuffered(now, o, g.op)
		return nil, true
	case a == nil || o.key != g.key: // no peer that counts right sends it
		c.e.Count.Reject.RejectedMalformed++
		return nil, false
	}
	return a, true
}

// arrived hands a message that is whole to its owner, and applies its operation.
func (c *Conn) arrived(now mono.Time, o *recvOp, op seqnum.Value, a *message.Arrival) {
	c.settle(op, false)
	c.e.Count.Op.MessagesReceived++
	c.dropHeld(o) // or what filled releases would apply it, before apply does
	c.filled(now, a)
	c.apply(now, o, op, o.last)
}

// tooLong refuses a message that its buffer does not take.
func (c *Conn) tooLong(now mono.Time, o *recvOp, op seqnum.Value, a *message.Arrival) {
	c.settle(op, false)
	c.e.Count.Op.MessagesTooLong++
	a.Status = abi.StatusTooLong
	c.refuseOp(o, op, abi.StatusTooLong)
	c.filled(now, a)
}

// unbuffered refuses a strict message, the next of all, that has no buffer.
func (c *Conn) unbuffered(now mono.Time, o *recvOp, op seqnum.Value) {
	c.e.Count.Op.MessagesUnbuffered++
	c.refuseOp(o, op, abi.StatusNoBuffer)
	if c.msgs.in.Skip() {
		c.tellCredit(now)
	}
}

func completeSend(c *Conn, now mono.Time, op seqnum.Value, st abi.Status) (referred []byte) {
	o := c.sop(op)
	if st != OK {
		return o.op.Local
	}
	c.e.Latency.Send.Observe(now.Sub(o.since))
	c.bytesOut += o.n
	return nil
}
