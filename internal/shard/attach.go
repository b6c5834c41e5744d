package shard

import (
	"fmt"
	"slices"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// Attach starts serving a client's rings, unless the shard is being drained. Any goroutine may call it.
func (s *Shard) Attach(c *Client) (err error) {
	if e := s.box.doFor(c.user, func(mono.Time) {
		if err = errDraining; !s.draining {
			err = s.attach(c)
		}
	}); e != nil {
		return e
	}
	return err
}

// Detach begins a client's end. Any goroutine may call it; a shard that has stopped has detached everybody.
func (s *Shard) Detach(c *Client) {
	s.box.doFor(c.user, func(now mono.Time) { s.detach(now, c) })
}

func (s *Shard) attach(c *Client) error {
	c.slot = len(s.clients.list)
	for i, other := range s.clients.list {
		if other == nil {
			c.slot = i
			break
		}
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(c.submit.FD())}
	if err := unix.EpollCtl(s.idle.doorbells, unix.EPOLL_CTL_ADD, c.submit.FD(), &ev); err != nil {
		return fmt.Errorf("watching the client's doorbell: %w", err)
	}
	if c.slot == len(s.clients.list) {
		s.clients.list = append(s.clients.list, nil)
	}
	s.clients.list[c.slot] = c
	c.rings.BeatPulse()
	s.countUsers()
	return nil
}

// countUsers notes whose the clients are, dying ones too, and whether they belong to more than one user: several may
// share an account, and must not see each other's bytes all the same.
func (s *Shard) countUsers() {
	s.clients.tenants, s.clients.mixed = nil, false
	var first *Client
	of := map[uint32]*tenant{}
	for _, c := range s.clients.list {
		if c == nil {
			continue
		}
		if first == nil {
			first = c
		}
		s.clients.mixed = s.clients.mixed || c.label.UID != first.label.UID || c.user.id != first.user.id
		uid := c.user.id
		if of[uid] == nil {
			of[uid] = &tenant{}
			s.clients.tenants = append(s.clients.tenants, of[uid])
		}
		of[uid].clients = append(of[uid].clients, c)
	}
}

// detach begins a client's end: its rings are left alone from here on, its services vanish. Its connections are aborted
// and its keys revoked in pieces (reapClients). Completions to come only release memory. It is idempotent.
func (s *Shard) detach(now mono.Time, c *Client) {
	if c.rings == nil {
		return
	}
	c.rings = nil
	c.ring.end()
	s.clients.dying++
	unix.EpollCtl(s.idle.doorbells, unix.EPOLL_CTL_DEL, c.submit.FD(), nil)
	for _, name := range c.names {
		s.eng.Unlisten(name)
		delete(s.clients.services, name)
		s.clients.offered.release(name)
	}
	c.names = nil
	clear(c.msgs)
	c.msgs = c.msgs[:0]
	clear(c.delivery.notify)
	c.delivery.notify, c.delivery.full = nil, false
	s.dropConns(now, c, mostDropped)
}

// mostDropped is how many connections, keys and places of regions of dead clients an iteration goes through: one client
// may have had very many.
const mostDropped = 128

// dropConns goes through connections of a dead client, so many at most, and ends them, and then its queues. It returns
// how many.
func (s *Shard) dropConns(now mono.Time, c *Client, most int) (n int) {
	for _, cn := range c.conns {
		if n == most {
			return n
		}
		if n++; cn.state != connAborted { // or the engine's last event is due
			s.dropConn(now, cn)
		}
	}
	s.dropQueues(c)
	return n
}

func (s *Shard) dropConn(now mono.Time, cn *Conn) {
	cn.queued, cn.parked = false, false
	if cn.state >= connEnding {
		s.forget(cn)
		return
	}
	if cn.state == connIncoming { // refusing one ends it without an event
		s.eng.Refuse(now, cn.id, "the service ended")
		s.forget(cn)
		return
	}
	s.eng.Abort(now, cn.id, engine.StatusAborted)
	cn.state = connAborted
}

// evict ends a client that broke the rules. Its own process learns it by the end of the control socket.
func (s *Shard) evict(c *Client, why string) {
	if c.rings == nil {
		return
	}
	s.clients.evictions++
	s.detach(mono.Now(), c)
	c.evicted(why)
}

// reapRegions goes twice through the places of a dead client's regions, of them and of keys so many at most: it revokes
// the keys of all, and then, once nothing can begin to use them, drops each that is not in use any more. It returns
// how many. The client is done with when c.reaped says so (inUse).
func (s *Shard) reapRegions(now mono.Time, c *Client, most int) (n int) {
	places := len(c.regions.slots)
	for n < most && c.reaped < 2*places {
		again := c.reaped >= places
		if again && c.busy() {
			break
		}
		n++
		if r := c.regions.slots[c.reaped%places].region; r != nil {
			n += s.grants.RevokeRegion(r, most-n)
			if r.Granted() || again && r.InFlight > 0 {
				break
			}
			if again {
				s.dropReaped(now, r)
			}
		}
		c.reaped++
	}
	s.dropRevoked()
	return n
}

// reapClients goes on with the end of dead clients, each iteration first with another, and frees those of which nothing
// is in use any more. It reports whether it left some for the next iteration.
func (s *Shard) reapClients(now mono.Time) (more bool) {
	most, slots := mostDropped, len(s.clients.list)
	s.clients.reapFirst++
	for k := 0; k < slots && most > 0; k++ {
		c := s.clients.list[(s.clients.reapFirst+k)%slots]
		if c == nil || c.rings != nil {
			continue
		}
		most -= s.dropConns(now, c, most)
		if most -= s.reapRegions(now, c, most); !s.inUse(c) {
			s.free(c)
		}
	}
	return most == 0
}

// inUse reports whether the engine may still touch memory of a dead client, or name it in an event, as far as
// reapRegions knows.
func (s *Shard) inUse(c *Client) bool {
	return c.busy() || c.reaped < 2*len(c.regions.slots)
}

// busy reports whether a dead client has connections or operations left, which may begin to use its memory.
func (c *Client) busy() bool {
	return len(c.conns) > 0 || c.flight.inflight+c.receives.posted > 0
}

// dropReaped lets go of a region of a dead client, which stays in the client's set for its owner to unmap. It may be
// called again.
func (s *Shard) dropReaped(now mono.Time, r *regmem.Region) {
	s.dropReferring(r.Mem.Bytes())
	s.exchange.remove(r)
	s.dropSpace(now, r)
}

// free forgets a dead client whose regions were dropped; its owner unmaps what it had, once nobody rings it any more.
func (s *Shard) free(c *Client) {
	s.clients.list[c.slot] = nil
	is := func(o *Client) bool { return o == c }
	s.clients.due = slices.DeleteFunc(s.clients.due, is)
	s.clients.held.list = slices.DeleteFunc(s.clients.held.list, is)
	s.clients.dying--
	c.exported(-c.exports) // those of connections that were forgotten before their keys
	c.flight.spare()
	s.countUsers()
	c.ring.ended(func() { close(c.gone) })
}
