package peering

import (
	"errors"
	"slices"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The handshakes of an asking end with all nodes that answered it, until one of these has proved that it is the peer
// (clause 10.2).

// asking reports whether s still looks for the peer: InitAck and Retry count.
func (s *Session) asking() bool { return s.State == sessionDialing || len(s.Trust.tries) > 0 }

// maxTries bounds the handshakes of one session, and the numbers of one address. Answers are chosen at random: an
// attacker who sends many cannot choose which others are dropped.
const maxTries = 4

// answered takes an InitAck. It proves nothing: only the handshake with its sender does.
func (s *Session) answered(now mono.Time, i int, addr frame.Addr, number uint32) {
	e := s.e
	for _, h := range s.Trust.tries {
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
		s.Trust.Hs = h
		to := h.to
		h.to = []uint32{number}
		s.sendFlight(now, true)
		h.to = to
		return
	}
	s.Trust.answers++
	if len(s.Trust.tries) == maxTries {
		k := e.rng.IntN(s.Trust.answers)
		if k >= maxTries {
			return
		}
		s.endTry(s.Trust.tries[k])
	}
	h := s.beginHandshake(now, i, addr, number, RankPeer)
	h.dialer = true
	s.Trust.tries = append(s.Trust.tries, h)
	s.step(now, h)
}

// TurnTo makes s.hs the handshake with the sender of a frame. It reports false if there were several and none is his,
// or the peer may not be at that address.
func (s *Session) TurnTo(i int, addr frame.Addr) bool {
	if !s.mayBeAt(&addr) {
		return false
	}
	for _, h := range s.Trust.tries {
		if h.link == i && h.addr == addr {
			s.Trust.Hs = h
			return true
		}
	}
	return s.Trust.answers <= 1 || s.Trust.Hs != nil && s.Trust.Hs.link == i && s.Trust.Hs.addr == addr
}

// endTry ends one of several handshakes.
func (s *Session) endTry(h *handshake) {
	s.e.close(s, h)
	s.Trust.tries = slices.DeleteFunc(s.Trust.tries, func(o *handshake) bool { return o == h })
	if s.Trust.Hs == h && len(s.Trust.tries) > 0 {
		s.Trust.Hs = s.Trust.tries[0]
	}
}

// proved goes on with s.hs alone, whose other end has proved that it is the peer, and has told its number.
func (s *Session) proved(now mono.Time) bool {
	var p wire.Params
	if p.Decode(s.Trust.Hs.params) != nil {
		s.handshakeFailed(now, errors.New("the peer's parameters are malformed"))
		return false
	}
	for _, h := range s.Trust.tries {
		if h != s.Trust.Hs {
			s.e.close(s, h)
		}
	}
	s.Trust.tries, s.setup.initAt = nil, mono.Never
	s.Remote, s.Trust.Hs.to = p.Session, []uint32{p.Session}
	return true
}

// handshakeDeadline is when shakeTimeouts is due.
func (s *Session) handshakeDeadline() mono.Time {
	t := mono.Never
	if s.Trust.Hs != nil {
		t = s.Trust.Hs.deadline()
	}
	for _, h := range s.Trust.tries {
		t = min(t, h.deadline())
	}
	return t
}

// handshakeTimeouts does what is due of every handshake.
func (s *Session) handshakeTimeouts(now mono.Time) {
	if len(s.Trust.tries) == 0 {
		s.handshakeTimeout(now)
		return
	}
	for _, h := range slices.Clone(s.Trust.tries) {
		if s.Trust.Hs = h; now >= h.end && len(s.Trust.tries) > 1 {
			s.e.count.Trust.HandshakesFailed++
			s.endTry(h)
		} else if now >= h.deadline() {
			s.handshakeTimeout(now)
		}
	}
}
