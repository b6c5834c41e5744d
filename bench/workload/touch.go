package workload

import (
	"fmt"
	"os"
	"strings"

	"multiedge/bench/bytestream"
)

// touch writes to all of the data regions, as bytestream.Touch does for other transports, before anything is measured.
func (r *regions) touch() {
	if r.source != nil {
		bytestream.Touch(r.source.Bytes())
	}
	if r.target != nil {
		bytestream.Touch(r.target.Bytes())
	}
}

// minorFaults returns how many minor page faults processes have had, all together. Those that are gone count nothing.
func minorFaults(pids ...int) (sum uint64) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		sum += minorFaultsOf(string(data))
	}
	return sum
}

// minorFaultsOf reads the tenth field of /proc/PID/stat, the eighth behind the name, which may hold anything.
func minorFaultsOf(stat string) (n uint64) {
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) > 7 {
		_, _ = fmt.Sscan(f[7], &n)
	}
	return n
}
