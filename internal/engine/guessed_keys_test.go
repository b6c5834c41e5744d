package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// A peer that guesses keys is answered so often a second and no more, and what it does with a right key goes on (clause
// 6.9).
func TestGuessing(t *testing.T) {
	r := newRig(t, rigOptions{sealed: true})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 64, both)
	r.settle()
	r.hop = 20 * time.Microsecond
	start, tok := r.now, uint64(0)
	r.until(2500*time.Millisecond, func() bool {
		for range 64 {
			op := engine.Op{Kind: engine.OpWrite, Inline: 8, Key: regmem.Key(uint64(key) ^ (tok + 1)), Token: tok}
			if !r.n[0].e.Submit(r.now, c[0], &op) {
				break
			}
			tok++
		}
		return false
	})
	answered := 0
	for _, st := range r.n[0].done {
		if st != engine.StatusKey {
			t.Fatalf("a guess ended with %v", st)
		}
		answered++
	}
	seconds := r.now.Sub(start).Seconds()
	if limit := 5000 * (seconds + 1); float64(answered) > limit || answered < 5000 {
		t.Errorf("%d guesses answered in %.1f s, want 5000 to %.0f", answered, seconds, limit)
	}
	if r.n[1].e.Count.Op.GuessesIgnored == 0 {
		t.Error("none was ignored")
	}
	op := engine.Op{Kind: engine.OpWrite, Inline: 8, Key: key, Token: 1 << 40, Data: [engine.MaxInline]byte{1, 2, 3, 4,
		5, 6, 7, 8}}
	r.must("room for another operation", 5*time.Second, func() bool { return r.n[0].e.Submit(r.now, c[0], &op) })
	r.must("the write with a right key", 10*time.Second, func() bool { _, ok := r.n[0].done[1<<40]; return ok })
	if mem[0] != 1 || mem[7] != 8 {
		t.Errorf("memory % x", mem[:8])
	}
}
