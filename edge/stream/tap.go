package stream

import (
	"fmt"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// tap is what a stream learns of its connection, as it happens (inner.Tap).
type tap struct{ s *Conn }

// Notified takes a notification of the peer, which may be nonsense.
func (t tap) Notified(n inner.Note) {
	count := uint64(n.Imm & immCount)
	bad := ""
	switch n.Imm & immKind {
	case immData:
		bad = t.s.in.piece(count, int(n.Len), t.s.ring)
	case immCredit:
		bad = t.s.out.credit(count)
	case immFin:
		bad = t.s.in.end(count)
	default:
		bad = fmt.Sprintf("a notification of unknown kind, %#x", n.Imm)
	}
	if bad != "" {
		t.s.cut(fmt.Errorf("%w (%s)", ErrProtocol, bad))
	}
}

// Failed handles the failure of an operation. If the connection has ended, its end is reported elsewhere; otherwise the
// stream would have a hole, so Failed cuts it.
func (t tap) Failed(status ipc.Status, err error) {
	switch status {
	case ipc.StatusKey, ipc.StatusOwner, ipc.StatusPermission, ipc.StatusBounds, ipc.StatusLocal, ipc.StatusLimit,
		ipc.StatusQuota:
		t.s.cut(fmt.Errorf("edge: part of the stream was refused: %w", err))
	}
}

// Completed lets those look who wait for an operation.
func (t tap) Completed(redirection bool) {
	t.s.out.cond.Wake()
	if redirection {
		t.s.in.cond.Wake()
	}
}

// Changed lets everybody look: the connection has ended, or the peer's ring has become known, for which credit may have
// waited.
func (t tap) Changed() {
	t.s.in.cond.Interrupt()
	t.s.out.cond.Interrupt()
	t.s.grant()
}
