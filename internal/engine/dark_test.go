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
