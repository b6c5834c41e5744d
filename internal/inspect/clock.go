package inspect

import (
	"golang.org/x/sys/unix"

	"multiedge/internal/mono"
)

// ClockAhead returns how far CLOCK_MONOTONIC, which all processes of a host share, is ahead of mono.Now in this
// process, in nanoseconds. It takes the best of many tries: one that the kernel interrupts is off by as long.
func ClockAhead() (ahead int64, err error) {
	least := int64(1<<63 - 1)
	for range 100 {
		var ts unix.Timespec
		before := mono.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0, err
		}
		if took := int64(mono.Now() - before); took < least {
			least, ahead = took, ts.Nano()-int64(before)-took/2
		}
	}
	return ahead, nil
}
