package engine

import (
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
func emitWrite(w *builder, c *conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	if o.op.eager != nil && !o.op.eager.refused {
		return p.n, w.commit(c, o, p, retx), nil
	}
	if p.n <= w.smallLimit() {
		if p.off+p.n == o.n {
			p.flags |= wire.SegLast
		}
		ok, lack = w.smallWrite(c, o, p, retx)
		return p.n, ok, lack
	}
	take := w.bulkRoom(p.n, o.op.Off+p.off, retx)
	if take == 0 {
		return 0, false, nil
	}
	if p.off+take == o.n {
		p.flags |= wire.SegLast
	}
	var carried []byte
	if lack := w.s.e.touch(o, p.off, take, o.n-p.off-take, regmem.WriteSource); lack != nil {
		if carried = w.fetched(&o.fetched, p.off, take, false); carried == nil {
			return 0, false, lack
		}
	}
	b := &w.bulk
	b.Kind, b.Flags, b.Conn, b.Op, b.Fence = kinds[o.op.Kind].request, p.flags, c.remote, uint32(p.op), uint32(o.fence)
	b.Key, b.Place, b.Imm, b.Sum = o.key, o.op.Off+p.off, o.op.Imm, 0
	w.announce(o.n - p.off - take)
	switch {
	case carried != nil:
		w.attach(carried)
	case o.op.Pieces == nil:
		w.attach(o.op.Local[p.off : p.off+take])
	default:
		w.attach(w.gathered(o.op.Pieces, p.off, take))
	}
	w.record(o.localRecord(), c.id, p.op, p.off, take, retx)
	return take, true, nil
}

// latest is the small write or send that a frame's tail ends with. The short form can follow it: a write into the same
// memory, or a whole send that is the next message.
type latest struct {
	kind   wire.Kind // KindPad: there is none
	fenced uint8     // SegFenced
	conn   uint32
	op     seqnum.Value
	fence  seqnum.Value
	key    uint64 // of what can follow
}

// smallWrite copies a part of a write or send into the tail, in the short form when it follows its predecessor.
func (w *builder) smallWrite(c *conn, o *sendOp, p part, retx bool) (ok bool, lack *miss) {
	data := o.op.Local
	switch {
	case o.op.Pieces != nil && p.n > 0:
		data = w.smallRoom(p.n)
	case data == nil:
		data = o.op.Data[p.off : p.off+p.n]
	default:
		data = data[p.off : p.off+p.n]
	}
	e, l, kind, whole := w.s.e, &w.last, kinds[o.op.Kind].request, p.n == o.n
	fenced := p.flags & wire.SegFenced
	next := l.kind == kind && l.op+1 == p.op && l.conn == c.remote && l.key == o.key && l.fenced == fenced &&
		l.fence == o.fence && (whole || kind == wire.KindWrite)
	short, size := next && kind == wire.KindWrite, 0
	if short {
		size = wire.WriteNextLen(p.flags, len(data))
	} else {
		g := &w.seg
		g.Kind, g.Flags, g.Conn, g.Op, g.Fence = kind, p.flags, c.remote, uint32(p.op), uint32(o.fence)
		g.Key, g.Place, g.Imm, g.Data = o.key, o.op.Off+p.off, o.op.Imm, data
		if next {
			g.Kind = kinds[o.op.Kind].next
		}
		size = g.Len()
	}
	if !w.fits(size, retx) {
		return false, nil
	}
	if lack := e.touch(o, p.off, p.n, o.n-p.off-p.n, regmem.WriteSource); lack != nil {
		if data = w.fetched(&o.fetched, p.off, p.n, true); data == nil {
			return false, lack
		}
		w.seg.Data = data
	}
	if o.op.Pieces != nil {
		o.op.Pieces.Gather(data, p.off)
	}
	if short {
		w.tail = wire.AppendWriteNext(w.tail, p.flags, o.op.Off+p.off, o.op.Imm, data)
		l.op = p.op
	} else {
		w.tail = w.seg.AppendTo(w.tail)
		*l = latest{kind: kind, fenced: fenced, conn: c.remote, op: p.op, fence: o.fence, key: o.key}
		if kind == wire.KindSend {
			l.key++
		}
	}
	w.room -= size
	w.eliciting = true
	e.Count.PayloadSent += p.n
	if kind := o.localRecord(); whole && kind == recRange {
		w.recordOp(c, p.op, retx)
	} else {
		w.record(kind, c.id, p.op, p.off, p.n, retx)
	}
	return true, nil
}

// deliverWrite puts a part in its place, and applies the operation with the last of them.
func deliverWrite(c *conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
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
		e.Count.RejectedMalformed++
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
		e.Count.SegmentsDuplicated++
	case !c.fits(&o.got, lo, hi):
		e.Count.RejectedNoRoom++
		return false, nil
	case len(c.recv.redirects) > 0 && c.redirected(g, dst):
		c.add(&o.got, lo, hi)
	default:
		c.deliver(dst, g, g.flags&whole == whole)
		c.add(&o.got, lo, hi)
		o.left = unreceived{}
	}
	o.state, o.key = ropPartial, g.key
	o.flags |= g.flags
	if g.flags&wire.SegFirst != 0 {
		o.first = lo
	}
	if g.flags&wire.SegLast != 0 {
		o.last, o.imm = hi, g.imm
	}
	if o.flags&whole == whole && o.got.Is(o.first, o.last) && o.puts == 0 {
		c.apply(now, o, g.op, o.last-o.first)
	}
	return true, nil
}

func completeWrite(c *conn, now mono.Time, op seqnum.Value, st Status) (referred []byte) {
	o := c.sop(op)
	if st != OK {
		return o.op.Local
	}
	c.e.Latency.Write.Observe(now.Sub(o.since))
	c.bytesOut += o.n
	return nil
}
