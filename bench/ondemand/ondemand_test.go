package ondemand

import (
	"bytes"
	"math"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/edge/space"
)

func TestShares(t *testing.T) {
	before := space.Usage{Lookups: 10, Hits: 4, Cold: 1, Capacity: 2}
	after := space.Usage{Lookups: 30, Hits: 19, Cold: 3, Capacity: 5}
	if got := missed(before, after); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("missed %v, want a quarter", got)
	}
	if got := missed(before, before); got != 0 {
		t.Errorf("of no uses %v missed", got)
	}
	if got := fetched(before, after); got != 5 {
		t.Errorf("fetched %v chunks, want 5", got)
	}
	if got := ratio([]float64{2, 4, 9}, []float64{4, 4, 3}); got != 1 {
		t.Errorf("the median ratio is %v, want 1", got)
	}
	o := outcome{ops: 10, seconds: 2}
	if o.rate(4) != 20 {
		t.Errorf("a rate of %v", o.rate(4))
	}
}

// What reaches its goal agrees, what does not differs: a study in which all misses are slow says so.
func TestStudyJudges(t *testing.T) {
	lat := func(us float64) report.Latency { return report.Latency{Count: 1, P50: us * 1000, P99: us * 1000} }
	result := func(slow float64) *Result {
		one, slows := []float64{1}, []float64{slow}
		return &Result{Spec: Spec{Rounds: 1},
			Costs: []Cost{{Site: "write target", Bytes: 4096, Whole: lat(5), Hit: lat(5), Resident: lat(10 * slow),
				Untouched: lat(20 * slow), Missed: 1}},
			Timings: []Timing{{What: "check", N: 1, Ns: slow}, {What: "look-up, hot", Ns: slow},
				{What: "look-up, cold", Ns: slow}},
			Shares: []Share{{Variant: "park", Percent: -1, Rates: []float64{100}, P99: one},
				{Variant: "park", Percent: 100, Rates: []float64{100 / slow}, P99: one, Missed: 1}},
			Besides: []Beside{{Variant: "park", Load: loadNone, P50: one, P99: one},
				{Variant: "park", Load: loadHits, P50: one, P99: one},
				{Variant: "park", Load: loadResident, P50: slows, P99: slows}},
		}
	}
	for slow, want := range map[float64]bool{1: true, 100: false} {
		s := result(slow).Study(report.Head{})
		agrees := 0
		for _, tr := range s.Trends {
			if tr.Agrees {
				agrees++
			}
		}
		var text bytes.Buffer
		s.Print(&text)
		if len(s.Trends) < 5 || want && agrees != len(s.Trends) || !want && agrees > 0 {
			t.Errorf("%v times as slow: %d of %d goals are reached:\n%s", slow, agrees, len(s.Trends), &text)
		}
	}
}

// A cell in which nothing was measured is an error, not a rate of nothing.
func TestEmptyCellFails(t *testing.T) {
	l := load{flying: 1, span: -time.Second, at: func() int { return 0 }}
	if err := kit.Try(func() { l.run(t.Context(), nil) }); err == nil {
		t.Error("no operation, and no error")
	}
}
