package edge

import "multiedge/internal/ipc"

// A leader that waits for several operations tells the daemon how many (ABI A8.8), and is not woken before they have
// ended. A leader that waits for notifications alone is not woken by operations that succeed (A8.3, A8.5). Both hold
// while no other goroutine waits: one that begins to wait wakes the leader, which then looks at each completion.

// roomShare: who waits for room is woken when one in so many of the operations in flight has ended, so that a wake-up
// serves many operations. TCP wakes a writer when a third of its send buffer is free.
const roomShare = 4

// mostAsked bounds the work of a look at a long list: a wake-up for so many operations costs little for each.
const mostAsked = 64

// few returns how many operations must end before w can be satisfied, or should. 0: none that ends well matters; -n:
// nor do less than n notifications.
func (w *waiter) few() int {
	switch w.kind {
	case waitOp:
		n := 1
		for i := 0; i < min(len(w.more), 4*mostAsked) && n < mostAsked; i++ {
			if o := &w.more[i]; o.d == w.op.d && !o.settled() {
				n++
			}
		}
		return n
	case waitNote:
		return 0
	case waitQueue:
		works := int(w.queue.works.Load())
		return min(works, max(1, w.least-int(w.queue.waiting.Load())))
	case waitIdle, waitOver:
		return max(1, int(w.conn.inflight.Load()))
	case waitRoom:
		if w.conn != nil && w.cond == nil && !w.buffer {
			return max(1, int(w.conn.inflight.Load())/roomShare)
		}
	case waitCond:
		if w.cond.few != nil {
			return w.cond.few()
		}
	}
	return 1
}

// hurriedLeads is for how many leaders to come nobody is patient, once one had to hurry: goroutines that wait side by
// side do so again and again, and to hurry a leader costs a wake-up.
const hurriedLeads = 16

// alone reports whether nobody but the leader wants to know of what completes, and no credit is owed, which may wait
// for room.
func (d *attachment) alone() bool {
	return d.lead.followers.Load() == 0 && !d.dev.pollerArmed.Load() && d.lead.hurried == 0 && !d.out.owingFlag.Load()
}

// asks returns for how many operations the leader, who waits for w, waits. Those of a transport that it drives itself
// wake nobody.
func (d *attachment) asks(w *waiter) int {
	if !d.alone() {
		return 1
	}
	n := w.few()
	if d.driven() {
		return min(max(n, 0), 1)
	}
	return n
}

// polls is what the leader says of those who wait, as asks has it.
func polls(asks int) ipc.Polling {
	if asks <= 0 {
		return ipc.PollsForPeer
	}
	return ipc.Polls
}

// hurry has a leader that sleeps until several operations have ended look at each from now on: somebody else wants to
// know.
func (d *attachment) hurry() {
	if d.lead.patient.Load() && d.lead.patient.CompareAndSwap(true, false) {
		d.kick()
	}
}
