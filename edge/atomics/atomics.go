// Package atomics performs atomic operations on 8 bytes of remote memory, as sync/atomic does on memory of the process:
// edge.AtomicFunc says what is promised. Memory for them is exported with edge.RemoteAtomic.
package atomics

import (
	"context"

	"multiedge/edge"
	"multiedge/internal/abi"
)

// What Work.Func of an operation of kind edge.Atomic can be.
const (
	Swap        = edge.AtomicFunc(abi.AtomicSwap) // stores Operand
	CompareSwap = edge.AtomicFunc(abi.AtomicCAS)  // stores Operand if the value equals Compare
	FetchAdd    = edge.AtomicFunc(abi.AtomicAdd)  // adds Operand, modulo the size: add ^uint64(0) to subtract one
	FetchAnd    = edge.AtomicFunc(abi.AtomicAnd)
	FetchOr     = edge.AtomicFunc(abi.AtomicOr)
	FetchXor    = edge.AtomicFunc(abi.AtomicXor)
	FetchMin    = edge.AtomicFunc(abi.AtomicMin) // stores the lesser of value and Operand, as unsigned numbers
	FetchMax    = edge.AtomicFunc(abi.AtomicMax)
	// FetchMinSigned and FetchMaxSigned compare in two's complement of the size.
	FetchMinSigned = edge.AtomicFunc(abi.AtomicMinSigned)
	FetchMaxSigned = edge.AtomicFunc(abi.AtomicMaxSigned)
)

// Do performs f on the 8 bytes at off of r and returns what was there. It waits for room in the queue, then for the
// answer. If ctx ends first, it is unknown whether f is performed. For several at a time, post them as Work.
func Do(ctx context.Context, r *edge.RemoteRegion, f edge.AtomicFunc, off int, operand uint64) (was uint64, err error) {
	return perform(ctx, &edge.Work{Func: f, Remote: r, RemoteOff: off, Operand: operand})
}

// Add adds n to the 8 bytes at off of r, as Do does, and returns what was there.
func Add(ctx context.Context, r *edge.RemoteRegion, off int, n uint64) (was uint64, err error) {
	return perform(ctx, &edge.Work{Func: FetchAdd, Remote: r, RemoteOff: off, Operand: n})
}

// CompareAndSwap stores new in the 8 bytes at off of r if they equal old, as Do does. It returns what was there: new
// was stored if that equals old.
func CompareAndSwap(ctx context.Context, r *edge.RemoteRegion, off int, old, new uint64) (was uint64, err error) {
	return perform(ctx, &edge.Work{Func: CompareSwap, Remote: r, RemoteOff: off, Operand: new, Compare: old})
}

func perform(ctx context.Context, w *edge.Work) (uint64, error) {
	was := new(uint64) // the caller's stack may be gone when it arrives
	w.Kind, w.Len, w.Result = edge.Atomic, 8, was
	op, err := w.Remote.Conn().Post(ctx, w)
	if err == nil {
		err = op.Wait(ctx)
	}
	if err != nil {
		return 0, err
	}
	return *was, nil
}
