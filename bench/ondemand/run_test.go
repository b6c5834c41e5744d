package ondemand

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/internal/lab"
)

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// A small run of every part through daemons in lab hosts: what shall miss does, what shall not does not, and the study
// says so.
func TestOnDemand(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}, Limits: "requests = 65536",
		Config: "misses = \"park\"\n"})
	shown := 0
	spec := Spec{Parts: Parts, Cell: 0.02, Rounds: 1, Budget: 4 << 20, Sizes: []int{8, 64 << 10}, Sets: []int{50, 200},
		Policies: []string{"lru", "mru"}, Patterns: []string{xlate.Cyclic}}
	res, err := InLab.Run(ctx, c, spec, func(string, float64) { shown++ })
	kittest.Must(t, err)
	fits := func(p *Point) bool { return p.Set <= 50 && p.Latency.Count >= 50 }
	for spec.Parts = []string{Sweep}; !slices.ContainsFunc(res.Points, func(p Point) bool { return fits(&p) }); {
		spec.Cell *= 4 // a busy machine gave no cell the time for operations enough
		longer, err := InLab.Run(ctx, c, spec, func(string, float64) {})
		kittest.Must(t, err)
		res.Points = longer.Points
	}
	for _, k := range res.Costs {
		if k.Hit.P50 <= 0 || k.Untouched.P50 <= 0 || k.Missed < 0.9 {
			t.Errorf("%+v", k)
		}
	}
	for _, p := range res.Points { // of a cell with few operations no share is judged: the first ones miss everywhere
		if p.Rate <= 0 || p.Latency.P50 <= 0 || fits(&p) && p.Missed > 0.2 || p.Set == 200 && p.Missed == 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, s := range res.Shares {
		if want := float64(max(s.Percent, 0)) / 100; s.Missed < want*0.5 || s.Missed > want*1.5+0.02 {
			t.Errorf("%d %% were to miss: %+v", s.Percent, s)
		}
	}
	for _, p := range res.Foresights {
		if p.Missed == 0 || len(p.Rates) != 1 || len(p.Whole) != 1 || p.Rates[0] <= 0 || p.Latency.P50 <= 0 ||
			p.Pattern == xlate.Cyclic && p.Prefetched == 0 {
			t.Errorf("%+v", p)
		}
	}
	if len(res.Costs) != 8 || len(res.Pings) != 24 || len(res.Foresights) != 4 || len(res.Ways) != 20 ||
		len(res.Besides) != 4 || shown == 0 {
		t.Errorf("%d costs, %d ways, %d bystanders", len(res.Costs), len(res.Ways), len(res.Besides))
	}
	var out bytes.Buffer
	s := res.Study(report.Head{})
	for i := range s.Tables {
		s.Tables[i].Text(&out)
	}
	s.Print(&out)
	for _, want := range []string{"miss, untouched", "write 65536, 200 %, mru, cyclic", "copied, 200 %, zipf",
		"park, 100 %", "park, 65536, 100 %", "num_entries", "exact, 1048576, cyclic", "as many writes that hit",
		"park, writes that miss, no pages"} {
		if !strings.Contains(strings.ToLower(out.String()), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if len(s.Figures) != 4 || s.Write(t.TempDir(), "ondemand") != nil {
		t.Errorf("%d figures", len(s.Figures))
	}
}
