package edge

import (
	"context"
	"sync"
	"sync/atomic"

	"multiedge/edge/internal/inner"
	"multiedge/internal/ipc"
)

// Notification tells the owner of memory that a write of the peer with the Notify flag is complete in it.
type Notification struct {
	Imm    uint32 // Work.Imm of the write
	Len    int    // bytes of the write
	Offset int    // of its first byte, within what Grant exports
	Grant  *Grant // the export that was written to; nil if it was revoked before the notification was taken
	Lost   int    // notifications that package events dropped before this one since its queue was full; otherwise 0
}

// note is a Notification as the daemon told it.
type note struct {
	key uint64
	off uint64
	imm uint32
	len uint32
}

// told is what a Tap or a Sink is told.
func (n *note) told() inner.Note { return inner.Note{Key: n.key, Off: n.off, Imm: n.imm, Len: n.len} }

// notification finds the Grant of a note.
func (c *Conn) notification(n *note) Notification {
	return Notification{Imm: n.imm, Len: int(n.len), Offset: int(n.off), Grant: c.grants.find(n.key)}
}

// grants are the exports to the peer of a connection, by key. A notification may be faster than the answer to the
// Export that it tells of: pending counts those that are not answered.
type grants struct {
	mu      sync.Mutex
	pending int
	changed sync.Cond
	byKey   map[uint64]*Grant
	latest  atomic.Pointer[Grant] // the one found last, while it is in byKey
}

func (g *grants) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending++
}

// end takes the outcome of an export, nil if it failed.
func (g *grants) end(made *Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending--
	if made != nil {
		if g.byKey == nil {
			g.byKey = map[uint64]*Grant{}
		}
		g.byKey[made.key] = made
	}
	g.changed.Broadcast()
}

func (g *grants) drop(key uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
	g.latest.Store(nil)
}

func (g *grants) find(key uint64) *Grant {
	if l := g.latest.Load(); l != nil && l.key == key {
		return l
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.byKey[key] == nil && g.pending > 0 {
		g.changed.L = &g.mu
		g.changed.Wait()
	}
	g.latest.Store(g.byKey[key])
	return g.byKey[key]
}

// creditBatch is how many notifications are consumed before credit is returned.
const creditBatch = ipc.NotifyCredit / 2

// notes is the queue of notifications of a connection. The daemon's credit bounds it, so it never grows. The
// notifications that a tap or a sink has are taken as they come, by whoever leads, and never queued.
type notes struct {
	tap atomic.Pointer[inner.Tap] // changed under mu; nil: they are queued

	mu    sync.Mutex
	sinks map[uint64]inner.Sink // of exports whose notifications go elsewhere, by key
	ring  []note                // NotifyCredit long, made at the first notification
	head  uint32
	tail  uint32
	owed  uint32 // consumed, and not returned as credit

	to     *CompletionQueue // where they are told; nil: nowhere
	queued uint32           // told there, and not taken
	ended  bool             // none comes any more
}

// push reports ok false when the daemon exceeded its credit; due says that credit should be returned.
func (q *notes) push(c *Conn, e *ipc.CQE) (ok, due bool) {
	n := note{key: e.Token, off: e.Off, imm: e.Imm, len: e.Len}
	q.mu.Lock()
	if t := q.tapped(); t != nil && q.owed < ipc.NotifyCredit {
		q.owed++
		due = q.owed == creditBatch
		q.mu.Unlock()
		t.Notified(n.told()) // which may end the connection
		return true, due
	}
	defer q.mu.Unlock()
	if q.tail-q.head+q.queued+q.owed >= ipc.NotifyCredit {
		return false, false
	}
	if to := q.sinks[e.Token]; to != nil {
		to.Notified(n.told())
		q.owed++
		return true, q.owed == creditBatch || q.tail-q.head+q.owed+q.queued == ipc.NotifyCredit
	}
	if q.to != nil {
		q.queued++
		q.to.put(c.d, n.completion(c))
		return true, false
	}
	if q.ring == nil {
		q.ring = make([]note, ipc.NotifyCredit)
	}
	q.ring[q.tail%ipc.NotifyCredit] = n
	q.tail++
	return true, false
}

// tapped returns what takes the notifications, nil if they are queued.
func (q *notes) tapped() inner.Tap {
	if t := q.tap.Load(); t != nil {
		return *t
	}
	return nil
}

// attach gives t the notifications that were faster, and all to come.
func (q *notes) attach(t inner.Tap) {
	q.mu.Lock()
	for q.head != q.tail {
		n := q.ring[q.head%ipc.NotifyCredit]
		q.head++
		q.owed++
		q.mu.Unlock()
		t.Notified(n.told()) // which may end the connection
		q.mu.Lock()
	}
	q.ring = nil
	q.tap.Store(&t)
	q.mu.Unlock()
}

// pop takes the oldest; due says that credit should be returned.
func (q *notes) pop() (n note, ok, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == q.tail {
		return note{}, false, false
	}
	n = q.ring[q.head%ipc.NotifyCredit]
	q.head++
	q.owed++
	return n, true, q.owed == creditBatch
}

func (q *notes) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == q.tail
}

func (q *notes) takeOwed() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.owed
	q.owed = 0
	return n
}

func (c *Conn) takeNote() (Notification, bool) {
	n, ok, due := c.notes.pop()
	if due {
		c.d.returnCredit(c)
	}
	if !ok {
		return Notification{}, false
	}
	return c.notification(&n), true
}

// WaitNotify waits for a notification. Those that arrived before the connection ended are still delivered; then its
// error is returned, ErrPeerClosed (which is io.EOF to errors.Is) after an orderly end.
func (c *Conn) WaitNotify(ctx context.Context) (Notification, error) {
	for {
		ended := c.Err() // read first: notifications precede the end
		if n, ok := c.takeNote(); ok {
			return n, nil
		}
		if ended != nil {
			return Notification{}, ended
		}
		if err := c.d.wait(ctx, waiter{kind: waitNote, conn: c}); err != nil && c.notes.empty() {
			return Notification{}, err
		}
	}
}

// divert sends the notifications of an export elsewhere, those that lie unread first. due says that credit should be
// returned.
func (q *notes) divert(key uint64, to inner.Sink) (due bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sinks[key] != nil {
		return false, ErrExists
	}
	if q.sinks == nil {
		q.sinks = map[uint64]inner.Sink{}
	}
	q.sinks[key] = to
	kept := q.head
	for i := q.head; i != q.tail; i++ {
		if n := q.ring[i%uint32(len(q.ring))]; n.key == key {
			to.Notified(n.told())
			q.owed++
		} else {
			q.ring[kept%uint32(len(q.ring))] = n
			kept++
		}
	}
	q.tail = kept
	return q.owed >= creditBatch, nil
}

// restore undoes divert.
func (q *notes) restore(key uint64, to inner.Sink) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sinks[key] == to {
		delete(q.sinks, key)
	}
}

// sink returns where the notifications of an export go, nil if that is the connection.
func (q *notes) sink(key uint64) inner.Sink {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sinks[key]
}

// endSinks tells those who take the notifications of an export that none comes any more.
func (q *notes) endSinks(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, to := range q.sinks {
		to.Ended(err)
	}
}
