package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"multiedge/bench"
	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// shardsCmd measures what further threads on a daemon's links bring.
type shardsCmd struct {
	Tests  []string     `default:"one-way,two-way" enum:"one-way,two-way,read" help:"Tests to run: one-way, two-way, read." placeholder:"TEST"`
	Setups []shardSetup `default:"1,1+1,2" help:"Threads that serve a daemon's links: shards, or shards+receivers for each." placeholder:"N"`
	Conns  []int        `default:"1,2,8" help:"Numbers of connections, each between two processes of its own." placeholder:"N"`
	Rounds count        `default:"3" help:"Measurements of each, in turns; the table has medians (default: ${default})." placeholder:"N"`
	Size   size         `short:"s" default:"1m" help:"Message size."`
	labRunFlags
}

func (c *shardsCmd) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.LabLinks == 0 && len(c.LabRates) == 0 {
		c.LabLinks = 2
	}
	p := plan(report.OneWay, &sizeFlags{Size: []size{c.Size}}, &c.workFlags)
	if p.Duration == 0 {
		p.Duration = 2e9
	}
	c.LabPin = false // each host's shards shall have a core each, and so both hosts all cores
	sweep := &bench.ShardSweep{Cluster: c.cluster(&c.transportFlags, c.Seed), Plan: p, Tests: c.Tests, Pairs: c.Conns,
		Rounds: int(c.Rounds)}
	for _, s := range c.Setups {
		sweep.Setups = append(sweep.Setups, bench.ShardSetup(s))
	}
	c.CPU = true
	return c.inLab("MultiEdge on several cores", sweep.Steps(), "table", func(o *output) error {
		return c.sweep(ctx, sweep, o)
	})
}

func (c *shardsCmd) check() error {
	switch {
	case c.Iters > 0:
		return errors.New("all connections are measured over the same time: use -D instead of -n")
	case c.Integrity:
		return errors.New("shards measures a time out of a longer run: data is checked by the other tests, leave out " +
			"--integrity")
	case c.LabShards != 1 || c.LabReceivers != 0:
		return errors.New("shards compares numbers of threads: choose them by --setups, leave out --lab-shards and " +
			"--lab-receivers")
	case c.Embedded:
		return errors.New("a transport inside a process has one shard: leave out --embedded")
	case slices.Min(c.Conns) < 1 || slices.Max(c.Conns) > 64:
		return errors.New("--conns: 1 to 64 pairs of processes are possible")
	}
	return nil
}

func (c *shardsCmd) sweep(ctx context.Context, sweep *bench.ShardSweep, o *output) error {
	var failed error
	sweep.Row = func(r *report.Row) { failed = errors.Join(failed, o.row(r)) }
	sweep.Show = o.steps()
	o.file.Lab = labOf(&sweep.Cluster)
	err := errors.Join(sweep.Run(ctx), failed)
	o.summary(func() { printShards(os.Stdout, figure.Shards([]figure.Source{{File: o.file}})) })
	return err
}

// printShards prints a table for each test.
func printShards(w io.Writer, points []figure.ShardPoint) {
	title := ""
	for _, p := range points {
		if t := fmt.Sprintf("%s of %s", p.Test, report.Bytes(p.Size)); t != title {
			title = t
			fmt.Fprintf(w, "\n%s: medians (smallest to largest); CPU in seconds per GiB of payload; of shards each, "+
				"then of their receivers\n", title)
			fmt.Fprintf(w, "  %5s  %-19s  %28s  %5s  %7s  %7s  %-15s  %-15s\n", "conns", "threads", "throughput",
				"gain", "CPU", "apps", "client's shards", "server's shards")
		}
		fmt.Fprintf(w, "  %5d  %-19s  %28s  %5.2f  %7.3f  %7.3f  %-15s  %-15s\n", p.Connections,
			report.Threads(p.Shards, p.Receivers), value(false, p.Median, p.Min, p.Max), p.Gain, p.CPU, p.Apps,
			each(p.Client), each(p.Server))
	}
}

// shardSetup is SHARDS or SHARDS+PLACERS on the command line.
type shardSetup bench.ShardSetup

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *shardSetup) UnmarshalText(text []byte) error {
	shards, receivers, plus := strings.Cut(string(text), "+")
	var err, err2 error
	s.Shards, err = strconv.Atoi(shards)
	if plus {
		s.Receivers, err2 = strconv.Atoi(receivers)
	}
	cfg := config.Config{Shards: s.Shards, Receivers: s.Receivers, Links: []config.Link{{Name: "any"}}}
	if err = errors.Join(err, err2); err != nil || s.Shards < 1 || cfg.Normalize() != nil {
		return fmt.Errorf("%q: want SHARDS, 1 to %d, or SHARDS+PLACERS, such as 1+1", text, config.MaxShards)
	}
	return nil
}

// each joins the processor times of shards.
func each(cpu []float64) string {
	var s []string
	for _, v := range cpu {
		s = append(s, fmt.Sprintf("%.3f", v))
	}
	return strings.Join(s, " + ")
}
