package engine

import (
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// What connections put into a frame, in this order: control segments, adverts, what was lost; then, by turns one before the other, data of the peer's reads, and refusals
// and new operations.

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
	for c.urgent.len()+c.retx.len() > 0 {
		if !w.resend(c) {
			return true
		}
	}
	// The data of the peer's reads and what is our own go first by turns: a peer can keep reads outstanding for ever.
	if c.ownFirst = !c.ownFirst; c.ownFirst && !w.own(c) {
		return true
	}
	for c.reading.len() > 0 {
		if !w.readData(c) {
			return true
		}
	}
	return !w.own(c)
}

// own sends refusals and operations and reports false if the frame is full.
func (w *builder) own(c *conn) bool {
	for c.naks.len() > 0 {
		if w.room < 16 {
			return false
		}
		w.nak(c)
	}
	if c.state != connOpen && c.state != connClosing {
		return true
	}
	for c.sndCur != c.sndNext && c.sendable(c.sndCur) {
		if !w.operation(c) {
			return false
		}
	}
	return true
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
		w.record(recControl, c.id, 0, uint64(bit), 0, false)
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
	w.record(recOpNak, c.id, op, 0, 0, false)
}

func (w *builder) advert(c *conn) bool {
	i := *c.adQueue.front()
	a := c.adverts[i]
	if a == nil {
		c.adQueue.pop()
		return true
	}
	g := &w.seg
	withdrawal := uint64(0)
	*g = wire.Segment{Kind: wire.KindAdvert, Perm: uint8(a.Perm), Conn: c.remote, Op: uint32(i), Key: uint64(a.Key), Size: a.Size, Name: []byte(a.Name)}
	if a.withdrawn {
		withdrawal = 1
		*g = wire.Segment{Kind: wire.KindWithdraw, Conn: c.remote, Op: uint32(i), Key: uint64(a.Key)}
	}
	if w.room < g.Len() {
		return false
	}
	c.adQueue.pop()
	w.small(g)
	w.record(recAdvert, c.id, 0, uint64(i), withdrawal, false)
	return true
}

// resend sends the oldest lost part again. It reports false if it did not fit.
func (w *builder) resend(c *conn) bool {
	q := &c.urgent
	if q.len() == 0 {
		q = &c.retx
	}
	r := q.front()
	if r.kind == recReadData {
		o := c.readOp(r.op)
		if o == nil {
			q.pop()
			return true
		}
		n, ok := w.readRange(c, o, r.op, r.off, r.n, true)
		return ok && shrink(q, n)
	}
	if !c.outstanding(r.op) {
		q.pop()
		return true
	}
	o := c.sop(r.op)
	if r.kind == recOps {
		r.off, r.n = 0, o.n
	}
	n, ok := w.part(c, o, r.op, r.off, r.n, true)
	return ok && shrink(q, n)
}

// shrink takes n sent bytes from the front of the oldest resend of q and reports whether it is finished.
func shrink(q *queue[resend], n uint64) bool {
	r := q.front()
	r.kind = keepRange(r.kind)
	r.off += n
	if r.n -= n; r.n == 0 {
		q.pop()
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
	take := w.bulkRoom(n, o.Off+off, retx)
	if take == 0 {
		return 0, false
	}
	if off+take == o.n {
		flags |= wire.SegLast
	}
	b := &w.bulk
	b.Kind, b.Flags, b.Conn, b.Op, b.Fence, b.Key, b.Place, b.Imm, b.Sum = wire.KindWrite, flags, c.remote, uint32(op), uint32(o.fence), uint64(o.Key), o.Off+off, o.Imm, 0
	w.announce(o.n - off - take)
	w.attach(o.Local[off : off+take])
	w.record(recRange, c.id, op, off, take, retx)
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
	if !w.fits(g.Len(), retx) {
		return false
	}
	p.Conn, p.Key, p.Op, p.Flags, p.Fence = g.Conn, g.Key, g.Op, g.Flags, g.Fence
	w.small(g)
	w.s.e.Count.PayloadSent += n
	if n == o.n {
		w.recordOp(c, op, retx)
	} else {
		w.record(recRange, c.id, op, off, n, retx)
	}
	return true
}

// bulkRoom returns how many of n bytes for destination offset place the frame's bulk segment can take; 0 if it has one already or so little is left that the
// next frame should have them.
func (w *builder) bulkRoom(n, place uint64, retx bool) uint64 {
	room := w.room - wire.BulkLen - w.split
	if w.hasBulk || room <= 0 || uint64(room) < n && 2*room < w.limit {
		return 0
	}
	if w.p.shuf > 0 {
		return uint64(remap.NextLen(place, n, room, pageSize))
	}
	// A little over the preferred length is cheaper than another frame for the rest; but that may be why it was lost.
	if most := room + w.stretch(); uint64(room) >= n || uint64(most) >= n && !retx && !w.retx {
		return n
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
	w.room -= wire.BulkLen + len(payload) + w.split
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
		if !w.fits(w.seg.Len(), retx) {
			return 0, false
		}
		w.small(&w.seg)
		w.s.e.Count.PayloadSent += n
	} else {
		if n = w.bulkRoom(n, off, retx); n == 0 {
			return 0, false
		}
		if off+n == o.n {
			flags |= wire.SegLast
		}
		b := &w.bulk
		b.Kind, b.Flags, b.Conn, b.Op, b.Fence, b.Key, b.Place, b.Imm, b.Sum = wire.KindReadData, flags, c.remote, uint32(op), 0, 0, off, 0, 0
		w.announce(o.n - off - n)
		w.attach(src[:n])
	}
	w.record(recReadData, c.id, op, off, n, retx)
	return n, true
}
