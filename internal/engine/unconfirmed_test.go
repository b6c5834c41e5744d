package engine_test

import (
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// A peer that confirms the end of no connection does not fill the table with those that are opened to it from here, or
// asked for in vain: further dials wait, and go on when it has confirmed.
func TestLimboOfOwnDials(t *testing.T) {
	const most = 256
	r := newRig(t, rigOptions{maxConns: most})
	keep := r.connect(engine.DialOptions{})
	a, b := r.n[0], r.n[1]
	hush := true
	r.pass = func(from int, f *flight) bool { return !hush || from != 0 || !carries(f.b, wire.KindClose) }
	seen := 0
	dial := func(wait time.Duration, accepts bool) (answered bool, text string) {
		id, err := a.e.Dial(r.now, "node1", "test", engine.DialOptions{Timeout: wait})
		if err != nil {
			t.Fatal(err)
		}
		r.must("an answer", 2*wait, func() bool {
			for ; seen < len(b.events); seen++ {
				if ev := &b.events[seen]; ev.Kind == engine.EvIncoming && accepts {
					if err := b.e.Accept(r.now, ev.Conn, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, ev := range a.events {
				answered = answered || ev.Kind == engine.EvConnected && ev.Conn == id
			}
			return answered || a.closed[id].Kind != 0
		})
		text = a.closed[id].Text
		a.events = nil
		a.e.Close(r.now, id)
		return answered, text
	}
	last := ""
	for k := range 2 * most {
		_, last = dial(10*time.Millisecond, k%2 == 0)
	}
	if n := a.e.Holding().Conns; n > most/4+2 {
		t.Errorf("%d connections are in a table of %d", n, most)
	}
	if !strings.Contains(last, "has not confirmed the ends of 64 earlier connections") {
		t.Errorf("a dial ended with %q", last)
	}
	hush = false
	if ok, text := dial(3*time.Second, true); !ok {
		t.Errorf("when the peer has confirmed: %s", text)
	}
	if r.status(0, keep[0]).ID != keep[0] {
		t.Error("another connection has ended")
	}
}
