package op

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/queue"
	"multiedge/internal/frame"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// What connections put into a frame, in this order: control segments, adverts, what was lost; then, by turns one before
// the other, data of the peer's reads, and refusals and new operations.

// Fill takes from the connections that have something to send, in turn, until the frame is full. The first pays for the
// frame's own headers.
func (s *Session) Fill(w *build.Frame) {
	f := &s.Fair
	f.Quantum = w.Limit
	cost := frame.HeaderLen + wire.FixedLen
	for c := f.Front(); c != nil; c = f.Front() {
		room := w.Room
		more := c.fill(w)
		f.Spend(&c.share, cost+room-w.Room)
		if more {
			break
		}
		f.Remove(&c.share)
		cost = 0
	}
	if f.Waiting == 0 {
		w.Flags |= wire.FlagPush
	}
}

// Follow makes w, which Fill has filled and which has left, the frame that Fill would make of it next, if that carries
// the next part of the same operation, as long as the one before, and nothing else. It reports false, and nothing has
// happened, if not, or if that is not certain. Nothing but Follow may have happened since Fill.
func (s *Session) Follow(w *build.Frame) bool {
	c := s.Fair.Front()
	if c == nil || !w.Leads() {
		return false
	}
	r := &w.Records.Pool[w.Recs]
	if r.Conn != uint32(c.ID) || r.Next != 0 || c.ctl != 0 || c.exports.queue.Len() > 0 || c.eager != nil ||
		c.recv.naks.Len()+c.send.urgent.Len()+c.send.retx.Len() > 0 || c.e.misses.look != nil {
		return false
	}
	var part []byte
	var follows uint64
	if r.Kind == build.RecAnswer {
		part, follows = c.nextOfAnswer(w, r.Op)
	} else {
		part, follows = c.nextOfOwn(w, r.Op)
	}
	if part == nil {
		return false
	}
	c.ownFirst = !c.ownFirst // as fill does, of which this is the frame
	w.Follow(part, follows)
	c.e.Count.Traffic.PayloadSent += uint64(len(part))
	s.Fair.Spend(&c.share, frame.HeaderLen+wire.FixedLen+wire.BulkLen+len(part)+w.Split)
	return true
}

// nextOfOwn takes what the next frame carries of operation op, nil: not certain.
func (c *Conn) nextOfOwn(w *build.Frame, op seqnum.Value) (part []byte, follows uint64) {
	if op != c.send.cur || c.recv.answering.Len() > 0 {
		return nil, 0
	}
	o, off := c.sop(op), c.send.curOff
	n, ok := w.Behind(o.n - off)
	if !ok || off == 0 || o.backed || o.op.Pieces != nil {
		return nil, 0
	}
	c.send.curOff += n
	return o.op.Local[off : off+n], o.n - off - n
}

// nextOfAnswer takes what the next frame carries of the answer to op, nil: not certain.
func (c *Conn) nextOfAnswer(w *build.Frame, op seqnum.Value) (part []byte, follows uint64) {
	if c.recv.answering.Len() == 0 || *c.recv.answering.Front() != op || c.ownWaits() {
		return nil, 0
	}
	o := c.answeredOp(op)
	if o == nil || o.kind != OpRead || o.sent == 0 {
		return nil, 0
	}
	n, ok := w.Behind(o.n - o.sent)
	if !ok {
		return nil, 0
	}
	src, err := c.resolve(o.key, regmem.RemoteRead, o.off+o.sent, o.n-o.sent)
	if err != nil || !c.e.resident() {
		return nil, 0
	}
	o.sent += n
	return src[:n:n], o.n - o.sent
}

// ownWaits reports whether an operation of ours can be sent.
func (c *Conn) ownWaits() bool {
	return (c.state == connOpen || c.state == connClosing) && c.send.cur != c.send.next && c.sendable(c.send.cur)
}

// fill takes what fits from one connection and reports whether it has more to send that may leave now.
func (c *Conn) fill(w *build.Frame) (more bool) {
	if c.ctl != 0 && !c.control(w) {
		return true
	}
	for c.exports.queue.Len() > 0 && c.remote != 0 {
		if !c.advert(w) {
			return true
		}
	}
	if c.eager != nil && !c.drafts(w, true) {
		return true
	}
	// The data of the peer's reads and what is our own go first by turns: a peer can keep reads outstanding for ever.
	c.ownFirst = !c.ownFirst
	for c.send.urgent.Len()+c.send.retx.Len() > 0 {
		if !c.ownFirst && c.answersOldest(w) || !c.resend(w) {
			return true
		}
	}
	if c.ownFirst && !c.own(w) {
		return true
	}
	for c.recv.answering.Len() > 0 {
		if !c.answer(w) {
			return true
		}
	}
	return !c.own(w) || c.eager != nil && !c.drafts(w, false)
}

// answersOldest sends part of the answer to the peer's oldest operation, and reports whether it did: all that the peer
// has here may wait for it. What was lost goes after it, and not into the same frame, for it may be lost for ever where
// the peer has no room for it, since all that we have there waits for such an answer.
func (c *Conn) answersOldest(w *build.Frame) bool {
	if c.recv.answering.Len() == 0 || *c.recv.answering.Front() != c.recv.base {
		return false
	}
	room := w.Room
	c.answer(w)
	return w.Room != room
}

// own sends refusals and operations and reports false if the frame is full.
func (c *Conn) own(w *build.Frame) bool {
	for c.recv.naks.Len() > 0 {
		if w.Room < 16 {
			return false
		}
		c.nak(w)
	}
	for c.ownWaits() {
		if !c.operation(w) {
			return false
		}
	}
	return true
}

// control appends the connection's control segments (clause 5).
func (c *Conn) control(w *build.Frame) bool {
	g := &w.Seg
	for c.ctl != 0 {
		bit := c.ctl & -c.ctl
		switch bit {
		case ctlOpen:
			*g = wire.Segment{Kind: wire.KindOpen, From: uint32(c.ID), Window: uint32(c.recv.window),
				Name: []byte(c.dial.service),
				Data: c.dial.data}
			if c.ordered {
				g.Flags = wire.OpenOrdered
			}
			if c.overlap {
				g.Flags |= wire.OpenOverlap
			}
		case ctlAccept:
			*g = wire.Segment{Kind: wire.KindAccept, Conn: c.remote, From: uint32(c.ID), Window: uint32(c.recv.window),
				Data: c.dial.data}
		case ctlRefuse:
			*g = wire.Segment{Kind: wire.KindRefuse, Status: uint8(c.status), Conn: c.remote, Data: []byte(c.text)}
		case ctlClose:
			*g = wire.Segment{Kind: wire.KindClose, Status: uint8(c.status), Conn: c.remote}
			if c.remote == 0 {
				g.Flags, g.Conn = wire.CloseUnanswered, uint32(c.ID)
			}
		case ctlCredit:
			*g = c.credit()
		case ctlWant:
			// less than when it was queued, if some were given up since
			*g = wire.Segment{Kind: wire.KindWant, Conn: c.remote, Key: uint64(c.msgs.out.Ask(c.waiting()))}
		}
		if bit == ctlOpen && c.state != connDialing {
			c.ctl &^= bit
			continue
		}
		if w.Room < g.Len() {
			return false
		}
		w.Small(g)
		w.Note(build.RecControl, uint32(c.ID), 0, uint64(bit), 0, false)
		c.ctl &^= bit
	}
	return true
}

func (c *Conn) nak(w *build.Frame) {
	op := *c.recv.naks.Front()
	c.recv.naks.Pop()
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
		return
	}
	o := c.rop(op)
	if o.state != ropFailed {
		return
	}
	w.Seg = wire.Segment{Kind: wire.KindOpNak, Status: uint8(o.status), Conn: c.remote, Op: uint32(op)}
	w.Small(&w.Seg)
	w.Note(build.RecOpNak, uint32(c.ID), op, 0, 0, false)
}

// resend sends the oldest lost part again. It reports false if it did not fit.
func (c *Conn) resend(w *build.Frame) bool {
	q := &c.send.urgent
	if q.Len() == 0 {
		q = &c.send.retx
	}
	r := q.Front()
	if r.kind == build.RecAnswer {
		o := c.answeredOp(r.op)
		if o == nil {
			q.Pop()
			return true
		}
		n, ok, lack := kinds[o.kind].reply(w, c, o, part{r.op, r.off, r.n, 0}, true)
		if lack != nil {
			c.parkPart(w.Now, *r, false, regmem.ReadTarget, lack)
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
	if r.kind == build.RecOps {
		r.off, r.n = 0, o.n
	}
	n, ok, lack := c.part(w, o, r.op, r.off, r.n, !r.late)
	if lack != nil {
		c.parkPart(w.Now, *r, false, regmem.WriteSource, lack)
		q.Pop()
		return true
	}
	if ok && o.ahead == leavesFirst {
		o.ahead = leftFirst
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
func keepRange(k build.Kind) build.Kind {
	if k == build.RecOps {
		return build.RecRange
	}
	return k
}

// operation sends the next part of the operation at send.cur and reports false if the frame is full.
func (c *Conn) operation(w *build.Frame) bool {
	op := c.send.cur
	o := c.sop(op)
	if o.done || o.ahead != inTurn {
		c.send.cur++
		c.send.curOff = 0
		return true
	}
	n, ok, lack := c.part(w, o, op, c.send.curOff, o.n-c.send.curOff, false)
	switch {
	case lack != nil:
		rest := resend{kind: build.RecRange, op: op, off: c.send.curOff, n: o.n - c.send.curOff, late: true}
		c.parkPart(w.Now, rest, false, regmem.WriteSource, lack)
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
func (c *Conn) part(w *build.Frame, o *sendOp, op seqnum.Value, off, n uint64, retx bool) (sent uint64, ok bool,
	lack *miss) {
	flags := o.flags
	if off == 0 {
		flags |= wire.SegFirst
	}
	if o.failed != OK {
		sent, ok = c.abandon(w, o, part{op, off, n, flags})
		return sent, ok, nil
	}
	return kinds[o.op.Kind].emit(w, c, o, part{op, off, n, flags}, retx)
}

// answeredOp returns the peer's operation op if its answer is still being sent.
func (c *Conn) answeredOp(op seqnum.Value) *recvOp {
	if !op.InWindow(c.recv.base, c.recv.base.Distance(c.recv.top)) {
		return nil
	}
	if o := c.rop(op); o.state == ropAnswering {
		return o
	}
	return nil
}

// answer sends the next part of the oldest answer and reports false if the frame is full.
func (c *Conn) answer(w *build.Frame) bool {
	op := *c.recv.answering.Front()
	o := c.answeredOp(op)
	if o == nil {
		c.recv.answering.Pop()
		return true
	}
	n, ok, lack := kinds[o.kind].reply(w, c, o, part{op, o.sent, o.n - o.sent, 0}, false)
	switch {
	case lack != nil:
		c.parkPart(w.Now, resend{kind: build.RecAnswer, op: op}, true, regmem.ReadTarget, lack)
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

// carry makes payload the frame's bulk.
func (c *Conn) carry(w *build.Frame, payload []byte) {
	w.Attach(payload)
	c.e.Count.Traffic.PayloadSent += uint64(len(payload))
}
