package engine

import (
	"math/bits"
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// smallMost is the largest part of an operation that is copied into the tail, where it shares the frame with others, in bytes; longer ones are
// gathered from where they lie. Of short frames it is at most a quarter.
const smallMost = 1024

// builder makes one frame at a time in the batch's next buffer:
//
//	buf: | Ethernet | fixed | bulk header | tail ...       with bulk: Head = buf[:78], Tail behind it
//	           | Ethernet | fixed | tail ...               without:   Head = one piece, shifted to end where the tail starts
type builder struct {
	s     *session
	p     *txPath
	b     *Batch
	buf   []byte
	tail  []byte // grows in buf from HeadLen
	limit int    // longest frame, bytes after the Ethernet header
	room  int    // bytes left for tail, and bulk header and payload
	recs  int32  // records so far, newest first
	seg   wire.Segment
	flags uint8
	retx  bool

	hasBulk   bool
	bulk      wire.Bulk
	payload   []byte
	eliciting bool

	// the small write just appended, which WriteNext can follow
	next bool
	prev wire.Segment
}

func (w *builder) begin(s *session, p *txPath, b *Batch) {
	buf := b.next()
	w.s, w.p, w.b, w.buf = s, p, b, buf
	w.tail = buf[wire.HeadLen:wire.HeadLen]
	w.limit = min(p.frameLimit(), len(buf)-wire.HeadLen)
	w.room = w.limit - wire.FixedLen
	w.recs, w.flags, w.retx, w.hasBulk, w.eliciting, w.next = 0, 0, false, false, false, false
	w.payload = nil
}

// smallLimit is smallMost for this frame.
func (w *builder) smallLimit() uint64 { return uint64(min(smallMost, w.limit/4)) }

func (w *builder) used() bool { return w.hasBulk || len(w.tail) > 0 }

// small appends a segment to the tail; it must fit.
func (w *builder) small(g *wire.Segment) {
	n := len(w.tail)
	w.tail = g.AppendTo(w.tail)
	w.room -= len(w.tail) - n
	w.next = g.Kind == wire.KindWrite || g.Kind == wire.KindWriteNext
	if g.Kind != wire.KindAck && g.Kind != wire.KindPad {
		w.eliciting = true
	}
}

// padTo makes the frame size bytes long after the Ethernet header.
func (w *builder) padTo(size int) {
	if n := size - wire.FixedLen - len(w.tail) - 4; n > 0 && len(w.tail)+n+4 <= cap(w.tail) {
		at := len(w.tail)
		w.tail = append(w.tail, byte(wire.KindPad), 0, byte(n>>8), byte(n))
		w.tail = w.tail[:at+4+n]
		clear(w.tail[at+4:])
	}
}

// record notes something that the frame carries.
func (w *builder) record(r record) {
	recs := &w.s.e.recs
	r.next = w.recs
	i := recs.alloc(w.recs)
	recs.pool[i] = r
	w.recs = i
	w.retx = w.retx || r.retx
}

// recordOp notes a whole small operation, extending the record before it when they are consecutive.
func (w *builder) recordOp(c *conn, op seqnum.Value, retx bool) {
	if w.recs != 0 {
		r := &w.s.e.recs.pool[w.recs]
		if r.kind == recOps && r.conn == c.id && r.op.Add(int(r.count)) == op && r.retx == retx {
			r.count++
			return
		}
	}
	w.record(record{kind: recOps, conn: c.id, op: op, count: 1, retx: retx})
}

// acks appends what waits to be acknowledged: a block per path, then OpAcks.
func (w *builder) acks(now mono.Time, maxWords int) {
	s, e := w.s, w.s.e
	for m := s.rxMask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m)
		r := s.rx[i]
		if !r.policy.Pending() {
			continue
		}
		largest, at, ok := r.tracker.Largest()
		words := min(maxWords, (w.room-64)/8)
		if !ok || words <= 0 {
			continue
		}
		floor, bitmap := r.tracker.AckBits(e.words[:0], words)
		e.words = bitmap
		n := len(w.tail)
		w.tail = append(w.tail, make([]byte, 24+8*len(bitmap))...)
		g := wire.Segment{Kind: wire.KindAck, Path: uint8(i), Size: largest, Place: floor, Delay: clampDelay(now.Sub(at))}
		if r.policy.Nack() {
			g.Flags = wire.AckNack
			e.Count.NacksSent++
		}
		wire.PutAck(w.tail[n:], &g, bitmap)
		w.room -= len(w.tail) - n
		w.next = false
		r.policy.OnSent()
	}
	s.ackAt = mono.Never
	for s.opacks.len() > 0 {
		c := *s.opacks.front()
		n := c.opAckLen()
		if w.room < n+64 {
			s.ackAt = now
			break
		}
		s.opacks.pop()
		c.owesAck = false
		if c.state == connFree || c.remote == 0 {
			continue
		}
		w.opAck(c)
	}
}

func clampDelay(d time.Duration) uint32 { return uint32(max(0, min(d, 1<<32-1))) }

// opAckLen is the length of the connection's OpAck as of now.
func (c *conn) opAckLen() int {
	if c.appliedAhead == 0 {
		return 16
	}
	return 16 + 8*min(16, (c.rcvBase.Distance(c.rcvTop)+62)/64)
}

// opAck appends an OpAck (clause 7.1).
func (w *builder) opAck(c *conn) {
	g := &w.seg
	if limit := c.creditLimit(); c.limitSent.Before(limit) {
		c.limitSent = limit
	}
	*g = wire.Segment{Kind: wire.KindOpAck, Conn: c.remote, Op: uint32(c.rcvBase), Limit: uint32(c.limitSent)}
	n := len(w.tail)
	words := (c.opAckLen() - 16) / 8
	w.tail = append(w.tail, make([]byte, 16+8*words)...)
	wire.PutOpAck(w.tail[n:], g, words, func(i int) bool {
		op := c.rcvBase.Add(1 + i)
		return op.Before(c.rcvTop) && c.rop(op).state == ropApplied
	})
	w.room -= 16 + 8*words
	w.next, w.eliciting = false, true
	w.record(record{kind: recOpAck, conn: c.id})
}

// fill takes from the connections that have something to send, in turn, until the frame is full.
func (w *builder) fill(now mono.Time) {
	q := &w.s.sendq
	for n := q.len(); n > 0 && q.len() > 0; n-- {
		c := *q.front()
		more := w.from(c)
		if c.state == connFree || !c.queued {
			continue
		}
		q.pop()
		c.queued = false
		if more {
			c.wake()
			break
		}
	}
	if q.len() == 0 {
		w.flags |= wire.FlagPush
	}
}

// from takes what fits from one connection and reports whether it has more to send that may leave now.
func (w *builder) from(c *conn) (more bool) {
	if c.ctl != 0 && !w.control(c) {
		return true
	}
	for c.adQueue.len() > 0 && c.remote != 0 {
		if !w.advert(c) {
			return true
		}
	}
	for c.retx.len() > 0 {
		if !w.resend(c) {
			return true
		}
	}
	for c.reading.len() > 0 {
		if !w.readData(c) {
			return true
		}
	}
	for c.naks.len() > 0 { // a read above may just have been refused
		if w.room < 16 {
			return true
		}
		w.nak(c)
	}
	if c.state != connOpen && c.state != connClosing {
		return false
	}
	for c.sndCur != c.sndNext && c.sndCur.Before(c.limit) {
		if !w.operation(c) {
			return true
		}
	}
	return false
}

// control appends the connection's control segments (clause 5).
func (w *builder) control(c *conn) bool {
	g := &w.seg
	for c.ctl != 0 {
		bit := c.ctl & -c.ctl
		switch bit {
		case ctlOpen:
			*g = wire.Segment{Kind: wire.KindOpen, From: uint32(c.id), Limit: uint32(c.window), Name: []byte(c.service), Data: c.data}
			if c.ordered {
				g.Flags = wire.OpenOrdered
			}
		case ctlAccept:
			*g = wire.Segment{Kind: wire.KindAccept, Conn: c.remote, From: uint32(c.id), Limit: uint32(c.window), Data: c.data}
		case ctlRefuse:
			*g = wire.Segment{Kind: wire.KindRefuse, Status: uint8(c.status), Conn: c.remote, Data: []byte(c.text)}
		case ctlClose:
			*g = wire.Segment{Kind: wire.KindClose, Status: uint8(c.status), Conn: c.remote}
			if c.remote == 0 {
				g.Flags, g.Conn = wire.CloseUnanswered, uint32(c.id)
			}
		}
		if bit == ctlOpen && c.state != connDialing {
			c.ctl &^= bit
			continue
		}
		if w.room < g.Len() {
			return false
		}
		w.small(g)
		w.record(record{kind: recControl, conn: c.id, off: uint64(bit)})
		c.ctl &^= bit
	}
	return true
}

func (w *builder) nak(c *conn) {
	op := *c.naks.front()
	c.naks.pop()
	if !op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
		return
	}
	o := c.rop(op)
	if o.state != ropFailed {
		return
	}
	w.seg = wire.Segment{Kind: wire.KindOpNak, Status: uint8(o.status), Conn: c.remote, Op: uint32(op)}
	w.small(&w.seg)
	w.record(record{kind: recOpNak, conn: c.id, op: op})
}

func (w *builder) advert(c *conn) bool {
	i := *c.adQueue.front()
	a := c.adverts[i]
	if a == nil {
		c.adQueue.pop()
		return true
	}
	g := &w.seg
	rec := record{kind: recAdvert, conn: c.id, off: uint64(i)}
	*g = wire.Segment{Kind: wire.KindAdvert, Perm: uint8(a.Perm), Conn: c.remote, Key: uint64(a.Key), Size: a.Size, Name: []byte(a.Name)}
	if a.withdrawn {
		rec.n = 1
		*g = wire.Segment{Kind: wire.KindWithdraw, Conn: c.remote, Key: uint64(a.Key)}
	}
	if w.room < g.Len() {
		return false
	}
	c.adQueue.pop()
	w.small(g)
	w.record(rec)
	return true
}

// resend sends the oldest lost part again. It reports false if it did not fit.
func (w *builder) resend(c *conn) bool {
	r := c.retx.front()
	if r.kind == recReadData {
		o := c.readOp(r.op)
		if o == nil {
			c.retx.pop()
			return true
		}
		n, ok := w.readRange(c, o, r.op, r.off, r.n, true)
		return ok && c.shrink(r, n)
	}
	if !c.outstanding(r.op) {
		c.retx.pop()
		return true
	}
	o := c.sop(r.op)
	if r.kind == recOps {
		r.off, r.n = 0, o.n
	}
	n, ok := w.part(c, o, r.op, r.off, r.n, true)
	return ok && c.shrink(r, n)
}

// shrink takes n sent bytes from the front of the oldest resend and reports whether it is finished.
func (c *conn) shrink(r *resend, n uint64) bool {
	r.kind = keepRange(r.kind)
	r.off += n
	if r.n -= n; r.n == 0 {
		c.retx.pop()
		return true
	}
	return false
}

// keepRange turns a whole operation that had to be cut into a range of it.
func keepRange(k recKind) recKind {
	if k == recOps {
		return recRange
	}
	return k
}

// operation sends the next part of the operation at sndCur and reports false if the frame is full.
func (w *builder) operation(c *conn) bool {
	op := c.sndCur
	o := c.sop(op)
	if o.done {
		c.sndCur++
		c.curOff = 0
		return true
	}
	n, ok := w.part(c, o, op, c.curOff, o.n-c.curOff, false)
	if !ok {
		return false
	}
	c.curOff += n
	if c.curOff < o.n && o.Kind == OpWrite {
		return false
	}
	c.sndCur++
	c.curOff = 0
	return true
}

// part sends the first bytes of [off, off+n) of one of our operations, as many as the frame takes, and returns how many. ok is false if nothing fits.
func (w *builder) part(c *conn, o *sendOp, op seqnum.Value, off, n uint64, retx bool) (sent uint64, ok bool) {
	flags := uint8(0)
	if o.Flags&BackwardFence != 0 {
		flags |= wire.SegBackward
	}
	if o.Flags&ForwardFence != 0 {
		flags |= wire.SegForward
	}
	if o.Flags&Notify != 0 {
		flags |= wire.SegNotify
	}
	if o.fenced {
		flags |= wire.SegFenced
	}
	if off == 0 {
		flags |= wire.SegFirst
	}
	if o.Kind == OpRead {
		return n, w.readRequest(c, o, op, flags, retx)
	}
	if n <= w.smallLimit() {
		if off+n == o.n {
			flags |= wire.SegLast
		}
		return n, w.smallWrite(c, o, op, off, n, flags, retx)
	}
	take := w.bulkRoom(n, o.Off+off)
	if take == 0 {
		return 0, false
	}
	if off+take == o.n {
		flags |= wire.SegLast
	}
	w.bulk = wire.Bulk{Kind: wire.KindWrite, Flags: flags, Conn: c.remote, Op: uint32(op), Fence: uint32(o.fence), Key: uint64(o.Key), Place: o.Off + off, Imm: o.Imm}
	w.announce(o.n - off - take)
	w.attach(o.Local[off : off+take])
	w.record(record{kind: recRange, conn: c.id, op: op, off: off, n: take, retx: retx})
	return take, true
}

func (w *builder) readRequest(c *conn, o *sendOp, op seqnum.Value, flags uint8, retx bool) bool {
	w.seg = wire.Segment{
		Kind: wire.KindReadRequest, Flags: flags | wire.SegLast, Conn: c.remote, Op: uint32(op), Fence: uint32(o.fence), Key: uint64(o.Key),
		Place: o.Off, Size: o.n, Imm: o.Imm,
	}
	if w.room < w.seg.Len() {
		return false
	}
	w.small(&w.seg)
	w.recordOp(c, op, retx)
	return true
}

// smallWrite copies a part into the tail, in the short form when it follows its predecessor.
func (w *builder) smallWrite(c *conn, o *sendOp, op seqnum.Value, off, n uint64, flags uint8, retx bool) bool {
	data := o.Local
	if data == nil {
		data = o.Data[:o.Inline]
	}
	data = data[off : off+n]
	g := &w.seg
	g.Kind, g.Flags, g.Conn, g.Op, g.Fence = wire.KindWrite, flags, c.remote, uint32(op), uint32(o.fence)
	g.Key, g.Place, g.Imm, g.Data = uint64(o.Key), o.Off+off, o.Imm, data
	p := &w.prev
	if w.next && p.Conn == g.Conn && p.Key == g.Key && p.Op+1 == g.Op && p.Flags&wire.SegFenced == g.Flags&wire.SegFenced && p.Fence == g.Fence {
		g.Kind = wire.KindWriteNext
	}
	if w.room < g.Len() {
		return false
	}
	p.Conn, p.Key, p.Op, p.Flags, p.Fence = g.Conn, g.Key, g.Op, g.Flags, g.Fence
	w.small(g)
	w.s.e.Count.PayloadSent += n
	if n == o.n {
		w.recordOp(c, op, retx)
	} else {
		w.record(record{kind: recRange, conn: c.id, op: op, off: off, n: n, retx: retx})
	}
	return true
}

// bulkRoom returns how many of n bytes for destination offset place the frame's bulk segment can take; 0 if it has one already or so little is left that the
// next frame should have them.
func (w *builder) bulkRoom(n, place uint64) uint64 {
	room := w.room - wire.BulkLen
	if w.hasBulk || room <= 0 || uint64(room) < n && 2*room < w.limit {
		return 0
	}
	if w.p.shuf > 0 {
		return uint64(remap.NextLen(place, n, room, pageSize))
	}
	if most := room + min(w.p.mtu, len(w.buf)-wire.HeadLen) - w.limit; uint64(most) >= n {
		return n // a little over the preferred length is cheaper than another frame for the rest
	}
	if w.limit < alignFrom {
		return uint64(room) &^ 7
	}
	return uint64(room) &^ 63
}

// alignFrom is the frame length from which giving up to 63 bytes for payloads on cache lines at their destination pays.
const alignFrom = 4096

const pageSize = 4096

// attach makes payload the frame's bulk. For a receiver that wants page alignment the first bytes go behind the others (clause 2.6).
func (w *builder) attach(payload []byte) {
	w.hasBulk, w.eliciting, w.next = true, true, false
	w.bulk.Len = uint16(len(payload))
	w.room -= wire.BulkLen + len(payload)
	w.s.e.Count.PayloadSent += uint64(len(payload))
	w.payload = payload
}

// announce says in the bulk header how much of the operation follows, unless it is the last part (clause 2.3).
func (w *builder) announce(follows uint64) {
	if follows > 0 {
		w.bulk.Imm = uint32(min(follows, 1<<32-1))
	}
}

// readOp returns the peer's read op if its data is still being sent.
func (c *conn) readOp(op seqnum.Value) *recvOp {
	if !op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
		return nil
	}
	if o := c.rop(op); o.state == ropReading {
		return o
	}
	return nil
}

// readData sends the next part of the oldest read of the peer and reports false if the frame is full.
func (w *builder) readData(c *conn) bool {
	op := *c.reading.front()
	o := c.readOp(op)
	if o == nil {
		c.reading.pop()
		return true
	}
	n, ok := w.readRange(c, o, op, o.sent, o.n-o.sent, false)
	if !ok {
		return false
	}
	if o.sent += n; o.sent >= o.n {
		c.reading.pop()
		return true
	}
	return o.state != ropReading
}

// readRange sends the first bytes of [off, off+n) of a read of the peer. The key is checked for each part: it may have been revoked.
func (w *builder) readRange(c *conn, o *recvOp, op seqnum.Value, off, n uint64, retx bool) (sent uint64, ok bool) {
	src, _, err := c.e.cfg.Grants.Check(o.key, grantOwner(c.id), regmem.RemoteRead, o.off+off, n)
	if err != nil {
		c.refuseOp(o, op, statusOf(err))
		return n, true
	}
	flags := uint8(0)
	if off == 0 {
		flags |= wire.SegFirst
	}
	if n <= w.smallLimit() {
		if off+n == o.n {
			flags |= wire.SegLast
		}
		w.seg = wire.Segment{Kind: wire.KindReadData, Flags: flags, Conn: c.remote, Op: uint32(op), Place: off, Data: src}
		if w.room < w.seg.Len() {
			return 0, false
		}
		w.small(&w.seg)
		w.s.e.Count.PayloadSent += n
	} else {
		if n = w.bulkRoom(n, off); n == 0 {
			return 0, false
		}
		if off+n == o.n {
			flags |= wire.SegLast
		}
		w.bulk = wire.Bulk{Kind: wire.KindReadData, Flags: flags, Conn: c.remote, Op: uint32(op), Place: off}
		w.announce(o.n - off - n)
		w.attach(src[:n])
	}
	w.record(record{kind: recReadData, conn: c.id, op: op, off: off, n: n, retx: retx})
	return n, true
}

// finish numbers the frame, seals its header and adds it to the batch.
func (w *builder) finish(now mono.Time) {
	s, p, e := w.s, w.p, w.s.e
	bytes := wire.EthLen + wire.FixedLen + len(w.tail)
	if w.hasBulk {
		bytes += wire.BulkLen + len(w.payload)
	}
	h := wire.Header{Type: wire.TypeData, Path: uint8(p.link), Flags: w.flags, Session: s.remote}
	h.PN = p.ledger.Record(now, bytes, uint64(uint32(w.recs)), w.eliciting)
	f := TxFrame{Link: p.link}
	if w.hasBulk {
		h.Flags |= wire.FlagBulk
		f.Bulk, f.Tail = w.payload, w.tail
		var first []byte
		if H := p.shuf; H > 0 && H < len(w.payload) {
			h.Flags |= wire.FlagShuffled
			h.Shuffle = uint16(H)
			f.Bulk, first = remap.SendOrder(w.payload, H)
			copy(w.buf[wire.HeadLen+H:], w.tail)
			copy(w.buf[wire.HeadLen:], first)
			f.Tail = w.buf[wire.HeadLen : wire.HeadLen+H+len(w.tail)]
			w.tail = f.Tail[H:]
		}
		if e.cfg.Checksum == ChecksumFull {
			h.Flags |= wire.FlagPayloadSum
			w.bulk.Sum = wire.Sum(wire.Sum(0, f.Bulk), first)
		}
		f.Head = w.buf[:wire.HeadLen]
		wire.PutBulk(f.Head[wire.EthLen+wire.FixedLen:], &w.bulk)
	} else {
		f.Head = w.buf[wire.BulkLen : wire.HeadLen+len(w.tail)]
	}
	copy(f.Head, p.header[:])
	wire.Finish(f.Head[wire.EthLen:], &h, w.tail)
	w.b.Frames = append(w.b.Frames, f)

	e.countSent(p.link, bytes)
	p.count.Frames++
	p.count.Bytes += uint64(bytes)
	if w.eliciting {
		s.inFlight++
		s.sched.Sent(p.link, bytes)
		e.Count.DataFramesSent++
	}
	if w.retx {
		e.Count.FramesRetransmitted++
		e.links[p.link].count.FramesRetransmitted++
		s.framesRetransmitted++
		p.count.Retransmitted++
	}
}
