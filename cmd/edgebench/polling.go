package main

import (
	"context"
	"errors"

	"multiedge/bench"
	"multiedge/bench/report"
)

// pollingCmd measures figure 3.3.
type pollingCmd struct {
	Names  []string `default:"block,adaptive,busy" enum:"block,adaptive,busy" help:"Ways to wait to compare: block, adaptive, busy." placeholder:"MODE"`
	Rounds count    `default:"1" help:"Measurements of each, in turns; figures show medians (default: ${default})." placeholder:"N"`
	sizeFlags
	labRunFlags
}

var pollingSizes = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}

func (c *pollingCmd) Run(ctx context.Context) error {
	if c.Poll != "" {
		return errors.New("polling compares the ways to wait: choose them by --names, leave out --poll")
	}
	var plans []bench.Plan
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		p := plan(test, &c.sizeFlags, &c.workFlags)
		if len(p.Sizes) == 0 {
			p.Sizes = pollingSizes
			if test == report.PingPong {
				p.Sizes = append([]int{8}, pollingSizes...)
			}
		}
		plans = append(plans, p)
	}
	specs, region, err := bench.Concat(plans...)
	if err != nil {
		return err
	}
	rounds := int(c.Rounds)
	c.CPU = true
	var variants []bench.Variant
	for _, name := range c.Names {
		v := bench.Variant{Name: "poll " + name, Cluster: c.cluster(&c.transportFlags, c.Seed),
			Series: bench.Series{Specs: specs, Region: region, Fit: true}}
		v.Cluster.Poll = name
		variants = append(variants, v)
	}
	return c.inLab("MultiEdge: interrupts and polling", rounds*len(specs)*len(c.Names), "table", func(o *output) error {
		return o.sweep(ctx, rounds, variants)
	})
}
