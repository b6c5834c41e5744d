package report

import (
	"fmt"

	"multiedge/bench/proc"
)

// Effort is what a measurement cost a process in the kernel, in counts: unlike times they do not depend on the machine.
type Effort struct {
	// SystemCalls are those that carry, wait and wake, as the library and the daemon count them: sendmmsg, recvmmsg,
	// poll, sched_yield, writes to doorbells and eventfds, and what belongs to these; of raw packet sockets those of
	// the driver and yields; of byte streams over TCP reads and writes. The calls of Go's runtime are not among them.
	SystemCalls uint64 `json:"system_calls"`
	// WakeUps are those of SystemCalls whose only purpose is to wake another thread: writes to doorbells and eventfds.
	// Over TCP the kernel wakes the reader within the writer's call: the reader's voluntary switches show that.
	WakeUps uint64 `json:"wake_ups"`
	// Voluntary switches end in a sleep, which somebody ends by waking; involuntary ones leave the thread runnable: it
	// yielded, or another was to run. Both are the kernel's counts: getrusage for a process that measures itself, with
	// threads that have ended; /proc/PID/task/*/status for a daemon, of the threads that it still has.
	Voluntary   uint64 `json:"voluntary_switches"`
	Involuntary uint64 `json:"involuntary_switches"`
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
	return proc.Sum(e.ClientProcess, e.ClientDaemon, e.ServerProcess, e.ServerDaemon)
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
	e, daemons := r.Efforts, [2]string{}
	if r.Transport == TransportEdge {
		daemons = [2]string{"; its daemon " + end(e.ClientDaemon), "; its daemon " + end(e.ServerDaemon)}
	}
	return "for each message (switches voluntary+involuntary): client " + end(e.ClientProcess) + daemons[0] +
		"; server " + end(e.ServerProcess) + daemons[1]
}

// EffortBrief is the effort of a message at both ends in a few characters: calls, switches, wake-ups.
func (r *Row) EffortBrief() string {
	calls, switches, wakes, ok := r.PerMessage()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.2f, %.2f, %.2f", calls, switches, wakes)
}
