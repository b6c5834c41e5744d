package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/sim"
	"multiedge/internal/wire"
)

// Clause 4.7: after the keep-alive time of silence each path is pinged, about once per keep-alive time; an idle
// connection lives for ever.
func TestIdleConnectionLives(t *testing.T) { inBothForms(t, testIdleConnectionLives) }

func testIdleConnectionLives(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2})
	c := r.connect(engine.DialOptions{})
	r.settle()
	frames := 0
	r.pass = func(_ int, f *flight) bool {
		if typeOf(f.b) == wire.TypeData {
			frames++
		}
		return true
	}
	r.rest(60 * time.Second)
	if len(r.n[0].closed)+len(r.n[1].closed) != 0 {
		t.Fatal("closed")
	}
	if frames < 60 || frames > 60*2*2*4 {
		t.Errorf("%d data frames in an idle minute, want a few per link and second", frames)
	}
	r.echoWorks(c)
}

// Clause 4.7: silence for the dead time fails the session, neither long before nor long after; every operation ends
// (faults.md: all links off).
func TestDeadTime(t *testing.T) { inBothForms(t, testDeadTime) }

func testDeadTime(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.settle()
	r.pass = func(int, *flight) bool { return false }
	start := r.now
	for i := range 20 {
		r.submit(0, c[0], engine.Op{Kind: engine.OpKind(1 + i%2), Token: uint64(i), Key: key, Local: make([]byte, 8)})
	}
	r.must("the operations end", 20*time.Second, r.all(0, 20))
	if took := r.now.Sub(start); took < 14*time.Second || took > 17*time.Second {
		t.Errorf("after %v, want the dead time of 15 s", took)
	}
	for i := range 20 {
		r.wantStatus(0, uint64(i), engine.StatusPeerDown)
	}
	r.rest(3 * time.Second)
	for i := range r.n {
		if ev := r.n[i].closed[c[i]]; ev.Status != engine.StatusPeerDown {
			t.Errorf("node %d: the connection ended with %v", i, ev.Status)
		}
		if z := r.n[i].e.TableSizes(); z.Live != 0 || z.Sessions != 0 || z.Numbers != 0 {
			t.Errorf("node %d: %+v", i, z)
		}
	}
	r.pass = nil
	r.echoWorks(r.connect(engine.DialOptions{}))
}

// A process stopped for 10 s (a debugger, a suspended machine) tears nothing down, at either end, and goes on
// (faults.md).
func TestStoppedProcess(t *testing.T) {
	for _, which := range []int{0, 1} {
		w := sim.New(sim.Options{Seed: 1, Links: 2})
		ca, cb, err := w.Connect(w.Nodes[0], w.Nodes[1], engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		run := func(d time.Duration) {
			t.Helper()
			end := w.Now.Add(d)
			if err := w.Run(d+time.Second, func() bool { return w.Now >= end }); err != nil {
				t.Fatal(err)
			}
		}
		run(time.Second)
		for i, n := range w.Nodes {
			n.Handle = func(ev *engine.Event) {
				if ev.Kind == engine.EvClosed || ev.Kind == engine.EvPeerDown {
					t.Errorf("node %d was stopped: node %d reports %+v", which, i, ev)
				}
			}
		}
		w.Nodes[which].Down = true
		run(10 * time.Second)
		w.Nodes[which].Down = false
		run(5 * time.Second)
		if !w.Nodes[0].E.Submit(w.Now, ca, &engine.Op{Kind: engine.OpWrite}) || w.Nodes[1].E.Room(cb) == 0 {
			t.Error("the connection takes nothing any more")
		}
	}
}

// Both ends stopped at once for longer than the dead time, as when their machine is suspended.
func TestBothStopped(t *testing.T) { inBothForms(t, testBothStopped) }

func testBothStopped(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	r.settle()
	r.now = r.now.Add(time.Hour)
	r.rest(3 * time.Second)
	if len(r.n[0].closed)+len(r.n[1].closed) != 0 {
		t.Fatal("closed")
	}
	r.echoWorks(c)
}
