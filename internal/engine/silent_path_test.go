package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
)

// What a path that carries nothing is asked, for as long as it does not answer, leaves the window to the others: a link
// that went dark, and one on which the peer is heard and never reached.
func TestDarkPathLeavesWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		early bool // from the beginning
		pass  func(from int, f *flight) bool
	}{
		{"went dark", false, func(_ int, f *flight) bool { return f.link == 0 }},
		{"broadcasts alone pass", true, func(_ int, f *flight) bool { return f.link == 0 || f.b[0]&1 != 0 }},
	} {
		for _, sealed := range []bool{false, true} {
			r := newRig(t, rigOptions{links: 2, mtu: 9000, sealed: sealed})
			if c.early {
				r.pass = c.pass
			}
			s := newStream(r, r.connect(engine.DialOptions{}))
			r.settle()
			r.pass = c.pass
			for range 12 {
				s.forTime(2*time.Second, 300*time.Millisecond)
			}
			for i := range r.n {
				if n := r.n[i].e.Holding().InFlight; n > 300 {
					t.Errorf("%s, sealed %v: node %d has %d frames in flight", c.name, sealed, i, n)
				}
			}
			s.finish()
		}
	}
}

// A peer that keeps many bytes of reads outstanding holds up neither our operations on the connection nor the refusal
// of its own.
func TestReadsLetOthersPass(t *testing.T) {
	const size = 256 << 10
	r := newRig(t, rigOptions{mtu: 9000})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.hop = 100 * time.Microsecond
	_, key0 := r.export(0, c[0], size, both)
	_, key1 := r.export(1, c[1], 4096, both)
	dst, next := make([]byte, 8*size), 0
	feed := func() {
		for next-len(r.n[1].done) < 8 && r.n[1].e.Room(c[1]) > 0 {
			at := next % 8 * size
			r.submit(1, c[1], engine.Op{Kind: engine.OpRead, Token: uint64(next), Key: key0, Local: dst[at : at+size]})
			next++
		}
	}
	r.until(20*time.Millisecond, func() bool { feed(); return false })
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1, Key: key1, Local: make([]byte, 64)})
	if !r.until(20*time.Millisecond, func() bool { feed(); return len(r.n[0].done) > 0 }) {
		t.Error("our write does not leave")
	}
	const bad = 1 << 40
	r.submit(1, c[1], engine.Op{Kind: engine.OpWrite, Token: bad, Key: key0 + 1, Local: make([]byte, 64)})
	if !r.until(20*time.Millisecond, func() bool { feed(); _, done := r.n[1].done[bad]; return done }) {
		t.Error("the peer's operation is not refused")
	}
}
