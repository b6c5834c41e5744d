package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// lazyPlacer copies as late as it may, and last first.
type lazyPlacer struct{ dst, src [][]byte }

func (p *lazyPlacer) Place(dst, src []byte) { p.dst, p.src = append(p.dst, dst), append(p.src, src) }

func (p *lazyPlacer) Wait() {
	for i := len(p.dst) - 1; i >= 0; i-- {
		copy(p.dst[i], p.src[i])
	}
	p.dst, p.src = p.dst[:0], p.src[:0]
}

var lazyAll = os.Getenv("LAZYALL") != "" // all tests with Readers and lazy placers: make test

func placerOf(o *rigOptions) engine.Placer {
	if o.lazy || lazyAll {
		return &lazyPlacer{}
	}
	return nil
}

// An operation is in place when it is applied or complete, although each payload is copied as late as is allowed and
// frames come in any order.
func TestLazyPlacement(t *testing.T) {
	for _, o := range []rigOptions{{lazy: true, links: 2}, {lazy: true, links: 2, mtu: 9000, shuffle: 64},
		{lazy: true, sealed: true}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			const size = 100_000
			r := newRig(t, o)
			c := r.connect(engine.DialOptions{})
			mem, key := r.export(1, c[1], size, both)
			want, back := pattern(3, size), make([]byte, size)
			r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Key: key, Local: want, Token: 1})
			r.must("write", time.Second, func() bool {
				r.n[1].takeNotes(c[1])
				return len(r.n[1].notes) > 0
			})
			if !bytes.Equal(mem, want) {
				t.Error("the notification came before the bytes")
			}
			r.must("write completes", time.Second, r.all(0, 1))
			r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Key: key, Local: back, Token: 2})
			r.must("read", time.Second, r.all(0, 2))
			if !bytes.Equal(back, want) {
				t.Error("the read completed before the bytes")
			}
		})
	}
}

// A write behind a fence overwrites what the write before it left, although that is copied late.
func TestLazyPlacementKeepsFences(t *testing.T) {
	const size = 20_000
	r := newRig(t, rigOptions{lazy: true})
	c := r.connect(engine.DialOptions{Ordered: true})
	mem, key := r.export(1, c[1], size, both)
	first, second := pattern(4, size), pattern(5, size)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: first, Token: 1})
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: second, Token: 2})
	var frames []flight
	for _, f := range r.take(0) { // the parts of both, those of the second first
		if carries(f.b, wire.KindWrite) {
			frames = append([]flight{f}, frames...)
		}
	}
	if len(frames) < 4 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, f := range frames {
		r.give(1, f)
	}
	r.must("both", 5*time.Second, r.all(0, 2))
	if !bytes.Equal(mem, second) {
		t.Error("the second write is not what is there in the end")
	}
}

// Until its owner asks, a part of an operation may be missing; then it is there.
func TestPlaced(t *testing.T) {
	const size = 20_000
	r := newRig(t, rigOptions{lazy: true})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], size, both)
	want := pattern(6, size)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: want, Token: 1})
	frames := r.take(0)
	r.give(1, frames[0])
	n := 0
	for n < size && mem[n] == want[n] {
		n++
	}
	if n > 8 {
		t.Fatalf("%d bytes were placed at once: this test tests nothing", n)
	}
	r.n[1].e.Placed()
	if !bytes.Equal(mem[:1000], want[:1000]) {
		t.Error("the first part is not in place")
	}
}
