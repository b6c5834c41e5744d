package edge

import (
	"context"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// leadership is the state of combining. The leader alone uses cq and the fields after it.
type leadership struct {
	mu        sync.Mutex
	free      *sync.Cond // signalled when leadership becomes free and somebody wants to seize it
	taken     bool
	wanted    bool    // seize waits: hand to nobody else
	seized    bool    // it has it
	head      *waiter // followers, oldest first
	tail      *waiter
	followers atomic.Int32
	others    atomic.Int32  // followers that every round looks at: of waitRoom, waitPass and waitBounce
	passers   atomic.Int32  // followers of waitPass: the leader must not block
	passes    atomic.Uint64 // rounds of the ring that have ended
	patient   atomic.Bool   // the leader sleeps, and not for the next operation that ends well (patience.go)
	told      systemCalls   // of leaders that lead no more; guarded by mu

	cq       *ipc.CompleteConsumer
	batch    [64]ipc.CQE
	freed    uint32 // attachment.slots.freeTail
	strategy strategy
	cancel   cancelHook
	hurried  int  // so many leaders more look at each operation: others wanted to know of one
	broken   bool // the daemon wrote nonsense
}

// try takes leadership if nobody has it.
func (l *leadership) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken {
		return false
	}
	l.taken = true
	return true
}

// enlist makes the caller the leader and reports true, or enters w as a follower.
func (l *leadership) enlist(w *waiter) (leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.taken = true
		return true
	}
	w.prev, w.next = l.tail, nil
	if l.tail == nil {
		l.head = w
	} else {
		l.tail.next = w
	}
	l.tail = w
	if list := w.list(); list != nil {
		w.sibling, *list = *list, w
	} else if w.kind != waitQueue {
		l.others.Add(1)
	}
	if w.kind == waitPass {
		l.passers.Add(1)
	}
	l.followers.Add(1)
	return false
}

// list returns the list that wakes w, besides the list of followers. It returns nil for waiters that every round
// checks.
func (w *waiter) list() **waiter {
	switch w.kind {
	case waitOp:
		return &w.op.d.slots.list[w.op.slot].waiters
	case waitNote, waitIdle, waitOver:
		return &w.conn.waiters
	case waitCond:
		return &w.cond.waiters
	}
	return nil
}

// assume reports whether leadership was handed to the follower w, which is then no follower any more.
func (l *leadership) assume(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.leads {
		return false
	}
	l.unlink(w)
	return true
}

// delist ends the waiting of a follower. Leadership that reached it meanwhile goes on.
func (l *leadership) delist(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leads := w.leads
	l.unlink(w)
	if leads {
		l.pass()
	}
}

func (l *leadership) unlink(w *waiter) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	l.followers.Add(-1)
	if w.kind == waitPass {
		l.passers.Add(-1)
	}
	list := w.list()
	if w.kind == waitQueue {
		return
	}
	if list == nil {
		l.others.Add(-1)
		return
	}
	for *list != w {
		list = &(*list).sibling
	}
	*list = w.sibling
}

// handOff ends the caller's leadership: the oldest follower has it next, or nobody.
func (l *leadership) handOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass()
}

// pass has the leader's counts told, and hands leadership on. The caller leads and holds mu.
func (l *leadership) pass() {
	l.told = l.strategy.calls
	if l.head == nil || l.wanted {
		l.taken = false
		if l.wanted {
			l.free.Broadcast()
		}
		return
	}
	l.head.leads = true
	l.head.nudge()
}

// seize takes leadership for ever, for all who call it. The attachment is dead: leaders give up at once, and followers
// do not need any.
func (l *leadership) seize() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	for l.taken && !l.seized {
		l.free.Wait()
	}
	l.taken, l.seized = true, true
	l.free.Broadcast()
}

// nudge makes the follower look again.
func (w *waiter) nudge() {
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

// wake nudges the waiters of a slot or connection.
func (l *leadership) wake(list **waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := *list; w != nil; w = w.sibling {
		w.nudge()
	}
}

// wakeQueue nudges those who wait for a completion queue.
func (l *leadership) wakeQueue(q *CompletionQueue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.head; w != nil; w = w.next {
		if w.queue == q {
			w.nudge()
		}
	}
}

// wakeAll nudges every follower, or only those that no list wakes.
func (l *leadership) wakeAll(listed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.head; w != nil; w = w.next {
		if listed || w.list() == nil {
			w.nudge()
		}
	}
}

// cancelHook rings the doorbell when the context ends under which the leader blocks. It stays in place from one wait to
// the next while the context is the same, so that waiting in a loop allocates nothing.
type cancelHook struct {
	done <-chan struct{}
	stop func() bool
}

func (h *cancelHook) arm(ctx context.Context, ring func()) {
	done := ctx.Done()
	if done == nil || done == h.done {
		return
	}
	h.drop()
	h.done, h.stop = done, context.AfterFunc(ctx, ring)
}

func (h *cancelHook) drop() {
	if h.stop != nil {
		h.stop()
	}
	h.done, h.stop = nil, nil
}
