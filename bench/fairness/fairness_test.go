package fairness

import (
	"context"
	"strings"
	"testing"
	"time"

	"multiedge/bench/report"
)

// A link of one lane and one of eight have their part of a line beside TCP.
func TestShares(t *testing.T) {
	for _, b := range []Beside{{RTT: 2 * time.Millisecond, Buffer: 0.25, Lanes: 8},
		{RTT: 10 * time.Millisecond, Buffer: 1, Lanes: 1}, {RTT: policedRTT, Lanes: 8}} {
		if b.run(1); !b.reached() {
			t.Errorf("%s: %+v", b.name(), b)
		}
	}
}

// A seed is a run.
func TestSeeds(t *testing.T) {
	part := func(seed uint64) Alone {
		a := *alone()[lossyLossy]
		a.run(seed)
		return a
	}
	if a, b := part(1), part(1); a != b || a == part(2) {
		t.Errorf("%+v, %+v, with another seed %+v", a, b, part(2))
	}
}

// Goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	verdicts := func(shared []*Beside, parts ...float64) string {
		single := alone()
		for i, p := range parts {
			single[i].Part = p
		}
		var list []string
		for _, g := range page(report.Head{}, 1, shared, single).Trends {
			list = append(list, g.Verdict())
		}
		return strings.Join(list, " ")
	}
	line := func(index, buffer, edge float64) *Beside {
		return &Beside{Buffer: buffer, Lanes: 1, Index: index, Edge: edge, TCP: 0.5}
	}
	good, policed := line(0.9, 1, 0.4), line(0.8, 0, 0.1)
	for _, c := range []struct {
		shared []*Beside
		parts  []float64
		want   string
	}{
		{[]*Beside{good, policed}, []float64{0.9, 0.01, 0.01, 0.1}, "reached reached reached reached reached"},
		{[]*Beside{good, line(0.89, 1, 0.4), policed}, []float64{0.9, 0.01, 0.01, 0.1},
			"MISSED reached reached reached reached"},
		{[]*Beside{good, line(0.95, 1, 0.3), policed}, []float64{0.9, 0.01, 0.01, 0.1},
			"MISSED reached reached reached reached"},
		{[]*Beside{good, line(0.79, 0, 0.4)}, []float64{0.89, 0.011, 0.01, 0.1},
			"reached MISSED MISSED MISSED MISSED"},
	} {
		if got := verdicts(c.shared, c.parts...); got != c.want {
			t.Errorf("%v: %s, want %s", c.parts, got, c.want)
		}
	}
}

// A study that is interrupted ends.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	_, err := Study(ctx, report.Head{}, 1, func(int) {}, func(string, float64) {}, func() { steps++; cancel() })
	if err == nil || steps != 1 {
		t.Errorf("after %d steps: %v", steps, err)
	}
}

// Alone a link fills a fast long line, has no less than TCP of one that loses packets, and with `lossy` ten times that.
func TestAlone(t *testing.T) {
	single := alone()
	for _, a := range single {
		a.run(1)
	}
	for _, g := range page(report.Head{}, 1, nil, single).Trends {
		if g.Verdict() != "reached" {
			t.Errorf("%s: %s", g.Claim, g.Found)
		}
	}
	clean := *single[lossyLossy]
	clean.Loss, clean.From, clean.Until = 0, 8*time.Second, 12*time.Second
	if clean.run(1); clean.Part < 0.9 {
		t.Errorf("without losses `lossy` has %.3f of the line", clean.Part)
	}
}
