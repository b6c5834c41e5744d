package op

import (
	"encoding/binary"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// Atomics: a value of remote memory is read, changed and stored in one step, and what was there comes back (clause 13).
// Like a read an atomic is answered, and its answer is kept in its slot, with the others of the connection's window,
// until the peer has acknowledged it: an atomic that comes again meanwhile is in state ropAnswering or behind
// recv.base, and is not performed again.

// OpAtomic is the kind of atomics; see SetAtomic.
const OpAtomic = abi.OpAtomic

func init() {
	addKind(OpAtomic, opKind{request: wire.KindAtomic, answer: wire.KindAtomicResult, sized: true, emit: emitAtomic,
		deliver: deliverAtomic, reply: replyAtomic, accept: acceptAtomic, complete: completeAtomic})
}

// Atomic is what an operation of kind OpAtomic does to the Size bytes, 4 or 8, at Op.Off, a multiple of Size. Values
// are numbers in the byte order of the host that has them; of 4 bytes they are the lower half.
type Atomic struct {
	Func    wire.AtomicFunc
	Size    int
	Operand uint64
	Compare uint64 // of AtomicCAS
}

// Op.Data of an atomic: function, size, six zeros, operand, comparand (A6.6).

// SetAtomic makes an operation one of kind OpAtomic.
func (o *Op) SetAtomic(a Atomic) {
	le := binary.LittleEndian
	o.Kind, o.Inline, o.Data = OpAtomic, MaxInline, [MaxInline]byte{byte(a.Func), byte(a.Size)}
	le.PutUint64(o.Data[8:], a.Operand)
	le.PutUint64(o.Data[16:], a.Compare)
}

// combine returns what f makes of the value was, and whether it changes. less compares was with x as signed numbers.
func combine(f wire.AtomicFunc, was, x, y uint64, less bool) (next uint64, changes bool) {
	next = x
	switch f {
	case wire.AtomicCAS:
		if was != y {
			return was, false
		}
		return x, true
	case wire.AtomicAnd:
		next = was & x
	case wire.AtomicOr:
		next = was | x
	case wire.AtomicXor:
		next = was ^ x
	case wire.AtomicMin:
		next = min(was, x)
	case wire.AtomicMax:
		next = max(was, x)
	case wire.AtomicMinSigned:
		if less {
			next = was
		}
	case wire.AtomicMaxSigned:
		if !less {
			next = was
		}
	}
	return next, next != was
}

func emitAtomic(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	le, be := binary.LittleEndian, binary.BigEndian
	f, n := wire.AtomicFunc(o.op.Data[0]), wire.AtomicWord
	be.PutUint64(w.Words[:], le.Uint64(o.op.Data[8:]))
	if f == wire.AtomicCAS {
		be.PutUint64(w.Words[wire.AtomicWord:], le.Uint64(o.op.Data[16:]))
		n *= 2
	}
	w.Seg = wire.Segment{Kind: wire.KindAtomic, Flags: p.flags | wire.SegLast, Conn: c.remote, Op: uint32(p.op),
		Fence: uint32(o.fence), Key: o.key, Place: o.op.Off, Size: wire.AtomicSize(f, int(o.op.Data[1])), Imm: o.op.Imm,
		Data: w.Words[:n]}
	if !w.Fits(w.Seg.Len(), retx) {
		return 0, false, nil
	}
	w.Small(&w.Seg)
	w.NoteOp(uint32(c.ID), p.op, retx)
	return p.n, true, nil
}

// deliverAtomic performs an atomic, once: from then on the operation is answered, then applied.
func deliverAtomic(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	f, size := wire.UnpackAtomic(g.size)
	at, err := c.resolve(g.key, regmem.RemoteAtomic, g.place, uint64(size))
	if err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err)), nil
	}
	if lack := c.e.touchGrant(g.place, uint64(size), 0, regmem.WriteTarget); lack != nil {
		return false, lack
	}
	if !aligned(at) {
		return c.refuseAccess(now, o, g.op, abi.StatusBounds), nil
	}
	var y uint64
	if f == wire.AtomicCAS {
		y = binary.BigEndian.Uint64(g.data[wire.AtomicWord:])
	}
	was, ok := performAtomic(at, f, binary.BigEndian.Uint64(g.data), y)
	if !ok {
		return c.refuseAccess(now, o, g.op, abi.StatusLimit), nil
	}
	o.state, o.flags, o.imm, o.key, o.first, o.last = ropAnswering, g.flags, g.imm, g.key, g.place, uint64(size)
	o.off, o.n, o.sent, o.acked = was, wire.AtomicWord, 0, 0 // the answer is kept where a read has its offset
	c.e.Count.Op.AtomicsPerformed++
	c.recv.answering.Push(g.op)
	c.wake()
	return true, nil
}

func replyAtomic(w *build.Frame, c *Conn, o *recvOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	binary.BigEndian.PutUint64(w.Words[:], o.off)
	w.Seg = wire.Segment{Kind: wire.KindAtomicResult, Conn: c.remote, Op: uint32(p.op), Data: w.Words[:wire.AtomicWord]}
	if !w.Fits(w.Seg.Len(), retx) {
		return 0, false, nil
	}
	w.Small(&w.Seg)
	w.Note(build.RecAnswer, uint32(c.ID), p.op, 0, wire.AtomicWord, retx)
	return wire.AtomicWord, true, nil
}

func acceptAtomic(c *Conn, now mono.Time, g *segment) (received bool, lack *miss) {
	if !c.outstanding(g.op) || !c.sent(g.op) || c.sop(g.op).op.Kind != OpAtomic {
		c.e.Count.Loss.SegmentsDuplicated++
		return true, nil
	}
	c.sop(g.op).result = binary.BigEndian.Uint64(g.data)
	c.complete(now, g.op, OK)
	return true, nil
}

func completeAtomic(c *Conn, now mono.Time, op seqnum.Value, st abi.Status) (referred []byte) {
	if st == OK {
		o := c.sop(op)
		c.e.Latency.Atomic.Observe(now.Sub(o.since))
		c.bytesIn += uint64(o.op.Data[1])
		c.bytesOut += uint64(o.op.Data[1])
	}
	return nil
}
