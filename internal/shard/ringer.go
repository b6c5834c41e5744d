package shard

import (
	"sync"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"
)

// ringer rings a client's doorbell. How long that takes is up to the client: the kernel wakes all who wait for a
// descriptor before the call returns, and a process can wait for one as often as it may have descriptors. One that took
// long is rung on a goroutine of its own for longShare times as long.
type ringer struct {
	bell    *ipc.Doorbell
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
		return
	}
	r.bell.Ring()
	if took := mono.Now().Sub(from); took > longRing {
		r.long(from, took)
	}
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
