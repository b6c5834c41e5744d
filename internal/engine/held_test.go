package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// What is charged is no less than what things take.
func TestPricesCover(t *testing.T) {
	rop, ropTakes, held, heldTakes := engine.Prices()
	if rop < ropTakes || held < heldTakes {
		t.Errorf("an operation of a ring is charged %d bytes and takes up to %d, a held segment %d and %d", rop,
			ropTakes, held, heldTakes)
	}
	if sop, sopTakes, arrives, arriveTakes := engine.RingPrices(); sop != sopTakes || arrives != arriveTakes {
		t.Errorf("an operation of a sending ring counts as %d bytes and takes %d, a buffer that fills %d and %d", sop,
			sopTakes, arrives, arriveTakes)
	}
}

// A peer that sends every operation of the window but the oldest, in pieces with holes between them, on many
// connections, makes the node keep what is charged and no more than the limit; what it takes besides is a few hundred
// bytes for each connection. The oldest operation of each is taken all the same (clause 7.5), and at rest everything is
// given back.
func TestRingsAreCharged(t *testing.T) {
	const held, conns, window, size, spare = 1 << 20, 16, 1024, 64, 2048
	r := newRig(t, rigOptions{held: held, window: window})
	var c [conns][2]engine.ConnID
	var keys [conns]uint64
	for i := range c {
		c[i] = r.connect(engine.DialOptions{})
		_, key := r.export(1, c[i][1], size, both)
		keys[i] = uint64(key)
	}
	like, pn := r.like(c[0][0], 0)
	e := r.n[1].e
	send := func(i int, g wire.Segment) {
		g.Kind, g.Conn, g.Key = wire.KindWrite, uint32(c[i][1]), keys[i]
		pn++
		r.n[1].handle(r.now, 0, forge(like, pn, &g))
	}
	memory := func() (n int) {
		for i := range c {
			n += e.RingMemory(c[i][1])
		}
		return n
	}
	for i := range c {
		for op := window - 1; op > 0; op-- { // the farthest first
			for at := 0; at < size; at += 8 {
				send(i, wire.Segment{Op: uint32(op), Place: uint64(at), Data: []byte{1}})
			}
		}
	}
	if n := e.HeldMemory(); n < held/2 || n > held {
		t.Errorf("%d bytes are charged, the limit is %d", n, held)
	}
	if n := memory(); n > held+conns*spare {
		t.Errorf("rings and spans take %d bytes, the limit is %d", n, held)
	}
	if e.Count.Reject.RejectedNoRoom == 0 {
		t.Error("no frame was left unreceived")
	}
	for i := range c {
		applied := e.Count.Op.OpsApplied
		send(i, wire.Segment{Flags: wire.SegFirst | wire.SegLast, Data: []byte{1}})
		if e.Count.Op.OpsApplied == applied {
			t.Errorf("connection %d: the oldest operation found no room", i)
		}
	}
	for i := range c {
		for op := uint32(1); op < window; op++ {
			send(i, wire.Segment{Op: op, Flags: wire.SegFirst | wire.SegLast, Data: make([]byte, size)})
		}
	}
	if n := e.Count.Op.OpsApplied; n != conns*window {
		t.Errorf("%d operations applied, want %d", n, conns*window)
	}
	for i := range r.n {
		r.poll(i)
	}
	r.pass = func(int, *flight) bool { return false }
	r.rest(3 * time.Second)
	if n := memory(); e.HeldMemory() != 0 || n > conns*spare {
		t.Errorf("at rest %d bytes are charged and %d kept", e.HeldMemory(), n)
	}
}

// Notifications that nobody takes are charged, and room for them is given back when they are taken.
func TestNotificationsAreCharged(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	for k := range 1000 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(k), Key: key,
			Local: make([]byte, 8)})
	}
	r.must("all writes", time.Second, r.all(0, 1000))
	if n, takes := r.n[1].e.HeldMemory(), r.n[1].e.RingMemory(c[1]); n < takes-2048 || n == 0 {
		t.Errorf("%d bytes are charged, %d are taken", n, takes)
	}
	r.rest(3 * time.Second)
	if r.n[1].e.HeldMemory() == 0 {
		t.Error("nothing is charged though notifications wait")
	}
	r.n[1].takeNotes(c[1])
	r.rest(3 * time.Second)
	if n := r.n[1].e.HeldMemory(); n != 0 {
		t.Errorf("%d bytes are charged at rest", n)
	}
	if n := r.n[0].e.SendRing(c[0]); n != 0 {
		t.Errorf("the sending end has memory for %d operations at rest", n)
	}
}

// What held sends that waited for buffers, and buffers that were being filled, is given back at rest.
func TestMessageMemoryIsGivenBack(t *testing.T) {
	const messages = 300
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	r.settle()
	for k := range uint64(messages) {
		r.submit(0, c[0], send(k, pattern(int(k), 40)))
	}
	var late []flight
	r.pass = func(from int, f *flight) bool { // the first frame of each round comes last
		if from == 0 && len(late) == 0 {
			late = append(late, flight{link: f.link, b: bytes.Clone(f.b)})
			return false
		}
		return true
	}
	for k := range uint64(messages) {
		r.post(1, c[1], 0, k, 64)
	}
	r.rest(time.Millisecond)
	for _, f := range late {
		r.give(1, f)
	}
	r.pass = nil
	r.must("messages", time.Second, r.all(0, messages))
	r.must("receives", time.Second, r.got(1, messages))
	if a, b := r.n[0].e.MessageMemory(c[0]), r.n[1].e.MessageMemory(c[1]); a == 0 || b == 0 {
		t.Errorf("sends that waited took %d bytes, buffers that were being filled %d: the test proves nothing", a, b)
	}
	r.rest(3 * time.Second)
	if a, b := r.n[0].e.MessageMemory(c[0]), r.n[1].e.MessageMemory(c[1]); a+b != 0 {
		t.Errorf("at rest messages take %d bytes where they were sent and %d where they came", a, b)
	}
	r.submit(0, c[0], send(messages, []byte("more")))
	r.post(1, c[1], 0, messages, 64)
	r.must("one more", time.Second, r.got(1, messages+1))
}

// One user's peers take at most half of what may be kept for a session in which others have connections too.
func TestOneUserLeavesOthersRoom(t *testing.T) {
	const held, size = 64 << 10, 20_000
	r := newRig(t, rigOptions{held: held})
	a, b := r.connect(engine.DialOptions{}), r.connect(engine.DialOptions{})
	r.n[1].e.SetOwner(a[1], user(1))
	r.n[1].e.SetOwner(b[1], user(2))
	_, keyA := r.export(1, a[1], size, both)
	_, keyB := r.export(1, b[1], size, both)
	like, pn := r.like(a[0], 0)
	e := r.n[1].e
	for op := range uint32(8) {
		pn = r.scatter(like, pn, wire.Segment{Kind: wire.KindWrite, Conn: uint32(a[1]), Key: uint64(keyA), Op: op},
			size/8, false)
	}
	first := e.HeldMemory()
	if first > held/2 || first < held/8 || e.Count.Reject.RejectedNoRoom == 0 {
		t.Errorf("one user is charged %d bytes of %d", first, held)
	}
	for op := range uint32(8) {
		pn = r.scatter(like, pn, wire.Segment{Kind: wire.KindWrite, Conn: uint32(b[1]), Key: uint64(keyB), Op: op},
			size/8, false)
	}
	if n := e.HeldMemory() - first; n < first*3/4 {
		t.Errorf("the other user is charged %d bytes, the first %d", n, first)
	}
}
