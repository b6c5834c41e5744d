package engine_test

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 9.3: each of many links of the peer that face one of ours gets its Echo, also when their probes arrive
// together, more than fit into a frame.
func TestProbesArriveTogether(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	like, pn := r.like(c[0], 1)
	missing := map[uint64]bool{}
	for range 2 { // some come twice before the answer
		for k := range uint64(engine.MaxLinks) {
			pn++
			g := wire.Segment{Kind: wire.KindProbe, Place: (k + 1) << 32}
			missing[g.Place] = true
			r.n[1].handle(r.now, 0, forge(like, pn, &g))
		}
	}
	var g wire.Segment
	for _, fl := range r.take(1) {
		var f wire.Frame
		if f.Decode(fl.b[wire.EthLen:]) != nil || f.Type != wire.TypeData {
			continue
		}
		for tail := f.Tail; len(tail) > 0; {
			var err error
			if tail, err = g.Next(tail); err != nil {
				t.Fatal(err)
			}
			if g.Kind == wire.KindEcho && !missing[g.Place] {
				t.Errorf("an echo of %#x that nobody waits for", g.Place)
			}
			if g.Kind == wire.KindEcho {
				delete(missing, g.Place)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d probes are not answered", len(missing), engine.MaxLinks)
	}
}
