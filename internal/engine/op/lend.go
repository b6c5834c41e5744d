package op

import (
	"time"

	"multiedge/internal/engine/queue"
	"multiedge/internal/mono"
)

// Buffers of a shared queue that a connection was promised and does not use (clause 14.5): its peer gave up the sends
// that it asked for, or is idle, or bad. While others ask in vain, such buffers are lent: promised to one of them as
// well. A message that was promised a buffer and finds none then is held until one is posted: left unreceived it would
// be sent again and again, and each time count as lost on the path, at the cost of all others there.

// unusedTime is for how long a promise stays unused, once or twice that, before it is lent.
const unusedTime = 100 * time.Millisecond

// lending is what a shared queue lends.
type lending struct {
	lent  int                 // of those promised
	looks bool                // it is among those that are looked at
	short queue.Queue[ConnID] // connections with messages that found no buffer
}

// borrowing is what others were lent of what a connection was promised.
type borrowing struct {
	lent                    int
	lookedBegun, lookedTill uint32 // begun and limit when it was looked at last
}

// starves reports whether connections ask in vain, and others may not use what they were promised.
func (q *receiveQueue) starves() bool {
	return q.asking.Len() > 0 && q.free()+q.lent <= 0 && q.promised > q.lent
}

// checkSoon sets the timer for lookAtUnused. That goes through all connections of the queue, so it waits for the timer:
// a peer must not be able to cause it for each buffer.
func (e *Endpoint) checkSoon(now mono.Time, q *receiveQueue) {
	if q.looks {
		return
	}
	q.looks = true
	if len(e.queues.lenders) == 0 {
		e.queues.unusedAt = now.Add(unusedTime)
	}
	e.queues.lenders = append(e.queues.lenders, q)
}

// unusedTimeout is when unused buffers are checked.
func (e *Endpoint) unusedTimeout() mono.Time {
	if len(e.queues.lenders) == 0 {
		return mono.Never
	}
	return e.queues.unusedAt
}

// serveShort goes on with messages that found no buffer: those first whose connection was the first to have such.
func (e *Endpoint) serveShort(now mono.Time, q *receiveQueue) {
	for q.posted.Len() > 0 && q.short.Len() > 0 {
		c := e.takerOf(q, *q.short.Front())
		q.short.Pop()
		if c != nil {
			c.msgs.in.short = false
			c.release(now)
		}
	}
}

// checkUnused lends what has not been used since the last look.
func (e *Endpoint) checkUnused(now mono.Time) {
	queues := e.queues.lenders
	e.queues.lenders = nil
	for _, q := range queues {
		for _, c := range q.takers {
			m := c.msgs
			if m.in.lookedBegun == m.in.begun && m.in.lookedTill == m.in.limit {
				q.lent -= m.in.lent
				m.in.lent = int(m.in.limit - m.in.begun)
				q.lent += m.in.lent
			}
			m.in.lookedBegun, m.in.lookedTill = m.in.begun, m.in.limit
		}
		q.looks = false
		e.serveAsking(now, q)
	}
}
