package shard

import "sync/atomic"

// copyQueue holds payloads on their way to their places: a shard that judges the frames of one of its receivers asks
// for copies. The receiver normally makes them: its cache holds the payloads. Idle threads take the next copy, the
// shard too when it has nothing else to do: a receiver that lost its core delays the shard by one copy at most.
type copyQueue struct {
	jobs [2 * recvBatch]copyJob // a receiver hands over one batch of frames at a time; more are made at once
	base uint64                 // of tail, when everything before was finished; the shard's
	_    [64]byte
	tail atomic.Uint64 // copies asked for; only the shard changes it
	_    [64]byte
	next atomic.Uint64 // copies somebody has taken
	_    [64]byte
	done atomic.Uint64 // copies finished
	_    [64]byte
}

type copyJob struct{ dst, src []byte }

const (
	leastCopy = 2048 // bytes worth handing to another core; less is copied at once
	copyLooks = 64   // looks for a copy, or its end, between two yields to the thread that may make it
)

// ask has src copied to dst, by when all that was asked for is over. It does not block.
func (c *copyQueue) ask(dst, src []byte) {
	t := c.tail.Load()
	if c.over() {
		c.base = t
	}
	if len(src) < leastCopy || t-c.base == uint64(len(c.jobs)) {
		copy(dst, src)
		return
	}
	c.jobs[t%uint64(len(c.jobs))] = copyJob{dst, src}
	c.tail.Store(t + 1)
}

// step takes one copy and makes it. It returns false if there is none to take.
func (c *copyQueue) step() bool {
	for {
		n := c.next.Load()
		if n == c.tail.Load() {
			return false
		}
		if c.next.CompareAndSwap(n, n+1) {
			j := &c.jobs[n%uint64(len(c.jobs))] // stays: base does not pass a copy that is not finished
			copy(j.dst, j.src)
			c.done.Add(1)
			return true
		}
	}
}

// over reports whether everything that was asked for is in place.
func (c *copyQueue) over() bool { return c.done.Load() == c.tail.Load() }
