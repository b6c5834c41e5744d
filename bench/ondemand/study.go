package ondemand

import (
	"fmt"
	"slices"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// Goals.
const (
	goalCheck    = 3.0  // ns, of one chunk
	goalHot      = 8.0  // ns, of the daemon's look-up
	goalCold     = 15.0 // likewise, of one that is in no cache
	goalResident = 60.0 // us, that a miss adds where pages are there
	goalUntouch  = 110.0
	goalShare    = 0.8 // of the throughput of registered memory, when all writes miss
	goalBeside   = 1.1 // times the p99 of a bystander
)

const noise = "a run on a host that does other things as well is no proof: repeat it"

// Study shows a result, with the goals and whether they were reached.
func (r *Result) Study(head report.Head) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Memory that is pinned on demand", Scale: 1, Seed: 1,
		Origin: "Measured on this machine, between two hosts of a lab. UTLB's tables 1 and 2 and DHL's figure 4 and " +
			"times of misses are judged by what the papers say, the rest by goals of this project.",
		Paper: "Chen and others, UTLB, and Azimi and Bilas, Dynamic Handle Lookup, whose mechanisms these are"}
	for _, part := range []struct {
		results int
		show    func(*xlate.Study)
	}{{len(r.Tables.NI.Miss), r.tableStudy}, {len(r.Pings), r.pingStudy}, {len(r.Times), r.timesStudy},
		{len(r.Costs), r.costStudy}, {len(r.Points), r.sweepStudy}, {len(r.Ways), r.wayStudy},
		{len(r.Shares), r.shareStudy}, {len(r.Foresights), r.foresightStudy}, {len(r.Besides), r.besideStudy}} {
		if part.results > 0 {
			part.show(s)
		}
	}
	return s
}

func goal(s *xlate.Study, id, claim string, reached bool, found string, args ...any) {
	s.AddGoal(id, claim, reached, noise, found, args...)
}

func (r *Result) costStudy(s *xlate.Study) {
	t := xlate.Table{ID: "costs", Title: "An operation at a time: p50 (p99), us, by what it meets",
		Caption: "Hit: all is pinned. Miss, resident: pages are there, unpinned. Miss, untouched: no pages either. " +
			"Missed: chunks fetched for each operation that was to miss with pages there.",
		Columns: []string{"site, bytes", "registered", "(p99)", "hit", "(p99)", "miss, resident", "(p99)",
			"miss, untouched", "(p99)", "missed"}}
	resident, untouched := 0.0, 0.0
	for _, c := range r.Costs {
		var times []float64
		for _, l := range []report.Latency{c.Whole, c.Hit, c.Resident, c.Untouched} {
			times = append(times, l.P50/1000, l.P99/1000)
		}
		t.Add(fmt.Sprintf("%s, %d", c.Site, c.Bytes), append(xlate.Cells("%.1f", times...),
			xlate.Number(c.Missed, "%.2f"))...)
		resident = max(resident, (c.Resident.P50-c.Hit.P50)/1000)
		untouched = max(untouched, (c.Untouched.P50-c.Hit.P50)/1000)
	}
	s.Tables = append(s.Tables, t)
	goal(s, "miss-resident", fmt.Sprintf("A miss adds at most %.0f us where pages are there (median).", goalResident),
		resident <= goalResident, "%.1f us at the worst site", resident)
	goal(s, "miss-untouched", fmt.Sprintf("And %.0f us where there are none.", goalUntouch),
		untouched <= goalUntouch, "%.1f us at the worst site", untouched)
	t = xlate.Table{ID: "timings", Title: "Look-ups, ns", Caption: "The least of many turns. check: the library's " +
		"space.Resident over so many chunks. look-up: what the daemon does for each part of an " +
		"operation beyond what it does for registered memory, with its table in the processor's cache and not.",
		Columns: []string{"what", "ns"}}
	for _, k := range r.Timings {
		label := k.What
		if k.N > 0 {
			label = fmt.Sprintf("%s of %d chunks", k.What, k.N)
		}
		t.Add(label, xlate.Number(k.Ns, "%.1f"))
		for _, g := range []struct {
			what string
			n    int
			most float64
		}{{"check", 1, goalCheck}, {"look-up, hot", 0, goalHot}, {"look-up, cold", 0, goalCold}} {
			if g.what == k.What && g.n == k.N {
				goal(s, label, fmt.Sprintf("%s takes at most %.0f ns.", label, g.most), k.Ns <= g.most, "%.1f ns", k.Ns)
			}
		}
	}
	s.Tables = append(s.Tables, t)
}

func (r *Result) sweepStudy(s *xlate.Study) {
	t := xlate.Table{ID: "sweep", Title: "Throughput and latency over sizes, working sets, policies and patterns",
		Caption: fmt.Sprintf("Throughput with %d operations in flight, latency of one at a time. Sets are of the "+
			"budget of %d MiB; registered: all of the largest set. Missed: uses that did.", deep, r.Budget>>20),
		Columns: []string{"what", "MB/s", "p50, us", "p99, us", "missed"}}
	for _, p := range r.Points {
		set := fmt.Sprintf("%d %%", p.Set)
		if p.Set == 0 {
			set = "registered"
		}
		t.Add(fmt.Sprintf("%s %d, %s, %s, %s", p.Kind, p.Bytes, set, p.Policy, p.Pattern),
			xlate.Cells("%.1f %.1f %.1f %.2f", p.Rate/1e6, p.Latency.P50/1000, p.Latency.P99/1000, p.Missed)...)
	}
	s.Tables = append(s.Tables, t)
	s.Figures = append(s.Figures, r.sizeFigure("write"), r.sizeFigure("read"), r.policyFigure())
}

// points returns those that fit.
func (r *Result) points(fits func(*Point) bool) []Point {
	return slices.DeleteFunc(slices.Clone(r.Points), func(p Point) bool { return !fits(&p) })
}

// sizeFigure draws throughput over the working set, a line for each size, as a share of registered memory's.
func (r *Result) sizeFigure(kind string) figure.Figure {
	f := figure.Figure{ID: "ondemand-" + kind, Title: "Throughput of a " + kind + " over the working set",
		Caption: "Blocks in no order, LRU; as a share of what memory reaches that is registered whole."}
	p := figure.Panel{XLabel: "working set, per cent of what may be pinned", YLabel: "share of registered"}
	for _, set := range r.Sets {
		p.Names = append(p.Names, fmt.Sprint(set))
	}
	for style, size := range r.Sizes {
		of := r.points(func(p *Point) bool {
			return p.Kind == kind && p.Bytes == size && p.Policy == "lru" && p.Pattern == xlate.Uniform
		})
		l := figure.Line{Style: style}
		for _, o := range of {
			if x := slices.Index(r.Sets, o.Set); x >= 0 && of[0].Rate > 0 {
				l.X, l.Y = append(l.X, float64(x)), append(l.Y, o.Rate/of[0].Rate)
			}
		}
		p.Lines = append(p.Lines, l)
		f.Legend = append(f.Legend, figure.Entry{Text: fmt.Sprintf("%d bytes", size), Style: style})
	}
	f.Panels = []figure.Panel{p}
	return f
}

// policyFigure draws misses over the working set, a panel for each pattern and a line for each policy.
func (r *Result) policyFigure() figure.Figure {
	f := figure.Figure{ID: "ondemand-policies", Title: "Misses by policy",
		Caption: "Share of the uses of chunks that miss; writes of 64 KiB."}
	for style, policy := range r.Policies {
		f.Legend = append(f.Legend, figure.Entry{Text: policy, Style: style})
	}
	sets := slices.DeleteFunc(slices.Clone(r.Sets), func(set int) bool { return set < 50 })
	for _, name := range r.Patterns {
		p := figure.Panel{Title: name, XLabel: "working set, per cent of what may be pinned", YLabel: "missed"}
		for _, set := range sets {
			p.Names = append(p.Names, fmt.Sprint(set))
		}
		for style, policy := range r.Policies {
			l := figure.Line{Style: style}
			for x, set := range sets {
				for _, o := range r.points(func(p *Point) bool {
					return p.Kind == "write" && p.Bytes == chunk && p.Policy == policy && p.Pattern == name &&
						p.Set == set
				}) {
					l.X, l.Y = append(l.X, float64(x)), append(l.Y, o.Missed)
				}
			}
			p.Lines = append(p.Lines, l)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

func (r *Result) wayStudy(s *xlate.Study) {
	t := xlate.Table{ID: "ways", Title: "Ways to have memory for writes of 64 KiB",
		Caption: fmt.Sprintf("%d transfers at once, each a write and a wait. Registering makes memory anew, which a "+
			"program that has it already would copy; the cache of registrations has the budget of the space.", workers),
		Columns: []string{"way, set, pattern", "MB/s", "of registered", "p50, us", "p99, us", "MiB pinned"}}
	whole := 0.0
	for _, w := range r.Ways {
		if w.Name == "registered whole" {
			whole = w.Rate
		}
		t.Add(fmt.Sprintf("%s, %d %%, %s", w.Name, w.Set, w.Pattern), xlate.Cells("%.0f %.2f %.1f", w.Rate/1e6,
			w.Rate/whole, w.Latency.P50/1000, w.Latency.P99/1000, float64(w.Pinned)/(1<<20))...)
	}
	s.Tables = append(s.Tables, t)
}

// ratio is the median of the ratios within rounds.
func ratio(a, b []float64) float64 {
	var v []float64
	for i := range min(len(a), len(b)) {
		v = append(v, a[i]/b[i])
	}
	return report.Median(v)
}

func (r *Result) shareStudy(s *xlate.Study) {
	t := xlate.Table{ID: "shares", Title: "Writes of 64 KiB of which a part misses",
		Caption: fmt.Sprintf("%d in flight, medians of %d rounds in turns. Pages are there, unpinned. drop: daemons "+
			"leave frames for what is not resident unreceived, as hardware does; inline: what was evicted is used, "+
			"on a host without swap, pinned or not (misses in edged.toml).", deep, r.Rounds),
		Columns: []string{"misses", "MB/s", "of registered", "p99, us", "fetched for each"}}
	var whole []float64
	for _, p := range r.Shares {
		label := fmt.Sprintf("%s, %d %%", p.Variant, p.Percent)
		if p.Percent < 0 {
			label, whole = p.Variant+", registered", p.Rates
		}
		x := ratio(p.Rates, whole)
		t.Add(label, xlate.Cells("%.0f %.2f %.0f %.2f", report.Median(p.Rates)/1e6, x, report.Median(p.P99)/1000,
			p.Missed)...)
		if p.Percent == 100 && p.Variant == "inline" {
			goal(s, "all-miss", fmt.Sprintf("Writes of 64 KiB to evicted memory, pages there, reach %.1f of "+
				"registered memory's throughput (misses = inline, the default).", goalShare), x >= goalShare,
				"%.2f, with %.2f chunks fetched for each write", x, p.Missed)
		}
	}
	s.Tables = append(s.Tables, t)
}

func (r *Result) besideStudy(s *xlate.Study) {
	t := xlate.Table{ID: "bystander", Title: "Writes of 4 KiB by a bystander, us", Caption: fmt.Sprintf("One at a "+
		"time, to registered memory, while another client of the same daemons makes %d writes of 64 KiB a second. "+
		"Medians of %d rounds in turns; the ratio is to as many that hit. park, inline: misses in edged.toml.", paced,
		r.Rounds),
		Columns: []string{"beside", "p50", "p99", "p99, ratio", "its writes/s"}}
	hits := map[string][]float64{}
	for _, b := range r.Besides {
		if b.Load == loadHits {
			hits[b.Variant] = b.P99
		}
	}
	for _, b := range r.Besides {
		x := ratio(b.P99, hits[b.Variant])
		t.Add(b.Variant+", "+b.Load, xlate.Cells("%.1f %.1f %.2f %.0f", report.Median(b.P50)/1000,
			report.Median(b.P99)/1000, x, report.Median(b.Done))...)
		if b.Variant == "inline" && (b.Load == loadResident || b.Load == loadUntouched) {
			goal(s, b.Load, fmt.Sprintf("A bystander's p99 beside %s is within %.0f %% of that beside hits (misses = "+
				"inline, the default).", b.Load, 100*(goalBeside-1)), x <= goalBeside, "%.2f times", x)
		}
	}
	s.Tables = append(s.Tables, t)
}
