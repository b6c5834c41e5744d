package engine_test

import (
	"math"
	"testing"

	"multiedge/internal/engine"
	"multiedge/regmem"
)

// grantRig is a connection whose end at node 1 has granted memory by a heap grant.
type grantRig struct {
	*rig
	c      [2]engine.ConnID
	by     *regmem.Carrier
	heap   *regmem.Heap
	region *regmem.Region
	key    regmem.Key
	trips  []*regmem.Trip // that couriers have been given
}

func newGrantRig(t *testing.T, size uint64, perm regmem.Perm) *grantRig {
	r := &grantRig{rig: newRig(t, rigOptions{mtu: 9000})}
	r.c = r.connect(engine.DialOptions{})
	r.settle()
	r.by = regmem.NewCarrier(func(t *regmem.Trip) bool { r.trips = append(r.trips, t); return true })
	var err error
	if r.heap, err = r.by.Heap(1<<20, size); err != nil {
		t.Fatal(err)
	}
	r.region = &regmem.Region{ID: 1, Mem: regmem.Wrap(make([]byte, size)), Back: r.heap}
	if r.key, err = r.n[1].grants.Grant(r.region, uint64(r.c[1]), perm, 0, size); err != nil {
		t.Fatal(err)
	}
	return r
}

// Clause 16.4: reads of a heap grant that is revoked end at once, those that wait for a trip as those that wait for
// room for one, and no trip begins any more.
func TestHeapGone(t *testing.T) {
	const reads, size = 100, 32 << 10
	r := newGrantRig(t, reads*size, regmem.RemoteRead)
	e := r.n[1].e
	for i := range uint64(reads) {
		r.submit(0, r.c[0], engine.Op{Kind: engine.OpRead, Token: i, Key: r.key, Off: i * size,
			Local: make([]byte, size)})
	}
	for e.Holding().Parked < reads {
		if !r.round() {
			t.Fatalf("%d of %d reads wait", e.Holding().Parked, reads)
		}
	}
	begun := len(r.trips)
	if begun == 0 || begun == reads {
		t.Fatalf("%d trips for %d reads: none of them waits for room, or all do", begun, reads)
	}
	r.n[1].grants.RevokeRegion(r.region, math.MaxInt)
	e.Gone(r.now, r.heap)
	r.take(1)
	if n := e.Count.Op.AccessRefused; n != reads || e.Holding().Parked != 0 {
		t.Errorf("%d of %d reads were refused, %d wait still", n, reads, e.Holding().Parked)
	}
	for _, trip := range r.trips {
		r.by.Over(trip)
		e.Carried(r.now, trip)
	}
	if len(r.trips) != begun {
		t.Errorf("%d trips began afterwards", len(r.trips)-begun)
	}
}

// So do writes, those that a fence held until the room for trips was less than what they are. The end of another grant
// is no reason to try them again.
func TestHeapGoneForWrites(t *testing.T) {
	const writes, size, enough = 250, 32 << 10, 500
	r := newGrantRig(t, writes*size, regmem.RemoteWrite)
	e := r.n[1].e
	r.submit(0, r.c[0], engine.Op{Kind: engine.OpWrite, Flags: engine.ForwardFence, Key: r.key, Local: []byte{1}})
	for i := range uint64(writes) {
		r.submit(0, r.c[0], engine.Op{Kind: engine.OpWrite, Token: 1 + i, Key: r.key, Off: i * size,
			Local: make([]byte, size)})
	}
	for held := uint64(0); held < enough; held = e.Count.Op.SegmentsHeld {
		if !r.round() {
			t.Fatalf("%d parts are held, want %d", held, enough)
		}
	}
	r.by.Over(r.trips[0])
	e.Carried(r.now, r.trips[0]) // the fence falls
	if begun, parked := len(r.trips)-1, e.Holding().Parked; begun == 0 || begun >= parked {
		t.Fatalf("%d trips for %d parts: none of them waits for room, or all do", begun, parked)
	}
	other, err := r.by.Heap(1<<20, size)
	if err != nil {
		t.Fatal(err)
	}
	r.heap.Touch(0, 1, 0, regmem.WriteTarget)
	use := r.heap.Last()
	if e.Gone(r.now, other); r.heap.Last() != use {
		t.Error("parts were tried again when another grant ended")
	}
	r.n[1].grants.RevokeRegion(r.region, math.MaxInt)
	e.Gone(r.now, r.heap)
	if n := e.Holding().Parked; n != 0 {
		t.Errorf("%d parts wait still", n)
	}
}
