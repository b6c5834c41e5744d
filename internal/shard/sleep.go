package shard

import (
	"runtime"
	"sync/atomic"
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// How the shard's thread sleeps and is woken:
//
//   - frames: poll on the links' descriptors; receivers use the eventfd;
//   - submissions: clients see their ring's sleep word and ring a doorbell. The daemon never reads a doorbell: its file
//     belongs to the client
//     too, who could make the read block. An edge-triggered epoll reports each ring without one;
//   - functions for the mailbox: an eventfd of our own;
//   - timers: the alarm.
//
// Everything is looked at once more after the sleep words are set, so that no wake-up falls between.

const (
	longestSleep = time.Second // also bounds what a lost netlink event costs
	// while a notification waits for room: a client that makes room rings no doorbell
	stuckSleep = time.Millisecond
	deafSleep  = 200 * time.Microsecond // while a driver without a descriptor is open, or a link is lent
	reapSleep  = 10 * time.Millisecond  // while memory of a dead client is still in use
)

// How a daemon's thread sleeps for keepTime after work: in naps of which the runtime is not told, so that it goes on as
// if the thread worked. Otherwise the runtime's monitor, which sleeps when all do, begins anew with pauses of 20 us
// once the thread is woken, and takes the core from it and its clients every 100 us for 5 ms: an operation takes up to
// three times its time for as long (docs/DSM.md, "After a pause").
const (
	keepTime = 100 * time.Millisecond
	napTime  = 9 * time.Millisecond

	threadSlack = 50_000 // ns that a sleep may take longer, as is usual
)

// nappers are the shards' threads of this process, of which the first may nap: each keeps a processor of the runtime (a
// P) meanwhile, and OtherProcs are left.
var nappers atomic.Int32

// OtherProcs is how many goroutines of a daemon must be able to run at once besides the shards' threads, whatever the
// number of cores: those poll without letting go, and on a single P everything else in the process would wait for the
// runtime to preempt them, which takes it up to 10 ms.
const OtherProcs = 3

// mayNap takes a place among nappers, which ends with the thread. In an embedded daemon all processors are the
// program's.
func (s *Shard) mayNap() bool {
	return int(nappers.Add(1)) <= runtime.GOMAXPROCS(0)-OtherProcs && !s.garbage.embedded
}

// pollSet is the set of descriptors that a thread polls while it sleeps for the shard: the shard's thread has one, and
// the drivers of an embedded shard.
type pollSet struct {
	set  []unix.PollFd
	rung [64]unix.EpollEvent

	looks uint64 // system calls after a sleep, not in Shard.calls yet
}

// prepareSleep sets the sleep words and builds the poll set. It reports false if something came up meanwhile, or may be
// left of the latest iteration. The caller holds the token.
func (s *Shard) prepareSleep(now mono.Time, b *pollSet) bool {
	if s.idle.busy || s.links.failedLinks {
		return false
	}
	if s.release(now, true) {
		return false // they run first
	}
	s.idle.calls.fold(b)
	s.box.asleep.Store(true)
	s.setAsleep(true)
	if s.box.count.Load() > 0 || s.runner.wanted.Load() || s.stopping.Load() || s.clientsReady() ||
		s.links.receivers != nil &&
			s.links.receivers.waiting() {
		s.wakeUp()
		return false
	}
	left := min(s.eng.NextTimeout().Sub(now), longestSleep)
	b.set = append(b.set[:0], unix.PollFd{Fd: int32(s.box.wakeFD), Events: unix.POLLIN},
		unix.PollFd{Fd: int32(s.idle.doorbells), Events: unix.POLLIN}, unix.PollFd{Fd: int32(s.idle.alarm.fd),
			Events: unix.POLLIN})
	for _, l := range s.links.active {
		if l.drv == nil {
			continue
		}
		if len(l.unsent) > 0 {
			left = min(left, retryPause)
		}
		if l.lent != nil && l.lent.loan.Load() != loanOffer { // its receiver wakes the shard, unless it lost its core
			left = min(left, deafSleep)
			continue
		}
		if fd := l.drv.FD(); fd >= 0 {
			b.set = append(b.set, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		} else {
			left = min(left, deafSleep)
		}
	}
	for _, c := range s.clients.list {
		if c != nil && (c.delivery.full || c.stalled()) {
			left = min(left, stuckSleep)
		}
	}
	if s.clients.dying > 0 {
		left = min(left, reapSleep)
	}
	s.idle.alarm.by(now, now.Add(left))
	s.runner.beat.Store(int64(mono.Never))
	s.idle.calls.Sleeps++
	return true
}

// sleep blocks until something happens, and reports whether it was more than the time. The token is not held: only the
// set is used.
func (s *Shard) sleep(b *pollSet, naps int) (woken bool) {
	n := 0 // -1 after a signal: look around
	for ; n == 0 && naps > 0; naps-- {
		n = pollUntold(b.set, napTime)
	}
	switch {
	case n < 0:
		runtime.Gosched() // the signal asks the thread to stop, for a collection or another goroutine
	case n == 0:
		n, _ = unix.Poll(b.set, -1)
	}
	s.box.asleep.Store(false)
	if b.set[0].Revents != 0 {
		b.looks++
		s.box.clear()
	}
	if b.set[1].Revents != 0 {
		b.looks++
		unix.EpollWait(s.idle.doorbells, b.rung[:], 0) // takes the edges
	}
	if b.set[2].Revents != 0 {
		n-- // taken when it is set again
	}
	return n > 0
}

// wakeUp undoes prepareSleep.
func (s *Shard) wakeUp() {
	s.box.asleep.Store(false)
	s.setAsleep(false)
}

// setAsleep tells every client whether submissions need a doorbell.
func (s *Shard) setAsleep(on bool) {
	s.idle.sleepWords = on
	for _, c := range s.clients.list {
		if c != nil && c.rings != nil {
			c.rings.SetDaemonAsleep(on)
		}
	}
}

// clientsReady reports whether a submission waits.
func (s *Shard) clientsReady() bool {
	for _, c := range s.clients.list {
		if c != nil && c.rings != nil && c.sq.Ready() && !c.stalled() {
			return true
		}
	}
	return false
}
