package workload

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// involuntary returns how often the kernel has taken a processor from the threads of processes, all together. Those
// that are gone count nothing.
func involuntary(pids ...int) (sum uint64) {
	for _, pid := range pids {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, name := range tasks {
			sum += involuntaryOf(name)
		}
	}
	return sum
}

func involuntaryOf(status string) (n uint64) {
	f, err := os.Open(status)
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if value, ok := strings.CutPrefix(sc.Text(), "nonvoluntary_ctxt_switches:"); ok {
			_, _ = fmt.Sscan(value, &n)
		}
	}
	return n
}
