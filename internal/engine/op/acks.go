package op

import (
	"multiedge/internal/engine/build"
	"multiedge/internal/seqnum"
	"multiedge/internal/wire"
)

// Acknowledgements of operations to the peer (clause 7.1).

// AppendAcks appends the OpAcks that are owed. It reports false if there was no room for one.
func (s *Session) AppendAcks(w *build.Frame) bool {
	for s.OpAcks.Len() > 0 {
		c := *s.OpAcks.Front()
		n := c.opAckLen()
		if w.Room < n+64 {
			return false
		}
		s.OpAcks.Pop()
		c.recv.owesAck = false
		if c.state == connFree || c.remote == 0 {
			continue
		}
		c.opAck(w)
	}
	return true
}

// opAckLen is the length of the connection's OpAck as of now.
func (c *Conn) opAckLen() int {
	if c.recv.appliedAhead == 0 {
		return 16
	}
	return 16 + 8*min(16, (c.recv.base.Distance(c.recv.top)+62)/64)
}

// opAck appends an OpAck (clause 7.1).
func (c *Conn) opAck(w *build.Frame) {
	g := &w.Seg
	if limit := c.creditLimit(); c.recv.limitSent.Before(limit) {
		c.recv.limitSent = limit
	}
	*g = wire.Segment{Kind: wire.KindOpAck, Conn: c.remote, Op: uint32(c.recv.base), Limit: uint32(c.recv.limitSent)}
	n := len(w.Tail)
	words := (c.opAckLen() - 16) / 8
	w.Extend(16 + 8*words)
	wire.PutOpAck(w.Tail[n:], g, words, func(i int) bool {
		op := c.recv.base.Add(1 + i)
		return op.Before(c.recv.top) && c.rop(op).state == ropApplied
	})
	w.Room -= 16 + 8*words
	w.Last.Kind, w.Eliciting = wire.KindPad, true
	w.Note(build.RecOpAck, uint32(c.ID), 0, 0, 0, false)
	if c.msgs != nil && c.msgs.in.Owes() {
		*g = c.credit()
		w.Small(g)
		w.Note(build.RecControl, uint32(c.ID), 0, ctlCredit, 0, false)
	}
}

// oweAck puts the connection among those that owe the peer an OpAck.
func (c *Conn) oweAck() {
	if !c.recv.owesAck && c.state != connFree {
		c.recv.owesAck = true
		c.S.OpAcks.Push(c)
	}
}

// creditLimit is the first operation number the peer may not send (clause 7.3).
func (c *Conn) creditLimit() seqnum.Value {
	return c.recv.base.Add(max(0, c.recv.window-c.recv.notes.Len()))
}
