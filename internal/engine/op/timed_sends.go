package op

import (
	"math"
	"time"

	"multiedge/internal/abi"
	"multiedge/internal/mono"
)

// Sends that wait for a buffer for a limited time (clause 14.6).

// timedSends are the connections that may have such sends, and when they are looked at next.
type timedSends struct {
	waiters  []ConnID
	giveUpAt mono.Time // zero: there is none
	resting  mono.Time // nobody looks before
}

// How often they are looked at, at most: the time allowed is that much longer. The more sends wait, the less often they
// are checked: a check goes through all of them, and takes a few per cent of the time at most.
const (
	patienceStep  = time.Millisecond
	patienceShare = time.Microsecond // for each operation that was looked at
)

// patience is how long a send may wait.
func patience(op *Op) time.Duration { return time.Duration(min(op.Patience, math.MaxInt64/2)) }

// timed reports whether an operation is a message that waits for a limited time.
func timed(op *Op) bool { return op.Kind.Message() && op.Patience != 0 && op.Patience != NoWait }

// notBefore notes that a send of c is given up at a time, if it waits still.
func (e *Endpoint) notBefore(c *Conn, at mono.Time) {
	p := &e.timed
	if !c.msgs.waiting.listed {
		c.msgs.waiting.listed = true
		p.waiters = append(p.waiters, c.ID)
	}
	if at = max(at, p.resting); p.giveUpAt == 0 || at < p.giveUpAt {
		p.giveUpAt = at
	}
}

// patienceTimeout is when sends are given up next.
func (e *Endpoint) patienceTimeout() mono.Time {
	if e.timed.giveUpAt == 0 {
		return mono.Never
	}
	return e.timed.giveUpAt
}

// expireWaiting gives up the sends that waited long enough, and what is behind them goes on.
func (e *Endpoint) expireWaiting(now mono.Time) {
	p, next, looked := &e.timed, mono.Never, 0
	kept := p.waiters[:0]
	for _, id := range p.waiters {
		c := e.conn(id)
		if c == nil || c.msgs == nil {
			continue
		}
		looked += c.msgs.waiting.queue.Len()
		at := c.expireWaiting(now)
		if c.msgs.waiting.listed = at != mono.Never; c.msgs.waiting.listed {
			kept = append(kept, id)
		}
		next = min(next, at)
	}
	p.waiters, p.resting = kept, now.Add(max(patienceStep, time.Duration(looked)*patienceShare))
	p.giveUpAt = max(next, p.resting)
	if len(kept) == 0 {
		p.giveUpAt = 0
	}
}

// inTurn reports whether the time of a send begins when those before it wait no more (clause 22.4).
func (c *Conn) inTurn() bool { return c.ordered && c.recv.domain != 0 }

// expireWaiting returns when the next send of the connection is given up.
func (c *Conn) expireWaiting(now mono.Time) (next mono.Time) {
	if c.inTurn() {
		c.expireTurn(now)
		c.enterWaiting(now)
		next = c.turnEnds()
	} else {
		next = c.expireEach(now)
		c.enterWaiting(now)
	}
	if c.state == connClosing {
		c.drained(now)
	}
	return next
}

// expireEach is expireWaiting for sends of which each has a time of its own.
func (c *Conn) expireEach(now mono.Time) (next mono.Time) {
	next = mono.Never
	c.msgs.waiting.queue.Remove(func(o sendOp) bool {
		if !timed(&o.op) {
			return false
		}
		if at := o.since.Add(patience(&o.op)); at > now {
			next = min(next, at)
			return false
		}
		c.giveUp(&o, abi.StatusNoBuffer)
		return true
	})
	return next
}

// expireTurn gives up the first of those that wait, if its time is over, and then all others (clause 22.3).
func (c *Conn) expireTurn(now mono.Time) {
	if c.turnEnds() > now {
		return
	}
	w, st := &c.msgs.waiting, abi.StatusNoBuffer
	for w.queue.Len() > 0 {
		o := *w.queue.Front()
		w.queue.Pop()
		c.giveUp(&o, st)
		st = abi.StatusStopped
	}
}

// turnEnds is when the first of those that wait is given up.
func (c *Conn) turnEnds() mono.Time {
	w := &c.msgs.waiting
	if w.queue.Len() == 0 || !timed(&w.queue.Front().op) {
		return mono.Never
	}
	return w.turn.Add(patience(&w.queue.Front().op))
}
