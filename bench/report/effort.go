package report

import "fmt"

// Effort is what a measurement cost a process in the kernel, in counts: unlike times they do not depend on the machine.
type Effort struct {
	// SystemCalls are those that carry, wait and wake, as the library and the daemon count them: sendmmsg, recvmmsg,
	// poll, sched_yield, writes to doorbells and eventfds, and what belongs to these. The calls of Go's runtime are not
	// among them. Zero where nothing counts: transports of the kernel.
	SystemCalls uint64 `json:"system_calls"`
	// WakeUps are those of SystemCalls that wake another thread: writes to doorbells and eventfds.
	WakeUps uint64 `json:"wake_ups"`
	// Voluntary switches end in a sleep, which somebody ends by waking; involuntary ones leave the thread runnable: it
	// yielded, or another was to run. Both are the kernel's counts (/proc/PID/task/*/status) of all threads.
	Voluntary   uint64 `json:"voluntary_switches"`
	Involuntary uint64 `json:"involuntary_switches"`
}

// Add returns the sum of both.
func (e Effort) Add(o Effort) Effort {
	return Effort{e.SystemCalls + o.SystemCalls, e.WakeUps + o.WakeUps, e.Voluntary + o.Voluntary,
		e.Involuntary + o.Involuntary}
}

// Since returns what e has more than o. A thread that ended takes its switches with it: then it is zero.
func (e Effort) Since(o Effort) Effort {
	less := func(a, b uint64) uint64 { return a - min(a, b) }
	return Effort{less(e.SystemCalls, o.SystemCalls), less(e.WakeUps, o.WakeUps), less(e.Voluntary, o.Voluntary),
		less(e.Involuntary, o.Involuntary)}
}

// Efforts are those of both ends: of the process and of the daemon that serves it (zero for an embedded transport).
type Efforts struct {
	ClientProcess Effort `json:"client_process"`
	ClientDaemon  Effort `json:"client_daemon"`
	ServerProcess Effort `json:"server_process"`
	ServerDaemon  Effort `json:"server_daemon"`
}

// Total is that of all four.
func (e *Efforts) Total() Effort {
	return e.ClientProcess.Add(e.ClientDaemon).Add(e.ServerProcess).Add(e.ServerDaemon)
}

// PerMessage divides the effort of both ends by the messages of a row; ok is false where nothing was counted.
func (r *Row) PerMessage() (calls, switches, wakes float64, ok bool) {
	if r.Efforts == nil || r.Operations == 0 {
		return 0, 0, 0, false
	}
	t, n := r.Efforts.Total(), float64(r.Operations)
	return float64(t.SystemCalls) / n, float64(t.Voluntary+t.Involuntary) / n, float64(t.WakeUps) / n, true
}

// EffortText is the effort of a message in words, by end; "" where nothing was counted.
func (r *Row) EffortText() string {
	if r.Efforts == nil || r.Operations == 0 {
		return ""
	}
	n := float64(r.Operations)
	end := func(e Effort) string {
		return fmt.Sprintf("%.2f calls, %.2f+%.2f switches, %.2f wake-ups", float64(e.SystemCalls)/n,
			float64(e.Voluntary)/n, float64(e.Involuntary)/n, float64(e.WakeUps)/n)
	}
	e := r.Efforts
	return "for each message (switches voluntary+involuntary): client " + end(e.ClientProcess) + "; its daemon " +
		end(e.ClientDaemon) + "; server " + end(e.ServerProcess) + "; its daemon " + end(e.ServerDaemon)
}

// EffortBrief is the effort of a message at both ends in a few characters: calls, switches, wake-ups.
func (r *Row) EffortBrief() string {
	calls, switches, wakes, ok := r.PerMessage()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f", calls, switches, wakes)
}
