package bench

import (
	"multiedge/bench/kit"
	"multiedge/bench/profile"
	"multiedge/bench/report"
)

// breakdown adds to the rows of a series what the processor time of both ends went to.
type breakdown struct {
	profiler *profile.Profiler // nil: not allowed
	pids     [2]struct{ process, daemon int }
	embedded bool
}

// startProfile begins to sample and puts itself between the series's events and its sink. Where sampling is refused it
// says so once, and the rows keep what the kernel accounts for each process.
func (c *Cluster) startProfile(client, server *kit.Process, s *Series) *breakdown {
	b := &breakdown{embedded: c.spec.Embedded}
	sink := s.Sink
	var err error
	if b.profiler, err = profile.New(); err != nil {
		sink(Event{Note: "processor time is split by process and mode only: " + err.Error()})
		return b
	}
	for i, worker := range []*kit.Process{client, server} {
		b.pids[i].process = worker.Pid()
		if !b.embedded {
			b.pids[i].daemon = c.Daemon(i).Pid()
		}
	}
	s.Sink = func(e Event) {
		switch {
		case e.Begin:
			b.profiler.Reset()
		case e.Row != nil:
			b.fill(e.Row)
		}
		sink(e)
	}
	return b
}

// fill sets the breakdown of both ends of a row.
func (b *breakdown) fill(r *report.Row) {
	samples := b.profiler.Take()
	for i, end := range []*report.End{&r.CPU.Client, &r.CPU.Server} {
		end.Breakdown = profile.Split(*end, samples[b.pids[i].process], samples[b.pids[i].daemon], b.embedded)
	}
}

func (b *breakdown) close() {
	if b.profiler != nil {
		b.profiler.Close()
	}
}
