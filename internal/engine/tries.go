package engine

import (
	"errors"
	"slices"

	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The handshakes of an asking end with all nodes that answered it, until one of these has proved that it is the peer
// (clause 10.2).

// asking reports whether s still looks for the peer: InitAck and Retry count.
func (s *session) asking() bool { return s.state == sessionDialing || len(s.trust.tries) > 0 }

// maxTries bounds the handshakes of one session, and the numbers of one address. Answers are chosen at random: an
// attacker who sends many cannot choose which others are dropped.
const maxTries = 4

// answered takes an InitAck. It proves nothing: only the handshake with its sender does.
func (s *session) answered(now mono.Time, i int, addr frame.Addr, number uint32) {
	e := s.e
	for _, h := range s.trust.tries {
		if h.link != i || h.addr != addr {
			continue
		}
		if slices.Contains(h.to, number) {
			return
		}
		if h.said++; len(h.to) < maxTries {
			h.to = append(h.to, number)
		} else if k := e.rng.IntN(h.said); k < maxTries {
			h.to[k] = number
		} else {
			return
		}
		s.trust.hs = h
		to := h.to
		h.to = []uint32{number}
		s.sendFlight(now, true)
		h.to = to
		return
	}
	s.trust.answers++
	if len(s.trust.tries) == maxTries {
		k := e.rng.IntN(s.trust.answers)
		if k >= maxTries {
			return
		}
		s.endTry(s.trust.tries[k])
	}
	h := s.beginHandshake(now, i, addr, number, peering.RankPeer)
	h.dialer = true
	s.trust.tries = append(s.trust.tries, h)
	s.step(now, h)
}

// turnTo makes s.hs the handshake with the sender of a frame. It reports false if there were several and none is his.
func (s *session) turnTo(i int, addr frame.Addr) bool {
	for _, h := range s.trust.tries {
		if h.link == i && h.addr == addr {
			s.trust.hs = h
			return true
		}
	}
	return s.trust.answers <= 1 || s.trust.hs != nil && s.trust.hs.link == i && s.trust.hs.addr == addr
}

// endTry ends one of several handshakes.
func (s *session) endTry(h *handshake) {
	s.e.close(s, h)
	s.trust.tries = slices.DeleteFunc(s.trust.tries, func(o *handshake) bool { return o == h })
	if s.trust.hs == h && len(s.trust.tries) > 0 {
		s.trust.hs = s.trust.tries[0]
	}
}

// proved goes on with s.hs alone, whose other end has proved that it is the peer, and has told its number.
func (s *session) proved(now mono.Time) bool {
	var p wire.Params
	if p.Decode(s.trust.hs.params) != nil {
		s.handshakeFailed(now, errors.New("the peer's parameters are malformed"))
		return false
	}
	for _, h := range s.trust.tries {
		if h != s.trust.hs {
			s.e.close(s, h)
		}
	}
	s.trust.tries, s.setup.initAt = nil, mono.Never
	s.remote, s.trust.hs.to = p.Session, []uint32{p.Session}
	return true
}

// handshakeDeadline is when shakeTimeouts is due.
func (s *session) handshakeDeadline() mono.Time {
	t := mono.Never
	if s.trust.hs != nil {
		t = s.trust.hs.deadline()
	}
	for _, h := range s.trust.tries {
		t = min(t, h.deadline())
	}
	return t
}

// handshakeTimeouts does what is due of every handshake.
func (s *session) handshakeTimeouts(now mono.Time) {
	if len(s.trust.tries) == 0 {
		s.handshakeTimeout(now)
		return
	}
	for _, h := range slices.Clone(s.trust.tries) {
		if s.trust.hs = h; now >= h.end && len(s.trust.tries) > 1 {
			s.e.Count.HandshakesFailed++
			s.endTry(h)
		} else if now >= h.deadline() {
			s.handshakeTimeout(now)
		}
	}
}
