package engine

import (
	"errors"
	"slices"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The handshakes of an asking end with all nodes that answered it, until one of these has proved that it is the peer
// (clause 10.2).

// asking reports whether s still looks for the peer: InitAck and Retry count.
func (s *session) asking() bool { return s.state == sessionDialing || len(s.tries) > 0 }

// maxTries bounds the handshakes of one session, and the numbers of one address. Answers are chosen at random: an
// attacker who sends many cannot choose which others are dropped.
const maxTries = 4

// answered takes an InitAck. It proves nothing: only the handshake with its sender does.
func (s *session) answered(now mono.Time, i int, mac [6]byte, number uint32) {
	e := s.e
	for _, h := range s.tries {
		if h.link != i || h.mac != mac {
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
		s.hs = h
		to := h.to
		h.to = []uint32{number}
		s.sendFlight(now, true)
		h.to = to
		return
	}
	s.answers++
	if len(s.tries) == maxTries {
		k := e.rng.IntN(s.answers)
		if k >= maxTries {
			return
		}
		s.endTry(s.tries[k])
	}
	h := s.shake(now, i, mac, number, rankPeer)
	h.dialer = true
	s.tries = append(s.tries, h)
	s.step(now, h)
}

// turnTo makes s.hs the handshake with the sender of a frame. It reports false if there were several and none is his.
func (s *session) turnTo(i int, mac [6]byte) bool {
	for _, h := range s.tries {
		if h.link == i && h.mac == mac {
			s.hs = h
			return true
		}
	}
	return s.answers <= 1 || s.hs != nil && s.hs.link == i && s.hs.mac == mac
}

// endTry ends one of several handshakes.
func (s *session) endTry(h *handshake) {
	s.e.close(s, h)
	s.tries = slices.DeleteFunc(s.tries, func(o *handshake) bool { return o == h })
	if s.hs == h && len(s.tries) > 0 {
		s.hs = s.tries[0]
	}
}

// proved goes on with s.hs alone, whose other end has proved that it is the peer, and has told its number.
func (s *session) proved(now mono.Time) bool {
	var p wire.Params
	if p.Decode(s.hs.params) != nil {
		s.handshakeFailed(now, errors.New("the peer's parameters are malformed"))
		return false
	}
	for _, h := range s.tries {
		if h != s.hs {
			s.e.close(s, h)
		}
	}
	s.tries, s.initAt = nil, mono.Never
	s.remote, s.hs.to = p.Session, []uint32{p.Session}
	return true
}

// shakeDeadline is when shakeTimeouts is due.
func (s *session) shakeDeadline() mono.Time {
	t := mono.Never
	if s.hs != nil {
		t = s.hs.deadline()
	}
	for _, h := range s.tries {
		t = min(t, h.deadline())
	}
	return t
}

// shakeTimeouts does what is due of every handshake.
func (s *session) shakeTimeouts(now mono.Time) {
	if len(s.tries) == 0 {
		s.shakeTimeout(now)
		return
	}
	for _, h := range slices.Clone(s.tries) {
		if s.hs = h; now >= h.end && len(s.tries) > 1 {
			s.e.Count.HandshakesFailed++
			s.endTry(h)
		} else if now >= h.deadline() {
			s.shakeTimeout(now)
		}
	}
}
