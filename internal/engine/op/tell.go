package op

import (
	"encoding/binary"

	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Tells: messages without bytes that say how long a write before them was (clause 14.9). They have a buffer of the
// peer's as sends do, and leave it as it is: libibverbs' writes with an immediate are a write and a Tell.

func init() {
	addKind(OpTell, opKind{request: wire.KindTell, emit: emitTell, deliver: deliverTell, complete: completeSend})
}

// SetTell makes an operation one of kind OpTell, about a write of n bytes, 2^31 at most.
func (o *Op) SetTell(n uint32) {
	o.Kind = OpTell
	binary.LittleEndian.PutUint32(o.Data[:], n)
}

func emitTell(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	w.Seg = wire.Segment{Kind: wire.KindTell, Flags: p.flags | wire.SegLast, Conn: c.remote, Op: uint32(p.op),
		Fence: uint32(o.fence), Key: o.key, Size: uint64(binary.LittleEndian.Uint32(o.op.Data[:])), Imm: o.op.Imm}
	if !w.Fits(w.Seg.Len(), retx) {
		return 0, false, nil
	}
	w.Small(&w.Seg)
	w.NoteOp(uint32(c.ID), p.op, retx)
	return p.n, true, nil
}

// deliverTell gives the owner the buffer and the length. The owner believes the length, so it must be that of the
// latest write, in a domain: elsewhere a peer would say to have written what it has no permission for.
func deliverTell(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	a, received := c.arrival(now, o, g)
	if a == nil {
		return received, nil
	}
	if c.recv.domain == 0 || g.size > mostMessage || g.size != 0 && g.size != c.recv.wrote {
		c.tooLong(now, o, g.op, a)
		return true, nil
	}
	c.recv.wrote = 0
	o.state, o.flags, o.last = ropPartial, g.flags&^wire.SegNotify, 0
	a.Arrived = Arrived{Len: uint32(g.size), Imm: g.imm, HasImm: true, Tells: true}
	c.arrived(now, o, g.op, a)
	return true, nil
}
