package ipc

import "testing"

// BenchmarkRings is an operation's way through both rings, submission and completion, by one thread: alone, and 32 at
// once.
func BenchmarkRings(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(map[int]string{1: "one at a time", 32: "32 at once"}[batch], func(b *testing.B) {
			r := newRings(b, 64)
			sp, sc, cp, cc := r.SubmitProducer(), r.SubmitConsumer(), r.CompleteProducer(), r.CompleteConsumer()
			in, out := make([]SQE, batch), make([]CQE, batch)
			e, c := SQE{Op: OpWrite}, CQE{Kind: CQComplete}
			b.ReportAllocs()
			done := 0
			for b.Loop() { // of one operation
				if done++; done%batch != 0 {
					continue
				}
				if room, err := sp.Room(); room < batch || err != nil {
					b.Fatal(room, err)
				}
				for range batch {
					sp.Put(&e)
				}
				sp.Publish()
				if n, err := sc.Drain(in); n != batch || err != nil {
					b.Fatal(n, err)
				}
				cp.Refresh()
				for range batch {
					cp.Put(&c)
				}
				cp.Publish()
				if n, err := cc.Drain(out); n != batch || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkDoorbell is a doorbell rung and heard: what waking a process costs besides the switch.
func BenchmarkDoorbell(b *testing.B) {
	bell, err := NewDoorbell()
	must(b, err)
	defer bell.Close()
	b.ReportAllocs()
	for b.Loop() {
		bell.Ring()
		bell.Clear()
	}
}

// BenchmarkWatcher is the same where the waiter has what watches the doorbell, as clients have.
func BenchmarkWatcher(b *testing.B) {
	bell, w := watched(b)
	b.ReportAllocs()
	for b.Loop() {
		bell.Ring()
		w.Clear()
	}
}
