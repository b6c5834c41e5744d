package daemon

import (
	"errors"
	"math"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// register obtains memory, which is slow, on this goroutine and then adds it to the client's regions.
func (ss *session) register(m *ipc.Message) (*ipc.Message, error) {
	if m.Size == 0 || m.Size > math.MaxInt {
		return nil, ipc.Errorf(ipc.CodeInvalid, "memory of %d bytes cannot be registered", m.Size)
	}
	size := int(m.Size)
	x := ss.d.shard.exchange
	if err := ss.account.memory.Reserve(x.pins(size)); err != nil {
		key := "limits.pinned"
		if q, ok := errors.AsType[*regmem.QuotaError](err); ok && q.What == "regions" {
			key = "limits.regions_per_user"
		}
		return nil, ipc.Errorf(memoryCode(err), "%v, over all clients of user %d; deregister some or raise %s", err, ss.cred.UID, key)
	}
	mem, space, err := x.allocate(size)
	if err != nil {
		ss.account.memory.Release(x.pins(size))
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	region := &regmem.Region{Mem: mem, Owner: uint64(ss.cred.UID)}
	s, c, full := ss.shard, ss.client, true
	draining := false
	err = s.box.do(func(mono.Time) {
		if draining = s.draining; draining {
			return
		}
		if full = !c.regions.add(region, s.limits.Regions); !full {
			x.add(region, space)
		}
	})
	if err != nil || full {
		ss.freeMemory(mem)
		if err != nil {
			return nil, err
		}
		if draining {
			return nil, errDraining
		}
		return nil, ipc.Errorf(ipc.CodeLimit, "this client has %d regions already; deregister some or raise limits.regions", s.limits.Regions)
	}
	reply := m.Reply()
	reply.Region, reply.Size = region.ID, uint64(mem.Len())
	return nil, ss.conn.Send(reply, mem.FD())
}

func memoryCode(err error) string {
	switch {
	case errors.Is(err, regmem.ErrMemlock):
		return ipc.CodeMemlock
	case errors.Is(err, regmem.ErrQuota):
		return ipc.CodeLimit
	case errors.Is(err, regmem.ErrSize):
		return ipc.CodeInvalid
	}
	return ipc.CodeInternal
}

// deregister revokes every key of a region, then unmaps and unpins it. It fails with CodeBusy while operations use it.
func (ss *session) deregister(m *ipc.Message) (*ipc.Message, error) {
	s, c := ss.shard, ss.client
	var region *regmem.Region
	var refusal error
	err := s.box.do(func(now mono.Time) { region, refusal = s.dropRegion(now, c, m.Region) })
	if err == nil {
		err = refusal
	}
	if err != nil {
		return nil, err
	}
	ss.freeMemory(region.Mem)
	return m.Reply(), nil
}

// dropRegion takes a region from a client. Its memory is the caller's to free, on another goroutine.
func (s *shard) dropRegion(now mono.Time, c *client, id uint32) (*regmem.Region, error) {
	r := c.regions.get(id)
	switch {
	case c.rings == nil:
		return nil, errStopped
	case r == nil:
		return nil, ipc.Errorf(ipc.CodeNoRegion, "there is no region %d", id)
	case r.InFlight > 0:
		return nil, stillBusy(r)
	}
	s.exchange.settle() // nothing may change once a key is revoked
	for key, owner, ok := s.grants.RevokeNext(r); ok; key, owner, ok = s.grants.RevokeNext(r) {
		if cn := c.conns[engine.ConnID(owner)]; cn != nil {
			s.eng.Withdraw(now, cn.id, uint64(key))
			delete(cn.exports, key)
			c.exports--
		}
	}
	s.exchange.remove(r)
	s.dropReferring(r.Mem.Bytes())
	c.regions.remove(r)
	return r, nil
}
