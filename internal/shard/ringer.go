package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"multiedge/internal/ipc"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// ringer rings a client's doorbell. How long that takes is up to the client: the kernel wakes all that wait for a
// descriptor before the call returns, and a process can wait for one as often as it may have descriptors. A client
// whose long rings have taken more than a longShare-th of the time, while those of all clients have taken more than a
// ringsShare-th, is rung on a goroutine of its own, for longShare times as long as the latest took. Few say nothing:
// frames that the kernel takes in before the call returns, an interrupt, or a hypervisor that takes the processor,
// count as the thread's own time, a thousandth of all time and more. Where the client shares the core it may run
// before the call returns, which is no time of the call's: after one that seemed long the thread's own time counts,
// for longShare times as long: to read it is a system call. So one in that time counts for nothing.
type ringer struct {
	bell    *ipc.Doorbell
	rings   *ipc.Rings    // for its words
	owed    owed          // what the next ring is
	doubt   mono.Time     // until then the thread's own time counts: a ring seemed long
	slow    debt          // of the client's own long rings
	shares  bool          // the client seems to run on the shard's core
	waits   bool          // among clientSet.bells
	due     bool          // among clientSet.due
	polls   bool          // there since it was given something while it polled
	took    bool          // it took what it was given, or submitted something, and was not seen to wait since
	held    mono.Time     // until when it is left alone with what it was given (ABI A8.8); zero: it is not
	listed  bool          // among heldSet.list
	overdue bool          // it is to be left alone no longer
	rung    mono.Time     // the end of the latest ring, or the latest time that it was given something while it polled
	looks   uint64        // at the thread's clock
	until   mono.Time     // the goroutine rings
	asked   chan struct{} // it is to ring; nil: there is none
	later   struct {      // what
		bell  atomic.Bool
		words atomic.Uint64
	}
	running sync.WaitGroup
}

// owed is what wakes threads of a client: its doorbell, and words on which they sleep (ABI A8.7).
type owed struct {
	bell  bool
	words ipc.WordSet
}

// owe adds to the next ring, and reports whether there is to be one.
func (r *ringer) owe(o owed) bool {
	r.owed.bell = r.owed.bell || o.bell
	r.owed.words |= o.words
	return r.owed != owed{}
}

const (
	longRing  = 100 * time.Microsecond
	longShare = 1000
)

// debt is what long calls took beyond their share of the shard's time, one part in share of it.
type debt struct {
	owed time.Duration
	at   mono.Time // as of
}

const (
	longMost   = time.Millisecond // of one client's rings
	ringsShare = 100              // of all clients'
	ringsMost  = 5 * time.Millisecond
)

// tooMuch adds a long call, and reports whether more than most is owed.
func (d *debt) tooMuch(now mono.Time, took time.Duration, share int, most time.Duration) bool {
	d.owed = max(0, d.owed-now.Sub(d.at)/time.Duration(share)) + took
	d.at = now
	return d.owed > most
}

// tooLong adds a long ring, and reports whether it was too much both for the client and for all, whose debt is all.
// The latter has a bound, so that one client's worst ring does not count against the others for long.
func (r *ringer) tooLong(now mono.Time, took time.Duration, all *debt) bool {
	mine := r.slow.tooMuch(now, took, longShare, longMost)
	together := all.tooMuch(now, took, ringsShare, ringsMost)
	all.owed = min(all.owed, 2*ringsMost)
	return mine && together
}

// ring is the shard's, whose long rings all counts. It returns how many calls it made.
func (r *ringer) ring(all *debt) (calls uint64) {
	o := r.owed
	r.owed = owed{}
	from := mono.Now()
	if from < r.until {
		if o.bell {
			r.later.bell.Store(true)
		}
		r.later.words.Or(uint64(o.words))
		select {
		case r.asked <- struct{}{}:
		default: // it is about to
		}
		r.rung, r.shares = from, false
		return 1
	}
	own := time.Duration(0)
	if from < r.doubt {
		r.looks++
		own = threadTime()
	}
	calls = r.wake(o)
	r.rung = mono.Now()
	took := r.rung.Sub(from)
	if took > sharedTime {
		r.shares = true
	}
	if took <= longRing {
		return calls
	}
	if from < r.doubt {
		r.looks++
		used := min(took, threadTime()-own) // at most what it took: a driver may have changed threads meanwhile
		if used > longRing && r.tooLong(from, used, all) {
			r.long(from, used)
		}
	}
	r.doubt = r.rung.Add(longShare * took)
	return calls
}

func (r *ringer) wake(o owed) (calls uint64) {
	if o.bell {
		calls++
		r.bell.Ring()
	}
	if o.words != 0 {
		calls += uint64(r.rings.Wake(o.words))
	}
	return calls
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
			r.wake(owed{r.later.bell.Swap(false), ipc.WordSet(r.later.words.Swap(0))})
		}
	})
}

// end is the shard's last word.
func (r *ringer) end() {
	if r.asked != nil {
		close(r.asked)
	}
}

// ended calls f when no ring is under way; end came before.
func (r *ringer) ended(f func()) {
	if r.asked == nil {
		f()
		return
	}
	go func() {
		r.running.Wait()
		f()
	}()
}
