package fabric

import (
	"context"
	"fmt"
	"math"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// Sizes of flows that are told apart.
const (
	shortFlow = 100_000
	longFlow  = 1_000_000
)

type class struct {
	name        string
	least, most int
}

var classes = []class{{"to 10 KB", 0, 10_000}, {"10 to 100 KB", 10_000, shortFlow},
	{"0.1 to 1 MB", shortFlow, longFlow}, {"from 1 MB", longFlow, math.MaxInt}}

// dctcp is the name of the model's run, edge that of the engine's on one path.
const (
	dctcp = "DCTCP model"
	edge  = "edge, one path"
)

// Study simulates a spec under each transport. show is told what is being done, which of how many steps that is, and
// how far the step is.
func Study(ctx context.Context, head report.Head, s Spec, begin func(steps int), show kit.Show,
	step func()) (*xlate.Study, error) {
	return kit.Outcome(func() *xlate.Study {
		kit.Check(s.Check())
		t := s.draw()
		runs := []transport{{dctcp, true, 1}, {edge, false, 1}}
		if s.Lanes > 1 {
			runs = append(runs, transport{fmt.Sprintf("edge, %d lanes", s.Lanes), false, s.Lanes})
		}
		begin(len(runs))
		var results []*Result
		for _, of := range runs {
			kit.Doing(func() {
				results = append(results, s.run(ctx, &t, of, func(share float64) { show(of.name, share) }))
			}, "%s", of.name)
			step()
		}
		return s.page(head, results)
	})
}

// page shows results.
func (s *Spec) page(head report.Head, results []*Result) *xlate.Study {
	out := &xlate.Study{Head: head, Title: "A data centre: " + s.title(), Scale: 1, Seed: s.Seed,
		Origin: "Simulated: leaf and spine switches, paths by hash of the flow. Hosts run the production engine, or " +
			"a model of DCTCP, and take no time to compute.",
		Paper: "Alizadeh and others, Data Center TCP (DCTCP), SIGCOMM 2010, sections 2 and 4, whose sender the model " +
			"is"}
	out.Tables = append(out.Tables, s.totals(results))
	if t, ok := s.bySize(results); ok {
		out.Tables = append(out.Tables, t)
		out.Figures = append(out.Figures, s.slowdownFigure(results))
	}
	out.Figures = append(out.Figures, s.totalsFigure(results))
	for _, r := range results {
		out.Runs = append(out.Runs, xlate.Run{App: r.Name, Config: s, Counts: r})
	}
	s.goals(out, results)
	return out
}

func (s *Spec) mixed() bool { return s.Workload != permutation && s.Workload != incast }

func (s *Spec) title() string {
	what := fmt.Sprintf("%d hosts at %s, MTU %d, %v of %s", s.Hosts, rate(s.Rate), s.MTU, s.Time, s.Workload)
	switch {
	case s.mixed():
		what += fmt.Sprintf(" at a load of %g", s.Load)
	case s.Workload == incast:
		what += fmt.Sprintf(" from %d hosts", s.FanIn)
	}
	if s.Fails > 0 {
		what += fmt.Sprintf(", %d links fail", s.Fails)
	}
	return what
}

func rate(bits float64) string { return fmt.Sprintf("%g Gbit/s", bits/1e9) }

// caption says what the traffic is.
func (s *Spec) caption() string {
	text := ""
	switch s.Workload {
	case permutation:
		text = fmt.Sprintf("Every host sends messages of %d bytes to one other host, one after the other.", permuted)
	case incast:
		text = fmt.Sprintf("%d hosts send %d bytes each to one host, all at once, and again when all have arrived "+
			"(DCTCP, section 4.2.1).", s.FanIn, incasted/s.FanIn)
	default:
		text = fmt.Sprintf("Flows start as a Poisson process between hosts drawn at random. Their sizes: %s; those "+
			"of more than %d MiB are cut to that. Each has a connection of its own, which is open before; sessions "+
			"of edge that several use keep their windows.", distribution(s.Workload).source, mostBytes>>20)
	}
	buffer := "each port of a switch"
	if s.Shared {
		buffer += ", shared by all of its ports"
	}
	return text + fmt.Sprintf(" Buffers are %d KiB for %s; packets are marked that find %d KiB or more in their queue.",
		s.Buffer>>10, buffer, s.Mark>>10)
}

// totals is the table of what all flows came to together.
func (s *Spec) totals(results []*Result) xlate.Table {
	t := xlate.Table{ID: "totals", Title: "All flows: " + s.title(), Caption: s.caption() + " Goodput is of " +
		"the time in which flows start, fairness Jain's index of the share of its ideal rate that each long flow had " +
		"(of 1 MB and more, or the longest).",
		Columns: []string{"transport", "flows", "unfinished", "goodput Gbit/s", "of links %", "Jain", "packets",
			"dropped %", "marked %", "sent again", "cut", "drops after 20 ms", "simulated ms", "seconds here"}}
	for _, r := range results {
		p, sent := &r.Packets, float64(max(1, r.Packets.Sent))
		t.Add(r.Name, xlate.Cells("%.0f %.0f %.1f %.1f %.3f %.0f %.3f %.2f %.0f %.0f %.0f %.1f %.1f",
			float64(len(r.Flows)), float64(r.unfinished()), r.Goodput/1e9, 100*r.Used, r.Fairness, sent,
			100*r.dropped(), 100*float64(p.Marked)/sent, float64(p.Again), float64(p.Cut), float64(r.LateDrops),
			r.Simulated.Seconds()*1e3, r.Wall.Seconds())...)
	}
	return t
}

// bySize is the table of slowdowns; false: all flows have one size, and the figure would be a point.
func (s *Spec) bySize(results []*Result) (xlate.Table, bool) {
	t := xlate.Table{ID: "slowdown", Title: "Slowdown of flow completion by size: " + s.title(),
		Columns: []string{"transport, flows of"}, Caption: "How many times as long a flow took as it would over TCP " +
			"in an empty network, from its start until its last byte had arrived. Flows that did not arrive count " +
			"with the time that they had."}
	t.Columns = append(t.Columns, "flows", "median", "99th")
	for _, r := range results {
		for _, c := range classes {
			if list := r.slowdowns(c.least, c.most); len(list) > 0 {
				t.Add(r.Name+", "+c.name, xlate.Cells("%.0f %.2f", float64(len(list)), percentile(list, 50),
					percentile(list, 99))...)
			}
		}
	}
	return t, len(t.Rows) > 0
}

// steps are how many points of the figure there are for a factor of ten in size.
const steps = 3

// slowdownFigure draws slowdown over size: median and 99th percentile.
func (s *Spec) slowdownFigure(results []*Result) figure.Figure {
	f := figure.Figure{ID: "slowdown", Title: "Slowdown of flow completion: " + s.title(),
		Caption: s.caption() + " Solid: medians; dashed: 99th percentiles (of few flows: the largest)."}
	p := figure.Panel{Title: "median and 99th percentile", XLabel: "flow size (bytes)", YLabel: "slowdown", SizeX: true,
		LogY: true}
	for style, r := range results {
		mid, tail := figure.Line{Style: style}, figure.Line{Style: style, Thin: true}
		for k := 2 * steps; k <= 8*steps; k++ {
			least, most := math.Pow(10, float64(k)/steps), math.Pow(10, float64(k+1)/steps)
			list := r.slowdowns(int(least), int(most))
			if len(list) == 0 {
				continue
			}
			x := math.Sqrt(least * most)
			mid.X, mid.Y = append(mid.X, x), append(mid.Y, percentile(list, 50))
			tail.X, tail.Y = append(tail.X, x), append(tail.Y, percentile(list, 99))
		}
		p.Lines = append(p.Lines, mid, tail)
		f.Legend = append(f.Legend, figure.Entry{Text: r.Name, Style: style})
	}
	f.Panels = []figure.Panel{p}
	return f
}

// totalsFigure draws goodput, drops and fairness.
func (s *Spec) totalsFigure(results []*Result) figure.Figure {
	f := figure.Figure{ID: "totals", Title: "Goodput, drops and fairness: " + s.title(), Caption: s.caption()}
	for _, v := range []struct {
		label string
		of    func(r *Result) float64
	}{
		{"goodput (% of links)", func(r *Result) float64 { return 100 * r.Used }},
		{"dropped packets (%)", func(r *Result) float64 { return 100 * r.dropped() }},
		{"Jain's index", func(r *Result) float64 { return r.Fairness }},
	} {
		p := figure.Panel{Title: v.label, YLabel: v.label, Names: []string{""}, Bars: [][]figure.Bar{nil}}
		for i, r := range results {
			p.Bars[0] = append(p.Bars[0], figure.Bar{Parts: []figure.Part{{Value: v.of(r), Color: i}}})
		}
		f.Panels = append(f.Panels, p)
	}
	for i, r := range results {
		f.Legend = append(f.Legend, figure.Entry{Text: r.Name, Style: i, Bar: true})
	}
	return f
}

// Why the goals are missed, where they are.
const (
	whyShort = "it is that of a few flows, one or two of which a seed may favour: means of seeds are in " +
		"docs/PERFORMANCE.md; and flows between two hosts share a session, its window and its turns at the NIC, " +
		"where the model has a connection for each"
	whyIncast = "a session begins with a window of 10 frames, before any mark came back: more than 32 senders fill " +
		"the buffer with them, and each lane learns of marks by itself until it rests"
	whyFrames = "sealed frames have 100 bytes of headers more than TCP's packets, 7 % of a link at an MTU of 1500"
)

// goals are those of this project for the traffic.
func (s *Spec) goals(out *xlate.Study, results []*Result) {
	model := results[0]
	for _, r := range results {
		if n := r.unfinished(); n > 0 || r == results[0] {
			out.AddGoal("arrive "+r.Name, "Every flow arrives.", n == 0, "it takes longer than the run",
				"%s: %d of %d have not, %v after the last could start", r.Name, n, len(r.Flows), drainTime)
		}
	}
	for _, r := range results[1:] {
		switch list := r.slowdowns(0, shortFlow); {
		case s.Workload == incast:
			late := r.LateDrops
			out.AddGoal("incast "+r.Name, "At most 0.2 % of packets are dropped, none after 20 ms.",
				r.dropped() <= 0.002 && late == 0, whyIncast, "%s: %.3f %%, %d after 20 ms; %s: %.3f %%", r.Name,
				100*r.dropped(), late, dctcp, 100*model.dropped())
		case s.Workload == permutation:
			out.AddGoal("goodput "+r.Name, "Goodput is at least that of DCTCP on one path.", r.Goodput >= model.Goodput,
				whyFrames, "%s: %.1f %% of the links, Jain %.2f; %s: %.1f %%, %.2f", r.Name, 100*r.Used, r.Fairness,
				dctcp, 100*model.Used, model.Fairness)
		case len(list) > 0:
			ours, theirs := percentile(list, 99), percentile(model.slowdowns(0, shortFlow), 99)
			out.AddGoal("short "+r.Name,
				"The 99th percentile of the slowdown of flows below 100 KB is at most DCTCP's.", ours <= theirs,
				whyShort, "%s: %.2f; %s: %.2f", r.Name, ours, dctcp, theirs)
		}
	}
}

// Defaults of a Spec for a rate: buffers of common switches, and DCTCP's threshold, in time of the link.
const (
	bufferTime = 200 * time.Microsecond
	markTime   = 25 * time.Microsecond
)

// SetDefaults fills in what is zero of Buffer and Mark.
func (s *Spec) SetDefaults() {
	at := func(d time.Duration) int { return int(s.Rate / 8 * d.Seconds()) }
	if s.Buffer == 0 {
		s.Buffer = max(at(bufferTime), 20*s.MTU)
	}
	if s.Mark == 0 {
		s.Mark = max(at(markTime), 4*s.MTU)
	}
}
