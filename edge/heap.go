package edge

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"time"

	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// A heap grant: memory that the program has already, where it is, as a Region (MultiEdge §2.1.1). The daemon does not
// map it: a courier, a thread of the daemon's, copies bytes to it and from it by a descriptor of the process's memory.

// GrantHeap returns a Region that is the memory of s itself, on Go's heap or anywhere else. Operations read and write
// it where it is: the program does not register memory and move its data there. Elements of T have no pointers, since a
// peer could write anything into them. The Region keeps s alive until it is closed.
//
// It serves for Post of writes and reads and for Export like any other, at the price of copies and of waking a thread
// for an operation. Atomics, pieces, messages and redirections need Register instead. docs/MEMORY.md says which of its
// promises hold here. The daemon gets a descriptor with which it could read and write all memory of the process; it
// uses only granted ranges (docs/SECURITY.md).
func GrantHeap[T any](ctx context.Context, d *Device, s []T) (*Region, error) {
	t := reflect.TypeFor[T]()
	if p := pointerIn(t); p != nil {
		return nil, invalid("GrantHeap: elements of %v hold a %v, which is a pointer: a peer must not write pointers, "+
			"and the collector does not see those that it writes; grant memory without pointers", t, p)
	}
	b := bytesOf(s)
	if len(b) == 0 {
		return nil, invalid("GrantHeap: there are no bytes in %d elements of %v", len(s), t)
	}
	return d.grantHeap(ctx, heapMemory{addr: addressOf(b), size: len(b), bytes: b})
}

// GrantRange returns a Region that is the range of size virtual addresses of this process from addr on, at most 2^46,
// whether all of them have memory or not. Offset n of the Region, and of an Export of all of it, is address addr+n.
// With addr 0 an offset is an address, as in MultiEdge. An operation fails with ErrMemory if it meets addresses without
// memory, or memory that may not be written; others go on.
//
// The program is responsible for the range. Memory must stay where it is while a peer uses it; variables on a
// goroutine's stack do not. A peer can overwrite everything in the range, pointers and code included. Otherwise the
// Region is like one of GrantHeap, but it has no Bytes.
func (d *Device) GrantRange(ctx context.Context, addr, size uint64) (*Region, error) {
	if size == 0 || size > regmem.MaxHeap || addr > regmem.TopAddress || size > regmem.TopAddress-addr {
		return nil, invalid("GrantRange: %d bytes from %#x; ask for 1 to 2^46 bytes of the addresses of a process",
			size, addr)
	}
	return d.grantHeap(ctx, heapMemory{addr: addr, size: int(size)})
}

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
	m, err := a.call(ctx, &ipc.Message{Kind: ipc.KindRegister, Brought: ipc.Brought{Heap: true}, Off: h.addr,
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

// Addr returns the address of the Region's first byte if it is a heap grant, else 0.
func (r *Region) Addr() uint64 {
	if r.heap == nil {
		return 0
	}
	return r.heap.addr
}

// pointerIn returns the first type within t that has pointers; nil: there is none.
func pointerIn(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Array:
		if t.Len() == 0 {
			return nil
		}
		return pointerIn(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if p := pointerIn(t.Field(i).Type); p != nil {
				return p
			}
		}
		return nil
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.String,
		reflect.UnsafePointer:
		return t
	}
	return nil
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
