package daemon

import (
	"fmt"
	"os"
	"strconv"
)

// monitorNap is how much longer than it asks for Go's monitor may sleep, in nanoseconds.
const monitorNap = 1_000_000

// calmMonitor has Go's monitor, the thread that preempts others, look around once in a millisecond. After a pause it
// sleeps for 20 us between two looks, until 50 of them found nothing: on a core that daemon and clients share each
// look is two switches, and they had a quarter of it then, while clients attach and connect. The kernel lets a
// process change that of another thread with CAP_SYS_NICE alone. The runtime starts the monitor before any other
// thread. Threads that it makes have this from it: their timed sleeps may last as much longer. Shards set their own.
func calmMonitor() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	pid, first := os.Getpid(), 0
	for _, t := range tasks {
		if n, err := strconv.Atoi(t.Name()); err == nil && n != pid && (first == 0 || n < first) {
			first = n
		}
	}
	if first == 0 {
		return nil
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", first), strconv.AppendInt(nil, monitorNap, 10), 0)
}
