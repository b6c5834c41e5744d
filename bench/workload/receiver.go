package workload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/pattern"
	"multiedge/edge"
	"multiedge/internal/mono"
)

// receiver takes one run's notifications: messages to verify, credit for the own sender, and the ends of both
// directions. It is run by one goroutine, and one more for each further connection when data is checked; while a sender
// runs beside it, only the credit is shared.
type receiver struct {
	ch      *channel
	lanes   []lane           // further connections that messages come from
	size    int              // bytes of a message
	checker *pattern.Checker // nil: data is not checked
	credit  *credit          // of the own sender; may be nil

	mu      sync.Mutex    // guards the checker, told and ended while several connections are served
	ended   bool          // the peer's end was acknowledged: it needs no more credit
	checked chan struct{} // one token: a message of a further connection was verified

	wantEnd  bool // the peer sends, and will say how much
	wantAck  bool // the own end will be acknowledged
	told     uint64
	peerSent uint64
	endAt    mono.Time // when the peer's end came
	ackAt    mono.Time // when the own end was acknowledged
}

// run handles notifications until both ends it wants are seen, and what the peer sent.
func (r *receiver) run(ctx context.Context) {
	if r.checker == nil || len(r.lanes) == 0 {
		r.untilEnds(ctx)
		return
	}
	r.checked = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	var over atomic.Bool
	work := []func(context.Context){func(ctx context.Context) {
		r.untilEnds(ctx)
		r.untilChecked(ctx)
		over.Store(true)
		cancel()
	}}
	for i := range r.lanes {
		work = append(work, func(ctx context.Context) {
			if err := kit.Try(func() { r.serve(ctx, r.lanes[i].conn) }); !over.Load() {
				kit.Check(err)
			}
		})
	}
	defer cancel()
	kit.Together(ctx, work...)
}

// serve handles the messages of a further connection until ctx ends.
func (r *receiver) serve(ctx context.Context, conn *edge.Conn) {
	for {
		n := kit.Get(conn.WaitNotify(ctx))
		kind, value := split(n.Imm)
		if kind != immMessage {
			unexpected(n.Imm, "a message")
		}
		r.message(ctx, n, value)
		select {
		case r.checked <- struct{}{}:
		default:
		}
	}
}

// stragglers is how long messages may take to be announced after the end was: they are here, their notifications wait
// to be read.
const stragglers = 5 * time.Second

// untilChecked waits until everything the peer sent on its further connections was looked at. What does not come is
// found when the check ends.
func (r *receiver) untilChecked(ctx context.Context) {
	give := time.NewTimer(stragglers)
	defer give.Stop()
	for {
		r.mu.Lock()
		all := r.checker.Floor() >= r.peerSent
		r.mu.Unlock()
		if all {
			return
		}
		select {
		case <-r.checked:
		case <-give.C:
			return
		case <-ctx.Done():
			kit.Check(ctx.Err())
		}
	}
}

// untilEnds handles the first connection's notifications until both ends are seen.
func (r *receiver) untilEnds(ctx context.Context) {
	for r.wantEnd || r.wantAck {
		r.handle(ctx, kit.Get(r.ch.conn.WaitNotify(ctx)))
	}
}

func (r *receiver) handle(ctx context.Context, n edge.Notification) {
	switch kind, value := split(n.Imm); {
	case kind == immMessage && r.checker != nil:
		r.message(ctx, n, value)
	case kind == immCredit && r.credit != nil:
		r.credit.raise(value)
	case kind == immEnd && r.wantEnd:
		r.wantEnd, r.endAt = false, mono.Now()
		r.acknowledge(ctx)
	case kind == immEndAck && r.wantAck:
		r.wantAck, r.ackAt = false, mono.Now()
	default:
		unexpected(n.Imm, "what belongs to the run")
	}
}

// acknowledge tells the peer that its end has come: after all credit that was given, for none is expected behind it.
func (r *receiver) acknowledge(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.peerSent = true, r.ch.endCount()
	var flags edge.Flags
	if r.checker != nil {
		flags = edge.BackwardFence
	}
	r.ch.signal(ctx, immEndAck, flags)
}

// message verifies one message and gives its slot back, a quarter of all slots at a time.
func (r *receiver) message(ctx context.Context, n edge.Notification, low uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seq := r.checker.Extend(low, immMask)
	r.checker.Message(seq)
	if n.Len != r.size {
		r.checker.Fail(fmt.Sprintf("message %d: the notification says %d bytes", seq, n.Len))
	}
	if floor := r.checker.Floor(); !r.ended && floor-r.told >= max(1, uint64(r.checker.Slots())/4) {
		r.told = floor
		r.ch.signal(ctx, immCredit|uint32(floor&immMask), 0)
	}
}

// credit is what a checking receiver allows: messages below floor were verified, so slots of them may be overwritten.
type credit struct {
	slots uint64

	mu      sync.Mutex
	floor   uint64
	changed chan struct{} // one token: floor moved
}

func newCredit(slots int) *credit {
	return &credit{slots: uint64(slots), changed: make(chan struct{}, 1)}
}

// raise notes a credit notification of the receiver, whose value is the lower bits of its floor.
func (c *credit) raise(low uint64) {
	c.mu.Lock()
	c.floor = advance(c.floor, low)
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// take waits until message seq may be sent and returns how many from it on may be, n at most. The nil credit has no
// limit.
func (c *credit) take(ctx context.Context, seq, n uint64) uint64 {
	if c == nil {
		return n
	}
	for {
		c.mu.Lock()
		limit := c.floor + c.slots
		c.mu.Unlock()
		if seq < limit {
			return min(n, limit-seq)
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			kit.Check(ctx.Err())
		}
	}
}
