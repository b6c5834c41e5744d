package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// OutboxLimit is the number of messages that may wait for a client that does not read, besides the two that the end of
// each of its connections may take (ipc.KindEnded, ipc.KindClosed): all may end at once, faster than it reads. Past it
// the client is evicted.
const OutboxLimit = 4096

// Outbox carries control messages from the shard, which must not wait, to the goroutine that writes them.
type Outbox struct {
	mu     sync.Mutex
	ready  sync.Cond // messages wait
	taken  sync.Cond // they were taken
	msgs   []*ipc.Message
	inHand int // what Take returned last: it waits still, until the next Take
	direct func(*ipc.Message) bool
	slow   debt          // of long calls of it
	until  mono.Time     // it is not called before
	unread *atomic.Int64 // counts what waits for all clients of a user; nil: none does
	limit  int
	closed bool
}

// NewOutbox returns the outbox of a client that may have so many connections. direct sends a message at once, unless it
// would have to wait for that; nil: all wait for Take.
func NewOutbox(conns int, direct func(*ipc.Message) bool) *Outbox {
	o := &Outbox{limit: OutboxLimit + 2*conns, direct: direct}
	o.ready.L, o.taken.L = &o.mu, &o.mu
	return o
}

// countFor has what waits be counted for a user, too.
func (o *Outbox) countFor(u *User) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unread = &u.unread
}

func (o *Outbox) count(more int) {
	if o.unread != nil {
		o.unread.Add(int64(more))
	}
}

// put queues messages and reports false if they do not fit. The slice stays the caller's. After close they vanish.
// Those before which none waits are sent here, where the socket has room: to wake the goroutine that writes takes as
// long, and it has to get a core.
func (o *Outbox) put(msgs []*ipc.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.direct != nil && len(o.msgs)+o.inHand == 0 {
		for len(msgs) > 0 && o.sends(msgs[0]) {
			msgs = msgs[1:]
		}
		if len(msgs) == 0 {
			return true
		}
	}
	if len(o.msgs)+o.inHand+len(msgs) > o.limit {
		return false
	}
	o.msgs = append(o.msgs, msgs...)
	o.count(len(msgs))
	o.ready.Signal()
	return true
}

// Long sends to one client may take one part in sendsShare of the time, and sendsMost at once.
const (
	sendsShare = 1000
	sendsMost  = time.Millisecond
)

// sends is direct. How long that takes is up to the client, as with a doorbell (ringer): the kernel wakes all that wait
// for its socket before the call returns. Beyond the client's share the writer sends, for longShare times as long as
// the latest call took.
func (o *Outbox) sends(m *ipc.Message) bool {
	from := mono.Now()
	if from < o.until {
		return false
	}
	sent := o.direct(m)
	if took := mono.Now().Sub(from); took > longRing && o.slow.tooMuch(from, took, sendsShare, sendsMost) {
		o.until = from.Add(longShare * took)
	}
	return sent
}

// Short waits until no more than so many messages wait, or the outbox is closed: a client that does not read the
// answers gets none to further requests.
func (o *Outbox) Short(most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.msgs) > most && !o.closed {
		o.taken.Wait()
	}
}

// length is the number of messages that wait.
func (o *Outbox) length() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.msgs) + o.inHand
}

// mostTaken is how many messages Take returns at most.
const mostTaken = 256

// Take waits for messages and appends the first of them to buf. It returns nil once the outbox is closed and empty.
func (o *Outbox) Take(buf []*ipc.Message) []*ipc.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count(-o.inHand)
	o.inHand = 0
	for len(o.msgs) == 0 {
		if o.closed {
			return nil
		}
		o.ready.Wait()
	}
	o.inHand = min(len(o.msgs), mostTaken)
	buf = append(buf, o.msgs[:o.inHand]...)
	rest := copy(o.msgs, o.msgs[o.inHand:])
	clear(o.msgs[rest:])
	o.msgs = o.msgs[:rest]
	o.taken.Broadcast()
	return buf
}

// Close lets take return what is queued and then nil.
func (o *Outbox) Close() {
	o.mu.Lock()
	o.count(-len(o.msgs) - o.inHand)
	o.closed, o.unread = true, nil
	o.mu.Unlock()
	o.ready.Broadcast()
	o.taken.Broadcast()
}
