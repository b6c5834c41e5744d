package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"multiedge/bench/report"
	"multiedge/internal/config"
)

// Every contender does every test and size, and counts both directions the same way.
func TestDemonstration(t *testing.T) {
	d := Demo(config.Encrypted, false)
	d.Sizes, d.Rounds, d.Each, d.Budget = []int{8, 4096}, 2, 30*time.Millisecond, time.Hour
	steps := 0
	seen := map[string]int{}
	order := []string{}
	d.Note = func(text string) { t.Log(text) }
	d.Show = func(int, string) { steps++ }
	d.Row = func(r *report.Row) {
		seen[r.Contender()]++
		if len(order) == 0 || order[len(order)-1] != r.Contender() {
			order = append(order, r.Contender())
		}
		if r.Bytes == 0 || r.Seconds <= 0 || r.IntegrityErrors > 0 ||
			r.IntegrityChecked != (r.Contender() == "edge encrypted checked") {
			t.Errorf("%s, %s: %+v", r.Test, r.Contender(), r)
		}
		if r.Test != report.TwoWay {
			if r.EachWay != nil {
				t.Errorf("%s, %s has two directions: %v", r.Test, r.Contender(), r.EachWay)
			}
			return
		}
		if len(r.EachWay) != 2 || r.EachWay[0] <= 0 || r.EachWay[1] <= 0 {
			t.Fatalf("%s: each way %v", r.Contender(), r.EachWay)
		}
		if sum := r.EachWay[0] + r.EachWay[1]; sum < r.Throughput*0.999 || sum > r.Throughput*1.001 {
			t.Errorf("%s: %v and %v are not %v together", r.Contender(), r.EachWay[0], r.EachWay[1], r.Throughput)
		}
	}
	must(t, d.Run(context.Background(), func(*Cluster) {}))
	for _, name := range []string{"edge encrypted checked", "edge plaintext", "tcp cubic", "raw udp"} {
		if seen[name] != d.Rounds*len(demoTests)*len(d.Sizes) {
			t.Errorf("%s has %d measurements of %v", name, seen[name], seen)
		}
	}
	if steps != d.Steps() {
		t.Errorf("%d steps were shown, %d announced", steps, d.Steps())
	}
	if len(order) != d.Rounds*len(demoTests)*demoParts {
		t.Errorf("they do not take turns: %v", order)
	}
}

// A machine on which a round takes longer than there is time gets fewer rounds, and as many measurements are announced
// as are made. Once the time is over nothing begins.
func TestDemonstrationKeepsItsTime(t *testing.T) {
	for _, c := range []struct {
		budget     time.Duration
		steps      int
		want, note string
	}{
		{time.Nanosecond, 0, "nothing", "ended early"},
		{time.Hour, len(demoTests) * demoParts, "a round", ""},
	} {
		d := Demo(config.Plaintext, true)
		d.Sizes, d.Rounds, d.Each, d.Region, d.Budget = []int{64}, 1, 20*time.Millisecond, 1<<20, c.budget
		total, steps, notes := d.Steps(), 0, ""
		d.Note, d.Row = func(text string) { notes += text }, func(*report.Row) {}
		d.Show, d.Total = func(int, string) { steps++ }, func(n int) { total = n }
		must(t, d.Run(context.Background(), func(*Cluster) {}))
		if steps != c.steps || total != steps || !strings.Contains(notes, c.note) {
			t.Errorf("in %v: %d measurements of %d announced, want %s; notes %q", c.budget, steps, total, c.want, notes)
		}
	}
	if quiet, busy := Demo(config.Encrypted, false), Demo(config.Encrypted, true); busy.Steps() >= quiet.Steps() ||
		busy.Budget >= quiet.Budget || busy.Budget > 60*time.Second {
		t.Errorf("a busy machine: %d steps in %v, a quiet one: %d in %v", busy.Steps(), busy.Budget, quiet.Steps(),
			quiet.Budget)
	}
}
