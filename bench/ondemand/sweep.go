package ondemand

import (
	"context"
	"fmt"
	"slices"

	"multiedge/bench/kit"
	"multiedge/bench/xlate"
	"multiedge/edge"
)

// sweep measures throughput and latency over sizes of operations and working sets, and over policies and patterns.
func (r *run) sweep(ctx context.Context) {
	var points []Point
	for _, kind := range []string{"write", "read"} {
		for _, size := range r.Sizes {
			for _, set := range append([]int{0}, r.Sets...) {
				points = append(points, Point{Kind: kind, Bytes: size, Set: set, Policy: "lru", Pattern: xlate.Uniform})
			}
		}
	}
	for _, policy := range r.Policies {
		for _, pattern := range r.Patterns {
			for _, set := range r.Sets {
				p := Point{Kind: "write", Bytes: chunk, Set: set, Policy: policy, Pattern: pattern}
				if set >= 50 && !slices.ContainsFunc(points, func(o Point) bool {
					return o.Kind == p.Kind && o.Bytes == p.Bytes && o.Set == p.Set && o.Policy == p.Policy &&
						o.Pattern == p.Pattern
				}) {
					points = append(points, p)
				}
			}
		}
	}
	for i := range points {
		p := &points[i]
		r.show(fmt.Sprintf("sweep: %s of %d bytes, %d %%, %s, %s", p.Kind, p.Bytes, p.Set, p.Policy, p.Pattern),
			float64(i)/float64(len(points)))
		kit.Doing(func() { r.point(ctx, p) }, "%+v", p)
	}
	r.res.Points = points
}

// point measures one cell: half of its time with many operations in flight, half with one.
func (r *run) point(ctx context.Context, p *Point) {
	bytes := max(r.Budget/100*p.Set, p.Bytes)
	if p.Set == 0 {
		bytes = r.Budget / 100 * slices.Max(r.Sets)
	}
	t := r.space(bytes)
	t.Policy, t.Whole = p.Policy, p.Set == 0
	f := r.open(ctx, r.d, t)
	defer f.c.Close()
	l := load{far: f, kind: edge.Write, near: r.near, bytes: p.Bytes, flying: deep, span: r.span() / 2}
	if p.Kind == "read" {
		l.kind = edge.Read
	}
	spread := max(p.Bytes, 4096)
	l.spread = spread
	l.at = pattern(p.Pattern, max(bytes/spread, 1), 1)
	warm := l
	warm.span = r.span() / 4
	warm.run(ctx, nil)
	before := f.order(ctx, tellUsage)
	o := l.run(ctx, nil)
	p.Rate = o.rate(p.Bytes)
	after := f.order(ctx, tellUsage)
	p.Missed = missed(before, after)
	l.flying = 1
	p.Latency = l.run(ctx, nil).latency
}
