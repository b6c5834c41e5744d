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

// Reads: remote memory to local memory (clause 6.3). The request is one segment; the answer is the data.

func init() {
	addKind(OpRead, opKind{request: wire.KindReadRequest, answer: wire.KindReadData, fills: true, emit: emitRead,
		deliver: deliverRead, reply: replyRead, accept: acceptRead, complete: completeRead})
}

func emitRead(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	g := &w.Seg
	g.Kind, g.Flags, g.Conn, g.Op = wire.KindReadRequest, p.flags|wire.SegLast, c.remote, uint32(p.op)
	g.Fence, g.Key, g.Place, g.Size, g.Imm, g.Data = uint32(o.fence), o.key, o.op.Off, o.n, o.op.Imm, nil
	if w.Room < g.Len() {
		return 0, false, nil
	}
	c.e.touch(o, 0, 0, o.n, regmem.ReadDest) // it will be asked for
	w.Small(&w.Seg)
	w.NoteOp(uint32(c.ID), p.op, retx)
	return p.n, true, nil
}

// deliverRead begins the answer. The read is applied when the peer has all of it.
func deliverRead(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	if _, err := c.resolve(g.key, regmem.RemoteRead, g.place, g.size); err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err)), nil
	}
	o.state, o.flags, o.imm = ropAnswering, g.flags, g.imm
	o.key, o.off, o.n, o.sent, o.acked = g.key, g.place, g.size, 0, 0
	o.first = g.place
	if g.size == 0 {
		c.apply(now, o, g.op, 0)
		return true, nil
	}
	c.recv.answering.Push(g.op)
	c.wake()
	return true, nil
}

// replyRead sends data. The key is checked for each part: it may have been revoked.
func replyRead(w *build.Frame, c *Conn, o *recvOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	src, err := c.resolve(o.key, regmem.RemoteRead, o.off+p.off, p.n)
	if err != nil {
		c.refuseOp(o, p.op, statusOf(err))
		return p.n, true, nil
	}
	n := p.n
	if p.off == 0 {
		p.flags = wire.SegFirst
	}
	if n <= w.SmallLimit() {
		if p.off+n == o.n {
			p.flags |= wire.SegLast
		}
		g := &w.Seg
		g.Kind, g.Flags, g.Conn, g.Op, g.Place, g.Data = wire.KindReadData, p.flags, c.remote, uint32(p.op), p.off, src
		if !w.Fits(g.Len(), retx) {
			return 0, false, nil
		}
		if lack := c.e.touchGrant(o.off+p.off, n, o.n-p.off-n, regmem.ReadTarget); lack != nil {
			if g.Data = c.fetched(w, &o.fetched, o.off+p.off, n, true); g.Data == nil {
				return 0, false, lack
			}
		}
		w.Small(g)
		c.e.Count.Traffic.PayloadSent += n
	} else {
		n = w.BulkRoom(n, p.off, retx)
		if n == 0 {
			return 0, false, nil
		}
		src = src[:n]
		if lack := c.e.touchGrant(o.off+p.off, n, o.n-p.off-n, regmem.ReadTarget); lack != nil {
			if src = c.fetched(w, &o.fetched, o.off+p.off, n, false); src == nil {
				return 0, false, lack
			}
		}
		if p.off+n == o.n {
			p.flags |= wire.SegLast
		}
		b := &w.Bulk
		b.Kind, b.Flags, b.Conn, b.Op, b.Fence = wire.KindReadData, p.flags, c.remote, uint32(p.op), 0
		b.Key, b.Place, b.Imm, b.Sum = 0, p.off, 0, 0
		w.Announce(o.n - p.off - n)
		c.carry(w, src)
	}
	w.Note(build.RecAnswer, uint32(c.ID), p.op, p.off, n, retx)
	return n, true, nil
}

// acceptRead places data of one of our reads.
func acceptRead(c *Conn, now mono.Time, g *segment) (received bool, lack *miss) {
	e, op := c.e, g.op
	if !c.outstanding(op) || !c.sent(op) || c.sop(op).op.Kind != OpRead {
		e.Count.Loss.SegmentsDuplicated++
		return true, nil
	}
	o := c.sop(op)
	lo, n := g.place, uint64(len(g.data))
	if n == 0 || lo > o.n || n > o.n-lo {
		e.Count.Reject.RejectedMalformed++
		return false, nil
	}
	if n == o.n && len(o.got.Spans) == 0 && !o.backed && o.op.Pieces == nil && e.misses.look == nil {
		// all of it at once, as most answers are
		c.deliver(o.op.Local, g, true)
		c.complete(now, op, OK)
		return true, nil
	}
	if o.got.Covers(lo, lo+n) {
		e.Count.Loss.SegmentsDuplicated++
		c.readWhole(now, op)
		return true, nil
	}
	if !c.fits(&o.got, lo, lo+n) {
		e.Count.Reject.RejectedNoRoom++
		return false, nil
	}
	if !e.landed(g) {
		if lack := e.touch(o, lo, n, o.n-lo-n, regmem.ReadDest); lack != nil {
			return false, lack
		}
	}
	if o.op.Pieces == nil {
		c.deliver(o.op.Local[lo:lo+n], g, n == o.n)
	} else {
		e.deliverPieces(o.op.Pieces, lo, g)
	}
	c.add(&o.got, lo, lo+n)
	o.left = park.Unreceived{}
	c.readWhole(now, op)
	return true, nil
}

// readWhole completes a read that is in place.
func (c *Conn) readWhole(now mono.Time, op seqnum.Value) {
	if o := c.sop(op); o.got.Is(0, o.n) && o.puts == 0 {
		c.complete(now, op, OK)
	}
}

func completeRead(c *Conn, now mono.Time, op seqnum.Value, st abi.Status) (referred []byte) {
	o := c.sop(op)
	c.settle(op, true)
	c.empty(&o.got)
	if st == OK {
		c.e.Latency.Read.Observe(now.Sub(o.since))
		c.bytesIn += o.n
	}
	return nil
}
