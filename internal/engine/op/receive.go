package op

import (
	"multiedge/internal/abi"
	"multiedge/internal/engine/op/message"
	"multiedge/internal/mono"
	"multiedge/internal/wire"
)

// The receiving half of messages (clause 14): what a connection does with the buffers that package message keeps.

// Receive is a posted buffer. Local, or Pieces, must stay valid until its EvReceived.
type Receive = message.Buffer

// QueueID names a shared receive queue of an endpoint. Zero is none.
type QueueID = message.QueueID

// Arrived says what a message left in the buffer that took it.
type Arrived = message.Arrived

// queueCalls is what shared queues have connections do. None of these is over: it takes from a queue.
func (e *Endpoint) queueCalls() message.Calls {
	return message.Calls{
		Promised: func(now mono.Time, conn uint32) { e.conn(ConnID(conn)).tellCredit(now) },
		Resume:   func(now mono.Time, conn uint32) { e.conn(ConnID(conn)).release(now) },
		HandBack: func(conn uint32, b *Receive, st abi.Status, got Arrived) {
			e.Emit(Event{Kind: EvReceived, Conn: ConnID(conn), Token: b.Token, Status: st, Msg: got})
		},
	}
}

// takes returns a connection if it may be given buffers, else nil. One that the peer asks for may: what is sent as soon
// as it is accepted finds them. One that is being closed takes buffers until it ends: where both ends close, each with
// sends that wait for buffers of the other's, neither would end without them.
func (e *Endpoint) takes(id ConnID) *Conn {
	c := e.conn(id)
	if c == nil || c.state != connOpen && c.state != connClosing && c.state != connIncoming || c.dial.ping {
		return nil
	}
	return c
}

// TakesReceives reports whether a connection can be given buffers, unless it takes from a shared queue: if it has
// ended, its end is reported before long.
func (e *Endpoint) TakesReceives(id ConnID) bool { return e.takes(id) != nil }

// PostReceive takes a buffer for the messages of a connection. It reports false, and nothing has happened, if the
// connection neither is open nor waits to be accepted, or takes from a shared queue. Exactly one EvReceived with
// r.Token follows otherwise.
func (e *Endpoint) PostReceive(now mono.Time, id ConnID, r *Receive) bool {
	c := e.takes(id)
	if c == nil || !c.messages().in.Post(r) {
		return false
	}
	c.tellCredit(now)
	return true
}

// NewReceiveQueue makes a queue that connections can share.
func (e *Endpoint) NewReceiveQueue() QueueID { return e.queues.New() }

// DropReceiveQueue gives back what is posted to a shared queue. It reports false, and nothing has happened, while
// connections take from it.
func (e *Endpoint) DropReceiveQueue(id QueueID) bool { return e.queues.Drop(id) }

// JoinReceiveQueue has a connection take its buffers from a shared queue from now on. It reports false if the
// connection neither is open nor waits to be accepted, or was given buffers of its own.
func (e *Endpoint) JoinReceiveQueue(now mono.Time, id ConnID, queue QueueID) bool {
	c, q := e.takes(id), e.queues.Find(queue)
	if c == nil || q == nil {
		return false
	}
	joined, promised := c.messages().in.Join(q)
	if !joined {
		return false
	}
	if c.state == connIncoming {
		return true // the peer is told behind the Accept
	}
	if promised {
		c.tellCredit(now)
	}
	c.ctl |= ctlCredit
	c.wake()
	return true
}

// PostShared takes a buffer for the messages of all connections that share a queue.
func (e *Endpoint) PostShared(now mono.Time, id QueueID, r *Receive) bool {
	return e.queues.Post(now, id, r)
}

// onWant takes the peer's wish for buffers (clause 14.5).
func (c *Conn) onWant(now mono.Time, number uint32) {
	if c.msgs != nil {
		c.e.queues.Want(now, &c.msgs.in, number)
	}
}

// tellCredit tells the peer of new buffers: with the next acknowledgement, or at once if the peer has none left. A
// connection that is not accepted yet tells it behind the Accept.
func (c *Conn) tellCredit(now mono.Time) {
	if urgent := c.msgs.in.Owe(); c.state == connIncoming {
		return
	} else if urgent {
		c.ctl |= ctlCredit
		c.wake()
	} else {
		c.oweAck()
	}
	if c.recv.held > 0 {
		c.release(now) // strict sends that waited for their turn
	}
}

// credit is the segment that tells the peer.
func (c *Conn) credit() wire.Segment {
	g := wire.Segment{Kind: wire.KindCredit, Conn: c.remote}
	limit, shared := c.msgs.in.Tell()
	if g.Limit = limit; shared {
		g.Flags = wire.CreditShared
	}
	return g
}

// decided reports whether it is known if a message has a buffer.
func (c *Conn) decided(g *segment) bool {
	return c.messages().in.Decided(uint32(g.key), g.flags&wire.SegStrict != 0)
}

// vacant returns the place of [at, at+n) of an operation's message, if it is in its buffer, which is one range.
func (m *messages) vacant(o *recvOp, at, n uint64) []byte {
	local := m.in.Local(uint32(o.key))
	if size := uint64(len(local)); at > size || n > size-at {
		return nil
	}
	return local[at : at+n]
}

// filled notes that nothing more comes into a buffer.
func (c *Conn) filled(now mono.Time, a *message.Arrival) {
	if c.e.queues.Filled(&c.msgs.in, a) {
		c.tellCredit(now)
	}
	c.e.queues.AskMore(now, &c.msgs.in)
}

// flush gives back the buffers of a connection that ends with st.
func (c *Conn) flush(now mono.Time, st abi.Status) {
	if st == OK {
		st = abi.StatusClosed
	}
	if c.msgs != nil {
		c.e.queues.Leave(now, &c.msgs.in, st)
	}
}
