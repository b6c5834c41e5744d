package op

import (
	"math/bits"

	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/eager"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// What became of what frames carried, and acknowledgements of operations (clause 7.1), which complete them.

// OnAcked acts on what a frame carried that the peer has received. Records of other kinds than build.RecHeard need not
// be told.
func (e *Endpoint) OnAcked(now mono.Time, r build.Record) {
	if c := e.conn(ConnID(r.Conn)); c != nil {
		c.onRecordAcked(now, r)
	}
}

// OnLost queues again what a frame carried that was lost, where it still matters (clause 3.6).
func (e *Endpoint) OnLost(r *build.Record) {
	if c := e.conn(ConnID(r.Conn)); c != nil {
		c.onRecordLost(r)
	}
}

func (c *Conn) onRecordAcked(now mono.Time, r build.Record) {
	switch r.Kind {
	case build.RecLocal:
		c.localAcked(r.Op, r.N)
	case build.RecAnswer:
		if !r.Op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
			return
		}
		o := c.rop(r.Op)
		if o.state != ropAnswering {
			return
		}
		if o.acked += r.N; o.acked >= o.n {
			c.apply(now, o, r.Op, o.n)
		}
	case build.RecOpNak:
		if !r.Op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
			return
		}
		if o := c.rop(r.Op); o.state == ropFailed {
			c.apply(now, o, r.Op, 0)
		}
	case build.RecAdvert:
		c.advertAcked(uint32(r.Off), r.N == 1)
	case build.RecEagerWord:
		if wire.Kind(r.Off) == wire.KindDiscard {
			c.numberEnded(uint32(r.Op))
		}
	case build.RecControl:
		if r.Off&(ctlClose|ctlRefuse) != 0 && c.state == connLast {
			c.forget()
		}
	}
}

// answersArrived takes the peer's Close with success for the acknowledgement of its reads: it is sent when all of them
// are complete (clause 6.3).
func (c *Conn) answersArrived(now mono.Time) {
	for op := c.recv.base; op != c.recv.top; op++ {
		if op.Before(c.recv.base) {
			continue
		}
		if o := c.rop(op); o.state == ropAnswering && o.sent >= o.n {
			c.apply(now, o, op, o.n)
		}
	}
}

func (c *Conn) onRecordLost(r *build.Record) {
	switch r.Kind {
	case build.RecOps:
		for k := range int(r.Count) {
			c.resendLater(resend{kind: build.RecOps, op: r.Op.Add(k)})
		}
	case build.RecLocal:
		c.resendLater(resend{kind: build.RecRange, op: r.Op, off: r.Off, n: r.N})
	case build.RecRange, build.RecAnswer:
		c.resendLater(resend{kind: r.Kind, op: r.Op, off: r.Off, n: r.N})
	case build.RecOpAck:
		c.oweAck()
		return
	case build.RecOpNak:
		c.recv.naks.Push(r.Op)
	case build.RecControl:
		c.ctl |= uint8(r.Off)
	case build.RecAdvert:
		c.exports.queue.Push(uint32(r.Off))
	case build.RecStage:
		c.eager.Ours.Lost(uint32(r.Op), r.Off, r.N, r.Count)
	case build.RecEagerWord:
		c.eager.Words.Push(eager.Word{Kind: wire.Kind(r.Off), Number: uint32(r.Op)})
	}
	c.wake()
}

// resendLater queues what was lost. The oldest operation that the peer has not applied comes first: others may be held
// behind it there, and when there is no room to hold more, nothing else is of use.
func (c *Conn) resendLater(r resend) {
	if r.kind != build.RecAnswer && r.op == c.send.ackBase {
		c.send.urgent.Push(r)
		return
	}
	c.send.retx.Push(r)
}

// hurry moves what is lost of the operation that is now the oldest to the front. Behind lost parts of others, for which
// the peer may have no room until it has this one, it would wait for ever.
func (c *Conn) hurry() {
	if c.send.retx.Len() == 0 {
		return
	}
	c.send.retx.Remove(func(r resend) bool {
		if r.kind == build.RecAnswer || r.op != c.send.ackBase {
			return false
		}
		c.send.urgent.Push(r)
		return true
	})
}

// onOpAck completes operations (clause 7.1) and takes credit (clause 7.2).
func (c *Conn) onOpAck(now mono.Time, g *wire.Segment) bool {
	base, limit := seqnum.Value(g.Op), seqnum.Value(g.Limit)
	if base.Before(c.send.ackBase) {
		return true
	}
	if base != c.send.ackBase && !c.allSent(base) || base.Distance(limit) < 0 || base.Distance(limit) > 1<<15 {
		c.e.Count.Reject.RejectedMalformed++
		return false
	}
	for op := c.send.ackBase; op != base; op++ {
		c.applied(now, op)
	}
	if base != c.send.ackBase {
		c.send.ackBase = base
		c.hurry()
	}
	for w := range g.Words() {
		for word := g.Word(w); word != 0; word &= word - 1 {
			op := base.Add(1 + 64*w + bits.TrailingZeros64(word))
			if !c.sent(op) {
				break
			}
			c.applied(now, op)
		}
	}
	if c.send.limit.Before(limit) {
		c.send.limit = limit
		if c.send.cur != c.send.next {
			c.wake()
		}
	}
	return true
}

// applied notes that the peer applied op: it is complete, unless it waits for an answer.
func (c *Conn) applied(now mono.Time, op seqnum.Value) {
	if !c.outstanding(op) {
		return
	}
	if o := c.sop(op); kinds[o.op.Kind].accept == nil || o.n == 0 {
		c.complete(now, op, OK)
	}
}
