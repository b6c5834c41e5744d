package path

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Finding which link of the peer each of our links reaches (clauses 4.2, 9.4). No claim is believed without an answer:
//
//  1. Hello, which a stranger can forge, and authentic frames, which a stranger can carry to another link, say only
//     which links to begin with.
//  2. A path stays where it is while the peer answers on it, whatever is said.
//  3. One that is not answered asks the peer's other links in turn, and goes to the first that answers.
//
// One bit for each pair of links is remembered for this.

// lookout is how a path asks the peer's links that it does not lead to.
type lookout struct {
	Look   uint64   // those to be asked
	turn   [2]uint8 // which come next, of those the peer announced and of those that Hello alone speaks of
	unsure bool     // a probe of life went unanswered: the others are asked too
	Search uint32   // in nonces that ask them
}

// Choose spreads local links over those of the peer that are in m.
func Choose(m uint64, i int) (number uint8, ok bool) {
	if m == 0 {
		return 0, false
	}
	for range i % bits.OnesCount64(m) {
		m &= m - 1
	}
	return uint8(bits.TrailingZeros64(m)), true
}

// present are the links that the peer has: those announced in a sealed session, in plaintext those it said Hello of.
func (s *Set) present() uint64 {
	if s.Sealed {
		return s.announced
	}
	return s.Hints.Named
}

// RemoteLink returns what is known of the peer's link j.
func (s *Set) RemoteLink(j uint8) Remote {
	if s.Sealed {
		return s.Links[j]
	}
	return s.Hints.Remote[j]
}

// first returns the peer's link with which a path from local link i begins; none if nothing of the peer was heard
// there.
func (s *Set) first(now mono.Time, i int) (number uint8, ok bool) {
	all := s.facing(i, s.present())
	if number, ok = Choose(s.Seen[i]&all, i); ok {
		return number, true
	}
	if s.isIP(i) {
		if s.waits(i) {
			return Choose(s.askedFrom(i)&all, i)
		}
		if _, there := s.Hints.Candidate(&s.net.Links[i].Addr, i, 0); !there {
			return 0, false
		}
		return Choose(all, i)
	}
	m := s.Hints.Heard.On(now, i)
	if number, ok = Choose(m&all, i); !ok && m&^s.Known != 0 {
		return Choose(all, i) // there is one that Hello alone speaks of: lookAround asks it
	}
	return number, ok
}

// spread asks the link that the path should lead to by clause 4.2, of those that are there: if it answers the path goes
// there.
func (p *Tx) spread(now mono.Time) {
	if p.Set.isIP(p.Link) {
		return // no Hello says what else is there
	}
	if j := p.fair(now); j != p.Number {
		p.Lookout.Look |= 1 << j
		p.Set.Special |= 1 << p.Link
	}
}

func (p *Tx) fair(now mono.Time) uint8 {
	s := p.Set
	j, _ := Choose(s.Seen[p.Link]&s.Hints.Heard.On(now, p.Link)&s.facing(p.Link, s.present())|1<<p.Number, p.Link)
	return j
}

// lookMost is how many of the peer's links a path asks at once, and as many that Hello alone speaks of.
const lookMost = 8

// lookAround asks other links of the peer, the next in turn: those that it said are gone, or that Hello alone speaks
// of, too, for the news of them may not get here.
func (p *Tx) lookAround(now mono.Time) {
	s := p.Set
	all := s.facing(p.Link, s.present()|s.Known)
	p.Lookout.Look |= take(all&^(1<<p.Number), &p.Lookout.turn[0]) | take(s.Hints.Heard.On(now, p.Link)&^all,
		&p.Lookout.turn[1])
	if p.Lookout.Look != 0 {
		s.Special |= 1 << p.Link
	}
}

// take returns lookMost links of m, from turn on.
func take(m uint64, turn *uint8) (some uint64) {
	for n := 0; m != 0 && n < lookMost; n++ {
		rest := m &^ (1<<*turn - 1)
		if rest == 0 {
			rest = m
		}
		j := bits.TrailingZeros64(rest)
		m &^= 1 << j
		some |= 1 << j
		*turn = uint8(j+1) % MaxLinks
	}
	return some
}

// LookBit of a nonce says that the Probe asks another link of the peer than the path's, whose number stands below it.
const LookBit = 1 << 30

// asked returns which other link of the peer was asked by a Probe of that nonce.
func (p *Tx) asked(nonce uint64) (j uint8, ok bool) {
	return uint8(nonce) % MaxLinks, uint32(nonce>>32) == p.Lookout.Search && nonce&LookBit != 0
}

// answeredBy is called when another link of the peer than the path's answered.
func (p *Tx) answeredBy(now mono.Time, j uint8) {
	s, r := p.Set, p.Set.RemoteLink(j)
	switch {
	case j == p.Number || r.Slots == 0:
		return
	// the one it leads to answers
	case p.State == StateGood && p.fair(now) != j, p.State == StateDead && p.Probing.echoes > 0:
		return
	}
	why := fmt.Sprintf("link %d of the peer answers here, not %d", j, p.Number)
	back := p.State == StateDead && s.HasOther(p.Link)
	if p.Usable() {
		if p.State == StateSuspect {
			s.Seen[p.Link] &^= 1 << p.Number
		}
		p.setState(now, StateDead, why)
	}
	p.lead(j, r)
	p.Probing.Nonce, p.PMTU.late, p.Probing.Probe, p.Lookout.Look, p.PMTU.alone, p.PMTU.said = 0, 0, false, 0, false, 0
	p.PMTU.bigLost, p.PMTU.doubted, p.Lookout.Search = [mostSizes]bigLoss{}, false, s.net.rand.Uint32()
	if !back {
		p.setState(now, StateGood, why)
		return
	}
	p.Probing.echoes, p.Lookout.unsure = 1, false // like any that was dead
	p.again(now, probeEvery)
	p.sendProbe(now, 0, false)
}

// lead directs the path to the peer's link j.
func (p *Tx) lead(j uint8, r Remote) {
	p.Number, p.slots, p.Shuf, p.version = j, usableSlots(r.Slots), int(r.Shuffle), r.version
	if p.Set.net.cfg.Sealed {
		p.Shuf = 0 // the receiver opens sealed frames into other memory than they arrived in (clause 10.5)
	}
	p.direct(p.Set.PlaceOf(p.Link, j))
}

// direct sends the path's frames to an address.
func (p *Tx) direct(to frame.Addr) {
	p.tally(-1)
	p.To, p.Out = to, p.Through(to)
	p.tally(1)
	p.Set.net.cfg.Framing.PutHeader(p.Header[:], &p.Set.net.Links[p.Link].Addr, &p.To)
}

// Contradicts reports whether the peer's link from, of which a frame arrived on local link i, is another than the one
// that the path of i leads to.
func (s *Set) Contradicts(i int, from uint8) bool {
	p := s.Tx[i]
	return p != nil && p.Number != from && s.TxMask&(1<<i) != 0
}

// Contradicted is called when a link of the peer shows itself on the path's link that is not the one it leads to: is
// that one still there?
func (p *Tx) Contradicted(now mono.Time) {
	if !p.Usable() {
		p.hurry(now)
	} else if n, _ := p.Ledger.InFlight(); n == 0 && now.Sub(p.Probing.ackedAt) >= deadAfter {
		p.WantPing(true)
	}
}

// hurry has a path that does not answer probed soon, at the first pace.
func (p *Tx) hurry(now mono.Time) {
	if !p.Usable() && p.Probing.probeAt > now.Add(probeEvery) {
		p.again(now, probeEvery)
	}
}

func (p *Tx) again(now mono.Time, wait time.Duration) {
	p.Probing.probeAt, p.Probing.probeWait = now.Add(wait), wait
}

// hurryAll does so with every path: none is good any more.
func (s *Set) hurryAll(now mono.Time) {
	for m := s.TxMask; m != 0; m &= m - 1 {
		s.Tx[bits.TrailingZeros64(m)].hurry(now)
	}
}

// Shown is called when link j of the peer was heard on our link i for the first time in a while.
func (s *Set) Shown(now mono.Time, i int, j uint8) {
	switch p := s.Tx[i]; {
	case s.facing(i, s.present())&(1<<j) == 0 || s.net.Up&(1<<i) == 0:
	case s.TxMask&(1<<i) == 0:
		if j, ok := s.first(now, i); ok {
			s.add(now, i, j)
		}
	case p.Number != j:
		if p.State == StateGood {
			p.spread(now)
		}
		p.Contradicted(now)
	}
}

// ForgetUnanswered drops paths that nobody ever answered on, once nothing of the peer is heard there.
func (s *Set) ForgetUnanswered(now mono.Time) {
	for m := s.TxMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.Tx[i].State == StateProbing && s.Seen[i] == 0 && s.Hints.Heard.On(now, i) == 0 && !s.isIP(i) {
			s.Drop(now, i, "nothing of the peer is heard there any more")
		}
	}
}
