package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"multiedge/bench/report"
	"multiedge/bench/workload"
	"multiedge/edge"
)

// Session is one benchmark between two hosts of a cluster.
type Session struct {
	Specs     []workload.Spec
	Region    int
	Scheduler string // asked for by the client's dial; empty: the daemons'
	Fit       bool
	Profile   bool        // find out what processor time goes to, where that is allowed
	Sink      func(Event) // rows, notes and progress; called from one goroutine
}

// Run starts a server in host 1 and a client in host 0, passes on what they report, and ends both. Rows are completed
// with what only the cluster knows. It returns the client's error, or ctx's.
func (c *Cluster) Run(ctx context.Context, s Session) error {
	return c.session(ctx, &Job{Region: s.Region, Peer: c.lab.Host(1).Name(), Scheduler: s.Scheduler, Specs: s.Specs,
		Fit: s.Fit, Warmup: Warmup(s.Specs)}, s)
}

// session is Run with the client's job.
func (c *Cluster) session(ctx context.Context, job *Job, s Session) error {
	server, err := c.worker(1, &Job{Server: true, Region: s.Region}, s.Specs)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer server.stop()
	events := events[Event](server.out)
	if err := c.waitStarted(ctx, server, events); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	drain(events) // sessions it reports are our own
	client, err := c.worker(0, job, s.Specs)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer client.stop()
	if s.Profile {
		p := c.startProfile(client, server, &s)
		defer p.close()
	}
	return c.follow(ctx, client, server, s)
}

// worker starts a job in a host, with the transport this cluster uses.
func (c *Cluster) worker(host int, j *Job, specs []workload.Spec) (*child, error) {
	j.Transport = Transport{Wait: c.spec.Poll}
	for i := range specs {
		j.Transport.Depth = max(j.Transport.Depth, specs[i].Depth)
	}
	h := c.lab.Host(host)
	if c.spec.Embedded {
		j.Transport.Embedded = &edge.Embedded{
			Security: c.spec.Security, Links: h.LinkNames(), Name: h.Name(), Scheduler: c.spec.Scheduler,
			Profile: c.spec.Profile, Checksum: c.spec.Checksum, Poll: c.spec.Poll, Driver: c.spec.Driver,
			Copy: c.spec.copy(),
		}
		if c.encrypted() {
			j.Transport.Embedded.KeyFile, j.Transport.Embedded.PeersFile = c.keyFile(host), c.PeersFile(host)
		}
	} else {
		j.Transport.Socket = c.Socket(host)
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return c.start(host, CommandWorker, string(b))
}

// events decodes what a process writes. The channel is closed when it ends.
func events[E any](r io.Reader) <-chan E {
	ch := make(chan E)
	go func() {
		defer close(ch)
		sc := bufio.NewScanner(r)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e E
			if json.Unmarshal(sc.Bytes(), &e) == nil {
				ch <- e
			}
		}
	}()
	return ch
}

// drain takes events that nobody waits for, until the pipe is closed.
func drain[E any](events <-chan E) {
	go func() {
		for range events {
		}
	}()
}

func (c *Cluster) waitStarted(ctx context.Context, k *child, events <-chan Event) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				<-k.ended
				return k.failure()
			case e.Error != "":
				return errors.New(e.Error)
			case e.Started:
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow passes on the client's events until it ends.
func (c *Cluster) follow(ctx context.Context, client, server *child, s Session) error {
	events := events[Event](client.out)
	defer drain(events)
	var failed error
	for {
		select {
		case e, ok := <-events:
			if !ok {
				<-client.ended
				if failed == nil && client.err != nil {
					failed = client.failure()
				}
				return failed
			}
			if e.Error != "" {
				failed = errors.New(e.Error)
				continue
			}
			if e.Row != nil {
				c.complete(e.Row)
			}
			s.Sink(e)
		case <-server.ended:
			return fmt.Errorf("server: %w", server.failure())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// complete adds to a row what only the cluster knows.
func (c *Cluster) complete(r *report.Row) {
	r.LinkRates, r.Copy, r.Offloads = c.rates(), c.spec.Copy, c.offloads()
	switch {
	case r.Cores != "":
	case len(c.CPUs(0)) > 0:
		r.Cores = report.CoresPinned
	default:
		r.Cores = report.CoresFree
	}
}
