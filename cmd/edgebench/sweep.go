package main

import (
	"context"
	"errors"

	"multiedge/bench"
	"multiedge/bench/report"
)

// sweep measures variants in turns and shows what they report.
func (o *output) sweep(ctx context.Context, rounds int, variants []bench.Variant) error {
	var failed error
	for i := range variants {
		v := &variants[i]
		v.Session.Sink = func(e bench.Event) {
			if s := e.Show; s != nil && s.Index < len(v.Session.Specs) {
				spec := &v.Session.Specs[s.Index]
				o.show(v.Name+", "+spec.Test+" "+report.Bytes(spec.Size), s.Share, s.Throughput)
				return
			}
			failed = errors.Join(failed, o.event(e, v.Session.Specs))
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
