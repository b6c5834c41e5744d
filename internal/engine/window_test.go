package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/wire"
)

// longRead begins a read that lasts, and completes around it the writes that its window still has room for. It returns
// the write of a byte that tells its number, and the memory.
func (r *rig) longRead(c [2]engine.ConnID, window int, read []byte) (write func(token int), mem []byte) {
	mem, key := r.export(1, c[1], len(read)+2*window, both)
	copy(mem, pattern(1, len(read)))
	r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: 1000, Key: key, Local: read})
	write = func(n int) {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: uint64(n), Key: key, Off: uint64(len(read) + n),
			Local: []byte{byte(n)}})
	}
	for n := range window - 1 {
		write(n)
		r.must("a write beside the read", time.Second, r.all(0, n+1))
	}
	return write, mem[len(read):]
}

// Operations are taken as long as fewer than the window are outstanding, however many completed around the oldest.
// Those too far from it are sent when it has completed.
func TestWindowCountsWhatIsOutstanding(t *testing.T) {
	const window, all = 16, 2 * 15
	r := newRig(t, rigOptions{window: window})
	c := r.connect(engine.DialOptions{})
	r.settle()
	read := make([]byte, 8<<20)
	write, mem := r.longRead(c, window, read)
	for n := window - 1; n < all; n++ {
		write(n)
	}
	if r.n[0].e.Room(c[0]) != 0 || r.n[0].e.Submit(r.now, c[0], &engine.Op{Kind: engine.OpWrite}) {
		t.Errorf("more than %d operations are taken", window)
	}
	if st := r.n[0].e.Snapshot(r.now).Connections[0]; st.Outstanding != window {
		t.Errorf("%d operations are outstanding, want %d", st.Outstanding, window)
	}
	r.must("everything", 10*time.Second, r.all(0, all+1))
	place := map[uint64]int{}
	for i := range r.n[0].events {
		place[r.n[0].events[i].Token] = i
	}
	for n := range uint64(all) {
		r.wantStatus(0, n, engine.OK)
		if mem[n] != byte(n) {
			t.Errorf("write %d is not in place", n)
		}
		if n >= window && place[n] < place[1000] {
			t.Errorf("write %d, beyond the window, completed before the read", n)
		}
	}
	if !bytes.Equal(read, pattern(1, len(read))) {
		t.Error("the read brought other bytes")
	}
	if room := r.n[0].e.Room(c[0]); room != window {
		t.Errorf("room for %d operations at the end", room)
	}
}

// What waits beyond the window ends with its connection, once.
func TestWaitingOperationsEndWithTheirConnection(t *testing.T) {
	const window = 4
	r := newRig(t, rigOptions{window: window})
	c := r.connect(engine.DialOptions{})
	r.settle()
	write, _ := r.longRead(c, window, make([]byte, 8<<20))
	for n := window - 1; n < 2*(window-1); n++ {
		write(n)
	}
	r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
	r.must("closed", time.Second, func() bool { return len(r.n[0].closed) == 1 })
	for n := window - 1; n < 2*(window-1); n++ {
		r.wantStatus(0, uint64(n), engine.StatusAborted)
	}
}

// A peer that claims to have applied, refused or read what it was never sent ends nothing.
func TestAnswersToWhatWasNotSent(t *testing.T) {
	const window = 4
	r := newRig(t, rigOptions{window: window})
	c := r.connect(engine.DialOptions{})
	like, pn := r.like(c[0], 0)
	for n := range window { // no frame carries them yet
		r.submit(1, c[1], engine.Op{Kind: engine.OpRead, Token: uint64(n), Key: 1, Local: make([]byte, 8)})
	}
	for op := range uint32(window) {
		for _, g := range []wire.Segment{
			{Kind: wire.KindOpAck, Conn: uint32(c[1]), Op: op + 1, Limit: op + 1 + window},
			{Kind: wire.KindOpNak, Conn: uint32(c[1]), Op: op, Status: uint8(engine.StatusKey)},
			{Kind: wire.KindReadData, Conn: uint32(c[1]), Op: op, Data: make([]byte, 8)},
		} {
			pn++
			r.give(1, flight{b: forge(like, pn, &g)})
		}
	}
	if len(r.n[1].done) != 0 {
		t.Errorf("ended: %v", r.n[1].done)
	}
}
