package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// Writes gather pieces and reads scatter into them, of any lengths and alignments, whatever is lost, on links that
// shuffle and such that do not; nothing beside a piece is written.
func TestPieces(t *testing.T) {
	for _, o := range []rigOptions{{}, {sealed: true, links: 3}, {mtu: 9000, links: 2}, {mtu: 9000, shuffle: 78},
		{mtu: 9000, copySend: true, checksum: engine.ChecksumHeader}} {
		t.Run(fmt.Sprintf("mtu %d, links %d, sealed %v, shuffle %d", o.mtu, o.links, o.sealed, o.shuffle),
			func(t *testing.T) { testPieces(t, o) })
	}
}

func testPieces(t *testing.T, o rigOptions) {
	const size = 400_000
	r := newRig(t, o)
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	r.settle()
	rng := rand.New(rand.NewPCG(7, 7))
	r.pass = func(int, *flight) bool { return rng.IntN(10) > 0 }
	near, back := pattern(1, 2*size), bytes.Repeat([]byte{0xee}, 2*size)
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(near)}
	var want []byte // of mem
	put := func(p, q *engine.Pieces, at, n int) {
		p.Add(near[at:at+n], region, 0)
		q.Add(back[at:at+n], nil, 0)
		want = append(want, near[at:at+n]...)
	}
	for round, longest := range []int{0, 1, 64, 700, 3000, 12_000, 24_000} {
		var p, q engine.Pieces
		want = want[:0]
		at := 0
		for range 1 + rng.IntN(engine.MaxPieces) {
			n := longest
			if longest > 0 && rng.IntN(3) > 0 {
				n = rng.IntN(longest + 1)
			}
			at += 1 + rng.IntN(20)
			put(&p, &q, at, n)
			at += n
		}
		off := rng.IntN(100)
		clear(mem)
		clear(back)
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(2 * round), Key: key, Off: uint64(off),
			Pieces: &p})
		if ahead := len(want) > 0 && len(want) <= 1024; ahead != (region.InFlight == 0) {
			t.Errorf("%d bytes: %d operations in flight count for the region", len(want), region.InFlight)
		}
		// beside it, so that frames have other small parts too
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1000 + uint64(round), Key: key, Off: size - 100,
			Local: near[:100]})
		r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Flags: engine.BackwardFence, Token: uint64(2*round + 1),
			Key: key, Off: uint64(off), Pieces: &q})
		r.must("pieces", 10*time.Second, r.all(0, 3*round+3))
		r.wantStatus(0, uint64(2*round), engine.OK)
		r.wantStatus(0, uint64(2*round+1), engine.OK)
		if !bytes.Equal(mem[off:off+len(want)], want) {
			t.Errorf("pieces of up to %d bytes were not gathered right", longest)
		}
		if n := bytes.Count(mem[:off], []byte{0}); n != off || mem[off+len(want)] != 0 {
			t.Errorf("pieces of up to %d bytes: bytes beside the range were written", longest)
		}
		got := want[:0:0]
		q.All(func(b []byte) { got = append(got, b...); clear(b) })
		if !bytes.Equal(got, want) {
			t.Errorf("pieces of up to %d bytes were not scattered right", longest)
		}
		if n := bytes.Count(back, []byte{0}); n != len(back) {
			t.Errorf("pieces of up to %d bytes: bytes beside them were written", longest)
		}
		if region.InFlight != 0 {
			t.Errorf("%d operations in flight count for the region still", region.InFlight)
		}
	}
}

// A write in pieces completes once it is applied, whether it is gathered when it enters or not, also if it asks to
// complete locally: that is for one range (local.go).
func TestPiecesAreNotDoneLocally(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 4000, both)
	data, off := pattern(1, 4000), 0
	sizes := []int{engine.MaxInline, 500, 2000}
	for token, n := range sizes {
		var p engine.Pieces
		p.Add(data[off:off+n/2], nil, 0)
		p.Add(data[off+n/2:off+n], nil, 0)
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.LocalDone, Token: uint64(token), Key: key,
			Off: uint64(off), Pieces: &p})
		off += n
	}
	if r.poll(0); len(r.n[0].done) > 0 {
		t.Errorf("complete before anything was sent: %v", r.n[0].done)
	}
	r.must("the writes", time.Second, r.all(0, len(sizes)))
	r.rest(10 * time.Millisecond)
	if n := r.n[0].e.Holding().Copied; n != 0 || !bytes.Equal(mem[:off], data[:off]) {
		t.Errorf("%d bytes of copies are left; all arrived: %v", n, bytes.Equal(mem[:off], data[:off]))
	}
}
