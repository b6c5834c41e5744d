package engine

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
	"multiedge/sched"
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
	probeEvery   = 50 * time.Millisecond  // between probes of a path that is not good
	probeSlowest = time.Second            // after some unanswered ones
	deadAfter    = 200 * time.Millisecond // of unanswered probing, while another path is good
	deadProbes   = 3
	rejoinEchoes = 3
)

// paths are the paths of a session, by local link to send and by the peer's to receive (clause 2.2).
type paths struct {
	tx       [MaxLinks]*txPath // one that was dropped stays, for its packet numbers
	rx       [MaxLinks]*rxPath
	txMask   uint64 // tx paths in use
	rxMask   uint64
	special  uint64 // tx paths with a ping, probe or echo to send
	sched    sched.Scheduler
	measured bool // the scheduler's weights are the measured windows
	inFlight int  // eliciting frames, all paths

	heardFrom uint8  // the peer's link that the latest frame came from
	heardVia  uint64 // local links on which the peer was heard since the latest keep-alive
}

// txPath is the send side of a path: what is in flight, round trips, congestion, state.
type txPath struct {
	s      *session
	link   int
	number uint8                 // the peer's link
	to     frame.Addr            // that link's address
	header [frame.HeaderLen]byte // of frames to it
	slots  int                   // frames in flight that the peer's receive side can hold
	shuf   int                   // header bytes to shuffle past, 0 for none

	ledger *flowctl.Ledger
	rtt    flowctl.RTT
	cwnd   flowctl.Controller

	state   PathState
	probing probing
	pmtu    pmtu
	lookout lookout

	count PathCounters
}

// probing is how a path that is not good is asked whether it lives, and answers when the peer asks. The timer is that
// of the search for the frame size too.
type probing struct {
	probeAt   mono.Time // next probe: of life while not good, of size while growing
	probeWait time.Duration
	nonce     uint64    // of the probe that waits for its echo, 0 for none
	probedAt  mono.Time // when that was first sent
	echoes    int       // in a row, while probing
	ackedAt   mono.Time // newest acknowledgement, or start
	askedAt   mono.Time // when the first of the probe times that ran out in a row did

	ping  bool   // to be sent
	probe bool   // to be sent
	echo  []echo // to be returned, in order of arrival, at most MaxLinks
}

// PathCounters are per path and session.
type PathCounters struct {
	Frames, Bytes, Retransmitted, Lost uint64
}

// refreshPaths makes a path for every local link that reaches the peer, and follows changes of the peer's side.
func (s *session) refreshPaths(now mono.Time) {
	if s.state != sessionOpen {
		return
	}
	e := s.e
	for m := e.up; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.paths.txMask&(1<<i) == 0 {
			if j, ok := s.first(now, i); ok {
				s.addPath(now, i, j)
			}
			continue
		}
		p := s.paths.tx[i]
		switch r := s.remoteLink(p.number); {
		case r.slots == 0:
			s.dropPath(now, i, "peer's link is gone")
			if j, ok := s.first(now, i); ok {
				s.addPath(now, i, j)
			}
		case p.to != r.addr || !p.fits() || p.slots != usableSlots(r.slots):
			s.dropPath(now, i, "peer's link changed")
			s.addPath(now, i, p.number)
		case p.state == PathGood:
			if p.pmtu.target == 0 && !p.atBest() {
				p.grow(now)
			}
			p.spread(now)
		}
	}
}

// usableSlots leaves a quarter of the receive slots to frames that are not in flight by our count (clause 8.7).
func usableSlots(slots int) int { return max(4, slots*3/4) }

func (s *session) addPath(now mono.Time, i int, number uint8) {
	e := s.e
	p := &txPath{s: s, link: i, probing: probing{ackedAt: now, probeAt: now, probeWait: probeEvery},
		lookout: lookout{search: e.rng.Uint32()}}
	p.lead(number, s.remoteLink(number))
	if old := s.paths.tx[i]; old != nil {
		p.ledger = old.ledger // packet numbers never repeat within a session (clause 3.2)
	} else {
		p.ledger = flowctl.NewLedger(flowctl.DefaultSpan)
	}
	p.ledger.Configure(e.cfg.Profile.Loss(e.cfg.Profile.Acks))
	p.cwnd = e.cfg.Profile.Congestion.New()
	p.pmtu.mtu = wire.MinFrame
	s.paths.tx[i] = p
	s.paths.txMask |= 1 << i
	s.paths.sched.SetWeight(i, e.links[i].Weight)
	p.handleTimeout(now)
}

// dropPath takes a path out of use; what was in flight on it is sent again on the others. The path's numbering is kept
// for its return.
func (s *session) dropPath(now mono.Time, i int, why string) {
	if s.paths.txMask&(1<<i) == 0 {
		return
	}
	p := s.paths.tx[i]
	p.setState(now, PathDead, why)
	s.e.scratch.lost = p.ledger.AbandonAll(s.e.scratch.lost[:0]) // the probes of a path that was dead already
	s.onLost(now, p, s.e.scratch.lost)
	s.paths.txMask &^= 1 << i
	s.paths.special &^= 1 << i
}

// usable reports whether the path may carry data at all.
func (p *txPath) usable() bool { return p.state == PathGood || p.state == PathSuspect }

// reachable reports whether the peer answers on any path.
func (s *session) reachable() bool {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		if s.paths.tx[bits.TrailingZeros64(m)].state == PathGood {
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
		p.probing.ackedAt = now
		p.s.peer.proved[p.link] = p.to
		switch {
		case from != PathSuspect && p.pmtu.alone:
			p.pmtu.mtu, p.pmtu.joined = wire.MinFrame, false
			p.startSizeProbe(now, p.limit(), false)
		case from != PathSuspect:
			p.pmtu.mtu, p.pmtu.joined = wire.MinFrame, false
			p.grow(now)
		case p.pmtu.target == 0 && p.pmtu.raiseAt == mono.Never && !p.atBest(): // the links changed meanwhile
			p.grow(now)
		}
	case PathSuspect:
		p.probing.probeAt, p.probing.probeWait = min(p.probing.probeAt, now.Add(probeEvery)), probeEvery
	case PathDead:
		e.scratch.lost = p.ledger.AbandonAll(e.scratch.lost[:0])
		p.s.onLost(now, p, e.scratch.lost)
		p.probing.echoes, p.pmtu.target, p.probing.probeAt, p.probing.probeWait, p.pmtu.raising, p.lookout.unsure = 0,
			0, now, probeEvery, false, false
		p.rtt = flowctl.RTT{} // it may come back by another way; then its probes have measured that
		p.cwnd = e.cfg.Profile.Congestion.New()
	}
	if from == PathGood && !p.s.hasOther(p.link) {
		p.s.hurryAll(now)
	}
	e.Count.PathChanges++
	e.emit(Event{
		Kind: EvPath, Peer: p.s.peer.id, PeerName: p.s.peer.name, Link: uint8(p.link), Minor: was && p.usable(),
		Text: fmt.Sprintf("%v -> %v: %s", from, st, why),
	})
}

func (p *txPath) nextTimeout() mono.Time { return min(p.probing.probeAt, p.ledger.Deadline()) }

func (p *txPath) handleTimeout(now mono.Time) {
	s, e := p.s, p.s.e
	if now >= p.ledger.Deadline() {
		var probe bool
		e.scratch.lost, probe = p.ledger.OnTimeout(now, &p.rtt, e.scratch.lost[:0])
		s.onLost(now, p, e.scratch.lost)
		switch {
		case !probe:
		case p.usable():
			if p.ledger.Probes() == 1 {
				p.probing.askedAt = now
			}
			e.Count.TailProbes++
			p.wantPing(true)
			p.cwnd.OnTimeout(now)
			p.judge(now)
		case !s.hasOther(p.link): // the peer is out of reach: the news of our links may be what it lacks (clause 10.4)
			p.wantPing(true)
		}
	}
	if now >= p.probing.probeAt {
		p.probeTimer(now)
	}
}

// judge moves a path that does not answer towards dead (clause 9.1).
func (p *txPath) judge(now mono.Time) {
	n := p.ledger.Probes()
	if n >= 2 && p.state == PathGood {
		p.setState(now, PathSuspect, fmt.Sprintf("%d probes unanswered", n))
	}
	if silent := p.silent(now); n >= deadProbes && p.state == PathSuspect && silent >= deadAfter &&
		p.s.hasOther(p.link) {
		p.setState(now, PathDead, fmt.Sprintf("no answer for %v", silent.Round(time.Millisecond)))
	}
}

// silent is for how long the path was asked in vain.
func (p *txPath) silent(now mono.Time) time.Duration {
	return now.Sub(max(p.probing.ackedAt, p.probing.askedAt))
}

// hasOther reports whether a good path besides that of link i exists.
func (s *session) hasOther(i int) bool {
	for m := s.paths.txMask &^ (1 << i); m != 0; m &= m - 1 {
		if s.paths.tx[bits.TrailingZeros64(m)].state == PathGood {
			return true
		}
	}
	return false
}

// probeTimer sends the next probe: of life, or of a frame size.
func (p *txPath) probeTimer(now mono.Time) {
	switch {
	case p.state == PathProbing || p.state == PathDead:
		p.pmtu.target, p.probing.echoes = 0, 0
		p.sendProbe(now, 0, false)
		if p.lookout.unsure {
			p.lookAround(now)
		}
		p.lookout.unsure = true
		p.probing.probeAt = now.Add(p.probing.probeWait)
		p.probing.probeWait = min(p.probing.probeWait*5/4, probeSlowest)
	case p.pmtu.target != 0:
		p.sizeTimer(now)
	case p.state == PathGood && now >= p.pmtu.raiseAt:
		p.pmtu.raising = true
		p.grow(now)
	case p.state == PathGood: // a timer of life that is not needed any more
		p.probing.probeAt = p.pmtu.raiseAt
	default:
		p.probing.probeAt = mono.Never
	}
	if p.state == PathSuspect && p.pmtu.target == 0 { // others carry the data: nothing else would show that it is alive
		p.wantPing(true)
		p.probing.probeAt = now.Add(probeEvery)
		if p.ledger.Probes() >= deadProbes && p.silent(now) >= deadAfter { // no other is good, or it would be dead
			p.lookAround(now)
			p.again(now, p.probing.probeWait)
			p.probing.probeWait = min(p.probing.probeWait*5/4, probeSlowest/2)
		}
	}
}

// sendProbe asks for a Probe padded to size bytes (0: small). One that is repeated is the same: where round trips are
// longer than the repetition, the echo of the first is as good.
func (p *txPath) sendProbe(now mono.Time, size int, joined bool) {
	low := uint64(size)
	if joined {
		low |= joinedProbe
	}
	if p.probing.nonce == 0 || uint64(uint32(p.probing.nonce)) != low {
		p.probing.nonce, p.probing.probedAt = uint64(p.s.e.rng.Uint32()|1)<<32|low, now
	}
	p.probing.probe = true
	p.s.paths.special |= 1 << p.link
}

func (p *txPath) wantPing(on bool) {
	p.probing.ping = on
	if on {
		p.s.paths.special |= 1 << p.link
	}
}

// onEcho handles an answered probe (clauses 9.1 and 9.2).
func (p *txPath) onEcho(now mono.Time, nonce uint64) {
	if j, ok := p.asked(nonce); ok {
		p.answeredBy(now, j)
		return
	}
	late := nonce == p.pmtu.late
	switch {
	case nonce == 0 || nonce != p.probing.nonce && !late:
		return
	case late:
		p.pmtu.late = 0
	default:
		p.probing.nonce = 0
	}
	if size, joined := probed(nonce); size != 0 {
		p.sizeAnswered(now, size, joined, late)
		return
	}
	switch p.state {
	case PathProbing:
		p.setState(now, PathGood, "answered")
	case PathDead:
		p.probing.probeWait = min(max(probeEvery, 2*now.Sub(p.probing.probedAt)), probeSlowest)
		if p.probing.echoes++; p.probing.echoes >= rejoinEchoes {
			p.setState(now, PathGood, "answers again")
			return
		}
		p.sendProbe(now, 0, false)
		p.probing.probeAt = now.Add(p.probing.probeWait)
	}
}

// onAlive is called when the path's ledger advanced.
func (p *txPath) onAlive(now mono.Time) {
	p.probing.ackedAt = now
	if p.state == PathSuspect {
		p.setState(now, PathGood, "acknowledged")
	}
}

// room reports whether the path can take a data frame now.
func (p *txPath) room(now mono.Time) bool {
	n, _ := p.ledger.InFlight()
	return p.usable() && n < p.slots && !p.s.e.links[p.link].blocked && p.ledger.CanSend() && p.cwnd.Allows(n, now)
}
