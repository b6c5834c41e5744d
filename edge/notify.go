package edge

import (
	"context"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Notification tells the owner of memory that a write of the peer with the Notify flag is complete in it.
type Notification struct {
	Imm uint32 // Work.Imm of the write
	Len int    // bytes of the write
}

// creditBatch is how many notifications are consumed before credit is returned.
const creditBatch = ipc.NotifyCredit / 2

// notes is the queue of notifications of a connection. The daemon's credit bounds it, so it never grows. The notifications of a Stream are
// taken as they come, by whoever leads, and never queued.
type notes struct {
	stream atomic.Pointer[Stream] // changed under mu; nil: they are queued

	mu   sync.Mutex
	ring []Notification // NotifyCredit long, made at the first notification
	head uint32
	tail uint32
	owed uint32 // consumed, and not returned as credit
}

// push reports ok false when the daemon exceeded its credit; due says that credit should be returned.
func (q *notes) push(e *ipc.CQE) (ok, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tail-q.head+q.owed >= ipc.NotifyCredit {
		return false, false
	}
	n := Notification{Imm: e.Imm, Len: int(e.Len)}
	if s := q.stream.Load(); s != nil {
		s.arrived(n)
		q.owed++
		return true, q.owed == creditBatch
	}
	if q.ring == nil {
		q.ring = make([]Notification, ipc.NotifyCredit)
	}
	q.ring[q.tail%ipc.NotifyCredit] = n
	q.tail++
	return true, false
}

// attach gives s the notifications that were faster, and all to come.
func (q *notes) attach(s *Stream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; q.head != q.tail; q.head++ {
		s.arrived(q.ring[q.head%ipc.NotifyCredit])
		q.owed++
	}
	q.ring = nil
	q.stream.Store(s)
}

// pop takes the oldest; due says that credit should be returned.
func (q *notes) pop() (n Notification, ok, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == q.tail {
		return Notification{}, false, false
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

// PollNotify returns the oldest notification that has not been taken, if there is one. It allocates nothing.
func (c *Conn) PollNotify() (Notification, bool) {
	if n, ok := c.takeNote(); ok {
		return n, true
	}
	c.d.poll()
	return c.takeNote()
}

func (c *Conn) takeNote() (Notification, bool) {
	n, ok, due := c.notes.pop()
	if due {
		c.d.returnCredit(c)
	}
	return n, ok
}

// WaitNotify waits for a notification. Those that arrived before the connection ended are still delivered; then its error is
// returned, ErrPeerClosed (which is io.EOF to errors.Is) after an orderly end.
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
