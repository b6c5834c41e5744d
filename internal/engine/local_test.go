package engine_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// localWrites follows writes with LocalDone of node 0, and spoils the bytes of each as soon as they are its owner's.
type localWrites struct {
	r      *rig
	c      [2]engine.ConnID
	local  [][]byte
	region []*regmem.Region
	given  map[uint64]bool
	late   map[uint64]engine.Status
	seen   int
}

func (l *localWrites) submit(key regmem.Key, off uint64, data []byte) (token uint64) {
	token = uint64(len(l.local))
	buf := bytes.Clone(data)
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(buf)}
	l.local, l.region = append(l.local, buf), append(l.region, region)
	op := engine.Op{Kind: engine.OpWrite, Flags: engine.LocalDone, Token: token, Late: token, Local: buf,
		Region: region, Key: key, Off: off}
	l.r.submit(0, l.c[0], op)
	l.look()
	return token
}

// look takes what has happened.
func (l *localWrites) look() bool {
	l.r.poll(0)
	n := l.r.n[0]
	for ; l.seen < len(n.events); l.seen++ {
		switch ev := n.events[l.seen]; {
		case ev.Kind == engine.EvComplete && ev.Local:
			l.given[ev.Token] = true
			clear(l.local[ev.Token])
			if use := l.region[ev.Token].InFlight; use != 0 {
				l.r.t.Errorf("write %d is done locally, and %d operations use its region", ev.Token, use)
			}
		case ev.Kind == engine.EvLate:
			l.late[ev.Token] = ev.Status
		}
	}
	return false
}

// Clause 15.1: short writes are complete when they are submitted, long ones when the peer has acknowledged their
// frames; what was written then arrives, although the owner has changed his bytes and frames are lost.
func TestLocalDone(t *testing.T) { inBothForms(t, testLocalDone) }

func testLocalDone(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, links: 2, mtu: 9000})
	c := r.connect(engine.DialOptions{})
	const size = 1 << 20
	mem, key := r.export(1, c[1], size, both)
	r.settle()
	l := &localWrites{r: r, c: c, given: map[uint64]bool{}, late: map[uint64]engine.Status{}}
	lost := 0
	r.pass = func(from int, f *flight) bool {
		l.look()
		if from == 0 && len(f.b) > 1000 && lost < 20 {
			lost++
			return lost%3 != 0
		}
		return true
	}
	var want []byte
	for i, n := range []int{0, 5, 24, 25, 1000, 64 << 10, 64<<10 + 1, 300_000} {
		data := pattern(i, n)
		token := l.submit(key, uint64(len(want)), data)
		want = append(want, data...)
		if copied := n <= 64<<10; l.given[token] != copied {
			t.Errorf("a write of %d bytes is done when it is submitted: %v, want %v", n, l.given[token], copied)
		}
	}
	r.must("all writes to end", time.Second, func() bool { l.look(); return len(l.late) == len(l.local) })
	for token, st := range l.late {
		if st != engine.OK || !l.given[token] {
			t.Errorf("write %d ended with %v, done locally before: %v", token, st, l.given[token])
		}
	}
	if !bytes.Equal(mem[:len(want)], want) {
		t.Error("what arrived is not what was written")
	}
	n := &r.n[0].e.Count
	if lost < 20 || n.Op.WritesCopied != 3 || n.Op.WritesAcked != 2 || n.Op.OpsFailedLate != 0 {
		t.Errorf("%d frames lost, %d writes copied, %d acknowledged, %d failed late", lost, n.Op.WritesCopied,
			n.Op.WritesAcked, n.Op.OpsFailedLate)
	}
	if h := r.n[0].e.Holding(); h.Copied != 0 {
		t.Errorf("%d bytes of copies are held at rest", h.Copied)
	}
}

// A write that a fence holds at the peer is done locally when its frames are there.
func TestLocalDoneBeforeApplied(t *testing.T) {
	r := newRig(t, rigOptions{links: 1, mtu: 9000})
	c := r.connect(engine.DialOptions{})
	mem, key := r.export(1, c[1], 1<<20, both)
	r.settle()
	l := &localWrites{r: r, c: c, given: map[uint64]bool{}, late: map[uint64]engine.Status{}}
	first := true
	r.pass = func(from int, f *flight) bool {
		if from == 0 && first && len(f.b) > 7000 { // of a long write before the fence
			first = false
			return false
		}
		return true
	}
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 99, Local: pattern(1, 8000), Key: key})
	data := pattern(2, 100_000)
	l.local, l.region = append(l.local, bytes.Clone(data)), append(l.region, &regmem.Region{ID: 1})
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.LocalDone | engine.BackwardFence, Local: l.local[0],
		Key: key, Off: 8000})
	r.must("the write to be done locally", time.Second, func() bool { l.look(); return l.given[0] })
	if _, over := l.late[0]; over {
		t.Error("the write was applied before it was done locally")
	}
	r.must("the write to be applied", time.Second, func() bool { l.look(); return len(l.late) == 1 })
	if !bytes.Equal(mem[8000:108_000], data) {
		t.Error("what arrived is not what was written")
	}
}

// What becomes of a write after it was done locally is said: refusals, and the end of the connection.
func TestLocalDoneFailsLate(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := r.connect(engine.DialOptions{})
	_, ro := r.export(1, c[1], 4096, regmem.RemoteRead)
	_, key := r.export(1, c[1], 4096, both)
	l := &localWrites{r: r, c: c, given: map[uint64]bool{}, late: map[uint64]engine.Status{}}
	l.submit(key, 4000, pattern(1, 200))
	l.submit(ro, 0, pattern(1, 8))
	l.submit(key+1, 0, pattern(1, 2000))
	r.must("the refusals", time.Second, func() bool { l.look(); return len(l.late) == 3 })
	l.submit(key, 0, pattern(1, 100))
	r.n[0].e.Abort(r.now, c[0], engine.StatusAborted)
	r.must("the end", time.Second, func() bool { l.look(); return len(l.late) == 4 })
	want := fmt.Sprint(map[uint64]engine.Status{0: engine.StatusBounds, 1: engine.StatusPermission, 2: engine.StatusKey,
		3: engine.StatusAborted})
	if got := fmt.Sprint(l.late); got != want || len(l.given) != 4 {
		t.Errorf("ends %v, want %v; %d done locally before", got, want, len(l.given))
	}
	if n := r.n[0].e.Count.Op.OpsFailedLate; n != 4 {
		t.Errorf("%d failures counted", n)
	}
}

// Copies are bounded: where a peer takes nothing, writes beyond the room wait for it, as do those of a connection with
// a window of them hidden.
func TestLocalDoneIsBounded(t *testing.T) {
	r := newRig(t, rigOptions{window: 256})
	c := r.connect(engine.DialOptions{})
	_, key := r.export(1, c[1], 1<<20, both)
	l := &localWrites{r: r, c: c, given: map[uint64]bool{}, late: map[uint64]engine.Status{}}
	r.pass = func(int, *flight) bool { return false }
	for range 100 {
		l.submit(key, 0, pattern(1, 64<<10))
	}
	if held := r.n[0].e.Holding().Copied; len(l.given) != 64 || held != 4<<20 {
		t.Errorf("%d writes of 64 KiB are done, %d bytes held; want 64 and 4 MiB", len(l.given), held)
	}
	for range 300 {
		if r.n[0].e.Room(c[0]) == 0 {
			t.Fatal("hidden writes take room in the window")
		}
		l.submit(key, 0, pattern(1, 8))
	}
	if len(l.given) != 256-36 {
		t.Errorf("%d writes are done of a window of 256, where 36 wait", len(l.given))
	}
}
