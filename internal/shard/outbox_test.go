package shard

import (
	"testing"
	"time"

	"multiedge/internal/ipc"
)

// All connections of a client that is slow to read may end at once without costing it its place; more than that may not
// wait.
func TestOutboxHoldsTheEndOfEveryConnection(t *testing.T) {
	const conns = 10000
	o := NewOutbox(conns)
	end := []*ipc.Message{{Kind: ipc.KindClosed}}
	for i := range OutboxLimit + 2*conns {
		if !o.put(end) {
			t.Fatalf("message %d does not fit", i)
		}
	}
	if o.put(end) {
		t.Fatal("there is no limit")
	}
	if n := len(o.Take(nil)); n != OutboxLimit+2*conns {
		t.Fatalf("%d messages taken", n)
	}
	if !o.put(end) {
		t.Fatal("it stays full after it was emptied")
	}
}

// A client that asks on and on without reading the answers is not asked to the last: what waits for it is bounded, and
// it keeps its place once it reads.
func TestShortOutbox(t *testing.T) {
	const most = 10
	o := NewOutbox(1)
	msgs := make([]*ipc.Message, most+1)
	o.put(msgs)
	served := make(chan struct{})
	go func() {
		o.Short(most)
		close(served)
	}()
	select {
	case <-served:
		t.Fatal("served before the answers were taken")
	case <-time.After(10 * time.Millisecond):
	}
	o.Take(nil)
	<-served
	o.put(msgs)
	o.Close()
	o.Short(most) // does not wait for ever
}
