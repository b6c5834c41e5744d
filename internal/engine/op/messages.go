package op

import (
	"math"

	"multiedge/internal/abi"
	"multiedge/internal/engine/op/message"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The sending half of messages (clause 14). A send has its number among the connection's operations from the moment
// that the peer is known to have a buffer for it. Until then it waits here, without a place in any window, and with it
// what fences put behind it: later sends, operations with a backward fence, and all that follow one with a forward
// fence. Others pass by. The receiving half is receive.go.

// NoWait, as Op.Patience of a message, says that it fails where it finds no buffer (clause 14.6).
const NoWait = math.MaxUint64

// strict marks a send that does not wait. Its bit is that of the segment's flag.
const strict OpFlags = wire.SegStrict

// messages is what a connection knows of messages, from the first on.
type messages struct {
	out     message.Sending
	in      message.Receiving
	waiting waiting
}

// waiting is operations of ours that have no number yet.
type waiting struct {
	queue   queue.Queue[sendOp]
	forward int       // of queue: those with a forward fence
	listed  bool      // the connection is in Endpoint.timed
	turn    mono.Time // since when the first of queue is that
}

// messages returns c.msgs, made when it is used for the first time.
func (c *Conn) messages() *messages {
	if c.msgs == nil {
		c.msgs = &messages{}
		c.msgs.in.Init(uint32(c.ID))
	}
	return c.msgs
}

// waiting returns how many operations wait for a buffer of the peer's.
func (c *Conn) waiting() int {
	if c.msgs == nil {
		return 0
	}
	return c.msgs.waiting.queue.Len()
}

// number makes a send, or a Tell, the next message.
func (m *messages) number(o *sendOp) {
	o.op.Flags &^= strict
	if o.op.Patience == NoWait {
		o.op.Flags |= strict
	}
	o.key, o.op.Off = uint64(m.out.Next()), 0
}

// mayLeave reports whether op waits for no buffer.
func (m *messages) mayLeave(op *Op) bool {
	return !op.Kind.Message() || op.Patience == NoWait || m.out.Credit() > 0
}

// mustWait queues an operation that a buffer of the peer's is missing for, or a fence puts behind one that waits.
func (c *Conn) mustWait(now mono.Time, op *Op) bool {
	m := c.messages()
	if m.waiting.queue.Len() == 0 {
		if m.mayLeave(op) {
			return false
		}
	} else if !op.Kind.Message() && m.waiting.forward == 0 && op.Flags&BackwardFence == 0 && !c.ordered {
		return false
	}
	n := uint64(max(len(op.Local), int(op.Inline)))
	if op.Pieces != nil {
		n = op.Pieces.Size
	}
	if m.waiting.queue.Len() == 0 {
		m.waiting.turn = now
	}
	m.waiting.queue.Push(sendOp{op: *op, n: n, since: now})
	if m.waiting.queue.Len() > firstRing {
		c.e.grew(c)
	}
	if op.Flags&ForwardFence != 0 {
		m.waiting.forward++
	}
	if op.Kind.Message() {
		c.e.Count.Op.SendsWaited++
		if timed(op) {
			c.e.notBefore(c, now.Add(patience(op)))
		}
	}
	c.ask()
	return true
}

// ask asks for buffers of a shared queue, as many as operations wait (clause 14.5).
func (c *Conn) ask() {
	if n := c.waiting(); c.msgs.out.Asks(n) {
		c.msgs.out.Ask(n)
		c.ctl |= ctlWant
		c.wake()
	}
}

// onCredit takes news of the peer's buffers. It reports whether the frame may count as received.
func (c *Conn) onCredit(now mono.Time, g *wire.Segment) bool {
	if !c.messages().out.OnCredit(g.Limit, g.Flags&wire.CreditShared != 0) {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	c.enterWaiting(now)
	c.ask()
	return true
}

// enterWaiting gives numbers to those at the front that wait for nothing any more.
func (c *Conn) enterWaiting(now mono.Time) {
	m, before := c.msgs, c.waiting()
	for c.waiting() > 0 && m.mayLeave(&m.waiting.queue.Front().op) {
		o := *m.waiting.queue.Front()
		m.waiting.queue.Pop()
		m.waiting.left(&o)
		c.enter(&o.op, o.since)
	}
	if c.waiting() < before && c.inTurn() {
		m.waiting.turn = now
		if at := c.turnEnds(); at != mono.Never {
			c.e.notBefore(c, at)
		}
	}
}

// left notes that an operation waits no more.
func (m *waiting) left(o *sendOp) {
	if o.op.Flags&ForwardFence != 0 {
		m.forward--
	}
}

// failWaiting ends everything that waits.
func (c *Conn) failWaiting(st abi.Status) {
	for c.waiting() > 0 {
		o := *c.msgs.waiting.queue.Front()
		c.msgs.waiting.queue.Pop()
		c.giveUp(&o, st)
	}
}

// giveUp ends an operation that had no number yet.
func (c *Conn) giveUp(o *sendOp, st abi.Status) {
	e := c.e
	c.msgs.waiting.left(o)
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
		e.eager.Keep(k)
	}
	c.send.pending--
	e.Emit(Event{Kind: EvComplete, Conn: c.ID, Token: o.op.Token, Status: st})
}
