package eager

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

// A small run through daemons in lab hosts: every message arrives as it was composed, which both ends check.
func TestEager(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 2, MTU: 1500}})
	res, err := InLab.Run(ctx, c, Spec{MTU: 1500, Rounds: 80, Sizes: []int{64, 5000}, Compose: []int{0, 5000},
		Marks: 8}, func(string, float64) {})
	kittest.Must(t, err)
	if len(res.Rows) != 2*2*len(Ways) {
		t.Fatalf("%d rows", len(res.Rows))
	}
	for _, r := range res.Rows {
		if r.Turn.Count != 80 || r.Turn.Min <= 0 || r.UserData.Min < float64(r.Compose*r.Bytes/1024)*0.98 {
			t.Errorf("%+v", r)
		}
	}
}
