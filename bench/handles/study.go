package handles

import (
	"fmt"
	"slices"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// limit is the factor by which the time of writes may grow with exports that are not used.
const limit = 1.1

var titles = map[string]string{
	Table:   "The transport's table of grants alone",
	Granted: "Exported on connections of 4000 each, so that the peer is told of all",
	Catalog: "Offered by a catalog: the peer learns what it asks for",
}

// Study shows a result beside what the paper says (§V.A, figure 7).
func (r *Result) Study(head report.Head) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Exports of which few are in use", Scale: 1, Seed: 1,
		Origin: "Measured on this machine.",
		Paper:  "Azimi and Bilas, Evaluating the Performance Impact of Dynamic Handle Lookup (CBH, PCH)"}
	for _, way := range append([]string{Table}, r.Ways...) {
		s.Tables = append(s.Tables, r.table(way))
		r.trends(s, way)
	}
	s.Figures = r.figures()
	return s
}

// steps returns those of a way.
func (r *Result) steps(way string) []Step {
	return slices.DeleteFunc(slices.Clone(r.Steps), func(s Step) bool { return s.Way != way })
}

func (r *Result) table(way string) xlate.Table {
	t := xlate.Table{ID: way, Title: fmt.Sprintf("%s, %d in use", titles[way], r.InUse)}
	if way == Table {
		t.Caption = "A lookup is the least of many turns over the exports in use, in no order; memory is the heap's."
		t.Columns = []string{"exports", "lookup, ns", "bytes of an export", "KiB kept hot", "made in, s"}
	} else {
		t.Caption = "Writes of 16 bytes to exports in use, in no order: medians of five rounds. Memory is what is " +
			"resident beyond the first row, for each export more."
		t.Columns = []string{"exports", "write p50, us", "write p99, us", "writes/s", "bytes: exporter's daemon",
			"its program", "importer's daemon", "its program", "made in, s"}
	}
	for _, s := range r.steps(way) {
		cells := xlate.Cells("%.1f %.0f %.0f %.2f", s.Lookup, s.Bytes, s.Hot/1024, s.Setup)
		if way != Table {
			cells = xlate.Cells("%.2f %.1f %.0f %.0f %.0f %.0f %.0f %.2f", s.P50/1000, s.P99/1000, s.Rate, s.Bytes,
				s.Exporter, s.ImpDaemon, s.Importer, s.Setup)
		}
		t.Add(fmt.Sprint(s.Exports), cells...)
	}
	return t
}

// trends compares the last step of a way with its first.
func (r *Result) trends(s *xlate.Study, way string) {
	steps := r.steps(way)
	if len(steps) < 2 {
		return
	}
	first, last := steps[0], steps[len(steps)-1]
	const noise = "a run on a host that does other things as well is no proof: repeat it"
	if way == Table {
		all := last.Bytes * float64(last.Exports)
		s.AddGoal("lookup", "A lookup takes at most 150 ns more than with as many exports as are in use. That is "+
			"3 % of a write of 5 us; the paper allows 3 % of run time (§V.C), which nothing here measures.",
			last.Lookup-first.Lookup < 150, noise, "%.1f ns of %d exports, %.1f of %d",
			first.Lookup, first.Exports, last.Lookup, last.Exports)
		s.AddGoal("memory", "What lookups touch is at most a quarter of the whole table. (The paper's lookups "+
			"need 130 KiB of the NI's memory instead of 520, figure 3: another measure.)",
			last.Hot < 0.25*all, "there are too few exports for what is touched to be small beside them",
			"%.0f KiB hot of %.0f in all: %.1f %% less", last.Hot/1024, all/1024, 100*(1-last.Hot/all))
		return
	}
	time, rate := last.P50/first.P50, first.Rate/last.Rate
	s.AddGoal(way, fmt.Sprintf("Writes cost at most %.0f %% more than with as many exports as are in use.",
		100*(limit-1)), time <= limit && rate <= limit, noise,
		"%d of %d against %d of %d: p50 %.2f times, p99 %.2f, writes/s %.2f", r.InUse, last.Exports, r.InUse,
		first.Exports, time, last.P99/first.P99, 1/rate)
}

func (r *Result) figures() (figs []figure.Figure) {
	var names []string
	for _, n := range r.Exports {
		names = append(names, fmt.Sprint(n))
	}
	curve := func(id, title, unit string, ways []string, of func(*Step) float64) {
		f := figure.Figure{ID: id, Title: title, Caption: fmt.Sprintf("%d exports are in use, of as many as the axis "+
			"says.", r.InUse)}
		p := figure.Panel{XLabel: "exports", YLabel: unit, Names: names}
		for style, way := range ways {
			l := figure.Line{Style: style}
			for x, s := range r.steps(way) {
				l.X, l.Y = append(l.X, float64(x)), append(l.Y, of(&s))
			}
			p.Lines = append(p.Lines, l)
			f.Legend = append(f.Legend, figure.Entry{Text: way, Style: style})
		}
		f.Panels = []figure.Panel{p}
		figs = append(figs, f)
	}
	curve("handles-lookup", "A lookup in the table", "ns", []string{Table}, func(s *Step) float64 { return s.Lookup })
	if len(r.Ways) > 0 {
		curve("handles-p50", "A write to an export in use", "p50, us", r.Ways,
			func(s *Step) float64 { return s.P50 / 1000 })
		curve("handles-rate", "Writes to exports in use, 16 at once", "writes/s", r.Ways,
			func(s *Step) float64 { return s.Rate })
	}
	return figs
}
