package main

import (
	"context"
	"errors"

	"multiedge/bench"
	"multiedge/bench/report"
)

// series builds hosts, runs a series between two of them and shows what it reports.
func (o *output) series(ctx context.Context, spec bench.ClusterSpec, s bench.Series) error {
	o.show("building the hosts", 0, 0)
	c, err := bench.NewCluster(ctx, spec)
	if err != nil {
		return err
	}
	o.file.Lab = c.Report()
	var failed error
	s.Sink = func(e bench.Event) { failed = errors.Join(failed, o.event(e, s.Specs)) }
	err = c.Run(ctx, s)
	return errors.Join(err, failed, c.Close())
}

// sweep measures variants in turns and shows what they report.
func (o *output) sweep(ctx context.Context, rounds int, variants []bench.Variant) error {
	var failed error
	for i := range variants {
		v := &variants[i]
		v.Series.Sink = func(e bench.Event) {
			if s := e.Show; s != nil && s.Index < len(v.Series.Specs) {
				spec := &v.Series.Specs[s.Index]
				o.show(v.Name+", "+spec.Test+" "+report.Bytes(spec.Size), s.Share, s.Throughput)
				return
			}
			failed = errors.Join(failed, o.event(e, v.Series.Specs))
		}
	}
	err := bench.Sweep(ctx, rounds, variants, func(v *bench.Variant, cl *bench.Cluster) error {
		if o.file.Lab == nil {
			o.file.Lab = cl.Report()
		}
		return nil
	})
	return errors.Join(err, failed)
}
