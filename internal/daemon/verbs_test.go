package daemon

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/wire"
)

// The numbers of the ABI are those of the engine and of the wire.
func TestAtomicNumbers(t *testing.T) {
	for abi, f := range map[uint8]wire.AtomicFunc{ipc.AtomicSwap: wire.AtomicSwap, ipc.AtomicCAS: wire.AtomicCAS,
		ipc.AtomicAdd: wire.AtomicAdd, ipc.AtomicAnd: wire.AtomicAnd, ipc.AtomicOr: wire.AtomicOr,
		ipc.AtomicXor: wire.AtomicXor, ipc.AtomicMin: wire.AtomicMin, ipc.AtomicMax: wire.AtomicMax,
		ipc.AtomicMinSigned: wire.AtomicMinSigned, ipc.AtomicMaxSigned: wire.AtomicMaxSigned} {
		if abi != uint8(f) {
			t.Errorf("%v is %d in the ABI and %d on the wire", f, abi, f)
		}
	}
	if ipc.OpAtomic != uint8(engine.OpAtomic) || ipc.MaxPieces != engine.MaxPieces ||
		ipc.MaxEager != engine.MaxEager {
		t.Error("operations or limits differ")
	}
	e, op := ipc.SQE{}, engine.Op{}
	e.SetAtomic(ipc.AtomicCAS, 4, 5, 6)
	op.SetAtomic(engine.Atomic{Func: wire.AtomicCAS, Size: 4, Operand: 5, Compare: 6})
	if e.Inline != op.Data {
		t.Errorf("operands are % x in the ABI and % x in the engine", e.Inline, op.Data)
	}
}
