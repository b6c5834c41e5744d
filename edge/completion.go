package edge

// The way of completions: the leader (wait.go) drives an embedded transport with push, then empties the completion ring
// with goRound. take finds the slot by the entry's token; complete frees it and moves its generation on, which is how
// an Op knows that it is done; notified queues a notification with its connection. Goroutines that wait for it are
// woken.

import (
	"context"
	"runtime"
	"time"

	"multiedge/internal/ipc"
)

// Poll takes what has completed from the ring, unless another goroutine does so already, and returns how many entries
// there were. Done and Err then know. It never blocks.
func (d *Device) Poll() int {
	a := d.at.Load()
	seen := a.news.Load()
	n := a.poll()
	if n > 0 {
		seen++ // our own round
	}
	a.newsSeen.Store(seen)
	return n
}

// poll is Poll called outside of the event loop that uses Arm.
func (d *attachment) poll() int {
	if !d.lead.try() {
		d.hurry()
		return 0
	}
	if d.driven() {
		d.push()
	}
	n := d.goRound()
	d.resign()
	return n
}

// resign ends the caller's leadership.
func (d *attachment) resign() {
	d.lead.handOff()
	d.dev.progress()
}

// sync returns when everything the daemon published before the call has been taken from the ring.
func (d *attachment) sync() {
	// The round under way may have passed the entries in question, so the one after it counts.
	d.wait(context.Background(), waiter{kind: waitPass, pass: d.lead.passes.Load() + 2})
}

// goRound empties the ring once. The caller leads.
func (d *attachment) goRound() (total int) {
	l := &d.lead
	for !l.broken && d.life.dead.Load() == nil {
		n, err := l.cq.Drain(l.batch[:])
		for i := range l.batch[:n] {
			if !d.take(&l.batch[i]) {
				err = ipc.ErrEntry
				break
			}
		}
		total += n
		if err != nil {
			l.broken = true
			go d.fail(ErrDaemonDown) // not here: fail waits for the leader
		}
		if n < len(l.batch) {
			break
		}
	}
	l.passes.Add(1)
	if l.others.Load() > 0 {
		l.wakeAll(false)
	}
	if total > 0 {
		d.news.Add(1)
		d.dev.progress()
	}
	d.payOwing()
	return total
}

// take handles one entry. It reports false for one that cannot be right.
func (d *attachment) take(e *ipc.CQE) bool {
	switch e.Kind {
	case ipc.CQNotify:
		return d.notified(e)
	case ipc.CQLate:
		return d.failedLate(e)
	case ipc.CQRedirected:
		return d.redirected(e)
	}
	if e.Kind == ipc.CQReceive {
		return d.received(e)
	}
	i, gen := uint32(e.Token), uint32(e.Token>>32)
	if i >= uint32(len(d.slots.free)) {
		return false
	}
	s := &d.slots.list[i]
	if gen&1 == 0 || s.gen.Load() != gen || s.conn.id != e.Conn {
		return false
	}
	if s.extra && e.Status == ipc.StatusOK && d.slots.extras[i].result != nil {
		*d.slots.extras[i].result = e.Off
	}
	d.complete(i, gen, e.Status)
	return true
}

// complete ends the operation in slot i and frees the slot. The caller leads.
func (d *attachment) complete(i, gen uint32, status ipc.Status) {
	s := &d.slots.list[i]
	c, r, bounce := s.conn, s.region, s.bounce
	s.conn, s.region = nil, nil
	var x extra
	if s.extra {
		x = d.takeExtra(s, i)
	}
	tap := c.notes.tapped()
	if status != ipc.StatusOK {
		if status == ipc.StatusClosed && c.lent {
			status = ipc.StatusKey // as the connection says: ErrRevoked, which is ErrKey
		}
		d.slots.failed.add(i, gen, status)
		d.dev.failures.Add(1)
		if tap != nil && x.redirection == nil { // whose bytes are where they were to be redirected from
			tap.Failed(status, statusError[status])
		}
	}
	if r != nil {
		r.inflight.Add(-1)
	}
	idle := c.inflight.Add(-1) == 0
	d.slots.free[d.lead.freed&uint32(len(d.slots.free)-1)] = i
	d.lead.freed++
	// From here on the slot may be posted again. First: whoever sees that the operation is done must find room.
	d.slots.freeTail.Store(d.lead.freed)
	s.gen.CompareAndSwap(gen, gen+1) // unless the slot is in use again
	if x.queue != nil {
		x.queue.works.Add(-1)
		x.queue.put(d, Completion{Kind: x.kind, Conn: c, Context: x.context, Err: statusError[status]})
	}
	if bounce >= 0 {
		d.bounce.Load().completed(bounce, opKey(i, gen))
	}
	if d.lead.followers.Load() > 0 {
		d.lead.wake(&s.waiters)
		if idle {
			d.lead.wake(&c.waiters)
		}
	}
	if tap != nil {
		tap.Completed(x.redirection != nil)
	}
}

// notified queues a notification. If the answer to a dial has not yet announced its connection, the notification is
// kept for it.
func (d *attachment) notified(e *ipc.CQE) bool {
	d.conns.mu.Lock()
	c := d.conns.byNumber[e.Conn]
	if c == nil && d.conns.dialing > 0 && len(d.conns.orphans[e.Conn]) < ipc.NotifyCredit {
		if d.conns.orphans == nil {
			d.conns.orphans = map[uint32][]ipc.CQE{}
		}
		d.conns.orphans[e.Conn] = append(d.conns.orphans[e.Conn], *e)
	}
	d.conns.mu.Unlock()
	if c == nil {
		return true
	}
	ok, due := c.notes.push(c, e)
	if due {
		d.returnCredit(c)
	}
	if d.lead.followers.Load() > 0 {
		d.lead.wake(&c.waiters)
	}
	return ok
}

// leadFor takes completions until w is satisfied. The caller leads, and hands off afterwards.
func (d *attachment) leadFor(ctx context.Context, w *waiter) error {
	l := &d.lead
	done := ctx.Done()
	s := &l.strategy
	s.begin()
	l.hurried = max(0, l.hurried-1)
	defer s.end(d)
	for asks := -1; ; {
		worked := false
		if d.driven() {
			worked = d.push()
		}
		n := d.goRound()
		if w.kind == waitPass || d.satisfied(w) {
			return nil // the round that has just ended began after the wait did
		}
		if done != nil {
			select {
			case <-done:
				return d.ended(ctx)
			default:
			}
		}
		if n > 0 && l.followers.Load() > 0 {
			runtime.Gosched() // those just woken run now
		}
		if asks != 1 || n > 0 { // one that waits for the next operation goes on to
			asks = d.asks(w)
		}
		// a driver makes the room itself
		if s.idle(d, worked || n > 0, asks) && (!d.driven() || !d.out.ringFull.Load()) {
			l.cancel.arm(ctx, d.wakeups.kickFunc)
			d.block(w, done, asks)
		}
	}
}

// creditLook is how often the leader checks for room that no doorbell announces.
const creditLook = time.Millisecond

// fullOfCredit reports whether w or a follower waits for room in a submission ring that is full of credit, although
// operations could be posted. The daemon takes credit without a completion, and so without a doorbell.
func (d *attachment) fullOfCredit(w *waiter) bool {
	if w.kind != waitRoom && d.lead.others.Load() == 0 {
		return false
	}
	d.out.post.Lock()
	defer d.out.post.Unlock()
	if d.out.detached || d.out.freeHead == d.slots.freeTail.Load() {
		return false
	}
	most := min(ipc.BytesEntries, len(d.slots.free))
	n, _ := d.out.sq.RoomFor(most)
	return n < most
}

// block sleeps until the doorbell rings: something completed, the context ended, or the Device died.
func (d *attachment) block(w *waiter, done <-chan struct{}, asks int) {
	l := &d.lead
	if asks != 1 {
		l.patient.Store(true)
		if asks = d.asks(w); asks == 1 { // who came before did not see that it is patient; who comes now does
			l.patient.Store(false)
		}
	}
	l.strategy.ask(d, asks)
	if asks <= 0 {
		d.rings.SetClientDozing()
	} else {
		d.rings.SetClientAsleep(true)
	}
	select {
	case <-done:
	default:
		if d.lead.passers.Load() == 0 && !d.lead.cq.Ready() && !d.satisfied(w) && d.life.dead.Load() == nil {
			d.lead.strategy.sleep(d, d.out.ringFull.Load() || d.fullOfCredit(w))
		}
	}
	d.rings.SetClientAsleep(false)
	if asks != 1 && !l.patient.Swap(false) {
		l.hurried = hurriedLeads
	}
}
