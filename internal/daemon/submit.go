package daemon

import (
	"errors"
	"slices"

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
// An entry that cannot go on because the completion ring has no room stays in held, and those behind it wait: a client that overcommits stalls itself.
// The engine takes every operation that check lets pass, however far the oldest of its connection lies back, but those of a connection whose end it is
// about to report: they wait for that.

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
	if status := s.check(c, cn, e); status != ipc.StatusOK {
		return true, s.reject(c, e, status)
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
			return true, s.reject(c, e, status)
		}
	}
	if !s.eng.Submit(now, cn.id, op) {
		return false, nil
	}
	c.free = c.free[:len(c.free)-1]
	c.ops[slot] = opSlot{conn: cn, token: e.Token}
	c.inflight++
	cn.inflight++
	c.account.ops.Add(1)
	c.useless = 0
	return true, nil
}

// uselessDepths is how many submissions that cannot be served a client may make in a row, in units of its queue: those that were under way when a
// connection ended are fewer. They cost it nothing and the others time, so a client that makes more is up to no good.
const uselessDepths = 16

// reject answers an entry by a completion. The error says that the client must go.
func (s *shard) reject(c *client, e *ipc.SQE, status ipc.Status) error {
	s.put(c, &ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
	if status == ipc.StatusQuota {
		return nil // no fault of its own
	}
	return s.wasted(c)
}

// wasted counts a submission that did nothing.
func (s *shard) wasted(c *client) error {
	if c.useless++; c.useless > uselessDepths*len(c.ops) {
		return errUseless
	}
	return nil
}

var errUseless = errors.New("it floods its submission ring with entries that cannot be served")

// check says whether an operation may go to a connection.
func (s *shard) check(c *client, cn *conn, e *ipc.SQE) ipc.Status {
	switch {
	case cn == nil:
		return c.ends.why(e.Conn)
	case cn.state < connOpen:
		return ipc.StatusNoConn
	case cn.state == connOver:
		return cn.why
	case cn.state > connOpen:
		return ipc.StatusClosed
	case cn.inflight >= s.window:
		return ipc.StatusLimit
	case cn.client.account.ops.Load() >= int64(s.limits.OpsPerUser):
		return ipc.StatusQuota
	}
	return ipc.StatusOK
}

// credit lets more notifications of a connection through.
func (s *shard) credit(c *client, e *ipc.SQE) error {
	cn := c.lookup(e.Conn)
	if cn == nil || e.Imm == 0 {
		return s.wasted(c) // it raced with the connection's end, if it is not a flood
	}
	if int(e.Imm) > cn.unreturned {
		return ipc.ErrEntry
	}
	cn.unreturned -= int(e.Imm)
	c.useless = 0
	c.unpark(cn)
	return nil
}

// completed routes the end of an operation to its client. A write that failed may not have arrived: the frames of it that still wait must not take along, in place of what was
// written, what the client does with the memory from now on.
func (s *shard) completed(ev *engine.Event) {
	if ev.Status != engine.OK {
		s.dropReferring(ev.Data)
	}
	c := s.clients[ev.Token>>32]
	slot := &c.ops[uint32(ev.Token)]
	c.free = append(c.free, uint32(ev.Token))
	c.inflight--
	c.account.ops.Add(-1)
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

// unpark queues a connection that waited for credit, or for its end.
func (c *client) unpark(cn *conn) {
	if cn.parked {
		cn.parked = false
		c.notify = append(c.notify, cn)
	}
}

// dequeue takes a connection from where it waits its turn.
func (c *client) dequeue(cn *conn) {
	if cn.queued && !cn.parked {
		c.notify = slices.DeleteFunc(c.notify, func(o *conn) bool { return o == cn })
	}
	cn.queued, cn.parked = false, false
}

// deliver moves notifications to the completion ring as far as credit and room go. Who lacks credit is parked, so that what is asked for again in
// every iteration is little, whatever a client leaves lying; without room nothing else is looked at.
func (s *shard) deliver(c *client) (worked bool) {
	c.full = false
	done := 0
	for _, cn := range c.notify {
		more, err := s.deliverConn(c, cn, &worked)
		if err != nil {
			s.evict(c, err.Error())
			return true
		}
		if more {
			break
		}
		done++
	}
	rest := copy(c.notify, c.notify[done:])
	clear(c.notify[rest:])
	c.notify = c.notify[:rest]
	return worked
}

// deliverConn reports whether there is more to deliver and no room for it.
func (s *shard) deliverConn(c *client, cn *conn, worked *bool) (more bool, err error) {
	for {
		if cn.state == connOver && len(cn.left) == 0 {
			cn.queued = false
			s.forget(cn)
			return false, nil
		}
		if cn.unreturned >= ipc.NotifyCredit {
			cn.parked = true
			return false, nil
		}
		room, err := c.roomForNotify()
		if !room {
			c.full = true
			return true, err
		}
		n, ok := s.takeNotify(cn)
		if !ok {
			cn.queued = false
			return false, nil
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
