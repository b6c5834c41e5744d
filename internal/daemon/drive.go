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

// driveLooks is how many iterations in a row may find nothing before the driver looks at other things: some 150 ns each.
const driveLooks = 8

// drive runs iterations on the calling goroutine until one finds work, or driveLooks of them found none, and reports which. ran is false when
// somebody else holds the token; the thread, if it is that, then steps back. It neither blocks nor allocates.
func (s *shard) drive() (worked, ran bool) {
	if s.stopping.Load() {
		return false, false
	}
	now := mono.Now()
	s.lease.Store(int64(now.Add(driverLease)))
	if !s.token.CompareAndSwap(0, 1) {
		s.wanted.Store(true)
		return false, false
	}
	for range driveLooks {
		if worked = s.iterate(now); worked {
			break
		}
		now = mono.Now()
	}
	asleep := s.box.asleep.Load()
	s.token.Store(0)
	if asleep {
		// The thread sleeps for who knows how long, and this iteration has told the clients that no doorbell is needed: turn its sleep into a
		// lease, once.
		s.box.wake()
	}
	return worked, true
}

// rest ends the lease: the driver is going to block, and the thread takes over at once.
func (s *shard) rest() {
	s.lease.Store(0)
	s.wanted.Store(false)
	if s.leasing.CompareAndSwap(true, false) {
		s.box.ring()
	}
}

// leaveToDrivers sleeps until no drive has happened, or been asked for, for a lease.
func (s *shard) leaveToDrivers() {
	s.wanted.Store(false)
	for !s.stopping.Load() {
		left := mono.Time(s.lease.Load()).Sub(mono.Now())
		if left <= 0 {
			return
		}
		s.timeout = unix.NsecToTimespec(int64(min(left, driverLease)))
		s.pollSet = append(s.pollSet[:0], unix.PollFd{Fd: int32(s.box.wakeFD), Events: unix.POLLIN})
		s.leasing.Store(true)
		if s.lease.Load() != 0 {
			unix.Ppoll(s.pollSet, &s.timeout, nil)
		}
		s.leasing.Store(false)
		if s.pollSet[0].Revents != 0 {
			s.box.clear()
		}
	}
}
