package engine

import (
	"time"

	"multiedge/internal/mono"
	"multiedge/internal/seqnum"
)

// Memory that a peer causes: rings of operations that overtook others, holes in operations, segments behind fences,
// notifications that were not taken. It is charged before it is allocated, to the session and to the connection's user
// (clause 7.5). Without room the frame counts as not received; the oldest operation of a connection always has the few
// bytes it needs, so that work goes on. Idle connections give back their memory.

// Prices in bytes; TestPricesCover compares them with the memory that things really take.
const (
	// each operation of a ring beyond firstRing, with its first spans and its places in the queues naks and reading
	ropCost      = 304
	noteCost     = 48  // each notification beyond firstNotes
	spanCost     = 16  // each span that a set has memory for beyond freeSpans
	heldOverhead = 256 // a held segment besides its data
)

// What an operation of a sending ring takes, and a buffer that is being filled.
const (
	sopCost     = 208
	arrivalCost = 64
)

// GaveBack returns how many bytes connections that rest have given back since it was called last, garbage now, and
// whether more is to be expected soon.
func (e *Endpoint) GaveBack() (bytes int, more bool) {
	bytes, e.gaveBack = e.gaveBack, 0
	return bytes, e.grown.len() > 0
}

// firstNotes is how many notifications of a connection are not charged.
const firstNotes = 16

// resting is how a connection's rest is noticed.
type resting struct {
	grown            bool         // in e.grown: there may be something to give back
	restSnd, restRcv seqnum.Value // sndNext and rcvBase when it was looked at last
}

// hasRoom reports whether so many bytes more may be kept for a connection. Where several users have connections none of
// them takes more than half.
func (c *conn) hasRoom(bytes int) bool {
	most := c.e.cfg.HeldBytes
	return c.s.heldMem+bytes <= most && (len(c.s.fair.users) == 1 || c.userShare().held+bytes <= most/2)
}

// charge notes that so many bytes more are kept for the connection, less if negative.
func (c *conn) charge(bytes int) {
	if bytes != 0 { // else there may be no session yet
		c.s.heldMem += bytes
		c.userShare().held += bytes
	}
}

func (c *conn) userShare() *share { return c.share.up.up }

// admit makes room to remember one of the peer's operations in the window, and the notifications that it and those
// before it may lead to.
func (c *conn) admit(op seqnum.Value) bool {
	d := c.rcvBase.Distance(op)
	return d < len(c.rops) && c.notes.len()+d < c.noteRoom || c.makeRoom(d)
}

// makeRoom is admit for the d-th operation after the oldest.
func (c *conn) makeRoom(d int) bool {
	if n := len(c.rops); d >= n {
		for n = max(n, firstRing); n <= d; n *= 2 {
		}
		if more := ropCost * (n - max(len(c.rops), firstRing)); more > 0 {
			if !c.hasRoom(more) {
				return false
			}
			c.charge(more)
			c.e.grew(c)
		}
		c.resizeRops(n)
	}
	c.noteRoom = max(c.noteRoom, firstNotes)
	if n, need := c.noteRoom, c.notes.len()+d+1; need > n {
		for n *= 2; n < need; n *= 2 {
		}
		more := noteCost * (n - c.noteRoom)
		if !c.hasRoom(more) {
			return false
		}
		c.charge(more)
		c.noteRoom = n
		c.e.grew(c)
	}
	return true
}

// resizeRops gives the ring of the peer's operations another length, which those there are fit into.
func (c *conn) resizeRops(n int) {
	old := c.rops
	c.rops = make([]recvOp, n)
	for i := range min(len(old), n) {
		op := c.rcvBase.Add(i)
		c.rops[uint32(op)&uint32(n-1)] = old[uint32(op)&uint32(len(old)-1)]
	}
}

// giveBack forgets the ring of the peer's operations, none of which is under way, and the room for notifications, none
// of which waits.
func (c *conn) giveBack() {
	bytes := 0
	for i := range c.rops {
		bytes += c.rops[i].got.charge()
	}
	bytes += ropCost*max(0, len(c.rops)-firstRing) + noteCost*max(0, c.noteRoom-firstNotes)
	c.charge(-bytes)
	c.rops, c.noteRoom = nil, 0
	c.notes, c.naks, c.answering = queue[Notification]{}, queue[seqnum.Value]{}, queue[seqnum.Value]{}
}

// Connections whose rings grew are looked at about every restTime, restMost at a time: one that nothing happened on
// since gives back what it needs no more.
const (
	restTime = time.Second
	restMost = 64
)

// grew puts a connection among those that are looked at.
func (e *Endpoint) grew(c *conn) {
	if !c.grown {
		c.grown = true
		if e.grown.len() == 0 {
			e.restAt = e.lastRun.Add(restTime)
		}
		e.grown.push(c.id)
	}
}

// restTimeout is when connections are looked at next.
func (e *Endpoint) restTimeout() mono.Time {
	if e.grown.len() == 0 {
		return mono.Never
	}
	return e.restAt
}

// shrinkResting has connections that rest give back what they grew to.
func (e *Endpoint) shrinkResting(now mono.Time) {
	n := e.grown.len()
	e.restAt = now.Add(restTime / time.Duration((n+restMost-1)/restMost))
	for range min(n, restMost) {
		id := *e.grown.front()
		e.grown.pop()
		c := e.conn(id)
		if c == nil {
			continue
		}
		if c.grown = !c.rest(); c.grown {
			e.grown.push(id)
		}
	}
}

// rest gives back what a connection grew to, if nothing happened since it was called last and nothing is under way. It
// reports whether it did.
func (c *conn) rest() bool {
	same := c.restSnd == c.sndNext && c.restRcv == c.rcvBase
	c.restSnd, c.restRcv = c.sndNext, c.rcvBase
	if !same || c.sndBase != c.sndNext || c.rcvBase != c.rcvTop || c.notes.len() > 0 || c.waiting() > 0 {
		return false
	}
	for i := range c.ops {
		c.charge(-c.ops[i].got.charge())
	}
	c.e.gaveBack += len(c.ops)*sopCost + len(c.rops)*ropCost
	c.ops = nil
	c.giveBack()
	if c.msgs != nil {
		c.e.gaveBack += c.msgs.giveBack()
	}
	c.retx, c.urgent = queue[resend]{}, queue[resend]{}
	return true
}

// giveBack forgets the memory for sends that waited, of which there are none, and for buffers that were being filled,
// and returns how much that was.
func (m *messages) giveBack() (bytes int) {
	bytes = cap(m.queue.items) * sopCost
	m.queue = queue[sendOp]{}
	if m.base == m.begun {
		bytes += len(m.buffers) * arrivalCost
		m.buffers = nil
	}
	return bytes
}
