package kit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Resident returns the memory of a process that is in use now, in bytes; 0 if the process has gone.
func Resident(pid int) uint64 { return ProcBytes(pid, "status", "VmRSS") }

// ProcBytes returns a field in kB of a file of a process in /proc, in bytes; 0 if there is none.
func ProcBytes(pid int, file, field string) uint64 {
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

// Descriptors counts the open files of a process; -1 if the kernel does not show them.
func Descriptors(pid int) int {
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(d)
}
