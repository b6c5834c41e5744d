package path

import (
	"math/bits"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// How the paths of several IP links to one peer come to lead to several of its addresses (clause 21.4).

// apartFor is for how long after its last acknowledgement a path that was never apart is not led to where another is.
const apartFor = 10 * time.Second

// shares reports whether another path that answers leads to the same address.
func (p *Tx) shares() bool { return p.taken(&p.To) }

// taken reports whether another path that answers leads to an address. Lanes of one link all lead to one.
func (p *Tx) taken(at *frame.Addr) bool {
	s := p.Set
	own := &s.net.Links[p.Link]
	for m := s.TxMask &^ (1 << p.Link); m != 0; m &= m - 1 {
		o := s.Tx[bits.TrailingZeros64(m)]
		l := &s.net.Links[o.Link]
		if o.Usable() && o.To == *at && !(own.Ports && l.Ports && own.Group == l.Group) {
			return true
		}
	}
	return false
}

// left are the links of the peer that the path could lead to and no other one does.
func (p *Tx) left() uint64 {
	s := p.Set
	left := s.facing(p.Link, s.present())
	for m := s.TxMask &^ (1 << p.Link); m != 0; m &= m - 1 {
		if o := s.Tx[bits.TrailingZeros64(m)]; o.Usable() && s.isIP(o.Link) {
			left &^= 1 << o.Number
		}
	}
	return left
}

// candidate returns the next address at which the peer may be. As long as there is a link of the peer to which no other
// path leads, addresses to which another does are passed over: two links would share one of the peer's for good. But
// that link may be out of reach from here, and was if the path has never been apart from the others: then they are
// passed over for a while only. One that has been is down, and comes back.
func (p *Tx) candidate(now mono.Time) (to frame.Addr, ok bool) {
	s := p.Set
	from := &s.net.Links[p.Link].Addr
	first, ok := s.Hints.Candidate(from, p.Link, p.tries)
	if p.left() == 0 {
		return first, ok
	}
	apart := p.parted || now.Sub(p.Probing.ackedAt) < apartFor
	for to = first; ok && apart && p.taken(&to); {
		p.tries++
		if to, ok = s.Hints.Candidate(from, p.Link, p.tries); to == first {
			break // there is no other
		}
	}
	return to, ok
}

// partAll sets the timers of all paths that lead to p's address, p's own and those of earlier paths: partTimer then
// asks at other addresses.
func (p *Tx) partAll(now mono.Time) {
	s := p.Set
	for m := s.TxMask; m != 0; m &= m - 1 {
		if o := s.Tx[bits.TrailingZeros64(m)]; o.Usable() && o.To == p.To && (o == p || o.partAt == 0) {
			o.partAt = now.Add(apartFor)
		}
	}
}

// partTimer has a path that is good where another one leads, too, ask at the addresses of the configuration where none
// does, one each time: a link of the peer to which no path leads may have come within reach. Addresses from which
// frames alone came are not asked: whoever copies frames would draw away a path that is answered. Who holds a
// configured address can, by sending Probes on to a link of the peer: one of two paths to one place, which goes on.
func (p *Tx) partTimer(now mono.Time) {
	if p.partAt == 0 || now < p.partAt {
		return
	}
	s := p.Set
	if p.partAt = 0; !p.Usable() || !p.shares() || s.waits(p.Link) {
		return
	}
	p.partAt = now.Add(apartFor)
	if p.State != StateGood || p.left() == 0 || p.Move.To.Known() && now.Sub(p.Move.since) < shownFor {
		return
	}
	for range s.Hints.Endpoints {
		to, ok := s.Hints.Candidate(&s.net.Links[p.Link].Addr, p.Link, p.tries)
		if p.tries++; ok && !s.LeadsTo(&to) {
			p.consider(now, to, false)
			p.Move.parts = true
			p.askMove(now)
			return
		}
	}
}

// parts takes the answer from such an address. The path leads there from now on if that is a link to which no other
// path leads.
func (p *Tx) parts(now mono.Time) {
	s, to := p.Set, p.Move.To
	if p.left()&(1<<s.HeardFrom) == 0 || !p.shares() {
		return
	}
	why := "another link of the peer answers at " + to.String()
	p.Move = move{}
	s.Placed(p.Link, s.HeardFrom, to)
	s.net.count.Life.PathMoves++
	p.setState(now, StateDead, why)
	p.lead(s.HeardFrom, s.RemoteLink(s.HeardFrom))
	p.setState(now, StateGood, why)
}
