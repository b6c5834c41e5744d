package bench

import (
	"context"
	"errors"

	"multiedge/bench/kit"
	"multiedge/internal/lab"
)

// ClusterSpec describes hosts on this machine and the transport on them.
type ClusterSpec = kit.ClusterSpec

// Cluster is a running lab with a daemon in each host, in which series are measured.
type Cluster struct {
	*kit.Cluster
	spec ClusterSpec
	lab  *lab.Lab
}

// NewCluster builds the lab and starts the daemons. When it returns an error, nothing is left.
func NewCluster(ctx context.Context, spec ClusterSpec) (*Cluster, error) {
	c, err := kit.NewCluster(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &Cluster{c, c.Spec(), c.Lab()}, nil
}

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
	return kit.Try(func() {
		inTurns(rounds, variants, func(_ int, v Variant) {
			kit.Doing(func() {
				withCluster(ctx, v.Cluster, func(c *Cluster) {
					kit.Check(between(&v, c))
					kit.Check(c.Run(ctx, v.Series))
				})
			}, "%s", v.Name)
		})
	})
}

// inTurns calls f with each of what is compared, once in each round, from 1. Each round begins with another one.
func inTurns[T any](rounds int, all []T, f func(round int, one T)) {
	for round := range rounds {
		for i := range all {
			f(round+1, all[(i+round)%len(all)])
		}
	}
}

// withCluster runs f, which may end by kit.Check, with a cluster that is removed afterwards.
func withCluster(ctx context.Context, spec ClusterSpec, f func(*Cluster)) {
	c := kit.Get(NewCluster(ctx, spec))
	err := kit.Try(func() { f(c) })
	kit.Check(errors.Join(err, c.Close()))
}
