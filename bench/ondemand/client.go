package ondemand

import (
	"context"
	"slices"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/edge"
	"multiedge/edge/space"
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
func Run(ctx context.Context, d *edge.Device, s Spec, show func(string, float64)) *Result {
	r := &run{Spec: s, d: d, show: show, res: &Result{Spec: s}}
	r.near = kit.Get(d.RegisterContext(ctx, max(1<<20, slices.Max(s.Sizes))))
	defer r.near.Close()
	fill(r.near.Bytes())
	for _, part := range []struct {
		name string
		do   func(context.Context)
	}{{Costs, r.costs}, {Sweep, r.sweep}, {Ways, r.ways}, {Shares, r.shares},
		{Misses, r.misses}, {Prefetch, r.foresee}, {Bystander, r.bystander}} {
		if slices.Contains(s.Parts, part.name) {
			kit.Doing(func() { part.do(ctx) }, "%s", part.name)
		}
	}
	return r.res
}

// turns measures each of n cells once in each round, from 1.
func (r *run) turns(n int, what func(i int) string, do func(i, round int)) {
	for round := range r.Rounds {
		for i := range n {
			r.show(what(i), (float64(round)+float64(i)/float64(n))/float64(r.Rounds))
			kit.Doing(func() { do(i, round+1) }, "%s", what(i))
		}
	}
}

func (r *run) span() time.Duration { return time.Duration(r.Cell * float64(time.Second)) }

// space is a target of the budget.
func (r *run) space(size int) Target { return Target{Size: size, Pin: r.Budget, Fill: true} }

// missed is the share of uses between two looks that missed.
func missed(before, after space.Usage) float64 {
	lookups, hits := after.Lookups-before.Lookups, after.Hits-before.Hits
	if lookups == 0 {
		return 0
	}
	return 1 - float64(hits)/float64(lookups)
}

// fetched is how many chunks were asked for between two looks, whoever asked first.
func fetched(before, after space.Usage) float64 {
	return float64(after.Cold + after.Capacity - before.Cold - before.Capacity)
}

// costs measures operations one at a time, at all four sites, and what the library's check and the daemon's look-up
// take.
func (r *run) costs(ctx context.Context) {
	sites := []string{"write source", "write target", "read target", "read destination"}
	for i, site := range sites {
		for k, size := range []int{4096, chunk} {
			r.show("costs, "+site, float64(2*i+k)/8)
			kit.Doing(func() { r.res.Costs = append(r.res.Costs, *r.cost(ctx, site, size)) }, "%s, %d bytes", site,
				size)
		}
	}
	r.show("costs, check", 1)
	r.checks(ctx)
	r.hostCosts(ctx)
	r.res.Tables.NI = nicCosts()
}

// cost measures one site with one size.
func (r *run) cost(ctx context.Context, site string, size int) *Cost {
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
		o, share := r.one(ctx, site, size, m.t, m.in, m.t.Fill)
		if *m.to = o.latency; m.miss && m.t.Fill {
			c.Missed = share
		}
	}
	return c
}

// one measures operations one at a time with memory at a site, over so many blocks in no order; again and again if
// they may be used before, else once each.
func (r *run) one(ctx context.Context, site string, size int, t Target, blocks int, again bool) (o outcome,
	share float64) {
	l := load{near: r.near, bytes: size, flying: 1, spread: chunk, span: r.span()}
	switch site {
	case "read target", "read destination":
		l.kind = edge.Read
	default:
		l.kind = edge.Write
	}
	if l.atNear = site == "write source" || site == "read destination"; l.atNear {
		l.near = t.make(ctx, r.d)
		defer l.near.Close()
		t = Target{Size: 1 << 20, Whole: true}
	}
	l.far = r.open(ctx, r.d, t)
	defer l.far.c.Close()
	l.at = pattern(xlate.Permuted, blocks, 1)
	usage := func() space.Usage {
		if l.atNear {
			return kit.Get(space.UsageOf(ctx, l.near))
		}
		return l.far.order(ctx, tellUsage)
	}
	if again { // what is used first may be new
		warm := l
		warm.most, warm.span = blocks, time.Minute
		warm.run(ctx, nil)
	} else {
		l.most, l.span = blocks, time.Minute
	}
	before := usage()
	o = l.run(ctx, nil)
	after := usage()
	return o, min(fetched(before, after)/float64(o.ops), 1)
}
