package edge

import "sync/atomic"

// SystemCalls counts the system calls that the library has made for operations through a daemon. While the daemon and
// the program are awake there are no others than yields. Those of Go's runtime, which parks and wakes goroutines, and
// of requests such as Dial and Register are not among them; those of an embedded transport are in Device.Status.
type SystemCalls struct {
	Wakes  uint64 // writes to the daemon's doorbell, and to the own one
	Sleeps uint64 // poll
	Yields uint64 // sched_yield
	Clears uint64 // doorbells that are cleared
}

// SystemCalls returns what was counted since the Device was attached to its daemon, or attached again. Calls of a
// goroutine that waits at this moment are counted when its wait is over. It makes no system call itself.
func (d *Device) SystemCalls() SystemCalls { return d.at.Load().systemCalls() }

func (d *attachment) systemCalls() SystemCalls {
	d.lead.mu.Lock()
	c := d.lead.told
	d.lead.mu.Unlock()
	d.out.post.Lock()
	c.Wakes += d.counts.rung
	d.out.post.Unlock()
	c.Wakes += d.counts.kicked.Load()
	return c
}

// callCounts are parts of SystemCalls beside the locks that guard them.
type callCounts struct {
	rung   uint64        // the daemon's doorbell; guarded by submission.post
	kicked atomic.Uint64 // the own one, by others than the leader
}
