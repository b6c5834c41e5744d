package handles

import (
	"context"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/internal/lab"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// A small run through daemons in lab hosts: more exports than a connection has, in both ways.
func TestHandles(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	ways := []string{Catalog, Granted}
	spec := Spec{Exports: []int{20, 4200}, InUse: 20, Writes: 100, Ways: ways}
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}, Limits: spec.Limits()})
	shown := 0
	res, err := InLab.Run(ctx, c, spec, func(string, float64) { shown++ })
	kittest.Must(t, err)
	if len(res.Steps) != 4 || shown == 0 {
		t.Fatalf("%+v", res)
	}
	for _, s := range res.Steps {
		if s.P50 <= 0 || s.P99 < s.P50 || s.Rate <= 0 {
			t.Errorf("%+v", s)
		}
	}
}
