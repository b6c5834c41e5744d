package engine

// The receive path, one frame at a time:
//
//  1. HandleFrame: type, session, checksums. The frame is borrowed from the driver; nothing of it is kept.
//  2. session.onData: packet number not seen before on its path, else it is a duplicate.
//  3. Each segment: acknowledgements free what is in flight, writes go straight to their final place (the only copy of payload).
//  4. The packet number is committed only if every segment found room; the path's policy then decides when to acknowledge.

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"multiedge/flowctl"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// HandleFrame takes a complete Ethernet frame received on local link i. The frame is borrowed for the call; with a Placer, until Placed.
func (e *Endpoint) HandleFrame(now mono.Time, i int, frame []byte) {
	e.received(i, len(frame))
	if len(frame) < wire.EthLen || binary.BigEndian.Uint16(frame[12:]) != e.cfg.EtherType {
		e.Count.RejectedMalformed++
		return
	}
	f := &e.frame
	src := [6]byte(frame[6:12])
	if b := frame[wire.EthLen:]; wire.Sealed(b) {
		e.handleSealed(now, i, src, b)
		return
	}
	if err := f.Decode(frame[wire.EthLen:]); err != nil {
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
		e.onReset(now, src, f.Tail)
	case wire.TypeRetry:
		e.onRetry(now, i, src, f.Session, f.Tail)
	case wire.TypeCrypto:
		if s := e.session(f.Session); s != nil && s.hs != nil && s.turnTo(i, src) {
			s.onCrypto(now, f.Tail, false)
		}
	default:
		e.Count.RejectedMalformed++
	}
}

// onPlainData takes a decoded frame with data that was not sealed.
func (e *Endpoint) onPlainData(now mono.Time, i int, src [6]byte, f *wire.Frame) {
	s := e.session(f.Session)
	switch {
	case s == nil:
		e.onUnknownSession(now, i, src, f.Session)
	case e.cfg.Secure != nil:
		e.Count.RejectedAuth++
	case s.state == sessionOpen: // else the peer's InitAck is still on its way: it will send this again
		e.lastFound, e.lasting = s, true
		s.onData(now, i, f)
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
	if s := e.lastFound; s != nil && s.local == number {
		return s
	}
	return e.byNumber[number]
}

// handleSealed takes a sealed frame b: it is opened into scratch, and nothing it says counts before that succeeded (clause 10.5).
func (e *Endpoint) handleSealed(now mono.Time, i int, src [6]byte, b []byte) {
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
	case s.opener == nil:
		return // the peer's last word of the handshake is still on its way: it will send this again
	}
	if !s.isNew(i, &h) {
		return
	}
	opened, ok := open(s.opener, &e.nonce, e.scratch, b, &h)
	if !ok {
		e.Count.RejectedAuth++
		return
	}
	if err := e.frame.DecodeOpened(opened); err != nil {
		e.rejected(err)
		return
	}
	e.lasting = false
	s.onOpened(now, i, &e.frame)
}

// isNew reports whether the frame of that header is none that was seen before, which it counts.
func (s *session) isNew(i int, h *wire.Header) bool {
	if r := s.rx[h.Path]; r == nil || r.tracker.Check(h.PN) == flowctl.New {
		return true
	}
	s.e.Count.FramesDuplicated++
	s.e.links[i].count.FramesDuplicated++
	return false
}

// onOpened takes a frame with data that was sealed and is authentic.
func (s *session) onOpened(now mono.Time, i int, f *wire.Frame) {
	s.e.lastFound = s
	if s.hs != nil && s.state == sessionOpen {
		s.endHandshake() // the asking end knows that the session is open
	}
	if s.seen[i]&(1<<f.Path) == 0 {
		s.seen[i] |= 1 << f.Path
		s.refreshPaths(now)
	}
	s.onData(now, i, f)
}

func (e *Endpoint) received(i, bytes int) {
	l := &e.links[i]
	l.count.FramesReceived++
	l.count.BytesReceived += uint64(bytes)
	e.Count.FramesReceived++
	e.Count.BytesReceived += uint64(bytes)
}

func (s *session) onData(now mono.Time, i int, f *wire.Frame) {
	e := s.e
	r := s.rx[f.Path]
	if r == nil {
		r = &rxPath{}
		r.policy.Init(e.cfg.Profile.Acks)
		s.rx[f.Path] = r
		s.rxMask |= 1 << f.Path
	}
	if !s.isNew(i, &f.Header) {
		return
	}
	if !f.PayloadIntact() {
		e.Count.RejectedPayloadSum++
		return
	}
	s.lastHeard, s.served = now, true
	eliciting, accepted := false, true
	if f.Flags&wire.FlagBulk != 0 {
		eliciting = true
		accepted = s.onBulk(now, i, f)
	}
	g := &e.seg
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
		if !s.onSegment(now, i, g) {
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
		s.heardOn = i
		if f.Flags&wire.FlagPush != 0 {
			s.ackAt = min(s.ackAt, now.Add(s.pushes.arrived(now)))
		}
	}
}

// onBulk takes the bulk segment of a frame.
func (s *session) onBulk(now mono.Time, i int, f *wire.Frame) bool {
	c, known := s.receiver(f.Bulk.Conn)
	if c == nil {
		return known
	}
	shuffled := int(f.Shuffle)
	b := &f.Bulk
	s.e.links[i].forecast.learn(f)
	if b.Kind == wire.KindReadData {
		return c.onReadData(now, seqnum.Value(b.Op), b.Place, f.Payload, shuffled)
	}
	var g segment
	g.kind, g.flags, g.shuffled, g.op, g.fence = wire.KindWrite, b.Flags, shuffled, seqnum.Value(b.Op), seqnum.Value(b.Fence)
	g.imm, g.key, g.place, g.data = b.Imm, regmem.Key(b.Key), b.Place, f.Payload
	return c.onOperation(now, &g)
}

// receiver returns the connection that segments addressed to number speak of. There is none if it is over: they are then ignored; or if the
// Accept that opens it has not arrived yet: known is then false, and they must come again.
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
func (s *session) onSegment(now mono.Time, i int, g *wire.Segment) bool {
	e := s.e
	switch g.Kind {
	case wire.KindWrite, wire.KindWriteNext, wire.KindReadRequest:
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		kind := g.Kind
		if kind == wire.KindWriteNext {
			kind = wire.KindWrite
		}
		op := segment{
			kind: kind, flags: g.Flags, op: seqnum.Value(g.Op), fence: seqnum.Value(g.Fence), imm: g.Imm,
			key: regmem.Key(g.Key), place: g.Place, size: g.Size, data: g.Data,
		}
		return c.onOperation(now, &op)
	case wire.KindReadData:
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		return c.onReadData(now, seqnum.Value(g.Op), g.Place, g.Data, 0)
	case wire.KindAck:
		s.onAck(now, g)
	case wire.KindOpAck:
		if c, _ := s.receiver(g.Conn); c != nil {
			c.onOpAck(now, g)
		}
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
		s.pinged = true
	case wire.KindPad:
	case wire.KindLink:
		s.onLink(now, g.Data)
	default:
		return e.onControl(now, s, g)
	}
	return true
}

// onProbe owes an Echo on the path of the link on which the probe arrived (clause 9.3). Several links of the peer may face one of ours: each has a probe that waits.
func (s *session) onProbe(i int, nonce uint64) {
	if p := s.tx[i]; p != nil && s.txMask&(1<<i) != 0 {
		if len(p.echo) < MaxLinks && !slices.Contains(p.echo, nonce) {
			p.echo = append(p.echo, nonce)
		}
		s.special |= 1 << i
	}
}

// pathOf finds the path that waits for an echo of nonce.
func (s *session) pathOf(nonce uint64) *txPath {
	for m := s.txMask; m != 0; m &= m - 1 {
		if p := s.tx[bits.TrailingZeros64(m)]; p.nonce == nonce || p.late == nonce {
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
			if c == nil || c.s == s && c.state == connLast && c.remote == 0 { // withdrawn, and the Close overtook the Open
				return e.closeStray(s, g.From)
			}
			return true
		}
		e.dropDial(c)
		c.state, c.remote, c.limit = connOpen, g.From, seqnum.Value(min(g.Limit, 1<<15))
		s.byRemote[c.remote] = c
		if !c.ping {
			e.Count.ConnectionsOpened++
		}
		e.emit(Event{Kind: EvConnected, Conn: c.id, Peer: s.peer.id, PeerName: s.peer.name, Data: append([]byte(nil), g.Data...)})
	case wire.KindRefuse:
		if c := e.conn(ConnID(g.Conn)); c != nil && c.s == s && c.state == connDialing {
			text := string(g.Data)
			if Status(g.Status) == StatusNoService {
				if c.tryNextShard(now) {
					return true
				}
				text = "nobody offers service \"" + c.service + "\" at node \"" + s.peer.name + "\""
			}
			c.finish(now, Status(g.Status), text)
		}
	case wire.KindClose:
		c := e.conn(ConnID(g.Conn))
		if g.Flags&wire.CloseUnanswered != 0 {
			if c = s.byRemote[g.Conn]; c == nil && !slices.Contains(s.over, g.Conn) { // it overtook the Open
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
		st := Status(g.Status)
		switch st {
		case OK:
			c.readsComplete(now)
		case StatusAborted: // by its owner there, not here
			st = StatusClosed
		}
		e.dropDial(c)
		c.failOps(now, StatusClosed)
		c.tellClosed(st, "")
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

// onAdvert takes an Advert or a Withdraw. Frames overtake each other and come twice: what was taken back, or told before, is not told, and what was taken
// back is so once (clause 5.6).
func (c *conn) onAdvert(g *wire.Segment) bool {
	n := uint64(g.Op)
	known := c.told.covers(n, n+1)
	if !known && !c.fits(&c.told, n, n+1) {
		c.e.Count.RejectedNoRoom++
		return false
	}
	c.add(&c.told, n, n+1)
	if g.Kind == wire.KindAdvert {
		if !known {
			c.e.emit(Event{Kind: EvAdvert, Conn: c.id, Advert: Advert{Name: string(g.Name), Key: regmem.Key(g.Key), Size: g.Size, Perm: regmem.Perm(g.Perm), Number: g.Op}})
		}
		return true
	}
	if c.taken.covers(n, n+1) {
		return true
	}
	if c.fits(&c.taken, n, n+1) { // else it may be told twice, which is better than never
		c.add(&c.taken, n, n+1)
	}
	if known {
		c.e.emit(Event{Kind: EvWithdrawn, Conn: c.id, Advert: Advert{Key: regmem.Key(g.Key)}})
	}
	return true
}

// onOpen takes a connection request (clause 5.1).
func (e *Endpoint) onOpen(now mono.Time, s *session, g *wire.Segment) bool {
	if g.From == 0 || s.byRemote[g.From] != nil || slices.Contains(s.over, g.From) {
		return true
	}
	if s.limbo >= e.limboMost() {
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
	c.setLimbo(true)
	c.remote, c.limit, c.window = g.From, seqnum.Value(min(g.Limit, 1<<15)), e.cfg.OpWindow
	c.limitSent = seqnum.Value(c.window)
	c.ordered = g.Flags&wire.OpenOrdered != 0
	c.service = string(g.Name)
	s.byRemote[c.remote] = c
	if full {
		c.refuse(StatusLimit, fmt.Sprintf("all %d connections of the node are in use", e.cfg.MaxConns))
		return true
	}
	if !e.services[c.service] {
		c.refuse(StatusNoService, "")
		return true
	}
	c.state = connIncoming
	e.emit(Event{Kind: EvIncoming, Conn: c.id, Peer: s.peer.id, PeerName: s.peer.name, Service: c.service, Data: append([]byte(nil), g.Data...)})
	return true
}

// closeStray closes a connection that the peer believes in and we do not have (clause 3.6).
func (e *Endpoint) closeStray(s *session, number uint32) bool {
	if s.limbo >= e.limboMost() {
		return false
	}
	c := e.spareConn()
	if c == nil {
		return false
	}
	c.attach(s)
	c.setLimbo(true)
	c.remote, c.state, c.status = number, connLast, StatusAborted
	c.ctl = ctlClose
	c.wake()
	return true
}
