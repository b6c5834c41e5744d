package engine

// The receive path, one frame at a time:
//
//  1. HandleFrame: type, session, checksums. The frame is borrowed from the driver; nothing of it is kept.
//  2. session.onData: packet number not seen before on its path, else it is a duplicate.
//  3. Each segment: acknowledgements free what is in flight, writes go straight to their final place (the only copy of payload).
//  4. The packet number is committed only if every segment found room; the path's policy then decides when to acknowledge.

import (
	"encoding/binary"
	"math/bits"
	"time"

	"multiedge/flowctl"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// pushDelay bounds how long a frame marked PUSH waits for its acknowledgement (clause 8.4): long enough for an application that polls to answer and
// carry it.
const pushDelay = 20 * time.Microsecond

// HandleFrame takes a complete Ethernet frame received on local link i. The frame is borrowed for the call.
func (e *Endpoint) HandleFrame(now mono.Time, i int, frame []byte) {
	e.received(i, len(frame))
	if len(frame) < wire.EthLen || binary.BigEndian.Uint16(frame[12:]) != e.cfg.EtherType {
		e.Count.RejectedMalformed++
		return
	}
	f := &e.frame
	if err := f.Decode(frame[wire.EthLen:]); err != nil {
		switch err {
		case wire.ErrHeadSum:
			e.Count.RejectedHeaderSum++
		case wire.ErrVersion:
			e.Count.RejectedVersion++
		default:
			e.Count.RejectedMalformed++
		}
		return
	}
	src := [6]byte(frame[6:12])
	switch f.Type {
	case wire.TypeData:
		s := e.lastFound
		if s == nil || s.local != f.Session {
			s = e.byNumber[f.Session]
		}
		if s == nil {
			e.onUnknownSession(now, i, src, f.Session)
			return
		}
		if s.state != sessionOpen {
			return // the peer's InitAck is still on its way: it will send this again
		}
		e.lastFound = s
		s.onData(now, i, f)
	case wire.TypeHello:
		e.onHello(now, i, src, f.Tail)
	case wire.TypeInit:
		e.onInit(now, i, src, f.Tail)
	case wire.TypeInitAck:
		e.onInitAck(now, i, src, f.Session, f.Tail)
	case wire.TypeReset:
		e.onReset(now, src, f.Tail)
	default:
		e.Count.RejectedMalformed++
	}
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
	if r.tracker.Check(f.PN) != flowctl.New {
		e.Count.FramesDuplicated++
		e.links[i].count.FramesDuplicated++
		return
	}
	if !f.PayloadIntact() {
		e.Count.RejectedPayloadSum++
		return
	}
	s.lastHeard = now
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
		if f.Flags&wire.FlagPush != 0 {
			s.ackAt = min(s.ackAt, now.Add(pushDelay))
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
		return c.onReadData(seqnum.Value(b.Op), b.Place, f.Payload, shuffled)
	}
	g := segment{
		kind: wire.KindWrite, flags: b.Flags, shuffled: shuffled, op: seqnum.Value(b.Op), fence: seqnum.Value(b.Fence), imm: b.Imm,
		key: regmem.Key(b.Key), place: b.Place, data: f.Payload,
	}
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
		return c.onReadData(seqnum.Value(g.Op), g.Place, g.Data, 0)
	case wire.KindAck:
		s.onAck(now, g)
	case wire.KindOpAck:
		if c, _ := s.receiver(g.Conn); c != nil {
			c.onOpAck(g)
		}
	case wire.KindOpNak:
		if c, _ := s.receiver(g.Conn); c != nil && c.outstanding(seqnum.Value(g.Op)) {
			c.complete(seqnum.Value(g.Op), Status(g.Status))
		}
	case wire.KindProbe:
		s.onProbe(i, g.Place)
	case wire.KindEcho:
		if p := s.pathOf(g.Place); p != nil {
			p.onEcho(now, g.Place)
		}
	case wire.KindPad, wire.KindPing:
	default:
		return e.onControl(now, s, g)
	}
	return true
}

// onProbe owes an Echo on the path of the link on which the probe arrived (clause 9.3).
func (s *session) onProbe(i int, nonce uint64) {
	if p := s.tx[i]; p != nil && s.txMask&(1<<i) != 0 {
		p.echo = nonce
		s.special |= 1 << i
	}
}

// pathOf finds the path that waits for an echo of nonce.
func (s *session) pathOf(nonce uint64) *txPath {
	for m := s.txMask; m != 0; m &= m - 1 {
		if p := s.tx[bits.TrailingZeros64(m)]; p.nonce == nonce {
			return p
		}
	}
	return nil
}

// onAck takes an acknowledgement of one of our paths.
func (s *session) onAck(now mono.Time, g *wire.Segment) {
	e := s.e
	p := s.tx[g.Path]
	if p == nil {
		return
	}
	e.words = e.words[:0]
	for w := range g.Words() {
		e.words = append(e.words, g.Word(w))
	}
	e.block = flowctl.Block{Path: g.Path, Largest: g.Size, Floor: g.Place, Delay: time.Duration(g.Delay), Nack: g.Flags&wire.AckNack != 0, Bits: e.words}
	var res flowctl.AckResult
	e.acked, e.lost, res = p.ledger.OnAck(now, &e.block, &p.rtt, e.acked[:0], e.lost[:0])
	if res.Invalid {
		e.Count.RejectedMalformed++
		return
	}
	e.Count.SpuriousLosses += uint64(res.SpuriousLosses)
	if len(e.acked) > 0 {
		p.onAlive(now)
		p.cwnd.OnAck(now, len(e.acked), &p.rtt)
		s.onAcked(now, p, e.acked)
		if s.adaptive && p.usable() {
			s.sched.SetWeight(p.link, p.cwnd.Frames())
		}
	}
	if len(e.lost) > 0 {
		s.onLost(now, p, e.lost)
	}
}

// onAcked acts on what the frames carried and frees their records.
func (s *session) onAcked(now mono.Time, p *txPath, acked []flowctl.Sent) {
	e := s.e
	s.inFlight -= len(acked)
	for k := range acked {
		s.sched.Done(p.link, int(acked[k].Bytes))
		p.doubtSize(now, acked[k].Bytes, false)
		head := int32(acked[k].Tag)
		for i := head; i != 0; i = e.recs.pool[i].next {
			r := &e.recs.pool[i]
			if r.kind == recReadData || r.kind == recOpNak || r.kind == recControl || r.kind == recAdvert {
				if c := e.conn(r.conn); c != nil {
					c.onRecordAcked(now, *r)
				}
			}
		}
		e.recs.release(head)
	}
}

func (c *conn) onRecordAcked(now mono.Time, r record) {
	switch r.kind {
	case recReadData:
		if !r.op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
			return
		}
		o := c.rop(r.op)
		if o.state != ropReading {
			return
		}
		if o.acked += r.n; o.acked >= o.n {
			c.apply(now, o, r.op, o.n)
		}
	case recOpNak:
		if !r.op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
			return
		}
		if o := c.rop(r.op); o.state == ropFailed {
			c.apply(now, o, r.op, 0)
		}
	case recAdvert:
		if r.n == 1 {
			delete(c.adverts, int(r.off))
		}
	case recControl:
		if r.off&(ctlClose|ctlRefuse) != 0 && c.state == connLast {
			c.forget()
		}
	}
}

// onLost queues again what the frames carried, where it still matters (clause 3.6).
func (s *session) onLost(now mono.Time, p *txPath, lost []flowctl.Sent) {
	e := s.e
	s.inFlight -= len(lost)
	s.framesLost += uint64(len(lost))
	e.Count.FramesLost += uint64(len(lost))
	e.links[p.link].count.FramesLost += uint64(len(lost))
	p.count.Lost += uint64(len(lost))
	carried := 0 // probes and pings may be lost for their size or because the path is dead; that says nothing of congestion
	for k := range lost {
		s.sched.Done(p.link, int(lost[k].Bytes))
		head := int32(lost[k].Tag)
		if head != 0 {
			carried++
			p.doubtSize(now, lost[k].Bytes, true)
		}
		for i := head; i != 0; i = e.recs.pool[i].next {
			r := &e.recs.pool[i]
			if c := e.conn(r.conn); c != nil {
				c.onRecordLost(r)
			}
		}
		e.recs.release(head)
	}
	if carried > 0 && p.state != PathDead {
		p.cwnd.OnLoss(now, carried)
	}
}

func (c *conn) onRecordLost(r *record) {
	switch r.kind {
	case recOps:
		for k := range int(r.count) {
			c.retx.push(resend{kind: recOps, op: r.op.Add(k)})
		}
	case recRange, recReadData:
		c.retx.push(resend{kind: r.kind, op: r.op, off: r.off, n: r.n})
	case recOpAck:
		c.oweAck()
		return
	case recOpNak:
		c.naks.push(r.op)
	case recControl:
		c.ctl |= uint8(r.off)
	case recAdvert:
		c.adQueue.push(int(r.off))
	}
	c.wake()
}

// onOpAck completes operations (clause 7.1) and takes credit (clause 7.2).
func (c *conn) onOpAck(g *wire.Segment) {
	base, limit := seqnum.Value(g.Op), seqnum.Value(g.Limit)
	if base.Before(c.ackBase) {
		return
	}
	if c.sndNext.Before(base) || base.Distance(limit) < 0 || base.Distance(limit) > 1<<15 {
		c.e.Count.RejectedMalformed++
		return
	}
	for op := c.ackBase; op != base; op++ {
		c.applied(op)
	}
	c.ackBase = base
	for w := range g.Words() {
		for word := g.Word(w); word != 0; word &= word - 1 {
			op := base.Add(1 + 64*w + bits.TrailingZeros64(word))
			if !op.Before(c.sndNext) {
				break
			}
			c.applied(op)
		}
	}
	if c.limit.Before(limit) {
		c.limit = limit
		if c.sndCur != c.sndNext {
			c.wake()
		}
	}
}

// applied notes that the peer applied op: a write is complete, a read still waits for its data unless it has none.
func (c *conn) applied(op seqnum.Value) {
	if !c.outstanding(op) {
		return
	}
	if o := c.sop(op); o.Kind == OpWrite || o.n == 0 {
		c.complete(op, OK)
	}
}

// onControl takes the segments of clause 5.
func (e *Endpoint) onControl(now mono.Time, s *session, g *wire.Segment) bool {
	switch g.Kind {
	case wire.KindOpen:
		return e.onOpen(now, s, g)
	case wire.KindAccept:
		c := e.conn(ConnID(g.Conn))
		if c == nil || c.s != s || c.state != connDialing {
			if c == nil {
				return e.closeStray(s, g.From)
			}
			return true
		}
		e.dropDial(c)
		c.state, c.remote, c.limit = connOpen, g.From, seqnum.Value(min(g.Limit, 1<<15))
		s.byRemote[c.remote] = c
		e.Count.ConnectionsOpened++
		e.emit(Event{Kind: EvConnected, Conn: c.id, Peer: s.peer.id, PeerName: s.peer.name, Data: append([]byte(nil), g.Data...)})
	case wire.KindRefuse:
		if c := e.conn(ConnID(g.Conn)); c != nil && c.s == s && c.state == connDialing {
			text := string(g.Data)
			if Status(g.Status) == StatusNoService {
				text = "nobody offers service \"" + c.service + "\" at node \"" + s.peer.name + "\""
			}
			c.finish(now, Status(g.Status), text)
		}
	case wire.KindClose:
		c := e.conn(ConnID(g.Conn))
		if g.Flags&wire.CloseUnanswered != 0 {
			c = s.byRemote[g.Conn]
		}
		if c == nil || c.s != s {
			return true
		}
		if c.state == connLast {
			c.forget()
			return true
		}
		st := Status(g.Status)
		e.dropDial(c)
		c.failOps(StatusClosed)
		c.tellClosed(st, "")
		c.dropReceived()
		c.state = connLast
		c.forget()
	case wire.KindAdvert, wire.KindWithdraw:
		c, known := s.receiver(g.Conn)
		if c == nil {
			return known
		}
		ev := Event{Kind: EvAdvert, Conn: c.id, Advert: Advert{Name: string(g.Name), Key: regmem.Key(g.Key), Size: g.Size, Perm: regmem.Perm(g.Perm)}}
		if g.Kind == wire.KindWithdraw {
			ev.Kind, ev.Advert = EvWithdrawn, Advert{Key: regmem.Key(g.Key)}
		}
		e.emit(ev)
	}
	return true
}

// onOpen takes a connection request (clause 5.1).
func (e *Endpoint) onOpen(now mono.Time, s *session, g *wire.Segment) bool {
	if g.From == 0 || s.byRemote[g.From] != nil {
		return true
	}
	c := e.newConn()
	if c == nil {
		e.Count.RejectedNoRoom++
		return false
	}
	c.attach(s)
	c.remote, c.limit, c.window = g.From, seqnum.Value(min(g.Limit, 1<<15)), e.cfg.OpWindow
	c.limitSent = seqnum.Value(c.window)
	c.ordered = g.Flags&wire.OpenOrdered != 0
	c.service = string(g.Name)
	s.byRemote[c.remote] = c
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
	c := e.newConn()
	if c == nil {
		return false
	}
	c.attach(s)
	c.remote, c.state, c.status = number, connLast, StatusAborted
	c.ctl = ctlClose
	c.wake()
	return true
}
