package engine

import (
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// Acknowledgement and loss. An acknowledgement of frames (clause 8.1) frees their records, acts on what they carried,
// or queues it to be sent again; one of operations (clause 7.1) completes them.

// onAck takes an acknowledgement of one of our paths. Like onOpAck, it reports whether the frame may count as received.
func (s *session) onAck(now mono.Time, g *wire.Segment) bool {
	e := s.e
	p := s.paths.tx[g.Path]
	if p == nil {
		return true
	}
	e.scratch.words = e.scratch.words[:0]
	for w := range g.Words() {
		e.scratch.words = append(e.scratch.words, g.Word(w))
	}
	e.scratch.block = flowctl.Block{Path: g.Path, Largest: g.Size, Floor: g.Place, Delay: time.Duration(g.Delay),
		Nack: g.Flags&wire.AckNack != 0, Bits: e.scratch.words}
	var res flowctl.AckResult
	e.scratch.acked, e.scratch.lost, res = p.ledger.OnAck(now, &e.scratch.block, &p.rtt, e.scratch.acked[:0],
		e.scratch.lost[:0])
	if res.Invalid {
		e.Count.RejectedMalformed++
		return false
	}
	e.Count.SpuriousLosses += uint64(res.SpuriousLosses)
	if res.HasRTT {
		e.links[p.link].roundTrips.Observe(p.rtt.Latest())
	}
	if len(e.scratch.acked) > 0 {
		p.onAlive(now)
		p.cwnd.OnAck(now, len(e.scratch.acked), &p.rtt)
		s.onAcked(now, p, e.scratch.acked)
		if s.paths.measured && p.usable() {
			s.paths.sched.SetWeight(p.link, p.cwnd.Frames())
		}
	}
	if len(e.scratch.lost) > 0 {
		s.onLost(now, p, e.scratch.lost)
	}
	return true
}

// onAcked acts on what the frames carried and frees their records.
func (s *session) onAcked(now mono.Time, p *txPath, acked []flowctl.Sent) {
	e := s.e
	s.paths.inFlight -= len(acked)
	for k := range acked {
		if acked[k].Tag&tagPicked != 0 {
			s.paths.sched.Done(p.link, int(acked[k].Bytes))
		}
		p.doubtSize(now, &acked[k], false)
		head := int32(acked[k].Tag &^ tagPicked)
		for i := head; i != 0; i = e.recs.pool[i].next {
			r := &e.recs.pool[i]
			if 1<<r.kind&recHeard != 0 {
				if c := e.conn(r.conn); c != nil {
					c.onRecordAcked(now, *r)
				}
			}
		}
		e.recs.release(head)
	}
}

// recHeard is the kinds of records whose arrival matters.
const recHeard = 1<<recLocal | 1<<recAnswer | 1<<recOpNak | 1<<recControl | 1<<recAdvert | 1<<recEagerWord

func (c *conn) onRecordAcked(now mono.Time, r record) {
	switch r.kind {
	case recLocal:
		c.localAcked(r.op, r.n)
	case recAnswer:
		if !r.op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
			return
		}
		o := c.rop(r.op)
		if o.state != ropAnswering {
			return
		}
		if o.acked += r.n; o.acked >= o.n {
			c.apply(now, o, r.op, o.n)
		}
	case recOpNak:
		if !r.op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
			return
		}
		if o := c.rop(r.op); o.state == ropFailed {
			c.apply(now, o, r.op, 0)
		}
	case recAdvert:
		c.advertAcked(uint32(r.off), r.n == 1)
	case recEagerWord:
		if wire.Kind(r.off) == wire.KindDiscard {
			c.numberEnded(uint32(r.op))
		}
	case recControl:
		if r.off&(ctlClose|ctlRefuse) != 0 && c.state == connLast {
			c.forget()
		}
	}
}

// answersArrived takes the peer's Close with success for the acknowledgement of its reads: it is sent when all of them
// are complete (clause 6.3).
func (c *conn) answersArrived(now mono.Time) {
	for op := c.recv.base; op != c.recv.top; op++ {
		if op.Before(c.recv.base) {
			continue
		}
		if o := c.rop(op); o.state == ropAnswering && o.sent >= o.n {
			c.apply(now, o, op, o.n)
		}
	}
}

// onLost queues again what the frames carried, where it still matters (clause 3.6).
func (s *session) onLost(now mono.Time, p *txPath, lost []flowctl.Sent) {
	e := s.e
	s.paths.inFlight -= len(lost)
	n := uint64(0)
	// probes and pings may be lost for their size or because the path is dead; that says nothing of congestion
	carried := 0
	for k := range lost {
		if lost[k].Tag&tagPicked != 0 {
			s.paths.sched.Done(p.link, int(lost[k].Bytes))
		}
		head := int32(lost[k].Tag &^ tagPicked)
		if head != 0 {
			carried++
			p.doubtSize(now, &lost[k], true)
		} else if !p.usable() || int(lost[k].Bytes)-frame.HeaderLen > wire.MinFrame {
			continue // a probe of a path known not to answer, or of a size or form that may not pass (clause 9)
		}
		n++
		for i := head; i != 0; i = e.recs.pool[i].next {
			r := &e.recs.pool[i]
			if r.kind == recLink {
				s.peerLinks.news |= 1 << r.off
			} else if r.kind == recKeys {
				s.keysLost(uint32(r.off))
			} else if c := e.conn(r.conn); c != nil {
				c.onRecordLost(r)
			}
		}
		e.recs.release(head)
	}
	s.framesLost += n
	e.Count.FramesLost += n
	e.links[p.link].count.FramesLost += n
	p.count.Lost += n
	if carried > 0 && p.state != PathDead {
		p.cwnd.OnLoss(now, carried)
	}
}

func (c *conn) onRecordLost(r *record) {
	switch r.kind {
	case recOps:
		for k := range int(r.count) {
			c.resendLater(resend{kind: recOps, op: r.op.Add(k)})
		}
	case recLocal:
		c.resendLater(resend{kind: recRange, op: r.op, off: r.off, n: r.n})
	case recRange, recAnswer:
		c.resendLater(resend{kind: r.kind, op: r.op, off: r.off, n: r.n})
	case recOpAck:
		c.oweAck()
		return
	case recOpNak:
		c.recv.naks.Push(r.op)
	case recControl:
		c.ctl |= uint8(r.off)
	case recAdvert:
		c.exports.queue.Push(uint32(r.off))
	case recStage:
		c.stageLost(r)
	case recEagerWord:
		c.eager.words.Push(eagerWord{wire.Kind(r.off), uint32(r.op)})
	}
	c.wake()
}

// resendLater queues what was lost. The oldest operation that the peer has not applied comes first: others may be held
// behind it there, and when there is no room to hold more, nothing else is of use.
func (c *conn) resendLater(r resend) {
	if r.kind != recAnswer && r.op == c.send.ackBase {
		c.send.urgent.Push(r)
		return
	}
	c.send.retx.Push(r)
}

// hurry moves what is lost of the operation that is now the oldest to the front. Behind lost parts of others, for which
// the peer may have no room until it has this one, it would wait for ever.
func (c *conn) hurry() {
	if c.send.retx.Len() == 0 {
		return
	}
	c.send.retx.Remove(func(r resend) bool {
		if r.kind == recAnswer || r.op != c.send.ackBase {
			return false
		}
		c.send.urgent.Push(r)
		return true
	})
}

// onOpAck completes operations (clause 7.1) and takes credit (clause 7.2).
func (c *conn) onOpAck(now mono.Time, g *wire.Segment) bool {
	base, limit := seqnum.Value(g.Op), seqnum.Value(g.Limit)
	if base.Before(c.send.ackBase) {
		return true
	}
	if base != c.send.ackBase && !c.sent(base-1) || base.Distance(limit) < 0 || base.Distance(limit) > 1<<15 {
		c.e.Count.RejectedMalformed++
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
func (c *conn) applied(now mono.Time, op seqnum.Value) {
	if !c.outstanding(op) {
		return
	}
	if o := c.sop(op); kinds[o.op.Kind].accept == nil || o.n == 0 {
		c.complete(now, op, OK)
	}
}
