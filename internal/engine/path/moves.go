package path

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Where the peer's IP links are (clauses 21.4 and 21.5). Peers do not announce the addresses of IP links, since a
// translator of addresses may stand between: the address of a link is the one that its authentic frames come from.
//
//  1. A path that is not good goes to the addresses of the configuration in turn, and to those seen before.
//  2. One that is not good goes where the newest authentic frame of its link came from.
//  3. One that is good moves only when nothing is acknowledged any more where it leads, and a Probe to the new address
//     was answered from there: a frame can be copied, and sent from anywhere; or as apart.go says.

// place is a link of the peer as seen from one of ours.
type place struct {
	here  int
	there uint8
}

// move is an address to which a path may move.
type move struct {
	To    frame.Addr // none: there is none
	nonce uint64
	since mono.Time     // frames come from there, and nothing was acknowledged where the path leads
	at    mono.Time     // when it was asked last
	due   mono.Time     // when it is asked, unless something is acknowledged before; 0: with the next frame from there
	Ask   bool          // a Probe is to be sent there
	Back  uint64        // nonce of an Echo that is to be sent there, besides to where the path leads; 0: none
	wait  time.Duration // until the next Ping where the path leads, if that is answered and frames come from here
	shown bool          // frames came from there; otherwise the configuration alone names it
	parts bool          // the path leads where another does, and is answered there
}

// moveEvery is how long a path is asked where it leads before another address is, and the least time between two Probes
// there. It bounds what is sent, whoever makes frames come from how many addresses.
const moveEvery = 20 * time.Millisecond

// straysSlowest is the longest time between two Pings where the path leads, while frames come from elsewhere.
const straysSlowest = time.Second

// shownFor is for how long at least an address from which frames came is preferred to those of the configuration.
const shownFor = time.Second

// isIP reports whether local link i is an IP link.
func (s *Set) isIP(i int) bool { return s.net.Links[i].Addr.IsIP() }

// facing are those of m, links of the peer, that local link i could reach: of its own kind.
func (s *Set) facing(i int, m uint64) uint64 {
	if s.isIP(i) {
		return m & s.ipLinks
	}
	return m &^ s.ipLinks
}

// PlaceOf returns where local link i reaches the peer's link j, as far as that is known.
func (s *Set) PlaceOf(i int, j uint8) frame.Addr {
	if s.isIP(i) {
		return s.places[place{i, j}]
	}
	return s.RemoteLink(j).Addr
}

// Placed notes where the handshake proved the peer's link j to be (clause 21.4).
func (s *Set) Placed(i int, j uint8, at frame.Addr) {
	if s.places == nil {
		s.places = map[place]frame.Addr{}
	}
	s.places[place{i, j}] = at
}

// proved returns the address on which a session had a good path last, if it is to be asked. A port of one of the peer's
// lanes, which our front answered, is for peers that are configured with no address: to be asked from our own ports,
// lanes need the peer's front (clause 21.9).
func (h *Hints) proved(from *frame.Addr, i int) (was frame.Addr, ok bool) {
	was = h.Proved[i]
	return was, was.Known() && from.Reaches(&was) && (was.Socket() != frame.SocketFront || len(h.Endpoints) == 0)
}

// Candidate returns the k-th address at which the peer may be reached from local link i, an IP link.
func (h *Hints) Candidate(from *frame.Addr, i, k int) (frame.Addr, bool) {
	n := 0
	was, known := h.proved(from, i)
	for range 2 { // count, then choose
		seen := 0
		if known {
			if n > 0 && k%n == seen {
				return was, true
			}
			seen++
		}
		for j := range h.Endpoints {
			if at := &h.Endpoints[j]; from.Reaches(at) && h.Allows(at) &&
				!(known && *at == was) {
				if n > 0 && k%n == seen {
					return *at, true
				}
				seen++
			}
		}
		if n = seen; n == 0 {
			break
		}
	}
	return frame.Addr{}, false
}

// Places reports whether the configuration says that the peer is at an address, at whatever port, or a session had a
// good path there.
func (h *Hints) Places(at *frame.Addr) bool {
	if !at.IsIP() {
		return false
	}
	if slices.ContainsFunc(h.Endpoints, func(e frame.Addr) bool { return e.SameHost(at) }) {
		return true
	}
	return slices.Contains(h.Proved[:], *at)
}

// LeadsTo reports whether a path that answers leads to an address.
func (s *Set) LeadsTo(at *frame.Addr) bool {
	for m := s.TxMask; m != 0; m &= m - 1 {
		if p := s.Tx[bits.TrailingZeros64(m)]; p.Usable() && p.To == *at {
			return true
		}
	}
	return false
}

// Facing reports whether the path of local link i is that of the peer's link number, and leads to the address at.
func (s *Set) Facing(i int, number uint8, at *frame.Addr) bool {
	p := s.Tx[i]
	return p != nil && p.Number == number && p.To == *at
}

// Came is told where each authentic frame of an IP link came from, before the frame counts as received. It reports
// whether the peer may be there; otherwise nothing may come of the frame.
func (s *Set) Came(now mono.Time, i int, h *wire.Header, from frame.Addr) bool {
	if s.Facing(i, h.Path, &from) {
		s.from = from
		return true
	}
	if !s.Hints.Allows(&from) {
		return false
	}
	s.from = from
	s.strayed(now, i, h, from)
	return true
}

// strayed takes the address of a frame that did not come from where a path leads.
func (s *Set) strayed(now mono.Time, i int, h *wire.Header, from frame.Addr) {
	p := s.Tx[i]
	if r := s.Rx[h.Path]; r != nil {
		if newest, _, ok := r.Tracker.Largest(); ok && h.PN < newest {
			return // it was sent before the peer moved
		}
	}
	used := p != nil && s.TxMask&(1<<i) != 0
	if used && p.Usable() && p.Number == h.Path {
		p.strays(now, from)
		s.Reopened(now, i, h.Path)
		return
	}
	s.Placed(i, h.Path, from)
	if used && !p.Usable() && s.RemoteLink(h.Path).Slots != 0 {
		p.lead(h.Path, s.RemoteLink(h.Path))
		p.Move = move{}
		p.hurry(now) // it may have been asked elsewhere for long
	}
}

// strays is told that the peer's newest frame came from another address than the path leads to. If the peer still
// answers there, somebody has copied the frame, it was late, or the peer asks from another port and has kept the old
// one (clause 21.9). That may last: each acknowledgement of a Ping would cause the next one.
func (p *Tx) strays(now mono.Time, from frame.Addr) {
	m := &p.Move
	age := now.Sub(m.since)
	switch {
	case m.To != from || m.parts || p.Probing.ackedAt >= m.since:
		wait, next := moveEvery, moveEvery
		if m.To == from && m.shown {
			next = min(2*m.wait, straysSlowest)
			if p.Ledger.Probes() == 0 { // nothing has been asked in vain since
				wait = m.wait
			}
		}
		if !m.To.Known() || age >= wait {
			p.consider(now, from, true)
			p.Move.wait = next
			p.WantPing(true)
		}
	case age >= max(moveEvery, 2*p.RTT.SRTT()) && now.Sub(m.at) >= moveEvery:
		p.askMove(now)
	}
}

// consider makes an address one to which the path may move.
func (p *Tx) consider(now mono.Time, at frame.Addr, shown bool) {
	p.Move = move{To: at, since: now, shown: shown, nonce: uint64(p.Set.net.rand.Uint32()|1)<<32 | moveBit}
}

// moveTimer asks at the new address if nothing was acknowledged where the path leads.
func (p *Tx) moveTimer(now mono.Time) {
	if m := &p.Move; m.due != 0 && now >= m.due {
		if m.due = 0; p.Usable() && p.Probing.ackedAt < m.since {
			p.askMove(now)
		}
	}
}

func (p *Tx) askMove(now mono.Time) {
	p.Move.at, p.Move.Ask = now, true
	p.Set.Special |= 1 << p.Link
}

// moveBit of a nonce, besides LookBit, says that the Probe asks at another address.
const moveBit = LookBit | 1<<29

// Sends reports whether a frame is to be sent to the new address.
func (m *move) Sends() bool { return m.Ask || m.Back != 0 }

// Nonce is what the Probe to the new address says.
func (m *move) Nonce() uint64 { return m.nonce }

// moved takes the answer to a Probe at another address: the path leads there from now on if the answer came from there,
// and none has come from where it leads. Window, round trips and frame size stay if only the port is another (RFC 9000
// section 9.4), unless the peer has opened its lane anew.
func (p *Tx) moved(now mono.Time) {
	to := p.Move.To
	switch {
	case p.Set.from != to || !p.Usable():
		return
	case p.Move.parts:
		p.parts(now)
		return
	case p.Probing.ackedAt >= p.Move.since:
		return
	}
	same := p.To.SameHost(&to)
	why := "the peer moved from " + p.To.String() + " to " + to.String()
	if p.reopened(now) {
		same, p.madeAt = false, now
		why = "the peer's lane was opened anew at " + to.String()
	}
	p.Move = move{}
	p.Set.Placed(p.Link, p.Number, to)
	p.Set.net.count.Life.PathMoves++
	if !same {
		p.setState(now, StateDead, why)
	}
	p.lead(p.Number, p.Set.RemoteLink(p.Number))
	p.Set.Hints.Proved[p.Link] = to
	if same {
		p.testMarks()
		p.Set.changed(p.Link, true, why)
		return
	}
	p.setState(now, StateGood, "answered from there")
}

// mostAsked is how many addresses a path keeps that were asked by one Probe.
const mostAsked = 32

// Asked notes that a small Probe leaves for where the path leads.
func (p *Tx) Asked() {
	to := &p.Probing.to
	if !p.Set.isIP(p.Link) || slices.Contains(*to, p.To) {
		return
	}
	if len(*to) >= mostAsked {
		*to = slices.Delete(*to, 0, 1)
	}
	*to = append(*to, p.To)
}

// answers reports whether an Echo came from an address that its Probe was sent to: a peer may not lead data to somebody
// who never answered (clause 21.5).
func (p *Tx) answers(nonce uint64) bool {
	size, _ := Probed(nonce)
	return size != 0 || !p.Set.isIP(p.Link) || slices.Contains(p.Probing.to, p.Set.from)
}

// seek leads a path that is not answered to the next address at which the peer may be.
func (p *Tx) seek(now mono.Time) {
	s := p.Set
	if s.waits(p.Link) {
		return
	}
	p.draw(now)
	if to, ok := p.candidate(now); ok {
		p.direct(to)
	}
	p.tries++
}

// seekAside asks at the next address at which the peer may be, while the path stays where it is.
func (p *Tx) seekAside(now mono.Time) {
	s := p.Set
	if p.Move.shown && now.Sub(p.Move.since) < max(shownFor, 4*p.RTT.SRTT()) {
		return // that is the better one
	}
	if s.waits(p.Link) {
		return
	}
	if to, ok := s.Hints.Candidate(&s.net.Links[p.Link].Addr, p.Link, p.tries); ok && to != p.To {
		p.consider(now, to, false)
		p.askMove(now)
	}
	p.tries++
}
