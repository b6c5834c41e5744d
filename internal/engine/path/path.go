package path

import (
	"fmt"
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// State is what is believed of a path (clause 9.1).
type State uint8

const (
	StateProbing State = iota
	StateGood
	StateSuspect
	StateDead
)

func (p State) String() string { return [...]string{"probing", "good", "suspect", "dead"}[p] }

// Timers of clause 9.
const (
	probeEvery   = 50 * time.Millisecond  // between probes of a path that is not good
	probeSlowest = time.Second            // after some unanswered ones
	deadAfter    = 200 * time.Millisecond // of unanswered probing, while another path is good
	deadProbes   = 3
	rejoinEchoes = 3
	laneProbes   = 2 // unanswered on one IP link, while another was answered (clause 21.7)
)

// Tx is the send side of a path: what is in flight, round trips, congestion, state.
type Tx struct {
	Set    *Set
	Link   int
	Number uint8                 // the peer's link
	To     frame.Addr            // that link's address
	Out    frame.Addr            // the same, by the port that the path asks from
	Header [frame.HeaderLen]byte // of frames to it
	slots  int                   // frames in flight that the peer's receive side can hold
	Shuf   int                   // header bytes to shuffle past, 0 for none

	version uint32    // of the description of the peer's link by which the path was led
	madeAt  mono.Time // when it began, anew

	Ledger  *flowctl.Ledger
	RTT     flowctl.RTT
	Cwnd    flowctl.Controller
	askedPN uint64    // number of the latest frame that asked for its acknowledgement
	paceAt  mono.Time // when pacing lets the frame go that it has kept back

	State   State
	Probing probing
	PMTU    pmtu
	Lookout lookout
	Marking marking
	Move    move       // of an IP link
	SeenAs  frame.Addr // where the peer sees its frames come from, as an Echo said last
	tries   int        // addresses of an IP link that were asked
	port    int        // of a lane's, from which it asks
	unheard int        // keep-alive times in a row in which nothing of the peer came by a lane
	parted  bool       // it was good in this session where no other path led
	partAt  mono.Time  // when it asks at other addresses, since another path leads to its own; 0: never

	Count Counters
}

// probing is how a path that is not good is asked whether it lives, and answers when the peer asks. The timer is that
// of the search for the frame size too.
type probing struct {
	probeAt   mono.Time // next probe: of life while not good, of size while growing
	probeWait time.Duration
	Nonce     uint64    // of the probe that waits for its echo, 0 for none
	probedAt  mono.Time // when that was first sent
	echoes    int       // in a row, while probing
	ackedAt   mono.Time // newest acknowledgement, or start
	askedAt   mono.Time // when the first of the probe times that ran out in a row did

	Ping  bool         // to be sent
	Probe bool         // to be sent
	to    []frame.Addr // where a small one with Nonce was sent, on an IP link: the latest, at most mostAsked
	Echo  []echo       // to be returned, in order of arrival, at most MaxLinks
}

// Counters are per path and session.
type Counters struct {
	Frames, Bytes, Retransmitted, Lost uint64
	Marked                             uint64 // as the peer says
}

// usableSlots leaves a quarter of the receive slots to frames that are not in flight by our count (clause 8.7).
func usableSlots(slots int) int { return max(4, slots*3/4) }

func (s *Set) add(now mono.Time, i int, number uint8) {
	net := s.net
	p := &Tx{Set: s, Link: i, madeAt: now, paceAt: mono.Never,
		Probing: probing{ackedAt: now, probeAt: now, probeWait: probeEvery},
		Lookout: lookout{Search: net.rand.Uint32()}, tries: i} // each link begins with another address
	p.lead(number, s.RemoteLink(number))
	if s.isIP(i) && !p.To.Known() {
		p.seek(now)
	}
	if old := s.Tx[i]; old != nil {
		p.Cwnd, p.Marking = old.Cwnd, old.Marking
		p.Ledger = old.Ledger // packet numbers never repeat within a session (clause 3.2)
		p.parted = old.parted
	} else {
		span := flowctl.DefaultSpan
		if s.isIP(i) {
			span = flowctl.WindowBits
		}
		p.Ledger = flowctl.NewLedger(span)
	}
	p.Ledger.Configure(net.cfg.Profile.Loss(net.cfg.Profile.Acks))
	p.renewCwnd()
	p.PMTU.MTU = wire.MinFrame
	s.Tx[i] = p
	s.TxMask |= 1 << i
	s.Sched.SetWeight(i, net.Links[i].Weight)
	p.HandleTimeout(now)
}

// Drop takes a path out of use; what was in flight on it is sent again on the others. The path's numbering is kept
// for its return.
func (s *Set) Drop(now mono.Time, i int, why string) {
	if s.TxMask&(1<<i) == 0 {
		return
	}
	p := s.Tx[i]
	p.setState(now, StateDead, why)
	s.net.Lost = p.Ledger.AbandonAll(s.net.Lost[:0]) // the probes of a path that was dead already
	s.OnLost(now, p, s.net.Lost)
	s.TxMask &^= 1 << i
	s.Special &^= 1 << i
}

// Usable reports whether the path may carry data at all.
func (p *Tx) Usable() bool { return p.State == StateGood || p.State == StateSuspect }

// Reachable reports whether the peer answers on any path.
func (s *Set) Reachable() bool {
	for m := s.TxMask; m != 0; m &= m - 1 {
		if s.Tx[bits.TrailingZeros64(m)].State == StateGood {
			return true
		}
	}
	return false
}

// setState changes the state and does what the change demands.
func (p *Tx) setState(now mono.Time, st State, why string) {
	if p.State == st {
		return
	}
	from, was := p.State, p.Usable()
	p.tally(-1)
	p.State = st
	p.tally(1)
	net := p.Set.net
	if p.Usable() != was {
		p.share()
	}
	switch st {
	case StateGood:
		p.Probing.ackedAt = now
		p.Set.Hints.Proved[p.Link] = p.To
		if p.partAt = 0; !p.shares() {
			p.parted = true
		} else if p.Set.isIP(p.Link) {
			p.partAll(now)
		}
		switch {
		case from != StateSuspect && p.PMTU.alone:
			p.PMTU.MTU, p.PMTU.Joined = wire.MinFrame, false
			p.startSizeProbe(now, p.limit(), false)
		case from != StateSuspect:
			p.PMTU.MTU, p.PMTU.Joined = wire.MinFrame, false
			p.grow(now)
		case p.PMTU.target == 0 && p.PMTU.raiseAt == mono.Never && !p.atBest(): // the links changed meanwhile
			p.grow(now)
		}
	case StateSuspect:
		p.Probing.probeAt, p.Probing.probeWait = min(p.Probing.probeAt, now.Add(probeEvery)), probeEvery
	case StateDead:
		p.Set.doubted &^= 1 << p.Link
		net.Lost = p.Ledger.AbandonAll(net.Lost[:0])
		p.Set.OnLost(now, p, net.Lost)
		p.Probing.echoes, p.PMTU.target, p.Probing.probeAt, p.Probing.probeWait, p.PMTU.raising, p.Lookout.unsure = 0,
			0, now, probeEvery, false, false
		p.RTT = flowctl.RTT{} // it may come back by another way; then its probes have measured that
		p.renewCwnd()
	}
	if from == StateGood && !p.Set.HasOther(p.Link) {
		p.Set.hurryAll(now)
	}
	net.count.Life.PathChanges++
	p.Set.changed(p.Link, was && p.Usable(), fmt.Sprintf("%v -> %v: %s", from, st, why))
}

func (p *Tx) NextTimeout() mono.Time {
	at := min(p.Probing.probeAt, p.Ledger.Deadline(), p.paceAt)
	if p.Move.due != 0 {
		at = min(at, p.Move.due)
	}
	if p.partAt != 0 {
		at = min(at, p.partAt)
	}
	return at
}

// renewCwnd begins anew with the window of a path that carries no data.
func (p *Tx) renewCwnd() { p.Cwnd = p.Set.congestion(p.Link).New() }

// share tells window and marks whether the path carries data, when that has changed.
func (p *Tx) share() {
	usable := p.Usable()
	if w, ok := p.Cwnd.(flowctl.Sharer); ok {
		w.Share(usable)
	}
	if p.Marking.state = marksOff; usable {
		p.testMarks()
	}
}

// congestion is how congestion is controlled on paths of local link i.
func (s *Set) congestion(i int) flowctl.Congestion {
	l := &s.net.Links[i]
	if l.Congestion == nil || s.net.cfg.Profile.Congestion.Fixed() > 0 { // a fixed window is one everywhere
		return s.net.cfg.Profile.Congestion
	}
	way, shares := l.Congestion.(flowctl.Cabled)
	if !shares {
		return l.Congestion
	}
	if s.cables == nil {
		s.cables = map[string]flowctl.Congestion{}
	}
	c := s.cables[l.Group]
	if c == nil {
		c = way.Cable()
		s.cables[l.Group] = c
	}
	return c
}

func (p *Tx) HandleTimeout(now mono.Time) {
	s, net := p.Set, p.Set.net
	if now >= p.paceAt {
		p.paceAt = mono.Never
	}
	if now >= p.Ledger.Deadline() {
		var probe bool
		net.Lost, probe = p.Ledger.OnTimeout(now, &p.RTT, net.Lost[:0])
		s.OnLost(now, p, net.Lost)
		switch {
		case !probe:
		case p.Usable():
			if p.Ledger.Probes() == 1 {
				p.Probing.askedAt = now
				p.askLanes()
			}
			net.count.Loss.TailProbes++
			if net.cfg.Profile.Acks.Exact { // the paper's way (clause 8.6); the ping asks this path, whichever it takes
				net.Lost = p.Ledger.RecallLast(net.Lost[:0])
				s.OnLost(now, p, net.Lost)
			}
			p.WantPing(true)
			p.Cwnd.OnTimeout(now)
			p.judge(now)
		case !s.HasOther(p.Link): // the peer is out of reach: the news of our links may be what it lacks (clause 10.4)
			p.WantPing(true)
		}
	}
	if now >= p.Probing.probeAt {
		p.probeTimer(now)
	}
	p.moveTimer(now)
	p.partTimer(now)
}

// judge moves a path that does not answer towards dead (clause 9.1).
func (p *Tx) judge(now mono.Time) {
	n := p.Ledger.Probes()
	if n >= 2 && p.State == StateGood {
		p.setState(now, StateSuspect, fmt.Sprintf("%d probes unanswered", n))
	}
	if n >= laneProbes && p.State == StateSuspect && p.Set.isIP(p.Link) && p.Set.answers(p) {
		p.setState(now, StateDead, fmt.Sprintf("%d probes unanswered, while other IP links were answered", n))
		p.draw(now)
	}
	if p.forsaken(now) && p.Set.HasOther(p.Link) {
		p.setState(now, StateDead, fmt.Sprintf("no answer for %v", p.silent(now).Round(time.Millisecond)))
		p.draw(now)
	}
}

// silent is for how long the path was asked in vain.
func (p *Tx) silent(now mono.Time) time.Duration {
	return now.Sub(max(p.Probing.ackedAt, p.Probing.askedAt))
}

// forsaken reports whether the path was asked in vain for so long that it would be dead if another one were good.
func (p *Tx) forsaken(now mono.Time) bool {
	return p.State == StateSuspect && p.Ledger.Probes() >= deadProbes && p.silent(now) >= deadAfter
}

// HasOther reports whether a good path besides that of link i exists.
func (s *Set) HasOther(i int) bool {
	for m := s.TxMask &^ (1 << i); m != 0; m &= m - 1 {
		if s.Tx[bits.TrailingZeros64(m)].State == StateGood {
			return true
		}
	}
	return false
}

// probeTimer sends the next probe: of life, or of a frame size.
func (p *Tx) probeTimer(now mono.Time) {
	switch {
	case p.State == StateProbing || p.State == StateDead:
		p.PMTU.target, p.Probing.echoes = 0, 0
		p.sendProbe(now, 0, false)
		switch {
		case !p.Lookout.unsure:
		case p.Set.isIP(p.Link):
			p.seek(now)
		default:
			p.lookAround(now)
		}
		p.Lookout.unsure = true
		p.Probing.probeAt = now.Add(p.Probing.probeWait)
		p.Probing.probeWait = min(p.Probing.probeWait*5/4, probeSlowest)
	case p.PMTU.target != 0:
		p.sizeTimer(now)
	case p.State == StateGood && now >= p.PMTU.raiseAt:
		p.PMTU.raising = true
		p.grow(now)
	case p.State == StateGood: // a timer of life that is not needed any more
		p.Probing.probeAt = p.PMTU.raiseAt
	default:
		p.Probing.probeAt = mono.Never
	}
	// others carry the data: nothing else would show that it is alive
	if p.State == StateSuspect && p.PMTU.target == 0 {
		p.WantPing(true)
		p.Probing.probeAt = now.Add(probeEvery)
		if p.forsaken(now) { // no other is good, or it would be dead
			if p.Set.isIP(p.Link) {
				p.seekAside(now)
			} else {
				p.lookAround(now)
			}
			p.again(now, p.Probing.probeWait)
			p.Probing.probeWait = min(p.Probing.probeWait*5/4, probeSlowest/2)
		}
	}
}

// sendProbe asks for a Probe padded to size bytes (0: small). One that is repeated is the same: where round trips are
// longer than the repetition, the echo of the first is as good.
func (p *Tx) sendProbe(now mono.Time, size int, joined bool) {
	low := uint64(size)
	if joined {
		low |= joinedProbe
	}
	if p.Probing.Nonce == 0 || uint64(uint32(p.Probing.Nonce)) != low {
		p.Probing.Nonce, p.Probing.probedAt = uint64(p.Set.net.rand.Uint32()|1)<<32|low, now
		p.Probing.to = p.Probing.to[:0]
	}
	p.Probing.Probe = true
	p.Set.Special |= 1 << p.Link
}

func (p *Tx) WantPing(on bool) {
	p.Probing.Ping = on
	if on {
		p.Set.Special |= 1 << p.Link
	}
}

// OnEcho handles an answered probe (clauses 9.1 and 9.2).
func (p *Tx) OnEcho(now mono.Time, nonce uint64) {
	if nonce == p.Move.nonce && nonce != 0 {
		p.moved(now)
		return
	}
	if j, ok := p.asked(nonce); ok {
		p.answeredBy(now, j)
		return
	}
	late := nonce == p.PMTU.late
	if nonce == p.Probing.Nonce && !late && !p.answers(nonce) {
		return
	}
	switch {
	case nonce == 0 || nonce != p.Probing.Nonce && !late:
		return
	case late:
		p.PMTU.late = 0
	default:
		p.Probing.Nonce = 0
	}
	if size, joined := Probed(nonce); size != 0 {
		p.sizeAnswered(now, size, joined, late)
		return
	}
	switch p.State {
	case StateProbing:
		p.setState(now, StateGood, "answered")
	case StateDead:
		p.Probing.probeWait = min(max(probeEvery, 2*now.Sub(p.Probing.probedAt)), probeSlowest)
		if p.Set.isIP(p.Link) {
			p.Lookout.unsure = false // it is asked there once more before it is asked elsewhere
		}
		if p.Probing.echoes++; p.Probing.echoes >= rejoinEchoes {
			p.setState(now, StateGood, "answers again")
			return
		}
		p.sendProbe(now, 0, false)
		p.Probing.probeAt = now.Add(p.Probing.probeWait)
	}
}

// onAlive is called when the path's ledger advanced.
func (p *Tx) onAlive(now mono.Time) {
	p.Probing.ackedAt = now
	s := p.Set
	s.doubted &^= 1 << p.Link
	if p.State == StateSuspect {
		p.setState(now, StateGood, "acknowledged")
	}
	if s.doubted != 0 && p.State == StateGood && s.isIP(p.Link) {
		p.answersFor(now)
	}
}

// hastenParts is how many acknowledgements in a window keep frames leaving.
const hastenParts = 4

// Hastens reports whether the frame of that number, which leaves now, is to be acknowledged at once: windows of fewer
// frames than a peer acknowledges together would stand still until its delay has passed.
func (p *Tx) Hastens(pn uint64) bool {
	if p.Set.net.Links[p.Link].Congestion == nil {
		return false
	}
	window := p.Cwnd.Frames()
	if window >= float64(p.Set.net.cfg.Profile.Acks.Every) || float64(pn-p.askedPN) < window/hastenParts {
		return false
	}
	p.askedPN = pn
	return true
}

// Room reports whether the path can take a data frame now.
func (p *Tx) Room(now mono.Time) bool {
	n, _ := p.Ledger.InFlight()
	if !p.Usable() || n >= p.slots || p.Set.net.Links[p.Link].Blocked || !p.Ledger.CanSend() {
		return false
	}
	ok := p.Cwnd.Allows(n, now)
	if !ok {
		if at := p.Cwnd.NextSend(); at > now {
			p.paceAt = at
		}
	}
	return ok
}
