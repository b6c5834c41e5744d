package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// A node that sends to two peers as much as its link takes gives each the same, and acknowledges at once what others
// write, however many sessions rest. Others that want more acknowledgements than the link takes frames get them in
// turn, and leave the two their part.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ idle, writers, bulk, lone int }{{0, 1, 250, 200}, {1, 1, 250, 200}, {7, 1, 250, 200},
		{27, 1, 250, 200}, {0, 36, 200, 100}} {
		t.Run(fmt.Sprintf("idle=%d,writers=%d", c.idle, c.writers), func(t *testing.T) {
			testTurns(t, c.idle, c.writers,
				c.bulk, c.lone)
		})
	}
}

func testTurns(t *testing.T, idle, writers, leastBulk, leastLone int) {
	const size = 64 << 10
	w := New(Options{Seed: 1, Nodes: 3 + idle + writers, MTU: 9000, Slots: 1024})
	defer w.Stop()
	busy := w.Nodes[0]
	connect := func(a, b *Node) (engine.ConnID, *engine.Op) {
		t.Helper()
		ca, cb, err := w.Connect(a, b, engine.DialOptions{})
		must(t, err)
		key, err := b.Grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, size))}, uint64(cb),
			regmem.RemoteWrite, 0, size)
		must(t, err)
		return ca, &engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, size)}
	}
	type stream struct {
		c    engine.ConnID
		op   *engine.Op
		done int
	}
	var bulk [2]stream
	lone := make([]stream, writers)
	for k, n := range w.Nodes[1:] {
		switch i := k - len(bulk) - idle; {
		case k < len(bulk):
			bulk[k].c, bulk[k].op = connect(busy, n)
		case i < 0:
			connect(busy, n)
		default:
			lone[i].c, lone[i].op = connect(n, busy)
			lone[i].op.Local = lone[i].op.Local[:8]
		}
	}
	must(t, w.Rest(300*time.Millisecond))

	busy.Handle = func(ev *engine.Event) {
		for k := range bulk {
			if s := &bulk[k]; ev.Kind == engine.EvComplete && ev.Conn == s.c {
				s.done++
				busy.E.Submit(w.Now, s.c, s.op)
			}
		}
	}
	for k := range lone {
		s, n := &lone[k], w.Nodes[1+len(bulk)+idle+k]
		n.Handle = func(ev *engine.Event) {
			if ev.Kind == engine.EvComplete {
				s.done++
				n.E.Submit(w.Now, s.c, s.op)
			}
		}
		n.E.Submit(w.Now, s.c, s.op)
	}
	for range 64 {
		for _, s := range bulk {
			busy.E.Submit(w.Now, s.c, s.op)
		}
	}

	const batches = 500
	turns(t, w, busy, batches)
	if a, b := bulk[0].done, bulk[1].done; a+b < leastBulk || min(a, b) < max(a, b)*3/4 {
		t.Errorf("writes to two peers: %d and %d", a, b)
	}
	var done []int
	for k := range lone {
		done = append(done, lone[k].done)
	}
	if slices.Min(done) < leastLone {
		t.Errorf("writes of others that completed in %d turns: %d", batches, done)
	}
}

// turns has a node send n batches on its first link, one every 100 us: there is always more to send.
func turns(t *testing.T, w *World, busy *Node, n int) {
	var turn func()
	turn = func() {
		busy.E.SetLinkBlocked(0, false)
		busy.E.PollTransmit(w.Now, &busy.batch)
		for link, f := range busy.batch.All() {
			w.send(busy, link, f)
		}
		busy.batch.Reset()
		busy.E.SetLinkBlocked(0, true)
		if n--; n > 0 {
			w.After(100*time.Microsecond, turn)
		}
	}
	turn()
	must(t, w.Run(time.Second, func() bool { return n == 0 }))
}
