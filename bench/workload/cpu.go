package workload

import "golang.org/x/sys/unix"

// processCPU returns the processor seconds this process has used so far.
func processCPU() (user, system float64) {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0, 0
	}
	return float64(ru.Utime.Nano()) / 1e9, float64(ru.Stime.Nano()) / 1e9
}
