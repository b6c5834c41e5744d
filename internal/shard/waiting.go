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
//     polling without end takes a core. While a client polls, poll in its stead: it would have the core otherwise, and
//     a sleep that ends while it has costs more;
//   - yield at once while a client has to run that polls or was just woken, until it did (wake.go). One that polls and
//     has taken everything can only wait: it gets the core now and then, for what else its program has to do, since a
//     yield to it is two switches in which nobody looks at the links. While another client works on what it was given,
//     or such a yield was longer than these switches, so that somebody works here, the shard yields more often;
//   - yield often after a request of a client's was served: the goroutine that waited for that goes on, or serves the
//     next one, and on a single core it would have to wait until the shard has polled in vain;
//   - yield often while a client works that runs on this core: the shard was woken in its midst, by its doorbell or by
//     a frame, and polling keeps the core from it;
//   - when a yield took long another thread needs the core: stop yielding for a while, and sleep.
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
	beside   mono.Time // until when others are taken to work on this core while clients wait
	served   mono.Time // the latest piece of a request, or job
	asleep   mono.Time // since when it sleeps
}

// idle is asked after an iteration that found nothing, or something for a client that polls. due says that a client has
// to run: it was given something that it polls for, or woken; polling that some client polls; working that another has
// run, and neither polls nor sleeps since; here that it did on this core.
func (w *waiter) idle(now mono.Time, polling, working, here, due bool) action {
	serving := now.Sub(w.served) < servedTime
	waits := polling || due || serving || here
	contended := w.core.At(now)
	looks := looksFor
	if working || serving || now < w.beside {
		looks = looksBeside
	}
	yield := waits && !contended && (due || now.Sub(w.yielded) >= looks)
	patience := w.spin.Limit()
	if polling {
		patience = w.spin.Most()
	}
	switch {
	case w.mode == "block":
		return actBlock
	case w.mode != "busy" && now.Sub(w.lastWork) >= patience:
		return actBlock
	case yield:
		return actYield
	case w.mode != "busy" && waits && contended: // sleeping gives the core up for certain
		return actBlock
	}
	return actPoll
}

// gaveWay is told that a yield ended now that was to clients with nothing to take. One that takes longer than the two
// switches found somebody at work: another thread of such a client, or one of this process that serves a request.
func (w *waiter) gaveWay(now mono.Time, took time.Duration) {
	if took >= workedTime {
		w.beside = now.Add(besideTime)
	}
}

const (
	// looksFor is how long the shard looks for work between two yields to clients that poll and have nothing to take.
	// It is shorter than the yield that tells a client that its core is contended (idle.Contention), and longer than
	// most answers take. looksBeside is that while somebody works on the core.
	looksFor    = 100 * time.Microsecond
	looksBeside = 3 * time.Microsecond

	workedTime = 25 * time.Microsecond // a yield of that length is more than two switches, where these are slowest
	besideTime = 2 * time.Millisecond  // for which the shard expects more of that work

	servedTime = 200 * time.Microsecond // after a request was served: longer than most take to be followed by another
)

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
	var a unix.SchedAttr
	if schedAttr(&a) != nil || a.Policy != unix.SCHED_NORMAL && a.Policy != unix.SCHED_BATCH {
		return // whoever chose another policy has seen to it
	}
	if a.Runtime = 0; on {
		a.Runtime = uint64(hurriedSlice)
	}
	unix.SchedSetAttr(0, &a, 0) // without it the thread waits longer
}
