package ipc

import "fmt"

// controlSize is the control page, in bytes.
const controlSize = 4096

// cqFactor is how many completion entries exist per submission entry: every operation in flight has one reserved, and
// notifications may use half of the ring.
const cqFactor = 4

// Layout says how long the rings are, in entries; both are powers of two. It fixes the size of the shared memory.
type Layout struct {
	SQ uint32
	CQ uint32
}

// LayoutFor returns the layout for depth operations in flight. depth must be a power of two between MinDepth and
// MaxDepth.
func LayoutFor(depth int) (Layout, error) {
	if depth < MinDepth || depth > MaxDepth || depth&(depth-1) != 0 {
		return Layout{}, fmt.Errorf("ipc: queue depth %d: choose a power of two between %d and %d", depth, MinDepth,
			MaxDepth)
	}
	return Layout{SQ: uint32(depth), CQ: uint32(depth * cqFactor)}, nil
}

// Validate reports whether l is one that a daemon of any release may choose (A6.2).
func (l Layout) Validate() error {
	_, err := LayoutFor(int(l.SQ))
	if err == nil && (l.CQ&(l.CQ-1) != 0 || uint64(l.CQ) < 2*uint64(l.SQ) || uint64(l.CQ) > 16*uint64(l.SQ)) {
		err = fmt.Errorf("ipc: ring layout of %d and %d entries: the completion ring must be 2, 4, 8 or 16 times the "+
			"submission ring", l.SQ, l.CQ)
	}
	return err
}

// Size returns the bytes of shared memory l needs, a multiple of the page size for every valid layout of 64 entries or
// more, rounded up otherwise.
func (l Layout) Size() int {
	n := controlSize + int(l.SQ)*SQESize + int(l.CQ)*CQESize
	return (n + controlSize - 1) &^ (controlSize - 1)
}

// Depth is the number of operations that may be in flight.
func (l Layout) Depth() int { return int(l.SQ) }
