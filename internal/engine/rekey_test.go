package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Keys follow each other thousands of times, both ways, on a network that loses, repeats and reorders (clause 10.6): everything arrives, and no packet number is
// used twice on a path, so no nonce either.
func TestRekeys(t *testing.T) {
	const life, rekeys = 100, 2000
	r := newRig(t, rigOptions{sealed: true, links: 2})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 64<<10, both)
	r.settle()
	for i := range r.n {
		r.n[i].e.SetKeyLife(life)
		r.n[i].auto = true
	}
	m := newMess(r, 3)
	m.delay, m.loss, m.twice = 20*time.Microsecond, 0.01, 0.01
	var changes [2]int
	var epoch [2]byte
	var next [2][2]uint64
	m.see = func(from int, f *flight) {
		if typeOf(f.b) != wire.TypeData {
			return
		}
		if e := keyEpoch(f.b); e != epoch[from] {
			epoch[from] = e
			changes[from]++
		}
		if n := packet(f.b); n < next[from][f.link] {
			t.Fatalf("node %d link %d: packet number %d again", from, f.link, n)
		} else {
			next[from][f.link] = n + 1
		}
	}
	src := pattern(1, len(mem))
	const size, ring = 1400, 40
	sent := 0
	done := func() bool {
		for sent-len(r.n[0].done) < 16 {
			at := sent % ring * size
			op := engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(sent), Key: key, Off: uint64(at), Local: src[at : at+size]}
			if sent%3 == 2 {
				op = engine.Op{Kind: engine.OpRead, Token: uint64(sent), Key: key, Local: make([]byte, size)}
			}
			r.submit(0, c[0], op)
			sent++
		}
		return changes[0]+changes[1] >= rekeys
	}
	if !m.run(time.Minute, done) {
		t.Fatalf("%v changes of key", changes)
	}
	if !m.run(time.Second, r.all(0, sent)) {
		t.Fatalf("%d of %d operations completed", len(r.n[0].done), sent)
	}
	for token, st := range r.n[0].done {
		if st != engine.OK {
			t.Fatalf("operation %d ended with %v", token, st)
		}
	}
	if !bytes.Equal(mem[:ring*size], src[:ring*size]) {
		t.Error("memory differs")
	}
	if len(r.n[0].closed)+len(r.n[1].closed) != 0 || changes[1] == 0 {
		t.Errorf("changes of key: %v, closed: %v %v", changes, r.n[0].closed, r.n[1].closed)
	}
	if n := r.n[0].e.Count.RejectedAuth + r.n[1].e.Count.RejectedAuth; n > uint64(sent)/20 {
		t.Errorf("%d frames were not opened", n)
	}
}
