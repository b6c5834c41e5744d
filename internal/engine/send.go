package engine

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The send path, one frame at a time:
//
//  1. PollTransmit: set-up frames first, then what sessions without data owe, then each session with data in turn.
//  2. session.transmit: probes and pings on their own path; data on the path the scheduler picks; else an
//     acknowledgement that is due.
//  3. builder: acknowledgements that wait, then what connections have to send: small parts copied to the tail, one
//     large part referenced where it lies in registered memory (the driver gathers it; the kernel's copy is the only
//     one).
//  4. builder.finish: packet number, checksums, and a record of what the frame carried, for the case that it is lost.

// PollTransmit adds the frames that may leave now to b and returns how many. It is to be called until it returns 0
// after anything else was called.
func (e *Endpoint) PollTransmit(now mono.Time, b *Batch) int {
	before := len(b.Frames)
	e.builder.now = now
	b.most = batchPlain
	touched := e.cfg.Secure != nil || e.cfg.Checksum == ChecksumFull
	if touched {
		b.most = min(batchPlain, batchTouched*max(1, bits.OnesCount64(e.up)))
	}
	if len(e.outbox) > 0 {
		e.emitOutbox(now, b)
	}
	if e.transmitIdle(now, b) {
		if len(e.conns.users) > 1 && len(e.sessions.list) > 1 {
			e.transmitShared(now, b, touched)
		} else {
			e.transmitBusy(now, b, touched)
		}
		e.builder.forget()
	}
	return len(b.Frames) - before
}

// transmitIdle lets the sessions without data send what others wait for: acknowledgements that are due, pings, probes,
// echoes. They go before the data of other sessions, which may fill every batch, and take at most half of one. It
// reports whether there may be sessions with data.
func (e *Endpoint) transmitIdle(now mono.Time, b *Batch) (busy bool) {
	if e.sessions.idleTurn >= len(e.sessions.list) {
		e.sessions.idleTurn = 0
	}
	first, most := e.sessions.idleTurn, (len(b.Frames)+cap(b.Frames)+1)/2
	for k := range e.sessions.list {
		if k += first; k >= len(e.sessions.list) {
			k -= len(e.sessions.list)
		}
		switch s := e.sessions.list[k]; {
		case s.state != sessionOpen:
		case s.hasData():
			busy = true
		case len(b.Frames) >= most:
			e.sessions.idleTurn = k
			return true
		default:
			s.transmit(now, b)
		}
	}
	return busy
}

// transmitBusy lets the sessions with data send. The session after the first that sent anything begins the next batch,
// since a batch may have room for one session alone.
func (e *Endpoint) transmitBusy(now mono.Time, b *Batch, touched bool) {
	if e.sessions.turn >= len(e.sessions.list) {
		e.sessions.turn = 0
	}
	first, moved := e.sessions.turn, false
	for k := range e.sessions.list {
		if k += first; k >= len(e.sessions.list) {
			k -= len(e.sessions.list)
		}
		s := e.sessions.list[k]
		if s.state != sessionOpen || !s.hasData() {
			continue
		}
		if touched && s.members.fair.Waiting > 0 {
			b.most = max(b.most, min(batchPlain, s.bytesInFlight()))
		}
		n := len(b.Frames)
		s.members.fair.Allowed, s.members.fair.Shared = math.MaxInt, false
		s.transmit(now, b)
		if len(b.Frames) > n && !moved {
			e.sessions.turn, moved = k+1, true
		}
	}
}

// transmitShared is transmitBusy where several users may send in several sessions: each of these sends until its turn
// is over (fair.turn), with the next batch if this one is full.
func (e *Endpoint) transmitShared(now mono.Time, b *Batch, touched bool) {
	for idle := 0; idle < len(e.sessions.list) && !b.full(); e.sessions.turn++ {
		if e.sessions.turn >= len(e.sessions.list) {
			e.sessions.turn = 0
		}
		s := e.sessions.list[e.sessions.turn]
		idle++
		if s.state != sessionOpen || !s.hasData() {
			continue
		}
		if touched && s.members.fair.Waiting > 0 {
			b.most = max(b.most, min(batchPlain, s.bytesInFlight()))
		}
		f := &s.members.fair
		if !f.Shared || f.Allowed <= 0 {
			f.Shared, f.Allowed = true, f.Turn()
		}
		n := len(b.Frames)
		s.transmit(now, b)
		if len(b.Frames) == n {
			continue // what is left of its turn it keeps: all links may be blocked
		}
		if b.full() && f.Allowed > 0 {
			return
		}
		idle, f.Allowed = 0, 0
	}
}

// Set-up frames wait for links that are blocked: one that sends as fast as it can is blocked whenever one looks. They
// are at most maxHeld, and are dropped after heldTime: their senders repeat them soon.
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
	e.cfg.Framing.PutHeader(buf, &e.links[f.link].Addr, &f.dst)
	if f.sealed {
		n := frame.HeaderLen + copy(buf[frame.HeaderLen:], f.body)
		t := b.add()
		t.Link, t.Head = f.link, buf[:n]
		e.countSent(f.link, n)
		return
	}
	n := copy(buf[wire.TailStart:], f.body)
	h := wire.Header{Type: f.kind, Path: uint8(f.link), Session: f.sess}
	wire.Finish(buf[frame.HeaderLen:], &h, buf[wire.TailStart:wire.TailStart+n])
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
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		_, n := s.paths.tx[bits.TrailingZeros64(m)].ledger.InFlight()
		bytes += n
	}
	return bytes
}

// hasData reports whether frames wait that take a path of the scheduler's choice.
func (s *session) hasData() bool {
	return s.members.fair.Waiting > 0 || s.peerLinks.news != 0 || s.trust.keys.owed
}

func (s *session) transmit(now mono.Time, b *Batch) {
	w := &s.e.builder
	for m := s.paths.special; m != 0 && !b.full(); m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if s.e.links[i].blocked {
			continue
		}
		s.paths.special &^= 1 << i
		s.sendSpecial(now, b, s.paths.tx[i])
	}
	var p *txPath
	for run := 0; !b.full() && s.hasData() && s.members.fair.Allowed > 0; run-- {
		if run <= 0 || !p.room(now) || s.paths.inFlight >= s.e.cfg.Profile.Window {
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
		if s.peerLinks.news != 0 {
			w.links()
		}
		if s.trust.keys.owed {
			w.keys()
		}
		w.fill()
		if !w.used() {
			break
		}
		w.finish(now)
		s.acks.pushes.Left(now)
	}
	if !b.full() && s.ackDue(now) {
		s.acks.pushes.Alone()
		s.sendAck(now, b)
	}
}

// pickPath returns the path for the next data frame, nil if it must wait.
func (s *session) pickPath(now mono.Time) *txPath {
	if s.paths.inFlight >= s.e.cfg.Profile.Window {
		return nil
	}
	var live, good, room uint64
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		p := s.paths.tx[i]
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
	i, ok := s.paths.sched.Pick(live, room&live)
	if !ok {
		return nil
	}
	return s.paths.tx[i]
}

// mostProbes is how many unanswered frames of a path that carries no data are remembered (clause 9.1).
const mostProbes = 4

// sendSpecial sends what must go on path p itself: ping, probe, echo.
func (s *session) sendSpecial(now mono.Time, b *Batch, p *txPath) {
	w := &s.e.builder
	n, _ := p.ledger.InFlight()
	// A whole span of frames since the oldest that the peer neither acknowledged nor passed over; or probes of a path
	// that carries no data: they count in the session's window, and would fill it.
	if !p.ledger.CanSend() || !p.usable() && n >= mostProbes {
		s.e.scratch.lost = p.ledger.AbandonAll(s.e.scratch.lost[:0])
		s.onLost(now, p, s.e.scratch.lost)
	}
	w.begin(s, p, b)
	if s.peerLinks.news != 0 && !p.usable() && !s.hasOther(p.link) { // the peer answers where it believes us to be
		w.links()
		// what was said of it may be among what is not acknowledged
	} else if p.probing.ping && p.state == PathSuspect && !s.hasOther(p.link) {
		w.ownLink()
	}
	g := &w.seg
	n = 0
	for ; n < len(p.probing.echo) && p.probing.echo[n].to == p.number && w.room >= 64; n++ {
		*g = wire.Segment{Kind: wire.KindEcho, Place: p.probing.echo[n].nonce}
		w.small(g)
	}
	p.probing.echo = slices.Delete(p.probing.echo, 0, n)
	if p.probing.ping {
		*g = wire.Segment{Kind: wire.KindPing}
		w.small(g)
		p.probing.ping = false
	}
	size, _ := probed(p.probing.nonce)
	if p.probing.probe && size == 0 {
		p.probing.probe = false
		*g = wire.Segment{Kind: wire.KindProbe, Place: p.probing.nonce}
		w.small(g)
	}
	if w.used() {
		w.finish(now)
	}
	for ; len(p.probing.echo) > 0 && p.probing.echo[0].to != p.number && !b.full() &&
		p.ledger.CanSend(); p.probing.echo = slices.Delete(p.probing.echo,
		0, 1) {
		w.begin(s, p, b)
		w.turnTo(p.probing.echo[0].to)
		*g = wire.Segment{Kind: wire.KindEcho, Place: p.probing.echo[0].nonce}
		w.small(g)
		w.finish(now)
	}
	if len(p.probing.echo) > 0 {
		s.paths.special |= 1 << p.link
	}
	if p.lookout.look != 0 {
		s.sendLooks(now, b, p)
	}
	if p.probing.probe { // nothing else may be lost with it
		s.askSize(now, b, p)
	}
}
