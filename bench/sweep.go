package bench

import (
	"context"
	"errors"
	"fmt"
)

// Variant is one of several set-ups that are compared, with the measurements to do on it.
type Variant struct {
	Name    string
	Cluster ClusterSpec
	Series  Series
}

// Sweep measures each variant once in each round, on hosts of its own that are removed before the next. Each round
// begins with another variant, so that what the machine does beside affects all of them alike. between is called before
// each, with the hosts.
func Sweep(ctx context.Context, rounds int, variants []Variant, between func(v *Variant, c *Cluster) error) error {
	for round := range rounds {
		for i := range variants {
			v := &variants[(i+round)%len(variants)]
			if err := withCluster(ctx, v.Cluster, func(c *Cluster) error {
				if err := between(v, c); err != nil {
					return err
				}
				return c.Run(ctx, v.Series)
			}); err != nil {
				return fmt.Errorf("%s: %w", v.Name, err)
			}
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
