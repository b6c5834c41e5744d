package peering

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/abi"
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
	Peer     uint8     // key epoch that the peer seals with
	lateAt   mono.Time // those it sealed with before are erased; Never: it may still
	failures uint64    // frames of the peer that our keys were tried on in vain

	// the next exchange
	own       *secure.Exchange // our half, until the next generation is computed
	ours      [wire.PublicLen]byte
	theirs    [wire.PublicLen]byte
	heard     bool // theirs
	busy      bool // a Step is under way
	Owed      bool // Keys is to be said
	next      *secure.Sealer
	peerReady bool
}

// KeyLimits is for how long a sealed session uses a key (clause 10.6): an exchange of fresh ones begins an eighth
// before, and at twice as much the session ends.
type KeyLimits struct {
	Frames uint64        // sealed with it; zero: 2^22
	Age    time.Duration // zero: two minutes
	// frames that it was tried on in vain; zero: 2^51, half the integrity limit of AES-128-GCM (RFC 9001 §6.6)
	Forged uint64
}

// SetDefaults sets what is zero.
func (l *KeyLimits) SetDefaults() {
	l.Frames, l.Age, l.Forged = cmp.Or(l.Frames, 1<<22), cmp.Or(l.Age, 2*time.Minute), cmp.Or(l.Forged, 1<<51)
}

// begin is how many frames a key seals before the next is looked for.
func (l *KeyLimits) begin() uint64 { return l.Frames - l.Frames/8 }

// beginKeys is called when a session has keys to seal with that it has not used.
func (s *Session) beginKeys(now mono.Time) {
	l, k := &s.e.cfg.Keys, &s.Trust.Keys
	s.Trust.Sealer.Left = l.begin()
	k.since, k.at, k.due, k.failures = now, now.Add(l.Age-l.Age/8), false, 0
	if k.number == 0 {
		k.Peer, k.lateAt = s.Trust.Sealer.Epoch(), mono.Never
		s.e.showOpeners()
	}
}

// keysTimeout is called when the keys are worn, and when those before are to be erased.
func (s *Session) keysTimeout(now mono.Time) {
	k, l := &s.Trust.Keys, &s.e.cfg.Keys
	if now >= k.lateAt {
		k.lateAt = mono.Never
		s.e.retire(s.Trust.Opener.Drop())
	}
	switch {
	case now < k.at:
	case k.due || k.failures >= 2*l.Forged:
		s.e.count.Trust.KeysWorn++
		s.fail(now, abi.StatusPeerDown) // no key seals for ever: the peer does not exchange
	default:
		s.Trust.Sealer.Left += 2*l.Frames - l.begin()
		k.due, k.at = true, now.Add(l.Age+l.Age/8)
		if !k.busy && k.own == nil && k.next == nil {
			s.exchange(now)
		}
	}
}

// RenewKeys makes every sealed session begin an exchange of fresh keys now.
func (e *Endpoint) RenewKeys(now mono.Time) {
	for _, s := range e.Sessions.List {
		if s.State == SessionOpen && s.Trust.Sealer != nil && !s.Trust.Keys.due {
			s.Trust.Keys.at = now
		}
	}
}

// exchange gives the next step of a key exchange to be computed.
func (s *Session) exchange(now mono.Time) {
	k := &s.Trust.Keys
	st := &Step{s: s, ours: k.own}
	if k.heard {
		st.present, st.theirs = secure.PresentOf(s.Trust.Sealer, s.Trust.Opener), k.theirs
	}
	k.busy, k.own = true, nil
	s.e.give(now, RankPeer, st)
}

// exchanged takes what was computed.
func (s *Session) exchanged(now mono.Time, st *Step) {
	k := &s.Trust.Keys
	k.busy = false
	if st.err != nil {
		s.fail(now, abi.StatusPeerDown) // the peer's half is none: it must not come to share a secret with everybody
		return
	}
	k.own, k.ours, k.Owed = st.ours, st.ours.Public, true
	switch {
	case st.sealer != nil:
		k.own, k.next, k.lateAt = nil, st.sealer, mono.Never
		s.e.retire(s.Trust.Opener.Add(st.reader))
		if k.peerReady {
			s.turnKeys(now)
		}
	case k.heard:
		s.exchange(now)
	}
}

// OnKeys takes the peer's half. It reports whether the frame may count as received.
func (s *Session) OnKeys(now mono.Time, g *wire.Segment) bool {
	k := &s.Trust.Keys
	if s.Trust.Sealer == nil {
		s.e.count.Reject.RejectedMalformed++
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
func (s *Session) turnKeys(now mono.Time) {
	k := &s.Trust.Keys
	s.Trust.Sealer.Erase()
	s.Trust.Sealer = k.next
	// Our READY is still pending. Any frame sealed with the new keys says the same; one must leave.
	said := !k.Owed
	s.Trust.Keys = keys{number: k.number + 1, Peer: k.Peer, lateAt: k.lateAt}
	s.beginKeys(now)
	s.e.count.Trust.KeyExchanges++
	if !said {
		s.showKeys()
	}
}

// showKeys makes a frame leave on each path: it shows the peer what we seal with.
func (s *Session) showKeys() {
	for m := s.Paths.TxMask; m != 0; m &= m - 1 {
		s.Paths.Tx[bits.TrailingZeros64(m)].WantPing(true)
	}
}

// keysLost is called when a frame with Keys of an exchange was lost.
func (s *Session) keysLost(number uint32) {
	switch {
	case s.Trust.Sealer == nil:
	case number == s.Trust.Keys.number+1:
		s.Trust.Keys.Owed = true
	case number == s.Trust.Keys.number:
		s.showKeys()
	}
}

// PeerSeals notes that the peer has turned to other keys, or that a frame of those before was late.
func (s *Session) PeerSeals(now mono.Time, epoch uint8) {
	k := &s.Trust.Keys
	if k.next != nil && epoch == k.next.Epoch() {
		s.turnKeys(now)
	}
	if k = &s.Trust.Keys; epoch == s.Trust.Sealer.Epoch() {
		k.Peer, k.lateAt = epoch, now.Add(lateTime)
	}
}

// Forged counts a frame in the peer's name that does not open, against the integrity limit of the key if one was tried
// (RFC 9001 §6.6).
func (s *Session) Forged(epoch uint8) {
	s.e.count.Reject.RejectedAuth++
	if !s.Trust.Opener.Knows(epoch) {
		return
	}
	k, l := &s.Trust.Keys, &s.e.cfg.Keys
	k.failures++
	if n := k.failures; n == l.Forged-l.Forged/8 && !k.due || n == 2*l.Forged {
		k.at = 0
	}
}

// eraseKeys forgets the keys of a session that is over.
func (s *Session) eraseKeys() {
	if s.Trust.Opener == nil {
		return
	}
	s.Trust.Sealer.Erase()
	if s.Trust.Keys.next != nil {
		s.Trust.Keys.next.Erase()
	}
	if s.Trust.Keys.own != nil {
		s.Trust.Keys.own.Erase()
	}
	s.e.showOpeners()
	s.e.retire(s.Trust.Opener.Close()...)
	s.Trust.Keys = keys{at: mono.Never, lateAt: mono.Never}
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
