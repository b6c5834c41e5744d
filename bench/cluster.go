package bench

import (
	"context"

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
