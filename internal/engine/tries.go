package engine

import (
	"errors"
	"slices"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The handshakes that an asking end has under way with all who answered it, until one of them has proved that it is the peer (clause 10.2).

// asking reports whether s still looks for the peer: InitAck and Retry count.
func (s *session) asking() bool { return s.state == sessionDialing || len(s.tries) > 0 }

// maxTries bounds the handshakes of one session, and the numbers of one address. Which answers are tried is left to chance: who says many cannot choose
// whom he drives out.
const maxTries = 4

// answered takes an InitAck, which proves nothing: the handshake with who said it does.
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
	s.shake(now, i, mac, number, true)
	peer, _ := e.cfg.Secure.Peers.ByNode(s.peer.id)
	s.hs.tls = e.cfg.Secure.Dial(peer, s.params())
	s.tries = append(s.tries, s.hs)
	s.sendFlight(now, false)
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
	h.tls.Close()
	s.tries = slices.DeleteFunc(s.tries, func(o *handshake) bool { return o == h })
	if s.hs == h && len(s.tries) > 0 {
		s.hs = s.tries[0]
	}
}

// proved goes on with s.hs alone, whose other end has proved that it is the peer, and has told its number.
func (s *session) proved(now mono.Time) bool {
	var p wire.Params
	if p.Decode(s.hs.tls.Params()) != nil {
		s.handshakeFailed(now, errors.New("the peer's parameters are malformed"))
		return false
	}
	for _, h := range s.tries {
		if h != s.hs {
			h.tls.Close()
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
