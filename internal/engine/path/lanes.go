package path

import (
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// Lanes (clause 21.9): links that are flows of one UDP port. The end that asked for the session asks on each lane, from
// a port of the lane's own; the other answers to where it was asked from. Routers choose among equal ways by the ports,
// so another port may be another way:
//
//  1. a lane has two ports. A path that is found dead goes on with the other one at once;
//  2. the port that no path uses any more is drawn anew, by the driver, when a path is to use it;
//  3. so does a path by which nothing comes back although other lanes bring frames: its way there may be well.

// ports are the two of a lane.
type ports struct {
	asking [2]int    // paths that are usable and ask from it, of all sessions
	wanted uint8     // bits of those to be drawn anew
	at     mono.Time // when one was drawn last
}

// drawEvery is the least time between two draws on a lane: what a driver does for one takes some 20 us.
const drawEvery = 50 * time.Millisecond

// unheardMost is for how many keep-alive times in a row nothing may come by a path, each answered in vain by a Ping.
const unheardMost = 2

// asks reports whether the path's frames leave from a port of its lane's own.
func (p *Tx) asks() bool {
	return p.Set.net.Links[p.Link].Ports && p.To.Known() && p.To.Socket() == frame.SocketAsk
}

// Through returns an address as it is reached from the port that the path asks from: whatever else leaves by its lane
// is to come from there, too, or a peer that waits takes it for somebody else's.
func (p *Tx) Through(to frame.Addr) frame.Addr {
	if p.port != 0 && p.Set.net.Links[p.Link].Ports && to.Known() && to.Socket() == frame.SocketAsk {
		return to.By(frame.SocketOther)
	}
	return to
}

// waits reports whether paths from local link i lead only to where the peer was heard: of two ends that ask each other
// on one lane, each way would be a flow of its own, with half of what a path knows.
func (s *Set) waits(i int) bool { return s.net.Links[i].Ports && s.Sealed && !s.Asked }

// askedFrom are the peer's lanes of which local link i knows from where they ask. If the link is opened anew, its paths
// begin there: the ports of the peer and the front of this end are as before.
func (s *Set) askedFrom(i int) (m uint64) {
	for at := range s.places {
		if at.here == i {
			m |= 1 << at.there
		}
	}
	return m
}

const (
	// reopenEvery is the least time between two such beginnings of a path: a peer gone bad can cause 256 a second over
	// all paths, as by other changes of its links.
	reopenEvery = 250 * time.Millisecond
	// reopenWait is for how long at least the old port of a lane is asked in vain before the new one is asked.
	reopenWait = time.Millisecond
)

// Reopened is told that the peer's lane j was heard from another address than the path of local link i leads to, which
// waits to be asked. If the peer has opened the lane anew since the path was led, the old port is gone: the new one is
// asked sooner than where a peer may have moved, and its Probes are echoed there. Until the Echo comes from there the
// path stays where it is, since the frame may be a copy that somebody sent on.
func (s *Set) Reopened(now mono.Time, i int, j uint8) {
	p := s.Tx[i]
	if p == nil || s.TxMask&(1<<i) == 0 || p.Number != j || !p.Usable() {
		return
	}
	if m := &p.Move; m.To.Known() && m.To == s.from && m.at < m.since && m.due == 0 && p.reopened(now) {
		m.due = m.since.Add(max(reopenWait, 2*p.RTT.SRTT()))
	}
}

// reopened reports whether the path waits to be asked, and the peer has opened its lane anew since the path was led.
func (p *Tx) reopened(now mono.Time) bool {
	r := &p.Set.Links[p.Number]
	return p.Set.waits(p.Link) && p.version != r.version && r.Slots != 0 && now.Sub(p.madeAt) >= reopenEvery
}

// tally counts the path among those that use its port, or takes it away.
func (p *Tx) tally(n int) {
	if p.Usable() && p.asks() {
		p.Set.net.Links[p.Link].ports.asking[p.port] += n
	}
}

// draw has the path ask from the lane's other port, which is drawn anew if nobody uses it.
func (p *Tx) draw(now mono.Time) {
	if !p.asks() || now.Sub(p.Probing.probedAt) < 2*p.Set.longest() { // what was asked may be answered yet
		return
	}
	p.tally(-1)
	p.port ^= 1
	p.tally(1)
	p.direct(p.To)
	if p.Usable() {
		p.testMarks() // the way may be another
	} else {
		p.Probing.Nonce = 0 // an answer is to be one to what left from there
		p.sendProbe(now, 0, false)
	}
	p.Set.net.count.Life.LaneDraws++
	l := &p.Set.net.Links[p.Link].ports
	if used := l.asking[p.port]; used == 0 || used == 1 && p.Usable() {
		if l.at == 0 || now.Sub(l.at) >= drawEvery {
			l.at, l.wanted = now, l.wanted|1<<p.port
			p.Set.net.drawn |= 1 << p.Link
		}
	}
}

// ForgetPorts is called when no path uses link i.
func (n *Net) ForgetPorts(i int) {
	n.Links[i].ports = ports{}
	n.drawn &^= 1 << i
}

// longest is the longest round trip on a good path of an IP link.
func (s *Set) longest() (d time.Duration) {
	for m := s.TxMask; m != 0; m &= m - 1 {
		if p := s.Tx[bits.TrailingZeros64(m)]; p.State == StateGood && s.isIP(p.Link) {
			d = max(d, p.RTT.SRTT())
		}
	}
	return d
}

// Unheard is told that nothing of the peer came by the path's link for the keep-alive time; all: nor by any other.
func (p *Tx) Unheard(now mono.Time, all bool) {
	p.WantPing(true)
	if all || !p.asks() || p.Set.Seen[p.Link]&(1<<p.Number) == 0 {
		p.unheard = 0
		return
	}
	if p.unheard++; p.unheard > unheardMost {
		p.unheard = 1 // the next port has less time
		p.draw(now)
	}
}

// Heard is told that something came by it, or that it is not good.
func (p *Tx) Heard() { p.unheard = 0 }

// askLanes sends a Ping on each other IP link that has nothing in flight: its answer shows that the peer lives.
func (p *Tx) askLanes() {
	s := p.Set
	if !s.isIP(p.Link) {
		return
	}
	s.doubted |= 1 << p.Link
	for m := s.TxMask &^ (1 << p.Link); m != 0; m &= m - 1 {
		o := s.Tx[bits.TrailingZeros64(m)]
		if n, _ := o.Ledger.InFlight(); n == 0 && o.State == StateGood && s.isIP(o.Link) {
			o.WantPing(true)
		}
	}
}

// answers reports whether another IP link was answered since p was asked in vain: then the peer lives, and the way of p
// does not. Silence everywhere is more likely the peer's processor.
func (s *Set) answers(p *Tx) bool {
	for m := s.TxMask &^ (1 << p.Link); m != 0; m &= m - 1 {
		o := s.Tx[bits.TrailingZeros64(m)]
		if o.State == StateGood && s.isIP(o.Link) && o.Probing.ackedAt > p.Probing.askedAt {
			return true
		}
	}
	return false
}

// answersFor has a path that was answered stand in for those that were not, although they were asked before (clauses
// 21.7 and 21.8): the peer lives, so that they are dead sooner, and this one, if it rests, takes the window of one.
func (p *Tx) answersFor(now mono.Time) {
	s := p.Set
	for m := s.doubted; m != 0; m &= m - 1 {
		o := s.Tx[bits.TrailingZeros64(m)]
		if p.Probing.ackedAt <= o.Probing.askedAt {
			continue
		}
		if !o.Usable() {
			s.doubted &^= 1 << o.Link
			continue
		}
		o.Ledger.Press(now)
		if s.net.Links[p.Link].Group != s.net.Links[o.Link].Group {
			continue // a lane of o's own cable may rest, and be answered yet
		}
		s.doubted &^= 1 << o.Link
		if d, ok := p.Cwnd.(flowctl.Deputy); ok {
			d.StandIn(o.Cwnd)
		}
	}
}

// Drawn takes a lane of which another port is to be drawn, and which of its sockets; ok is false if there is none.
func (n *Net) Drawn() (link int, socket uint8, ok bool) {
	if n.drawn == 0 {
		return 0, 0, false
	}
	link = bits.TrailingZeros64(n.drawn)
	l := &n.Links[link].ports
	port := bits.TrailingZeros8(l.wanted)
	if l.wanted &^= 1 << port; l.wanted == 0 {
		n.drawn &^= 1 << link
	}
	if port == 0 {
		return link, frame.SocketAsk, true
	}
	return link, frame.SocketOther, true
}
