package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// Clause 5.1: a request that finds the table full is refused with the status limit, also when more come at once than
// there are records to refuse them with, and there is room again when a connection has ended.
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
	if n := r.n[1].e.Snapshot(r.now).Counters.Reject.RejectedNoRoom; n < many {
		t.Errorf("%d requests found no room, %d were made", n, many)
	}
	r.n[0].e.Close(r.now, last[0])
	r.must("closed", time.Second, func() bool { return len(r.n[0].closed) == many+1 && len(r.n[1].closed) == 1 })
	r.settle()
	r.connect(engine.DialOptions{})
}

// A peer that does not confirm that it was refused, or that a connection it made up is none, has no more than a quarter
// of the table; the rest is for others. When it confirms, it is served again.
func TestUnconfirmedRefusals(t *testing.T) {
	const most = 1024
	r := newRig(t, rigOptions{})
	r.boot(1, 1, rigOptions{maxConns: most})
	c := r.connect(engine.DialOptions{})
	like, pn := r.like(c[0], 1)
	r.pass = func(from int, f *flight) bool {
		return from == 0 || !carries(f.b, wire.KindRefuse) && !carries(f.b, wire.KindClose)
	}
	pn += 10_000 // its own frames have those before
	for k := range uint32(2 * most) {
		g := wire.Segment{Kind: wire.KindOpen, From: 1<<30 + k, Window: 16, Name: []byte("none")}
		if k%2 == 1 {
			g = wire.Segment{Kind: wire.KindAccept, Conn: 1<<30 + k, From: 1<<30 + k, Window: 16}
		}
		pn++
		r.give(1, flight{b: forge(like, pn, &g)})
	}
	if live := r.n[1].e.TableSizes().Live; live != 1+most/4 {
		t.Errorf("%d connections live, want %d", live, 1+most/4)
	}
	r.rest(100 * time.Millisecond)
	if _, err := r.n[1].e.Dial(r.now, "node0", "test", engine.DialOptions{}); err != nil {
		t.Error(err)
	}
	r.pass = nil
	r.must("the refusals are confirmed", 10*time.Second, func() bool { return r.n[1].e.TableSizes().Live == 1 })
	g := wire.Segment{Kind: wire.KindOpen, From: 1 << 29, Window: 16, Name: []byte("test")}
	r.give(1, flight{b: forge(like, pn+1, &g)})
	if ev := r.n[1].events[len(r.n[1].events)-1]; ev.Kind != engine.EvIncoming {
		t.Errorf("the next request: %+v", ev)
	}
}
