package engine

import (
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
	"multiedge/remap"
)

// What connections put into a frame, in this order: control segments, adverts, what was lost; then, by turns one before
// the other, data of the peer's reads, and refusals and new operations.

// fill takes from the connections that have something to send, in turn, until the frame is full. The first pays for the
// frame's own headers.
func (w *builder) fill() {
	f := &w.s.fair
	f.quantum = w.limit
	cost := wire.EthLen + wire.FixedLen
	for c := f.front(); c != nil; c = f.front() {
		room := w.room
		more := w.from(c)
		f.spend(c, cost+room-w.room)
		if more {
			break
		}
		f.remove(c)
		cost = 0
	}
	if f.waiting == 0 {
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
	if c.eager != nil && !w.drafts(c, true) {
		return true
	}
	// The data of the peer's reads and what is our own go first by turns: a peer can keep reads outstanding for ever.
	c.ownFirst = !c.ownFirst
	for c.urgent.len()+c.retx.len() > 0 {
		if !c.ownFirst && w.answersOldest(c) || !w.resend(c) {
			return true
		}
	}
	if c.ownFirst && !w.own(c) {
		return true
	}
	for c.answering.len() > 0 {
		if !w.answer(c) {
			return true
		}
	}
	return !w.own(c) || c.eager != nil && !w.drafts(c, false)
}

// answersOldest sends part of the answer to the peer's oldest operation, and reports whether it did: all that the peer
// has here may wait for it. What was lost goes after it, and not into the same frame, for it may be lost for ever where
// the peer has no room for it, since all that we have there waits for such an answer.
func (w *builder) answersOldest(c *conn) bool {
	if c.answering.len() == 0 || *c.answering.front() != c.rcvBase {
		return false
	}
	room := w.room
	w.answer(c)
	return w.room != room
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
			*g = wire.Segment{Kind: wire.KindOpen, From: uint32(c.id), Limit: uint32(c.window), Name: []byte(c.service),
				Data: c.data}
			if c.ordered {
				g.Flags = wire.OpenOrdered
			}
		case ctlAccept:
			*g = wire.Segment{Kind: wire.KindAccept, Conn: c.remote, From: uint32(c.id), Limit: uint32(c.window),
				Data: c.data}
		case ctlRefuse:
			*g = wire.Segment{Kind: wire.KindRefuse, Status: uint8(c.status), Conn: c.remote, Data: []byte(c.text)}
		case ctlClose:
			*g = wire.Segment{Kind: wire.KindClose, Status: uint8(c.status), Conn: c.remote}
			if c.remote == 0 {
				g.Flags, g.Conn = wire.CloseUnanswered, uint32(c.id)
			}
		case ctlCredit:
			*g = c.credit()
		case ctlWant:
			c.msgs.asked = c.msgs.wanted() // less than when it was queued, if some were given up since
			*g = wire.Segment{Kind: wire.KindWant, Conn: c.remote, Key: uint64(c.msgs.asked)}
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

// resend sends the oldest lost part again. It reports false if it did not fit.
func (w *builder) resend(c *conn) bool {
	q := &c.urgent
	if q.len() == 0 {
		q = &c.retx
	}
	r := q.front()
	if r.kind == recAnswer {
		o := c.answeredOp(r.op)
		if o == nil {
			q.pop()
			return true
		}
		n, ok := kinds[o.kind].reply(w, c, o, part{r.op, r.off, r.n, 0}, true)
		if !ok && c.parkPart(w.now, *r, false, regmem.ReadTarget) {
			q.pop()
			return true
		}
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
	n, ok := w.part(c, o, r.op, r.off, r.n, !r.late)
	if !ok && c.parkPart(w.now, *r, false, regmem.WriteSource) {
		q.pop()
		return true
	}
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
		rest := resend{kind: recRange, op: op, off: c.curOff, n: o.n - c.curOff, late: true}
		if !c.parkPart(w.now, rest, false, regmem.WriteSource) {
			return false
		}
		n = rest.n
	}
	c.curOff += n
	if c.curOff < o.n {
		return false
	}
	c.sndCur++
	c.curOff = 0
	return true
}

// part sends the first bytes of [off, off+n) of one of our operations, as many as the frame takes, and returns how
// many. ok is false if nothing fits.
func (w *builder) part(c *conn, o *sendOp, op seqnum.Value, off, n uint64, retx bool) (sent uint64, ok bool) {
	flags := o.flags
	if off == 0 {
		flags |= wire.SegFirst
	}
	if o.failed != OK {
		return w.abandon(c, o, part{op, off, n, flags})
	}
	return kinds[o.Kind].emit(w, c, o, part{op, off, n, flags}, retx)
}

// bulkRoom returns how many of n bytes for destination offset place the frame's bulk segment can take; 0 if it has one
// already or so little is left that the next frame should have them.
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
	return uint64(room - room%w.unit())
}

// unit is what payloads that are cut are multiples of, in bytes. In long frames it pays to give up to 63 bytes for
// payloads on cache lines at their destination.
func (w *builder) unit() int {
	if w.limit < alignFrom {
		return 8
	}
	return 64
}

const alignFrom = 4096

const pageSize = 4096

// attach makes payload the frame's bulk. For a receiver that wants page alignment the first bytes go behind the others
// (clause 2.6).
func (w *builder) attach(payload []byte) {
	w.hasBulk, w.eliciting, w.last.kind = true, true, wire.KindPad
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

// answeredOp returns the peer's operation op if its answer is still being sent.
func (c *conn) answeredOp(op seqnum.Value) *recvOp {
	if !op.InWindow(c.rcvBase, c.rcvBase.Distance(c.rcvTop)) {
		return nil
	}
	if o := c.rop(op); o.state == ropAnswering {
		return o
	}
	return nil
}

// answer sends the next part of the oldest answer and reports false if the frame is full.
func (w *builder) answer(c *conn) bool {
	op := *c.answering.front()
	o := c.answeredOp(op)
	if o == nil {
		c.answering.pop()
		return true
	}
	n, ok := kinds[o.kind].reply(w, c, o, part{op, o.sent, o.n - o.sent, 0}, false)
	if !ok {
		if !c.parkPart(w.now, resend{kind: recAnswer, op: op}, true, regmem.ReadTarget) {
			return false
		}
		c.answering.pop()
		return true
	}
	if o.sent += n; o.sent >= o.n {
		c.answering.pop()
		return true
	}
	return o.state != ropAnswering
}
