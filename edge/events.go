package edge

import (
	"context"
	"net"
	"sync"
)

// DefaultEvents is how many notifications an event queue holds, if Grant.Events is not told.
const DefaultEvents = 4096

// maxEvents bounds what a queue can be told to hold.
const maxEvents = 1 << 20

// Events is the event queue of one export (VMMC §3.2): the notifications of its writes come here and not to
// Conn.WaitNotify. Unread notifications do not hold up those of other exports: the queue takes them off the connection
// as they come. A notification that finds the queue full is lost. The next that finds room says how many were lost
// (Notification.Lost). Any number of goroutines may use it.
type Events struct {
	g       *Grant
	limit   int
	waiters *waiter // guarded by leadership.mu

	mu   sync.Mutex
	ring []note // its length a power of two, or 0; grows to limit
	head int    // oldest
	n    int
	lost uint32 // since the newest in ring
	err  error  // why nothing comes any more
}

// Events gives the export an event queue that holds up to limit notifications of 32 bytes each; 0: DefaultEvents.
// Unread notifications of the export move from the connection to the queue. Close the queue, or revoke the export.
func (g *Grant) Events(limit int) (*Events, error) {
	if limit == 0 {
		limit = DefaultEvents
	}
	if limit < 0 || limit > maxEvents {
		return nil, invalid("Events: a queue of %d; choose 1 to %d", limit, maxEvents)
	}
	q := &Events{g: g, limit: limit}
	due, err := g.conn.notes.divert(g.key, q)
	if due {
		g.conn.d.returnCredit(g.conn)
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// put takes a notification. The leader calls it, or divert.
func (q *Events) put(n note) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == q.limit {
		q.lost++
		return
	}
	if q.n == len(q.ring) {
		grown := make([]note, max(16, 2*len(q.ring)))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = grown, 0
	}
	n.lost, q.lost = q.lost, 0
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = n
	q.n++
}

func (q *Events) take() (note, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 {
		return note{}, false
	}
	n := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return n, true
}

// ready reports whether Wait can return.
func (q *Events) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n > 0 || q.err != nil || q.g.conn.Err() != nil
}

// Poll returns the oldest notification that was not taken, if there is one.
func (q *Events) Poll() (Notification, bool) {
	n, ok := q.take()
	if !ok {
		q.g.conn.d.poll()
		if n, ok = q.take(); !ok {
			return Notification{}, false
		}
	}
	return q.notification(&n), true
}

func (q *Events) notification(n *note) Notification {
	return Notification{Imm: n.imm, Len: int(n.len), Offset: int(n.off), Grant: q.g, Lost: int(n.lost)}
}

// Wait waits for a notification. Those that came before the queue, the export or the connection ended are still
// delivered; then the error says why: net.ErrClosed, ErrRevoked, or that of the connection.
func (q *Events) Wait(ctx context.Context) (Notification, error) {
	for {
		ended := q.ended() // first: notifications precede the end
		if n, ok := q.take(); ok {
			return q.notification(&n), nil
		}
		if ended != nil {
			return Notification{}, ended
		}
		err := q.g.conn.d.wait(ctx, waiter{kind: waitEvents, conn: q.g.conn, events: q})
		if err != nil && !q.ready() {
			return Notification{}, err
		}
	}
}

func (q *Events) ended() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	return q.g.conn.Err()
}

// Close ends the queue. Notifications to come go to the connection again, those unread are lost.
func (q *Events) Close() error {
	q.mu.Lock()
	q.n, q.ring = 0, nil
	q.mu.Unlock()
	q.end(net.ErrClosed)
	return nil
}

// end says why nothing comes any more, once.
func (q *Events) end(err error) {
	q.g.conn.notes.restore(q.g.key, q)
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
	d := q.g.conn.d
	d.lead.wake(&q.waiters)
	d.kick()
}

// divert sends the notifications of an export to its own queue, those that lie unread first. due says that credit
// should be returned.
func (q *notes) divert(key uint64, to *Events) (due bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues[key] != nil {
		return false, ErrExists
	}
	if q.queues == nil {
		q.queues = map[uint64]*Events{}
	}
	q.queues[key] = to
	kept := q.head
	for i := q.head; i != q.tail; i++ {
		if n := q.ring[i%uint32(len(q.ring))]; n.key == key {
			to.put(n)
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
func (q *notes) restore(key uint64, to *Events) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues[key] == to {
		delete(q.queues, key)
	}
}

// queue returns the event queue of an export, nil if it has none.
func (q *notes) queue(key uint64) *Events {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[key]
}

// wakeQueues lets those look who wait for an event of a connection that has ended.
func (q *notes) wakeQueues(l *leadership) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, to := range q.queues {
		l.wake(&to.waiters)
	}
}

// Handler runs a function for each notification of an export, in a goroutine of its own (VMMC §3.2).
type Handler struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // set before done is closed
}

// Handle runs f for each notification of the export, one after the other, until Stop, Revoke or the end of the
// connection. The notifications wait in an event queue of the export meanwhile (Events).
func (g *Grant) Handle(f func(Notification)) (*Handler, error) {
	q, err := g.Events(0)
	if err != nil {
		return nil, err
	}
	return handle(q.Wait, func() { q.Close() }, f), nil
}

// Handle runs f for each notification of the export, of whichever importer, until Stop or Unexport.
func (n *Named) Handle(f func(Notification)) *Handler { return handle(n.WaitNotify, func() {}, f) }

func handle(wait func(context.Context) (Notification, error), end func(), f func(Notification)) *Handler {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Handler{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		defer end()
		defer cancel()
		for ctx.Err() == nil {
			n, err := wait(ctx)
			if err != nil {
				if ctx.Err() == nil {
					h.err = err
				}
				return
			}
			f(n)
		}
	}()
	return h
}

// Stop ends the handler and returns when the function does not run any more. It must not be called by the function.
func (h *Handler) Stop() {
	h.stop()
	<-h.done
}

// Done is closed when the handler has ended.
func (h *Handler) Done() <-chan struct{} { return h.done }

// Err returns why the handler ended, nil after Stop. It may be called once Done is closed.
func (h *Handler) Err() error { return h.err }
