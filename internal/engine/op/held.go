package op

import (
	"time"

	"multiedge/internal/engine/op/fair"
	"multiedge/internal/engine/queue"
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
	heldOverhead = 256 // a held segment besides its data
)

// sopCost is what an operation of a sending ring takes.
const sopCost = 224

// GaveBack returns how many bytes connections that rest have given back since it was called last, garbage now, and
// whether more is to be expected soon.
func (e *Endpoint) GaveBack() (bytes int, more bool) {
	bytes, e.Conns.gaveBack = e.Conns.gaveBack, 0
	return bytes, e.Conns.grown.Len() > 0
}

// firstNotes is how many notifications of a connection are not charged.
const firstNotes = 16

// resting is how a connection's rest is noticed.
type resting struct {
	grown      bool         // in Endpoint.Conns.grown: there may be something to give back
	send, recv seqnum.Value // send.next and recv.base when it was looked at last
}

// hasRoom reports whether so many bytes more may be kept for a connection. Where several users have connections none of
// them takes more than half.
func (c *Conn) hasRoom(bytes int) bool {
	most := c.e.cfg.HeldBytes
	return c.S.heldMem+bytes <= most && (c.S.Fair.OneUser() || c.userShare().Held+bytes <= most/2)
}

// charge notes that so many bytes more are kept for the connection, less if negative.
func (c *Conn) charge(bytes int) {
	if bytes != 0 { // else there may be no session yet
		c.S.heldMem += bytes
		c.userShare().Held += bytes
	}
}

func (c *Conn) userShare() *fair.Share[*Conn] { return c.share.UserShare() }

// admit makes room to remember one of the peer's operations in the window, and the notifications that it and those
// before it may lead to.
func (c *Conn) admit(op seqnum.Value) bool {
	d := c.recv.base.Distance(op)
	return d < len(c.recv.rops) && c.recv.notes.Len()+d < c.recv.noteRoom || c.makeRoom(d)
}

// makeRoom is admit for the d-th operation after the oldest.
func (c *Conn) makeRoom(d int) bool {
	if n := len(c.recv.rops); d >= n {
		for n = max(n, firstRing); n <= d; n *= 2 {
		}
		if more := ropCost * (n - max(len(c.recv.rops), firstRing)); more > 0 {
			if !c.hasRoom(more) {
				return false
			}
			c.charge(more)
			c.e.grew(c)
		}
		c.resizeRops(n)
	}
	c.recv.noteRoom = max(c.recv.noteRoom, firstNotes)
	if n, need := c.recv.noteRoom, c.recv.notes.Len()+d+1; need > n {
		for n *= 2; n < need; n *= 2 {
		}
		more := noteCost * (n - c.recv.noteRoom)
		if !c.hasRoom(more) {
			return false
		}
		c.charge(more)
		c.recv.noteRoom = n
		c.e.grew(c)
	}
	return true
}

// resizeRops gives the ring of the peer's operations another length, which those there are fit into.
func (c *Conn) resizeRops(n int) {
	old := c.recv.rops
	c.recv.rops = make([]recvOp, n)
	for i := range min(len(old), n) {
		op := c.recv.base.Add(i)
		c.recv.rops[uint32(op)&uint32(n-1)] = old[uint32(op)&uint32(len(old)-1)]
	}
}

// giveBack forgets the ring of the peer's operations, none of which is under way, and the room for notifications, none
// of which waits.
func (c *Conn) giveBack() {
	bytes := 0
	for i := range c.recv.rops {
		bytes += c.recv.rops[i].got.Charge()
	}
	bytes += ropCost*max(0, len(c.recv.rops)-firstRing) + noteCost*max(0, c.recv.noteRoom-firstNotes)
	c.charge(-bytes)
	c.recv.rops, c.recv.noteRoom = nil, 0
	c.recv.notes, c.recv.naks, c.recv.answering = queue.Queue[Notification]{}, queue.Queue[seqnum.Value]{},
		queue.Queue[seqnum.Value]{}
}

// Connections whose rings grew are looked at about every restTime, restMost at a time: one that nothing happened on
// since gives back what it needs no more.
const (
	restTime = time.Second
	restMost = 64
)

// grew puts a connection among those that are looked at.
func (e *Endpoint) grew(c *Conn) {
	if !c.resting.grown {
		c.resting.grown = true
		if e.Conns.grown.Len() == 0 {
			e.Conns.restAt = e.lastRun.Add(restTime)
		}
		e.Conns.grown.Push(c.ID)
	}
}

// restTimeout is when connections are looked at next.
func (e *Endpoint) restTimeout() mono.Time {
	if e.Conns.grown.Len() == 0 {
		return mono.Never
	}
	return e.Conns.restAt
}

// shrinkResting has connections that rest give back what they grew to.
func (e *Endpoint) shrinkResting(now mono.Time) {
	n := e.Conns.grown.Len()
	e.Conns.restAt = now.Add(restTime / time.Duration((n+restMost-1)/restMost))
	for range min(n, restMost) {
		id := *e.Conns.grown.Front()
		e.Conns.grown.Pop()
		c := e.conn(id)
		if c == nil {
			continue
		}
		if c.resting.grown = !c.rest(); c.resting.grown {
			e.Conns.grown.Push(id)
		}
	}
}

// rest gives back what a connection grew to, if nothing happened since it was called last and nothing is under way. It
// reports whether it did.
func (c *Conn) rest() bool {
	same := c.resting.send == c.send.next && c.resting.recv == c.recv.base
	c.resting.send, c.resting.recv = c.send.next, c.recv.base
	if !same || c.send.base != c.send.next || c.recv.base != c.recv.top || c.recv.notes.Len() > 0 || c.waiting() > 0 {
		return false
	}
	for i := range c.send.ops {
		c.charge(-c.send.ops[i].got.Charge())
	}
	c.e.Conns.gaveBack += len(c.send.ops)*sopCost + len(c.recv.rops)*ropCost
	c.send.ops = nil
	c.giveBack()
	if c.msgs != nil {
		c.e.Conns.gaveBack += c.msgs.giveBack()
	}
	c.send.retx, c.send.urgent = queue.Queue[resend]{}, queue.Queue[resend]{}
	return true
}

// giveBack forgets the memory for sends that waited, of which there are none, and for buffers that were being filled,
// and returns how much that was.
func (m *messages) giveBack() (bytes int) {
	bytes = cap(m.waiting.queue.Items) * sopCost
	m.waiting.queue = queue.Queue[sendOp]{}
	return bytes + m.in.GiveBack()
}
