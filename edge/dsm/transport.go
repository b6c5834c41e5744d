package dsm

import "sync/atomic"

// A transport moves bytes between the memories of ranks: over package edge (links.go), over TCP (tcp.go), in tests
// through memory that does whatever fences allow. A failure ends the rank by a panic (fail).
type transport interface {
	// memory returns the data and the control region of this rank.
	memory() (data, control []byte)
	// post starts an operation on the memory of a rank, which may be this one.
	post(rank int, o order)
	// wait returns when every posted operation has taken effect.
	wait()
	// answer returns when the latest swap or compareSwap has, and what it was fenced behind.
	answer()
	// next returns the oldest notification that was not taken, and the rank that caused it. If there is none it waits,
	// or reports ok false.
	next(wait bool) (rank int, note uint32, ok bool)
}

// order is one operation. Its local memory is the operation's until wait has returned.
type order struct {
	verb        verb
	area        area
	here, there int    // where the bytes are in that area of this rank, and of the other
	n           int    // bytes
	fenced      bool   // it takes effect after all earlier ones on that rank
	note        uint32 // of a write: what the other rank is told once the bytes are in place; 0: nothing

	operand, compare uint64  // of swap and compareSwap, on the 8 bytes at there of the control area
	was              *uint64 // what was there
}

type verb uint8

const (
	read verb = iota
	write
	swap
	compareSwap
)

type area uint8

const (
	control area = iota
	data
)

// perform does an operation on this rank's memory, at once. Atomics are atomic with those of other
// ranks.
func perform(b []byte, o *order) {
	switch o.verb {
	case read:
		copy(b[o.here:o.here+o.n], b[o.there:])
	case write:
		copy(b[o.there:o.there+o.n], b[o.here:])
	case swap:
		*o.was = atomic.SwapUint64(word(b, o.there), o.operand)
	case compareSwap:
		*o.was = o.compare
		for !atomic.CompareAndSwapUint64(word(b, o.there), o.compare, o.operand) {
			if v := atomic.LoadUint64(word(b, o.there)); v != o.compare {
				*o.was = v
				return
			}
		}
	}
}
