package workload

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"multiedge/bench/report"
)

// switchesOf returns how often the threads of another process have left a processor, all together: to sleep, and
// because the kernel took it or they yielded. Threads that are gone count nothing.
func switchesOf(pid int) (e report.Effort) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, name := range tasks {
		e = e.Add(switchesIn(name))
	}
	return e
}

func switchesIn(status string) (e report.Effort) {
	f, err := os.Open(status)
	if err != nil {
		return e
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), ":")
		switch name {
		case "voluntary_ctxt_switches":
			_, _ = fmt.Sscan(value, &e.Voluntary)
		case "nonvoluntary_ctxt_switches":
			_, _ = fmt.Sscan(value, &e.Involuntary)
		}
	}
	return e
}

// ownSwitches are those of this process, with threads that are gone.
func ownSwitches() (e report.Effort) {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return e
	}
	return report.Effort{Voluntary: uint64(ru.Nvcsw), Involuntary: uint64(ru.Nivcsw)}
}
