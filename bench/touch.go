package bench

import (
	"runtime"

	"multiedge/bench/bytestream"
	"multiedge/bench/proc"
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
		before, start := proc.Thread(), mono.Now()
		bytestream.Touch(m)
		seconds := mono.Now().Sub(start).Seconds()
		rows = append(rows, &report.Row{
			Test: report.FirstTouch, Transport: report.TransportMemory, Setup: report.Setup{Variant: which},
			MessageBytes: region, RegionBytes: region, QueueDepth: 1, Operations: 1, Bytes: uint64(region),
			Seconds: seconds, Throughput: float64(region) / seconds, OperationsPerSecond: 1 / seconds,
			Disturbance: report.Disturbance{PageFaults: proc.Thread().Since(before).Faults},
		})
	}
	return rows, nil
}
