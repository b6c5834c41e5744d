package daemon

import (
	"testing"

	"multiedge/internal/engine"
	"multiedge/internal/ipc"
	"multiedge/internal/wire"
)

// Operands stand in the engine's operations as in submissions, and its limits are the ABI's.
func TestAtomicOperands(t *testing.T) {
	if ipc.MaxPieces != engine.MaxPieces || ipc.MaxEager != engine.MaxEager {
		t.Error("limits differ")
	}
	e, op := ipc.SQE{}, engine.Op{}
	e.SetAtomic(ipc.AtomicCAS, 4, 5, 6)
	op.SetAtomic(engine.Atomic{Func: wire.AtomicCAS, Size: 4, Operand: 5, Compare: 6})
	if [ipc.MaxInline]byte(e.Inline[:]) != op.Data {
		t.Errorf("operands are % x in the ABI and % x in the engine", e.Inline, op.Data)
	}
}
