package workload

import (
	"context"
	"sync"

	"multiedge/bench/kit"
)

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
