package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/engine/op/park"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Writes: local memory, or a few bytes by value, to remote memory (clause 6.3).

func init() {
	addKind(OpWrite, opKind{request: wire.KindWrite, next: wire.KindWriteNext, emit: emitWrite, deliver: deliverWrite,
		complete: completeWrite})
}

// emitWrite copies a short part into the tail and makes a long one the frame's bulk. Sends leave likewise.
func emitWrite(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	if o.op.eager != nil && !o.op.eager.Refused {
		return p.n, c.commit(w, o, p, retx), nil
	}
	if p.n <= w.SmallLimit() {
		if p.off+p.n == o.n {
			p.flags |= wire.SegLast
		}
		ok, lack = c.smallWrite(w, o, p, retx)
		return p.n, ok, lack
	}
	take := w.BulkRoom(p.n, o.op.Off+p.off, retx)
	if take == 0 {
		return 0, false, nil
	}
	if p.off+take == o.n {
		p.flags |= wire.SegLast
	}
	var carried []byte
	if lack := c.e.touch(o, p.off, take, o.n-p.off-take, regmem.WriteSource); lack != nil {
		if carried = c.fetched(w, &o.fetched, p.off, take, false); carried == nil {
			return 0, false, lack
		}
	}
	b := &w.Bulk
	b.Kind, b.Flags, b.Conn, b.Op, b.Fence = kinds[o.op.Kind].request, p.flags, c.remote, uint32(p.op), uint32(o.fence)
	b.Key, b.Place, b.Imm, b.Sum = o.key, o.op.Off+p.off, o.op.Imm, 0
	w.Announce(o.n - p.off - take)
	switch {
	case carried != nil:
		c.carry(w, carried)
	case o.op.Pieces == nil:
		c.carry(w, o.op.Local[p.off:p.off+take])
	default:
		c.carry(w, gathered(w, o.op.Pieces, p.off, take))
	}
	w.Note(o.localRecord(), uint32(c.ID), p.op, p.off, take, retx)
	return take, true, nil
}

// overtakes reports whether o, which gets number seq, leaves before what waits to be sent: a write without bytes that
// nothing orders (clause 6.7) says something of the other direction, such as a stream's Credit (clause 11.5), for which
// the peer waits. One at a time does, and none far ahead, so that it holds up neither those bytes nor answers to the
// peer's reads.
func (c *Conn) overtakes(o *sendOp, seq seqnum.Value) bool {
	const ordered = wire.SegBackward | wire.SegForward | wire.SegFenced
	return o.op.Kind == OpWrite && o.n == 0 && o.flags&ordered == 0 && !c.ordered && c.send.cur != seq &&
		c.send.urgent.Len() == 0 && c.sendable(seq) && seq.InWindow(c.send.ackBase, aheadMost)
}

// aheadMost is how many operations what overtakes may be ahead: the peer is charged for as many records (clause 7.5).
const aheadMost = 64

// smallWrite copies a part of a write or send into the tail, in the short form when it follows its predecessor.
func (c *Conn) smallWrite(w *build.Frame, o *sendOp, p part, retx bool) (ok bool, lack *miss) {
	data := o.op.Local
	switch {
	case o.op.Pieces != nil && p.n > 0:
		data = w.SmallRoom(p.n)
	case data == nil:
		data = o.op.Data[p.off : p.off+p.n]
	default:
		data = data[p.off : p.off+p.n]
	}
	e, l, kind, whole := c.e, &w.Last, kinds[o.op.Kind].request, p.n == o.n
	fenced := p.flags & wire.SegFenced
	next := l.Kind == kind && l.Op+1 == p.op && l.Conn == c.remote && l.Key == o.key && l.Fenced == fenced &&
		l.Fence == o.fence && (whole && o.op.Off == 0 || kind == wire.KindWrite)
	short, size := next && kind == wire.KindWrite, 0
	if short {
		size = wire.WriteNextLen(p.flags, len(data))
	} else {
		g := &w.Seg
		g.Kind, g.Flags, g.Conn, g.Op, g.Fence = kind, p.flags, c.remote, uint32(p.op), uint32(o.fence)
		g.Key, g.Place, g.Imm, g.Data = o.key, o.op.Off+p.off, o.op.Imm, data
		if next {
			g.Kind = kinds[o.op.Kind].next
		}
		size = g.Len()
	}
	if !w.Fits(size, retx) {
		return false, nil
	}
	if lack := e.touch(o, p.off, p.n, o.n-p.off-p.n, regmem.WriteSource); lack != nil {
		if data = c.fetched(w, &o.fetched, p.off, p.n, true); data == nil {
			return false, lack
		}
		w.Seg.Data = data
	}
	if o.op.Pieces != nil {
		o.op.Pieces.Gather(data, p.off)
	}
	if short {
		w.Tail = wire.AppendWriteNext(w.Tail, p.flags, o.op.Off+p.off, o.op.Imm, data)
		l.Op = p.op
	} else {
		w.Tail = w.Seg.AppendTo(w.Tail)
		*l = build.Latest{Kind: kind, Fenced: fenced, Conn: c.remote, Op: p.op, Fence: o.fence, Key: o.key}
		if kind == wire.KindSend {
			l.Key++
		}
	}
	w.Room -= size
	w.Eliciting = true
	e.Count.Traffic.PayloadSent += p.n
	if kind := o.localRecord(); whole && kind == build.RecRange {
		w.NoteOp(uint32(c.ID), p.op, retx)
	} else {
		w.Note(kind, uint32(c.ID), p.op, p.off, p.n, retx)
	}
	return true, nil
}

// deliverWrite puts a part in its place, and applies the operation with the last of them.
func deliverWrite(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	const whole = wire.SegFirst | wire.SegLast
	e := c.e
	n := uint64(len(g.data))
	lo, hi := g.place, g.place+n
	dst, err := c.resolve(g.key, regmem.RemoteWrite, lo, n)
	if err == nil && g.flags&whole == whole && o.state == ropNone && len(c.recv.redirects) == 0 && e.resident() {
		// All of it at once, as most writes are: there is nothing to remember of what is in place.
		o.state, o.flags, o.first, o.imm, o.key = ropPartial, g.flags, lo, g.imm, g.key
		if n > 0 {
			c.deliver(dst, g, true)
		}
		c.apply(now, o, g.op, n)
		return true, nil
	}
	if o.state == ropPartial && o.key != g.key { // the owner would be told of more than the first key is of
		e.Count.Reject.RejectedMalformed++
		return false, nil
	}
	if err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err)), nil
	}
	there := n > 0 && o.got.Covers(lo, hi)
	if !there && !e.landed(g) {
		if lack := e.touchGrant(lo, n, g.follows, regmem.WriteTarget); lack != nil {
			return false, lack
		}
	}
	switch {
	case n == 0:
	case there:
		e.Count.Loss.SegmentsDuplicated++
	case !c.fits(&o.got, lo, hi):
		e.Count.Reject.RejectedNoRoom++
		return false, nil
	case len(c.recv.redirects) > 0 && c.redirected(g, dst):
		c.add(&o.got, lo, hi)
	default:
		c.deliver(dst, g, g.flags&whole == whole)
		c.add(&o.got, lo, hi)
		o.left = park.Unreceived{}
	}
	o.state, o.key = ropPartial, g.key
	o.flags |= g.flags
	if g.flags&wire.SegFirst != 0 {
		o.first = lo
	}
	if g.flags&wire.SegLast != 0 {
		o.last, o.imm = hi, g.imm
	}
	c.writeWhole(now, o, g.op)
	return true, nil
}

// writeWhole applies a write of the peer's that is in place.
func (c *Conn) writeWhole(now mono.Time, o *recvOp, op seqnum.Value) {
	const whole = wire.SegFirst | wire.SegLast
	if o.flags&whole == whole && o.got.Is(o.first, o.last) && o.puts == 0 {
		c.apply(now, o, op, o.last-o.first)
	}
}

func completeWrite(c *Conn, now mono.Time, op seqnum.Value, st abi.Status) (referred []byte) {
	o := c.sop(op)
	if st != OK {
		return o.op.Local
	}
	c.e.Latency.Write.Observe(now.Sub(o.since))
	c.bytesOut += o.n
	return nil
}
