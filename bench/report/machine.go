package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

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

// Card is what elementary operations cost on a machine (package machine measures it). Latencies consist of these, so
// results of two machines can be compared only beside their cards. Zero: not measured, such as hand-overs across cores
// where there is one.
//
// Times are nanoseconds, the least mean of several batches; rates are bytes per second of one core, the best batch.
type Card struct {
	// SystemCall is one getppid by the raw instruction.
	SystemCall float64 `json:"system_call_ns"`
	// YieldSwitch is one switch by sched_yield between two processes on one core: half of a round trip in which each
	// yields until the other has answered in shared memory.
	YieldSwitch float64 `json:"yield_switch_ns,omitempty"`
	// Futex and Eventfd are one hand-over between two processes, half of a round trip: one wakes the other (FUTEX_WAKE;
	// a write to an eventfd) and sleeps (FUTEX_WAIT; a blocking read). OneCore: both on one core; Across: on two.
	FutexOneCore   float64 `json:"futex_one_core_ns,omitempty"`
	FutexAcross    float64 `json:"futex_across_cores_ns,omitempty"`
	EventfdOneCore float64 `json:"eventfd_one_core_ns,omitempty"`
	EventfdAcross  float64 `json:"eventfd_across_cores_ns,omitempty"`
	// FirstTouch is the first write to a page of 4 KiB of shared memory (memfd), as regions are.
	FirstTouch float64 `json:"first_touch_ns,omitempty"`
	// CopyHot copies 128 KiB that a core's cache holds, CopyCold blocks of 128 KiB of a memory of ColdBytes, each once
	// before any comes again.
	CopyHot   float64 `json:"copy_hot_bytes_per_second"`
	CopyCold  float64 `json:"copy_cold_bytes_per_second,omitempty"`
	ColdBytes int     `json:"copy_cold_memory_bytes,omitempty"`
	// AESGCM seals 8 KiB by AES-128-GCM as frames are sealed, AESGCMStandard by the standard library.
	AESGCM         float64 `json:"aes_gcm_bytes_per_second"`
	AESGCMStandard float64 `json:"aes_gcm_standard_bytes_per_second"`
	// CRC32C sums 8 KiB.
	CRC32C float64 `json:"crc32c_bytes_per_second"`
}

// CardLine is a figure of a card for people.
type CardLine struct{ What, Value, How string }

// Lines are the figures that were measured, with units, and how each was.
func (c *Card) Lines() (list []CardLine) {
	ns := func(what string, v float64, how string) {
		if v > 0 {
			list = append(list, CardLine{what, Nanos(v), how})
		}
	}
	rate := func(what string, v float64, how string) {
		if v > 0 {
			list = append(list, CardLine{what, fmt.Sprintf("%.1f GB/s", v/1e9), how})
		}
	}
	ns("system call", c.SystemCall, "getppid")
	ns("yield switch", c.YieldSwitch, "sched_yield between two processes on one core, one way")
	ns("futex, one core", c.FutexOneCore, "hand-over between two processes, one way")
	ns("futex, across cores", c.FutexAcross, "the same on two cores")
	ns("eventfd, one core", c.EventfdOneCore, "hand-over by write and blocking read, one way")
	ns("eventfd, across cores", c.EventfdAcross, "the same on two cores")
	ns("first touch", c.FirstTouch, "first write to a page of 4 KiB of shared memory")
	rate("copy, hot", c.CopyHot, "128 KiB within a core's cache")
	rate("copy, cold", c.CopyCold, "blocks of 128 KiB of "+Bytes(c.ColdBytes)+", each once in turn")
	rate("AES-128-GCM", c.AESGCM, "sealing 8 KiB, as frames are sealed; one core")
	rate("AES-128-GCM, Go's", c.AESGCMStandard, "the same by the standard library")
	rate("CRC32C", c.CRC32C, "8 KiB; one core")
	return list
}

// String is the card in a line.
func (c *Card) String() string {
	var parts []string
	for _, l := range c.Lines() {
		parts = append(parts, l.What+" "+l.Value)
	}
	return strings.Join(parts, "; ")
}
