package edge

import (
	"multiedge/internal/abi"
	"multiedge/internal/ipc"
	"multiedge/regmem"
)

// AtomicFunc is what an operation of kind Atomic does to the 4 or 8 bytes at Work.RemoteOff, in one step: package
// atomics has them. It is atomic with other atomics on that memory, of whatever peer and connection, and with the
// processor's own atomic instructions (package sync/atomic, C11 atomics) in the processes that map it; not with writes
// and reads. Values are numbers in the byte order of the host whose memory it is. Each is performed exactly once,
// whatever is lost on the way; only when a connection ends with operations in flight is it unknown whether they were
// performed.
type AtomicFunc uint8

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
	case w.Len != 4 && w.Len != 8, w.Func < AtomicFunc(abi.AtomicSwap), w.Func > AtomicFunc(abi.AtomicMaxSigned),
		w.Local != nil, len(w.Pieces) > 0,
		len(w.Inline) > 0, w.Compare != 0 && w.Func != AtomicFunc(abi.AtomicCAS), c.d.features&ipc.FeatureAtomics == 0:
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
