package edge

import (
	"context"
	"sync"
)

// Waiting is combining. One goroutine at a time, the leader, takes completions from the ring, for everybody. Others
// that wait, the followers, are parked and woken when what they wait for has happened, or when the leader is satisfied
// and one of them must lead.
//
// No wake-up is lost: the leader changes what is waited for (a slot's generation, a queue) before it looks for waiters,
// and a follower enters the tables before it looks at what it waits for.

type waitKind uint8

const (
	waitOp     waitKind = iota // op is settled
	waitNote                   // conn has a notification or has ended
	waitRoom                   // there may be room for an operation of conn, or for a buffer
	waitPass                   // the leader has been round the ring once, from its beginning
	waitIdle                   // conn has no operation in flight
	waitOver                   // conn, which has ended, has neither operations in flight nor buffers
	waitBounce                 // the bounce arena has a free slot
	waitCond                   // cond holds
	waitQueue                  // queue has a completion
)

// waiter is what one goroutine waits for. A waiter is in the follower list, and in the list of its kind, from enlist to
// delist.
type waiter struct {
	kind  waitKind
	op    Op
	more  []Op // of waitOp: the caller goes on when these have ended, too
	conn  *Conn
	queue *CompletionQueue
	least int    // of waitQueue: how many completions
	cond  *cond  // with waitRoom, what else ends the waiting
	need  int    // of waitRoom: how many entries of the submission ring, 0 for one
	pass  uint64 // of waitPass: done when leadership.passes has reached it
	// of waitRoom: for a buffer; conn is nil if that is for a ReceiveQueue
	buffer bool

	ch         chan struct{} // one token: look again
	leads      bool          // leadership has been handed to this waiter; guarded by leadership.mu
	next, prev *waiter       // followers
	sibling    *waiter       // in the list of the slot or connection
}

var waiterPool = sync.Pool{New: func() any { return &waiter{ch: make(chan struct{}, 1)} }}

// wait waits for what w describes, leading if nobody does. It returns nil when that happened or the attachment died,
// else ctx's error.
func (d *attachment) wait(ctx context.Context, want waiter) error {
	w := waiterPool.Get().(*waiter)
	ch := w.ch
	*w = want
	w.ch = ch
	err := d.await(ctx, w)
	select {
	case <-w.ch:
	default:
	}
	*w = waiter{ch: ch}
	waiterPool.Put(w)
	return err
}

func (d *attachment) await(ctx context.Context, w *waiter) error {
	l := &d.lead
	if ctx.Err() != nil {
		return d.ended(ctx)
	}
	if l.enlist(w) {
		err := d.leadFor(ctx, w)
		d.resign()
		return err
	}
	if w.kind == waitPass || w.kind == waitRoom && d.fullOfCredit(w) {
		d.kick() // a blocked leader must go round, or look again how long to sleep
	} else {
		d.hurry()
	}
	for {
		if d.satisfied(w) {
			d.withdraw(w)
			return nil
		}
		select {
		case <-w.ch:
		case <-ctx.Done():
			if d.satisfied(w) {
				d.withdraw(w)
				return nil
			}
			d.withdraw(w)
			return d.ended(ctx)
		}
		if l.assume(w) {
			err := d.leadFor(ctx, w)
			d.resign()
			return err
		}
	}
}

// withdraw ends the waiting of a follower that does not lead. Leadership may have been on its way to it. It is free
// then, and nobody has looked at the ring, so an armed poller must take it.
func (d *attachment) withdraw(w *waiter) {
	d.lead.delist(w)
	d.dev.progress()
}

// satisfied reports whether w has what it waits for. A dead attachment satisfies everybody.
func (d *attachment) satisfied(w *waiter) bool {
	if d.life.dead.Load() != nil {
		return true
	}
	switch w.kind {
	case waitOp:
		return w.op.settled()
	case waitNote:
		return !w.conn.notes.empty() || w.conn.Err() != nil
	case waitRoom:
		return d.hasRoom(w) || w.conn != nil && w.conn.usable() != nil || w.cond != nil && w.cond.ready()
	case waitIdle:
		return w.conn.inflight.Load() == 0
	case waitOver:
		return w.conn.inflight.Load() == 0 && w.conn.buffers.Load() == 0
	case waitBounce:
		return len(d.bounce.Load().free) > 0
	case waitCond:
		return w.cond.ready()
	case waitQueue:
		return w.queue.holds(w.least)
	default:
		return d.lead.passes.Load() >= w.pass
	}
}

func (d *attachment) hasRoom(w *waiter) bool {
	d.out.post.Lock()
	defer d.out.post.Unlock()
	switch {
	case d.out.detached:
		return true
	case w.buffer:
		return d.bufferRoom(max(1, w.need))
	}
	return w.conn.room(max(1, w.need))
}
