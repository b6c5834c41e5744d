package engine_test

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// Clause 9.1: what counts is how long a path has been asked in vain, not how long it was idle before.
func TestIdleIsNotDead(t *testing.T) { inBothForms(t, testIdleIsNotDead) }

func testIdleIsNotDead(t *testing.T, sealed bool) {
	for _, away := range []time.Duration{16 * time.Millisecond, 30 * time.Millisecond, 150 * time.Millisecond} {
		r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
		c := r.connect(engine.DialOptions{})
		_, key := r.export(1, c[1], 8, both)
		r.settle()
		op := engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 8)}
		for ; op.Token < 10; op.Token++ {
			r.submit(0, c[0], op)
			r.must("a write", time.Second, r.all(0, int(op.Token)+1))
		}
		r.rest(700 * time.Millisecond)
		r.n[0].events = nil
		back := r.now.Add(away)
		r.pass = func(int, *flight) bool { return r.now >= back }
		r.submit(0, c[0], op)
		r.must("a write to a peer that was away", time.Second, r.all(0, 11))
		r.rest(300 * time.Millisecond)
		for _, ev := range r.n[0].events {
			if ev.Kind == engine.EvPath && strings.Contains(ev.Text, "dead") {
				t.Errorf("away for %v: link %d: %s", away, ev.Link, ev.Text)
			}
		}
	}
}

// Clause 9.1: that a path is suspect, and good again, is a minor event; that it is dead, and used again, is none.
func TestSuspicionIsMinor(t *testing.T) {
	r := newRig(t, rigOptions{links: 2, mtu: 9000})
	s := newStream(r, r.connect(engine.DialOptions{}))
	r.settle()
	become := func(state string, pass bool) {
		t.Helper()
		r.pass = func(_ int, f *flight) bool { return pass || f.link == 0 }
		if !s.run(5*time.Second, func() bool { return r.path(0, 1).State == state }) {
			t.Fatalf("the path is %s, not %s", r.path(0, 1).State, state)
		}
	}
	become("suspect", false)
	become("good", true)
	become("dead", false)
	become("good", true)
	s.finish()
	minor := map[string]bool{"good -> suspect": true, "suspect -> good": true, "suspect -> dead": false,
		"dead -> good": false}
	for _, ev := range r.n[0].events {
		change, _, _ := strings.Cut(ev.Text, ":")
		want, known := minor[change]
		if ev.Kind == engine.EvPath && ev.Link == 1 && known && ev.Minor != want {
			t.Errorf("%q is minor: %v", ev.Text, ev.Minor)
		}
	}
	for change := range minor {
		if r.saidOfPaths(change)[0] == 0 {
			t.Errorf("no event tells of %q", change)
		}
	}
}

// Clauses 9.1 and 9.4: a path that stays dark is probed once a second, to the link it led to and to the other one, and
// sent nothing else but keep-alives; that is no loss, and it is used again as soon as it answers.
func TestDarkPathIsLeftAlone(t *testing.T) { inBothForms(t, testDarkPathIsLeftAlone) }

func testDarkPathIsLeftAlone(t *testing.T, sealed bool) {
	for _, c := range []struct {
		name string
		pass func(from int, f *flight) bool
	}{
		{"both ways", func(_ int, f *flight) bool { return f.link == 0 }},
		{"towards the peer", func(from int, f *flight) bool { return f.link == 0 || from == 1 }},
	} {
		r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
		s := newStream(r, r.connect(engine.DialOptions{}))
		r.settle()
		s.forTime(50*time.Millisecond, 20*time.Millisecond)
		r.pass = c.pass
		s.forTime(time.Second, stallLimit)
		r.rest(15 * time.Second)
		was := r.n[0].e.Count
		frames := r.path(0, 1).Counters.Frames
		r.rest(10 * time.Second)
		now := r.n[0].e.Count
		if p := r.path(0, 1); p.State != "dead" || p.Counters.Frames-frames > 30 {
			t.Errorf("%s: a path that is %s was sent %d frames in 10 s", c.name, p.State, p.Counters.Frames-frames)
		}
		if now.Loss.FramesLost != was.Loss.FramesLost || now.Loss.TailProbes != was.Loss.TailProbes {
			t.Errorf("%s: %d frames lost and %d probe times in 10 s", c.name, now.Loss.FramesLost-was.Loss.FramesLost,
				now.Loss.TailProbes-was.Loss.TailProbes)
		}
		r.pass = nil
		if !r.until(1200*time.Millisecond, func() bool { return r.path(0, 1).State == "good" }) {
			t.Errorf("%s: healed, it is %s after 1.2 s", c.name, r.path(0, 1).State)
		}
		s.finish()
	}
}

// A path that comes back may lead another way: what was learned of the old one, the shortest round trip above all,
// would keep its window at the least for ever.
func TestReturnsByAnotherWay(t *testing.T) { inBothForms(t, testReturnsByAnotherWay) }

func testReturnsByAnotherWay(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
	s := newStream(r, r.connect(engine.DialOptions{}))
	s.depth = 64
	r.settle()
	s.forTime(100*time.Millisecond, 20*time.Millisecond)
	r.pass = func(_ int, f *flight) bool { return f.link == 0 }
	s.run(time.Second, func() bool { return r.path(0, 1).State == "dead" })
	r.hop = 3 * time.Millisecond
	r.pass = nil
	s.run(time.Second, func() bool { return r.path(0, 1).State == "good" })
	s.forTime(2*time.Second, 100*time.Millisecond)
	if p := r.path(0, 1); p.State != "good" || p.MinRTT < 2*r.hop || p.Window < 32 {
		t.Errorf("the path is %s, its shortest round trip %v, its window %v frames", p.State, p.MinRTT, p.Window)
	}
	s.finish()
}
