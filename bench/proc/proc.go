// Package proc reads what the kernel counts of processes and threads: getrusage for this one, /proc for others.
package proc

import (
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Usage is what a process or a thread has used, up to a moment or between two.
type Usage struct {
	User, System float64 // processor time in seconds
	Faults       uint64  // minor page faults
	// Voluntary switches end in a sleep. Involuntary ones leave the thread runnable: it yielded, or another was to run.
	Voluntary, Involuntary uint64
}

// Thread is what the calling thread has used so far.
func Thread() Usage { return used(unix.RUSAGE_THREAD) }

// Self is what this process has used so far, threads that are gone included.
func Self() Usage { return used(unix.RUSAGE_SELF) }

func used(who int) Usage {
	var ru unix.Rusage
	if unix.Getrusage(who, &ru) != nil {
		return Usage{}
	}
	return Usage{float64(ru.Utime.Nano()) / 1e9, float64(ru.Stime.Nano()) / 1e9, uint64(ru.Minflt), uint64(ru.Nvcsw),
		uint64(ru.Nivcsw)}
}

// hertz is the unit in which the kernel counts processor time in /proc, on every Linux system (USER_HZ).
const hertz = 100

// Of is what another process has used so far; switches are those of threads that it still has.
func Of(pid int) (u Usage, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	st, err := p.Stat()
	if err != nil {
		return u, err
	}
	u = Usage{User: float64(st.UTime) / hertz, System: float64(st.STime) / hertz, Faults: uint64(st.MinFlt)}
	threads, err := procfs.AllThreads(pid)
	for _, t := range threads {
		if s, err := t.NewStatus(); err == nil { // otherwise it has just gone
			u.Voluntary, u.Involuntary = u.Voluntary+s.VoluntaryCtxtSwitches, u.Involuntary+s.NonVoluntaryCtxtSwitches
		}
	}
	return u, err
}

// Resident is the memory of a process that is in use now, in bytes; 0 if the process has gone.
func Resident(pid int) uint64 { return status(pid).VmRSS }

// Locked is the memory of a process that is locked, in bytes.
func Locked(pid int) uint64 { return status(pid).VmLck }

func status(pid int) (s procfs.ProcStatus) {
	if p, err := procfs.NewProc(pid); err == nil {
		s, _ = p.NewStatus()
	}
	return s
}

// CountedResident is Resident counted page by page, which takes long: Resident may lag by some hundred kB. Of it,
// anonymous is what neither a file nor shared memory has. Both are 0 where the kernel does not count.
func CountedResident(pid int) (resident, anonymous uint64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	s, err := p.ProcSMapsRollup()
	if err != nil {
		return 0, 0
	}
	return s.Rss, s.Anonymous
}

// Descriptors counts the open files of a process; -1 if the kernel does not show them.
func Descriptors(pid int) int {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return -1
	}
	n, err := p.FileDescriptorsLen()
	if err != nil {
		return -1
	}
	return n
}
