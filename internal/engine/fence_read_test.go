package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// How a connection of a test orders its operations.
var (
	anyOrder = engine.DialOptions{}
	inOrder  = engine.DialOptions{Ordered: true}
	overlaps = engine.DialOptions{Ordered: true, Overlap: true}
)

// Clause 6.5 for reads: behind a backward fence a read sees every write before it, whichever request arrives first.
// Clause 6.6: a write behind a forward-fenced read does not reach what the read still has to send.
func TestReadFences(t *testing.T) {
	const size = 3000
	old, fresh := pattern(1, size), pattern(2, size)
	type step struct {
		kind  engine.OpKind
		flags engine.OpFlags
	}
	for _, c := range []struct {
		name, clause string
		ops          []step
		how          engine.DialOptions
		want         []byte // by the read
	}{
		{"write, B read", "6.5", []step{{engine.OpWrite, 0}, {engine.OpRead, engine.BackwardFence}}, anyOrder, fresh},
		{"F write, read", "6.6", []step{{engine.OpWrite, engine.ForwardFence}, {engine.OpRead, 0}}, anyOrder, fresh},
		{"F read, write", "6.6", []step{{engine.OpRead, engine.ForwardFence}, {engine.OpWrite, 0}}, anyOrder, old},
		{"read, B write", "6.5", []step{{engine.OpRead, 0}, {engine.OpWrite, engine.BackwardFence}}, anyOrder, old},
		{"ordered write, read", "5.3", []step{{engine.OpWrite, 0}, {engine.OpRead, 0}}, inOrder, fresh},
		{"ordered read, write", "5.3", []step{{engine.OpRead, 0}, {engine.OpWrite, 0}}, inOrder, old},
		{"overlapping write, read", "5.3", []step{{engine.OpWrite, 0}, {engine.OpRead, 0}}, overlaps, fresh},
		{"overlapping read, B write", "5.3", []step{{engine.OpRead, 0}, {engine.OpWrite, engine.BackwardFence}},
			overlaps, old},
	} {
		r := newRig(t, rigOptions{})
		conn := r.connect(c.how)
		mem, key := r.export(1, conn[1], size, both)
		r.settle()
		token := uint64(0)
		frames := func() (all []flight, back []byte) {
			for _, s := range c.ops {
				op := engine.Op{Kind: s.kind, Flags: s.flags, Token: token, Key: key, Local: fresh}
				token++
				if s.kind == engine.OpRead {
					back = make([]byte, size)
					op.Local = back
				}
				r.submit(0, conn[0], op)
				for _, f := range r.take(0) {
					if carries(f.b, wire.KindWrite) || carries(f.b, wire.KindReadRequest) {
						all = append(all, f)
					} else {
						r.give(1, f)
					}
				}
			}
			return all, back
		}
		for _, arrival := range permutations(4) {
			copy(mem, old)
			all, back := frames()
			if len(all) != 4 {
				t.Fatalf("%s: %d frames, want 3 of the write and 1 of the read", c.name, len(all))
			}
			for _, i := range arrival {
				r.give(1, all[i])
				for _, f := range r.take(1) { // what the read sends now must not change any more
					r.give(0, f)
				}
			}
			if !r.until(time.Second, r.all(0, int(token))) {
				t.Fatalf("%s arrival %v: not complete within a second", c.name, arrival)
			}
			if !bytes.Equal(back, c.want) {
				t.Errorf("%s (clause %s), arrival %v: the read saw the other version", c.name, c.clause, arrival)
			}
			if !bytes.Equal(mem, fresh) {
				t.Errorf("%s arrival %v: the write is not in place", c.name, arrival)
			}
		}
	}
}

// Clause 7.5: segments behind a fence are held within the limit; beyond it their frames are left unreceived, and all is
// well once there is room.
func TestHeldLimit(t *testing.T) {
	const limit, size = 8 << 10, 1000
	r := newRig(t, rigOptions{held: limit})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 64*size, both)
	r.settle()
	want := pattern(7, 64*size)
	stuck := true
	r.pass = func(from int, f *flight) bool { return from != 0 || !stuck || !firstOp(f.b) }
	for i := range 64 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.BackwardFence, Token: uint64(i), Key: key,
			Off: uint64(i * size), Local: want[i*size : (i+1)*size]})
	}
	most := 0
	r.until(30*time.Millisecond, func() bool { most = max(most, r.n[1].e.HeldMemory()); return false })
	if most == 0 || most > limit {
		t.Errorf("%d bytes were held, want some and at most %d", most, limit)
	}
	if n := r.n[1].e.Count.Reject.RejectedNoRoom; n == 0 {
		t.Error("no frame was left unreceived")
	}
	if len(r.n[0].done) != 0 || !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Fatal("something behind the fence was applied without the first operation")
	}
	stuck = false
	r.must("everything once the first operation came through", 10*time.Second, r.all(0, 64))
	if !bytes.Equal(mem, want) {
		t.Error("memory differs")
	}
	r.rest(3 * time.Second) // the ring grew
	if n := r.n[1].e.HeldMemory(); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
}

// firstOp reports whether a frame carries operation number 0.
func firstOp(frame []byte) bool {
	var f wire.Frame
	if f.Decode(frame[wire.EthLen:]) != nil || f.Type != wire.TypeData {
		return false
	}
	var g wire.Segment
	for tail := f.Tail; len(tail) > 0; {
		var err error
		if tail, err = g.Next(tail); err != nil {
			return false
		}
		if g.Kind == wire.KindWrite && g.Op == 0 {
			return true
		}
	}
	return f.Flags&wire.FlagBulk != 0 && f.Bulk.Op == 0
}

// Clause 6.9: an operation that is refused does not stop those behind its fences for longer than its answer takes.
func TestFenceBehindRefused(t *testing.T) { inBothForms(t, testFenceBehindRefused) }

func testFenceBehindRefused(t *testing.T, sealed bool) {
	for _, flags := range []engine.OpFlags{0, engine.BackwardFence, engine.ForwardFence,
		engine.BackwardFence | engine.ForwardFence} {
		t.Run(fmt.Sprint("flags=", uint8(flags)), func(t *testing.T) {
			r := newRig(t, rigOptions{sealed: sealed})
			c := r.connect(engine.DialOptions{})
			mem, key := r.export(1, c[1], 100, both)
			for i := range 30 {
				op := engine.Op{Kind: engine.OpWrite, Flags: flags, Token: uint64(i), Key: key, Off: uint64(i),
					Local: []byte{byte(i + 1)}}
				if i%3 == 1 {
					op.Off = 100
				}
				if i%3 == 2 {
					op.Kind, op.Local = engine.OpRead, make([]byte, 1)
				}
				r.submit(0, c[0], op)
			}
			r.must("all", time.Second, r.all(0, 30))
			for i := range 30 {
				want := engine.OK
				if i%3 == 1 {
					want = engine.StatusBounds
				} else if i%3 == 0 && mem[i] != byte(i+1) {
					t.Errorf("write %d is not in place", i)
				}
				r.wantStatus(0, uint64(i), want)
			}
		})
	}
}
