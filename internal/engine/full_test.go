package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// Clause 5.1: a request that finds the table full is refused with the status limit, also when more come at once than there are records to refuse them with,
// and there is room again when a connection has ended.
func TestFullTable(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.boot(1, 1, rigOptions{maxConns: 4})
	var last [2]engine.ConnID
	for range 4 {
		last = r.connect(engine.DialOptions{})
	}
	if _, err := r.n[1].e.Dial(r.now, "node0", "test", engine.DialOptions{}); !errors.Is(err, engine.ErrConns) {
		t.Fatalf("dialling with a full table: %v", err)
	}
	const many = 300
	for range many {
		if _, err := r.n[0].e.Dial(r.now, "node1", "test", engine.DialOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.must("every request is answered", time.Second, func() bool { return len(r.n[0].closed) == many })
	for _, ev := range r.n[0].closed {
		if ev.Status != engine.StatusLimit || !strings.Contains(ev.Text, "all 4 connections") {
			t.Fatalf("a request ended with %v %q", ev.Status, ev.Text)
		}
	}
	if n := r.n[1].e.Snapshot(r.now).Counters.RejectedNoRoom; n < many {
		t.Errorf("%d requests found no room, %d were made", n, many)
	}
	r.n[0].e.Close(r.now, last[0])
	r.must("closed", time.Second, func() bool { return len(r.n[0].closed) == many+1 && len(r.n[1].closed) == 1 })
	r.settle()
	r.connect(engine.DialOptions{})
}
