package daemon

import (
	"errors"
	"fmt"
	"sync"

	"multiedge/internal/ipc"
	"multiedge/internal/shard"
	"multiedge/regmem"
)

// Heap grants (A7.19): a process hands over the descriptor of its own memory, and ranges of it that operations may use.
// Nothing is mapped or pinned; a thread for each process carries the bytes.

// heapRegionBytes is what a grant is charged.
const heapRegionBytes = 4096

// couriers counts them, by user: each is a thread, of which a process has only so many.
type couriers struct {
	mu  sync.Mutex
	all int
	of  map[uint32]int
}

// enter admits one, of so many at most.
func (n *couriers) enter(uid uint32, most int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case most <= 0:
		return ipc.Errorf(ipc.CodeDenied, "this daemon takes no grants of memory where it is (limits.couriers); "+
			"register memory")
	case n.of[uid] >= (most+7)/8:
		return ipc.Errorf(ipc.CodeLimit, "%d processes of %v have heap grants already; close some, or raise "+
			"limits.couriers, of which a user has an eighth", n.of[uid], shard.Owner(uid))
	case n.all >= most:
		return ipc.Errorf(ipc.CodeLimit, "%d processes have heap grants already; try again when some have ended, or "+
			"raise limits.couriers", n.all)
	}
	if n.of == nil {
		n.of = map[uint32]int{}
	}
	n.all++
	n.of[uid]++
	return nil
}

func (n *couriers) leave(uid uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all--
	if n.of[uid]--; n.of[uid] == 0 {
		delete(n.of, uid)
	}
}

// grantHeap serves a register with HEAP.
func (ss *controlConn) grantHeap(m *ipc.Message) (*ipc.Message, error) {
	if ss.features&ipc.FeatureHeap == 0 || m.Own || ss.brought == 0 {
		return nil, ipc.Errorf(ipc.CodeInvalid, "a grant of memory where it is needs /proc/self/mem as a descriptor, "+
			"with feature %#x in force, and no other flag", uint64(ipc.FeatureHeap))
	}
	if err := regmem.CheckProcess(ss.brought, ss.cred.PID); err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%v", err)
	}
	if err := ss.account.reserve(heapRegionBytes); err != nil {
		return nil, err
	}
	err := ss.startCourier()
	var r *regmem.Region
	if err == nil {
		r, err = ss.shard.GrantHeap(ss.client, m.Addr, m.Size)
	}
	if err != nil {
		ss.account.release(heapRegionBytes)
		if e, ok := errors.AsType[*ipc.Error](err); ok {
			return nil, e
		}
		code := memoryCode(err)
		if errors.Is(err, regmem.ErrBounds) {
			code = ipc.CodeInvalid
		}
		return nil, ipc.Errorf(code, "%v", err)
	}
	reply := m.Reply()
	reply.Region, reply.Size = r.ID, m.Size
	return reply, nil
}

// startCourier has a courier for the client, whose process's memory was brought; the first grant needs one.
func (ss *controlConn) startCourier() error {
	if ss.carried {
		return nil
	}
	if err := ss.account.charge(regmem.CarrierCost, 0); err != nil {
		return err
	}
	err := ss.d.pins.couriers.enter(ss.owner, ss.d.accounts.Admitted().Couriers)
	if err == nil {
		if err = ss.shard.Carry(ss.client, ss.brought); err == nil || errors.Is(err, shard.ErrStopped) {
			ss.brought = 0
		}
		if err == nil {
			ss.carried = true
			return nil
		}
		ss.d.pins.couriers.leave(ss.owner)
		err = fmt.Errorf("heap grants: %w", err)
	}
	ss.account.uncharge(regmem.CarrierCost, 0)
	return err
}

// endCourier ends it. A process that has memory which nobody can read or write holds up its own courier, and is charged
// for it meanwhile; a daemon that stops does not wait for that.
func (ss *controlConn) endCourier() {
	if !ss.carried {
		return
	}
	if q := ss.client.Courier(); q != nil {
		q.End()
		select {
		case <-q.Done():
		case <-ss.d.stopped:
		}
	}
	ss.d.pins.couriers.leave(ss.owner)
	ss.account.uncharge(regmem.CarrierCost, 0)
}

// freeHeap gives back a region if it is a heap grant, and reports whether it was.
func (ss *controlConn) freeHeap(r *regmem.Region) bool {
	if _, ok := r.Back.(*regmem.Heap); !ok {
		return false
	}
	ss.account.release(heapRegionBytes)
	return true
}
