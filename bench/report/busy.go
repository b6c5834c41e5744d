package report

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Shares of all processors above which a measurement is disturbed: what other programs may use, and what a hypervisor
// may take.
const (
	othersAllowed = 0.1
	stolenAllowed = 0.02
)

// BusyNow returns which share of this machine's processors is used at present, watching for d.
func BusyNow(d time.Duration) float64 {
	busy, start := BusySeconds(), time.Now()
	time.Sleep(d)
	return (BusySeconds() - busy) / max(time.Since(start).Seconds()*float64(runtime.NumCPU()), 1e-9)
}

// Busy says in words that other programs use so much of this machine's processors that figures are disturbed, "" if
// they do not.
func Busy(share float64) string {
	if share <= othersAllowed {
		return ""
	}
	return fmt.Sprintf("this machine is busy: other programs use %.0f %% of its processors; figures will be lower, "+
		"and scattered", 100*share)
}

// Judge sets r.Busy. It must run where r was measured, which alone knows how many processors there were.
func (r *Row) Judge() { r.judge(runtime.NumCPU()) }

func (r *Row) judge(cpus int) {
	r.Busy = ""
	all := r.Seconds * float64(cpus)
	if all <= 0 {
		return
	}
	var why []string
	if others := max(0, r.OtherCPU-r.StolenCPU) / all; others > othersAllowed {
		why = append(why, fmt.Sprintf("other programs used %.0f %% of the processors", 100*others))
	}
	if stolen := r.StolenCPU / all; stolen > stolenAllowed {
		why = append(why, fmt.Sprintf("a hypervisor took %.0f %% of them", 100*stolen))
	}
	r.Busy = strings.Join(why, ", ")
}

// Disturbances says in words what disturbed the results of f; nothing where nothing did.
func (f *File) Disturbances() (list []string) {
	var busy int
	var others, stolen, seconds float64
	var switches uint64
	for i := range f.Results {
		r := &f.Results[i]
		if r.Busy == "" {
			continue
		}
		busy++
		others, stolen, seconds, switches = others+max(0, r.OtherCPU-r.StolenCPU), stolen+r.StolenCPU,
			seconds+r.Seconds, switches+r.Switches
	}
	if cpus := float64(f.Machine.CPUs); cpus > 0 && f.Machine.Load > cpus/2 {
		list = append(list, fmt.Sprintf("this machine was busy when the run began: a load average of %.1f on %d "+
			"processors", f.Machine.Load, f.Machine.CPUs))
	}
	if busy > 0 {
		list = append(list, fmt.Sprintf("%d of %d measurements are disturbed, see busy: in these, other programs "+
			"used %.0f %% of the processors, a hypervisor took %.0f %%, "+
			"and the kernel took a processor from the benchmark %.0f times a second; repeat the run when the machine "+
			"is quiet",
			busy, len(f.Results), share(others, seconds, f.Machine.CPUs), share(stolen, seconds, f.Machine.CPUs),
			float64(switches)/max(seconds, 1e-9)))
	}
	return list
}

func share(cpu, seconds float64, cpus int) float64 {
	return 100 * cpu / max(seconds*float64(max(cpus, 1)), 1e-9)
}
