package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/mono"
)

// farAway runs the rig for d, every frame taking so long to arrive.
func (r *rig) farAway(d, delay time.Duration) {
	type late struct {
		due mono.Time
		to  int
		f   flight
	}
	var way []late
	for end := r.now.Add(d); r.now < end; r.now = r.now.Add(time.Millisecond) {
		for i := range r.n {
			for _, f := range r.take(i) {
				way = append(way, late{r.now.Add(delay), 1 - i, f})
			}
		}
		for len(way) > 0 && way[0].due <= r.now {
			r.give(way[0].to, way[0].f)
			way = way[1:]
		}
	}
}

// Clause 9.2: a path whose probes of size are answered after more than all their tries took has its full frames when
// the round trip is known, a minute later.
func TestFrameSizeFarAway(t *testing.T) {
	for _, rtt := range []time.Duration{10, 50, 62, 150, 400} {
		r := newRig(t, rigOptions{mtu: 9000})
		r.connect(engine.DialOptions{})
		r.n[0].e.RemoveLink(r.now, 0)
		r.farAway(time.Second, rtt*time.Millisecond/2)
		r.n[0].e.SetLink(r.now, 0, engine.LinkConfig{Name: "edge0", Addr: frame.Ether(macOf(0, 0)), MTU: 9000,
			RxSlots: 256})
		r.farAway(70*time.Second, rtt*time.Millisecond/2)
		if n := r.pathMTU(0, 0); n != 9000 {
			t.Errorf("round trip of %v: frames of %d bytes", rtt*time.Millisecond, n)
		}
	}
}
