package fabric

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/bench/report"
	"multiedge/internal/sim/fabric"
)

func spec(workload string) Spec {
	s := Spec{Hosts: 16, Workload: workload, Load: 0.8, Lanes: 2, FanIn: 8, Time: 500 * time.Microsecond, Rate: 10e9,
		MTU: 1500, Seed: 1}
	s.SetDefaults()
	return s
}

// The means are those that simulations with these points state: 1.6 MB (pFabric) and, of sizes that are not cut, more
// than 7 MB.
func TestSizes(t *testing.T) {
	web, mining := distribution("websearch"), distribution("datamining")
	if m := web.mean(); m < 1.55e6 || m > 1.75e6 {
		t.Errorf("web search: mean %.0f", m)
	}
	if m := mining.mean(); m < 5e5 || m > 2e6 { // cut at 32 MiB
		t.Errorf("data mining: mean %.0f", m)
	}
	for _, c := range []struct {
		of    *sizes
		share float64
		size  int
	}{{web, 0, packet}, {web, .15, 6 * packet}, {web, .2, 13 * packet}, {web, 1, 20000 * packet},
		{mining, .3, packet}, {mining, .9, 267 * packet}, {mining, 1, mostBytes}} {
		if got := c.of.at(c.share); got != c.size {
			t.Errorf("%s at %v: %d, want %d", c.of.name, c.share, got, c.size)
		}
	}
}

// The flows of mixed traffic load the hosts' links as much as --load says.
func TestLoad(t *testing.T) {
	for _, load := range []float64{0.2, 0.8} {
		s := spec("websearch")
		s.Load, s.Hosts, s.Time = load, 64, 500*time.Millisecond
		sum := 0.0
		tr := s.draw()
		for i, a := range tr.arrivals {
			sum += float64(a.size)
			if c := tr.channels[i]; c.From == c.To || a.at >= s.Time {
				t.Fatalf("%+v on %+v", a, c)
			}
		}
		if got := sum * 8 / s.Time.Seconds() / (s.Rate * float64(s.Hosts)); math.Abs(got-load) > 0.1*load {
			t.Errorf("load %.3f, want %v, in %d flows", got, load, len(tr.arrivals))
		}
	}
}

// In a permutation each host sends to one and receives from one; in incast all senders send to one.
func TestChannels(t *testing.T) {
	s := spec(permutation)
	to := map[int]int{}
	for _, c := range s.channels() {
		to[c.From] = c.To
	}
	var receivers []int
	for _, r := range to {
		receivers = append(receivers, r)
	}
	slices.Sort(receivers)
	if len(slices.Compact(receivers)) != s.Hosts || len(to) != s.Hosts {
		t.Errorf("%v", to)
	}
	s.Workload = incast
	if list := s.channels(); len(list) != s.FanIn || slices.ContainsFunc(list, func(c fabric.Channel) bool {
		return c.To != 0 || c.From == 0
	}) {
		t.Errorf("%v", list)
	}
}

func (s *Spec) channels() []fabric.Channel {
	t := s.draw()
	return t.channels
}

// The study runs every transport under every traffic, and shows what came of it. One seed gives one page, but for the
// time that it took.
func TestStudy(t *testing.T) {
	for _, workload := range []string{"websearch", permutation, incast} {
		s := spec(workload)
		if workload == incast {
			s.Fails, s.Time, s.Buffer = 1, 6*time.Millisecond, 1<<20
		}
		page := func() (string, []*Result) {
			steps, shown := 0, 0.0
			st, err := Study(context.Background(), report.Head{}, s, func(n int) { steps = n },
				func(_ string, share float64) { shown = max(shown, share) }, func() { steps-- })
			if err != nil {
				t.Fatal(err)
			}
			if steps != 0 || shown < 0.5 || shown > 1 {
				t.Errorf("%s: %d steps are left, %v was shown", workload, steps, shown)
			}
			var results []*Result
			for _, r := range st.Runs {
				r := r.Counts.(*Result)
				r.Wall = 0
				results = append(results, r)
			}
			var html bytes.Buffer
			if err := st.HTML(&html); err != nil || strings.Count(html.String(), "<svg") != len(st.Figures) {
				t.Errorf("%s: a page with other than %d figures: %v", workload, len(st.Figures), err)
			}
			text, err := json.Marshal(results)
			if err != nil {
				t.Fatal(err)
			}
			return string(text), results
		}
		a, results := page()
		if b, _ := page(); a != b {
			t.Errorf("%s: one seed gives two pages", workload)
		}
		if len(results) != 3 || results[0].Name != dctcp {
			t.Fatalf("%s: %d runs", workload, len(results))
		}
		for _, r := range results {
			r.judge(t, &s)
		}
	}
}

// judge checks what must hold of every result.
func (r *Result) judge(t *testing.T, s *Spec) {
	if r.unfinished() > 0 || len(r.Flows) == 0 || !(r.Used > 0.05 && r.Used <= 1) ||
		!(r.Fairness > 0 && r.Fairness <= 1) || r.Packets.Sent == 0 {
		t.Errorf("%s, %s: %d of %d flows are unfinished, used %v, Jain %v, %+v", s.Workload, r.Name, r.unfinished(),
			len(r.Flows), r.Used, r.Fairness, r.Packets)
	}
	if rounds := float64(len(r.Flows)) / float64(s.FanIn); s.Workload == incast &&
		(rounds < 2 || rounds != math.Trunc(rounds)) {
		t.Errorf("%s: %v rounds of incast", r.Name, rounds)
	}
	for _, f := range r.Flows {
		if f.Slowdown() < 1 {
			t.Errorf("%s, %s: a flow of %d bytes took %v, less than its ideal %v", s.Workload, r.Name, f.Size, f.Took,
				f.Ideal)
		}
	}
}

// Goals can be missed.
func TestGoals(t *testing.T) {
	flows := func(n int, slow time.Duration, ended bool) (list []Flow) {
		for range n {
			list = append(list, Flow{Size: 20_000, Ideal: 100, Took: 200, Ended: true})
		}
		list[0].Took, list[0].Ended = slow, ended
		return list
	}
	verdicts := func(s Spec, ours Result) (list []string) {
		ours.Name = edge
		model := Result{Name: dctcp, Flows: flows(50, 300, true), Goodput: 100}
		for _, t := range s.page(report.Head{}, []*Result{&model, &ours}).Trends {
			list = append(list, t.Verdict())
		}
		return list
	}
	for _, c := range []struct {
		workload string
		ours     Result
		want     string
	}{
		{"websearch", Result{Flows: flows(50, 300, true)}, "reached reached"},
		{"websearch", Result{Flows: flows(50, 301, true)}, "reached MISSED"},
		{"websearch", Result{Flows: flows(50, 300, false)}, "reached MISSED reached"},
		{permutation, Result{Flows: flows(9, 1, true), Goodput: 100}, "reached reached"},
		{permutation, Result{Flows: flows(9, 1, true), Goodput: 99}, "reached MISSED"},
		{incast, Result{Flows: flows(9, 1, true), Packets: fabric.Tally{Sent: 1000, Dropped: 2}}, "reached reached"},
		{incast, Result{Flows: flows(9, 1, true), Packets: fabric.Tally{Sent: 1000, Dropped: 3}}, "reached MISSED"},
		{incast, Result{Flows: flows(9, 1, true), LateDrops: 1}, "reached MISSED"},
	} {
		if got := strings.Join(verdicts(spec(c.workload), c.ours), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.workload, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	list := []float64{1, 2, 3, 4}
	if percentile(list, 50) != 2 || percentile(list, 99) != 4 || percentile(list[:1], 50) != 1 ||
		percentile(list, 75) != 3 {
		t.Error("percentiles")
	}
	r := Result{Flows: []Flow{{Size: 10, Took: 2, Ideal: 1}, {Size: 10, Took: 2, Ideal: 1},
		{Size: 5, Took: 9, Ideal: 1}}}
	if r.fairness() != 1 {
		t.Errorf("equal flows have an index of %v", r.fairness())
	}
	if r.Flows[0].Took = 1e9; math.Abs(r.fairness()-0.5) > 1e-6 {
		t.Errorf("of two flows one has all, and the index is %v", r.fairness())
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(s *Spec){
		"hosts":    func(s *Spec) { s.Hosts = 3 },
		"load":     func(s *Spec) { s.Load = 0 },
		"traffic":  func(s *Spec) { s.Time = 1 },
		"incast":   func(s *Spec) { s.Workload, s.FanIn = incast, 16 },
		"workload": func(s *Spec) { s.Workload = "other" },
		"lanes":    func(s *Spec) { s.Lanes = 17 },
		"MTU":      func(s *Spec) { s.MTU = 100 },
		"GiB":      func(s *Spec) { s.Hosts, s.Lanes, s.Time = 1024, 16, 50*time.Millisecond },
	} {
		s := spec("websearch")
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if change(&s); s.Check() == nil || !strings.Contains(s.Check().Error(), want) {
			t.Errorf("%s: %v", want, s.Check())
		}
	}
}

// A round of incast begins when all messages of the one before have arrived, and that of a permutation's host at once.
func TestRounds(t *testing.T) {
	for _, workload := range []string{incast, permutation} {
		s := spec(workload)
		tr := s.draw()
		o := s.options(tr.channels)
		var d driver
		o.Model, o.Done = true, func(f *fabric.Flow) { d.done(f) }
		n, err := fabric.New(o)
		if err != nil {
			t.Fatal(err)
		}
		d = driver{n: n, t: &tr, from: n.Now, until: n.Now.Add(4 * time.Millisecond)}
		d.begin()
		if ok, err := n.Run(n.Now.Add(time.Second), func() bool { return d.left == 0 }); !ok || err != nil {
			t.Fatal(err)
		}
		latest := map[int]*fabric.Flow{} // by channel
		for i, f := range n.Flows {
			was := latest[f.Channel]
			switch {
			case workload == permutation && was != nil && f.Start != was.End:
				t.Errorf("%s: a message begins at %v, the one before it arrived at %v", workload, f.Start, was.End)
			case workload == incast && i >= s.FanIn:
				for _, was := range n.Flows[i/s.FanIn*s.FanIn-s.FanIn:][:s.FanIn] {
					if f.Start < was.End {
						t.Errorf("%s: a message begins at %v, one of the round before arrives at %v", workload, f.Start,
							was.End)
					}
				}
			}
			latest[f.Channel] = f
		}
		if len(n.Flows) < 3*len(tr.channels) || len(latest) != len(tr.channels) {
			t.Errorf("%s: %d messages on %d of %d channels", workload, len(n.Flows), len(latest), len(tr.channels))
		}
	}
}
