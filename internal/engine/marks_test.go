package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/frame"
	"multiedge/internal/wire"
)

// Clause 21.12, marks of congestion on IP links.

// newMarkNet is an ipNet whose routers make of a frame's ECN what mark says; a frame of mark < 0 is lost.
func newMarkNet(t *testing.T, mark func(from int, f *flight, ecn frame.ECN) frame.ECN) *ipNet {
	t.Helper()
	r := newIPNet(t, 1, rigOptions{})
	for i := range r.n {
		r.n[i].e.RemoveLink(r.now, 0)
	}
	r.mark = mark
	for i := range r.n {
		r.ipLinks(i)
	}
	return r
}

// marks is what node i believes of marks on its path.
func (r *ipNet) marks(i int) engine.PathStatus { return r.n[i].e.Snapshot(r.now).Peers[0].Paths[0] }

// Marks that are told narrow the window although nothing is lost, and every marked frame is told of once.
func TestMarksNarrowTheWindow(t *testing.T) {
	windows := map[bool]float64{}
	for _, marks := range []bool{false, true} {
		n := [2]uint64{}
		on := false
		r := newMarkNet(t, func(from int, f *flight, ecn frame.ECN) frame.ECN {
			if typeOf(f.b) != wire.TypeData && f.capable {
				t.Fatalf("a frame of type %d leaves with ECT(0)", typeOf(f.b))
			}
			if on && marks && from == 0 && ecn == frame.ECT0 && len(f.b) > 1000 {
				n[from]++
				return frame.CE
			}
			return ecn
		})
		c := r.connect(engine.DialOptions{})
		r.settle()
		on = true
		r.write(0, c, 4<<20, 1, 5*time.Second)
		r.rest(10 * time.Millisecond)
		p := r.marks(0)
		windows[marks] = p.Window
		if p.Marks != "good" || p.Counters.Marked != n[0] || r.n[0].e.Count.Loss.FramesMarked != n[0] ||
			r.n[0].e.Count.Loss.FramesLost != 0 || marks != (n[0] > 1000) {
			t.Errorf("marks %v: %+v, %d frames were marked; %+v", marks, p, n[0], r.n[0].e.Count.Loss)
		}
	}
	if windows[true] > 2 || windows[false] < 32 {
		t.Errorf("windows %v", windows)
	}
}

// Routers that wipe marks out, that let nothing pass which can bear one, or that invent the other kind are noticed:
// frames leave without, and go on to arrive. After a minute it is tried again.
func TestMarksThatDoNotGetThrough(t *testing.T) {
	for name, c := range map[string]struct {
		mark   func(ecn frame.ECN) frame.ECN
		passes func(f *flight) bool
	}{
		"bleached":  {mark: func(frame.ECN) frame.ECN { return frame.NotECT }},
		"mangled":   {mark: func(frame.ECN) frame.ECN { return frame.ECT1 }},
		"swallowed": {passes: func(f *flight) bool { return !f.capable }},
	} {
		sound := false
		capable := 0
		r := newMarkNet(t, func(from int, f *flight, ecn frame.ECN) frame.ECN {
			if f.capable && from == 0 {
				capable++
			}
			if c.mark != nil && !sound {
				return c.mark(ecn)
			}
			return ecn
		})
		r.lose = func(_ int, f *flight) bool { return c.passes != nil && !sound && !c.passes(f) }
		conn := r.connect(engine.DialOptions{})
		r.settle()
		r.write(0, conn, 1<<20, 1, 5*time.Second)
		r.rest(20 * time.Millisecond)
		if p := r.marks(0); p.Marks != "failed" || p.State != "good" || r.n[0].e.Count.Life.MarksFailed != 1 {
			t.Fatalf("%s: %+v, failed %d times", name, p, r.n[0].e.Count.Life.MarksFailed)
		}
		capable = 0
		r.write(0, conn, 1<<20, 2, time.Second)
		if capable > 0 {
			t.Errorf("%s: %d frames leave with ECT(0)", name, capable)
		}
		sound = true
		r.rest(2 * time.Minute)
		r.write(0, conn, 1<<20, 3, time.Second)
		r.write(0, conn, 1<<20, 4, time.Second)
		if p := r.marks(0); p.Marks != "good" || capable == 0 {
			t.Errorf("%s: later %+v", name, p)
		}
	}
}

// A path that marks everything, and a peer that says so, do no harm but slowness, and no path ends for it.
func TestEverythingIsMarked(t *testing.T) {
	r := newMarkNet(t, func(_ int, _ *flight, ecn frame.ECN) frame.ECN { return max(ecn, frame.ECT0) | frame.CE })
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.write(0, c, 1<<20, 1, 20*time.Second)
	if p := r.marks(0); p.State != "good" || p.Marks != "good" || p.Window > 1 || r.n[0].e.Count.Loss.FramesLost > 0 {
		t.Errorf("%+v; %+v", p, r.n[0].e.Count.Loss)
	}
}
