package engine

// The send path, one frame at a time:
//
//  1. PollTransmit: set-up frames first, then what sessions without data owe, then each session with data in turn.
//  2. session.transmit: probes and pings on their own path; data on the path the scheduler picks; else an acknowledgement that is due.
//  3. builder: acknowledgements that wait, then what connections have to send, small parts copied to the tail, one large part referenced
//     where it lies in registered memory (the driver gathers it; the kernel's copy is the only one).
//  4. builder.finish: packet number, checksums, and a record of what the frame carried, for the case that it is lost.

import (
	"math/bits"
	"slices"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// PollTransmit adds the frames that may leave now to b and returns how many. It is to be called until it returns 0 after anything else was called.
func (e *Endpoint) PollTransmit(now mono.Time, b *Batch) int {
	before := len(b.Frames)
	b.most = batchPlain
	touched := e.cfg.Secure != nil || e.cfg.Checksum == ChecksumFull
	if touched {
		b.most = min(batchPlain, batchTouched*max(1, bits.OnesCount64(e.up)))
	}
	e.emitOutbox(now, b)
	if e.transmitIdle(now, b) {
		e.transmitBusy(now, b, touched)
		e.builder.forget()
	}
	return len(b.Frames) - before
}

// transmitIdle has the sessions without data send what others wait for: acknowledgements that are due, pings, probes, echoes. They go before the data of other sessions, which may
// fill every batch, and take half of one at most. It reports whether there may be sessions with data.
func (e *Endpoint) transmitIdle(now mono.Time, b *Batch) (busy bool) {
	if e.idleTurn >= len(e.sessions) {
		e.idleTurn = 0
	}
	first, most := e.idleTurn, (len(b.Frames)+cap(b.Frames)+1)/2
	for k := range e.sessions {
		if k += first; k >= len(e.sessions) {
			k -= len(e.sessions)
		}
		switch s := e.sessions[k]; {
		case s.state != sessionOpen:
		case s.hasData():
			busy = true
		case len(b.Frames) >= most:
			e.idleTurn = k
			return true
		default:
			s.transmit(now, b)
		}
	}
	return busy
}

// transmitBusy has the sessions with data send. The one after the first that could is the first next time: it may be that one alone which the batch has room for.
func (e *Endpoint) transmitBusy(now mono.Time, b *Batch, touched bool) {
	if e.turn >= len(e.sessions) {
		e.turn = 0
	}
	first, moved := e.turn, false
	for k := range e.sessions {
		if k += first; k >= len(e.sessions) {
			k -= len(e.sessions)
		}
		s := e.sessions[k]
		if s.state != sessionOpen || !s.hasData() {
			continue
		}
		if touched && s.sendq.len() > 0 {
			b.most = max(b.most, min(batchPlain, s.bytesInFlight()))
		}
		n := len(b.Frames)
		s.transmit(now, b)
		if len(b.Frames) > n && !moved {
			e.turn, moved = k+1, true
		}
	}
}

// Set-up frames wait for links that are blocked: one that sends as fast as it can is blocked whenever one looks. They are at most maxHeld, and as good as lost after
// heldTime: soon they come again.
const (
	maxHeld  = 64
	heldTime = 20 * time.Millisecond
)

// emitOutbox gives the set-up frames that can leave to b.
func (e *Endpoint) emitOutbox(now mono.Time, b *Batch) {
	var held []outFrame
	for len(e.outbox) > 0 && !b.full() {
		f := e.outbox[0]
		e.outbox = e.outbox[1:]
		switch l := &e.links[f.link]; {
		case !l.up || f.held && now > f.until: // as good as lost
		case !l.blocked:
			e.emitSetup(b, &f)
		case len(held) < maxHeld:
			if !f.held {
				f.held, f.until = true, now.Add(heldTime)
			}
			held = append(held, f)
		}
	}
	if e.outbox = append(held, e.outbox...); len(e.outbox) == 0 {
		e.outbox = nil
	}
}

// setupWaits reports whether a set-up frame can leave.
func (e *Endpoint) setupWaits() bool {
	return slices.ContainsFunc(e.outbox, func(f outFrame) bool { return !e.links[f.link].blocked })
}

func (e *Endpoint) emitSetup(b *Batch, f *outFrame) {
	buf := b.next()
	copy(buf[0:], f.dst[:])
	copy(buf[6:], e.links[f.link].MAC[:])
	buf[12], buf[13] = byte(e.cfg.EtherType>>8), byte(e.cfg.EtherType)
	if f.sealed {
		n := wire.EthLen + copy(buf[wire.EthLen:], f.body)
		t := b.add()
		t.Link, t.Head = f.link, buf[:n]
		e.countSent(f.link, n)
		return
	}
	n := copy(buf[wire.TailStart:], f.body)
	h := wire.Header{Type: f.kind, Path: uint8(f.link), Session: f.sess}
	wire.Finish(buf[wire.EthLen:], &h, buf[wire.TailStart:wire.TailStart+n])
	t := b.add()
	t.Link, t.Head = f.link, buf[:wire.TailStart+n]
	e.countSent(f.link, wire.TailStart+n)
}

func (e *Endpoint) countSent(link, bytes int) {
	e.Count.FramesSent++
	e.Count.BytesSent += uint64(bytes)
	e.links[link].count.FramesSent++
	e.links[link].count.BytesSent += uint64(bytes)
}

// bytesInFlight is what was sent on all paths and is not acknowledged.
func (s *session) bytesInFlight() (bytes int) {
	for m := s.txMask; m != 0; m &= m - 1 {
		_, n := s.tx[bits.TrailingZeros64(m)].ledger.InFlight()
		bytes += n
	}
	return bytes
}

// hasData reports whether frames wait that take a path of the scheduler's choice.
func (s *session) hasData() bool { return s.sendq.len() > 0 || s.news != 0 }

func (s *session) transmit(now mono.Time, b *Batch) {
	w := &s.e.builder
	for m := s.special; m != 0 && !b.full(); m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.e.links[i].blocked {
			continue
		}
		s.special &^= 1 << i
		s.sendSpecial(now, b, s.tx[i])
	}
	var p *txPath
	for run := 0; !b.full() && s.hasData(); run-- {
		if run <= 0 || !p.room(now) || s.inFlight >= s.e.cfg.Profile.Window {
			if p = s.pickPath(now); p == nil {
				break
			}
			run = p.run()
		}
		w.begin(s, p, b)
		w.picked = true
		if s.wantPiggyback(now) {
			w.acks(now, piggybackWords, false)
		}
		if s.news != 0 {
			w.links()
		}
		w.fill(now)
		if !w.used() {
			break
		}
		w.finish(now)
		s.pushes.left(now)
	}
	if !b.full() && s.ackDue(now) {
		s.pushes.alone()
		s.sendAck(now, b)
	}
}

// pickPath returns the path for the next data frame, nil if it must wait.
func (s *session) pickPath(now mono.Time) *txPath {
	if s.inFlight >= s.e.cfg.Profile.Window {
		return nil
	}
	var live, good, room uint64
	for m := s.txMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		p := s.tx[i]
		if !p.usable() {
			continue
		}
		live |= 1 << i
		if p.state == PathGood {
			good |= 1 << i
		}
		if p.room(now) {
			room |= 1 << i
		}
	}
	if good != 0 {
		live = good
	}
	i, ok := s.sched.Pick(live, room&live)
	if !ok {
		return nil
	}
	return s.tx[i]
}

// run is how many frames in a row leave on a path that was picked: one, or as many as make a datagram, which costs hardly more, where they travel so and as many
// are in flight already. The first of a burst are spread over the links: their peer can begin with each. The paper's schedulers have a say in each frame.
func (p *txPath) run() int {
	if !p.joined || !p.s.adaptive {
		return 1
	}
	n := p.s.e.links[p.link].Super / (p.frameLimit() + wire.EthLen)
	if p.s.inFlight < n {
		return 1
	}
	return n
}

// Bitmap words an acknowledgement block may take on a data frame and alone.
const (
	piggybackWords = flowctl.MaxAckWords
	explicitWords  = 128
)

// wantPiggyback reports whether enough waits to be acknowledged, or for so long, that a data frame should carry it (clause 8.2).
func (s *session) wantPiggyback(now mono.Time) bool {
	if s.ackAt != mono.Never || s.opacks.len() > 0 {
		return true
	}
	for m := s.rxMask; m != 0; m &= m - 1 {
		if p := &s.rx[bits.TrailingZeros64(m)].policy; p.WantPiggyback() || p.Due(now) {
			return true
		}
	}
	return false
}

// ackDue reports whether an explicit acknowledgement must leave now.
func (s *session) ackDue(now mono.Time) bool {
	if now < s.muteTo {
		return false
	}
	if now >= s.ackAt {
		return true
	}
	for m := s.rxMask; m != 0; m &= m - 1 {
		if s.rx[bits.TrailingZeros64(m)].ackAt(s) <= now {
			return true
		}
	}
	if s.opacks.len() > 0 && s.ackAt == mono.Never {
		wait := s.e.cfg.Profile.Acks.Delay
		if s.pushes.last != 0 && now.Sub(s.pushes.last) < wait {
			wait = min(wait, pushDelay) // PUSH may have overtaken frames of its operation
		}
		s.ackAt = now.Add(wait)
	}
	return false
}

// ackAt is when an explicit acknowledgement of the path is due: later when data is waiting to leave that will carry it.
func (r *rxPath) ackAt(s *session) mono.Time {
	if s.sendq.len() > 0 {
		return r.policy.OverdueAt()
	}
	return r.policy.Deadline()
}

// sendAck sends an explicit acknowledgement on the best path for it: where the peer's frames arrive, if that is good; else the usable one with the least in
// flight. Nobody acknowledges acknowledgements, so a path that has become a black hole is not noticed by them: when the peer asks, it is answered on all.
func (s *session) sendAck(now mono.Time, b *Batch) {
	var best *txPath
	least := 0
	again := s.pinged
	s.pinged = false
	for m := s.txMask; m != 0 && !b.full(); m &= m - 1 {
		p := s.tx[bits.TrailingZeros64(m)]
		n, _ := p.ledger.InFlight()
		switch {
		case s.e.links[p.link].blocked || p.state == PathDead || !p.ledger.CanSend():
			continue
		case again && p.usable():
			s.ackOn(now, b, p, true)
			best = p
			continue
		case !p.usable():
			n += 1 << 20
		case p.state == PathSuspect:
			n += 1 << 16
		case p.link == s.heardOn:
			n = -1
		}
		if best == nil || n < least {
			best, least = p, n
		}
	}
	switch {
	case best == nil:
		s.muteTo, s.e.muted = now.Add(time.Millisecond), true
		s.pinged = again
	case !again || !best.usable():
		s.ackOn(now, b, best, again)
	}
}

func (s *session) ackOn(now mono.Time, b *Batch, p *txPath, again bool) {
	w := &s.e.builder
	w.begin(s, p, b)
	w.acks(now, explicitWords, again)
	if w.used() {
		s.e.Count.AcksExplicit++
		w.finish(now)
	}
}

// mostProbes is how many unanswered frames of a path that carries no data are remembered (clause 9.1).
const mostProbes = 4

// sendSpecial sends what must go on path p itself: ping, probe, echo.
func (s *session) sendSpecial(now mono.Time, b *Batch, p *txPath) {
	w := &s.e.builder
	n, _ := p.ledger.InFlight()
	// A whole span of frames since the oldest that the peer neither acknowledged nor passed over; or probes of a path that carries no data: they count in the session's
	// window, and would fill it.
	if !p.ledger.CanSend() || !p.usable() && n >= mostProbes {
		s.e.lost = p.ledger.AbandonAll(s.e.lost[:0])
		s.onLost(now, p, s.e.lost)
	}
	w.begin(s, p, b)
	if s.news != 0 && !p.usable() && !s.hasOther(p.link) { // the peer answers where it believes us to be
		w.links()
	}
	g := &w.seg
	n = 0
	for ; n < len(p.echo) && w.room >= 64; n++ {
		*g = wire.Segment{Kind: wire.KindEcho, Place: p.echo[n]}
		w.small(g)
	}
	if p.echo = slices.Delete(p.echo, 0, n); len(p.echo) > 0 {
		s.special |= 1 << p.link
	}
	if p.ping {
		*g = wire.Segment{Kind: wire.KindPing}
		w.small(g)
		p.ping = false
	}
	size, _ := probed(p.nonce)
	if p.probe && size == 0 {
		p.probe = false
		*g = wire.Segment{Kind: wire.KindProbe, Place: p.nonce}
		w.small(g)
	}
	if w.used() {
		w.finish(now)
	}
	if p.probe { // nothing else may be lost with it
		s.askSize(now, b, p)
	}
}

// askSize sends the Probe of a frame size, one of a datagram in as many frames as make a whole one, however few bytes the batch is to have: shorter ones may pass where those that
// data travels in do not (clause 12.2).
func (s *session) askSize(now mono.Time, b *Batch, p *txPath) {
	w := &s.e.builder
	size, joined := probed(p.nonce)
	times := 1
	if joined {
		times = min(s.e.links[p.link].Super/(size+wire.EthLen), cap(b.Frames))
	}
	if len(b.Frames)+times > cap(b.Frames) {
		s.special |= 1 << p.link // in the next batch
		return
	}
	p.probe = false
	for ; times > 0 && p.ledger.CanSend(); times-- {
		w.begin(s, p, b)
		w.seg = wire.Segment{Kind: wire.KindProbe, Place: p.nonce}
		w.small(&w.seg)
		w.joined = joined
		w.padTo(size)
		w.finish(now)
	}
}
