package shard

import (
	"sync"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// ringer rings a client's doorbell. How long that takes is up to the client: the kernel wakes all that wait for a
// descriptor before the call returns, and a process can wait for one as often as it may have descriptors. One that took
// long is rung on a goroutine of its own for longShare times as long. Where the client shares the core it may run
// before the call returns, which is no time of the call's: after the first that seemed long the thread's own time
// counts.
type ringer struct {
	bell    *ipc.Doorbell
	seemed  bool          // a ring seemed long
	shares  bool          // the client seems to run on the shard's core
	waits   bool          // among clientSet.bells
	wakes   bool          // among clientSet.woken
	rung    mono.Time     // the end of the latest ring
	looks   uint64        // at the thread's clock
	until   mono.Time     // the goroutine rings
	asked   chan struct{} // it is to ring; nil: there is none
	running sync.WaitGroup
}

const (
	longRing  = 100 * time.Microsecond
	longShare = 1000
)

// ring is the shard's.
func (r *ringer) ring() {
	from := mono.Now()
	if from < r.until {
		select {
		case r.asked <- struct{}{}:
		default: // it is about to
		}
		r.rung, r.shares = from, false
		return
	}
	own := time.Duration(0)
	if r.seemed {
		r.looks++
		own = threadTime()
	}
	r.bell.Ring()
	r.rung = mono.Now()
	took := r.rung.Sub(from)
	if took > sharedTime {
		r.shares = true
	}
	if took <= longRing {
		return
	}
	if r.seemed { // at most what it took: a driver may have changed threads meanwhile
		r.looks++
		took = min(took, threadTime()-own)
	}
	if r.seemed && took > longRing {
		r.long(from, took)
	}
	r.seemed = true
}

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails for no thread
	return time.Duration(t.Nano())
}

func (r *ringer) long(now mono.Time, took time.Duration) {
	r.until = now.Add(longShare * took)
	if r.asked != nil {
		return
	}
	asked := make(chan struct{}, 1)
	r.asked = asked
	r.running.Go(func() {
		for range asked {
			r.bell.Ring()
		}
	})
}

// end is the shard's last word.
func (r *ringer) end() {
	if r.asked != nil {
		close(r.asked)
	}
}

// close waits for a ring under way; end came before.
func (r *ringer) close() {
	r.running.Wait()
	r.bell.Close()
}
