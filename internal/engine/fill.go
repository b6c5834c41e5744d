package engine

import (
	"multiedge/internal/engine/queue"
	"multiedge/internal/frame"
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
	f := &w.s.members.fair
	f.Quantum = w.limit
	cost := frame.HeaderLen + wire.FixedLen
	for c := f.Front(); c != nil; c = f.Front() {
		room := w.room
		more := w.from(c)
		f.Spend(&c.share, cost+room-w.room)
		if more {
			break
		}
		f.Remove(&c.share)
		cost = 0
	}
	if f.Waiting == 0 {
		w.flags |= wire.FlagPush
	}
}

// from takes what fits from one connection and reports whether it has more to send that may leave now.
func (w *builder) from(c *conn) (more bool) {
	if c.ctl != 0 && !w.control(c) {
		return true
	}
	for c.exports.queue.Len() > 0 && c.remote != 0 {
		if !w.advert(c) {
			return true
		}
	}
	if c.eager != nil && !w.drafts(c, true) {
		return true
	}
	// The data of the peer's reads and what is our own go first by turns: a peer can keep reads outstanding for ever.
	c.ownFirst = !c.ownFirst
	for c.send.urgent.Len()+c.send.retx.Len() > 0 {
		if !c.ownFirst && w.answersOldest(c) || !w.resend(c) {
			return true
		}
	}
	if c.ownFirst && !w.own(c) {
		return true
	}
	for c.recv.answering.Len() > 0 {
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
	if c.recv.answering.Len() == 0 || *c.recv.answering.Front() != c.recv.base {
		return false
	}
	room := w.room
	w.answer(c)
	return w.room != room
}

// own sends refusals and operations and reports false if the frame is full.
func (w *builder) own(c *conn) bool {
	for c.recv.naks.Len() > 0 {
		if w.room < 16 {
			return false
		}
		w.nak(c)
	}
	if c.state != connOpen && c.state != connClosing {
		return true
	}
	for c.send.cur != c.send.next && c.sendable(c.send.cur) {
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
			*g = wire.Segment{Kind: wire.KindOpen, From: uint32(c.id), Window: uint32(c.recv.window),
				Name: []byte(c.dial.service),
				Data: c.dial.data}
			if c.ordered {
				g.Flags = wire.OpenOrdered
			}
		case ctlAccept:
			*g = wire.Segment{Kind: wire.KindAccept, Conn: c.remote, From: uint32(c.id), Window: uint32(c.recv.window),
				Data: c.dial.data}
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
			c.msgs.out.asked = c.msgs.out.wanted() // less than when it was queued, if some were given up since
			*g = wire.Segment{Kind: wire.KindWant, Conn: c.remote, Key: uint64(c.msgs.out.asked)}
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
	op := *c.recv.naks.Front()
	c.recv.naks.Pop()
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
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
	q := &c.send.urgent
	if q.Len() == 0 {
		q = &c.send.retx
	}
	r := q.Front()
	if r.kind == recAnswer {
		o := c.answeredOp(r.op)
		if o == nil {
			q.Pop()
			return true
		}
		n, ok, lack := kinds[o.kind].reply(w, c, o, part{r.op, r.off, r.n, 0}, true)
		if lack != nil {
			c.parkPart(w.now, *r, false, regmem.ReadTarget, lack)
			q.Pop()
			return true
		}
		return ok && shrink(q, n)
	}
	if !c.outstanding(r.op) {
		q.Pop()
		return true
	}
	o := c.sop(r.op)
	if r.kind == recOps {
		r.off, r.n = 0, o.n
	}
	n, ok, lack := w.part(c, o, r.op, r.off, r.n, !r.late)
	if lack != nil {
		c.parkPart(w.now, *r, false, regmem.WriteSource, lack)
		q.Pop()
		return true
	}
	return ok && shrink(q, n)
}

// shrink takes n sent bytes from the front of the oldest resend of q and reports whether it is finished.
func shrink(q *queue.Queue[resend], n uint64) bool {
	r := q.Front()
	r.kind = keepRange(r.kind)
	r.off += n
	if r.n -= n; r.n == 0 {
		q.Pop()
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

// operation sends the next part of the operation at send.cur and reports false if the frame is full.
func (w *builder) operation(c *conn) bool {
	op := c.send.cur
	o := c.sop(op)
	if o.done {
		c.send.cur++
		c.send.curOff = 0
		return true
	}
	n, ok, lack := w.part(c, o, op, c.send.curOff, o.n-c.send.curOff, false)
	switch {
	case lack != nil:
		rest := resend{kind: recRange, op: op, off: c.send.curOff, n: o.n - c.send.curOff, late: true}
		c.parkPart(w.now, rest, false, regmem.WriteSource, lack)
		n = rest.n
	case !ok:
		return false
	}
	c.send.curOff += n
	if c.send.curOff < o.n {
		return false
	}
	c.send.cur++
	c.send.curOff = 0
	return true
}

// part sends the first bytes of [off, off+n) of one of our operations, as many as the frame takes, and returns how
// many. ok is false if nothing fits, or if memory is missing.
func (w *builder) part(c *conn, o *sendOp, op seqnum.Value, off, n uint64, retx bool) (sent uint64, ok bool,
	lack *miss) {
	flags := o.flags
	if off == 0 {
		flags |= wire.SegFirst
	}
	if o.failed != OK {
		sent, ok = w.abandon(c, o, part{op, off, n, flags})
		return sent, ok, nil
	}
	return kinds[o.op.Kind].emit(w, c, o, part{op, off, n, flags}, retx)
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
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
		return nil
	}
	if o := c.rop(op); o.state == ropAnswering {
		return o
	}
	return nil
}

// answer sends the next part of the oldest answer and reports false if the frame is full.
func (w *builder) answer(c *conn) bool {
	op := *c.recv.answering.Front()
	o := c.answeredOp(op)
	if o == nil {
		c.recv.answering.Pop()
		return true
	}
	n, ok, lack := kinds[o.kind].reply(w, c, o, part{op, o.sent, o.n - o.sent, 0}, false)
	switch {
	case lack != nil:
		c.parkPart(w.now, resend{kind: recAnswer, op: op}, true, regmem.ReadTarget, lack)
		c.recv.answering.Pop()
		return true
	case !ok:
		return false
	}
	if o.sent += n; o.sent >= o.n {
		c.recv.answering.Pop()
		return true
	}
	return o.state != ropAnswering
}
