package daemon

import (
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// Driving: in an embedded daemon the goroutine that waits for a completion may run the shard itself, so that no thread switch lies between it
// and the wire. Whoever runs iterations holds the token. Each drive renews a lease, during which the shard's own thread stays asleep.

// driverLease is how long the thread keeps away after the latest drive: the delay an operation can see when the application posts it
// and then neither waits nor posts again.
const driverLease = time.Millisecond

// drive runs one iteration on the calling goroutine. It returns false when somebody else holds the token; the thread, if it is that, then
// steps back. It neither blocks nor allocates.
func (s *shard) drive() bool {
	if s.stopping.Load() {
		return false
	}
	if !s.token.CompareAndSwap(0, 1) {
		s.wanted.Store(true)
		return false
	}
	now := mono.Now()
	s.lease.Store(int64(now.Add(driverLease)))
	s.iterate(now)
	asleep := s.box.asleep.Load()
	s.token.Store(0)
	if asleep {
		// The thread sleeps for who knows how long, and this iteration has told the clients that no doorbell is needed: turn its sleep into a
		// lease, once.
		s.box.wake()
	}
	return true
}

// leaveToDrivers sleeps until no drive has happened for a lease. A driver that asked for the token but has not come yet gets one lease.
func (s *shard) leaveToDrivers() {
	grace := s.wanted.Swap(false)
	for !s.stopping.Load() {
		left := mono.Time(s.lease.Load()).Sub(mono.Now())
		if grace {
			left, grace = max(left, driverLease), false
		}
		if left <= 0 {
			return
		}
		s.timeout = unix.NsecToTimespec(int64(min(left, driverLease)))
		unix.Nanosleep(&s.timeout, nil)
	}
}
