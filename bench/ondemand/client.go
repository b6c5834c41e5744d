package ondemand

import (
	"context"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/report"
	"multiedge/edge"
)

const (
	deep  = 32 // operations in flight where throughput is measured
	chunk = 64 << 10
)

// run is a client at work.
type run struct {
	Spec
	d    *edge.Device
	near *edge.Region // registered whole, the other end of what is measured
	show func(what string, share float64)
	res  *Result
}

// Run does what a Spec says. show is called now and then with what is being done and how far that is.
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) (*Result, error) {
	r := &run{Spec: s, d: d, show: show, res: &Result{Spec: s}}
	var err error
	if r.near, err = d.RegisterContext(ctx, max(1<<20, slices.Max(s.Sizes))); err != nil {
		return nil, err
	}
	defer r.near.Close()
	fill(r.near.Bytes())
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{Costs, r.costs}, {Sweep, r.sweep}, {Ways, r.ways}, {Shares, r.shares},
		{Prefetch, r.foresee}, {Bystander, r.bystander}} {
		if !slices.Contains(s.Parts, part.name) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return r.res, nil
}

func (r *run) span() time.Duration { return time.Duration(r.Cell * float64(time.Second)) }

// space is a target of the budget.
func (r *run) space(size int) Target { return Target{Size: size, Pin: r.Budget, Fill: true} }

// missed is the share of uses between two looks that missed.
func missed(before, after edge.SpaceUsage) float64 {
	lookups, hits := after.Lookups-before.Lookups, after.Hits-before.Hits
	if lookups == 0 {
		return 0
	}
	return 1 - float64(hits)/float64(lookups)
}

// fetched is how many chunks were asked for between two looks, whoever asked first.
func fetched(before, after edge.SpaceUsage) float64 {
	return float64(after.Cold + after.Capacity - before.Cold - before.Capacity)
}

// costs measures operations one at a time, at all four sites, and what the library's check and the daemon's look-up
// take.
func (r *run) costs(ctx context.Context) error {
	sites := []string{"write source", "write target", "read target", "read destination"}
	for i, site := range sites {
		for k, size := range []int{4096, chunk} {
			r.show("costs, "+site, float64(2*i+k)/8)
			c, err := r.cost(ctx, site, size)
			if err != nil {
				return fmt.Errorf("%s, %d bytes: %w", site, size, err)
			}
			r.res.Costs = append(r.res.Costs, *c)
		}
	}
	r.show("costs, check", 1)
	return r.checks(ctx)
}

// cost measures one site with one size.
func (r *run) cost(ctx context.Context, site string, size int) (*Cost, error) {
	c := &Cost{Site: site, Bytes: size}
	blocks := 4 * r.Budget / chunk
	whole := Target{Size: 4 * r.Budget, Whole: true, Fill: true}
	untouched := r.space(4 * r.Budget)
	untouched.Fill = false
	for _, m := range []struct {
		t    Target
		in   int // blocks that are used
		miss bool
		to   *report.Latency
	}{
		{whole, blocks, false, &c.Whole}, {r.space(4 * r.Budget), max(r.Budget/chunk/4, 1), false, &c.Hit},
		{r.space(4 * r.Budget), blocks, true, &c.Resident}, {untouched, blocks, true, &c.Untouched},
	} {
		o, share, err := r.one(ctx, site, size, m.t, m.in, m.t.Fill)
		if err != nil {
			return nil, err
		}
		if *m.to = o.latency; m.miss && m.t.Fill {
			c.Missed = share
		}
	}
	return c, nil
}

// one measures operations one at a time with memory at a site, over so many blocks in no order; again and again if
// they may be used before, else once each.
func (r *run) one(ctx context.Context, site string, size int, t Target, blocks int, again bool) (o outcome,
	share float64, err error) {
	l := load{near: r.near, bytes: size, flying: 1, spread: chunk, span: r.span()}
	switch site {
	case "read target", "read destination":
		l.kind = edge.Read
	default:
		l.kind = edge.Write
	}
	if l.atNear = site == "write source" || site == "read destination"; l.atNear {
		if l.near, err = t.make(ctx, r.d); err != nil {
			return o, 0, err
		}
		defer l.near.Close()
		t = Target{Size: 1 << 20, Whole: true}
	}
	if l.far, err = r.open(ctx, r.d, t); err != nil {
		return o, 0, err
	}
	defer l.far.c.Close()
	if l.at, err = pattern(Permuted, blocks, 1); err != nil {
		return o, 0, err
	}
	usage := func() (edge.SpaceUsage, error) {
		if l.atNear {
			return l.near.Usage(ctx)
		}
		return l.far.order(ctx, tellUsage)
	}
	if again { // what is used first may be new
		warm := l
		warm.most, warm.span = blocks, time.Minute
		if _, err = warm.run(ctx, nil); err != nil {
			return o, 0, err
		}
	} else {
		l.most, l.span = blocks, time.Minute
	}
	before, err := usage()
	if err != nil {
		return o, 0, err
	}
	if o, err = l.run(ctx, nil); err != nil {
		return o, 0, err
	}
	after, err := usage()
	return o, min(fetched(before, after)/float64(o.ops), 1), err
}
