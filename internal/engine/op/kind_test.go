package op

import (
	"encoding/binary"
	"testing"

	"multiedge/internal/abi"
	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// A kind of another file: it asks for the sum of the bytes in a range of the peer's memory.
const (
	opSum   OpKind    = maxOpKinds - 1
	segSum  wire.Kind = wire.MaxKinds - 2
	segSums wire.Kind = wire.MaxKinds - 1
)

var sums = opKind{request: segSum, answer: segSums, sized: true, emit: emitSum, deliver: deliverSum, reply: replySum,
	accept: acceptSum, complete: completeSum}

// sumLayouts are the segments of the kind: request and answer.
var sumLayouts = [2]wire.Layout{
	{Fixed: 36, NoData: true, Reserved: 0xc0,
		Put: func(s *wire.Segment, b []byte) []byte {
			be := binary.BigEndian
			b = be.AppendUint32(be.AppendUint32(append(b, byte(s.Kind), s.Flags, 0, 0), s.Conn), s.Op)
			return be.AppendUint64(be.AppendUint64(be.AppendUint64(b, s.Key), s.Place), s.Size)
		},
		Next: func(s *wire.Segment, tail []byte, n int) (int, error) {
			be := binary.BigEndian
			s.Conn, s.Op, s.Key = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
			s.Place, s.Size = be.Uint64(tail[20:]), be.Uint64(tail[28:])
			return n, nil
		}},
	{Fixed: 20, NoData: true, Reserved: 0xff,
		Put: func(s *wire.Segment, b []byte) []byte {
			be := binary.BigEndian
			b = be.AppendUint32(be.AppendUint32(append(b, byte(s.Kind), 0, 0, 0), s.Conn), s.Op)
			return be.AppendUint64(b, s.Size)
		},
		Next: func(s *wire.Segment, tail []byte, n int) (int, error) {
			be := binary.BigEndian
			s.Conn, s.Op, s.Size = be.Uint32(tail[4:]), be.Uint32(tail[8:]), be.Uint64(tail[12:])
			return n, nil
		}},
}

func emitSum(w *build.Frame, c *Conn, o *sendOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	w.Seg = wire.Segment{Kind: segSum, Flags: p.flags&^wire.SegFenced | wire.SegLast, Conn: c.remote, Op: uint32(p.op),
		Key: o.key, Place: o.op.Off, Size: uint64(o.op.Imm)}
	if !w.Fits(w.Seg.Len(), retx) {
		return 0, false, nil
	}
	w.Small(&w.Seg)
	w.NoteOp(uint32(c.ID), p.op, retx)
	return p.n, true, nil
}

func deliverSum(c *Conn, now mono.Time, o *recvOp, g *segment) (received bool, lack *miss) {
	at, err := c.resolve(g.key, regmem.RemoteRead, g.place, g.size)
	if err != nil {
		return c.refuseAccess(now, o, g.op, statusOf(err)), nil
	}
	sum := uint64(0)
	for _, b := range at {
		sum += uint64(b)
	}
	o.state, o.flags, o.key, o.last = ropAnswering, g.flags, g.key, g.size
	o.off, o.n, o.sent, o.acked = sum, 8, 0, 0
	c.recv.answering.Push(g.op)
	c.wake()
	return true, nil
}

func replySum(w *build.Frame, c *Conn, o *recvOp, p part, retx bool) (sent uint64, ok bool, lack *miss) {
	w.Seg = wire.Segment{Kind: segSums, Conn: c.remote, Op: uint32(p.op), Size: o.off}
	if !w.Fits(w.Seg.Len(), retx) {
		return 0, false, nil
	}
	w.Small(&w.Seg)
	w.Note(build.RecAnswer, uint32(c.ID), p.op, 0, 8, retx)
	return 8, true, nil
}

func acceptSum(c *Conn, now mono.Time, g *segment) (received bool, lack *miss) {
	if c.outstanding(g.op) && c.sent(g.op) {
		c.sop(g.op).result = g.size
		c.complete(now, g.op, OK)
	}
	return true, nil
}

func completeSum(*Conn, mono.Time, seqnum.Value, abi.Status) (referred []byte) { return nil }

// A kind of operation takes one file here, with a row of kinds, and its segments: it gets retransmission,
// refusals and completions from what is common to all kinds, and connections need nothing of the transport but frames
// that are filled and given.
func TestAnotherKind(t *testing.T) {
	kept, carriersKept, layouts := kinds, carriers, wire.Layouts
	defer func() { kinds, carriers, wire.Layouts = kept, carriersKept, layouts }()
	wire.Layouts[segSum], wire.Layouts[segSums] = sumLayouts[0], sumLayouts[1]
	addKind(opSum, sums)

	p := newPair(t)
	c := p.connect()
	mem, key := p.export(1, c[1], 100, regmem.RemoteRead)
	for i := range mem {
		mem[i] = byte(i)
	}
	a := p.end[0]
	for token, o := range []Op{
		{Kind: opSum, Key: key, Imm: 100},
		{Kind: opSum, Key: key, Off: 90, Imm: 10, Flags: BackwardFence},
		{Kind: opSum, Key: key, Off: 90, Imm: 11}, // beyond the end
	} {
		o.Token = uint64(token)
		if !a.e.Submit(p.now, c[0], &o) {
			t.Fatalf("operation %d is not taken", token)
		}
	}
	p.carry(0, true)
	p.carry(0, false)
	p.carry(1, true)
	for range 4 {
		p.carry(1, false)
		p.carry(0, false)
	}
	want := []Event{{Value: 4950}, {Value: 945}, {Status: abi.StatusBounds}}
	got := map[uint64]Event{}
	for _, ev := range a.events {
		if _, twice := got[ev.Token]; ev.Kind != EvComplete || twice {
			t.Errorf("%+v", ev)
		}
		got[ev.Token] = ev
	}
	for token, w := range want {
		if ev := got[uint64(token)]; ev.Kind != EvComplete || ev.Status != w.Status || ev.Value != w.Value {
			t.Errorf("operation %d: complete %v with %v and %d, want %v and %d", token, ev.Kind == EvComplete,
				ev.Status,
				ev.Value, w.Status, w.Value)
		}
	}
	if n := a.records.Used() + p.end[1].records.Used(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}
