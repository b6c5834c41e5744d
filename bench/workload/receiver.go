package workload

import (
	"context"
	"fmt"

	"multiedge/bench/pattern"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// receiver takes one run's notifications: messages to verify, credit for the own sender, and the ends of both directions. It is run by one
// goroutine; while a sender runs beside it, only the credit is shared.
type receiver struct {
	ch      *channel
	size    int              // bytes of a message
	checker *pattern.Checker // nil: data is not checked
	credit  *credit          // of the own sender; may be nil

	wantEnd  bool // the peer sends, and will say how much
	wantAck  bool // the own end will be acknowledged
	told     uint64
	peerSent uint64
	endAt    mono.Time // when the peer's end came
	ackAt    mono.Time // when the own end was acknowledged
}

// run handles notifications until both ends it wants are seen.
func (r *receiver) run(ctx context.Context) error {
	for r.wantEnd || r.wantAck {
		n, err := r.ch.conn.WaitNotify(ctx)
		if err != nil {
			return err
		}
		if err := r.handle(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) handle(ctx context.Context, n edge.Notification) error {
	switch kind, value := split(n.Imm); {
	case kind == immMessage && r.checker != nil:
		return r.message(ctx, n, value)
	case kind == immCredit && r.credit != nil:
		r.credit.raise(value)
	case kind == immEnd && r.wantEnd:
		r.wantEnd, r.endAt = false, mono.Now()
		r.peerSent = r.ch.endCount()
		return r.ch.signal(ctx, immEndAck)
	case kind == immEndAck && r.wantAck:
		r.wantAck, r.ackAt = false, mono.Now()
	default:
		return unexpected(n.Imm, "what belongs to the run")
	}
	return nil
}

// message verifies one message and gives its slot back, a quarter of all slots at a time.
func (r *receiver) message(ctx context.Context, n edge.Notification, low uint64) error {
	seq := r.checker.Extend(low, immMask)
	r.checker.Message(seq)
	if n.Len != r.size {
		r.checker.Fail(fmt.Sprintf("message %d: the notification says %d bytes", seq, n.Len))
	}
	if floor := r.checker.Floor(); floor-r.told >= max(1, uint64(r.checker.Slots())/4) {
		r.told = floor
		return r.ch.signal(ctx, immCredit|uint32(floor&immMask))
	}
	return nil
}

// finish ends the check of what the peer sent.
func (r *receiver) finish() Integrity {
	if r.checker == nil {
		return Integrity{}
	}
	r.checker.Finish(r.peerSent)
	return Integrity{Errors: r.checker.Errors, Details: r.checker.Details}
}
