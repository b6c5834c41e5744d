package engine

import (
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// When and what to acknowledge. Frames are acknowledged per path (clause 8), operations per connection (clause 7.1):
//
//  1. Every path's policy (flowctl.AckPolicy) counts frames and holes; a frame with PUSH has a clock of its own
//     (pushes); an operation that was applied makes its connection owe an OpAck.
//  2. A data frame that leaves anyway carries what waits, if enough does (wantPiggyback).
//  3. Otherwise an explicit acknowledgement leaves when it is due (ackDue), on the path where the peer's frames arrive
//     (sendAck).
//
// acked.go is the other direction: what the peer acknowledged, and what is lost.

// acks holds the pending acknowledgements of a session to the peer. Those of a path are in its rxPath.
type acks struct {
	opacks queue.Queue[*conn] // connections that owe an OpAck
	// an explicit acknowledgement is due then, whatever the paths' policies say; Never: none is
	at      mono.Time
	pushes  path.Pushes // how long frames with PUSH wait for their acknowledgement
	heardOn int         // local link on which the latest eliciting frame arrived
	again   bool        // the peer asked: acknowledgements may have been lost on their path
	muteTo  mono.Time   // no path could carry one: do not try before, or before a link has room again
}

// rxPath is the receive side of a path.
type rxPath struct {
	tracker flowctl.Tracker
	policy  flowctl.AckPolicy
}

// Bitmap words an acknowledgement block may take on a data frame and alone.
const (
	piggybackWords = flowctl.MaxAckWords
	explicitWords  = 128
)

// wantPiggyback reports whether enough waits to be acknowledged, or for so long, that a data frame should carry it
// (clause 8.2).
func (s *session) wantPiggyback(now mono.Time) bool {
	if s.acks.at != mono.Never || s.acks.opacks.Len() > 0 {
		return true
	}
	for m := s.paths.rxMask; m != 0; m &= m - 1 {
		if p := &s.paths.rx[bits.TrailingZeros64(m)].policy; p.WantPiggyback() || p.Due(now) {
			return true
		}
	}
	return false
}

// ackDue reports whether an explicit acknowledgement must leave now.
func (s *session) ackDue(now mono.Time) bool {
	if now < s.acks.muteTo {
		return false
	}
	if now >= s.acks.at {
		return true
	}
	for m := s.paths.rxMask; m != 0; m &= m - 1 {
		if s.paths.rx[bits.TrailingZeros64(m)].ackAt(s) <= now {
			return true
		}
	}
	if s.acks.opacks.Len() > 0 && s.acks.at == mono.Never {
		wait := s.e.cfg.Profile.Acks.Delay
		if s.acks.pushes.Last != 0 && now.Sub(s.acks.pushes.Last) < wait {
			wait = min(wait, path.PushDelay) // PUSH may have overtaken frames of its operation
		}
		s.acks.at = now.Add(wait)
	}
	return false
}

// ackAt is when an explicit acknowledgement of the path is due: later when data is waiting to leave that will carry it.
func (r *rxPath) ackAt(s *session) mono.Time {
	if s.members.fair.Waiting > 0 {
		return r.policy.OverdueAt()
	}
	return r.policy.Deadline()
}

// sendAck sends an explicit acknowledgement on the best path for it: where the peer's frames arrive, if that path is
// good; else the usable path with the least in flight. Acknowledgements are not acknowledged, so a path that drops
// everything is not noticed by them: when the peer asks with Ping, it is answered on all paths.
func (s *session) sendAck(now mono.Time, b *Batch) {
	var best *txPath
	least := 0
	again := s.acks.again
	s.acks.again = false
	for m := s.paths.txMask; m != 0 && !b.full(); m &= m - 1 {
		p := s.paths.tx[bits.TrailingZeros64(m)]
		n, _ := p.ledger.InFlight()
		switch {
		case s.e.links[p.link].blocked || p.state == PathDead || !p.ledger.CanSend():
			continue
		case again && p.usable():
			s.ackOn(now, b, p, true)
			best = p
			continue
		case !p.usable():
			n += 1 << 20
		case p.state == PathSuspect:
			n += 1 << 16
		case p.link == s.acks.heardOn:
			n = -1
		}
		if best == nil || n < least {
			best, least = p, n
		}
	}
	switch {
	case best == nil:
		s.acks.muteTo, s.e.sessions.muted = now.Add(time.Millisecond), true
		s.acks.again = again
	case !again || !best.usable():
		s.ackOn(now, b, best, again)
	}
}

func (s *session) ackOn(now mono.Time, b *Batch, p *txPath, again bool) {
	w := &s.e.builder
	w.begin(s, p, b)
	w.acks(now, explicitWords, again)
	if w.used() {
		s.e.Count.AcksExplicit++
		w.finish(now)
	}
}

// acks appends what waits to be acknowledged: a block per path, then OpAcks.
//
// again says that the peer may not have what was sent: everything is said once more.
func (w *builder) acks(now mono.Time, maxWords int, again bool) {
	s, e := w.s, w.s.e
	for m := s.paths.rxMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		r := s.paths.rx[i]
		if !again && !r.policy.Pending() {
			continue
		}
		largest, at, ok := r.tracker.Largest()
		words := min(maxWords, (w.room-64)/8)
		if !ok || words <= 0 {
			continue
		}
		floor, bitmap := r.tracker.AckBits(e.scratch.words[:0], words)
		e.scratch.words = bitmap
		n := len(w.tail)
		w.extend(24 + 8*len(bitmap))
		g := wire.Segment{Kind: wire.KindAck, Path: uint8(i), Size: largest, Place: floor,
			Delay: clampDelay(now.Sub(at))}
		if r.policy.Nack() {
			g.Flags = wire.AckNack
			e.Count.NacksSent++
		}
		wire.PutAck(w.tail[n:], &g, bitmap)
		w.room -= len(w.tail) - n
		w.last.kind = wire.KindPad
		r.policy.OnSent()
	}
	s.acks.at = mono.Never
	for s.acks.opacks.Len() > 0 {
		c := *s.acks.opacks.Front()
		n := c.opAckLen()
		if w.room < n+64 {
			s.acks.at = now
			break
		}
		s.acks.opacks.Pop()
		c.recv.owesAck = false
		if c.state == connFree || c.remote == 0 {
			continue
		}
		w.opAck(c)
	}
}

func clampDelay(d time.Duration) uint32 { return uint32(max(0, min(d, 1<<32-1))) }

// opAckLen is the length of the connection's OpAck as of now.
func (c *conn) opAckLen() int {
	if c.recv.appliedAhead == 0 {
		return 16
	}
	return 16 + 8*min(16, (c.recv.base.Distance(c.recv.top)+62)/64)
}

// opAck appends an OpAck (clause 7.1).
func (w *builder) opAck(c *conn) {
	g := &w.seg
	if limit := c.creditLimit(); c.recv.limitSent.Before(limit) {
		c.recv.limitSent = limit
	}
	*g = wire.Segment{Kind: wire.KindOpAck, Conn: c.remote, Op: uint32(c.recv.base), Limit: uint32(c.recv.limitSent)}
	n := len(w.tail)
	words := (c.opAckLen() - 16) / 8
	w.extend(16 + 8*words)
	wire.PutOpAck(w.tail[n:], g, words, func(i int) bool {
		op := c.recv.base.Add(1 + i)
		return op.Before(c.recv.top) && c.rop(op).state == ropApplied
	})
	w.room -= 16 + 8*words
	w.last.kind, w.eliciting = wire.KindPad, true
	w.record(recOpAck, c.id, 0, 0, 0, false)
	if c.msgs != nil && c.msgs.in.owesCredit {
		*g = c.credit()
		w.small(g)
		w.record(recControl, c.id, 0, ctlCredit, 0, false)
	}
}

// oweAck puts the connection among those that owe the peer an OpAck.
func (c *conn) oweAck() {
	if !c.recv.owesAck && c.state != connFree {
		c.recv.owesAck = true
		c.s.acks.opacks.Push(c)
	}
}

// creditLimit is the first operation number the peer may not send (clause 7.3).
func (c *conn) creditLimit() seqnum.Value {
	return c.recv.base.Add(max(0, c.recv.window-c.recv.notes.Len()))
}
