package main

import (
	"context"

	"multiedge/bench"
	"multiedge/sched"
)

// schedulersCmd measures figure 3.5.
type schedulersCmd struct {
	Test   string   `arg:"" optional:"" default:"one-way" enum:"one-way,two-way,ping-pong,read" help:"one-way, two-way, ping-pong or read."`
	Names  []string `help:"Schedulers to compare (default: all)." placeholder:"NAME"`
	Rounds count    `default:"1" help:"Measurements of each, in turns; figures show medians and the range (default: ${default})." placeholder:"N"`
	sizeFlags
	labRunFlags
}

// Five links each: one four times as fast as each of the others, and the paper's, ten times as fast (one of 10 Gbit/s
// and four of 1 Gbit/s), at a fifth of its rates so that the machine is not the limit.
var (
	schedulerRates = [][]string{
		{"1gbit", "250mbit", "250mbit", "250mbit", "250mbit"},
		{"2gbit", "200mbit", "200mbit", "200mbit", "200mbit"},
	}
	schedulerSizes = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

func (c *schedulersCmd) Run(ctx context.Context) error {
	rates := schedulerRates
	if len(c.LabRates) > 0 || c.LabLinks > 0 {
		rates = [][]string{c.LabRates}
	}
	names := c.Names
	if len(names) == 0 {
		names = sched.Names()
	}
	p := plan(c.Test, &c.sizeFlags, &c.workFlags)
	if len(p.Sizes) == 0 {
		p.Sizes = schedulerSizes
	}
	specs, region, err := bench.Concat(p)
	if err != nil {
		return err
	}
	var variants []bench.Variant
	for _, c.LabRates = range rates {
		for _, name := range names {
			v := bench.Variant{Name: "scheduler " + name, Cluster: c.cluster(&c.transportFlags, c.Seed),
				Series: bench.Series{Specs: specs, Region: region, Fit: true, Profile: c.CPU}}
			v.Cluster.Scheduler = name
			variants = append(variants, v)
		}
	}
	return c.inLab("MultiEdge schedulers", len(specs)*len(variants)*int(c.Rounds), "table", func(o *output) error {
		return o.sweep(ctx, int(c.Rounds), variants)
	})
}
