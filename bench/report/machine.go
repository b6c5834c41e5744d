package report

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where a benchmark ran.
type Machine struct {
	Hostname string `json:"hostname"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"`
	CPUModel string `json:"cpu_model,omitempty"`
	CPUs     int    `json:"cpus"`
	Memory   int    `json:"memory_bytes,omitempty"`
	Go       string `json:"go"`
	// Load is the load average of one minute when the program began: how many threads wanted a processor then.
	Load float64 `json:"load_average,omitempty"`
	// Card is what elementary operations cost; nil where nobody measured that.
	Card *Card `json:"card,omitempty"`
}

// ThisMachine describes the machine the caller runs on. What cannot be found out is left empty.
func ThisMachine() Machine {
	m := Machine{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.Hostname, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	m.CPUModel = procField("/proc/cpuinfo", "model name")
	m.Memory = MachineMemory()
	one, _, _ := strings.Cut(firstLine("/proc/loadavg"), " ")
	m.Load, _ = strconv.ParseFloat(one, 64)
	return m
}

// MachineMemory returns how many bytes of memory this machine has; 0 where that cannot be found out.
func MachineMemory() int {
	kib, err := strconv.Atoi(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"))
	if err != nil {
		return 0
	}
	return kib << 10
}

// procField returns the value of the first "name : value" line of a /proc file, or "".
func procField(file, name string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Columns of /proc/stat, see proc_stat(5).
var (
	busyColumns   = []int{1, 2, 3, 6, 7, 8} // user, nice, system, irq, softirq, steal; not idle and iowait
	stolenColumns = []int{8}
)

// BusySeconds returns the processor time this machine has spent on anything at all since it started, all processors
// together; 0 where that cannot be found out.
func BusySeconds() float64 { return statSeconds(firstLine("/proc/stat"), busyColumns) }

// StolenSeconds returns for how long processors of this machine were wanted and a hypervisor did not give them, since
// it started, all processors together; 0 where that cannot be found out.
func StolenSeconds() float64 { return statSeconds(firstLine("/proc/stat"), stolenColumns) }

// StolenShare is the share of all processors that was stolen since StolenSeconds returned was, seconds ago.
func StolenShare(was, seconds float64) float64 {
	return (StolenSeconds() - was) / max(seconds*float64(runtime.NumCPU()), 1e-9)
}

// statSeconds sums columns of the first line of /proc/stat.
func statSeconds(line string, columns []int) float64 {
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	ticks := 0
	for _, i := range columns {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			return 0
		}
		ticks += n
	}
	return float64(ticks) / userHertz
}

// userHertz is the unit of /proc/stat on every Linux system.
const userHertz = 100

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
