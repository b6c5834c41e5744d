package engine

import (
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Two sessions with one peer: which of them stays (clauses 10.7 and 10.8).

// supersede settles what the peer's new session s means for an older one, at the answering end (clause 10.7). It
// reports false if s is not wanted.
func (s *session) supersede(now mono.Time, doubted uint32) bool {
	e, old := s.e, s.peer.session
	if d := e.sessions.byNumber[doubted]; doubted != 0 && d != nil && d == old && d.state == sessionOpen &&
		d.epoch == s.epoch {
		s.trust.hs.answer, s.trust.hs.again = wire.CryptoKept, 0
		s.lastWord(now)
		return false
	}
	doubt := s.peer.doubt
	switch {
	case old.prevails(s) || doubt.prevails(s):
		s.discard()
		return false
	case old == nil:
	case old.state == sessionOpen && old.epoch == s.epoch && s.stale(old):
		s.discard()
		return false
	case old.state == sessionOpen && (old.epoch != s.epoch || old.served):
		s.adopt(now, old)
		old.fail(now, StatusPeerDown)
	default: // both ends asked: this one prevails, and the requests move to it
		s.inherit(now, old)
	}
	if doubt != nil {
		doubt.discard()
	}
	s.peer.session = s
	return true
}

// prevails reports whether s, that we asked for, stays rather than one that the peer asked for in the same life: it has
// our last word, or will have it.
func (s *session) prevails(peers *session) bool {
	if s == nil || s.state != sessionHandshake || !s.trust.hs.dialer || !s.trust.hs.done ||
		string(s.e.cfg.Node[:]) >= string(peers.peer.id[:]) {
		return false
	}
	var p wire.Params
	return p.Decode(s.trust.hs.params) == nil && p.Epoch == peers.epoch
}

// stale reports whether the peer asked for s before it opened old: the last word of s was late, and the peer has
// forgotten s.
func (s *session) stale(old *session) bool {
	if old.trust.asked || old.served { // the peer has, or had, old open
		return s.born <= old.opened
	}
	return s.born < old.born
}

// inherit takes over what waits for old, which never came to be, and ends it.
func (s *session) inherit(now mono.Time, old *session) {
	s.adopt(now, old)
	old.discard()
}

// adopt takes over the requests that old was to carry and that nobody has answered: they are made again.
func (s *session) adopt(now mono.Time, old *session) {
	old.dropPaths(now)
	for old.members.dials.n > 0 {
		c := old.members.dials.head
		c.recv.owesAck = false
		s.e.leaveList(c)
		c.detach()
		c.join(s)
	}
}

// doubt finds out, by a handshake beside the open session, whether the peer still has it (clause 10.8).
func (s *session) doubt(now mono.Time) {
	p := s.peer
	if p.doubt != nil || now < p.doubtAt {
		return
	}
	p.doubtAt = now.Add(doubtEvery)
	n := s.e.newSession(now, p, s.e.cfg.Scheduler)
	n.trust.doubted = s.remote
	n.setup.initWait = firstInit
	p.doubt = n
	n.sendInit(now)
}
