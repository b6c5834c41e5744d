package engine

import (
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// What acknowledges frames and operations, and where it leaves; package peering says when.

// Bitmap words an acknowledgement block may take on a data frame and alone.
const (
	piggybackWords = flowctl.MaxAckWords
	explicitWords  = 128
)

// sendAck sends an explicit acknowledgement on the best path for it: where the peer's frames arrive, if that path is
// good; else the usable path with the least in flight. Acknowledgements are not acknowledged, so a path that drops
// everything is not noticed by them: when the peer asks with Ping, it is answered on all paths.
func (e *Endpoint) sendAck(now mono.Time, s *peering.Session, b *Batches) {
	var best *path.Tx
	least := 0
	again := s.Acks.Again
	s.Acks.Again = false
	for m := s.Paths.TxMask; m != 0 && !b.full(); m &= m - 1 {
		p := s.Paths.Tx[bits.TrailingZeros64(m)]
		n, _ := p.Ledger.InFlight()
		switch {
		case e.net.Links[p.Link].Blocked || p.State == path.StateDead || !p.Ledger.CanSend():
			continue
		case again && p.Usable():
			e.ackOn(now, s, b, p, true)
			best = p
			continue
		case !p.Usable():
			n += 1 << 20
		case p.State == path.StateSuspect:
			n += 1 << 16
		case p.Link == s.Acks.HeardOn:
			n = -1
		}
		if best == nil || n < least {
			best, least = p, n
		}
	}
	switch {
	case best == nil:
		s.Mute(now.Add(time.Millisecond))
		s.Acks.Again = again
	case !again || !best.Usable():
		e.ackOn(now, s, b, best, again)
	}
}

func (e *Endpoint) ackOn(now mono.Time, s *peering.Session, b *Batches, p *path.Tx, again bool) {
	w := &e.builder
	w.begin(s, p, b)
	w.acks(now, explicitWords, again)
	if w.f.Used() {
		e.Count.Loss.AcksExplicit++
		w.finish(now)
	}
}

// acks appends what waits to be acknowledged: a block per path, then OpAcks.
//
// again says that the peer may not have what was sent: everything is said once more.
func (w *builder) acks(now mono.Time, maxWords int, again bool) {
	s, e := w.s, w.e
	for m := s.Paths.RxMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		r := s.Paths.Rx[i]
		if !again && !r.Policy.Pending() {
			continue
		}
		words := min(maxWords, (w.f.Room-64)/8)
		if words <= 0 {
			continue
		}
		block, ok := r.Policy.Block(now, &r.Tracker, e.net.Words[:0], words, again)
		if !ok {
			continue
		}
		e.net.Words = block.Bits
		g := wire.Segment{Kind: wire.KindAck, Path: uint8(i), Size: block.Largest, Place: block.Floor,
			Delay: clampDelay(block.Delay)}
		if block.Nack {
			g.Flags = wire.AckNack
			e.Count.Loss.NacksSent++
		}
		if r.Marks.Any {
			g.Flags |= wire.AckMarks
			g.Window, g.Limit = r.Marks.ECT0, r.Marks.CE
		}
		n := len(w.f.Tail)
		w.f.Extend(wire.AckLen(g.Flags, len(block.Bits)))
		wire.PutAck(w.f.Tail[n:], &g, block.Bits)
		w.f.Room -= len(w.f.Tail) - n
		w.f.Last.Kind = wire.KindPad
	}
	s.Ops.AckAt = mono.Never
	if !s.Ops.AppendAcks(&w.f) {
		s.Ops.AckAt = now
	}
}

func clampDelay(d time.Duration) uint32 { return uint32(max(0, min(d, 1<<32-1))) }
