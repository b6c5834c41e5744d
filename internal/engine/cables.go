package engine

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/wire"
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
	look   uint64   // those to be asked
	turn   [2]uint8 // which come next, of those the peer announced and of those that Hello alone speaks of
	unsure bool     // a probe of life went unanswered: the others are asked too
	search uint32   // in nonces that ask them
}

// choose spreads local links over those of the peer that are in m.
func choose(m uint64, i int) (number uint8, ok bool) {
	if m == 0 {
		return 0, false
	}
	for range i % bits.OnesCount64(m) {
		m &= m - 1
	}
	return uint8(bits.TrailingZeros64(m)), true
}

// present are the links that the peer has: those announced in a sealed session, in plaintext those it said Hello of.
func (s *session) present() uint64 {
	if s.trust.opener != nil {
		return s.peerLinks.announced
	}
	return s.peer.named
}

// remoteLink returns what is known of the peer's link j.
func (s *session) remoteLink(j uint8) remoteLink {
	if s.trust.opener != nil {
		return s.peerLinks.links[j]
	}
	return s.peer.remote[j]
}

// first returns the peer's link with which a path from local link i begins; none if nothing of the peer was heard
// there.
func (s *session) first(now mono.Time, i int) (number uint8, ok bool) {
	all := s.present()
	if number, ok = choose(s.peerLinks.seen[i]&all, i); ok {
		return number, true
	}
	m := s.peer.heard.On(now, i)
	if number, ok = choose(m&all, i); !ok && m&^s.peerLinks.known != 0 {
		return choose(all, i) // there is one that Hello alone speaks of: lookAround asks it
	}
	return number, ok
}

// spread asks the link that the path should lead to by clause 4.2, of those that are there: if it answers the path goes
// there.
func (p *txPath) spread(now mono.Time) {
	if j := p.fair(now); j != p.number {
		p.lookout.look |= 1 << j
		p.s.paths.special |= 1 << p.link
	}
}

func (p *txPath) fair(now mono.Time) uint8 {
	s := p.s
	j, _ := choose(s.peerLinks.seen[p.link]&s.peer.heard.On(now, p.link)&s.present()|1<<p.number, p.link)
	return j
}

// lookMost is how many of the peer's links a path asks at once, and as many that Hello alone speaks of.
const lookMost = 8

// lookAround asks other links of the peer, the next in turn: those that it said are gone, or that Hello alone speaks
// of, too, for the news of them may not get here.
func (p *txPath) lookAround(now mono.Time) {
	s := p.s
	all := s.present() | s.peerLinks.known
	p.lookout.look |= take(all&^(1<<p.number), &p.lookout.turn[0]) | take(s.peer.heard.On(now, p.link)&^all,
		&p.lookout.turn[1])
	if p.lookout.look != 0 {
		s.paths.special |= 1 << p.link
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

// lookBit of a nonce says that the Probe asks another link of the peer than the path's, whose number stands below it.
const lookBit = 1 << 30

// asked returns which other link of the peer was asked by a Probe of that nonce.
func (p *txPath) asked(nonce uint64) (j uint8, ok bool) {
	return uint8(nonce) % MaxLinks, uint32(nonce>>32) == p.lookout.search && nonce&lookBit != 0
}

// sendLooks sends the Probes that ask other links of the peer.
func (s *session) sendLooks(now mono.Time, b *Batch, p *txPath) {
	w := &s.e.builder
	for ; p.lookout.look != 0 && !b.full() && p.ledger.CanSend(); p.lookout.look &= p.lookout.look - 1 {
		j := uint8(bits.TrailingZeros64(p.lookout.look))
		w.begin(s, p, b)
		w.turnTo(j)
		w.seg = wire.Segment{Kind: wire.KindProbe, Place: uint64(p.lookout.search)<<32 | lookBit | uint64(j)}
		w.small(&w.seg)
		w.finish(now)
	}
	if p.lookout.look != 0 {
		s.paths.special |= 1 << p.link
	}
}

// answeredBy is called when another link of the peer than the path's answered.
func (p *txPath) answeredBy(now mono.Time, j uint8) {
	s, r := p.s, p.s.remoteLink(j)
	switch {
	case j == p.number || r.slots == 0:
		return
	// the one it leads to answers
	case p.state == PathGood && p.fair(now) != j, p.state == PathDead && p.probing.echoes > 0:
		return
	}
	why := fmt.Sprintf("link %d of the peer answers here, not %d", j, p.number)
	back := p.state == PathDead && s.hasOther(p.link)
	if p.usable() {
		if p.state == PathSuspect {
			s.peerLinks.seen[p.link] &^= 1 << p.number
		}
		p.setState(now, PathDead, why)
	}
	p.lead(j, r)
	p.probing.nonce, p.pmtu.late, p.probing.probe, p.lookout.look, p.pmtu.alone, p.pmtu.said = 0, 0, false, 0, false, 0
	p.pmtu.bigLost, p.pmtu.doubted, p.lookout.search = [len(frameSizes)]bigLoss{}, false, s.e.rng.Uint32()
	if !back {
		p.setState(now, PathGood, why)
		return
	}
	p.probing.echoes, p.lookout.unsure = 1, false // like any that was dead
	p.again(now, probeEvery)
	p.sendProbe(now, 0, false)
}

// lead directs the path to the peer's link j.
func (p *txPath) lead(j uint8, r remoteLink) {
	p.number, p.slots, p.shuf = j, usableSlots(r.slots), int(r.shuffle)
	if p.s.e.cfg.Secure != nil {
		p.shuf = 0 // the receiver opens sealed frames into other memory than they arrived in (clause 10.5)
	}
	p.to = r.addr
	p.s.e.cfg.Framing.PutHeader(p.header[:], &p.s.e.links[p.link].Addr, &p.to)
}

// contradicted is called when a link of the peer shows itself on the path's link that is not the one it leads to: is
// that one still there?
func (p *txPath) contradicted(now mono.Time) {
	if !p.usable() {
		p.hurry(now)
	} else if n, _ := p.ledger.InFlight(); n == 0 && now.Sub(p.probing.ackedAt) >= deadAfter {
		p.wantPing(true)
	}
}

// hurry has a path that does not answer probed soon, at the first pace.
func (p *txPath) hurry(now mono.Time) {
	if !p.usable() && p.probing.probeAt > now.Add(probeEvery) {
		p.again(now, probeEvery)
	}
}

func (p *txPath) again(now mono.Time, wait time.Duration) {
	p.probing.probeAt, p.probing.probeWait = now.Add(wait), wait
}

// hurryAll does so with every path: none is good any more.
func (s *session) hurryAll(now mono.Time) {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		s.paths.tx[bits.TrailingZeros64(m)].hurry(now)
	}
}

// shown is called when link j of the peer was heard on our link i for the first time in a while.
func (s *session) shown(now mono.Time, i int, j uint8) {
	switch p := s.paths.tx[i]; {
	case s.present()&(1<<j) == 0 || s.e.up&(1<<i) == 0:
	case s.paths.txMask&(1<<i) == 0:
		if j, ok := s.first(now, i); ok {
			s.addPath(now, i, j)
		}
	case p.number != j:
		if p.state == PathGood {
			p.spread(now)
		}
		p.contradicted(now)
	}
}

// forgetUnanswered drops paths that nobody ever answered on, once nothing of the peer is heard there.
func (s *session) forgetUnanswered(now mono.Time) {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.paths.tx[i].state == PathProbing && s.peerLinks.seen[i] == 0 && s.peer.heard.On(now, i) == 0 {
			s.dropPath(now, i, "nothing of the peer is heard there any more")
		}
	}
}
