package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"multiedge/bench"
	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// linksCmd measures how throughput grows with the number of links.
type linksCmd struct {
	Test   string   `arg:"" optional:"" default:"one-way" enum:"one-way,two-way,ping-pong,read" help:"one-way, two-way, ping-pong or read."`
	Counts []int    `default:"1,2,4,8" help:"Numbers of links." placeholder:"N"`
	Kinds  []string `default:"shaped,unshaped" enum:"shaped,unshaped" help:"shaped: each link limited to --lab-rates (default: 1gbit); unshaped: as fast as the machine." placeholder:"KIND"`
	Rounds count    `default:"3" help:"Measurements of each, in turns; the table has medians (default: ${default})." placeholder:"N"`
	Size   size     `short:"s" default:"1m" help:"Message size."`
	labRunFlags
}

func (c *linksCmd) Run(ctx context.Context) error {
	switch {
	case c.LabLinks != 0:
		return errors.New("links compares numbers of links: choose them by --counts, leave out --lab-links")
	case len(c.LabRates) > 1:
		return errors.New("links gives every link the same rate: one --lab-rates is wanted")
	case len(c.LabRates) == 0:
		c.LabRates = []string{"1gbit"}
	}
	specs, region, err := bench.Concat(plan(c.Test, &sizeFlags{Size: []size{c.Size}}, &c.workFlags))
	if err != nil {
		return err
	}
	variants := c.variants(bench.Series{Specs: specs, Region: region, Profile: c.CPU})
	rounds := int(c.Rounds)
	return c.inLab("MultiEdge links: "+c.Test, rounds*len(variants), "table", func(o *output) error {
		err := o.sweep(ctx, rounds, variants)
		o.summary(func() { printLinks(os.Stdout, figure.Links([]figure.Source{{File: o.file}})) })
		return err
	})
}

// variants are all numbers of links, shaped and not.
func (c *linksCmd) variants(s bench.Series) []bench.Variant {
	var out []bench.Variant
	for _, kind := range c.Kinds {
		for _, n := range c.Counts {
			v := bench.Variant{Name: fmt.Sprintf("%d links, %s", n, kind), Cluster: c.cluster(&c.transportFlags,
				c.Seed), Series: s}
			v.Cluster.Lab.Links = n
			if kind == "unshaped" {
				v.Cluster.Lab.Rates = nil
			}
			out = append(out, v)
		}
	}
	return out
}

// printLinks prints one table of throughput by number of links, with the share of what it could be.
func printLinks(w io.Writer, curves []figure.LinkCurve) {
	for _, c := range curves {
		what, of := "not shaped", "of one link"
		if c.Rate != "" {
			what, of = "shaped to "+c.Rate+" each", "of nominal"
		}
		fmt.Fprintf(w, "\n%s of %s, links %s: medians (smallest to largest)\n", c.Test, report.Bytes(c.Size), what)
		fmt.Fprintf(w, "  %5s  %28s  %12s  %12s\n", "links", "throughput", of, "CPU s/GiB")
		for _, p := range c.Points {
			fmt.Fprintf(w, "  %5d  %28s  %10.1f %%  %12.3f\n", p.Links, value(false, p.Median, p.Min, p.Max),
				100*p.Share, p.CPU)
		}
	}
}
