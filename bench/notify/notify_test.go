package notify

import (
	"strings"
	"testing"

	"multiedge/bench/report"
)

// The frames of a round are found by time and length, whatever acknowledgements travel between them.
func TestMatch(t *testing.T) {
	for name, tc := range map[string]struct {
		sent, got []frame
		want      [2]int64 // of the second round
	}{
		"alone":              {[]frame{{110, 90}, {210, 90}}, []frame{{120, 90}, {220, 90}}, [2]int64{210, 220}},
		"an acknowledgement": {[]frame{{205, 60}, {210, 90}}, []frame{{206, 60}, {220, 90}}, [2]int64{210, 220}},
		"one of the round before": {[]frame{{110, 90}, {210, 90}}, []frame{{120, 90}, {199, 90}, {220, 90}},
			[2]int64{210, 220}},
		"a late acknowledgement": {[]frame{{205, 60}, {210, 90}}, []frame{{212, 60}, {220, 90}}, [2]int64{210, 220}},
		"a probe": {[]frame{{205, 1500}, {210, 90}, {211, 101}}, []frame{{206, 1500}, {220, 90}, {221, 101}},
			[2]int64{210, 220}},
		"not sent":         {[]frame{{110, 90}}, []frame{{220, 90}}, [2]int64{}},
		"not received":     {[]frame{{210, 90}}, []frame{{120, 90}}, [2]int64{}},
		"after its use":    {[]frame{{210, 90}}, []frame{{260, 90}}, [2]int64{}},
		"before departure": {[]frame{{210, 90}}, []frame{{205, 90}, {215, 90}}, [2]int64{210, 215}},
	} {
		rounds := []round{{post: 100, start: 150}, {post: 200, start: 250}}
		match(rounds, tc.sent, tc.got, 100)
		if got := [2]int64{rounds[1].sent, rounds[1].got}; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// The steps of a round end where the next begin; a round without frames, or after which the interrupted thread did not
// run, is left out where it says nothing.
func TestBreakdown(t *testing.T) {
	b := breakdown("block", []round{
		{post: 1000, sent: 1100, got: 1400, start: 2000, end: 2300, back: 2700},
		{post: 5000, sent: 5200, got: 5300, start: 5600, end: 5700},
		{post: 9000, start: 9900, end: 9950, back: 9960},
	})
	for _, tc := range []struct {
		name     string
		of       report.Latency
		count    int64
		min, max float64
	}{
		{"post", b.Post, 2, 100, 200},
		{"arrival", b.Arrival, 2, 100, 300},
		{"schedule", b.Schedule, 2, 300, 600},
		{"handler", b.Handler, 2, 100, 300},
		{"return", b.Return, 1, 400, 400},
		{"overhead", b.Overhead, 1, 900 + 400, 900 + 400},
	} {
		if int64(tc.of.Count) != tc.count || tc.of.Min < 0.99*tc.min || tc.of.Max > 1.01*tc.max {
			t.Errorf("%s: %+v, want %d from %g to %g", tc.name, tc.of, tc.count, tc.min, tc.max)
		}
	}
	if b.Missed != 1 {
		t.Errorf("%d missed", b.Missed)
	}
}

// The trend agrees where scheduling is the largest step, and fails when it is swapped with another. The page names the
// paper that has figure 9.
func TestTrendCanFail(t *testing.T) {
	lat := func(ns float64) report.Latency { return report.Latency{Count: 1, P50: ns} }
	for name, c := range map[string]struct {
		arrival, schedule, back float64
		agrees                  bool
	}{"as on Linux": {10, 17, 3, true}, "swapped with arrival": {17, 10, 3, false},
		"swapped with return": {10, 3, 17, false}} {
		r := &Result{Runs: []Breakdown{{Wait: "block", Arrival: lat(c.arrival), Schedule: lat(c.schedule),
			Return: lat(c.back), Overhead: lat(30)}}}
		s := r.Study(report.Head{})
		if s.Trends[0].Agrees != c.agrees || s.Trends[0].Goal {
			t.Errorf("%s: %+v", name, s.Trends[0])
		}
		if !strings.Contains(s.Paper, "Porting a User-Level Communication Architecture to NT") ||
			!strings.Contains(s.Origin, "Measured on this machine") {
			t.Errorf("%s; %s", s.Paper, s.Origin)
		}
	}
}
