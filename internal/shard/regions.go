package shard

import (
	"multiedge/internal/config"
	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
	"multiedge/remap"
)

// What the control half of a client asks of its regions. Any goroutine may call the exported methods.

// AddRegion adds a region to a client's, to be offered, and makes its pages exchangeable if it has a space. The
// region's memory stays the caller's after an error.
func (s *Shard) AddRegion(c *Client, r *regmem.Region, space *remap.Shared) error {
	return s.enter(c, r, func() { s.exchange.add(r, space) })
}

// AdoptRegion adds a region to a client's that operations may use at once, since the client made its memory (A7.5). The
// memory stays the caller's after an error.
func (s *Shard) AdoptRegion(c *Client, r *regmem.Region) error {
	return s.enter(c, r, func() { c.regions.finish(r) })
}

// enter adds a region to the client's, and runs then.
func (s *Shard) enter(c *Client, r *regmem.Region, then func()) (err error) {
	if e := s.box.doFor(c.user, func(mono.Time) {
		switch {
		case c.rings == nil: // evicted, and perhaps forgotten: the region would stay in the exchange
			err = ErrStopped
		case s.draining:
			err = errDraining
		case c.regions.offered >= config.MaxOffered:
			err = ipc.Errorf(ipc.CodeLimit,
				"this client has not mapped %d regions that it was given; map them and say so, or deregister them",
				c.regions.offered)
		case !c.regions.add(r, s.limits.Regions):
			err = ipc.Errorf(ipc.CodeLimit,
				"this client has %d regions already; deregister some or raise limits.regions", s.limits.Regions)
		default:
			then()
		}
	}); e != nil {
		return e
	}
	return err
}

// OfferedRegion returns a region that the client was offered, and of which it has not said that it is mapped.
func (s *Shard) OfferedRegion(c *Client, id uint32) (r *regmem.Region, err error) {
	if err := s.box.doFor(c.user, func(mono.Time) { r = c.regions.pending(id) }); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d that waits to be mapped", id)
	}
	return r, nil
}

// FinishRegion makes an offered region one that operations may use.
func (s *Shard) FinishRegion(c *Client, r *regmem.Region) error {
	return s.box.doFor(c.user, func(mono.Time) { c.regions.finish(r) })
}

// revokePiece is how many keys of a region an iteration revokes.
const revokePiece = 64

// DropRegion revokes every key of a region and takes it from its client. Its memory is the caller's to free. From the
// first piece on the client's operations cannot use it.
func (s *Shard) DropRegion(c *Client, id uint32) (r *regmem.Region, err error) {
	for more := true; more && err == nil; {
		if e := s.box.doFor(c.user, func(now mono.Time) { r, more, err = s.dropRegion(now, c, id) }); e != nil {
			return nil, e
		}
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// dropRegion reports whether there are more keys to revoke.
func (s *Shard) dropRegion(now mono.Time, c *Client, id uint32) (r *regmem.Region, more bool, err error) {
	r = c.regions.any(id)
	switch {
	case c.rings == nil:
		return nil, false, ErrStopped
	case r == nil:
		return nil, false, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", id)
	case r.InFlight > 0:
		return nil, false, stillBusy(r)
	}
	s.exchange.settle() // nothing may change once a key is revoked
	for range revokePiece {
		g, ok := s.grants.RevokeNext(r)
		if !ok {
			break
		}
		if _, _, shared := regmem.DomainOf(g.Owner); !shared {
			s.eng.Withdraw(now, engine.ConnID(g.Owner), g.Key, g.Number)
		}
	}
	if r.Granted() {
		s.dropRevoked()
		c.regions.offer(r)
		return r, true, nil
	}
	s.clients.revoked = nil // they are parts of the region
	s.exchange.remove(r)
	s.dropReferring(r.Mem.Bytes())
	s.dropSpace(now, r)
	c.regions.remove(r)
	return r, false, nil
}

// stillBusy is the answer to a request that must wait for operations.
func stillBusy(r *regmem.Region) error {
	return ipc.Errorf(ipc.CodeBusy, "region %d is used by %d operations in flight; wait for them", r.ID, r.InFlight)
}
