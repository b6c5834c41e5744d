package engine_test

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// Clause 16.4: reads of a heap grant that is revoked end at once, those that wait for a trip as those that wait for
// room for one, and no trip begins any more.
func TestHeapGone(t *testing.T) {
	const reads, size = 100, 32 << 10
	r := newRig(t, rigOptions{mtu: 9000})
	c := r.connect(engine.DialOptions{})
	r.settle()
	e := r.n[1].e
	var trips []*regmem.Trip
	by := regmem.NewCarrier(func(t *regmem.Trip) bool { trips = append(trips, t); return true })
	heap, err := by.Heap(1<<20, reads*size)
	if err != nil {
		t.Fatal(err)
	}
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, reads*size)), Back: heap}
	key, err := r.n[1].grants.Grant(region, uint64(c[1]), regmem.RemoteRead, 0, reads*size)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(reads) {
		r.submit(0, c[0], engine.Op{Kind: engine.OpRead, Token: i, Key: key, Off: i * size,
			Local: make([]byte, size)})
	}
	for e.Holding().Parked < reads {
		if !r.round() {
			t.Fatalf("%d of %d reads wait", e.Holding().Parked, reads)
		}
	}
	begun := len(trips)
	if begun == 0 || begun == reads {
		t.Fatalf("%d trips for %d reads: none of them waits for room, or all do", begun, reads)
	}
	r.n[1].grants.RevokeRegion(region)
	e.Gone(r.now, heap)
	r.take(1)
	if n := e.Count.AccessRefused; n != reads || e.Holding().Parked != 0 {
		t.Errorf("%d of %d reads were refused, %d wait still", n, reads, e.Holding().Parked)
	}
	for _, trip := range trips {
		by.Over(trip)
		e.Carried(r.now, trip)
	}
	if len(trips) != begun {
		t.Errorf("%d trips began afterwards", len(trips)-begun)
	}
}

// So do writes, those that a fence held until the room for trips was less than what they are. The end of another grant
// is no reason to try them again.
func TestHeapGoneForWrites(t *testing.T) {
	const writes, size, enough = 250, 32 << 10, 500
	r := newRig(t, rigOptions{mtu: 9000})
	c := r.connect(engine.DialOptions{})
	r.settle()
	e := r.n[1].e
	var trips []*regmem.Trip
	by := regmem.NewCarrier(func(t *regmem.Trip) bool { trips = append(trips, t); return true })
	heap, err := by.Heap(1<<20, writes*size)
	if err != nil {
		t.Fatal(err)
	}
	region := &regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, writes*size)), Back: heap}
	key, err := r.n[1].grants.Grant(region, uint64(c[1]), regmem.RemoteWrite, 0, writes*size)
	if err != nil {
		t.Fatal(err)
	}
	r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.ForwardFence, Key: key, Local: []byte{1}})
	for i := range uint64(writes) {
		r.submit(0, c[0], engine.Op{Kind: engine.OpWrite, Token: 1 + i, Key: key, Off: i * size,
			Local: make([]byte, size)})
	}
	for held := uint64(0); held < enough; held = e.Count.SegmentsHeld {
		if !r.round() {
			t.Fatalf("%d parts are held, want %d", held, enough)
		}
	}
	by.Over(trips[0])
	e.Carried(r.now, trips[0]) // the fence falls
	if begun, parked := len(trips)-1, e.Holding().Parked; begun == 0 || begun >= parked {
		t.Fatalf("%d trips for %d parts: none of them waits for room, or all do", begun, parked)
	}
	other, err := by.Heap(1<<20, size)
	if err != nil {
		t.Fatal(err)
	}
	heap.Touch(0, 1, 0, regmem.WriteTarget)
	use := heap.Last()
	if e.Gone(r.now, other); heap.Last() != use {
		t.Error("parts were tried again when another grant ended")
	}
	r.n[1].grants.RevokeRegion(region)
	e.Gone(r.now, heap)
	if n := e.Holding().Parked; n != 0 {
		t.Errorf("%d parts wait still", n)
	}
}
