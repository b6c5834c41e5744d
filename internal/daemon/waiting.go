package daemon

import (
	"time"

	"multiedge/internal/idle"
	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// The wait policy as measured on shared cores: poll for some 50 us after the last work (5 us is worse than useless, for ever burns a
// core), longer while sleeps turn out to be short; yield between polls only while a client polls too or was just woken, else yielding buys nothing; when a yield took long, somebody
// else needs the core, so stop yielding for a while and go to sleep; never spin bare where a client waits for the same core.
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
	lastWork mono.Time
	asleep   mono.Time // since when it sleeps
}

// idle is asked after an iteration that found nothing. polling says that some client polls now, or was just woken.
func (w *waiter) idle(now mono.Time, polling bool) action {
	may := polling && !w.core.At(now)
	switch w.mode {
	case "block":
		return actBlock
	case "busy":
		if may {
			return actYield
		}
		return actPoll
	}
	if now.Sub(w.lastWork) >= w.spin.Limit() {
		return actBlock
	}
	switch {
	case may:
		return actYield
	case polling: // the core is contended: sleeping gives it up for certain
		return actBlock
	}
	return actPoll
}

// yield gives the processor to another runnable thread, if there is one.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
