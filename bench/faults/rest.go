package faults

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// thisRest returns what the calling process holds.
func thisRest() Rest {
	r := restOf(os.Getpid())
	r.Goroutines = runtime.NumGoroutine()
	return r
}

// restOf returns what a process holds, as the kernel sees it. That excludes goroutines.
func restOf(pid int) Rest {
	var r Rest
	if d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		r.Descriptors = len(d)
	}
	r.Locked = statusBytes(pid, "VmLck")
	return r
}

// resident is the resident memory of a process in bytes.
func resident(pid int) uint64 { return statusBytes(pid, "VmRSS") }

// settled returns resident memory, counted page by page. VmRSS may lag by some hundred kB.
func settled(pid int) uint64 { return fieldBytes(pid, "smaps_rollup", "Rss") }

// statusBytes reads a field in kB of a process's status; 0 when it is gone.
func statusBytes(pid int, field string) uint64 { return fieldBytes(pid, "status", field) }

func fieldBytes(pid int, file, field string) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}
