package bench

import (
	"context"
	"errors"

	"multiedge/bench/kit"
	"multiedge/bench/profile"
	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/edge"
)

// Series is one benchmark between two hosts of a cluster.
type Series struct {
	Specs     []workload.Spec
	Region    int
	Scheduler string // asked for by the client's dial; empty: the daemons'
	Fit       bool
	Profile   bool        // find out what processor time goes to, where that is allowed
	Sink      func(Event) // rows, notes and progress; called from one goroutine
}

// Run starts a server in host 1 and a client in host 0, passes on what they report, and ends both. Rows are completed
// with what only the cluster knows. It returns the client's error, or ctx's.
func (c *Cluster) Run(ctx context.Context, s Series) error {
	return c.series(ctx, &Job{Region: s.Region, Peer: c.lab.Host(1).Name(), Scheduler: s.Scheduler, Specs: s.Specs,
		Fit: s.Fit, Warmup: Warmup(s.Specs)}, s)
}

// series is Run with the client's job.
func (c *Cluster) series(ctx context.Context, job *Job, s Series) error {
	return kit.Try(func() {
		both := kit.NewCrew()
		defer both.Stop()
		both.Add("server", c.worker(1, &Job{Server: true, Region: s.Region}, s.Specs))
		both.AwaitStarted(ctx)
		both.Add("client", c.worker(0, job, s.Specs))
		if s.Profile {
			p := c.startProfile(both.Process(1), both.Process(0), &s)
			defer p.close()
		}
		c.follow(ctx, both, &s)
	})
}

// worker starts a job in a host, with the transport this cluster uses.
func (c *Cluster) worker(host int, j *Job, specs []workload.Spec) *kit.Process {
	j.Transport = Transport{Wait: c.spec.Poll}
	for i := range specs {
		j.Transport.Depth = max(j.Transport.Depth, specs[i].Depth)
	}
	h := c.lab.Host(host)
	if c.spec.Embedded {
		j.Transport.Embedded = &edge.Embedded{
			Security: c.spec.Security, Links: h.LinkNames(), Name: h.Name(), Scheduler: c.spec.Scheduler,
			Profile: c.spec.Profile, Checksum: c.spec.Checksum, Poll: c.spec.Poll, Driver: c.spec.Driver,
			Copy: c.spec.WayToCopy(),
		}
		if c.Encrypted() {
			j.Transport.Embedded.KeyFile, j.Transport.Embedded.PeersFile = c.KeyFile(host), c.PeersFile(host)
		}
	} else {
		j.Transport.Socket = c.Socket(host)
	}
	return c.Start(host, roleWorker, j)
}

// follow passes on the client's events until it ends.
func (c *Cluster) follow(ctx context.Context, both *kit.Crew, s *Series) {
	for {
		said := both.Hear(ctx)
		switch {
		case said.Member == 0: // series that the server reports are our own
			if said.Over {
				kit.Check(said.Err())
			}
		case said.Error != "":
			kit.Check(errors.New(said.Error))
		case said.Over && both.Process(1).Ends() == nil:
			return
		case said.Over:
			kit.Check(both.Process(1).Failure())
		default:
			var e Event
			kit.Check(said.Into(&e))
			if e.Row != nil {
				c.complete(e.Row)
			}
			s.Sink(e)
		}
	}
}

// complete adds to a row what only the cluster knows.
func (c *Cluster) complete(r *report.Row) {
	r.LinkRates, r.Copy, r.Offloads = c.Rates(), c.spec.Copy, c.offloads()
	switch {
	case r.Cores != "":
	case len(c.CPUs(0)) > 0:
		r.Cores = report.CoresPinned
	default:
		r.Cores = report.CoresFree
	}
}

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
