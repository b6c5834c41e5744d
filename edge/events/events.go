package events

import (
	"context"
	"fmt"
	"net"
	"sync"

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// core is what this package uses of package edge besides exported names.
var core = inner.Edge.(interface {
	Divert(*edge.Grant, inner.Sink) error
	Restore(*edge.Grant, inner.Sink)
	NewCond(*edge.Conn, func() bool, func() int) inner.Cond
	Poll(*edge.Conn)
})

// DefaultLimit is how many notifications a queue holds, if Open is not told.
const DefaultLimit = 4096

// maxLimit bounds what a queue can be told to hold.
const maxLimit = 1 << 20

// Queue is the event queue of one export (VMMC §3.2): the notifications of its writes come here and not to
// Conn.WaitNotify. Unread notifications do not hold up those of other exports: the queue takes them off the connection
// as they come. A notification that finds the queue full is lost. The next that finds room says how many were lost
// (Notification.Lost). Any number of goroutines may use it.
type Queue struct {
	g     *edge.Grant
	limit int
	cond  inner.Cond

	mu   sync.Mutex
	ring []note // its length a power of two, or 0; grows to limit
	head int    // oldest
	n    int
	lost uint32 // since the newest in ring
	err  error  // why nothing comes any more
}

type note struct {
	inner.Note
	lost uint32 // how many before it found no room
}

// Open gives an export an event queue that holds up to limit notifications of 32 bytes each; 0: DefaultLimit. Unread
// notifications of the export move from the connection to the queue. Close the queue, or revoke the export.
func Open(g *edge.Grant, limit int) (*Queue, error) {
	if limit == 0 {
		limit = DefaultLimit
	}
	if limit < 0 || limit > maxLimit {
		return nil, fmt.Errorf("%w: events.Open: a queue of %d; choose 1 to %d", edge.ErrInvalid, limit, maxLimit)
	}
	q := &Queue{g: g, limit: limit}
	q.cond = core.NewCond(g.Conn(), q.ready, func() int { return 0 })
	if err := core.Divert(g, sink{q}); err != nil {
		return nil, err
	}
	return q, nil
}

// sink is what a queue learns of its export (inner.Sink).
type sink struct{ q *Queue }

// Notified takes a notification.
func (s sink) Notified(n inner.Note) {
	s.q.put(note{Note: n})
	s.q.cond.Wake()
}

// Ended says why nothing comes any more, once.
func (s sink) Ended(err error) {
	s.q.mu.Lock()
	if s.q.err == nil {
		s.q.err = err
	}
	s.q.mu.Unlock()
	s.q.cond.Interrupt()
}

func (q *Queue) put(n note) {
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

func (q *Queue) take() (note, bool) {
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
func (q *Queue) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n > 0 || q.err != nil || q.g.Conn().Err() != nil
}

// Poll returns the oldest notification that was not taken, if there is one.
func (q *Queue) Poll() (edge.Notification, bool) {
	n, ok := q.take()
	if !ok {
		core.Poll(q.g.Conn())
		if n, ok = q.take(); !ok {
			return edge.Notification{}, false
		}
	}
	return q.notification(&n), true
}

func (q *Queue) notification(n *note) edge.Notification {
	return edge.Notification{Imm: n.Imm, Len: int(n.Len), Offset: int(n.Off), Grant: q.g, Lost: int(n.lost)}
}

// Wait waits for a notification. Those that came before the queue, the export or the connection ended are still
// delivered; then the error says why: net.ErrClosed, edge.ErrRevoked, or that of the connection.
func (q *Queue) Wait(ctx context.Context) (edge.Notification, error) {
	for {
		ended := q.ended() // first: notifications precede the end
		if n, ok := q.take(); ok {
			return q.notification(&n), nil
		}
		if ended != nil {
			return edge.Notification{}, ended
		}
		if err := q.cond.Wait(ctx); err != nil && !q.ready() {
			return edge.Notification{}, err
		}
	}
}

func (q *Queue) ended() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	return q.g.Conn().Err()
}

// Close ends the queue. Notifications to come go to the connection again, those unread are lost.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.n, q.ring = 0, nil
	q.mu.Unlock()
	core.Restore(q.g, sink{q})
	sink{q}.Ended(net.ErrClosed)
	return nil
}

// Handler runs a function for each notification of an export, in a goroutine of its own (VMMC §3.2).
type Handler struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // set before done is closed
}

// Handle runs f for each notification of the export, one after the other, until Stop, Revoke or the end of the
// connection. The notifications wait in an event queue of the export meanwhile.
func Handle(g *edge.Grant, f func(edge.Notification)) (*Handler, error) {
	q, err := Open(g, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &Handler{stop: cancel, done: make(chan struct{})}
	go h.run(ctx, q, f)
	return h, nil
}

func (h *Handler) run(ctx context.Context, q *Queue, f func(edge.Notification)) {
	defer close(h.done)
	defer q.Close()
	defer h.stop()
	for ctx.Err() == nil {
		n, err := q.Wait(ctx)
		if err != nil {
			if ctx.Err() == nil {
				h.err = err
			}
			return
		}
		f(n)
	}
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
