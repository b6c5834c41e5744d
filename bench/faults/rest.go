package faults

import (
	"os"
	"runtime"

	"multiedge/bench/proc"
)

// thisRest returns what the calling process holds.
func thisRest() Rest {
	r := restOf(os.Getpid())
	r.Goroutines = runtime.NumGoroutine()
	return r
}

// restOf returns what a process holds, as the kernel sees it. That excludes goroutines.
func restOf(pid int) Rest {
	return Rest{Descriptors: max(0, proc.Descriptors(pid)), Locked: proc.Locked(pid)}
}
