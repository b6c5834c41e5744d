package edge

import (
	"runtime"
	"testing"
	"time"

	"multiedge/internal/ipc"
)

// Whoever sees that an operation is done may post the next: its slot is free by then, though the leader has more of the
// batch to take.
func TestDoneMeansRoom(t *testing.T) {
	const depth = 8
	p := newDuo(t, Config{QueueDepth: depth}, 4096)
	p.f.setHold(true)
	defer p.f.setHold(false)
	d := p.client.at.Load()
	post := func() (Op, error) {
		return p.out.Post(NoWait, &Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote})
	}
	var ops [depth]Op
	before := p.f.submits.Load()
	for i := range ops {
		var err error
		ops[i], err = post()
		must(t, err)
	}
	for p.f.submits.Load() < before+depth { // there is room in the ring
		runtime.Gosched()
	}
	if _, err := post(); err != ErrAgain {
		t.Fatalf("one more than fit: %v", err)
	}
	if !d.lead.try() {
		t.Fatal("somebody leads")
	}
	defer d.resign()
	for i, op := range ops[:depth/2] {
		if !d.take(&ipc.CQE{Kind: ipc.CQComplete, Conn: p.out.id, Token: opKey(op.slot, op.gen)}) || !op.Done() {
			t.Fatalf("operation %d is not done", i)
		}
		next, err := post()
		if err != nil {
			t.Fatalf("operation %d is done, the next: %v", i, err)
		}
		if !op.Done() || next.Done() {
			t.Fatalf("operation %d done %v, the next in its place %v", i, op.Done(), next.Done())
		}
	}
}

// A Post that does not wait takes what has completed when it finds no room: a program that only posts goes on.
func TestPostMakesRoom(t *testing.T) {
	p := newDuo(t, Config{QueueDepth: 16}, 4096)
	p.f.setHold(true)
	w := Work{Kind: Write, Inline: []byte{1}, Remote: p.remote}
	for range 16 {
		must(t, second(p.out.Post(NoWait, &w)))
	}
	p.f.release()
	eventually(t, "there is room", 10*time.Second, func() bool { return second(p.out.Post(NoWait, &w)) == nil })
}
