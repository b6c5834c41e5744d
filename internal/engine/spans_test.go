package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// scatter gives node 1 the first byte of every two of n, each in a frame of its own made of g, and the whole n at last
// if whole says so. It returns the packet number used last.
func (r *rig) scatter(like []byte, pn uint64, g wire.Segment, n int, whole bool) uint64 {
	for at := 0; at < n; at += 2 {
		g.Place, g.Data = uint64(at), []byte{1}
		pn++
		r.n[1].handle(r.now, 0, forge(like, pn, &g))
	}
	if whole {
		g.Place, g.Data, g.Flags = 0, make([]byte, n), wire.SegFirst|wire.SegLast
		pn++
		r.give(1, flight{b: forge(like, pn, &g)})
	}
	return pn
}

// What a peer leaves in place byte by byte counts as held memory beyond a few bytes per operation, in writes and in
// answers to reads. What joins bytes in place has room always, what ended gives everything back but a few.
func TestHolesAreCharged(t *testing.T) {
	const held, ops, size = 32 << 10, 8, 1000
	for _, of := range []struct {
		name string
		kind wire.Kind
	}{{"writes", wire.KindWrite}, {"reads", wire.KindReadData}} {
		t.Run(of.name, func(t *testing.T) {
			r := newRig(t, rigOptions{held: held})
			c := r.connect(engine.DialOptions{})
			_, key := r.export(1, c[1], size, both)
			like, pn := r.like(c[0], 0)
			for op := range uint64(ops) {
				if of.kind == wire.KindReadData {
					r.submit(1, c[1], engine.Op{Kind: engine.OpRead, Token: op, Key: 1, Local: make([]byte, size)})
				}
			}
			r.take(1) // asks for the reads
			g := wire.Segment{Kind: of.kind, Conn: uint32(c[1])}
			if of.kind == wire.KindWrite {
				g.Key = uint64(key)
			}
			e := r.n[1].e
			for g.Op = range uint32(ops) {
				pn = r.scatter(like, pn, g, size, false)
			}
			if n := e.HeldMemory(); n < held/2 || n > held {
				t.Errorf("%d bytes are charged, the limit is %d", n, held)
			}
			if n := e.Count.Reject.RejectedNoRoom; n == 0 || n > ops*(size/2-engine.FreeSpans) {
				t.Errorf("%d frames found no room", n)
			}
			admitted := uint32(ops)
			if of.kind == wire.KindWrite {
				admitted = engine.FirstRing // the ring has no room to grow
			}
			for g.Op = range admitted {
				before := e.Count.Reject.RejectedNoRoom
				g.Place, g.Data = 1, []byte{1}
				pn++
				e.Handle(r.now, 0, engine.Whole(forge(like, pn, &g)))
				if e.Count.Reject.RejectedNoRoom != before {
					t.Errorf("a byte that fills a hole of operation %d found no room", g.Op)
				}
			}
			for g.Op = range uint32(ops) {
				pn = r.scatter(like, pn, g, size, true)
			}
			if n := e.Count.Op.OpsApplied + e.Count.Op.OpsCompleted; n != ops {
				t.Errorf("%d of %d operations ended", n, ops)
			}
			r.rest(3 * time.Second) // rings grew
			if n, most := e.Spans(c[1]), ops*engine.FreeSpans; e.HeldMemory() != 0 || n > most {
				t.Errorf("at the end %d bytes are charged and memory kept for %d spans, want 0 and at most %d",
					e.HeldMemory(), n, most)
			}
		})
	}
}

// A connection that ends gives back what its holes were charged.
func TestHolesEndWithTheirConnection(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 1000, both)
	like, pn := r.like(c[0], 0)
	r.submit(1, c[1], engine.Op{Kind: engine.OpRead, Key: 1, Local: make([]byte, 1000)})
	r.take(1)
	pn = r.scatter(like, pn, wire.Segment{Kind: wire.KindReadData, Conn: uint32(c[1])}, 1000, false)
	r.scatter(like, pn, wire.Segment{Kind: wire.KindWrite, Conn: uint32(c[1]), Key: uint64(key)}, 1000, false)
	if r.n[1].e.HeldMemory() == 0 {
		t.Fatal("nothing is charged")
	}
	r.n[1].e.Abort(r.now, c[1], engine.StatusAborted)
	if n := r.n[1].e.HeldMemory(); n != 0 {
		t.Errorf("%d bytes are charged", n)
	}
}

// Held segments were acknowledged: they find room for their holes when nothing forbids them any more, though all memory
// is held.
func TestHeldHolesFindRoom(t *testing.T) {
	const holes = 200
	r := newRig(t, rigOptions{held: holes * (engine.HeldOverhead + 1)})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 2*holes, both)
	like, pn := r.like(c[0], 1)
	g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegBackward, Conn: uint32(c[1]), Op: 1, Key: uint64(key)}
	pn = r.scatter(like, pn, g, 2*holes, false)
	if n := r.n[1].e.HeldMemory(); n != holes*(engine.HeldOverhead+1) {
		t.Fatalf("%d bytes are held", n)
	}
	pn++
	first := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast, Conn: uint32(c[1]),
		Key: uint64(key)}
	r.give(1, flight{b: forge(like, pn, &first)})
	r.n[1].e.Placed()
	for at := range holes {
		if mem[2*at] != 1 {
			t.Fatalf("byte %d is not in place", 2*at)
		}
		g.Place, g.Data = uint64(2*at+1), []byte{2}
		if g.Flags = wire.SegBackward; at == holes-1 {
			g.Flags |= wire.SegLast | wire.SegFirst
		}
		pn++
		r.give(1, flight{b: forge(like, pn, &g)})
	}
	g.Flags, g.Place, g.Data = wire.SegBackward|wire.SegFirst, 0, []byte{1}
	pn++
	r.give(1, flight{b: forge(like, pn, &g)})
	if n := r.n[1].e.Count.Op.OpsApplied; n != 2 || r.n[1].e.HeldMemory() != 0 {
		t.Errorf("%d operations applied, %d bytes charged", n, r.n[1].e.HeldMemory())
	}
}

// Holes in the numbers of a peer's adverts, and of its withdrawals, count as held memory beyond a few per connection;
// what closes them has room always, and neither they nor the connection's end leave anything charged or memory for more
// than a few.
func TestAdvertHolesAreCharged(t *testing.T) {
	const held, holes, kept = 64 << 10, 1000, 2 * engine.FreeSpans
	r := newRig(t, rigOptions{held: held})
	var conns [4]engine.ConnID
	var pn uint64
	var like []byte
	for i := range conns {
		c := r.connect(engine.DialOptions{})
		conns[i] = c[1]
		like, pn = r.like(c[0], 0)
	}
	e := r.n[1].e
	withdraw := func(c engine.ConnID, n uint32) {
		pn++
		r.give(1, flight{b: forge(like, pn, &wire.Segment{Kind: wire.KindWithdraw, Conn: uint32(c), Op: n, Key: 1})})
	}
	for _, c := range conns {
		for n := range uint32(holes) {
			withdraw(c, 2*n+1)
		}
	}
	spans := 0
	for _, c := range conns {
		spans += e.Spans(c)
	}
	if n := e.HeldMemory(); n < held/2 || n > held || spans > 2*held/32+len(conns)*kept {
		t.Errorf("%d bytes are charged, the limit is %d; there is memory for %d spans", n, held, spans)
	}
	if e.Count.Reject.RejectedNoRoom == 0 {
		t.Error("all found room")
	}
	e.Abort(r.now, conns[0], engine.StatusAborted)
	before := e.Count.Reject.RejectedNoRoom
	for _, c := range conns[1:] {
		for n := range uint32(2 * holes) {
			withdraw(c, n)
		}
		if n := e.Spans(c); n > kept {
			t.Errorf("without holes there is memory for %d spans, want at most %d", n, kept)
		}
	}
	if n := e.Count.Reject.RejectedNoRoom - before; n != 0 || e.HeldMemory() != 0 {
		t.Errorf("%d numbers that close holes found no room; without holes %d bytes are charged", n, e.HeldMemory())
	}
}

// An operation whose holes were closed has no memory for them any more, though it has not ended.
func TestClosedHolesGiveBack(t *testing.T) {
	const size = 4000
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], size, both)
	like, pn := r.like(c[0], 0)
	g := wire.Segment{Kind: wire.KindWrite, Conn: uint32(c[1]), Key: uint64(key)}
	pn = r.scatter(like, pn, g, size, false)
	if n := r.n[1].e.Spans(c[1]); n < size/2 {
		t.Fatalf("memory for %d spans", n)
	}
	g.Data = make([]byte, size)
	r.n[1].handle(r.now, 0, forge(like, pn+1, &g))
	if n := r.n[1].e.Spans(c[1]); n > engine.FreeSpans || r.n[1].e.HeldMemory() != 0 {
		t.Errorf("memory for %d spans, %d bytes are charged", n, r.n[1].e.HeldMemory())
	}
}
