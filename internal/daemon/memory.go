package daemon

import (
	"errors"
	"math"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// A region is registered in two steps. First its memory is offered: charged, made and sent, but not pinned. The client
// maps it and says so. Then it is sealed against holes, pinned, and its descriptor closed. Thus a client cannot give
// back pages that it was charged for, in order to be granted more and have all of them filled again later; and a region
// costs the daemon a mapping, but no descriptor.

// register makes memory, on this goroutine, adds it to the client's regions and offers it.
func (ss *controlConn) register(m *ipc.Message) (*ipc.Message, error) {
	if m.Size == 0 || m.Size > math.MaxInt {
		return nil, ipc.Errorf(ipc.CodeInvalid, "memory of %d bytes cannot be registered", m.Size)
	}
	switch {
	case m.Heap:
		return ss.grantHeap(m)
	case m.Own:
		return ss.adopt(m)
	}
	size := int(m.Size)
	x := ss.d.shard.Exchange()
	if err := ss.account.reserve(x.Pins(size)); err != nil {
		return nil, err
	}
	mem, space, err := x.Allocate(size)
	if err != nil {
		ss.account.release(x.Pins(size))
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	region := &regmem.Region{Mem: mem, Owner: uint64(ss.cred.UID)}
	if err := ss.shard.AddRegion(ss.client, region, space); err != nil {
		ss.freeMemory(mem)
		return nil, err
	}
	reply := m.Reply()
	reply.Region, reply.Size = region.ID, uint64(mem.Len())
	return nil, ss.conn.Send(reply, mem.FD())
}

// adopt registers memory that the client made, in one step: charged, mapped, sealed against holes, pinned (A7.5).
func (ss *controlConn) adopt(m *ipc.Message) (*ipc.Message, error) {
	if ss.brought == 0 || ss.features&ipc.FeatureMemory == 0 {
		return nil, ipc.Errorf(ipc.CodeInvalid, "memory of the client's own comes as a descriptor, with feature %#x "+
			"in force", uint64(ipc.FeatureMemory))
	}
	size := int(m.Size)
	if err := ss.account.reserve(size); err != nil {
		return nil, err
	}
	mem, err := regmem.Adopt(ss.brought, size)
	if err != nil {
		ss.account.release(size)
		return nil, ipc.Errorf(memoryCode(err), "%v", err)
	}
	ss.brought = 0
	region := &regmem.Region{Mem: mem, Owner: uint64(ss.cred.UID)}
	ss.owe(size / pinnedPerRequest)
	if err = mem.Fix(); err != nil { // slow: not on the shard
		err = ipc.Errorf(memoryCode(err), "%v", err)
	} else {
		err = ss.shard.AdoptRegion(ss.client, region)
	}
	if err != nil {
		ss.freeMemory(mem)
		return nil, err
	}
	reply := m.Reply()
	reply.Region, reply.Size = region.ID, uint64(size)
	return reply, nil
}

// mapped makes an offered region one that operations may use. Where its memory cannot be had the region is gone.
func (ss *controlConn) mapped(m *ipc.Message) (*ipc.Message, error) {
	s, c := ss.shard, ss.client
	region, err := s.OfferedRegion(c, m.Region)
	if err != nil {
		return nil, err
	}
	fix, weight := region.Mem.Fix, region.Mem.Len()/pinnedPerRequest // slow: not on the shard
	if region.Back != nil {
		fix, weight = region.Mem.FixSparse, 0
	}
	ss.owe(weight)
	if !s.Exchange().Has(region) { // that memory is this process's own and was pinned when it was made
		if err := fix(); err != nil {
			if _, e := ss.deregister(m); e != nil {
				return nil, e
			}
			return nil, ipc.Errorf(memoryCode(err), "%v", err)
		}
	}
	if err := s.FinishRegion(c, region); err != nil {
		return nil, err
	}
	return m.Reply(), nil
}

func memoryCode(err error) ipc.Code {
	switch {
	case errors.Is(err, regmem.ErrMemlock):
		return ipc.CodeMemlock
	case errors.Is(err, regmem.ErrQuota):
		return ipc.CodeLimit
	case errors.Is(err, regmem.ErrSize), errors.Is(err, regmem.ErrSeals):
		return ipc.CodeInvalid
	}
	return ipc.CodeInternal
}

// deregister revokes every key of a region, then unmaps and unpins it. It fails with CodeBusy while operations use it.
func (ss *controlConn) deregister(m *ipc.Message) (*ipc.Message, error) {
	region, err := ss.shard.DropRegion(ss.client, m.Region)
	if err != nil {
		return nil, err
	}
	ss.freeRegion(region)
	if !ss.carried {
		return m.Reply(), nil
	}
	return nil, ss.shard.Answer(ss.client, m.Reply()) // a courier may be on its way
}
