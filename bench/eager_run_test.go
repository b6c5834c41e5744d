package bench

import (
	"context"
	"testing"
	"time"

	"multiedge/bench/eager"
	"multiedge/internal/lab"
)

// A small run through daemons in lab hosts: every message arrives as it was composed, which both ends check.
func TestEager(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c := cluster(t, ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 2, MTU: 1500}})
	res, err := Eager.Run(ctx, c, eager.Spec{MTU: 1500, Rounds: 80, Sizes: []int{64, 5000}, Compose: []int{0, 5000},
		Marks: 8}, func(string, float64) {})
	must(t, err)
	if len(res.Rows) != 2*2*len(eager.Ways) {
		t.Fatalf("%d rows", len(res.Rows))
	}
	for _, r := range res.Rows {
		if r.Turn.Count != 80 || r.Turn.Min <= 0 || r.UserData.Min < float64(r.Compose*r.Bytes/1024)*0.98 {
			t.Errorf("%+v", r)
		}
	}
}
