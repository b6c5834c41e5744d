package regmem_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"multiedge/regmem"
)

// queue is a courier that makes no trip by itself.
type queue struct{ trips []*regmem.Trip }

func (q *queue) send(t *regmem.Trip) bool {
	q.trips = append(q.trips, t)
	return true
}

// TestHeapRoom: what puts and what fetches have rooms of their own, which come back; what was fetched and nobody sends
// loses its buffer to others after a while.
func TestHeapRoom(t *testing.T) {
	var q queue
	c := regmem.NewCarrier(q.send)
	h, err := c.Heap(4096, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	use := regmem.Use{Off: 100, N: 9000, Follows: 1 << 20}
	for h.Fetch(use) != nil {
	}
	fetches := len(q.trips)
	if n := len(q.trips[0].Data); fetches != 32 || n != 63000 || q.trips[0].At != 4196 {
		t.Fatalf("%d trips fetch %d bytes at %#x: want whole parts, 64 KiB at most", fetches, n, q.trips[0].At)
	}
	h.Touch(7, 3, 0, regmem.WriteTarget)
	put := h.Put([]byte("b"), []byte("cd"))
	if put == nil || put.At != 4103 || !bytes.Equal(put.Data, []byte("bcd")) || !put.Puts {
		t.Fatalf("a put while fetches wait: %+v", put)
	}
	if got, want := put.Number, uint64(fetches+1); got != want || c.Begun() != want || c.Settled(want) {
		t.Errorf("trip %d of %d is over: %v", got, want, c.Settled(want))
	}
	for _, trip := range q.trips {
		c.Over(trip)
	}
	if put.Give(); !c.Settled(put.Number) {
		t.Error("all trips are over, and not settled")
	}
	h.Moved(time.Second)
	for _, trip := range q.trips[:fetches] {
		trip.Fetched()
	}
	if h.Idle(time.Second + 10*time.Millisecond); h.Fetch(use) != nil {
		t.Error("what was fetched just now lost its buffer")
	}
	h.Idle(2 * time.Second)
	thief := h.Fetch(use)
	if thief == nil || len(q.trips[0].Data) != 0 || len(q.trips[1].Data) == 0 {
		t.Fatal("the oldest that nobody sends keeps its buffer")
	}
	thief.Give()
	for _, trip := range q.trips[:fetches] {
		trip.Give()
	}
	for range 32 {
		if h.Fetch(use) == nil {
			t.Fatal("the room did not come back")
		}
	}
}

// TestHeapRanges: ranges that no process can have are refused.
func TestHeapRanges(t *testing.T) {
	c := regmem.NewCarrier((&queue{}).send)
	for _, r := range []struct {
		addr, n uint64
		want    error
	}{{0, 1 << 46, nil}, {1<<56 - 1, 1, nil}, {0, 0, regmem.ErrSize}, {0, 1<<46 + 1, regmem.ErrSize},
		{1 << 56, 1, regmem.ErrBounds}, {^uint64(0), 1, regmem.ErrBounds}, {^uint64(0) - 5, 100, regmem.ErrBounds},
		{0xffff_8000_0000_0000, 4096, regmem.ErrBounds}, {4096, ^uint64(0), regmem.ErrSize}} {
		if _, err := c.Heap(r.addr, r.n); !errors.Is(err, r.want) {
			t.Errorf("%#x, %#x: %v, want %v", r.addr, r.n, err, r.want)
		}
	}
}
