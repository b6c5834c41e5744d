//go:build !race

package ipc

import "testing"

// Not under the race detector, whose hooks make buffers of system calls escape.
func TestRingsDoNotAllocate(t *testing.T) {
	r := newRings(t, 64)
	sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
	bell, err := NewDoorbell()
	must(t, err)
	defer bell.Close()
	in, out := make([]SQE, 8), make([]CQE, 8)
	e, c := SQE{Op: OpWrite}, CQE{Kind: CQComplete}
	if n := testing.AllocsPerRun(100, func() {
		sp.Room()
		sp.Put(&e)
		sp.Publish()
		sc.Drain(in)
		cp.Refresh()
		cp.Put(&c)
		cp.Publish()
		cc.Drain(out)
		bell.Ring()
		bell.Clear()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
