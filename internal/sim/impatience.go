package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"multiedge/internal/engine"
	"multiedge/internal/mono"
)

// Sends that do not wait for a buffer, or not for long (clause 14.6): each is delivered once, in its turn, or refused;
// then it is in no buffer, and none comes to it. The next after it meets the buffer that it would have met.

// Hurried counts them.
type Hurried struct {
	// strict ones that met a buffer; messages that the peer refused for want of one, as it counts them; those with a
	// limit that met one, and that were given up
	Strict, Unbuffered, InTime, GaveUp uint64
}

// hurries draws how long a send waits.
func (o *operation) hurries(rng *rand.Rand, p *pairing, kind planKind) {
	how, limit := rng.IntN(4), 1+rng.Uint64N(1<<(10+rng.IntN(16))) // up to 33 ms: buffers come within 20
	if !p.w.mix.impatient || kind == goodOperations || how > 1 {
		return
	}
	o.op.Patience = limit
	if how == 0 {
		o.op.Patience = engine.NoWait
	}
	if o.size < 8 { // the oracle knows it by its immediate, for its data may be that of another
		o.op.Flags |= engine.Notify
	}
}

// impatient reports whether a send may be refused for want of a buffer.
func (o *operation) impatient() bool { return o.op.Kind == engine.OpSend && o.op.Patience != 0 }

// submittedAt notes when a send begins to wait, and whether a buffer must be there for it: as many are posted as there
// are messages up to it.
func (o *operation) submittedAt(now mono.Time, e *end) {
	if o.op.Kind == engine.OpSend {
		o.msg.at, o.msg.sure = now, e.other.posted > o.msg.number
	}
}

// late is how much longer than its limit a send may wait: the engine looks once a millisecond, and is not called while
// frames are collected for it.
func (w *World) late() time.Duration { return time.Millisecond + w.opt.Together }

// judgeRefusal says whether a send may end for want of a buffer now.
func (o *operation) judgeRefusal(w *swarm) error {
	waited := w.world.Now.Sub(o.msg.at)
	switch limit := time.Duration(o.op.Patience); {
	case !o.impatient():
		return fmt.Errorf("it waits as long as it takes")
	case o.notified > 0:
		return fmt.Errorf("its message arrived")
	case o.op.Patience == engine.NoWait:
		if o.msg.sure {
			return fmt.Errorf("a buffer was posted for it before")
		}
	case waited < limit || waited > limit+w.world.late():
		return fmt.Errorf("it waited %v, and may wait %v", waited, limit)
	default:
		w.report.Hurried.GaveUp++
	}
	return nil
}

// judgeMeeting says whether a message may have met a buffer.
func (o *operation) judgeMeeting(w *swarm, b *buffer) error {
	switch limit := time.Duration(o.op.Patience); {
	case o.complete && o.status == engine.StatusNoBuffer:
		return fmt.Errorf("message %d was refused", o.msg.number)
	case !o.impatient():
	case o.op.Patience == engine.NoWait:
		w.report.Hurried.Strict++
	case b.pool != nil: // it was promised one in time, and met what was the oldest when it came
		w.report.Hurried.InTime++
	case b.at > o.msg.at.Add(limit+w.world.late()):
		return fmt.Errorf("message %d waited until %v, its buffer was posted at %v", o.msg.number, o.msg.at.Add(limit),
			b.at)
	default:
		w.report.Hurried.InTime++
	}
	return nil
}
