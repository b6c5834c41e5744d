package daemon

import (
	"sync"

	"multiedge/internal/ipc"
)

// outboxLimit is the number of messages that may wait for a client that does not read, besides the two that the end of each of its connections may take (ipc.KindEnded,
// ipc.KindClosed): all may end at once, faster than it reads. Past it the client is evicted.
const outboxLimit = 4096

// outbox carries control messages from the shard, which must not wait, to the goroutine that writes them.
type outbox struct {
	mu     sync.Mutex
	ready  sync.Cond
	msgs   []*ipc.Message
	limit  int
	closed bool
}

// newOutbox returns the outbox of a client that may have so many connections.
func newOutbox(conns int) *outbox {
	o := &outbox{limit: outboxLimit + 2*conns}
	o.ready.L = &o.mu
	return o
}

// put queues messages and reports false if they do not fit. The slice stays the caller's. After close they vanish.
func (o *outbox) put(msgs []*ipc.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if len(o.msgs)+len(msgs) > o.limit {
		return false
	}
	o.msgs = append(o.msgs, msgs...)
	o.ready.Signal()
	return true
}

// length is the number of messages that wait.
func (o *outbox) length() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.msgs)
}

// take waits for messages and appends them to buf. It returns nil once the outbox is closed and empty.
func (o *outbox) take(buf []*ipc.Message) []*ipc.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.msgs) == 0 {
		if o.closed {
			return nil
		}
		o.ready.Wait()
	}
	buf = append(buf, o.msgs...)
	clear(o.msgs)
	o.msgs = o.msgs[:0]
	return buf
}

// close lets take return what is queued and then nil.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.ready.Broadcast()
}
