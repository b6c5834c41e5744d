package bench

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench/kit"
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
	server, err := c.worker(1, &Job{Server: true, Region: s.Region}, s.Specs)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer server.Stop()
	if err := server.AwaitStarted(ctx); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	server.Drain() // series it reports are our own
	client, err := c.worker(0, job, s.Specs)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer client.Stop()
	if s.Profile {
		p := c.startProfile(client, server, &s)
		defer p.close()
	}
	return c.follow(ctx, client, server, s)
}

// worker starts a job in a host, with the transport this cluster uses.
func (c *Cluster) worker(host int, j *Job, specs []workload.Spec) (*kit.Process, error) {
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
func (c *Cluster) follow(ctx context.Context, client, server *kit.Process, s Series) error {
	defer client.Drain()
	var failed error
	for {
		select {
		case said, ok := <-client.Events:
			if !ok {
				<-client.Ended()
				if failed == nil && client.Err() != nil {
					failed = client.Failure()
				}
				return failed
			}
			if said.Error != "" {
				failed = errors.New(said.Error)
				continue
			}
			var e Event
			if err := said.Into(&e); err != nil {
				return err
			}
			if e.Row != nil {
				c.complete(e.Row)
			}
			s.Sink(e)
		case <-server.Ended():
			return fmt.Errorf("server: %w", server.Failure())
		case <-ctx.Done():
			return ctx.Err()
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
