package engine

import (
	"fmt"
	"math/bits"
	"slices"

	"multiedge/flowctl"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// The receive path, one frame at a time:
//
//  1. Handle: type, session, checksums. The frame is borrowed from the driver; nothing of it is kept.
//  2. session.onData: packet number not seen before on its path, else it is a duplicate.
//  3. Each segment: acknowledgements free what is in flight, writes go straight to their final place (the only copy of
//     payload).
//  4. The packet number is committed only if every segment found room; the path's policy then decides when to
//     acknowledge.

// Handle takes frames that arrived on local link i, in their order; those in pieces are the frames that were received
// into the slots of the latest Forecast. It is the one way in: what an Arrival says of itself saves work, and changes
// nothing that comes of it. The frames are borrowed for the call; with a Placer, until Placed. Those whose payload does
// not belong where it was received are joined.
func (e *Endpoint) Handle(now mono.Time, i int, frames ...Arrival) {
	if len(frames) > 0 && frames[0].Buf != nil {
		e.joinStray(i, frames)
	}
	for k := range frames {
		a := &frames[k]
		switch {
		case a.found != unread:
			if e.handleRead(now, i, a) {
				continue
			}
		case a.Buf != nil:
			if e.handleParts(now, i, &a.Rx) {
				continue
			}
			joinAll(frames[k:]) // a key was revoked meanwhile, or a header is damaged
		}
		e.handleWhole(now, i, a.Head)
	}
}

// handleWhole takes a complete Ethernet frame of which nothing is known.
func (e *Endpoint) handleWhole(now mono.Time, i int, b []byte) {
	e.received(i, len(b))
	if !e.cfg.Framing.Has(b) {
		e.Count.RejectedMalformed++
		return
	}
	f := &e.scratch.frame
	src := frame.From(b)
	if b = b[frame.HeaderLen:]; wire.Sealed(b) {
		e.handleSealed(now, i, src, b)
		return
	}
	if err := f.Decode(b); err != nil {
		e.rejected(err)
		return
	}
	switch f.Type {
	case wire.TypeData:
		e.onPlainData(now, i, src, f)
	case wire.TypeHello:
		e.onHello(now, i, src, f.Tail)
	case wire.TypeInit:
		e.onInit(now, i, src, f.Tail)
	case wire.TypeInitAck:
		e.onInitAck(now, i, src, f.Session, f.Tail)
	case wire.TypeReset:
		e.onReset(now, i, src, f.Tail)
	case wire.TypeRetry:
		e.onRetry(now, i, src, f.Session, f.Tail)
	case wire.TypeCrypto:
		if s := e.session(f.Session); s != nil && s.trust.hs != nil && s.turnTo(i, src) {
			s.onCrypto(now, f.Tail, false)
		}
	default:
		e.Count.RejectedMalformed++
	}
}

// onPlainData takes a decoded frame with data that was not sealed.
func (e *Endpoint) onPlainData(now mono.Time, i int, src frame.Addr, f *wire.Frame) {
	s := e.session(f.Session)
	switch {
	case s == nil:
		e.onUnknownSession(now, i, src, f.Session)
	case !s.comesBy(i), e.cfg.Secure != nil && !s.inside:
		e.Count.RejectedAuth++
	case s.state == sessionOpen: // else the peer's InitAck is still on its way: it will send this again
		e.sessions.lastFound = s
		s.onData(now, i, f, true)
	}
}

func (e *Endpoint) rejected(err error) {
	switch err {
	case wire.ErrHeadSum:
		e.Count.RejectedHeaderSum++
	case wire.ErrVersion:
		e.Count.RejectedVersion++
	default:
		e.Count.RejectedMalformed++
	}
}

func (e *Endpoint) session(number uint32) *session {
	if s := e.sessions.lastFound; s != nil && s.local == number {
		return s
	}
	return e.sessions.byNumber[number]
}

// handleSealed takes a sealed frame b: it is opened into scratch, and nothing it says counts before that succeeded
// (clause 10.5).
func (e *Endpoint) handleSealed(now mono.Time, i int, src frame.Addr, b []byte) {
	var h wire.Header
	if err := h.DecodeClear(b); err != nil {
		e.rejected(err)
		return
	}
	s := e.session(h.Session)
	switch {
	case e.cfg.Secure == nil && (s != nil || h.Type != wire.TypeData):
		e.Count.RejectedAuth++
		return
	case s == nil:
		if h.Type == wire.TypeData {
			e.onUnknownSession(now, i, src, h.Session)
		}
		return
	case h.Type == wire.TypeCrypto:
		if s.turnTo(i, src) {
			e.onSealedCrypto(now, s, &h, b)
		}
		return
	case h.Type != wire.TypeData:
		e.Count.RejectedMalformed++
		return
	case s.trust.opener == nil:
		return // the peer's last word of the handshake is still on its way: it will send this again
	}
	if !s.isNew(i, &h) {
		return
	}
	opened, ok := open(s.trust.opener, &e.scratch.nonce, e.scratch.opening, b, &h)
	if !ok {
		s.forged(h.KeyEpoch)
		return
	}
	if err := e.scratch.frame.DecodeOpened(opened); err != nil {
		e.rejected(err)
		return
	}
	s.onOpened(now, i, &e.scratch.frame, false)
}

// isNew reports whether the frame of that header is none that was seen before, which it counts.
func (s *session) isNew(i int, h *wire.Header) bool {
	if r := s.paths.rx[h.Path]; r == nil || r.tracker.Check(h.PN) == flowctl.New {
		return true
	}
	s.e.Count.FramesDuplicated++
	s.e.links[i].count.FramesDuplicated++
	return false
}

// onOpened takes a frame with data that was sealed and is authentic.
func (s *session) onOpened(now mono.Time, i int, f *wire.Frame, lasting bool) {
	s.e.sessions.lastFound = s
	if s.trust.hs != nil && s.state == sessionOpen {
		s.endHandshake() // the asking end knows that the session is open
	}
	if f.KeyEpoch != s.trust.keys.peer {
		s.peerSeals(now, f.KeyEpoch)
	}
	s.onData(now, i, f, lasting)
}

func (e *Endpoint) received(i, bytes int) {
	l := &e.links[i]
	l.count.FramesReceived++
	l.count.BytesReceived += uint64(bytes)
	e.Count.FramesReceived++
	e.Count.BytesReceived += uint64(bytes)
}

// onData takes a frame with data. lasting says that its bytes stay as they are until Placed, so that they may be moved
// later; those that were opened into scratch memory do not.
func (s *session) onData(now mono.Time, i int, f *wire.Frame, lasting bool) {
	e := s.e
	r := s.paths.rx[f.Path]
	if r == nil {
		r = &rxPath{}
		r.policy.Init(e.cfg.Profile.Acks)
		s.paths.rx[f.Path] = r
		s.paths.rxMask |= 1 << f.Path
	}
	if !s.isNew(i, &f.Header) {
		return
	}
	if !f.PayloadIntact() {
		e.Count.RejectedPayloadSum++
		return
	}
	s.lastHeard, s.served, s.paths.heardFrom = now, true, f.Path
	here, there := uint64(1)<<(uint(i)%MaxLinks), uint64(1)<<(f.Path%MaxLinks)
	s.paths.heardVia |= here
	s.peer.past.Received += uint64(frame.HeaderLen + wire.FixedLen + len(f.Payload) + len(f.Tail))
	if s.peerLinks.seen[i]&there == 0 {
		s.peerLinks.seen[i] |= there
		s.shown(now, i, f.Path)
	} else if p := s.paths.tx[i]; p != nil && p.number != f.Path && s.paths.txMask&here != 0 {
		p.contradicted(now)
	}
	eliciting, accepted := false, true
	if f.Flags&wire.FlagBulk != 0 {
		eliciting = true
		accepted = s.onBulk(now, i, f, lasting)
	}
	g := &e.scratch.seg
	g.Kind = wire.KindPad
	for tail := f.Tail; len(tail) > 0; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			e.Count.RejectedMalformed++
			return
		}
		if g.Kind != wire.KindAck && g.Kind != wire.KindPad {
			eliciting = true
		}
		if !s.onSegment(now, i, g, lasting) {
			accepted = false
		}
		if s.state != sessionOpen {
			return
		}
	}
	if !accepted {
		return
	}
	gap, reordered := r.tracker.Commit(f.PN, now)
	if reordered {
		e.Count.FramesReordered++
		e.links[i].count.FramesReordered++
	}
	r.policy.OnFrame(now, eliciting, gap)
	if eliciting {
		e.Count.DataFramesReceived++
		s.acks.heardOn = i
		if f.Flags&wire.FlagPush != 0 && !e.cfg.Profile.Acks.Exact {
			s.acks.at = min(s.acks.at, now.Add(s.acks.pushes.Arrived(now)))
		}
	}
}

// onBulk takes the bulk segment of a frame.
func (s *session) onBulk(now mono.Time, i int, f *wire.Frame, lasting bool) bool {
	b := &f.Bulk
	c, known := s.receiver(b.Conn)
	if c == nil {
		return known
	}
	s.e.links[i].forecast.learn(f)
	if f.Shuffle != 0 {
		s.e.Count.FramesShuffled++
	}
	of, g := carriers[b.Kind%wire.MaxKinds], &s.e.scratch.op
	g.kind, g.flags, g.lasting, g.shuffled, g.op, g.fence = of.kind, b.Flags, lasting, int(f.Shuffle),
		seqnum.Value(b.Op), seqnum.Value(b.Fence)
	g.imm, g.key, g.place, g.size, g.data, g.follows = b.Imm, regmem.Key(b.Key), b.Place, 0, f.Payload, 0
	if b.Flags&wire.SegLast == 0 {
		g.follows = uint64(b.Imm)
	}
	if of.answer {
		return c.accept(now, g)
	}
	return c.onOperation(now, g)
}

// receiver returns the connection that segments addressed to number are for. It returns nil if that connection is over,
// and the segments are ignored; or if the Accept that opens it has not arrived yet: known is then false, and they must
// come again.
func (s *session) receiver(number uint32) (c *conn, known bool) {
	c = s.e.conn(ConnID(number))
	if c == nil || c.s != s || c.state == connLast || c.state == connIncoming {
		return nil, true
	}
	if c.state == connDialing {
		s.e.Count.RejectedNoRoom++
		return nil, false
	}
	return c, true
}

// onSegment takes one segment of the tail.
func (s *session) onSegment(now mono.Time, i int, g *wire.Segment, lasting bool) bool {
	e := s.e
	if of := carriers[g.Kind%wire.MaxKinds]; of.kind != 0 {
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		op := &e.scratch.op
		op.kind, op.flags, op.lasting, op.shuffled, op.op, op.fence = of.kind, g.Flags, lasting, 0,
			seqnum.Value(g.Op), seqnum.Value(g.Fence)
		op.imm, op.key, op.place, op.size, op.data, op.follows = g.Imm, regmem.Key(g.Key), g.Place, g.Size, g.Data, 0
		if of.answer {
			return c.accept(now, op)
		}
		return c.onOperation(now, op)
	}
	switch g.Kind {
	case wire.KindAck:
		return s.onAck(now, g)
	case wire.KindOpAck:
		if c, _ := s.receiver(g.Conn); c != nil {
			return c.onOpAck(now, g)
		}
	case wire.KindCredit, wire.KindWant:
		c, known := s.receiver(g.Conn)
		switch {
		case c == nil:
			return known // credit that overtook the Accept is not lost
		case g.Kind == wire.KindCredit:
			return c.onCredit(g)
		default:
			c.onWant(now, uint32(g.Key))
		}
	case wire.KindStage, wire.KindCommit, wire.KindDiscard, wire.KindUnstaged:
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		return c.onEager(now, g)
	case wire.KindOpNak:
		if c, _ := s.receiver(g.Conn); c != nil && c.outstanding(seqnum.Value(g.Op)) && c.sent(seqnum.Value(g.Op)) {
			c.complete(now, seqnum.Value(g.Op), Status(g.Status))
		}
	case wire.KindProbe:
		s.onProbe(i, g.Place)
	case wire.KindEcho:
		if p := s.pathOf(g.Place); p != nil {
			p.onEcho(now, g.Place)
		}
	case wire.KindPing:
		s.acks.again = true
	case wire.KindPad:
	case wire.KindLink:
		return s.onLink(now, g.Data)
	case wire.KindKeys:
		return s.onKeys(now, g)
	default:
		return e.onControl(now, s, g)
	}
	return true
}

// echo is a Probe's nonce that is to return to the peer's link that it came from.
type echo struct {
	nonce uint64
	to    uint8
}

// onProbe queues an Echo from the link on which the probe arrived to the link that it came from (clause 9.3). Several
// links of the peer may face one of ours: a probe from each can wait.
func (s *session) onProbe(i int, nonce uint64) {
	if p := s.paths.tx[i]; p != nil && s.paths.txMask&(1<<i) != 0 {
		if back := (echo{nonce, s.paths.heardFrom}); len(p.probing.echo) < MaxLinks &&
			!slices.Contains(p.probing.echo, back) {
			p.probing.echo = append(p.probing.echo, back)
		}
		s.paths.special |= 1 << i
	}
}

// pathOf finds the path that waits for an echo of nonce.
func (s *session) pathOf(nonce uint64) *txPath {
	for m := s.paths.txMask; m != 0; m &= m - 1 {
		p := s.paths.tx[bits.TrailingZeros64(m)]
		if _, looks := p.asked(nonce); looks || p.probing.nonce == nonce || p.pmtu.late == nonce {
			return p
		}
	}
	return nil
}

// onControl takes the segments of clause 5.
func (e *Endpoint) onControl(now mono.Time, s *session, g *wire.Segment) bool {
	switch g.Kind {
	case wire.KindOpen:
		return e.onOpen(now, s, g)
	case wire.KindAccept:
		c := e.conn(ConnID(g.Conn))
		if c == nil || c.s != s || c.state != connDialing {
			// withdrawn, and the Close overtook the Open
			if c == nil || c.s == s && c.state == connLast && c.remote == 0 {
				return e.closeStray(s, g.From)
			}
			return true
		}
		e.dropDial(c)
		c.state, c.remote, c.send.limit = connOpen, g.From, seqnum.Value(min(g.Window, 1<<15))
		s.members.byRemote[c.remote] = c
		if !c.dial.ping {
			e.Count.ConnectionsOpened++
		}
		e.emit(Event{Kind: EvConnected, Conn: c.id, Peer: s.peer.id, PeerName: s.peer.name, Data: append([]byte(nil),
			g.Data...)})
	case wire.KindRefuse:
		if c := e.conn(ConnID(g.Conn)); c != nil && c.s == s && c.state == connDialing {
			text := string(g.Data)
			if Status(g.Status) == StatusNoService {
				if c.tryNextShard(now) {
					return true
				}
				text = "nobody offers service \"" + c.dial.service + "\" at node \"" + s.peer.name + "\""
			}
			c.finish(now, Status(g.Status), text)
		}
	case wire.KindClose:
		c := e.conn(ConnID(g.Conn))
		if g.Flags&wire.CloseUnanswered != 0 {
			// it overtook the Open
			if c = s.members.byRemote[g.Conn]; c == nil && !slices.Contains(s.members.over, g.Conn) {
				s.ended(g.Conn)
			}
		}
		if c == nil || c.s != s {
			return true
		}
		if c.state == connLast {
			c.forget()
			return true
		}
		e.dropDial(c)
		if st := Status(g.Status); st == OK {
			c.answersArrived(now)
			c.failOps(now, StatusClosed)
			c.tellClosed(now, OK, "")
		} else { // only status 0 is an end in good order; others speak of the peer's side (clause 5.4)
			c.failOps(now, StatusReset)
			c.tellClosed(now, StatusReset, "at the peer: "+st.String())
		}
		c.dropReceived()
		c.state = connLast
		c.forget()
	case wire.KindAdvert, wire.KindWithdraw:
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		return c.onAdvert(g)
	}
	return true
}

// onOpen takes a connection request (clause 5.1).
func (e *Endpoint) onOpen(now mono.Time, s *session, g *wire.Segment) bool {
	if g.From == 0 || s.members.byRemote[g.From] != nil || slices.Contains(s.members.over, g.From) {
		return true
	}
	if s.crowded() {
		e.Count.RejectedNoRoom++
		return false // the peer asks again
	}
	c := e.newConn()
	full := c == nil
	if full {
		e.Count.RejectedNoRoom++
		if c = e.spareConn(); c == nil {
			return false // the peer asks again
		}
	}
	c.attach(s)
	c.setUnconfirmed(true)
	c.remote, c.send.limit, c.recv.window = g.From, seqnum.Value(min(g.Window, 1<<15)), e.cfg.OpWindow
	c.recv.limitSent = seqnum.Value(c.recv.window)
	c.ordered = g.Flags&wire.OpenOrdered != 0
	c.dial.service = string(g.Name)
	s.members.byRemote[c.remote] = c
	if full {
		c.refuse(StatusLimit, fmt.Sprintf("all %d connections of the node are in use", e.cfg.MaxConns))
		return true
	}
	if !e.conns.services[c.dial.service] {
		c.refuse(StatusNoService, "")
		return true
	}
	c.state = connIncoming
	from := uint64(0)
	if s.inside {
		from = InsideToken(int(s.peer.shard), ConnID(c.remote))
	}
	e.emit(Event{Kind: EvIncoming, Conn: c.id, Token: from, Peer: s.peer.id, PeerName: s.peer.name,
		Service: c.dial.service,
		Data:    append([]byte(nil), g.Data...)})
	return true
}

// closeStray closes a connection that the peer believes in and we do not have (clause 3.6).
func (e *Endpoint) closeStray(s *session, number uint32) bool {
	if s.crowded() {
		return false
	}
	c := e.spareConn()
	if c == nil {
		return false
	}
	c.attach(s)
	c.setUnconfirmed(true)
	c.remote, c.state, c.status = number, connLast, StatusAborted
	c.ctl = ctlClose
	c.wake()
	return true
}
