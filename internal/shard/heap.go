package shard

import (
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Heap grants: regions whose memory is not mapped here. A courier of the client's own carries their bytes (regmem.Heap,
// engine/op/carry.go), and the shard waits for it in nothing. What tells the client that memory is its own again (an
// operation failed, a connection ended, a key was revoked) waits until the trips that were under way then are over.

// carrying is what a client has besides.
type carrying struct {
	carrier *regmem.Carrier
	courier *regmem.Courier
	over    func(mono.Time)
	later   []later // in order
}

// later is something for the client that waits for trips.
type later struct {
	mark uint64 // the latest of them
	done ipc.CQE
	say  *ipc.Message // nil: done
}

// Carry has a courier carry for the client, whose process's memory fd is. After an error fd is the caller's still, but
// for ErrStopped: the courier was there, and has closed it.
func (s *Shard) Carry(c *Client, fd int) error {
	k := &carrying{}
	k.over = func(now mono.Time) {
		k.courier.Over(func(t *regmem.Trip) {
			k.carrier.Over(t)
			s.eng.Carried(now, t)
		})
		s.catchUp(c)
	}
	q, err := regmem.NewCourier(fd, func() { s.box.post(k.over) })
	if err != nil {
		return err
	}
	k.carrier, k.courier = regmem.NewCarrier(q.Send), q
	if err := s.box.doFor(c.user, func(mono.Time) { c.carrying = k }); err != nil {
		q.End()
		<-q.Done()
		return err
	}
	return nil
}

// GrantHeap adds n bytes of the client's process at addr to its regions. Its courier is there.
func (s *Shard) GrantHeap(c *Client, addr, n uint64) (*regmem.Region, error) {
	mem, err := regmem.Distant(n)
	if err != nil {
		return nil, err
	}
	h, err := c.carrying.carrier.Heap(addr, n)
	if err != nil {
		return nil, err
	}
	r := &regmem.Region{Mem: mem, Back: h, Owner: uint64(c.user.id)}
	return r, s.AdoptRegion(c, r)
}

// carried reports whether a region is a heap grant.
func carried(r *regmem.Region) bool {
	_, ok := r.Back.(*regmem.Heap)
	return ok
}

// Courier returns the client's courier, once it is gone; nil: it has none.
func (c *Client) Courier() *regmem.Courier {
	if c.carrying == nil {
		return nil
	}
	return c.carrying.courier
}

// Answer says a reply to the client that is the last word on some of its memory.
func (s *Shard) Answer(c *Client, m *ipc.Message) error {
	return s.box.doFor(c.user, func(mono.Time) { s.say(c, m) })
}

// postpones takes a message for a client that has a courier, if it must wait. Those behind one that waits wait, too.
func (s *Shard) postpones(c *Client, m *ipc.Message) bool {
	k := c.carrying
	mark := k.carrier.Begun()
	if len(k.later) == 0 && (k.carrier.Settled(mark) || !returns(m)) {
		return false
	}
	k.later = append(k.later, later{mark: mark, say: m})
	s.touch(c)
	return true
}

// returns reports whether a message says that some memory is the client's again.
func returns(m *ipc.Message) bool {
	switch m.Kind {
	case ipc.KindEnded, ipc.KindClosed:
		return true
	case ipc.KindRevoke, ipc.KindDeregister, ipc.KindClose, ipc.KindAbort:
		return m.Answer
	}
	return false
}

// finish puts a completion into the ring. Of an operation that failed parts may be on their way yet.
func (s *Shard) finish(c *Client, e *ipc.CQE) {
	if k := c.carrying; k != nil && e.Status != ipc.StatusOK {
		if mark := k.carrier.Begun(); !k.carrier.Settled(mark) {
			k.later = append(k.later, later{mark: mark, done: *e})
			c.flight.late++
			return
		}
	}
	s.put(c, e)
}

// catchUp tells a client what waited for trips that are over.
func (s *Shard) catchUp(c *Client) {
	k, n := c.carrying, 0
	for ; n < len(k.later) && k.carrier.Settled(k.later[n].mark); n++ {
		l := &k.later[n]
		if l.say == nil {
			c.flight.late--
		}
		switch {
		case c.rings == nil:
		case l.say == nil:
			s.put(c, &l.done)
		default:
			c.msgs = append(c.msgs, l.say)
			s.touch(c)
		}
	}
	rest := copy(k.later, k.later[n:])
	clear(k.later[rest:])
	k.later = k.later[:rest]
}

// behind reports whether more waits for a client's courier than a client may leave unread.
func (c *Client) behind() bool { return c.postponed() > c.out.limit }

// postponed is how many messages wait for a client's courier.
func (c *Client) postponed() int {
	if c.carrying == nil {
		return 0
	}
	return len(c.carrying.later) - c.flight.late
}
