package sim

import (
	"errors"
	"time"

	"multiedge/internal/mono"
	"multiedge/regmem"
)

// carried is an area that is not mapped at its node: couriers carry its bytes (regmem.Heap). The engine has addresses
// without memory for it, here memory that must never be used.
type carried struct {
	w     *World
	area  *area
	by    *regmem.Carrier
	trips []*regmem.Trip // that begin, in order
	free  mono.Time      // when the courier has made them all
	nil   []byte         // what the engine may not touch
}

const (
	heapBase = 1 << 40               // the address of each
	never    = 0xAB                  // what is where the engine may not look
	slowTrip = 60 * time.Millisecond // few take as long: what they carry is sent again meanwhile
)

var errNoMemory = errors.New("sim: no memory there")

// heaped decides whether an area is one.
func (w *World) heaped() bool {
	return w.opt.Misses.Delay > 0 && !w.opt.Misses.Drop && w.memory.IntN(3) == 0
}

func newHeap(w *World, a *area) *carried {
	h := &carried{w: w, area: a, nil: make([]byte, a.size)}
	for i := range h.nil {
		h.nil[i] = never
	}
	h.by = regmem.NewCarrier(h.send)
	back, err := h.by.Heap(heapBase, uint64(a.size))
	if err != nil {
		panic("BUG: sim: " + err.Error())
	}
	a.region.Mem, a.region.Back = regmem.Wrap(h.nil), back
	return h
}

// send makes a trip a while later, and one after the other.
func (h *carried) send(t *regmem.Trip) bool {
	if len(h.trips) > 100 {
		return false
	}
	n := h.area.node
	e := n.E
	h.trips = append(h.trips, t)
	most := h.w.opt.Misses.Delay/4 + 1
	if h.w.memory.IntN(16) == 0 {
		most = slowTrip
	}
	h.free = max(h.free, h.w.Now).Add(time.Duration(1 + h.w.memory.Int64N(int64(most))))
	h.w.After(h.free.Sub(h.w.Now), func() {
		h.make(t)
		if h.by.Over(t); !n.Down && n.E == e {
			e.Carried(h.w.Now, t)
		}
	})
	return true
}

// make moves the bytes of the trips up to t.
func (h *carried) make(t *regmem.Trip) {
	for len(h.trips) > 0 && h.trips[0].Number <= t.Number {
		t := h.trips[0]
		h.trips = h.trips[1:]
		off := int(t.At - heapBase)
		if h.area.pages.anyStuck(off, len(t.Data)) {
			t.Err = errNoMemory
		} else if at := h.area.buf[off : off+len(t.Data)]; t.Puts {
			copy(at, t.Data)
		} else {
			copy(t.Data, at)
		}
	}
}

// settle makes all trips, as whoever is told that memory is its own again has waited for.
func (a *area) settle() {
	if a.heap != nil && len(a.heap.trips) > 0 {
		a.heap.make(a.heap.trips[len(a.heap.trips)-1])
	}
}

// local is what the engine is given for bytes of the area.
func (a *area) local(off, n int) []byte { return a.region.Mem.Bytes()[off : off+n : off+n] }
