package edge

import "multiedge/internal/ipc"

// A leader that waits for several operations says so to the daemon (ABI A8.8), which leaves it alone until these have
// ended. One for whom operations that end well are nothing says that, too (A8.3, A8.5). That holds as long as nobody
// else waits for anything: who begins to has the leader hurry.

// roomShare is the share of what is in flight for whose end one waits who needs room, as a third of the send buffer is
// for TCP's writers: so each wake-up is for many operations.
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
