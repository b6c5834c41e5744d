package engine_test

import (
	"bytes"
	"testing"
	"time"

	"multiedge/internal/engine"
)

// What a Reader found counts when it is handled, not when it was read: a frame that two of them read arrives once, and
// one whose session is over by then is of a session that nobody knows.
func TestArrivalsAreJudgedLate(t *testing.T) { inBothForms(t, testArrivalsAreJudgedLate) }

func testArrivalsAreJudgedLate(t *testing.T, sealed bool) {
	r := newRig(t, rigOptions{sealed: sealed, lazy: true, mtu: 9000})
	c := r.connect(engine.DialOptions{})
	const size = 30_000
	mem, key := r.export(1, c[1], size, both)
	r.settle()
	want := pattern(7, size)
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: want, Token: 1})
	flights := r.take(0)
	var frames [][]byte
	for _, f := range flights {
		frames = append(frames, f.b)
	}
	readers := [2]*engine.Reader{r.n[1].reader, r.n[1].e.NewReader()}
	var arrivals [2][]engine.Arrival
	for i := range readers {
		arrivals[i] = make([]engine.Arrival, len(frames))
		readers[i].Read(frames, arrivals[i])
	}
	before := r.n[1].e.Count
	for k := range frames {
		for i := range arrivals {
			r.n[1].e.Handle(r.now, flights[k].link, arrivals[i][k])
		}
	}
	r.n[1].e.Placed()
	if !bytes.Equal(mem, want) {
		t.Error("the write is not in place")
	}
	after := &r.n[1].e.Count
	if n, read := after.Loss.FramesDuplicated-before.Loss.FramesDuplicated,
		after.Placing.FramesFromReaders-before.Placing.FramesFromReaders; n != uint64(len(frames)) || read != 2*n ||
		after.Op.OpsApplied-before.Op.OpsApplied != 1 {
		t.Errorf("of %d frames, each read twice, %d were duplicates, %d were read, %d operations applied", len(frames),
			n, read, after.Op.OpsApplied-before.Op.OpsApplied)
	}
	r.must("the write", time.Second, r.all(0, 1))

	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Key: key, Local: make([]byte, size), Token: 2})
	flights, frames = r.take(0), frames[:0]
	for _, f := range flights {
		frames = append(frames, f.b)
	}
	late := make([]engine.Arrival, len(frames))
	readers[1].Read(frames, late)
	r.boot(1, 2, rigOptions{sealed: sealed, lazy: true, mtu: 9000}) // the same frames, and another node
	unknown := r.n[1].e.Count.Reject.UnknownSession
	for k := range late {
		r.n[1].e.Handle(r.now, flights[k].link, late[k])
	}
	r.n[1].e.Placed()
	if n := r.n[1].e.Count.Reject.UnknownSession - unknown; n != uint64(len(frames)) {
		t.Errorf("%d of %d frames were of a session that is not known", n, len(frames))
	}
	if !bytes.Equal(mem, want) {
		t.Error("a frame of a session that is over was placed")
	}
}
