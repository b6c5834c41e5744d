package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
	"multiedge/regmem"
)

// What a peer that does not keep to the protocol may not do: stop the node, or make it hold memory without bound.

// forge makes a data frame of one segment from node 0 to node 1 like the given one.
func forge(like []byte, pn uint64, g *wire.Segment) []byte {
	var f wire.Frame
	if err := f.Decode(like[wire.EthLen:]); err != nil {
		panic(err)
	}
	h := wire.Header{Type: wire.TypeData, Path: f.Path, Session: f.Session, PN: pn, Flags: wire.FlagPush}
	tail := g.AppendTo(nil)
	head := bytes.Clone(like[:wire.TailStart])
	wire.Finish(head[wire.EthLen:], &h, tail)
	return append(head, tail...)
}

// A peer that ignores its credit is not served beyond it (clauses 7.2 and 7.3): the notifications would pile up.
func TestCreditIsEnforced(t *testing.T) {
	const window = 16
	r := newRig(t, rigOptions{window: window})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: []byte("abcdefgh")})
	like := r.take(0)[0].b
	var f wire.Frame
	if err := f.Decode(like[wire.EthLen:]); err != nil {
		t.Fatal(err)
	}
	g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegFirst | wire.SegLast | wire.SegNotify, Conn: uint32(c[1]),
		Key: uint64(key), Data: []byte("abcdefgh")}
	for k := range 20 * window {
		g.Op = uint32(k)
		r.give(1, flight{link: 0, b: forge(like, f.PN+1+uint64(k), &g)})
		r.take(1) // acknowledged as far as it goes
		r.now += 30_000
	}
	r.n[1].takeNotes(c[1])
	if n := len(r.n[1].notes); n != window {
		t.Errorf("%d notifications waited for an owner who takes none, want a window of %d", n, window)
	}
}

// An operation with more holes than are remembered: what would make another is refused, what fills one is not, and in
// the end it is whole.
func TestManyHoles(t *testing.T) {
	const size = 10_001
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: []byte("abcdefgh")})
	like := r.take(0)[0].b
	var f wire.Frame
	if err := f.Decode(like[wire.EthLen:]); err != nil {
		t.Fatal(err)
	}
	pn := f.PN
	want := pattern(1, size)
	for _, start := range []int{0, 1, 0} { // every second byte, those between, and the refused ones again
		for at := start; at < size; at += 2 {
			g := wire.Segment{Kind: wire.KindWrite, Flags: wire.SegNotify, Conn: uint32(c[1]), Key: uint64(key),
				Place: uint64(at), Data: want[at : at+1]}
			switch at {
			case 0:
				g.Flags |= wire.SegFirst
			case size - 1:
				g.Flags |= wire.SegLast
			}
			pn++
			r.give(1, flight{link: 0, b: forge(like, pn, &g)})
		}
	}
	r.n[1].takeNotes(c[1])
	if len(r.n[1].notes) != 1 || r.n[1].notes[0].Len != size || !bytes.Equal(mem, want) {
		t.Errorf("the write is not whole: %+v", r.n[1].notes)
	}
	if r.n[1].e.Count.Reject.RejectedNoRoom == 0 {
		t.Error("nothing was refused: the test needs more holes")
	}
}

// A peer that never acknowledges but asks and asks: the span of packet numbers on the path runs out, and nothing else
// happens.
func TestPeerThatNeverAcknowledges(t *testing.T) {
	for _, kind := range []wire.Kind{wire.KindPing, wire.KindProbe} {
		r := newRig(t, rigOptions{})
		c := r.connect(engine.DialOptions{})
		_, key := r.export(0, c[0], 8, both)
		r.settle()
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: 1, Local: []byte("abcdefgh")})
		like := r.take(0)[0].b
		var f wire.Frame
		if err := f.Decode(like[wire.EthLen:]); err != nil {
			t.Fatal(err)
		}
		r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Key: key, Local: []byte("abcdefgh")})
		frames := 0 // one that is never acknowledged, and acknowledgements and echoes behind it
		for k := range 20_000 {
			g := wire.Segment{Kind: kind}
			if kind == wire.KindProbe {
				g.Place = uint64(k + 1)
			}
			r.give(1, flight{link: 0, b: forge(like, f.PN+1+uint64(k), &g)})
			frames += len(r.take(1))
			r.now += 21_000
			frames += len(r.take(1))
		}
		if frames < 5000 {
			t.Errorf("segments of kind %d: only %d frames were sent in answer", kind, frames)
		}
	}
}

// A link that takes no frames gets none, set-up frames neither: the batch they lie in is used again.
func TestNothingForBlockedLinks(t *testing.T) { inBothForms(t, testNothingForBlockedLinks) }

func testNothingForBlockedLinks(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	r.connect(engine.DialOptions{})
	r.settle()
	r.n[0].e.SetLinkBlocked(1, true)
	seen := 0
	for end := r.now.Add(3 * time.Second); r.now < end; {
		for _, f := range r.take(0) {
			if seen++; f.link == 1 {
				t.Fatalf("a frame of type %d for the blocked link", typeOf(f.b))
			}
		}
		r.now = max(r.now+1, min(end, r.n[0].e.NextTimeout()))
	}
	if seen == 0 {
		t.Error("no frame was sent at all")
	}
}

// Exporting and revoking again and again leaves nothing behind.
func TestAdvertsAreForgotten(t *testing.T) { inBothForms(t, testAdvertsAreForgotten) }

func testAdvertsAreForgotten(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	for k := range 300 {
		r.n[0].e.Advertise(r.now, c[0], engine.Advert{Name: fmt.Sprint(k), Key: regmem.Key(k + 1), Size: 1, Perm: both})
		if k >= 2 {
			r.n[0].e.Withdraw(r.now, c[0], regmem.Key(k-1), uint32(k-2))
		}
		r.round()
		r.round()
	}
	r.rest(100 * time.Millisecond)
	if n := r.n[0].e.Adverts(c[0]); n != 0 {
		t.Errorf("%d adverts are remembered, and the peer knows all", n)
	}
	known := map[regmem.Key]bool{}
	for _, ev := range r.n[1].events {
		switch ev.Kind {
		case engine.EvAdvert:
			known[ev.Advert.Key] = true
		case engine.EvWithdrawn:
			delete(known, ev.Advert.Key)
		}
	}
	if len(known) != 2 || !known[299] || !known[300] {
		t.Errorf("the peer believes in %v", known)
	}
}
