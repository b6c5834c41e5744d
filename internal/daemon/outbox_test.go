package daemon

import (
	"testing"

	"multiedge/internal/ipc"
)

// All connections of a client that is slow to read may end at once without costing it its place; more than that may not wait.
func TestOutboxHoldsTheEndOfEveryConnection(t *testing.T) {
	const conns = 10000
	o := newOutbox(conns)
	end := []*ipc.Message{{Kind: ipc.KindClosed}}
	for i := range outboxLimit + 2*conns {
		if !o.put(end) {
			t.Fatalf("message %d does not fit", i)
		}
	}
	if o.put(end) {
		t.Fatal("there is no limit")
	}
	if n := len(o.take(nil)); n != outboxLimit+2*conns {
		t.Fatalf("%d messages taken", n)
	}
	if !o.put(end) {
		t.Fatal("it stays full after it was emptied")
	}
}
