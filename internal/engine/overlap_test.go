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

// Clause 5.3: with OVERLAP the answers to reads and atomics leave before the first of them is acknowledged, whichever
// request arrives first; without, one after the other.
func TestOverlappingAnswers(t *testing.T) {
	for _, c := range []struct {
		how  engine.DialOptions
		want int
	}{{inOrder, 1}, {overlaps, 3}} {
		for _, arrival := range permutations(3) {
			r := newRig(t, rigOptions{})
			conn := r.connect(c.how)
			mem, key := r.export(1, conn[1], 64, both|regmem.RemoteAtomic)
			copy(mem, pattern(1, 64))
			r.settle()
			back := make([]byte, 64)
			sum := engine.Op{Token: 1, Key: key, Off: 32}
			sum.SetAtomic(engine.Atomic{Func: wire.AtomicAdd, Size: 8, Operand: 1})
			var requests []flight
			for _, op := range []engine.Op{{Kind: engine.OpRead, Token: 0, Key: key, Local: back[:32]}, sum,
				{Kind: engine.OpRead, Token: 2, Key: key, Off: 32, Local: back[32:]}} {
				r.submit(0, conn[0], op)
				requests = append(requests, r.take(0)...)
			}
			if len(requests) != 3 {
				t.Fatalf("%d frames of 3 requests", len(requests))
			}
			for _, i := range arrival {
				r.give(1, requests[i])
			}
			answers := 0
			for _, f := range r.take(1) {
				for _, k := range kinds(f.b) {
					if k == wire.KindReadData || k == wire.KindAtomicResult {
						answers++
					}
				}
				r.give(0, f)
			}
			if answers != c.want {
				t.Errorf("overlap %v, arrival %v: %d answers before any was acknowledged, want %d", c.how.Overlap,
					arrival, answers, c.want)
			}
			r.must("the ends of all", time.Second, r.all(0, 3))
			for token := range uint64(3) {
				r.wantStatus(0, token, engine.OK)
			}
			if !bytes.Equal(back, mem) {
				t.Errorf("arrival %v: the second read saw bytes from before the atomic", arrival)
			}
			if held := r.n[1].e.HeldMemory(); held != 0 {
				t.Errorf("%d bytes of held segments are still accounted for", held)
			}
		}
	}
}

// Clause 22.3 where answers overlap: nothing behind a read that is refused is performed, whichever arrives first.
func TestOverlapStops(t *testing.T) {
	for _, arrival := range permutations(3) {
		s := newSharedOn(t, overlaps)
		back := make([]byte, 8)
		var requests []flight
		for i, op := range []engine.Op{{Kind: engine.OpRead, Key: s.key, Local: back},
			{Kind: engine.OpRead, Key: s.key + 1, Local: make([]byte, 8)},
			{Kind: engine.OpWrite, Key: s.key, Local: pattern(1, 8)}} {
			op.Token, op.Off = uint64(i), sharedBase
			s.submit(0, s.c[0], op)
			requests = append(requests, s.take(0)...)
		}
		for _, i := range arrival {
			s.give(1, requests[i])
		}
		s.must("the ends of all", time.Second, s.all(0, 3))
		for token, want := range []engine.Status{engine.OK, engine.StatusKey, engine.StatusStopped} {
			s.wantStatus(0, uint64(token), want)
		}
		if !bytes.Equal(s.mem[:8], make([]byte, 8)) {
			t.Error(fmt.Sprint("arrival ", arrival, ": the write was performed"))
		}
	}
}
