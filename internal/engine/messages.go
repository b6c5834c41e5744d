package engine

import (
	"math"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// The sending half of messages (clause 14). A send has its number among the connection's operations from the moment
// that the peer is known to have a buffer for it. Until then it waits here, without a place in any window, and with it
// what fences put behind it: later sends, operations with a backward fence, and all that follow one with a forward
// fence. Others pass by. The receiving half is receive.go.

// NoWait, as Op.Off of a send, says that it fails where it finds no buffer (clause 14.6).
const NoWait = math.MaxUint64

// strict marks a send that does not wait. Its bit is that of the segment's flag.
const strict OpFlags = wire.SegStrict

// messages is what a connection knows of messages, from the first on.
type messages struct {
	sending
	receiving
}

// sending is our messages.
type sending struct {
	next    uint32 // number of the next
	credits uint32 // number of the first that the peer has no buffer for, or next
	shared  bool   // the peer takes buffers from a queue that others use too: they must be asked for
	asked   uint32 // credits were asked for up to this number, or next
	queue   queue[sendOp]
	forward int  // of queue: those with a forward fence
	timed   bool // the connection is in Endpoint.impatient
}

// messages returns c.msgs, made when it is used for the first time.
func (c *conn) messages() *messages {
	if c.msgs == nil {
		c.msgs = &messages{}
	}
	return c.msgs
}

// waiting returns how many operations wait for a buffer of the peer's.
func (c *conn) waiting() int {
	if c.msgs == nil {
		return 0
	}
	return c.msgs.queue.len()
}

// number makes a send the next message.
func (m *messages) number(o *sendOp) {
	o.Flags &^= strict
	if o.Off == NoWait {
		o.Flags |= strict
	}
	o.Key, o.Off = regmem.Key(m.next), 0
	m.next++
	m.credits, m.asked = atLeast(m.credits, m.next), atLeast(m.asked, m.next)
}

// mayLeave reports whether op waits for no buffer.
func (m *sending) mayLeave(op *Op) bool {
	return op.Kind != OpSend || op.Off == NoWait || int32(m.credits-m.next) > 0
}

// mustWait queues an operation that a buffer of the peer's is missing for, or a fence puts behind one that waits.
func (c *conn) mustWait(now mono.Time, op *Op) bool {
	m := c.messages()
	if m.queue.len() == 0 {
		if m.mayLeave(op) {
			return false
		}
	} else if op.Kind != OpSend && m.forward == 0 && op.Flags&BackwardFence == 0 && !c.ordered {
		return false
	}
	n := uint64(max(len(op.Local), int(op.Inline)))
	if op.Pieces != nil {
		n = op.Pieces.bytes
	}
	m.queue.push(sendOp{Op: *op, n: n, since: now})
	if m.queue.len() > firstRing {
		c.e.grew(c)
	}
	if op.Flags&ForwardFence != 0 {
		m.forward++
	}
	if op.Kind == OpSend {
		c.e.Count.SendsWaited++
		if op.Off != 0 && op.Off != NoWait {
			c.e.notBefore(c, now.Add(patience(op)))
		}
	}
	c.ask()
	return true
}

// ask asks for buffers of a shared queue, as many as operations wait (clause 14.5).
func (c *conn) ask() {
	if m := c.msgs; m.shared && m.queue.len() > 0 && int32(m.wanted()-m.asked) > 0 {
		m.asked = m.wanted()
		c.ctl |= ctlWant
		c.wake()
	}
}

// wanted is the number up to which buffers are needed for what waits.
func (m *sending) wanted() uint32 { return m.next + uint32(m.queue.len()) }

// onCredit takes news of the peer's buffers. It reports whether the frame may count as received.
func (c *conn) onCredit(g *wire.Segment) bool {
	m := c.messages()
	if ahead := int32(g.Limit - m.next); ahead > maxCredit {
		c.e.Count.RejectedMalformed++
		return false
	}
	m.shared = g.Flags&wire.CreditShared != 0
	m.credits = atLeast(m.credits, g.Limit)
	c.enterWaiting()
	c.ask()
	return true
}

// maxCredit is the most buffers that one connection can be promised.
const maxCredit = 1 << 16

// enterWaiting gives numbers to those at the front that wait for nothing any more.
func (c *conn) enterWaiting() {
	m := c.msgs
	for m.queue.len() > 0 && m.mayLeave(&m.queue.front().Op) {
		o := *m.queue.front()
		m.queue.pop()
		m.left(&o)
		c.enter(&o.Op, o.since)
	}
}

// left notes that an operation waits no more.
func (m *sending) left(o *sendOp) {
	if o.Flags&ForwardFence != 0 {
		m.forward--
	}
}

// failWaiting ends everything that waits.
func (c *conn) failWaiting(st Status) {
	for c.waiting() > 0 {
		o := *c.msgs.queue.front()
		c.msgs.queue.pop()
		c.giveUp(&o, st)
	}
}

// giveUp ends an operation that had no number yet.
func (c *conn) giveUp(o *sendOp, st Status) {
	e := c.e
	c.msgs.left(o)
	e.Count.OpsCompleted++
	e.Count.OpsFailed++
	if o.Region != nil {
		o.Region.InFlight--
	}
	if o.Pieces != nil {
		o.Pieces.use(-1)
	}
	if k := o.eager; k != nil {
		c.undraft(k)
		e.putCompose(k)
	}
	c.pending--
	e.emit(Event{Kind: EvComplete, Conn: c.id, Token: o.Token, Status: st})
}
