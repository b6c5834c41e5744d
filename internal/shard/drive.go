package shard

import (
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// Driving: in an embedded daemon the goroutine that waits for a completion may run the shard itself, so that no thread
// switch lies between it and the wire. The thread that runs iterations holds the token. Each drive renews a lease,
// during which the shard's own thread stays asleep.

// driverLease is how long the thread keeps away after the latest drive: the delay an operation can see when the
// application posts it and then neither waits nor posts again.
const driverLease = time.Millisecond

// longestPause bounds the lease after drivers ran the shard for long: waking the thread costs them a few microseconds
// each time.
const longestPause = 8 * time.Millisecond

// driveLooks is how many iterations in a row may find nothing before the driver looks at other things: some 200 ns
// each.
const driveLooks = 4

// Drive runs iterations on the calling goroutine until one finds work, or driveLooks of them found none, and reports
// which. ran is false when somebody else holds the token; the thread, if it is that, then steps back. It neither blocks
// nor allocates.
func (s *Shard) Drive() (worked, ran bool) {
	if s.stopping.Load() {
		return false, false
	}
	now := mono.Now()
	s.runner.lease.Store(int64(now.Add(driverLease)))
	if !s.Hold() {
		s.runner.wanted.Store(true)
		return false, false
	}
	for range driveLooks {
		if worked = s.Iterate(now); worked {
			break
		}
		now = mono.Now()
	}
	if !worked && len(s.clients.held.list) > 0 { // the next drive may be late
		s.release(now, true)
	}
	asleep := s.box.asleep.Load()
	s.Release()
	if asleep {
		// The thread may sleep for long, and this iteration has told the clients that no doorbell is needed:
		// turn its sleep into a lease, once.
		s.box.wake()
	}
	return worked, true
}

// DriverSleep blocks a driver that has nothing to do, in the thread's stead, until something happens or fd becomes
// readable: what wakes it is one step from the wire. It returns at once if somebody else holds the token.
func (s *Shard) DriverSleep(fd int) {
	if s.stopping.Load() || !s.Hold() {
		return
	}
	if s.runner.threadSleeps.Load() { // the thread was not woken yet, or is getting up: next time
		s.idle.calls.Yields++
		s.Release()
		s.box.wake()
		yield()
		return
	}
	s.runner.wanted.Store(false) // it asks the thread to step back, and the thread has
	b := &s.idle.driverSet
	ready := !s.prepareSleep(mono.Now(), b)
	if !ready {
		s.runner.lease.Store(int64(mono.Never))
		b.set = append(b.set, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		s.runner.driverSleeps.Store(true)
	}
	s.Release()
	if ready {
		return
	}
	s.sleep(b, 0)
	s.runner.driverSleeps.Store(false)
	s.runner.lease.Store(int64(mono.Now().Add(driverLease)))
}

// leaveToDrivers sleeps until no drive has happened, or been asked for, for a lease. While drivers run the shard
// without a pause, it looks less and less often.
func (s *Shard) leaveToDrivers() {
	s.runner.wanted.Store(false)
	pause := driverLease
	for !s.stopping.Load() {
		left := mono.Time(s.runner.lease.Load()).Sub(mono.Now())
		if left <= 0 {
			yield() // a driver that still holds the token may have been put off this very core
			return
		}
		pause = min(2*pause, longestPause)
		if left < driverLease-driverLease/16 {
			pause = left
		}
		// of the runtime: a thread in a system call would keep the runtime's monitor busy, on the driver's core perhaps
		time.Sleep(pause)
	}
}
