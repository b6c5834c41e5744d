package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Fresh keys are exchanged a thousand times, both ways, on a network that loses, repeats and reorders (clause 10.6):
// everything arrives, and no packet number is used twice on a path, so no nonce either.
func TestRekeys(t *testing.T) {
	t.Parallel()
	for _, o := range []rigOptions{{}, {lazy: true}} {
		testRekeys(t, o)
	}
}

func testRekeys(t *testing.T, o rigOptions) {
	const life, rekeys = 100, 1000
	o.sealed, o.links, o.keys = true, 2, atBoth(engine.KeyLimits{Frames: life})
	r := newRig(t, o)
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 64<<10, both)
	r.settle()
	for i := range r.n {
		r.n[i].auto = true
	}
	m := newMess(r, 3)
	m.net.Jitter, m.net.Loss, m.net.Dup = 20*time.Microsecond, 0.01, 0.01
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
			op := engine.Op{Kind: engine.OpWrite, Flags: engine.Notify, Token: uint64(sent), Key: key, Off: uint64(at),
				Local: src[at : at+size]}
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
	if n := r.n[0].e.Count.Reject.RejectedAuth + r.n[1].e.Count.Reject.RejectedAuth; n > uint64(sent)/20 {
		t.Errorf("%d frames were not opened", n)
	}
}

// atBoth are the same limits for both nodes.
func atBoth(l engine.KeyLimits) [2]engine.KeyLimits { return [2]engine.KeyLimits{l, l} }

// keyed is a sealed pair with a connection whose keys last for so long, and how often node i has turned to fresh ones.
func keyed(t *testing.T, o rigOptions) (r *rig, st *stream, turned func(i int) uint64) {
	o.sealed = true
	r = newRig(t, o)
	st = newStream(r, r.connect(engine.DialOptions{}))
	return r, st, func(i int) uint64 { return r.n[i].e.Count.Trust.KeyExchanges }
}

// Keys are replaced for their age at both ends at once, while operations go on, computed beside the engine or in it;
// nothing fails, nothing is sent again, and the keys before are erased (clause 10.6).
func TestFreshKeysByAge(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		r, st, turned := keyed(t, rigOptions{deferred: deferred,
			keys: atBoth(engine.KeyLimits{Age: 400 * time.Millisecond})})
		local := r.n[0].e.SessionList()[0].Local
		seen := map[byte]bool{}
		r.pass = func(from int, f *flight) bool {
			if typeOf(f.b) == wire.TypeData {
				seen[keyEpoch(f.b)] = true
			}
			return true
		}
		st.forTime(4*time.Second, 20*time.Millisecond)
		st.finish()
		r.rest(2 * time.Second)
		for i := range r.n {
			if n := turned(i); n < 14 || n > 18 {
				t.Errorf("deferred %v: node %d has turned to fresh keys %d times in 6 s, want one in 350 ms", deferred,
					i, n)
			}
			if c := r.n[i].e.Count; c.Reject.RejectedAuth != 0 || c.Loss.FramesRetransmitted != 0 ||
				c.Life.SessionsFailed != 0 ||
				r.n[i].e.RetiredKeys() != 0 || r.n[i].e.Pending() != 0 {
				t.Errorf("deferred %v: node %d: %+v", deferred, i, c)
			}
		}
		if len(seen) < 10 || r.n[0].e.SessionList()[0].Local != local {
			t.Errorf("deferred %v: %d key epochs", deferred, len(seen))
		}
	}
}

// A peer that never exchanges keys ends the session: no key seals without end.
func TestKeysExpire(t *testing.T) {
	r, st, turned := keyed(t, rigOptions{deferred: true, keys: [2]engine.KeyLimits{{Age: 400 * time.Millisecond}, {}}})
	r.n[1].stuck = true // it computes for ever
	st.forTime(600*time.Millisecond, 20*time.Millisecond)
	if n := r.n[0].e.Count.Life.SessionsFailed; n != 0 {
		t.Fatalf("%d sessions failed before the bound", n)
	}
	r.must("the session ends", time.Second, func() bool { return r.n[0].e.Count.Life.SessionsFailed == 1 })
	if turned(0) != 0 {
		t.Error("node 0 has fresh keys")
	}
}

// Forgeries that a key was tried on are counted: seven eighths of the limit bring fresh keys, and those of a key that
// nobody has count for nothing (RFC 9001, 6.6).
func TestForgeriesWearKeys(t *testing.T) {
	const limit = 64
	for _, lazy := range []bool{false, true} {
		r, _, turned := keyed(t, rigOptions{lazy: lazy, keys: atBoth(engine.KeyLimits{Forged: limit})})
		r.rest(100 * time.Millisecond)
		forge := func(epoch uint8, n int) {
			s := r.n[0].e.SessionList()[0]
			for k := range n {
				f := raw(macOf(1, 0), macOf(0, 0), wire.Header{Type: wire.TypeData, KeyEpoch: epoch, Session: s.Local,
					PN: 1<<30 + uint64(k)}, make([]byte, 64))
				r.n[0].handle(r.now, 0, f)
			}
			r.rest(50 * time.Millisecond)
		}
		forge(77, 4*limit)
		forge(1, limit-limit/8-1)
		if turned(0) != 0 {
			t.Fatalf("lazy %v: fresh keys too early", lazy)
		}
		if forge(1, 1); turned(0) != 1 || turned(1) != 1 {
			t.Fatalf("lazy %v: fresh keys %d and %d times", lazy, turned(0), turned(1))
		}
		if forge(2, 3); r.n[0].e.Count.Life.SessionsFailed != 0 {
			t.Error("the session ended")
		}
		r.pass = func(from int, f *flight) bool { return from == 1 } // no exchange comes to an end
		if forge(2, 2*limit); r.n[0].e.Count.Life.SessionsFailed != 1 {
			t.Errorf("lazy %v: at the limit the session goes on", lazy)
		}
	}
}
