package main

import (
	"context"
	"slices"
	"time"

	"multiedge/bench"
	"multiedge/bench/cli"
	"multiedge/bench/report"
	"multiedge/internal/config"
)

// zeroCopyCmd measures figures 3.8, 3.9 and 3.11, and where exchanging pages begins to pay.
type zeroCopyCmd struct {
	Names   []string `default:"cp,notx,pinmap,shuffle,nocp,default" enum:"cp,notx,pinmap,shuffle,nocp,default" help:"Configurations to compare: cp copies at both ends, notx at the receiver, pinmap exchanges received pages, shuffle does so with frames received whole at page boundaries, nocp receives in place; default is the fastest way." placeholder:"NAME"`
	Aligned []string `default:"pinmap" help:"Configurations to measure also with destinations in the middle and at the second byte of a page." placeholder:"NAME"`
	Parts   []string `default:"throughput,latency,alignment,exchange" enum:"throughput,latency,alignment,exchange" help:"What to measure: throughput, latency, alignment, and exchange against copy." placeholder:"PART"`
	Runs    []size   `help:"Sizes of runs for exchange against copy (default: 4k to 8m)." placeholder:"SIZE"`
	Daemons bool     `help:"Measure daemons instead of embedded transports. Daemons cannot exchange pages: pinmap is left out, and shuffle copies."`
	Rounds  count    `default:"1" help:"Measurements of each, in turns; figures show medians (default: ${default})." placeholder:"N"`
	sizeFlags
	labRunFlags
}

var (
	zeroCopySizes    = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	zeroCopyLatSizes = []int{8, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

func (c *zeroCopyCmd) Run(ctx context.Context) error {
	if c.Security == "" {
		// a sealed payload is opened into other memory first: there is nothing to exchange or to receive in place
		c.Security = config.Plaintext
	}
	profile := c.CPU
	c.Embedded, c.CPU = !c.Daemons, true // pages can be exchanged in a transport's own process only
	names := c.Names
	if c.Daemons {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == config.CopyRemap })
	}
	rounds := int(c.Rounds)
	var variants []bench.Variant
	steps := 0
	for _, name := range names {
		specs, region, err := bench.Concat(c.plans(name)...)
		if err != nil {
			return err
		}
		if len(specs) == 0 {
			continue
		}
		v := bench.Variant{Name: name, Cluster: c.cluster(&c.transportFlags, c.Seed),
			Series: bench.Series{Specs: specs, Region: region, Fit: true, Profile: profile}}
		v.Cluster.Copy = name
		variants = append(variants, v)
		steps += rounds * len(specs)
	}
	runs, exchange := c.runs(), slices.Contains(c.Parts, "exchange")
	if exchange {
		steps += 4 * len(runs)
	}
	return c.inLab("MultiEdge: zero copy", steps, "table", func(o *output) error {
		if exchange {
			if err := o.place(ctx, runs, time.Duration(c.Duration)); err != nil {
				return err
			}
		}
		return o.sweep(ctx, rounds, variants)
	})
}

// plans are the measurements of one configuration.
func (c *zeroCopyCmd) plans(name string) (plans []bench.Plan) {
	add := func(test, align string, usual []int) {
		p := plan(test, &c.sizeFlags, &c.workFlags)
		if p.Align = align; len(p.Sizes) == 0 {
			p.Sizes = usual
		}
		plans = append(plans, p)
	}
	if slices.Contains(c.Parts, "throughput") {
		add(report.OneWay, "best", zeroCopySizes)
		add(report.TwoWay, "best", zeroCopySizes)
	}
	if slices.Contains(c.Parts, "latency") {
		add(report.PingPong, "best", zeroCopyLatSizes)
	}
	if slices.Contains(c.Parts, "alignment") && slices.Contains(c.Aligned, name) {
		for _, align := range []string{"best", "middle", "worst"} {
			if align == "best" && slices.Contains(c.Parts, "throughput") {
				continue // measured above
			}
			add(report.OneWay, align, zeroCopySizes)
			add(report.TwoWay, align, zeroCopySizes)
		}
	}
	return plans
}

func (c *zeroCopyCmd) runs() []int {
	if len(c.Runs) == 0 {
		return bench.PlaceSizes()
	}
	return cli.Ints(c.Runs)
}

// placeTime is how long each size of run is measured at most: medians settle early.
const placeTime = 200 * time.Millisecond

// place measures exchange against copy and says where one overtakes the other.
func (o *output) place(ctx context.Context, runs []int, each time.Duration) error {
	if each <= 0 || each > placeTime {
		each = placeTime
	}
	note, err := bench.Place(ctx, runs, each, func(r *report.Row) error {
		o.show("exchange against copy, runs of "+report.Bytes(r.MessageBytes), 0, 0)
		o.progress.Step()
		return o.row(r)
	})
	if note != "" {
		o.note(note)
	}
	if err == nil {
		o.note(report.CrossoverText(o.file.Results) + "; pinmap exchanges from " + report.Bytes(bench.LeastExchanged) +
			" on")
	}
	return err
}
