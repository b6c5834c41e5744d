package ondemand

import (
	"slices"
	"testing"

	"multiedge/bench/report"
)

// good is a result that reaches every goal.
func good() *Result {
	lat := func(us float64) report.Latency { return report.Latency{P50: 1000 * us} }
	return &Result{Spec: Spec{Rounds: 1},
		Costs:   []Cost{{Site: "write, target", Bytes: 4096, Hit: lat(5), Resident: lat(50), Untouched: lat(90)}},
		Timings: []Timing{{What: "check", N: 1, Ns: 1}, {What: "look-up, hot", Ns: 5}, {What: "look-up, cold", Ns: 12}},
		Shares: []Share{{Variant: "inline", Percent: -1, Rates: []float64{100}, P99: []float64{1}},
			{Variant: "inline", Percent: 100, Rates: []float64{90}, P99: []float64{1}}},
		Besides: []Beside{
			{Variant: "inline", Load: loadHits, P50: []float64{1}, P99: []float64{100}, Done: []float64{1}},
			{Variant: "inline", Load: loadResident, P50: []float64{1}, P99: []float64{105}, Done: []float64{1}},
			{Variant: "inline", Load: loadUntouched, P50: []float64{1}, P99: []float64{105}, Done: []float64{1}}}}
}

// Each goal is reached by good results and missed by results that are wrong in its point alone. None is called a trend
// of a paper.
func TestGoalsCanBeMissed(t *testing.T) {
	missed := func(r *Result) (ids []string) {
		for _, g := range r.Study(report.Head{}).Trends {
			if !g.Goal {
				t.Errorf("%s is called a trend of a paper", g.ID)
			}
			if !g.Agrees {
				ids = append(ids, g.ID)
			}
		}
		return ids
	}
	if ids := missed(good()); len(ids) != 0 {
		t.Errorf("good results miss %v", ids)
	}
	spoils := map[string]func(*Result){
		"miss-resident": func(r *Result) {
			r.Costs[0].Resident, r.Costs[0].Untouched = r.Costs[0].Untouched, r.Costs[0].Resident
		},
		"miss-untouched":    func(r *Result) { r.Costs[0].Untouched.P50 = 200e3 },
		"check of 1 chunks": func(r *Result) { r.Timings[0].Ns, r.Timings[1].Ns = r.Timings[1].Ns, r.Timings[0].Ns },
		"look-up, hot":      func(r *Result) { r.Timings[1].Ns = 12 },
		"look-up, cold":     func(r *Result) { r.Timings[2].Ns = 20 },
		"all-miss":          func(r *Result) { r.Shares[0].Rates, r.Shares[1].Rates = []float64{100}, []float64{70} },
		loadResident:        func(r *Result) { r.Besides[1].P99 = []float64{120} },
		loadUntouched:       func(r *Result) { r.Besides[2].P99 = []float64{120} },
	}
	for id, spoil := range spoils {
		r := good()
		spoil(r)
		if ids := missed(r); !slices.Equal(ids, []string{id}) {
			t.Errorf("what spoils %q: missed %q", id, ids)
		}
	}
	if n := len(good().Study(report.Head{}).Trends); n != len(spoils) {
		t.Errorf("%d goals, of which %d were seen to be missed", n, len(spoils))
	}
}
