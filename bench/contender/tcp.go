package contender

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/mono"
)

// TCP is one kernel TCP stream for each direction over the first link, used the way iperf3 does: blocking calls of a
// message each on a thread of its own, socket buffers left to the kernel's tuning. (More links need MPTCP or a bond.)
type TCP struct{ Over }

func (TCP) Name() string       { return report.TransportTCP }
func (c TCP) Variant() string  { return c.variant() }
func (TCP) Missing() string    { return "" }
func (TCP) Does(t string) bool { return streamDoes(t) }
func streamDoes(t string) bool {
	return t == report.OneWay || t == report.TwoWay || t == report.PingPong
}

// Run implements Contender.
func (c TCP) Run(ctx context.Context, j *Job) (*report.Row, error) {
	return streamRun{c, c.Over, config.Plaintext, nil}.run(ctx, j)
}

// streamRun is a job done over byte streams.
type streamRun struct {
	by       Contender
	over     Over
	security string
	secure   func(f *flow) error // of a flow that was connected; nil: it stays as it is
}

func (s streamRun) run(ctx context.Context, j *Job) (*report.Row, error) {
	j, row, err := s.over.begin(s.by, j)
	if err != nil {
		return nil, err
	}
	row.Security = s.security
	flows := []*flow{}
	defer func() {
		for _, f := range flows {
			f.close()
		}
	}()
	for dir := range 2 {
		if dir == 1 && j.Test != report.TwoWay {
			break
		}
		f, err := newFlow(j, j.Hosts[dir], j.Hosts[1-dir])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.by.Name(), err)
		}
		flows = append(flows, f)
	}
	for _, d := range j.phases() {
		phase := *j
		phase.Duration = d
		if err := s.phase(ctx, &phase, flows, row); err != nil {
			return nil, err
		}
	}
	return finish(row), nil
}

// phase does the work once, over new connections: a stream has one end.
func (s streamRun) phase(ctx context.Context, j *Job, flows []*flow, row *report.Row) error {
	err := s.connect(j, flows, row)
	if err == nil {
		woken := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			for _, f := range flows {
				f.shutdown()
			}
			close(woken)
		})
		defer func() {
			if !stop() {
				<-woken // before the sockets are closed
			}
		}()
		err = watch(row, func() error {
			if j.Test == report.PingPong {
				return pingPong(j, flows[0], row)
			}
			return streams(j, flows, row)
		})
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w", s.by.Name(), err)
	}
	return nil
}

// connect connects the flows anew, and looks that they are what the row says.
func (s streamRun) connect(j *Job, flows []*flow, row *report.Row) error {
	for dir, f := range flows {
		f.hangUp()
		err := f.connect(j.Hosts[dir], j.Hosts[1-dir], j.Test == report.PingPong)
		if err == nil {
			err = f.confirm(s.over, row)
		}
		if err == nil && s.secure != nil {
			err = s.secure(f)
		}
		if err != nil {
			return err
		}
		for _, sock := range f.sockets {
			sock.calls = 0 // a handshake's do not count
		}
	}
	return nil
}

// pair runs the parts of both ends of the flow.
func (f *flow) pair(j *Job, from, to func() error) (ends [2]usage, err error) {
	ends[0], ends[1], err = pair(j, from, to)
	for i, s := range f.sockets {
		ends[i].calls = s.calls
	}
	return ends, err
}

// streams runs each flow with a thread at either end.
func streams(j *Job, flows []*flow, row *report.Row) error {
	start := mono.Now()
	type result struct {
		ends [2]usage // client, server
		err  error
	}
	results := make(chan result, len(flows))
	for dir, f := range flows {
		go func() {
			job := *j
			job.CPUs[0], job.CPUs[1] = j.CPUs[dir], j.CPUs[1-dir]
			ends, err := f.pair(&job, func() error { return f.send(j.Size, start.Add(j.Duration)) }, f.to.Receive)
			results <- result{[2]usage{ends[dir], ends[1-dir]}, err}
		}()
	}
	var err error
	var ends [2]usage
	for range flows {
		r := <-results
		err = errors.Join(err, r.err)
		ends[0], ends[1] = ends[0].add(r.ends[0]), ends[1].add(r.ends[1])
	}
	account(row, ends[0], ends[1])
	row.Seconds, row.Bytes, row.EachWay = mono.Now().Sub(start).Seconds(), 0, nil
	for _, f := range flows {
		row.Bytes += f.bytes
		if j.Test == report.TwoWay {
			row.EachWay = append(row.EachWay, float64(f.bytes))
		}
	}
	return err
}

func pingPong(j *Job, f *flow, row *report.Row) error {
	lat := report.NewRecorder()
	start := mono.Now()
	ends, err := f.pair(j, func() error {
		n, err := f.from.Ping(start.Add(j.Duration), lat)
		row.Seconds, row.Bytes = mono.Now().Sub(start).Seconds(), 2*n*uint64(max(j.Size, 1))
		return err
	}, func() error {
		_, err := f.to.Pong()
		return err
	})
	account(row, ends[0], ends[1])
	row.Latency = lat.Summary(0.5)
	return err
}
