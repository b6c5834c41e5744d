package contender

import (
	"context"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/internal/config"
	"multiedge/internal/mono"
)

// TCP is one kernel TCP stream for each direction over the first link, used the way iperf3 does: blocking calls of a
// message each on a thread of its own, socket buffers left to the kernel's tuning. (More links need MPTCP or a bond.)
type TCP struct{ Over }

func (TCP) Name() string      { return report.TransportTCP }
func (c TCP) Variant() string { return c.variant() }

// Run implements Contender.
func (c TCP) Run(ctx context.Context, j *Job) *report.Row {
	return streamRun{c, c.Over, config.Plaintext, nil}.run(ctx, j)
}

// streamRun is a job done over byte streams.
type streamRun struct {
	by       Contender
	over     Over
	security string
	secure   func(f *flow) // of a flow that was connected; nil: it stays as it is
}

func (s streamRun) run(ctx context.Context, j *Job) *report.Row {
	j, row := s.over.begin(s.by, j)
	row.Security = s.security
	var flows []*flow
	defer func() {
		for _, f := range flows {
			f.close()
		}
	}()
	for dir := range 2 {
		if dir == 0 || j.Test == report.TwoWay {
			flows = append(flows, newFlow(j, j.Hosts[dir], j.Hosts[1-dir]))
		}
	}
	j.phases(func(phase *Job) { s.phase(ctx, phase, flows, row) })
	return finish(row)
}

// phase does the work once, over new connections: a stream has one end.
func (s streamRun) phase(ctx context.Context, j *Job, flows []*flow, row *report.Row) {
	err := kit.Try(func() {
		s.connect(j, flows, row)
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
		watch(row, func() {
			if j.Test == report.PingPong {
				pingPong(j, flows[0], row)
			} else {
				streams(j, flows, row)
			}
		})
	})
	kit.Check(ctx.Err())
	kit.Checkf(err, "%s", s.by.Name())
}

// connect connects the flows anew, and looks that they are what the row says.
func (s streamRun) connect(j *Job, flows []*flow, row *report.Row) {
	for dir, f := range flows {
		f.hangUp()
		f.connect(j.Hosts[dir], j.Hosts[1-dir], j.Test == report.PingPong)
		f.confirm(s.over, row)
		if s.secure != nil {
			s.secure(f)
		}
		for _, sock := range f.sockets {
			sock.calls = 0 // a handshake's do not count
		}
	}
}

// pair runs the parts of both ends of the flow.
func (f *flow) pair(j *Job, from, to func()) (ends [2]usage) {
	ends[0], ends[1] = pair(j, from, to)
	for i, s := range f.sockets {
		ends[i].calls = s.calls
	}
	return ends
}

// streams runs each flow with a thread at either end.
func streams(j *Job, flows []*flow, row *report.Row) {
	start := mono.Now()
	ends := make([][2]usage, len(flows))
	kit.Each(context.Background(), len(flows), len(flows), func(_ context.Context, dir int) {
		f, job := flows[dir], *j
		job.CPUs[0], job.CPUs[1] = j.CPUs[dir], j.CPUs[1-dir]
		ends[dir] = f.pair(&job, func() { f.send(j.Size, start.Add(j.Duration)) }, f.to.Receive)
	})
	var client, server usage
	row.Seconds, row.Bytes, row.EachWay = mono.Now().Sub(start).Seconds(), 0, nil
	for dir, f := range flows {
		client, server = client.add(ends[dir][dir]), server.add(ends[dir][1-dir])
		row.Bytes += f.bytes
		if j.Test == report.TwoWay {
			row.EachWay = append(row.EachWay, float64(f.bytes))
		}
	}
	account(row, client, server)
}

func pingPong(j *Job, f *flow, row *report.Row) {
	lat := report.NewRecorder()
	start := mono.Now()
	ends := f.pair(j, func() {
		n := f.from.Ping(start.Add(j.Duration), lat)
		row.Seconds, row.Bytes = mono.Now().Sub(start).Seconds(), 2*n*uint64(max(j.Size, 1))
	}, func() { f.to.Pong() })
	account(row, ends[0], ends[1])
	row.Latency = lat.Summary(0.5)
}
