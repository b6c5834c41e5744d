package ondemand

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/kit/kittest"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/internal/config"
	"multiedge/internal/inspect"
	"multiedge/internal/lab"
)

// asPapers is a result that is as the papers found theirs: UTLB's tables as printed, DHL's figure 4 by its text.
func asPapers() *Result {
	r := &Result{Spec: Spec{Rounds: 1}, Tables: Tables{Host: xlate.Facts.UTLB.Table1, NI: xlate.Facts.UTLB.Table2,
		Hold: []float64{60, 60, 60, 60, 60, 60}}}
	for _, variant := range []string{config.MissesPark, config.MissesDrop} {
		for _, n := range pingSizes {
			for _, p := range pingPercents {
				hit, miss := 1e4+float64(n), 1e5+4*float64(n)
				r.Pings = append(r.Pings, Pings{Variant: variant, Bytes: n, Percent: p,
					Mean: []float64{hit + miss*float64(p)/100}, Missed: float64(p) / 100})
			}
		}
	}
	for _, budget := range []int{8 << 20, 4 << 20} {
		for i, program := range []string{memEvicted, memUntouched} {
			most := float64(1 + 3*i)
			r.Times = append(r.Times, MissTimes{Program: program, Budget: budget,
				Delay: []inspect.Bucket{{Seconds: 5e-6, Count: 50}, {Seconds: 20e-6, Count: 50}},
				Pin: []inspect.Bucket{{Seconds: 6e-6, Count: 10}, {Seconds: 25e-6 * most, Count: 80},
					{Seconds: 400e-6, Count: 10}}})
		}
	}
	return r
}

// differing are the trends of a result that are not as the papers say.
func differing(t *testing.T, r *Result) (ids []string) {
	t.Helper()
	for _, tr := range r.Study(report.Head{}).Trends {
		if tr.Goal {
			t.Errorf("%s is called a goal", tr.ID)
		}
		if !tr.Agrees {
			ids = append(ids, tr.ID)
		}
	}
	return ids
}

// Each trend agrees with the papers' own numbers, and differs from swapped ones.
func TestTrendsCanDiffer(t *testing.T) {
	if ids := differing(t, asPapers()); len(ids) > 0 {
		t.Errorf("the papers' own numbers differ in %v", ids)
	}
	seen := map[string]bool{}
	last := len(pingPercents) - 1
	for name, c := range map[string]struct {
		swap func(*Result)
		want string
	}{
		"checks and pins": {func(r *Result) { h := &r.Tables.Host; h.CheckMax, h.Pin = h.Pin, h.CheckMax }, "check"},
		"pages of pins": {func(r *Result) {
			r.Tables.Host.Pin = []float64{27, 60, 110, 200, 400, 800}
		}, "pin-many"},
		"entries of misses": {func(r *Result) {
			r.Tables.NI.Miss = []float64{1.8, 3.6, 7.2, 14, 28, 57}
		}, "prefetch-cost"},
		"hits and misses": {func(r *Result) {
			r.Tables.NI.Hit, r.Tables.NI.Miss = 1.8, []float64{0.8, 0.8, 0.8, 0.8, 0.8, 0.8}
		}, "hit-miss"},
		"shares of misses": {func(r *Result) {
			for i := 0; i < len(r.Pings); i += last + 1 {
				for k := range (last + 1) / 2 {
					a, b := &r.Pings[i+k], &r.Pings[i+last-k]
					a.Mean, b.Mean = b.Mean, a.Mean
				}
			}
		}, "miss-bandwidth miss-latency miss-size"},
		"sizes": {func(r *Result) {
			half := len(r.Pings) / 2
			for k := range last + 1 {
				a, b := &r.Pings[half+k], &r.Pings[len(r.Pings)-1-last+k]
				a.Mean, b.Mean = b.Mean, a.Mean
			}
		}, "miss-size"},
		"delay and processing": {func(r *Result) {
			for i := range r.Times {
				r.Times[i].Delay, r.Times[i].Pin = r.Times[i].Pin, r.Times[i].Delay
			}
		}, "configuration delay service variation"},
		"processing of a microsecond": {func(r *Result) {
			for i := range r.Times {
				r.Times[i].Pin[1].Seconds = 1e-6
			}
		}, "configuration service"},
		"budgets": {func(r *Result) { r.Times[0].Pin, r.Times[1].Pin = r.Times[1].Pin, r.Times[0].Pin },
			"configuration"},
	} {
		r := asPapers()
		c.swap(r)
		ids := differing(t, r)
		slices.Sort(ids)
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%s swapped: %q differ, want %q", name, got, c.want)
		}
		for _, id := range ids {
			seen[id] = true
		}
	}
	if n := len(asPapers().Study(report.Head{}).Trends); n != len(seen) {
		t.Errorf("%d trends, of which %d were seen to differ", n, len(seen))
	}
}

// The tables stand in the papers' form, with the papers' numbers beside ours; the figures have the papers' ranges.
func TestPapersForms(t *testing.T) {
	s := asPapers().Study(report.Head{})
	var out bytes.Buffer
	for i := range s.Tables {
		if err := s.Tables[i].Text(&out); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"num_pages", "check max", "unpin", "num_entries", "total miss cost", "drop, 65536, " +
		"100 %",
		"no pages, 4 MiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if c := s.Tables[0].Rows[2].Cells[5]; c.Paper == nil || *c.Paper != 115 {
		t.Errorf("pinning 32 pages stands beside %v", c.Paper)
	}
	if len(s.Figures) != 2 || len(s.Figures[0].Panels[0].Lines) != 2*len(pingSizes) ||
		len(s.Figures[1].Panels[0].Lines) != 5 || s.Write(t.TempDir(), "ondemand") != nil {
		t.Errorf("figures: %+v", s.Figures)
	}
	lines := s.Figures[1].Panels[1].Lines
	if paper := lines[len(lines)-1]; math.Exp2(paper.X[0]) < 4.9 || math.Exp2(paper.X[1]) > 501 {
		t.Errorf("the paper's range is drawn from %v to %v", math.Exp2(paper.X[0]), math.Exp2(paper.X[1]))
	}
}

// Pings between daemons that drop what misses miss as often as asked, and the daemon counts each in both histograms.
func TestMisses(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := kittest.Cluster(t, kit.ClusterSpec{Lab: lab.Spec{Hosts: 2, Links: 1}, Limits: "requests = 65536",
		Config: "misses = \"drop\"\n"})
	res, err := InLab.Run(ctx, c, Spec{Parts: []string{Misses}, Cell: 0.005, Rounds: 1, Budget: 4 << 20,
		Sizes:   []int{8},
		Variant: config.MissesDrop}, func(string, float64) {})
	kittest.Must(t, err)
	if len(res.Pings) != len(pingSizes)*len(pingPercents) || len(res.Times) != 4 {
		t.Fatalf("%d pings, %d times of misses", len(res.Pings), len(res.Times))
	}
	for _, p := range res.Pings {
		if want := float64(p.Percent) / 100; math.Abs(p.Missed-want) > 0.25 || p.Mean[0] <= 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, m := range res.Times {
		want := min(2*m.Budget/chunk, 512)
		if m.Program == memUntouched {
			want = 512
		}
		if d, p := dist(m.Delay).count(), dist(m.Pin).count(); d != p || d < uint64(want)*9/10 ||
			d > uint64(want)*11/10 {
			t.Errorf("%s, %d MiB: %d delays and %d pins of %d misses", m.Program, m.Budget>>20, d, p, want)
		}
	}
}
