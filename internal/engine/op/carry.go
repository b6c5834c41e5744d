package op

import (
	"time"

	"multiedge/internal/engine/build"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Memory that couriers carry (regmem.Heap) always misses (miss.go): what meets it is parked until a courier has made a
// trip for it. The trip of a segment that arrived puts its data; it is performed then, but for the copy, so that no
// operation is applied before its bytes are there. Nor is one applied while a trip of an older copy of a segment is
// under way: it would write over what the program does with the memory then. The trip of a part that is to be sent
// fetches it, with parts that follow, and the operation has the bytes until they are sent.

// parkCarried parks a segment that arrived, whose memory is carried: its data is in the buffer of a trip, which the
// owner of the memory has paid for. It reports false if there is no room for that.
func (c *Conn) parkCarried(now mono.Time, g *segment, h *regmem.Heap, site regmem.Site) bool {
	t := h.Put(g.inOrder())
	if t == nil {
		return false
	}
	m := c.e.misses.trying
	if m == nil || g != &m.What.seg {
		m = c.e.misses.parked.New(now)
		m.What.seg = *g
	}
	m.What.seg.data, m.What.seg.lasting, m.What.cost, m.Heap = t.Data, true, 0, h
	c.park(now, m, regmem.Wait{Back: h, Page: t.Number}, site)
	if site == regmem.ReadDest {
		c.sop(g.op).puts++
	} else {
		c.rop(g.op).puts++
	}
	return true
}

// landed reports whether g is tried again since its data is in place.
func (e *Endpoint) landed(g *segment) bool {
	m := e.misses.trying
	return m != nil && m.What.landed && g == &m.What.seg
}

// Carried says that a courier has made a trip.
func (e *Endpoint) Carried(now mono.Time, t *regmem.Trip) {
	of := t.Of
	of.Moved(time.Duration(now))
	if m := e.misses.parked.First(regmem.Wait{Back: of, Page: t.Number}); m != nil {
		e.carried(now, m, t)
	} else {
		t.Give() // its operation is over
	}
	e.misses.parked.Again(now, regmem.Wait{Back: of.Room(), Page: regmem.RoomToPut}, 1)
	e.misses.parked.FetchMore(now, of)
}

// carried goes on with what waited for a trip.
func (e *Endpoint) carried(now mono.Time, m *missed, t *regmem.Trip) {
	c, failed := e.conn(m.What.conn), t.Err != nil
	if c == nil || c.S == nil || c.state == connLast {
		t.Give()
		e.again(now, m)
		return
	}
	if t.Puts {
		c.wasPut(m)
	}
	switch {
	case t.Puts || failed || !c.keepTrip(m, t):
		t.Give()
	}
	if failed {
		e.missFailed(now, m)
		return
	}
	m.What.landed = m.What.site == regmem.WriteTarget || m.What.site == regmem.ReadDest
	e.again(now, m)
}

// wasPut notes that the trip of a segment is over.
func (c *Conn) wasPut(m *missed) {
	if m.What.site == regmem.ReadDest {
		if c.outstanding(m.What.seg.op) {
			c.sop(m.What.seg.op).puts--
		}
	} else if o := c.waitingOp(m.What.seg.op); o != nil {
		o.puts--
	}
}

// keepTrip gives what was fetched to the operation that waits for it. Of two that it has already the older goes: the
// parts that it was for miss again.
func (c *Conn) keepTrip(m *missed, t *regmem.Trip) bool {
	var at **regmem.Trip
	if m.What.site == regmem.WriteSource {
		if !c.outstanding(m.What.part.op) {
			return false
		}
		at = &c.sop(m.What.part.op).fetched
	} else {
		o := c.answeredOp(m.What.part.op)
		if o == nil {
			return false
		}
		at = &o.fetched
	}
	if *at != nil {
		dropTrips(&(*at).Next)
	}
	t.Tag, t.Next = m.What.off, *at
	*at = t
	t.Fetched()
	return true
}

// fetched returns bytes [off, off+n) of those that were fetched for an operation, copied to where they last as long as
// the frame; nil: they are not there. What was sent to its end is given back.
func (c *Conn) fetched(w *build.Frame, at **regmem.Trip, off, n uint64, small bool) []byte {
	for ; *at != nil; at = &(*at).Next {
		t := *at
		end := t.Tag + uint64(len(t.Data))
		if off < t.Tag || off+n > end {
			continue
		}
		var b []byte
		if small {
			b = w.SmallRoom(n)
		} else {
			b = w.Scratch(int(n))
		}
		copy(b, t.Data[off-t.Tag:])
		if off+n == end {
			*at = t.Next
			of := t.Of
			t.Give()
			c.e.misses.parked.FetchMore(w.Now, of)
		}
		return b
	}
	return nil
}

// dropTrips gives back a list of trips.
func dropTrips(at **regmem.Trip) {
	for *at != nil {
		t := *at
		*at = t.Next
		t.Give()
	}
}
