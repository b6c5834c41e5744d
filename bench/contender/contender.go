// Package contender moves the same bytes between two lab hosts without the edge transport, for comparison: over bare
// packet sockets, which is the limit of what any transport on this path can reach; over TCP; and over UCX, libfabric
// and iperf3 where they are installed.
//
// Raw, TCP and TLS run inside this process, one locked thread (a stream each way: two) for each host, with sockets in
// the hosts' namespaces; their processor time is that of those threads. Memory is as for edge: regions of the same
// size, touched by the same function (bytestream.Touch) before the clock starts, used from one end to the other.
//
// TCP's congestion control is set for the hosts before each run, and read back from the sockets (see Over).
package contender

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
	"multiedge/internal/lab"
)

// Job is one measurement.
type Job struct {
	Test     string // report.OneWay, TwoWay or PingPong
	Size     int    // bytes of a message
	Duration time.Duration
	Warmup   time.Duration // of the same work before the clock starts, in the same memory
	Region   int           // bytes of each end's source and target memory
	MTU      int
	Hosts    [2]*lab.Host // client, server
	CPUs     [2][]int     // processors of each host's threads; empty: any
	Self     []string     // how to run this program, for commands that need a view of the host (see Enter)
}

// Contender is one way to do a Job.
type Contender interface {
	// Name is the transport's, for Row.Transport; Variant tells several set-ups of one transport apart.
	Name() string
	Variant() string
	// Does reports whether the contender can do a test at all.
	Does(test string) bool
	// Missing returns how to install what is needed and is not there, or "".
	Missing() string
	// Run does the job, or ends by kit.Check.
	Run(ctx context.Context, j *Job) *report.Row
}

// row returns the row of a job that has not begun.
func (j *Job) row(c Contender) *report.Row {
	r := &report.Row{
		Test: j.Test, Transport: c.Name(), MessageBytes: j.Size, RegionBytes: j.Region,
		Setup: report.Setup{Variant: c.Variant(), Bidirectional: j.Test == report.TwoWay, Cores: report.CoresFree},
		Links: len(j.Hosts[0].LinkNames()), MTU: j.MTU, QueueDepth: 1,
	}
	if len(j.CPUs[0]) > 0 {
		r.Cores = report.CoresPinned
	}
	if j.Test == report.PingPong {
		r.LatencyKind = report.LatencyHalfRTT
	}
	return r
}

// finish derives the rates of a row from its bytes and seconds.
func finish(r *report.Row) *report.Row {
	if r.Operations == 0 && r.MessageBytes > 0 {
		r.Operations = r.Bytes / uint64(r.MessageBytes)
	}
	for i := range r.EachWay { // bytes until now
		r.EachWay[i] /= max(r.Seconds, 1e-9)
	}
	return r.Rated()
}

// watch runs fn, which sets row.CPU, and notes what else this machine's processors did meanwhile.
func watch(row *report.Row, fn func()) {
	busy, stolen, before := report.BusySeconds(), report.StolenSeconds(), proc.Self()
	fn()
	row.StolenCPU, row.Switches = report.StolenSeconds()-stolen, proc.Since(proc.Self(), before).Involuntary
	row.OtherCPU = max(0, report.BusySeconds()-busy-row.CPU.Total)
}

// phases has a job's work done: once to warm up, then for what counts.
func (j *Job) phases(do func(*Job)) {
	for _, d := range []time.Duration{j.Warmup, j.Duration} {
		if d > 0 {
			phase := *j
			phase.Duration = d
			do(&phase)
		}
	}
}

// usage is what an end has used.
type usage struct {
	proc.Usage
	calls uint64 // of the kernel, that carry bytes or give way
}

// onThread runs fn, which may end by kit.Check, on a thread of its own that is bound to processors, and returns what it
// used. The thread ends with fn, so nobody inherits the binding.
func onThread(cpus []int, fn func()) (use usage, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
		err = kit.Try(func() {
			if len(cpus) > 0 {
				var set unix.CPUSet
				for _, c := range cpus {
					set.Set(c)
				}
				kit.Checkf(unix.SchedSetaffinity(0, &set), "binding to processors %v", cpus)
			}
			before := proc.Thread()
			fn()
			use.Usage = proc.Since(proc.Thread(), before)
		})
	}()
	<-done
	return use, err
}

// add is what two threads of one end have used.
func (u usage) add(o usage) usage { return usage{proc.Sum(u.Usage, o.Usage), u.calls + o.calls} }

func (u usage) end() report.End { return report.End{ProcessUser: u.User, ProcessSystem: u.System} }

func (u usage) effort() report.Effort {
	return report.Effort{SystemCalls: u.calls, Voluntary: u.Voluntary, Involuntary: u.Involuntary}
}

// account puts what both ends used into a row.
func account(r *report.Row, client, server usage) {
	r.CPU, r.PageFaults = report.Ends(client.end(), server.end()), client.Faults+server.Faults
	r.Efforts = &report.Efforts{ClientProcess: client.effort(), ServerProcess: server.effort()}
}

// pair runs the client's and the server's part, and returns what each used.
func pair(j *Job, client, server func()) (c, s usage) {
	kit.Together(context.Background(),
		func(context.Context) { c = kit.Get(onThread(j.CPUs[0], client)) },
		func(context.Context) { s = kit.Get(onThread(j.CPUs[1], server)) })
	return c, s
}
