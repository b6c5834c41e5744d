package shard

import (
	"time"

	"multiedge/internal/idle"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// The wait policy, as measured on shared cores:
//
//   - poll for some 50 us after the last work, longer while sleeps prove short. 5 us costs more than it gains, and
//     polling without end takes a core;
//   - yield only while a client polls too or was just woken: at once to one that was given something, otherwise now and
//     then, since nobody looks at rings during a switch;
//   - when a yield took long another thread needs the core: stop yielding for a while, and sleep;
//   - never poll without yielding where a client waits for the same core.
const defaultSpin = 50 * time.Microsecond

// action is what an idle shard does next.
type action uint8

const (
	actPoll  action = iota // look again at once
	actYield               // let others run, then look again
	actBlock               // sleep until something happens
)

// waiter decides what an idle shard does. It reads no clock.
type waiter struct {
	mode     string        // Config.Poll
	spin     idle.Patience // of Config.Spin
	core     idle.Contention
	turn     idle.Turn
	lastWork mono.Time
	yielded  mono.Time // the end of the latest yield
	asleep   mono.Time // since when it sleeps
}

// idle is asked after an iteration that found nothing, or something for a client that polls. given says that a client
// was just given something that it polls for, or woken, and so has something to do; polling that some client polls, and
// therefore has not.
func (w *waiter) idle(now mono.Time, polling, given bool) action {
	waits := polling || given
	contended := w.core.At(now)
	yield := waits && !contended && (given || now.Sub(w.yielded) >= looksFor)
	switch {
	case w.mode == "block":
		return actBlock
	case w.mode != "busy" && now.Sub(w.lastWork) >= w.spin.Limit():
		return actBlock
	case yield:
		return actYield
	case w.mode != "busy" && waits && contended: // sleeping gives the core up for certain
		return actBlock
	}
	return actPoll
}

// looksFor is how long the shard looks for work between two yields to clients that poll but have been given nothing:
// each yield costs two switches of context, in which nobody looks.
const looksFor = 3 * time.Microsecond

// yield gives the processor to another runnable thread, if there is one. The call itself, which is why it may not be
// inlined, is where the runtime can stop a loop that waits for a thread which it has stopped already: its signals come
// while the loop is in the kernel, where they do not count.
//
//go:noinline
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// hurriedSlice is the least slice that Linux takes.
const hurriedSlice = 100 * time.Microsecond

// hurry gives this thread a short slice, or the ordinary one again. The kernel prefers a thread with a shorter slice
// (sched_setattr(2), since Linux 6.12; older kernels ignore it). So the thread runs as soon as it wakes, even if
// another thread on its core never sleeps, such as a client that polls memory; otherwise it would wait for the end of
// that thread's slice, some milliseconds. Only a thread that sleeps on a contended core gets it: one that yields would
// run again at once.
func (s *Shard) hurry(on bool) {
	if s.idle.hurries == on {
		return
	}
	s.idle.hurries = on
	a, err := unix.SchedGetAttr(0, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL && a.Policy != unix.SCHED_BATCH {
		return // whoever chose another policy has seen to it
	}
	if a.Runtime = 0; on {
		a.Runtime = uint64(hurriedSlice)
	}
	unix.SchedSetAttr(0, a, 0) // without it the thread waits longer
}
