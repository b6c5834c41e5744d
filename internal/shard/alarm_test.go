package shard

import (
	"testing"
	"time"

	"multiedge/internal/mono"

	"golang.org/x/sys/unix"
)

// An alarm that rings early enough is left alone; one that rings too late, or has rung, is set.
func TestAlarm(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	const minute = time.Minute
	start := mono.Now()
	for i, step := range []struct {
		now, at mono.Time
		rings   time.Duration // the time the kernel has left to wait, at most and to a minute
	}{
		{start, start.Add(60 * minute), 60 * minute},
		{start, start.Add(90 * minute), 60 * minute},
		{start.Add(59 * minute), start.Add(90 * minute), 60 * minute},
		{start, start.Add(30 * minute), 30 * minute},
		{start.Add(30 * minute), start.Add(90 * minute), 60 * minute},
	} {
		a.by(step.now, step.at)
		var spec unix.ItimerSpec
		if err := unix.TimerfdGettime(a.fd, &spec); err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(spec.Value.Nano()); got > step.rings || got < step.rings-minute {
			t.Fatalf("step %d: rings in %v, want %v", i, got, step.rings)
		}
	}
	rung := func(wait int) bool {
		n, err := pollFor([]unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}, wait)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	now := mono.Now()
	if a.by(now, now-5); !rung(10_000) {
		t.Fatal("a time that is over does not ring")
	}
	if a.by(now, now.Add(minute)); rung(0) {
		t.Fatal("an alarm that is set again still rings")
	}
}
