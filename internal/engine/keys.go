package engine

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/engine/peering"
	"multiedge/internal/mono"
	"multiedge/internal/secure"
	"multiedge/internal/wire"
)

// Fresh keys of a sealed session, by an exchange that travels inside it (clause 10.6):
//
//  1. Keys are due for their frames, their age or forgeries (keysTimeout), or the peer says its half (onKeys): a Step
//     draws ours.
//  2. With both halves a Step computes the generation that follows. We open it from then on, and say so: Keys with
//     READY.
//  3. The peer has said so too, or seals with it: we seal with it. Frames in flight under the old keys are opened for
//     lateTime more; then those are erased.
//
// There are no roles in the exchange, so both ends may begin it at once.

// lateTime is for how long frames of the keys before are opened, from the first of the present ones on.
const lateTime = time.Second

// keys is what a session knows of its keys but the ciphers themselves. Exchange 0 was the handshake.
type keys struct {
	number   uint32    // of the exchange that made the keys that we seal with
	at       mono.Time // they are worn
	since    mono.Time // they have been used
	due      bool      // the next exchange was begun for that: when at comes again the session ends
	peer     uint8     // key epoch that the peer seals with
	lateAt   mono.Time // those it sealed with before are erased; Never: it may still
	failures uint64    // frames of the peer that our keys were tried on in vain

	// the next exchange
	own       *secure.Exchange // our half, until the next generation is computed
	ours      [wire.PublicLen]byte
	theirs    [wire.PublicLen]byte
	heard     bool // theirs
	busy      bool // a Step is under way
	owed      bool // Keys is to be said
	next      *secure.Sealer
	peerReady bool
}

// begin is how many frames a key seals before the next is looked for.
func (l *KeyLimits) begin() uint64 { return l.Frames - l.Frames/8 }

// beginKeys is called when a session has keys to seal with that it has not used.
func (s *session) beginKeys(now mono.Time) {
	l, k := &s.e.cfg.Keys, &s.trust.keys
	s.trust.sealer.Left = l.begin()
	k.since, k.at, k.due, k.failures = now, now.Add(l.Age-l.Age/8), false, 0
	if k.number == 0 {
		k.peer, k.lateAt = s.trust.sealer.Epoch(), mono.Never
		s.e.showOpeners()
	}
}

// keysTimeout is called when the keys are worn, and when those before are to be erased.
func (s *session) keysTimeout(now mono.Time) {
	k, l := &s.trust.keys, &s.e.cfg.Keys
	if now >= k.lateAt {
		k.lateAt = mono.Never
		s.e.retire(s.trust.opener.Drop())
	}
	switch {
	case now < k.at:
	case k.due || k.failures >= 2*l.Forged:
		s.e.Count.KeysWorn++
		s.fail(now, StatusPeerDown) // no key seals for ever: the peer does not exchange
	default:
		s.trust.sealer.Left += 2*l.Frames - l.begin()
		k.due, k.at = true, now.Add(l.Age+l.Age/8)
		if !k.busy && k.own == nil && k.next == nil {
			s.exchange(now)
		}
	}
}

// RenewKeys makes every sealed session begin an exchange of fresh keys now.
func (e *Endpoint) RenewKeys(now mono.Time) {
	for _, s := range e.sessions.list {
		if s.state == sessionOpen && s.trust.sealer != nil && !s.trust.keys.due {
			s.trust.keys.at = now
		}
	}
}

// exchange gives the next step of a key exchange to be computed.
func (s *session) exchange(now mono.Time) {
	k := &s.trust.keys
	st := &Step{s: s, ours: k.own}
	if k.heard {
		st.present, st.theirs = secure.PresentOf(s.trust.sealer, s.trust.opener), k.theirs
	}
	k.busy, k.own = true, nil
	s.e.give(now, peering.RankPeer, st)
}

// exchanged takes what was computed.
func (s *session) exchanged(now mono.Time, st *Step) {
	k := &s.trust.keys
	k.busy = false
	if st.err != nil {
		s.fail(now, StatusPeerDown) // the peer's half is none: it must not come to share a secret with everybody
		return
	}
	k.own, k.ours, k.owed = st.ours, st.ours.Public, true
	switch {
	case st.sealer != nil:
		k.own, k.next, k.lateAt = nil, st.sealer, mono.Never
		s.e.retire(s.trust.opener.Add(st.reader))
		if k.peerReady {
			s.turnKeys(now)
		}
	case k.heard:
		s.exchange(now)
	}
}

// onKeys takes the peer's half. It reports whether the frame may count as received.
func (s *session) onKeys(now mono.Time, g *wire.Segment) bool {
	k := &s.trust.keys
	if s.trust.sealer == nil {
		s.e.Count.RejectedMalformed++
		return false
	}
	if g.Op != k.number+1 {
		return true // of an exchange that is over
	}
	k.peerReady = k.peerReady || g.Flags&wire.KeysReady != 0
	if k.next != nil && k.peerReady {
		s.turnKeys(now)
		return true
	}
	if k.heard {
		return true
	}
	k.heard, k.theirs = true, [wire.PublicLen]byte(g.Data)
	if !k.busy {
		s.exchange(now)
	}
	return true
}

// turnKeys seals with the next keys: the peer can open them.
func (s *session) turnKeys(now mono.Time) {
	k := &s.trust.keys
	s.trust.sealer.Erase()
	s.trust.sealer = k.next
	// Our READY is still pending. Any frame sealed with the new keys says the same; one must leave.
	said := !k.owed
	s.trust.keys = keys{number: k.number + 1, peer: k.peer, lateAt: k.lateAt}
	s.beginKeys(now)
	s.e.Count.KeyExchanges++
	if !said {
		s.showKeys()
	}
}

// showKeys makes a frame leave on each path: it shows the peer what we seal with.
func (s *session) showKeys() {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		s.paths.tx[bits.TrailingZeros64(m)].wantPing(true)
	}
}

// keysLost is called when a frame with Keys of an exchange was lost.
func (s *session) keysLost(number uint32) {
	switch {
	case s.trust.sealer == nil:
	case number == s.trust.keys.number+1:
		s.trust.keys.owed = true
	case number == s.trust.keys.number:
		s.showKeys()
	}
}

// peerSeals notes that the peer has turned to other keys, or that a frame of those before was late.
func (s *session) peerSeals(now mono.Time, epoch uint8) {
	k := &s.trust.keys
	if k.next != nil && epoch == k.next.Epoch() {
		s.turnKeys(now)
	}
	if k = &s.trust.keys; epoch == s.trust.sealer.Epoch() {
		k.peer, k.lateAt = epoch, now.Add(lateTime)
	}
}

// forged counts a frame in the peer's name that does not open, against the integrity limit of the key if one was tried
// (RFC 9001 §6.6).
func (s *session) forged(epoch uint8) {
	s.e.Count.RejectedAuth++
	if !s.trust.opener.Knows(epoch) {
		return
	}
	k, l := &s.trust.keys, &s.e.cfg.Keys
	k.failures++
	if n := k.failures; n == l.Forged-l.Forged/8 && !k.due || n == 2*l.Forged {
		k.at = 0
	}
}

// eraseKeys forgets the keys of a session that is over.
func (s *session) eraseKeys() {
	if s.trust.opener == nil {
		return
	}
	s.trust.sealer.Erase()
	if s.trust.keys.next != nil {
		s.trust.keys.next.Erase()
	}
	if s.trust.keys.own != nil {
		s.trust.keys.own.Erase()
	}
	s.e.showOpeners()
	s.e.retire(s.trust.opener.Close()...)
	s.trust.keys = keys{at: mono.Never, lateAt: mono.Never}
}

// retiredKeys are keys to open with that are out of use, until no Reader can be at it with them.
type retiredKeys struct {
	keys  []*secure.Generation
	turns []uint64 // the Readers', when they went out of use
}

// eraseEvery is how often retired keys are checked.
const eraseEvery = time.Millisecond

// retire erases keys that the openers do not show any more, as soon as every Reader that was reading has come to an end
// of that.
func (e *Endpoint) retire(keys ...*secure.Generation) {
	g := retiredKeys{keys: keys}
	for _, r := range e.shakes.openers.readers {
		g.turns = append(g.turns, r.turn.Load())
	}
	if !e.erase(&g) {
		e.shakes.retired = append(e.shakes.retired, g)
		e.shakes.eraseAt = e.lastRun.Add(eraseEvery)
	}
}

// erase erases the keys of g if no Reader is at it with them.
func (e *Endpoint) erase(g *retiredKeys) bool {
	for i, r := range e.shakes.openers.readers {
		if g.turns[i]%2 == 1 && r.turn.Load() == g.turns[i] {
			return false
		}
	}
	eraseAll(g.keys)
	return true
}

// eraseRetired erases what can be erased meanwhile.
func (e *Endpoint) eraseRetired(now mono.Time) {
	e.shakes.retired = slices.DeleteFunc(e.shakes.retired, func(g retiredKeys) bool { return e.erase(&g) })
	if e.shakes.eraseAt = mono.Never; len(e.shakes.retired) > 0 {
		e.shakes.eraseAt = now.Add(eraseEvery)
	}
}
