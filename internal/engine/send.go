package engine

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"multiedge/internal/engine/path"
	"multiedge/internal/engine/peering"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The send path, one frame at a time:
//
//  1. PollTransmit: set-up frames first, then what sessions without data owe, then each session with data in turn.
//  2. transmit: probes and pings on their own path; data on the path the scheduler picks; else an
//     acknowledgement that is due.
//  3. builder: acknowledgements that wait, then what connections have to send: small parts copied to the tail, one
//     large part referenced where it lies in registered memory (the driver gathers it; the kernel's copy is the only
//     one).
//  4. builder.finish: packet number, checksums, and a record of what the frame carried, for the case that it is lost.

// PollTransmit puts frames that may leave now into the batches of their links and returns how many. It is to be called
// until it returns 0 after anything else was called.
func (e *Endpoint) PollTransmit(now mono.Time, b *Batches) int {
	b.begin()
	e.builder.f.Now = now
	b.most = min(batchMost, batchFirst*max(1, bits.OnesCount64(e.net.Up)))
	if len(e.nodes.Outbox) > 0 {
		e.emitOutbox(now, b)
	}
	if e.transmitIdle(now, b) {
		if len(e.ops.Conns.Users) > 1 && len(e.nodes.Sessions.Open) > 1 {
			e.transmitShared(now, b)
		} else {
			e.transmitBusy(now, b)
		}
		e.builder.forget()
	}
	e.builder.s, e.builder.p = nil, nil // they may end
	return len(b.order)
}

// transmitIdle lets the sessions without data send what others wait for: acknowledgements that are due, pings, probes,
// echoes. They go before the data of other sessions, which may fill every batch, and take at most half of one. It
// reports whether there may be sessions with data.
func (e *Endpoint) transmitIdle(now mono.Time, b *Batches) (busy bool) {
	if e.idleTurn >= len(e.nodes.Sessions.Open) {
		e.idleTurn = 0
	}
	first, most := e.idleTurn, (len(b.order)+cap(b.order)+1)/2
	for k := range e.nodes.Sessions.Open {
		if k += first; k >= len(e.nodes.Sessions.Open) {
			k -= len(e.nodes.Sessions.Open)
		}
		switch s := e.nodes.Sessions.Open[k]; {
		case s.HasData():
			busy = true
		case len(b.order) >= most:
			e.idleTurn = k
			return true
		default:
			e.transmit(now, s, b)
		}
	}
	return busy
}

// transmitBusy lets the sessions with data send. The session after the first that sent anything begins the next batch,
// since a batch may have room for one session alone.
func (e *Endpoint) transmitBusy(now mono.Time, b *Batches) {
	if e.turn >= len(e.nodes.Sessions.Open) {
		e.turn = 0
	}
	first, moved := e.turn, false
	for k := range e.nodes.Sessions.Open {
		if k += first; k >= len(e.nodes.Sessions.Open) {
			k -= len(e.nodes.Sessions.Open)
		}
		s := e.nodes.Sessions.Open[k]
		if !s.HasData() {
			continue
		}
		if s.Ops.Fair.Waiting > 0 {
			b.most = max(b.most, min(batchMost, s.Paths.BytesInFlight()))
		}
		n := len(b.order)
		s.Ops.Fair.Allowed, s.Ops.Fair.Shared = math.MaxInt, false
		e.transmit(now, s, b)
		if len(b.order) > n && !moved {
			e.turn, moved = k+1, true
		}
	}
}

// transmitShared is transmitBusy where several users may send in several sessions: each of these sends until its turn
// is over (op/fair), with the next batch if this one is full.
func (e *Endpoint) transmitShared(now mono.Time, b *Batches) {
	for idle := 0; idle < len(e.nodes.Sessions.Open) && !b.full(); e.turn++ {
		if e.turn >= len(e.nodes.Sessions.Open) {
			e.turn = 0
		}
		s := e.nodes.Sessions.Open[e.turn]
		idle++
		if !s.HasData() {
			continue
		}
		if s.Ops.Fair.Waiting > 0 {
			b.most = max(b.most, min(batchMost, s.Paths.BytesInFlight()))
		}
		f := &s.Ops.Fair
		if !f.Shared || f.Allowed <= 0 {
			f.Shared, f.Allowed = true, f.Turn()
		}
		n := len(b.order)
		e.transmit(now, s, b)
		if len(b.order) == n {
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
func (e *Endpoint) emitOutbox(now mono.Time, b *Batches) {
	var held []peering.Setup
	for len(e.nodes.Outbox) > 0 && !b.full() {
		f := e.nodes.Outbox[0]
		e.nodes.Outbox = e.nodes.Outbox[1:]
		switch l := &e.net.Links[f.Link]; {
		case !l.Up || f.Held && now > f.Until: // as good as lost
		case !l.Blocked:
			e.emitSetup(b, &f)
		case len(held) < maxHeld:
			if !f.Held {
				f.Held, f.Until = true, now.Add(heldTime)
			}
			held = append(held, f)
		}
	}
	if e.nodes.Outbox = append(held, e.nodes.Outbox...); len(e.nodes.Outbox) == 0 {
		e.nodes.Outbox = nil
	}
}

func (e *Endpoint) emitSetup(b *Batches, f *peering.Setup) {
	buf := b.next(f.Link)
	e.cfg.Framing.PutHeader(buf, &e.net.Links[f.Link].Addr, &f.Dst)
	if f.Sealed {
		n := frame.HeaderLen + copy(buf[frame.HeaderLen:], f.Body)
		t := b.add(f.Link)
		t.Head, t.To = buf[:n], f.Dst
		e.countSent(f.Link, n)
		return
	}
	n := copy(buf[wire.TailStart:], f.Body)
	h := wire.Header{Type: f.Kind, Path: uint8(f.Link), Session: f.Sess}
	wire.Finish(buf[frame.HeaderLen:], &h, buf[wire.TailStart:wire.TailStart+n])
	t := b.add(f.Link)
	t.Head, t.To = buf[:wire.TailStart+n], f.Dst
	e.countSent(f.Link, wire.TailStart+n)
}

func (e *Endpoint) countSent(link, bytes int) {
	e.Count.Traffic.FramesSent++
	e.Count.Traffic.BytesSent += uint64(bytes)
	e.net.Links[link].Count.Traffic.FramesSent++
	e.net.Links[link].Count.Traffic.BytesSent += uint64(bytes)
}

func (e *Endpoint) transmit(now mono.Time, s *peering.Session, b *Batches) {
	w := &e.builder
	for m := s.Paths.Special; m != 0 && !b.full(); m &= m - 1 {
		i := bits.TrailingZeros64(m)
		if e.net.Links[i].Blocked {
			continue
		}
		s.Paths.Special &^= 1 << i
		e.sendSpecial(now, s, b, s.Paths.Tx[i])
	}
	var p *path.Tx
	w.leads = false
	begun := uint64(0) // links whose batch has frames of the session
	for run := 0; !b.full() && s.HasData() && s.Ops.Fair.Allowed > 0; run-- {
		if run <= 0 || !p.Room(now) || s.Paths.Full() {
			if p = s.Paths.Pick(now); p == nil {
				break
			}
			if begun&(1<<p.Link) == 0 {
				begun |= 1 << p.Link
				p.Ledger.BeginBatch()
			}
			run = p.Run()
		}
		if w.follow(now, s, p) {
			continue
		}
		w.begin(s, p, b)
		w.picked = true
		if s.WantPiggyback(now) {
			w.acks(now, piggybackWords, false)
		}
		if s.PeerLinks.News != 0 {
			s.AppendLinks(&w.f)
		}
		if s.Trust.Keys.Owed {
			s.AppendKeys(&w.f)
		}
		s.Ops.Fill(&w.f)
		if !w.f.Used() {
			break
		}
		w.finish(now)
		s.Acks.Pushes.Left(now)
		w.leads = w.f.Leads() // without acknowledgements: then none is wanted
	}
	if !b.full() && s.AckDue(now) {
		s.Acks.Pushes.Alone()
		e.sendAck(now, s, b)
	}
	w.sealAll()
}

// mostProbes is how many unanswered frames of a path that carries no data are remembered (clause 9.1).
const mostProbes = 4

// sendSpecial sends what must go on path p itself: ping, probe, echo.
func (e *Endpoint) sendSpecial(now mono.Time, s *peering.Session, b *Batches, p *path.Tx) {
	w := &e.builder
	n, _ := p.Ledger.InFlight()
	// A whole span of frames since the oldest that the peer neither acknowledged nor passed over; or probes of a path
	// that carries no data: they count in the session's window, and would fill it.
	if !p.Ledger.CanSend() || !p.Usable() && n >= mostProbes {
		e.net.Lost = p.Ledger.AbandonAll(e.net.Lost[:0])
		s.Paths.OnLost(now, p, e.net.Lost)
	}
	w.begin(s, p, b)
	// the peer answers where it believes us to be
	if s.PeerLinks.News != 0 && !p.Usable() && !s.Paths.HasOther(p.Link) {
		s.AppendLinks(&w.f)
		// what was said of it may be among what is not acknowledged
	} else if p.Probing.Ping && p.State == path.StateSuspect && !s.Paths.HasOther(p.Link) {
		s.AppendOwnLink(&w.f, w.p.Link)
	}
	g := &w.f.Seg
	n = 0
	for ; n < len(p.Probing.Echo) && p.Probing.Echo[n].To == p.Number && w.f.Room >= 64; n++ {
		w.echo(&p.Probing.Echo[n].From, p.Probing.Echo[n].Nonce)
		w.f.Small(g)
	}
	p.Probing.Echo = slices.Delete(p.Probing.Echo, 0, n)
	if p.Probing.Ping {
		*g = wire.Segment{Kind: wire.KindPing}
		w.f.Small(g)
		p.Probing.Ping = false
	}
	size, _ := path.Probed(p.Probing.Nonce)
	if p.Probing.Probe && size == 0 {
		p.Probing.Probe = false
		p.Asked()
		*g = wire.Segment{Kind: wire.KindProbe, Place: p.Probing.Nonce}
		w.f.Small(g)
	}
	if w.f.Used() {
		w.finish(now)
	}
	for ; len(p.Probing.Echo) > 0 && p.Probing.Echo[0].To != p.Number && !b.full() &&
		p.Ledger.CanSend(); p.Probing.Echo = slices.Delete(p.Probing.Echo,
		0, 1) {
		w.begin(s, p, b)
		w.turnTo(p.Probing.Echo[0].To)
		w.echo(&p.Probing.Echo[0].From, p.Probing.Echo[0].Nonce)
		w.f.Small(g)
		w.finish(now)
	}
	if len(p.Probing.Echo) > 0 {
		s.Paths.Special |= 1 << p.Link
	}
	if p.Lookout.Look != 0 {
		e.sendLooks(now, s, b, p)
	}
	if p.Move.Sends() && !b.full() && p.Ledger.CanSend() {
		e.askMove(now, s, b, p)
	}
	if p.Move.Sends() {
		s.Paths.Special |= 1 << p.Link // with the next batch
	}
	if p.Probing.Probe { // nothing else may be lost with it
		e.askSize(now, s, b, p)
	}
}

// echo makes an Echo, on an IP link with the address that the Probe came from.
func (w *builder) echo(from *frame.Addr, nonce uint64) {
	w.f.Seg = wire.Segment{Kind: wire.KindEcho, Place: nonce}
	if from.IsIP() {
		w.f.Seg.Data = from.AppendPlace(w.place[:0])
	}
}

// askSize sends the Probe of a frame size. One that travels in a datagram is sent in as many frames as fill a datagram,
// even beyond the bytes that one call is to give: shorter datagrams may pass where those of data do not (clause 12.2).
func (e *Endpoint) askSize(now mono.Time, s *peering.Session, b *Batches, p *path.Tx) {
	w := &e.builder
	size, joined := path.Probed(p.Probing.Nonce)
	times := 1
	if joined {
		times = min(e.net.Links[p.Link].Super/(size+frame.HeaderLen), cap(b.of[p.Link].Frames))
	}
	if b.room(p.Link) < times {
		s.Paths.Special |= 1 << p.Link // with the next batch
		return
	}
	p.Probing.Probe = false
	for ; times > 0 && p.Ledger.CanSend(); times-- {
		w.begin(s, p, b)
		w.f.Seg = wire.Segment{Kind: wire.KindProbe, Place: p.Probing.Nonce}
		w.f.Small(&w.f.Seg)
		w.joined = joined
		w.padTo(size)
		w.finish(now)
	}
}

// askMove asks whether the peer answers at another address (clause 21.5), and answers a lane that was opened anew there
// (clause 21.9).
func (e *Endpoint) askMove(now mono.Time, s *peering.Session, b *Batches, p *path.Tx) {
	w := &e.builder
	w.begin(s, p, b)
	w.turnAt(p.Move.To)
	if p.Move.Back != 0 {
		w.echo(&p.Move.To, p.Move.Back)
		w.f.Small(&w.f.Seg)
	}
	if p.Move.Ask {
		w.f.Seg = wire.Segment{Kind: wire.KindProbe, Place: p.Move.Nonce()}
		w.f.Small(&w.f.Seg)
	}
	p.Move.Ask, p.Move.Back = false, 0
	w.finish(now)
}

// sendLooks sends the Probes that ask other links of the peer.
func (e *Endpoint) sendLooks(now mono.Time, s *peering.Session, b *Batches, p *path.Tx) {
	w := &e.builder
	for ; p.Lookout.Look != 0 && !b.full() && p.Ledger.CanSend(); p.Lookout.Look &= p.Lookout.Look - 1 {
		j := uint8(bits.TrailingZeros64(p.Lookout.Look))
		w.begin(s, p, b)
		w.turnTo(j)
		w.f.Seg = wire.Segment{Kind: wire.KindProbe, Place: uint64(p.Lookout.Search)<<32 | path.LookBit | uint64(j)}
		w.f.Small(&w.f.Seg)
		w.finish(now)
	}
	if p.Lookout.Look != 0 {
		s.Paths.Special |= 1 << p.Link
	}
}
