package edge

import (
	"sync"

	"multiedge/internal/ipc"
)

// late is the writes with LocalDone of a connection that failed after they were done.
type late struct {
	mu    sync.Mutex
	n     int
	first error
}

// Late returns how many writes with LocalDone failed after they were done, and the error of the first: the peer refused
// it, or the connection ended first. Op.Err of each says so as well. Once an operation with BackwardFence is done,
// every failure of the writes before it is known.
func (c *Conn) Late() (n int, first error) {
	c.late.mu.Lock()
	defer c.late.mu.Unlock()
	return c.late.n, c.late.first
}

// failedLate takes the late failure of a write. The leader calls it. It reports false for one that cannot be right.
func (d *attachment) failedLate(e *ipc.CQE) bool {
	i, gen := uint32(e.Token), uint32(e.Token>>32)
	if i >= uint32(len(d.slots.list)) || gen&1 == 0 {
		return false
	}
	d.slots.failed.add(i, gen, e.Status)
	if c := d.conn(e.Conn); c != nil {
		c.late.mu.Lock()
		defer c.late.mu.Unlock()
		if c.late.n++; c.late.first == nil {
			c.late.first = statusError[e.Status]
		}
	}
	return true
}
