package engine

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// PathState is what is believed of a path (clause 9.1).
type PathState uint8

const (
	PathProbing PathState = iota
	PathGood
	PathSuspect
	PathDead
)

func (p PathState) String() string { return [...]string{"probing", "good", "suspect", "dead"}[p] }

// Timers of clause 9.
const (
	probeEvery     = 50 * time.Millisecond // between probes of a path that is not good
	probeSlowest   = time.Second           // after some unanswered ones
	sizeProbeEvery = 20 * time.Millisecond // between tries of one frame size
	sizeProbeTries = 3
	sizeRaiseEvery = time.Minute            // tries of larger frames on a path that carries less than its links: their probes may have been lost by chance
	deadAfter      = 200 * time.Millisecond // of unanswered probing, while another path is good
	deadProbes     = 3
	rejoinEchoes   = 3
)

// txPath is the send side of a path: what is in flight, round trips, congestion, state.
type txPath struct {
	s      *session
	link   int
	number uint8 // the peer's link
	header [wire.EthLen]byte
	mtu    int  // largest frame in use, bytes after the Ethernet header
	joined bool // but for short ones they travel in datagrams (clause 12)
	slots  int  // frames in flight that the peer's receive side can hold
	shuf   int  // header bytes to shuffle past, 0 for none

	ledger *flowctl.Ledger
	rtt    flowctl.RTT
	cwnd   flowctl.Cwnd

	state   PathState
	echoes  int       // in a row, while probing
	ackedAt mono.Time // newest acknowledgement, or start
	askedAt mono.Time // when the first of the probe times that ran out in a row did

	probeAt   mono.Time // next probe: of life while not good, of size while growing
	raiseAt   mono.Time // when larger frames are tried again
	probeWait time.Duration
	nonce     uint64    // of the probe that waits for its echo, 0 for none
	probedAt  mono.Time // when that was first sent
	target    int       // frame size being probed for; 0 when settled
	joining   bool      // in a datagram
	late      uint64    // nonce of a probe in a datagram that was given up, and may be answered yet
	alone     bool      // datagrams did not pass when frames alone of that length did
	tries     int
	raising   bool // what is in use passes, as far as is known: the search is for more
	said      int  // by reportSize

	ping  bool
	probe bool
	echo  []uint64 // nonces to return, in order of arrival

	bigLost [len(frameSizes)]bigLoss // by step: does the path carry more?
	doubted bool                     // one of them is not zero
	flight  uint64                   // first packet number that was not sent when a loss of the latest flight was known

	count PathCounters
}

// PathCounters are per path and session.
type PathCounters struct {
	Frames, Bytes, Retransmitted, Lost uint64
}

// rxPath is the receive side of a path.
type rxPath struct {
	tracker flowctl.Tracker
	policy  flowctl.AckPolicy
}

// refreshPaths makes a path for every local link that reaches the peer, and follows changes of the peer's side.
func (s *session) refreshPaths(now mono.Time) {
	if s.state != sessionOpen {
		return
	}
	e := s.e
	for m := e.up; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		number, r, ok := s.reach(i)
		if !ok {
			if s.opener != nil {
				s.dropPath(now, i, "peer's link is gone")
			}
			continue
		}
		if p := s.tx[i]; s.txMask&(1<<i) != 0 {
			if p.number == number && [6]byte(p.header[:6]) == r.mac && p.fits() && p.slots == usableSlots(r.slots) {
				if p.state == PathGood && p.target == 0 && !p.atBest() {
					p.grow(now)
				}
				continue
			}
			s.dropPath(now, i, "peer's link changed")
		}
		s.addPath(now, i, number, r)
	}
}

// usableSlots leaves a quarter of the receive slots to frames that are not in flight by our count (clause 8.7).
func usableSlots(slots int) int { return max(4, slots*3/4) }

func (s *session) addPath(now mono.Time, i int, number uint8, r remoteLink) {
	e := s.e
	p := &txPath{s: s, link: i, number: number, slots: usableSlots(r.slots), shuf: int(r.shuffle), ackedAt: now, probeAt: now, probeWait: probeEvery}
	copy(p.header[0:], r.mac[:])
	copy(p.header[6:], e.links[i].MAC[:])
	p.header[12], p.header[13] = byte(e.cfg.EtherType>>8), byte(e.cfg.EtherType)
	if old := s.tx[i]; old != nil {
		p.ledger = old.ledger // packet numbers never repeat within a session (clause 3.2)
	} else {
		p.ledger = flowctl.NewLedger(flowctl.DefaultSpan)
	}
	p.ledger.Configure(e.cfg.Profile.Loss(e.cfg.Profile.Acks))
	p.cwnd.Init(e.cfg.Profile.Congestion)
	p.mtu = wire.MinFrame
	s.tx[i] = p
	s.txMask |= 1 << i
	s.sched.SetWeight(i, e.links[i].Weight)
	p.handleTimeout(now)
}

// dropPath takes a path out of use; what was in flight on it is sent again on the others. The path's numbering is kept for its return.
func (s *session) dropPath(now mono.Time, i int, why string) {
	if s.txMask&(1<<i) == 0 {
		return
	}
	p := s.tx[i]
	p.setState(now, PathDead, why)
	s.e.lost = p.ledger.AbandonAll(s.e.lost[:0]) // the probes of a path that was dead already
	s.onLost(now, p, s.e.lost)
	s.txMask &^= 1 << i
	s.special &^= 1 << i
}

// usable reports whether the path may carry data at all.
func (p *txPath) usable() bool { return p.state == PathGood || p.state == PathSuspect }

// reachable reports whether the peer answers on any path.
func (s *session) reachable() bool {
	for m := s.txMask; m != 0; m &= m - 1 {
		if s.tx[bits.TrailingZeros64(m)].state == PathGood {
			return true
		}
	}
	return false
}

// setState changes the state and does what the change demands.
func (p *txPath) setState(now mono.Time, st PathState, why string) {
	if p.state == st {
		return
	}
	from, was := p.state, p.usable()
	p.state = st
	e := p.s.e
	switch st {
	case PathGood:
		p.ackedAt = now
		switch {
		case from != PathSuspect && p.alone:
			p.mtu, p.joined = wire.MinFrame, false
			p.startSizeProbe(now, p.limit(), false)
		case from != PathSuspect:
			p.mtu, p.joined = wire.MinFrame, false
			p.grow(now)
		case p.target == 0 && p.raiseAt == mono.Never && !p.atBest(): // the links changed meanwhile
			p.grow(now)
		}
	case PathSuspect:
		p.probeAt = min(p.probeAt, now.Add(probeEvery))
	case PathDead:
		e.lost = p.ledger.AbandonAll(e.lost[:0])
		p.s.onLost(now, p, e.lost)
		p.echoes, p.target, p.probeAt, p.probeWait, p.raising = 0, 0, now, probeEvery, false
		p.rtt = flowctl.RTT{} // it may come back by another way; then its probes have measured that
		p.cwnd.Init(e.cfg.Profile.Congestion)
	}
	e.Count.PathChanges++
	e.emit(Event{
		Kind: EvPath, Peer: p.s.peer.id, PeerName: p.s.peer.name, Link: uint8(p.link), Minor: was && p.usable(), Text: fmt.Sprintf("%v -> %v: %s", from, st, why),
	})
}

func (p *txPath) nextTimeout() mono.Time { return min(p.probeAt, p.ledger.Deadline()) }

func (p *txPath) handleTimeout(now mono.Time) {
	s, e := p.s, p.s.e
	if now >= p.ledger.Deadline() {
		var probe bool
		e.lost, probe = p.ledger.OnTimeout(now, &p.rtt, e.lost[:0])
		s.onLost(now, p, e.lost)
		switch {
		case !probe:
		case p.usable():
			if p.ledger.Probes() == 1 {
				p.askedAt = now
			}
			e.Count.TailProbes++
			p.wantPing(true)
			p.cwnd.OnTimeout(now)
			p.judge(now)
		case !s.hasOther(p.link): // the peer is out of reach: the news of our links may be what it lacks (clause 10.4)
			p.wantPing(true)
		}
	}
	if now >= p.probeAt {
		p.probeTimer(now)
	}
}

// judge moves a path that does not answer towards dead (clause 9.1).
func (p *txPath) judge(now mono.Time) {
	n := p.ledger.Probes()
	if n >= 2 && p.state == PathGood {
		p.setState(now, PathSuspect, fmt.Sprintf("%d probes unanswered", n))
	}
	if silent := now.Sub(max(p.ackedAt, p.askedAt)); n >= deadProbes && p.state == PathSuspect && silent >= deadAfter && p.s.hasOther(p.link) {
		p.setState(now, PathDead, fmt.Sprintf("no answer for %v", silent.Round(time.Millisecond)))
	}
}

// hasOther reports whether a good path besides that of link i exists.
func (s *session) hasOther(i int) bool {
	for m := s.txMask &^ (1 << i); m != 0; m &= m - 1 {
		if s.tx[bits.TrailingZeros64(m)].state == PathGood {
			return true
		}
	}
	return false
}

// probeTimer sends the next probe: of life, or of a frame size.
func (p *txPath) probeTimer(now mono.Time) {
	switch {
	case p.state == PathProbing || p.state == PathDead:
		p.target, p.echoes = 0, 0
		p.sendProbe(now, 0, false)
		p.probeAt = now.Add(p.probeWait)
		p.probeWait = min(p.probeWait*5/4, probeSlowest)
	case p.target != 0 && p.tries < sizeProbeTries:
		p.tries++
		p.sendProbe(now, p.target, p.joining)
		p.probeAt = now.Add(max(sizeProbeEvery, 2*p.rtt.SRTT()))
	case p.target != 0 && p.joining:
		p.late = p.nonce
		if !p.joined && p.target+p.overhead() == p.mtu { // frames alone of that length pass
			p.settleSize(now)
			p.goAlone()
			p.reportSize()
		} else {
			p.startSizeProbe(now, p.limit(), false)
		}
	case p.target != 0:
		p.smaller(now, smallerFrame(p.target))
	case p.state == PathGood && now >= p.raiseAt:
		p.raising = true
		p.grow(now)
	case p.state == PathGood: // a timer of life that is not needed any more
		p.probeAt = p.raiseAt
	default:
		p.probeAt = mono.Never
	}
	if p.state == PathSuspect && p.target == 0 { // others carry the data: nothing else would show that it is alive
		p.wantPing(true)
		p.probeAt = now.Add(probeEvery)
	}
}

// joinedProbe is the bit of a probe's nonce that says that it travels in a datagram.
const joinedProbe = 1 << 31

// probed is the size, in bytes after the Ethernet header, and the form that the low half of a nonce tells of; 0 is a probe of life.
func probed(nonce uint64) (size int, joined bool) {
	return int(uint32(nonce) &^ joinedProbe), nonce&joinedProbe != 0
}

// sendProbe asks for a Probe padded to size bytes (0: small). One that is repeated is the same: where round trips are longer than the repetition, the echo of the
// first is as good.
func (p *txPath) sendProbe(now mono.Time, size int, joined bool) {
	low := uint64(size)
	if joined {
		low |= joinedProbe
	}
	if p.nonce == 0 || uint64(uint32(p.nonce)) != low {
		p.nonce, p.probedAt = uint64(p.s.e.rng.Uint32()|1)<<32|low, now
	}
	p.probe = true
	p.s.special |= 1 << p.link
}

func (p *txPath) wantPing(on bool) {
	p.ping = on
	if on {
		p.s.special |= 1 << p.link
	}
}

// onEcho handles an answered probe (clauses 9.1 and 9.2).
func (p *txPath) onEcho(now mono.Time, nonce uint64) {
	late := nonce == p.late
	switch {
	case nonce == 0 || nonce != p.nonce && !late:
		return
	case late:
		p.late = 0
	default:
		p.nonce = 0
	}
	if size, joined := probed(nonce); size != 0 {
		best, can := p.best()
		asked := late && (!p.joined || size > p.mtu) || size == p.target && joined == p.joining
		if fits := joined && can && size <= best || !joined && size <= p.limit(); asked && fits && p.usable() {
			p.mtu, p.joined = size, joined
			p.sized(now)
		}
		return
	}
	switch p.state {
	case PathProbing:
		p.setState(now, PathGood, "answered")
	case PathDead:
		p.probeWait = min(max(probeEvery, 2*now.Sub(p.probedAt)), probeSlowest)
		if p.echoes++; p.echoes >= rejoinEchoes {
			p.setState(now, PathGood, "answers again")
			return
		}
		p.sendProbe(now, 0, false)
		p.probeAt = now.Add(p.probeWait)
	}
}

// onAlive is called when the path's ledger advanced.
func (p *txPath) onAlive(now mono.Time) {
	p.ackedAt = now
	if p.state == PathSuspect {
		p.setState(now, PathGood, "acknowledged")
	}
}

// room reports whether the path can take a data frame now.
func (p *txPath) room(now mono.Time) bool {
	n, _ := p.ledger.InFlight()
	return p.usable() && n < p.slots && !p.s.e.links[p.link].blocked && p.ledger.CanSend() && p.cwnd.Allows(n, now)
}
