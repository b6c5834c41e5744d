package peering

import (
	"math/bits"

	"multiedge/internal/engine/path"
	"multiedge/internal/mono"
)

// When and what to acknowledge. Frames are acknowledged per path (clause 8), operations per connection (clause 7.1):
//
//  1. Every path's policy (flowctl.AckPolicy) counts frames and holes; a frame with PUSH has a clock of its own
//     (pushes); an operation that was applied makes its connection owe an OpAck.
//  2. A data frame that leaves anyway carries what waits, if enough does (WantPiggyback).
//  3. Otherwise an explicit acknowledgement leaves when it is due (AckDue), on the path where the peer's frames arrive
//     (engine.Endpoint.sendAck).
//
// acked.go is the other direction: what the peer acknowledged, and what is lost.

// acks holds the pending acknowledgements of a session to the peer. Those of a path are in its path.Rx.
type acks struct {
	Pushes  path.Pushes // how long frames with PUSH wait for their acknowledgement
	HeardOn int         // local link on which the latest eliciting frame arrived
	Again   bool        // the peer asked: acknowledgements may have been lost on their path
	muteTo  mono.Time   // no path could carry one: do not try before, or before a link has room again
}

// WantPiggyback reports whether enough waits to be acknowledged, or for so long, that a data frame should carry it
// (clause 8.2).
func (s *Session) WantPiggyback(now mono.Time) bool {
	if s.Ops.AckAt != mono.Never || s.Ops.OpAcks.Len() > 0 {
		return true
	}
	for m := s.Paths.RxMask; m != 0; m &= m - 1 {
		if p := &s.Paths.Rx[bits.TrailingZeros64(m)].Policy; p.WantPiggyback() || p.Due(now) {
			return true
		}
	}
	return false
}

// AckDue reports whether an explicit acknowledgement must leave now.
func (s *Session) AckDue(now mono.Time) bool {
	if now < s.Acks.muteTo {
		return false
	}
	if now >= s.Ops.AckAt {
		return true
	}
	for m := s.Paths.RxMask; m != 0; m &= m - 1 {
		if s.Paths.Rx[bits.TrailingZeros64(m)].AckAt(s.Ops.Fair.Waiting > 0) <= now {
			return true
		}
	}
	if s.Ops.OpAcks.Len() > 0 && s.Ops.AckAt == mono.Never {
		wait := s.e.cfg.AckDelay
		if s.Acks.Pushes.Last != 0 && now.Sub(s.Acks.Pushes.Last) < wait {
			wait = min(wait, path.PushDelay) // PUSH may have overtaken frames of its operation
		}
		s.Ops.AckAt = now.Add(wait)
	}
	return false
}

// Mute has no explicit acknowledgement tried before at, or before a link has room again: no path can carry one.
func (s *Session) Mute(at mono.Time) { s.Acks.muteTo, s.e.Sessions.muted = at, true }

// HasData reports whether frames wait that take a path of the scheduler's choice.
func (s *Session) HasData() bool {
	return s.Ops.Fair.Waiting > 0 || s.PeerLinks.News != 0 || s.Trust.Keys.Owed
}
