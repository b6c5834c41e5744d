package edge

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// A heap grant: memory that the program has already, where it is, as a Region (MultiEdge §2.1.1). The daemon does not
// map it: a courier, a thread of the daemon's, copies bytes to it and from it by a descriptor of the process's memory.

// heapMemory is what is granted.
type heapMemory struct {
	addr  uint64
	size  int
	bytes []byte // nil: a range of addresses
}

func (d *Device) grantHeap(ctx context.Context, h heapMemory) (*Region, error) {
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	if a.features&ipc.FeatureHeap == 0 {
		return nil, fmt.Errorf("%w: the daemon does not know heap grants; upgrade it, or use Register",
			ErrVersion)
	}
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return nil, invalid("a grant of memory where it is needs /proc: %v", err)
	}
	defer f.Close()
	c := &call{sends: []int{int(f.Fd())}, late: func(m *ipc.Message) {
		go a.tell(&ipc.Message{Kind: ipc.KindDeregister, Region: m.Region})
	}}
	m, err := a.call(ctx, &ipc.Message{Kind: ipc.KindRegister, Brought: ipc.Brought{Heap: true, Addr: h.addr},
		Size: uint64(h.size)}, c)
	if err != nil {
		return nil, err
	}
	r := &Region{d: a, id: m.Region, size: h.size, mem: regmem.Wrap(h.bytes), bytes: h.bytes, heap: &h}
	if !d.keep(r) {
		return nil, net.ErrClosed
	}
	return r, nil
}

var errHeapPieces = invalid("Work.Pieces: a heap grant serves for operations in one piece; use Local, or Register")

// inHeap reports whether some of the pieces are of heap grants.
func inHeap(ps []Piece) bool {
	for i := range ps {
		if r := ps[i].Region; r != nil && r.heap != nil {
			return true
		}
	}
	return false
}

// returnTime is how long a Device that closes waits for couriers.
const returnTime = 5 * time.Second

// returnHeap ends all connections of a Device with heap grants, and returns when no courier writes any more: their
// memory goes on to be there when the Device is closed.
func (d *Device) returnHeap(a *attachment) {
	d.mu.Lock()
	granted := false
	for r := range d.regions {
		granted = granted || r.heap != nil && r.d == a
	}
	d.mu.Unlock()
	if !granted || a.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnTime)
	defer cancel()
	a.conns.mu.Lock()
	ids := make([]uint32, 0, len(a.conns.byNumber))
	for id := range a.conns.byNumber {
		ids = append(ids, id)
	}
	a.conns.mu.Unlock()
	for _, id := range ids {
		a.call(ctx, &ipc.Message{Kind: ipc.KindAbort, Conn: id}, &call{}) // it may be over
	}
}
