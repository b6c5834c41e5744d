package edge

import (
	"context"
	"sync"
	"sync/atomic"

	"multiedge/internal/ipc"
)

// Completion says how a Work that named a CompletionQueue ended, or is a notification (Kind Notified).
type Completion struct {
	Kind    Kind
	Conn    *Conn  // of a Receive in a shared ReceiveQueue, the sender's; nil if no connection took the buffer
	Context uint64 // of the Work
	Err     error  // nil: it succeeded
	Len     int    // bytes of the message that a Receive took, or of the write that notifies
	Imm     uint32 // of a Receive with HasImm, or of a notification
	HasImm  bool
	Offset  int    // of a notification, as in Notification
	Grant   *Grant // likewise
}

// CompletionQueue collects the completions of work on any connections of a Device, in the order in which they became
// known. It never overflows: work reserves its place when it is posted, and Post returns ErrQueueFull if none is free.
// Any number of goroutines may use it. It needs no closing.
type CompletionQueue struct {
	dev  *Device
	room atomic.Int64 // places that no work has taken
	// operations that have not ended. Those that wait for a message are not among them
	works atomic.Int32

	mu         sync.Mutex
	ring       []Completion
	head, tail uint32
	waiting    atomic.Int32 // completions in ring
}

// maxQueueLen is the longest CompletionQueue, in completions.
const maxQueueLen = 1 << 20

// NewCompletionQueue makes a queue with places for so many pieces of work, posted and not yet taken from it; 1 to 2^20.
func (d *Device) NewCompletionQueue(places int) (*CompletionQueue, error) {
	if places < 1 || places > maxQueueLen {
		return nil, invalid("NewCompletionQueue: %d places; choose 1 to %d", places, maxQueueLen)
	}
	n := 1
	for n < places {
		n *= 2
	}
	q := &CompletionQueue{dev: d, ring: make([]Completion, n)}
	q.room.Store(int64(places))
	return q, nil
}

// take takes n places for work of d.
func (q *CompletionQueue) take(d *attachment, n int64) error {
	if q.dev != d.dev {
		return errQueueDevice
	}
	if q.room.Add(-n) < 0 {
		q.room.Add(n)
		return ErrQueueFull
	}
	return nil
}

var errQueueDevice = invalid("the completion queue belongs to another Device")

// put enters a completion, for which a place was taken.
func (q *CompletionQueue) put(d *attachment, c Completion) {
	q.mu.Lock()
	q.ring[q.tail&uint32(len(q.ring)-1)] = c
	q.tail++
	q.waiting.Add(1)
	q.mu.Unlock()
	if d.lead.followers.Load() > 0 {
		d.lead.wakeQueue(q)
	}
}

func (q *CompletionQueue) ready() bool { return q.waiting.Load() > 0 }

// Poll moves completions to out and returns how many there were. It allocates nothing, and does not block, except for
// the answer to an Export that is under way on a connection of the queue.
func (q *CompletionQueue) Poll(out []Completion) int {
	n := q.pop(out)
	if n == 0 && len(out) > 0 {
		q.dev.at.Load().poll()
		n = q.pop(out)
	}
	return n
}

// Wait is Poll that waits for the first completion. It returns the error of ctx when that ends first. If the Device has
// lost its daemon and the queue is empty, it returns the reason. An event loop can wait for Device.PollFD instead, and
// Poll after Device.Poll.
func (q *CompletionQueue) Wait(ctx context.Context, out []Completion) (int, error) {
	return q.WaitAtLeast(ctx, out, 1)
}

// WaitAtLeast is Wait for at least so many completions, of which the last wakes the caller: a wake-up costs as much as
// many operations. It returns fewer, one at least, when the other operations that end in the queue are done
// (buffers that wait for messages do not count), or, with the completions that there are and no error, when ctx or the
// daemon has ended.
func (q *CompletionQueue) WaitAtLeast(ctx context.Context, out []Completion, least int) (int, error) {
	if least < 1 || len(out) < least {
		return 0, invalid("CompletionQueue: there is no room for %d completions, or none is asked for", least)
	}
	for {
		a := q.dev.at.Load()
		if !q.holds(least) {
			a.poll()
		}
		if q.holds(least) {
			if n := q.pop(out); n > 0 {
				return n, nil
			}
			continue // another goroutine was faster
		}
		if err := a.Err(); err != nil {
			<-a.life.flushed
			if n := q.pop(out); n > 0 {
				return n, nil
			}
			return 0, err
		}
		if err := a.wait(ctx, waiter{kind: waitQueue, queue: q, least: least}); err != nil {
			if n := q.pop(out); n > 0 {
				return n, nil
			}
			return 0, err
		}
	}
}

// holds reports whether so many completions wait, or fewer and no operation is left that would add one.
func (q *CompletionQueue) holds(least int) bool {
	n := int(q.waiting.Load())
	return n >= least || n > 0 && q.works.Load() == 0
}

func (q *CompletionQueue) pop(out []Completion) (n int) {
	if !q.ready() {
		return 0
	}
	q.mu.Lock()
	for n < len(out) && q.head != q.tail {
		c := &q.ring[q.head&uint32(len(q.ring)-1)]
		out[n] = *c
		*c = Completion{}
		q.head++
		n++
	}
	q.waiting.Add(int32(-n))
	q.mu.Unlock()
	places := n
	for i := range out[:n] {
		if c := &out[i]; c.Kind == Notified && c.Conn.tookNote(c) {
			places--
		}
	}
	q.room.Add(int64(places))
	return n
}

// Notify delivers the notifications of c to the queue from now on, instead of to WaitNotify. It reserves
// 256 places until the connection ends.
func (q *CompletionQueue) Notify(c *Conn) error {
	if err := q.take(c.d, ipc.NotifyCredit); err != nil {
		return err
	}
	n := &c.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.to != nil || n.ended || n.tap.Load() != nil {
		q.room.Add(ipc.NotifyCredit)
		return invalid("CompletionQueue.Notify: the connection has ended, or its notifications go elsewhere")
	}
	for ; n.head != n.tail; n.head++ {
		n.queued++
		q.put(c.d, n.ring[n.head%ipc.NotifyCredit].completion(c))
	}
	n.ring, n.to = nil, q
	return nil
}

// completion is a note as a queue has it, until it is taken: Context is the key.
func (n *note) completion(c *Conn) Completion {
	return Completion{Kind: Notified, Conn: c, Context: n.key, Len: int(n.len), Imm: n.imm, HasImm: true,
		Offset: int(n.off)}
}

// tookNote completes a notification that was taken from a queue, and gives credit for it. It reports whether its place
// stays taken, for the next.
func (c *Conn) tookNote(t *Completion) (stays bool) {
	t.Grant, t.Context = c.grants.find(t.Context), 0
	n := &c.notes
	n.mu.Lock()
	n.queued--
	n.owed++
	due := n.owed == creditBatch
	stays = !n.ended
	n.mu.Unlock()
	if due {
		c.d.returnCredit(c)
	}
	return stays
}

// endQueue gives the places back that notifications to come had taken.
func (q *notes) endQueue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	if q.to != nil {
		q.to.room.Add(int64(ipc.NotifyCredit - q.queued))
	}
}

// flushQueues tells the completion queues of everything that can complete no more, since the attachment is dead.
func (d *attachment) flushQueues(err error) {
	d.lead.seize()
	d.out.post.Lock()
	defer d.out.post.Unlock()
	for i := range d.slots.list {
		if s := &d.slots.list[i]; s.extra && s.gen.Load()&1 == 1 {
			t := d.slots.extras[i].ticket
			d.slots.extras[i].ticket = ticket{}
			if t.queue != nil {
				if t.kind != Receive {
					t.queue.works.Add(-1)
				}
				t.queue.put(d, Completion{Kind: t.kind, Conn: s.conn, Context: t.context, Err: err})
			}
		}
	}
	close(d.life.flushed)
}
