package sim

import (
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// A node that sends to two peers as much as its link takes gives each the same, and acknowledges at once what a third one writes, however many sessions rest.
func TestTurns(t *testing.T) {
	for _, idle := range []int{0, 1, 7, 27} {
		t.Run(fmt.Sprint("idle=", idle), func(t *testing.T) { testTurns(t, idle) })
	}
}

func testTurns(t *testing.T, idle int) {
	const size = 64 << 10
	w := New(Options{Seed: 1, Nodes: 4 + idle, MTU: 9000, Slots: 1024})
	defer w.Stop()
	busy, writer := w.Nodes[0], w.Nodes[1]
	connect := func(a, b *Node) (engine.ConnID, *engine.Op) {
		t.Helper()
		ca, cb, err := w.Connect(a, b, engine.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		key, err := b.Grants.Grant(&regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, size))}, uint64(cb), regmem.RemoteWrite, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		return ca, &engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, size)}
	}
	type stream struct {
		c    engine.ConnID
		op   *engine.Op
		done int
	}
	var bulk [2]stream
	for k, n := range w.Nodes[2:] {
		c, op := connect(busy, n)
		if k < len(bulk) {
			bulk[k] = stream{c: c, op: op}
		}
	}
	lone := stream{}
	lone.c, lone.op = connect(writer, busy)
	lone.op.Local = lone.op.Local[:8]
	if err := w.Rest(300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}

	busy.Handle = func(ev *engine.Event) {
		for k := range bulk {
			if s := &bulk[k]; ev.Kind == engine.EvComplete && ev.Conn == s.c {
				s.done++
				busy.E.Submit(w.Now, s.c, s.op)
			}
		}
	}
	writer.Handle = func(ev *engine.Event) {
		if ev.Kind == engine.EvComplete {
			lone.done++
			writer.E.Submit(w.Now, lone.c, lone.op)
		}
	}
	for range 64 {
		for _, s := range bulk {
			busy.E.Submit(w.Now, s.c, s.op)
		}
	}
	writer.E.Submit(w.Now, lone.c, lone.op)

	// The link has room for one batch every 100 us.
	const turns = 500
	left := turns
	var turn func()
	turn = func() {
		busy.E.SetLinkBlocked(0, false)
		busy.E.PollTransmit(w.Now, busy.batch)
		for i := range busy.batch.Frames {
			w.send(busy, &busy.batch.Frames[i])
		}
		busy.batch.Reset()
		busy.E.SetLinkBlocked(0, true)
		if left--; left > 0 {
			w.After(100*time.Microsecond, turn)
		}
	}
	turn()
	if err := w.Run(time.Second, func() bool { return left == 0 }); err != nil {
		t.Fatal(err)
	}
	if a, b := bulk[0].done, bulk[1].done; a+b < turns/2 || min(a, b) < max(a, b)*3/4 {
		t.Errorf("writes to two peers: %d and %d", a, b)
	}
	if lone.done < turns/4 {
		t.Errorf("%d writes of a third peer completed in %d turns", lone.done, turns)
	}
}
