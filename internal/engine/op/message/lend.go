package message

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
	lent  int                     // of those promised
	looks bool                    // it is among those that are looked at
	short queue.Queue[*Receiving] // connections with messages that found no buffer
}

// borrowing is what others were lent of what a connection was promised.
type borrowing struct {
	lent                    int
	lookedBegun, lookedTill uint32 // begun and limit when it was looked at last
}

// starves reports whether connections ask in vain, and others may not use what they were promised.
func (q *Queue) starves() bool {
	return q.asking.Len() > 0 && q.free()+q.lent <= 0 && q.promised > q.lent
}

// checkSoon sets the timer for CheckUnused. That goes through all connections of the queue, so it waits for the timer:
// a peer must not be able to cause it for each buffer.
func (t *Queues) checkSoon(now mono.Time, q *Queue) {
	if q.looks {
		return
	}
	q.looks = true
	if len(t.lenders) == 0 {
		t.unusedAt = now.Add(unusedTime)
	}
	t.lenders = append(t.lenders, q)
}

// Timeout is when unused buffers are checked.
func (t *Queues) Timeout() mono.Time {
	if len(t.lenders) == 0 {
		return mono.Never
	}
	return t.unusedAt
}

// serveShort goes on with messages that found no buffer: those first whose connection was the first to have such.
func (t *Queues) serveShort(now mono.Time, q *Queue) {
	for q.posted.Len() > 0 && q.short.Len() > 0 {
		if r := q.next(&q.short); r != nil {
			r.short = false
			t.calls.Resume(now, r.conn)
		}
	}
}

// CheckUnused lends what has not been used since the last look.
func (t *Queues) CheckUnused(now mono.Time) {
	queues := t.lenders
	t.lenders = nil
	for _, q := range queues {
		for _, r := range q.takers {
			if r.lookedBegun == r.begun && r.lookedTill == r.limit {
				q.lent -= r.lent
				r.lent = int(r.limit - r.begun)
				q.lent += r.lent
			}
			r.lookedBegun, r.lookedTill = r.begun, r.limit
		}
		q.looks = false
		t.serve(now, q)
	}
}
