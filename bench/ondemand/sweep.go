package ondemand

import (
	"context"
	"fmt"
	"slices"

	"multiedge/edge"
)

// sweep measures throughput and latency over sizes of operations and working sets, and over policies and patterns.
func (r *run) sweep(ctx context.Context) error {
	var points []Point
	for _, kind := range []string{"write", "read"} {
		for _, size := range r.Sizes {
			for _, set := range append([]int{0}, r.Sets...) {
				points = append(points, Point{Kind: kind, Bytes: size, Set: set, Policy: "lru", Pattern: Uniform})
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
		if err := r.point(ctx, p); err != nil {
			return fmt.Errorf("%+v: %w", p, err)
		}
	}
	r.res.Points = points
	return nil
}

// point measures one cell: half of its time with many operations in flight, half with one.
func (r *run) point(ctx context.Context, p *Point) error {
	bytes := max(r.Budget/100*p.Set, p.Bytes)
	if p.Set == 0 {
		bytes = r.Budget / 100 * slices.Max(r.Sets)
	}
	t := r.space(bytes)
	t.Policy, t.Whole = p.Policy, p.Set == 0
	f, err := r.open(ctx, r.d, t)
	if err != nil {
		return err
	}
	defer f.c.Close()
	l := load{far: f, kind: edge.Write, near: r.near, bytes: p.Bytes, flying: deep, span: r.span() / 2}
	if p.Kind == "read" {
		l.kind = edge.Read
	}
	spread := max(p.Bytes, 4096)
	l.spread = spread
	if l.at, err = pattern(p.Pattern, max(bytes/spread, 1), 1); err != nil {
		return err
	}
	warm := l
	warm.span = r.span() / 4
	if _, err := warm.run(ctx, nil); err != nil {
		return err
	}
	before, err := f.order(ctx, tellUsage)
	if err != nil {
		return err
	}
	o, err := l.run(ctx, nil)
	if err != nil {
		return err
	}
	p.Rate = o.rate(p.Bytes)
	after, err := f.order(ctx, tellUsage)
	if err != nil {
		return err
	}
	p.Missed = missed(before, after)
	l.flying = 1
	if o, err = l.run(ctx, nil); err == nil {
		p.Latency = o.latency
	}
	return err
}
