package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// Every operation that ends well is counted, in the histogram of its kind, with the time from Submit to its completion;
// those that fail are not.
func TestLatency(t *testing.T) { inBothForms(t, testLatency) }

func testLatency(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 200_000, every)
	e := r.n[0].e
	type spent struct {
		n   uint64
		sum time.Duration
	}
	var want [5]spent // by kind
	submitted, kinds := map[uint64]mono.Time{}, map[uint64]engine.OpKind{}
	note := func() {
		for token, st := range r.n[0].done {
			if at, ok := submitted[token]; ok && st == engine.OK {
				w := &want[kinds[token]]
				w.n, w.sum = w.n+1, w.sum+r.now.Sub(at)
			}
			delete(submitted, token)
		}
	}
	token := uint64(0)
	submit := func(op engine.Op) {
		token++
		op.Token, submitted[token], kinds[token] = token, r.now, op.Kind
		r.submit(0, c[0], op)
	}
	settle := func() {
		t.Helper()
		r.must("operations", time.Second, func() bool { note(); return len(submitted) == 0 })
	}
	for _, op := range []engine.Op{
		{Kind: engine.OpWrite, Key: key, Inline: 8},
		{Kind: engine.OpWrite, Key: key},
		{Kind: engine.OpWrite, Key: key, Local: make([]byte, 200_000)},
		{Kind: engine.OpRead, Key: key, Local: make([]byte, 8)},
		{Kind: engine.OpRead, Key: key, Local: make([]byte, 200_000)},
		{Kind: engine.OpWrite, Key: key + 1, Local: make([]byte, 8)}, // refused
		{Kind: engine.OpRead, Key: key, Off: 200_000, Local: make([]byte, 8)},
		atomicOp(0, key, 8, engine.Atomic{Func: wire.AtomicAdd, Size: 8}),
		atomicOp(0, key, 9, engine.Atomic{Func: wire.AtomicAdd, Size: 8}),
	} {
		submit(op)
		settle()
	}
	// more than the ring of operations begins with, submitted one after the other and fenced, so that they do not end
	// at once
	for i := range 50 {
		submit(engine.Op{Kind: engine.OpKind(1 + i%2), Flags: engine.BackwardFence, Key: key,
			Local: make([]byte, 3000)})
		r.now = r.now.Add(time.Microsecond)
	}
	settle()
	submit(engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 8)})
	e.Abort(r.now, c[0], engine.StatusAborted)
	settle()
	snap := e.Snapshot(r.now)
	for kind, h := range map[engine.OpKind]struct{ n, sum uint64 }{
		engine.OpWrite: {snap.Latency.Write.Count(), snap.Latency.Write.Sum}, engine.OpRead: {snap.Latency.Read.Count(),
			snap.Latency.Read.Sum}, engine.OpAtomic: {snap.Latency.Atomic.Count(), snap.Latency.Atomic.Sum},
	} {
		if w := want[kind]; h.n != w.n || h.sum != uint64(w.sum) {
			t.Errorf("kind %d: %d operations took %d ns, want %d and %d", kind, h.n, h.sum, w.n, w.sum)
		}
	}
	if n := want[engine.OpWrite].n + want[engine.OpRead].n + want[engine.OpAtomic].n; n != 56 ||
		n != snap.Counters.Op.OpsCompleted-snap.Counters.Op.OpsFailed || snap.Counters.Op.OpsFailed != 4 {
		t.Errorf("%d operations ended well, %d of %d failed", n, snap.Counters.Op.OpsFailed,
			snap.Counters.Op.OpsCompleted)
	}
}

// A link's histogram has the samples that its paths' estimates are made of, until the number is another link's.
func TestRoundTrips(t *testing.T) {
	r := newRig(t, rigOptions{links: 2})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 1<<20, both)
	r.settle()
	for i := range 50 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(i), Key: key, Local: make([]byte, 5000)})
		r.must("write", time.Second, r.all(0, i+1))
	}
	snap := r.n[0].e.Snapshot(r.now)
	for i, l := range snap.Links {
		h, path := &l.RoundTrips, &snap.Peers[0].Paths[i]
		if n := h.Count(); n < 10 || time.Duration(h.Sum/n) < path.MinRTT || path.MinRTT < 2*r.hop {
			t.Errorf("%s: %d round trips, sum %d, the shortest %v", l.Name, n, h.Sum, path.MinRTT)
		}
	}
	for _, name := range []string{snap.Links[0].Name, "another"} {
		r.n[0].e.SetLink(r.now, 0, engine.LinkConfig{Name: name, Addr: frame.Ether(macOf(0, 0)), MTU: 1500,
			RxSlots: 256})
		if n := r.n[0].e.Snapshot(r.now).Links[0].RoundTrips.Count(); (n > 0) != (name != "another") {
			t.Errorf("link %s has %d round trips", name, n)
		}
	}
}
