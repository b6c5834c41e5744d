package shard

import (
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// Buffers that a client posts for messages (A7.17). Each has its place in the completion ring from the moment that it
// is taken, as an operation in flight has.

// maxQueues is how many receive queues a client can have.
const maxQueues = 64

// receives is a client's posted buffers.
type receives struct {
	slots  []opSlot                    // by the low half of the engine's token; made with the first
	unused []uint32                    // of slots
	posted int                         // in use
	queues map[engine.QueueID]struct{} // that it made
}

// postReceive takes a buffer. It returns false when the entry must wait, an error when the client must go.
func (s *Shard) postReceive(now mono.Time, c *Client, e *ipc.SQE) (ok bool, err error) {
	if c.Features&ipc.FeatureMessages == 0 || c.taken.pieces.n > 0 && c.Features&ipc.FeatureScatter == 0 {
		return false, ipc.ErrEntry // A6.7, A6.14
	}
	if ok, err = c.roomForOp(); !ok {
		return false, err
	}
	if c.receives.slots == nil {
		c.receives.slots, c.receives.unused = make([]opSlot, len(c.flight.ops)), make([]uint32, len(c.flight.ops))
		for i := range c.receives.unused {
			c.receives.unused[i] = uint32(len(c.receives.unused) - 1 - i)
		}
	}
	r := engine.Receive{}
	status := ipc.StatusLimit
	if n := len(c.receives.unused); n > 0 {
		r.Token = uint64(c.slot)<<32 | uint64(c.receives.unused[n-1])
		status = s.bufferMemory(c, e, &r)
	}
	if status == ipc.StatusOK {
		if status, ok = s.giveBuffer(now, c, e, &r); !ok {
			s.keepList(r.Pieces)
			return false, nil
		}
	}
	c.taken.pieces.n = 0
	if status != ipc.StatusOK {
		s.keepList(r.Pieces)
		s.put(c, &ipc.CQE{Kind: ipc.CQReceive, Status: status, Conn: e.Conn, Token: e.Token})
		if status == ipc.StatusQuota {
			return true, nil // no fault of its own
		}
		return true, s.wasted(c)
	}
	i := c.receives.unused[len(c.receives.unused)-1]
	c.receives.unused = c.receives.unused[:len(c.receives.unused)-1]
	c.receives.slots[i].token, c.receives.slots[i].list = e.Token, r.Pieces
	if r.Pieces != nil {
		c.user.ops.Add(1)
	}
	c.receives.posted++
	c.flight.useless = 0
	return true, nil
}

// bufferMemory looks up the memory of a buffer. One in pieces counts as an operation of the user's, for the sake of its
// list. What arrives could not wait for a page, so all of it must be resident.
func (s *Shard) bufferMemory(c *Client, e *ipc.SQE, r *engine.Receive) (status ipc.Status) {
	if c.taken.pieces.n == 0 {
		r.Local, r.Region, status = c.regions.local(e.Region, e.LocalOff, e.Len)
		if r.Region != nil && r.Region.Back != nil {
			return ipc.StatusLocal
		}
		return status
	}
	if c.user.ops.Load() >= int64(s.limits.OpsPerUser) {
		return ipc.StatusQuota
	}
	r.Pieces, status = s.takePieces(c, e)
	if status == ipc.StatusOK && r.Pieces.Backed() {
		return ipc.StatusLocal
	}
	return status
}

// giveBuffer hands a buffer to the engine. It returns false when the entry must wait: the end of its connection is
// about to be reported, with its reason.
func (s *Shard) giveBuffer(now mono.Time, c *Client, e *ipc.SQE, r *engine.Receive) (status ipc.Status, ok bool) {
	if e.Conn == 0 {
		q := engine.QueueID(e.Key)
		if _, own := c.receives.queues[q]; !own || !s.eng.PostShared(now, q, r) {
			return ipc.StatusNoConn, true
		}
		return ipc.StatusOK, true
	}
	cn := c.lookup(e.Conn)
	if status := s.check(c, cn, e); status != ipc.StatusOK {
		return status, true
	}
	if s.eng.PostReceive(now, cn.id, r) {
		return ipc.StatusOK, true
	}
	return ipc.StatusNoConn, s.eng.TakesReceives(cn.id) // one that does takes from a shared queue
}

// early reports whether a connection that is not open yet takes buffers: a peer asks for it, and the client, which
// knows of this feature, has been told.
func (cn *Conn) early() bool {
	return (cn.state == connIncoming || cn.state == connAccepting) && cn.client.Features&ipc.FeatureEarly != 0
}

// received routes a buffer back to its client.
func (s *Shard) received(ev *engine.Event) {
	c, i := s.clients.list[ev.Token>>32], uint32(ev.Token)
	c.receives.unused = append(c.receives.unused, i)
	c.receives.posted--
	if slot := &c.receives.slots[i]; slot.list != nil {
		c.user.ops.Add(-1)
		s.keepList(slot.list)
		slot.list = nil
	}
	if c.rings != nil {
		s.put(c, &ipc.CQE{Kind: ipc.CQReceive, Status: ev.Status, Conn: uint32(ev.Conn),
			Token: c.receives.slots[i].token, Imm: ev.Msg.Imm, Len: ev.Msg.Len, HasImm: ev.Msg.HasImm,
			Tells: ev.Msg.Tells})
	}
}

// MakeQueue makes a receive queue that connections of the client can share.
func (s *Shard) MakeQueue(_ mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	switch {
	case c.Features&ipc.FeatureMessages == 0:
		return nil, errNoMessages
	case s.draining:
		return nil, errDraining
	case len(c.receives.queues) >= maxQueues:
		return nil, ipc.Errorf(ipc.CodeLimit, "this client has %d receive queues already; close some",
			len(c.receives.queues))
	}
	if c.receives.queues == nil {
		c.receives.queues = map[engine.QueueID]struct{}{}
	}
	q := s.eng.NewReceiveQueue()
	c.receives.queues[q] = struct{}{}
	reply := m.Reply()
	reply.Queue = uint32(q)
	return reply, nil
}

var errNoMessages = ipc.Errorf(ipc.CodeInvalid, "the client did not ask for messages when it attached")

// DropQueue ends a receive queue; what is posted to it comes back.
func (s *Shard) DropQueue(_ mono.Time, c *Client, m *ipc.Message) (*ipc.Message, error) {
	q := engine.QueueID(m.Queue)
	if _, own := c.receives.queues[q]; !own {
		return nil, errNoQueue(m)
	}
	if !s.eng.DropReceiveQueue(q) {
		return nil, ipc.Errorf(ipc.CodeBusy, "connections take from receive queue %d; close them first", m.Queue)
	}
	delete(c.receives.queues, q)
	return m.Reply(), nil
}

func errNoQueue(m *ipc.Message) error {
	return ipc.Errorf(ipc.CodeInvalid, "there is no receive queue %d", m.Queue)
}

// JoinQueue has a connection take its buffers from a receive queue.
func (s *Shard) JoinQueue(now mono.Time, cn *Conn, m *ipc.Message) (*ipc.Message, error) {
	q := engine.QueueID(m.Queue)
	if _, own := cn.client.receives.queues[q]; !own {
		return nil, errNoQueue(m)
	}
	if cn.state != connOpen && !cn.early() || !s.eng.JoinReceiveQueue(now, cn.id, q) {
		return nil, ipc.Errorf(ipc.CodeBusy, "connection %d is not open, or has buffers of its own", m.Conn)
	}
	return m.Reply(), nil
}

// dropQueues ends the queues of a client whose connections are over.
func (s *Shard) dropQueues(c *Client) {
	for q := range c.receives.queues {
		s.eng.DropReceiveQueue(q)
	}
	c.receives.queues = nil
}
