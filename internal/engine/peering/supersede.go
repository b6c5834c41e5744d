package peering

import (
	"multiedge/internal/abi"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Two sessions with one peer: which of them stays (clauses 10.7 and 10.8).

// supersede settles what the peer's new session s means for an older one, at the answering end (clause 10.7). It
// reports false if s is not wanted.
func (s *Session) supersede(now mono.Time, doubted uint32) bool {
	e, old := s.e, s.Peer.session
	if d := e.Sessions.ByNumber[doubted]; doubted != 0 && d != nil && d == old && d.State == SessionOpen &&
		d.epoch == s.epoch {
		s.Trust.Hs.answer, s.Trust.Hs.again = wire.CryptoKept, 0
		s.lastWord(now)
		return false
	}
	doubt := s.Peer.doubt
	switch {
	case old.prevails(s) || doubt.prevails(s):
		s.discard()
		return false
	case old == nil:
	case old.State == SessionOpen && old.epoch == s.epoch && s.stale(old):
		s.discard()
		return false
	case old.State == SessionOpen && (old.epoch != s.epoch || old.Served):
		s.adopt(now, old)
		old.fail(now, abi.StatusPeerDown)
	default: // both ends asked: this one prevails, and the requests move to it
		s.inherit(now, old)
	}
	if doubt != nil {
		doubt.discard()
	}
	s.Peer.session = s
	return true
}

// prevails reports whether s, that we asked for, stays rather than one that the peer asked for in the same life: it has
// our last word, or will have it.
func (s *Session) prevails(peers *Session) bool {
	if s == nil || s.State != sessionHandshake || !s.Trust.Hs.dialer || !s.Trust.Hs.done ||
		string(s.e.cfg.Node[:]) >= string(peers.Peer.who.ID[:]) {
		return false
	}
	var p wire.Params
	return p.Decode(s.Trust.Hs.params) == nil && p.Epoch == peers.epoch
}

// stale reports whether the peer asked for s before it opened old: the last word of s was late, and the peer has
// forgotten s.
func (s *Session) stale(old *Session) bool {
	if old.Trust.asked || old.Served { // the peer has, or had, old open
		return s.born <= old.opened
	}
	return s.born < old.born
}

// inherit takes over what waits for old, which never came to be, and ends it.
func (s *Session) inherit(now mono.Time, old *Session) {
	s.adopt(now, old)
	old.discard()
}

// adopt takes over the requests that old was to carry and that nobody has answered: they are made again.
func (s *Session) adopt(now mono.Time, old *Session) {
	old.Paths.DropAll(now)
	s.Ops.Adopt(&old.Ops)
}

// doubt finds out, by a handshake beside the open session, whether the peer still has it (clause 10.8).
func (s *Session) doubt(now mono.Time) {
	p := s.Peer
	if p.doubt != nil || now < p.doubtAt {
		return
	}
	p.doubtAt = now.Add(doubtEvery)
	n := s.e.newSession(now, p, s.e.cfg.Scheduler)
	n.Trust.doubted = s.Remote
	n.setup.initWait = firstInit
	p.doubt = n
	n.sendInit(now)
}
