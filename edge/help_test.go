package edge_test

import (
	"context"
	"testing"
	"time"

	"multiedge/edge"
)

// testContext ends long after any test should have.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// eventually polls a condition of the world that no channel announces.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// exportToAll exports r under name to whoever dials, until ctx ends.
func exportToAll(ctx context.Context, l *edge.Listener, r *edge.Region, name string, perm edge.Perm) {
	for {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		r.Export(c, name, perm, 0, r.Len())
	}
}

// messages is two Devices of a fabric that are connected, with memory and a completion queue each.
type messages struct {
	conn [2]*edge.Conn
	mem  [2]*edge.Region
	cq   [2]*edge.CompletionQueue
}

func newMessages(t *testing.T) *messages {
	t.Helper()
	fab := edge.NewFabric()
	t.Cleanup(func() { fab.Close() })
	m := &messages{}
	var dev [2]*edge.Device
	for i, name := range []string{"a", "b"} {
		var err error
		dev[i], err = fab.Open(name)
		must(t, err)
		m.mem[i], err = dev[i].Register(1 << 16)
		must(t, err)
		m.cq[i], err = dev[i].NewCompletionQueue(1024)
		must(t, err)
	}
	m.conn[0], m.conn[1] = edge.PairOn(t, testContext(t), dev[0], dev[1], "m")
	return m
}
