package bench

import (
	"runtime"

	"golang.org/x/sys/unix"

	"multiedge/bench/bytestream"
	"multiedge/bench/report"
	"multiedge/internal/mono"
)

// FirstTouch writes to all of new memory once, and once again: what touching regions before the clock starts keeps out
// of every other row. The first row has a page fault for each page, which on a virtual machine the hypervisor may have
// to serve as well; the second has none.
func FirstTouch(region int) ([]*report.Row, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m, err := bytestream.Untouched(region)
	if err != nil {
		return nil, err
	}
	defer bytestream.Free(m)
	var rows []*report.Row
	for _, which := range []string{"first", "again"} {
		before, start := threadFaults(), mono.Now()
		bytestream.Touch(m)
		seconds := mono.Now().Sub(start).Seconds()
		rows = append(rows, &report.Row{
			Test: report.FirstTouch, Transport: report.TransportMemory, Setup: report.Setup{Variant: which},
			MessageBytes: region, RegionBytes: region, QueueDepth: 1, Operations: 1, Bytes: uint64(region),
			Seconds: seconds, Throughput: float64(region) / seconds, OperationsPerSecond: 1 / seconds,
			Disturbance: report.Disturbance{PageFaults: threadFaults() - before},
		})
	}
	return rows, nil
}

// threadFaults is how many minor page faults the calling thread has had.
func threadFaults() uint64 {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &ru) != nil {
		return 0
	}
	return uint64(ru.Minflt)
}
