package engine_test

import (
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// lone has node 0 carry out one operation after the other while node 1's link is blocked at some of its turns; it
// returns how many complete.
func (r *rig) lone(d time.Duration, c engine.ConnID, op *engine.Op, blocked func(turn int) bool) int {
	const turn = 2 * time.Microsecond
	first := len(r.n[0].done)
	for k := range int(d / turn) {
		r.now = r.now.Add(turn)
		if len(r.n[0].done) == int(op.Token) {
			r.submit(0, c, *op)
			op.Token++
		}
		for _, f := range r.take(0) {
			r.give(1, f)
		}
		r.n[1].e.SetLinkBlocked(0, blocked(k))
		for _, f := range r.take(1) {
			r.give(0, f)
		}
	}
	return len(r.n[0].done) - first
}

// A link that is full at most of the moments at which its shell looks, as one is that others send on, holds
// acknowledgements up until it has room, and no longer.
func TestAcksWaitForRoom(t *testing.T) { inBothForms(t, testAcksWaitForRoom) }

func testAcksWaitForRoom(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 8, both)
	r.settle()
	op := engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, 8)}
	free := r.lone(20*time.Millisecond, c[0], &op, func(int) bool { return false })
	busy := r.lone(20*time.Millisecond, c[0], &op, func(turn int) bool { return turn%5 != 0 })
	if busy < free/2 {
		t.Errorf("%d writes in 20 ms over a link that is always free, %d if it is at every fifth look", free, busy)
	}
	if n := r.n[0].e.Count.Loss.FramesRetransmitted; n > 0 {
		t.Errorf("%d frames were sent again", n)
	}
}

// A peer that asks is answered on all links even if none has room at first.
func TestAskedWhileBlocked(t *testing.T) {
	r := newRig(t, rigOptions{links: 2})
	c := r.connect(engine.DialOptions{})
	r.settle()
	like, pn := r.like(c[0], 1)
	for i := range 2 {
		r.n[1].e.SetLinkBlocked(i, true)
	}
	link := int(like[4]) // as macOf says
	r.give(1, flight{link: link, b: forge(like, pn+1, &wire.Segment{Kind: wire.KindPing})})
	for end := r.now.Add(500 * time.Microsecond); r.now < end; r.now = max(r.now+1, min(end, r.n[1].e.NextTimeout())) {
		if n := len(r.take(1)); n > 0 {
			t.Fatalf("%d frames on links that are blocked", n)
		}
	}
	on := [2]int{}
	for i := range 2 {
		r.n[1].e.SetLinkBlocked(i, false)
	}
	for _, f := range r.take(1) {
		if carries(f.b, wire.KindAck) {
			on[f.link]++
		}
	}
	if on != [2]int{1, 1} {
		t.Errorf("acknowledgements by link: %v", on)
	}
}
