package edge

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/mono"
)

const (
	slowYield   = 200 * time.Microsecond // a yield that takes longer means that somebody else needs the core
	yieldPause  = 100 * time.Millisecond // and for how long polling then is out of the question
	goschedEach = 8                      // looks at the ring between two chances for other goroutines
	driveEach   = 32                     // idle iterations of an embedded transport between two chances for other threads
)

// driver is an embedded transport that a waiting goroutine runs itself.
type driver interface {
	Drive() (worked, ran bool) // one iteration
	Rest()                     // the caller is about to block: the transport's own thread takes over
}

// strategy is the leader's way of waiting, as measured: poll and yield while that is cheap, then block.
// The leader alone uses it.
type strategy struct {
	since    mono.Time // the last progress; zero: not polling
	noYield  mono.Time // no polling before
	looks    uint32
	polling  bool // as the daemon was told
	pollArgs [1]unix.PollFd
}

func (s *strategy) begin() { s.since = 0 }

func (s *strategy) end(d *Device) {
	if s.polling {
		s.polling = false
		d.rings.SetClientPolling(false)
	}
}

// idle is called after each look at the ring that did not find what the leader waits for; progress says that it found something else, or
// that the transport it drives had work. It yields, and reports whether the leader should block instead of looking again.
func (s *strategy) idle(d *Device, progress bool) (block bool) {
	if progress {
		s.since = 0
		return false
	}
	if d.cfg.Wait == Block {
		return true
	}
	now := mono.Now()
	if s.since == 0 {
		s.since = now
	}
	if d.cfg.Wait == Adaptive && (now < s.noYield || now.Sub(s.since) > d.cfg.Spin) {
		s.end(d)
		return true
	}
	if !s.polling {
		s.polling = true
		d.rings.SetClientPolling(true)
	}
	s.looks++
	if d.drive != nil && s.looks%driveEach != 0 {
		return false // the core is this thread's: it runs the transport itself
	}
	if d.drive != nil || s.looks%goschedEach == 0 {
		runtime.Gosched() // others in this process need to run too
		now = mono.Now()
	}
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if after := mono.Now(); after.Sub(now) > slowYield {
		s.noYield = after.Add(yieldPause)
	}
	return false
}

// sleep blocks the thread until fd is readable or a signal arrives.
func (s *strategy) sleep(fd int) {
	s.pollArgs[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	unix.Poll(s.pollArgs[:], -1) // whatever the outcome, the caller looks again
	s.since = 0
}
