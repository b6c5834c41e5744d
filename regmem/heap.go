package regmem

import (
	"fmt"
	"time"
)

// A heap grant is memory that stays where its process has it, for example on its heap, and that is not mapped here: a
// courier carries its bytes. To the engine it is a Backing nothing of which is ever resident: each part of an operation
// that meets it waits for a trip. A trip that puts has the bytes of one part, which counts as in place when the trip is
// over; one that fetches brings the bytes of several parts of one operation, which keeps it until they are sent.

// Bounds of heap grants.
const (
	MaxHeap    = 1 << 46 // bytes of one
	TopAddress = 1 << 56 // they end before it: no process has memory there
	putRoom    = 4 << 20 // bytes of buffers of the trips of one carrier: that put
	fetchRoom  = 2 << 20 // and that fetch, until what they fetched is sent
	idleRoom   = 2 << 20 // and that are kept for reuse
	tripMost   = 64 << 10
	tripQueue  = 1024 // trips that may wait; a power of two
	// CarrierCost is what a carrier takes at most.
	CarrierCost = putRoom + fetchRoom + idleRoom + 2*tripQueue*256
	// What was fetched and not sent for so long may lose its buffer to another trip: a peer that takes nothing does not
	// keep others waiting.
	unsentTime = 50 * time.Millisecond
)

var tripSizes = [...]int{256, 2 << 10, 10 << 10, tripMost}

// Carrier is what the heap grants of one process share: a budget of buffers, and whoever makes the trips. Pure; the
// goroutine that owns the regions calls it.
type Carrier struct {
	send          func(*Trip) bool
	puts, fetches int    // bytes of buffers that there is room for
	begun, ended  uint64 // numbers of trips
	now, moved    time.Duration
	room          Heap // what waits for room waits for
	unsent        Trip // the list of those that fetched what is to be sent, the oldest first
	idle          [len(tripSizes)][]*Trip
	idleBytes     int
}

// NewCarrier returns one whose trips send takes, in order; false: too many wait.
func NewCarrier(send func(*Trip) bool) *Carrier {
	c := &Carrier{send: send, puts: putRoom, fetches: fetchRoom}
	c.unsent.older, c.unsent.newer = &c.unsent, &c.unsent
	c.room.by = c
	return c
}

// Trip is bytes on their way. Until it is over, whoever makes it has it.
type Trip struct {
	Of     *Heap
	Number uint64 // Wait.Page
	Puts   bool
	At     uint64 // address in the process
	Data   []byte
	Err    error // why it failed

	Tag  uint64 // the engine's: where in an operation fetched bytes begin
	Next *Trip  // the engine's

	older, newer *Trip // in Carrier.unsent, since a time
	since        time.Duration
}

// Heap is the memory of one grant. It implements Backing.
type Heap struct {
	by   *Carrier
	addr uint64
	last Use
}

// Use is bytes of a Heap: N from Off on, and how many follow them.
type Use struct{ Off, N, Follows uint64 }

// Pages of Heap.Room.
const (
	RoomToPut = iota
	RoomToFetch
)

// Heap returns n bytes of the process at addr. The error wraps ErrSize or ErrBounds.
func (c *Carrier) Heap(addr, n uint64) (*Heap, error) {
	switch {
	case n == 0 || n > MaxHeap:
		return nil, fmt.Errorf("%w: a grant of %d bytes of a process; choose 1 to 2^46", ErrSize, n)
	case addr > TopAddress || n > TopAddress-addr:
		return nil, fmt.Errorf("%w: no process has memory from %#x to %#x", ErrBounds, addr, addr+n)
	}
	return &Heap{by: c, addr: addr}, nil
}

// Room returns what stands for the room that all heaps of a carrier share.
func (h *Heap) Room() *Heap { return &h.by.room }

// Last returns the latest use.
func (h *Heap) Last() Use { return h.last }

// Touch implements Backing.
func (h *Heap) Touch(off, n, follows uint64, _ Site) (page uint64, ok bool) {
	if n == 0 {
		return 0, true
	}
	h.last = Use{off, n, follows}
	return 0, false
}

// Moved notes when a trip of the carrier was over.
func (h *Heap) Moved(now time.Duration) { h.by.moved, h.by.now = now, now }

// Idle returns for how long none was.
func (h *Heap) Idle(now time.Duration) time.Duration {
	h.by.now = now
	return now - h.by.moved
}

// Ask implements Backing.
func (h *Heap) Ask(page uint64) (resident, busy bool) {
	return h == &h.by.room && page == RoomToPut && h.by.puts >= tripMost, false
}

// Put has bytes, which are in two pieces, carried to where the latest use was; nil: there is no room for another trip.
func (h *Heap) Put(first, rest []byte) *Trip {
	t := h.by.trip(len(first)+len(rest), &h.by.puts)
	if t == nil {
		return nil
	}
	copy(t.Data[copy(t.Data, first):], rest)
	return h.start(t, h.last.Off, true)
}

// Fetch has the bytes of a use brought, with some that follow; nil: there is no room for another trip.
func (h *Heap) Fetch(u Use) *Trip {
	n := u.N
	if u.Follows > 0 { // as many parts of that length as go
		n = min(n+u.Follows, max(n, tripMost/n*n))
	}
	t := h.by.trip(int(n), &h.by.fetches)
	if t == nil {
		return nil
	}
	return h.start(t, u.Off, false)
}

func (h *Heap) start(t *Trip, off uint64, puts bool) *Trip {
	c := h.by
	t.Of, t.Number, t.Puts, t.At = h, c.begun+1, puts, h.addr+off
	if !c.send(t) {
		t.Give()
		return nil
	}
	c.begun++
	return t
}

// trip returns one with a buffer of n bytes, nil if there is no room.
func (c *Carrier) trip(n int, room *int) *Trip {
	k := 0
	for k < len(tripSizes) && tripSizes[k] < n {
		k++
	}
	if k == len(tripSizes) {
		return nil
	}
	if tripSizes[k] > *room {
		t := c.unsentFor(n)
		if room != &c.fetches || t == nil {
			return nil
		}
		t.unlist()
		b := t.Data[:n]
		t.Data = nil // its operation does not find it any more
		return &Trip{Data: b}
	}
	*room -= tripSizes[k]
	if i := len(c.idle[k]); i > 0 {
		t := c.idle[k][i-1]
		c.idle[k] = c.idle[k][:i-1]
		c.idleBytes -= tripSizes[k]
		t.Data = t.Data[:n]
		return t
	}
	return &Trip{Data: make([]byte, n, tripSizes[k])}
}

// Fetched notes that what a trip fetched is to be sent. Until Give its buffer may be taken away.
func (t *Trip) Fetched() {
	l := &t.Of.by.unsent
	t.since, t.older, t.newer = t.Of.by.now, l.older, l
	t.older.newer, l.older = t, t
}

// unsentFor returns the first that waits for too long, with a buffer of n bytes at least; nil: there is none.
func (c *Carrier) unsentFor(n int) *Trip {
	for t := c.unsent.newer; t != &c.unsent && c.now-t.since >= unsentTime; t = t.newer {
		if cap(t.Data) >= n {
			return t
		}
	}
	return nil
}

func (t *Trip) unlist() {
	if t.older != nil {
		t.older.newer, t.newer.older = t.newer, t.older
		t.older, t.newer = nil, nil
	}
}

// Give gives back the buffer of a trip that is over.
func (t *Trip) Give() {
	c, size := t.Of.by, cap(t.Data)
	t.unlist()
	if t.Puts {
		c.puts += size
	} else {
		c.fetches += size
	}
	t.Next, t.Err = nil, nil
	if size == 0 || c.idleBytes+size > idleRoom {
		return
	}
	for k, s := range tripSizes {
		if s == size {
			c.idle[k] = append(c.idle[k], t)
			c.idleBytes += size
		}
	}
}

// Over notes that a trip is over. Trips end in the order in which they began.
func (c *Carrier) Over(t *Trip) { c.ended = t.Number }

// Begun returns the number of the latest trip.
func (c *Carrier) Begun() uint64 { return c.begun }

// Settled reports whether all trips up to mark are over.
func (c *Carrier) Settled(mark uint64) bool { return c.ended >= mark }

// Carried reports whether the memory that the latest Resolve found is a heap grant: it has no bytes here.
func (t *Table) Carried() bool {
	_, ok := t.last.region.Back.(*Heap)
	return ok
}
