package scale

import (
	"context"
	"encoding/json"
	"os"
	"runtime"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/edge"
	"multiedge/edge/node"
	"multiedge/internal/inspect"
)

// Usage is what one process holds.
type Usage struct {
	Resident    uint64 `json:"resident_bytes"`
	Heap        uint64 `json:"heap_bytes"`
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"` // -1: not ours to count
	Connections int    `json:"connections"` // a daemon's
	Regions     int    `json:"regions"`
	Exports     int    `json:"exports"`
	Pinned      uint64 `json:"pinned_bytes"`
}

// Host is an application and the daemon it is attached to.
type Host struct {
	Application Usage `json:"application"`
	Daemon      Usage `json:"daemon"`
}

// look measures this process, after collecting its garbage, and the daemon behind d as it is.
func look(ctx context.Context, d *edge.Device) (h Host) {
	var st inspect.Status
	kit.Checkf(json.Unmarshal(kit.Get(node.Status(ctx, d, "status")), &st), "scale: the daemon's status")
	h.Daemon = Usage{Heap: st.HeapBytes, Goroutines: st.Goroutines, Connections: st.Connections, Regions: st.Regions,
		Exports: st.Exports, Pinned: st.PinnedBytes, Resident: resident(st.PID), Descriptors: proc.Descriptors(st.PID)}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.Application = Usage{Heap: m.HeapAlloc, Goroutines: runtime.NumGoroutine(), Resident: resident(os.Getpid()),
		Descriptors: proc.Descriptors(os.Getpid())}
	return h
}

// resident returns the bytes of a process that are in memory now.
func resident(pid int) uint64 {
	n := proc.Resident(pid)
	if n == 0 {
		kit.Fail("scale: /proc does not show the memory of process %d: the daemon must be on this host", pid)
	}
	return n
}
