package edge

import "sync/atomic"

// systemCalls counts the system calls that the library has made for operations through a daemon: Counters has them.
type systemCalls struct{ wakes, sleeps, yields, clears uint64 }

func (d *attachment) systemCalls() systemCalls {
	d.lead.mu.Lock()
	c := d.lead.told
	d.lead.mu.Unlock()
	d.out.post.Lock()
	c.wakes += d.counts.rung
	d.out.post.Unlock()
	c.wakes += d.counts.kicked.Load()
	return c
}

// callCounts are parts of systemCalls beside the locks that guard them.
type callCounts struct {
	rung   uint64        // the daemon's doorbell; guarded by submission.post
	kicked atomic.Uint64 // the own one, by others than the leader
}
