package op

import (
	"math"

	"multiedge/internal/abi"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The sending half of messages (clause 14). A send has its number among the connection's operations from the moment
// that the peer is known to have a buffer for it. Until then it waits here, without a place in any window, and with it
// what fences put behind it: later sends, operations with a backward fence, and all that follow one with a forward
// fence. Others pass by. The receiving half is receive.go.

// NoWait, as Op.Patience of a send, says that it fails where it finds no buffer (clause 14.6).
const NoWait = math.MaxUint64

// strict marks a send that does not wait. Its bit is that of the segment's flag.
const strict OpFlags = wire.SegStrict

// messages is what a connection knows of messages, from the first on.
type messages struct {
	out sending
	in  receiving
}

// sending is our messages.
type sending struct {
	next    uint32 // number of the next
	credits uint32 // number of the first that the peer has no buffer for, or next
	shared  bool   // the peer takes buffers from a queue that others use too: they must be asked for
	asked   uint32 // credits were asked for up to this number, or next
	queue   queue.Queue[sendOp]
	forward int  // of queue: those with a forward fence
	listed  bool // the connection is in Endpoint.timed
}

// messages returns c.msgs, made when it is used for the first time.
func (c *Conn) messages() *messages {
	if c.msgs == nil {
		c.msgs = &messages{}
	}
	return c.msgs
}

// waiting returns how many operations wait for a buffer of the peer's.
func (c *Conn) waiting() int {
	if c.msgs == nil {
		return 0
	}
	return c.msgs.out.queue.Len()
}

// number makes a send the next message.
func (m *messages) number(o *sendOp) {
	o.op.Flags &^= strict
	if o.op.Patience == NoWait {
		o.op.Flags |= strict
	}
	o.key, o.op.Off = uint64(m.out.next), 0
	m.out.next++
	m.out.credits, m.out.asked = atLeast(m.out.credits, m.out.next), atLeast(m.out.asked, m.out.next)
}

// mayLeave reports whether op waits for no buffer.
func (m *sending) mayLeave(op *Op) bool {
	return op.Kind != OpSend || op.Patience == NoWait || int32(m.credits-m.next) > 0
}

// mustWait queues an operation that a buffer of the peer's is missing for, or a fence puts behind one that waits.
func (c *Conn) mustWait(now mono.Time, op *Op) bool {
	m := c.messages()
	if m.out.queue.Len() == 0 {
		if m.out.mayLeave(op) {
			return false
		}
	} else if op.Kind != OpSend && m.out.forward == 0 && op.Flags&BackwardFence == 0 && !c.ordered {
		return false
	}
	n := uint64(max(len(op.Local), int(op.Inline)))
	if op.Pieces != nil {
		n = op.Pieces.Size
	}
	m.out.queue.Push(sendOp{op: *op, n: n, since: now})
	if m.out.queue.Len() > firstRing {
		c.e.grew(c)
	}
	if op.Flags&ForwardFence != 0 {
		m.out.forward++
	}
	if op.Kind == OpSend {
		c.e.Count.Op.SendsWaited++
		if op.Patience != 0 && op.Patience != NoWait {
			c.e.notBefore(c, now.Add(patience(op)))
		}
	}
	c.ask()
	return true
}

// ask asks for buffers of a shared queue, as many as operations wait (clause 14.5).
func (c *Conn) ask() {
	if m := c.msgs; m.out.shared && m.out.queue.Len() > 0 && int32(m.out.wanted()-m.out.asked) > 0 {
		m.out.asked = m.out.wanted()
		c.ctl |= ctlWant
		c.wake()
	}
}

// wanted is the number up to which buffers are needed for what waits.
func (m *sending) wanted() uint32 { return m.next + uint32(m.queue.Len()) }

// onCredit takes news of the peer's buffers. It reports whether the frame may count as received.
func (c *Conn) onCredit(g *wire.Segment) bool {
	m := c.messages()
	if ahead := int32(g.Limit - m.out.next); ahead > maxCredit {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	m.out.shared = g.Flags&wire.CreditShared != 0
	m.out.credits = atLeast(m.out.credits, g.Limit)
	c.enterWaiting()
	c.ask()
	return true
}

// maxCredit is the most buffers that one connection can be promised.
const maxCredit = 1 << 16

// enterWaiting gives numbers to those at the front that wait for nothing any more.
func (c *Conn) enterWaiting() {
	m := c.msgs
	for m.out.queue.Len() > 0 && m.out.mayLeave(&m.out.queue.Front().op) {
		o := *m.out.queue.Front()
		m.out.queue.Pop()
		m.out.left(&o)
		c.enter(&o.op, o.since)
	}
}

// left notes that an operation waits no more.
func (m *sending) left(o *sendOp) {
	if o.op.Flags&ForwardFence != 0 {
		m.forward--
	}
}

// failWaiting ends everything that waits.
func (c *Conn) failWaiting(st abi.Status) {
	for c.waiting() > 0 {
		o := *c.msgs.out.queue.Front()
		c.msgs.out.queue.Pop()
		c.giveUp(&o, st)
	}
}

// giveUp ends an operation that had no number yet.
func (c *Conn) giveUp(o *sendOp, st abi.Status) {
	e := c.e
	c.msgs.out.left(o)
	e.Count.Op.OpsCompleted++
	e.Count.Op.OpsFailed++
	if o.op.Region != nil {
		o.op.Region.InFlight--
	}
	if o.op.Pieces != nil {
		o.op.Pieces.Use(-1)
	}
	if k := o.op.eager; k != nil {
		c.undraft(k)
		e.putCompose(k)
	}
	c.send.pending--
	e.Emit(Event{Kind: EvComplete, Conn: c.ID, Token: o.op.Token, Status: st})
}
