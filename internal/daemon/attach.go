package daemon

import (
	"fmt"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"

	"golang.org/x/sys/unix"
)

// attach starts serving a client's rings.
func (s *shard) attach(c *client) error {
	c.slot = len(s.clients)
	for i, other := range s.clients {
		if other == nil {
			c.slot = i
			break
		}
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(c.submit.FD())}
	if err := unix.EpollCtl(s.doorbells, unix.EPOLL_CTL_ADD, c.submit.FD(), &ev); err != nil {
		return fmt.Errorf("watching the client's doorbell: %w", err)
	}
	if c.slot == len(s.clients) {
		s.clients = append(s.clients, nil)
	}
	s.clients[c.slot] = c
	c.rings.BeatPulse()
	s.countUsers()
	return nil
}

// countUsers notes whether the clients, dying ones too, belong to more than one user.
func (s *shard) countUsers() {
	var first *client
	s.mixed = false
	for _, c := range s.clients {
		if first == nil {
			first = c
		}
		s.mixed = s.mixed || c != nil && c.session.cred.UID != first.session.cred.UID
	}
}

// detach begins a client's end: its rings are left alone from here on, its services vanish, its connections are aborted, its keys revoked.
// Completions to come only release memory. It is idempotent.
func (s *shard) detach(now mono.Time, c *client) {
	if c.rings == nil {
		return
	}
	c.rings = nil
	s.dying++
	unix.EpollCtl(s.doorbells, unix.EPOLL_CTL_DEL, c.submit.FD(), nil)
	for _, name := range c.names {
		s.eng.Unlisten(name)
		delete(s.services, name)
		s.offered.release(name)
	}
	c.names = nil
	c.regions.all(func(r *regmem.Region) { s.grants.RevokeRegion(r) })
	clear(c.msgs)
	c.msgs = c.msgs[:0]
	for _, cn := range c.conns {
		cn.queued, cn.parked = false, false
		if cn.state == connOver {
			s.forget(cn)
			continue
		}
		s.dropExports(cn)
		if cn.state == connIncoming { // refusing one ends it without an event
			s.eng.Refuse(now, cn.id, "the service ended")
			s.forget(cn)
			continue
		}
		if cn.state != connAborted {
			s.eng.Abort(now, cn.id, engine.StatusAborted)
		}
		cn.state = connAborted
	}
	c.backlog = 0
	clear(c.notify)
	c.notify, c.full = nil, false
}

// evict ends a client that broke the rules. Its own process learns it by the end of the control socket.
func (s *shard) evict(c *client, why string) {
	if c.rings == nil {
		return
	}
	s.evictions++
	c.session.d.accounts.evicted(time.Now(), c.session.cred.UID)
	s.log.Warn("client evicted", "pid", c.session.cred.PID, "uid", c.session.cred.UID, "reason", why)
	s.detach(mono.Now(), c)
	c.session.end()
}

// reapClients lets go of dead clients nothing of which is in use any more.
func (s *shard) reapClients(now mono.Time) {
	for _, c := range s.clients {
		if c != nil && c.rings == nil && !s.inUse(c) {
			s.free(c)
		}
	}
}

// inUse reports whether the engine may still touch memory of a dead client, or name it in an event.
func (s *shard) inUse(c *client) bool {
	if len(c.conns) > 0 || c.inflight > 0 {
		return true
	}
	busy := false
	c.regions.all(func(r *regmem.Region) { busy = busy || r.InFlight > 0 })
	return busy
}

// free forgets a dead client; its session unmaps what it had.
func (s *shard) free(c *client) {
	c.regions.all(func(r *regmem.Region) {
		s.dropReferring(r.Mem.Bytes())
		s.exchange.remove(r)
	})
	s.clients[c.slot] = nil
	s.dying--
	s.countUsers()
	close(c.gone)
}

// stillBusy is the answer to a request that must wait for operations.
func stillBusy(r *regmem.Region) error {
	return ipc.Errorf(ipc.CodeBusy, "region %d is used by %d operations in flight; wait for them", r.ID, r.InFlight)
}
