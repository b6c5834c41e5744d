package bench

import (
	"context"
	"errors"
	"fmt"

	"multiedge/bench/workload"
)

// Schedulers measures the same plan with each scheduler, on hosts of its own: figure 3.5 of the paper. between is called before each.
func Schedulers(ctx context.Context, spec ClusterSpec, names []string, s Session, between func(name string, c *Cluster) error) error {
	for _, name := range names {
		spec.Scheduler = name
		if err := withCluster(ctx, spec, func(c *Cluster) error {
			if err := between(name, c); err != nil {
				return err
			}
			return c.Run(ctx, s)
		}); err != nil {
			return fmt.Errorf("scheduler %s: %w", name, err)
		}
	}
	return nil
}

// withCluster runs f with a cluster that is removed afterwards.
func withCluster(ctx context.Context, spec ClusterSpec, f func(*Cluster) error) error {
	c, err := NewCluster(ctx, spec)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// Concat returns the measurements of several plans as those of one session, and the region they need.
func Concat(plans ...Plan) (specs []workload.Spec, region int, err error) {
	for i := range plans {
		s, err := plans[i].Specs()
		if err != nil {
			return nil, 0, err
		}
		specs = append(specs, s...)
		region = max(region, plans[i].region())
	}
	return specs, region, nil
}
