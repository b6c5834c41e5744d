// Package heap grants memory that the program has already, where it is, as a Region (MultiEdge §2.1.1). Nothing is
// registered and nothing moves; the daemon copies the bytes, so use edge.Device.Register for memory that is used often.
package heap

import (
	"context"
	"fmt"
	"reflect"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
	"multiedge/regmem"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	GrantHeap(ctx context.Context, d *edge.Device, addr, size uint64, bytes []byte) (*edge.Region, error)
	HeapAddr(*edge.Region) uint64
})

// Grant returns a Region of dev that is the memory of s itself, on Go's heap or anywhere else. Operations read and
// write it where it is. Elements of T have no pointers, since a peer could write anything into them. The Region keeps s
// alive until it is closed.
//
// It serves for Post of writes and reads and for Export like any other, at the price of copies and of waking a thread
// for an operation. Atomics, pieces, messages and redirections need Register instead. docs/MEMORY.md says which of its
// promises hold here. The daemon gets a descriptor with which it could read and write all memory of the process; it
// uses only granted ranges (docs/SECURITY.md).
func Grant[T any](ctx context.Context, dev *edge.Device, s []T) (*edge.Region, error) {
	t := reflect.TypeFor[T]()
	if p := pointerIn(t); p != nil {
		return nil,
			invalid("heap.Grant: elements of %v hold a %v, which is a pointer: a peer must not write pointers, "+
				"and the collector does not see those that it writes; grant memory without pointers", t, p)
	}
	b := bytesOf(s)
	if len(b) == 0 {
		return nil, invalid("heap.Grant: there are no bytes in %d elements of %v", len(s), t)
	}
	return core.GrantHeap(ctx, dev, addressOf(b), uint64(len(b)), b)
}

// Range returns a Region of dev that is the range of size virtual addresses of this process from addr on, at most 2^46,
// whether all of them have memory or not. Offset n of the Region, and of an Export of all of it, is address addr+n.
// With addr 0 an offset is an address, as in MultiEdge. An operation fails with edge.ErrMemory if it meets addresses
// without memory, or memory that may not be written; others go on.
//
// The program is responsible for the range. Memory must stay where it is while a peer uses it; variables on a
// goroutine's stack do not. A peer can overwrite everything in the range, pointers and code included. Otherwise the
// Region is like one of Grant, but it has no Bytes.
func Range(ctx context.Context, dev *edge.Device, addr, size uint64) (*edge.Region, error) {
	if size == 0 || size > regmem.MaxHeap || addr > regmem.TopAddress || size > regmem.TopAddress-addr {
		return nil, invalid("heap.Range: %d bytes from %#x; ask for 1 to 2^46 bytes of the addresses of a process",
			size,
			addr)
	}
	return core.GrantHeap(ctx, dev, addr, size, nil)
}

// Addr returns the address of the first byte of a Region that Grant or Range returned, 0 of any other.
func Addr(r *edge.Region) uint64 { return core.HeapAddr(r) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, args...)...)
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
