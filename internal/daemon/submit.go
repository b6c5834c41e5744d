package daemon

import (
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// The way of a submission:
//
//	client's ring -> Drain copies and validates it (ipc) -> client.held, private -> checks against this client's connections and regions ->
//	engine.Submit copies it; the bytes it names stay where they are and are counted by the region's InFlight
//
// An entry that cannot go on because the engine or the completion ring has no room stays in held, and those behind it wait: a client
// that overcommits stalls itself.

// drainClients takes a bounded number of submissions from every client.
func (s *shard) drainClients(now mono.Time) (worked bool) {
	for _, c := range s.clients {
		if c != nil && c.rings != nil {
			worked = s.drainClient(now, c) || worked
		}
	}
	return worked
}

func (s *shard) drainClient(now mono.Time, c *client) (worked bool) {
	var bad error
	if c.next == c.count {
		c.next = 0
		c.count, bad = c.sq.Drain(c.held[:])
	}
	for c.next < c.count {
		ok, err := s.submit(now, c, &c.held[c.next])
		if err != nil {
			s.evict(c, err.Error())
			return true
		}
		if !ok {
			break
		}
		c.next++
		worked = true
	}
	if bad != nil {
		s.evict(c, bad.Error())
		return true
	}
	if len(c.notify) > 0 {
		worked = s.deliver(c) || worked
	}
	return worked
}

// submit passes one entry on. It returns false when the entry must wait, an error when the client must go.
func (s *shard) submit(now mono.Time, c *client, e *ipc.SQE) (ok bool, err error) {
	if e.Op == ipc.OpCredit {
		return true, s.credit(c, e)
	}
	if len(c.free) == 0 {
		return false, nil
	}
	if ok, err = c.roomForOp(); !ok {
		return false, err
	}
	cn := c.lookup(e.Conn)
	if status := s.check(cn, e); status != ipc.StatusOK {
		s.put(c, &ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
		return true, nil
	}
	slot := c.free[len(c.free)-1]
	op := &s.op
	*op = engine.Op{
		Kind: engine.OpKind(e.Op), Flags: engine.OpFlags(e.Flags), Inline: e.InlineLen, Imm: e.Imm,
		Token: uint64(c.slot)<<32 | uint64(slot), Key: regmem.Key(e.Key), Off: e.RemoteOff,
	}
	if e.InlineLen > 0 {
		op.Data = e.Inline
	} else {
		var status ipc.Status
		if op.Local, op.Region, status = c.regions.local(e); status != ipc.StatusOK {
			s.put(c, &ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
			return true, nil
		}
	}
	if !s.eng.Submit(now, cn.id, op) {
		return false, nil
	}
	c.free = c.free[:len(c.free)-1]
	c.ops[slot] = opSlot{conn: cn, token: e.Token}
	c.inflight++
	cn.inflight++
	return true, nil
}

// check says whether an operation may go to a connection.
func (s *shard) check(cn *conn, e *ipc.SQE) ipc.Status {
	switch {
	case cn == nil || cn.state < connOpen:
		return ipc.StatusNoConn
	case cn.state > connOpen:
		return ipc.StatusClosed
	case cn.inflight >= s.window:
		return ipc.StatusLimit
	}
	return ipc.StatusOK
}

// credit lets more notifications of a connection through.
func (s *shard) credit(c *client, e *ipc.SQE) error {
	cn := c.lookup(e.Conn)
	if cn == nil {
		return nil // it raced with the connection's end
	}
	if int(e.Imm) > cn.unreturned {
		return ipc.ErrEntry
	}
	cn.unreturned -= int(e.Imm)
	return nil
}

// completed routes the end of an operation to its client.
func (s *shard) completed(ev *engine.Event) {
	c := s.clients[ev.Token>>32]
	slot := &c.ops[uint32(ev.Token)]
	c.free = append(c.free, uint32(ev.Token))
	c.inflight--
	slot.conn.inflight--
	if c.rings != nil {
		s.put(c, &ipc.CQE{Kind: ipc.CQComplete, Status: ipc.Status(ev.Status), Conn: uint32(ev.Conn), Token: slot.token})
	}
	slot.conn = nil
}

// notified remembers that a connection has notifications.
func (s *shard) notified(cn *conn) {
	c := cn.client
	if c.rings == nil || cn.queued {
		return
	}
	cn.queued = true
	c.notify = append(c.notify, cn)
	s.deliver(c)
}

// deliver moves notifications to the completion ring as far as credit and room go. What stays is asked for again in every iteration.
func (s *shard) deliver(c *client) (worked bool) {
	c.full = false
	kept := 0
	for i, cn := range c.notify {
		c.notify[i] = nil
		done, err := s.deliverConn(c, cn, &worked)
		if err != nil {
			s.evict(c, err.Error())
			return true
		}
		if !done {
			c.notify[kept] = cn
			kept++
		}
	}
	c.notify = c.notify[:kept]
	return worked
}

// deliverConn reports whether nothing is left to deliver.
func (s *shard) deliverConn(c *client, cn *conn, worked *bool) (done bool, err error) {
	for {
		if cn.state == connOver && len(cn.left) == 0 {
			cn.queued = false
			s.forget(cn)
			return true, nil
		}
		if cn.unreturned >= ipc.NotifyCredit {
			return false, nil
		}
		room, err := c.roomForNotify()
		if !room {
			c.full = true
			return false, err
		}
		n, ok := s.takeNotify(cn)
		if !ok {
			cn.queued = false
			return true, nil
		}
		cn.unreturned++
		*worked = true
		s.put(c, &ipc.CQE{Kind: ipc.CQNotify, Conn: uint32(cn.id), Imm: n.Imm, Len: n.Len})
	}
}

func (s *shard) takeNotify(cn *conn) (engine.Notification, bool) {
	if cn.state != connOver {
		return s.eng.TakeNotify(cn.id)
	}
	n := cn.left[0]
	cn.left = cn.left[1:]
	return n, true
}
