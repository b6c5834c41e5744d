package shard

import (
	"fmt"
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// alarm wakes a sleeping shard in time. The kernel starts a timer for every sleep with a time-out and cancels it on
// return; where that timer is the next to expire on its core, both program the processor's, which costs a virtual
// machine several microseconds each. An alarm stays set from one sleep to the next: timers of the transport mostly move
// further away, and one that rings too early costs one look.
type alarm struct {
	fd int       // a timerfd, polled
	at mono.Time // when it rings, or rang; zero: never set

	sets uint64 // system calls
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return alarm{}, fmt.Errorf("alarm: timerfd: %w", err)
	}
	return alarm{fd: fd}, nil
}

// by makes the alarm ring at a time or before, and stops it from ringing.
func (a *alarm) by(now, at mono.Time) {
	if now < a.at && a.at <= at {
		return
	}
	a.at = at
	a.sets++
	// Zero would turn it off.
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(at.Sub(now), time.Nanosecond)))}
	unix.TimerfdSettime(a.fd, 0, &spec, nil)
}

func (a *alarm) close() { unix.Close(a.fd) }
