package main

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench"
	"multiedge/bench/cli"
	"multiedge/bench/report"
	"multiedge/bench/workload"
)

// testFlags are common to the tests between two hosts.
type testFlags struct {
	Peer string `arg:"" optional:"" help:"Name of the host that runs edgebench server. Not needed with --lab."`
	sizeFlags
	workFlags
	transportFlags
	localFlags  `prefix:""`
	labFlags    `prefix:""`
	outputFlags `prefix:""`
}

// bothWays is the flag of tests that can run in both directions.
type bothWays struct {
	Both bool `short:"b" help:"Both ends post operations; the throughput counts both directions."`
}

type (
	oneWayCmd struct {
		testFlags
		bothWays
		connFlags
		Pieces count `help:"Pieces of memory from which each message is gathered, up to 16." placeholder:"N"`
		Copied bool  `help:"Copy the pieces into one buffer first, instead of gathering them."`
	}
	atomicCmd struct {
		testFlags
		bothWays
		connFlags
		Func string `enum:"add,cas" default:"add" help:"Kind of atomic: add (fetch-and-add) or cas (compare-and-swap) (default: ${default})." placeholder:"NAME"`
	}
	twoWayCmd struct {
		testFlags
		connFlags
	}
	pingPongCmd struct{ testFlags }
	readCmd     struct {
		testFlags
		bothWays
		connFlags
	}
	sendCmd struct {
		testFlags
		Only string `enum:"both,latency,rate" default:"both" help:"What to measure: ${enum}."`
	}
	rateCmd struct {
		testFlags
		bothWays
		connFlags
	}
)

func (c *oneWayCmd) Run(ctx context.Context) error {
	p := c.plan(report.OneWay, c.Both, c.Conns)
	p.Pieces, p.Copied = int(c.Pieces), c.Copied
	return c.runPlans(ctx, p)
}

func (c *atomicCmd) Run(ctx context.Context) error {
	p := c.plan(report.Atomic, c.Both, c.Conns)
	p.Compare = c.Func == "cas"
	return c.runPlans(ctx, p)
}

func (c *twoWayCmd) Run(ctx context.Context) error {
	return c.runPlans(ctx, c.plan(report.TwoWay, false, c.Conns))
}

func (c *pingPongCmd) Run(ctx context.Context) error {
	return c.runPlans(ctx, c.plan(report.PingPong, false, nil))
}

func (c *readCmd) Run(ctx context.Context) error {
	return c.runPlans(ctx, c.plan(report.Read, c.Both, c.Conns))
}

func (c *rateCmd) Run(ctx context.Context) error {
	return c.runPlans(ctx, c.plan(report.Rate, c.Both, c.Conns))
}

// Run measures messages, and before them in the same series the writes that they are compared with.
func (c *sendCmd) Run(ctx context.Context) error {
	var plans []bench.Plan
	for _, t := range []struct{ only, write, send string }{
		{"latency", report.PingPong, report.SendLatency}, {"rate", report.Rate, report.SendRate},
	} {
		if c.Only == "both" || c.Only == t.only {
			plans = append(plans, plan(t.write, &c.sizeFlags, &c.workFlags), plan(t.send, &c.sizeFlags, &c.workFlags))
		}
	}
	return c.runPlans(ctx, plans...)
}

// plan is that of a test with the flags that all have.
func (f *testFlags) plan(test string, both bool, conns []count) bench.Plan {
	p := plan(test, &f.sizeFlags, &f.workFlags)
	p.Bidirectional, p.Conns = both, cli.Ints(conns)
	return p
}

// runPlans measures several plans in one series.
func (f *testFlags) runPlans(ctx context.Context, plans ...bench.Plan) error {
	switch {
	case f.Lab && f.Peer != "":
		return fmt.Errorf("--lab makes its own hosts: leave out %q", f.Peer)
	case !f.Lab && f.Peer == "":
		return errors.New("name the host that runs edgebench server, or give --lab to run both ends on this machine")
	}
	specs, region, err := bench.Concat(plans...)
	if err != nil {
		return err
	}
	s := bench.Series{Specs: specs, Region: region, Fit: f.All || f.Range != nil, Profile: f.CPU}
	if !f.Lab {
		return f.remote(ctx, s)
	}
	return f.outputFlags.inLab("MultiEdge benchmark", len(s.Specs), "perftest", func(o *output) error {
		return o.series(ctx, f.cluster(&f.transportFlags, f.Seed), s)
	})
}

// event takes what a benchmark reports.
func (o *output) event(e bench.Event, specs []workload.Spec) error {
	switch {
	case e.Note != "":
		o.note(e.Note)
	case e.Show != nil:
		if s := e.Show; s.Index < len(specs) {
			o.show(specs[s.Index].Test+" "+report.Bytes(specs[s.Index].Size), s.Share, s.Throughput)
		}
	case e.Row != nil:
		o.progress.Step()
		return o.row(e.Row)
	}
	return nil
}

// remote runs the client against a server on another host.
func (f *testFlags) remote(ctx context.Context, s bench.Series) error {
	depth := 0
	for i := range s.Specs {
		depth = max(depth, s.Specs[i].Depth)
	}
	t, err := f.localFlags.transport(&f.transportFlags, depth)
	if err != nil {
		return err
	}
	return f.measure("MultiEdge benchmark", len(s.Specs), "perftest", func(o *output) error {
		o.show("connecting to "+f.Peer, 0, 0)
		var failed error
		err := bench.Work(ctx, &bench.Job{
			Transport: t, Region: s.Region, Peer: f.Peer, Scheduler: f.Scheduler, Specs: s.Specs, Fit: s.Fit,
			Warmup: bench.Warmup(s.Specs),
		}, func(e bench.Event) {
			if e.Row != nil {
				e.Row.OtherCPU, e.Row.StolenCPU = 0, 0 // the server's share is not this machine's
			}
			failed = errors.Join(failed, o.event(e, s.Specs))
		})
		return errors.Join(err, failed)
	})
}
