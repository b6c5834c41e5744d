package edge

import (
	"context"

	"multiedge/internal/abi"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// AtomicFunc is what an operation of kind Atomic does to the 4 or 8 bytes at Work.RemoteOff, in one step. It is atomic
// with other atomics on that memory, of whatever peer and connection, and with the processor's own atomic instructions
// (package sync/atomic, C11 atomics) in the processes that map it; not with writes and reads. Values are numbers in the
// byte order of the host whose memory it is. Each is performed exactly once, whatever is lost on the way; only when a
// connection ends with operations in flight is it unknown whether they were performed.
type AtomicFunc uint8

const (
	Swap        = AtomicFunc(abi.AtomicSwap) // stores Operand
	CompareSwap = AtomicFunc(abi.AtomicCAS)  // stores Operand if the value equals Compare
	FetchAdd    = AtomicFunc(abi.AtomicAdd)  // adds Operand, modulo the size: add ^uint64(0) to subtract one
	FetchAnd    = AtomicFunc(abi.AtomicAnd)
	FetchOr     = AtomicFunc(abi.AtomicOr)
	FetchXor    = AtomicFunc(abi.AtomicXor)
	FetchMin    = AtomicFunc(abi.AtomicMin) // stores the lesser of value and Operand, as unsigned numbers
	FetchMax    = AtomicFunc(abi.AtomicMax)
	// FetchMinSigned and FetchMaxSigned compare in two's complement of the size.
	FetchMinSigned = AtomicFunc(abi.AtomicMinSigned)
	FetchMaxSigned = AtomicFunc(abi.AtomicMaxSigned)
)

// ErrMisaligned is the error of an atomic whose RemoteOff is no multiple of its Len.
var ErrMisaligned = registered(abi.StatusMisaligned.Code(), nil)

var errAtomic = invalid("an Atomic has a Func, Len 4 or 8 and a RemoteOff, and no local memory: Result receives what " +
	"was there; the daemon must be one that performs atomics")

// encodeAtomic checks an atomic, whose range was checked, and fills e, all but the token. The caller holds d.post.
func (c *Conn) encodeAtomic(w *Work, e *ipc.SQE) error {
	r := w.Remote
	switch {
	case r.perm&regmem.RemoteAtomic == 0:
		return ErrPermission
	case w.Len != 4 && w.Len != 8, w.Func < Swap, w.Func > FetchMaxSigned, w.Local != nil, len(w.Pieces) > 0,
		len(w.Inline) > 0, w.Compare != 0 && w.Func != CompareSwap, c.d.features&ipc.FeatureAtomics == 0:
		return errAtomic
	case w.Flags&^(BackwardFence|ForwardFence|Notify) != 0:
		return errKind
	case w.RemoteOff%w.Len != 0:
		return ErrMisaligned
	}
	e.Flags, e.Conn, e.Imm, e.Key, e.RemoteOff = ipc.Flags(w.Flags), c.id, w.Imm, uint64(r.key), uint64(w.RemoteOff)
	e.SetAtomic(ipc.AtomicFunc(w.Func), w.Len, w.Operand, w.Compare)
	return nil
}

// Atomic performs f on the 8 bytes at off and returns what was there. It waits for room in the queue, then for the
// answer. If ctx ends first, it is unknown whether f is performed. For several at a time, post them as Work.
func (r *RemoteRegion) Atomic(ctx context.Context, f AtomicFunc, off int, operand uint64) (was uint64, err error) {
	return r.perform(ctx, &Work{Func: f, RemoteOff: off, Operand: operand})
}

// FetchAdd adds n to the 8 bytes at off, as Atomic does, and returns what was there.
func (r *RemoteRegion) FetchAdd(ctx context.Context, off int, n uint64) (was uint64, err error) {
	return r.perform(ctx, &Work{Func: FetchAdd, RemoteOff: off, Operand: n})
}

// CompareSwap stores new in the 8 bytes at off if they equal old, as Atomic does. It returns what was there: new was
// stored if that equals old.
func (r *RemoteRegion) CompareSwap(ctx context.Context, off int, old, new uint64) (was uint64, err error) {
	return r.perform(ctx, &Work{Func: CompareSwap, RemoteOff: off, Operand: new, Compare: old})
}

func (r *RemoteRegion) perform(ctx context.Context, w *Work) (uint64, error) {
	was := new(uint64) // the caller's stack may be gone when it arrives
	w.Kind, w.Remote, w.Len, w.Result = Atomic, r, 8, was
	op, err := r.conn.PostWait(ctx, w)
	if err == nil {
		err = op.Wait(ctx)
	}
	if err != nil {
		return 0, err
	}
	return *was, nil
}
