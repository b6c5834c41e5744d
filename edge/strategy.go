package edge

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/idle"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

const (
	// how long to poll between two chances for other goroutines: each chance makes the runtime wake threads that look
	// for work, perhaps on this core
	goschedEach = 5 * time.Millisecond
	// likewise if this goroutine has the only P: nobody else runs meanwhile, and no thread is woken
	goschedOnly = 200 * time.Microsecond
	// how long a driver of an embedded transport keeps its core before it yields between looks
	driveAlone = 20 * time.Microsecond
)

// driver is an embedded transport that a waiting goroutine runs itself.
type driver interface {
	Drive() (worked, ran bool)                                     // one iteration
	DriverSleep(fd int)                                            // blocks until there may be work or fd is readable
	Memory(fd int) *regmem.Memory                                  // of a region, as the transport sees it; nil: map fd
	Policy(before func(a, b regmem.ChunkUse) bool) (number uint32) // of the next space that is mapped with it
}

// driven reports whether waiting goroutines run the transport. Those of a Device with an event loop do not: nobody runs
// the transport while the loop sleeps, so the transport's own thread does, as a daemon would.
func (d *attachment) driven() bool { return d.drive != nil && !d.dev.looped.Load() }

// strategy is the leader's way of waiting, as measured: poll and yield while that is cheap, then block.
// The leader alone uses it.
type strategy struct {
	patience idle.Patience
	core     idle.Contention
	turn     idle.Turn
	since    mono.Time   // the last progress; zero: not polling
	seen     mono.Time   // the clock in the latest look, if polling
	gosched  mono.Time   // when others of this process had their chance
	only     bool        // this goroutine has the only P, as of then
	polling  ipc.Polling // as the daemon was told
	asks     int         // likewise: for how many operations the leader waits
	calls    systemCalls
}

func (s *strategy) begin() { s.since = 0 }

func (s *strategy) end(d *attachment) {
	s.tell(d, ipc.NotPolling)
	s.ask(d, 1)
}

func (s *strategy) tell(d *attachment, p ipc.Polling) {
	if s.polling != p {
		s.polling = p
		d.rings.SetClientPolling(p)
	}
}

// ask says for how many operations the leader waits, or notifications if n is negative.
func (s *strategy) ask(d *attachment, n int) {
	if s.asks == n {
		return
	}
	s.asks = n
	word := uint32(max(n, 1))
	if n < 0 {
		word = uint32(-n) | ipc.AwaitNotes
	}
	d.rings.SetClientAwaits(word)
}

// idle is called after each look at the ring that did not find what the leader waits for. progress says that the look
// found something else, or that the transport that the leader drives had work; asks, for how many operations the leader
// waits. idle yields, and reports whether the leader should block instead of looking again.
func (s *strategy) idle(d *attachment, progress bool, asks int) (block bool) {
	if progress {
		s.since = 0
		return false
	}
	if d.cfg.Wait == Block {
		return true
	}
	now := s.seen // the clock was read in the latest look
	if s.since == 0 || d.driven() {
		now = mono.Now()
		s.seen = now
	}
	if s.since == 0 {
		s.since = now
	}
	if d.cfg.Wait == Adaptive && (s.core.At(now) || now.Sub(s.since) > s.patience.Limit()) {
		s.tell(d, ipc.NotPolling)
		return true
	}
	s.ask(d, asks)
	s.tell(d, polls(asks))
	if d.driven() && now.Sub(s.since) < driveAlone {
		return false
	}
	if kept := now.Sub(s.gosched); kept > goschedEach || s.only && kept > goschedOnly {
		runtime.Gosched()
		s.only = runtime.GOMAXPROCS(0) == 1
		now = mono.Now()
		s.gosched = now
	}
	s.calls.yields++
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	s.seen = mono.Now()
	s.core.Yielded(s.seen, s.seen.Sub(now))
	return false
}

// sleep blocks until the doorbell rings, a signal arrives or, with a driver, there may be work. If briefly is set, it
// blocks only briefly. In every case the caller looks again.
func (s *strategy) sleep(d *attachment, briefly bool) {
	asleep := mono.Now()
	if s.turn.Due(asleep) {
		runtime.Gosched()
		asleep = mono.Now()
	}
	if d.driven() {
		d.drive.DriverSleep(d.wakeups.bell.FD())
		s.calls.clears++
		d.wakeups.bell.Clear()
	} else {
		timeout := -1
		if briefly {
			timeout = int(creditLook / time.Millisecond)
		}
		s.calls.sleeps++
		d.wakeups.bell.Wait(timeout)
	}
	s.patience.Slept(mono.Now().Sub(asleep))
	s.since = 0
}
