package report

import (
	"os"
	"runtime"

	"github.com/prometheus/procfs"
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
	m := Machine{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Memory: MachineMemory()}
	m.Hostname, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	fs, _ := procfs.NewDefaultFS()
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPUModel = cpus[0].ModelName
	}
	if load, err := fs.LoadAvg(); err == nil {
		m.Load = load.Load1
	}
	return m
}

// MachineMemory returns how many bytes of memory this machine has; 0 where that cannot be found out.
func MachineMemory() int {
	fs, _ := procfs.NewDefaultFS()
	mem, err := fs.Meminfo()
	if err != nil || mem.MemTotalBytes == nil {
		return 0
	}
	return int(*mem.MemTotalBytes)
}

// BusySeconds returns the processor time this machine has spent on anything at all since it started, all processors
// together; 0 where that cannot be found out.
func BusySeconds() float64 {
	c := processors()
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal // not idle and iowait
}

// StolenSeconds returns for how long processors of this machine were wanted and a hypervisor did not give them, since
// it started, all processors together; 0 where that cannot be found out.
func StolenSeconds() float64 { return processors().Steal }

func processors() procfs.CPUStat {
	fs, _ := procfs.NewDefaultFS()
	st, _ := fs.Stat()
	return st.CPUTotal
}

// StolenShare is the share of all processors that was stolen since StolenSeconds returned was, seconds ago.
func StolenShare(was, seconds float64) float64 {
	return (StolenSeconds() - was) / max(seconds*float64(runtime.NumCPU()), 1e-9)
}
