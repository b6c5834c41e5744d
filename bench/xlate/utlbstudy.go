package xlate

import (
	"context"
	"fmt"
	"math"
	"slices"

	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate/svm"
	"multiedge/regmem"
)

// Memory that a process may have pinned, in pages.
const (
	pages4MB  = 4 << 20 >> 12
	pages16MB = 16 << 20 >> 12
)

// cacheSizes are those of UTLB's tables.
var cacheSizes = Facts.UTLB.Table4.Sizes

// utlbParts are the tables and figures of UTLB, and what it names as left to do (§7): the per-process variant and other
// policies.
var utlbParts = []part{
	{"table3", table3, false},
	{"table4", func(r *runner, a *app) {
		breakdown(r, a, "table4", "Table 4: misses and unpins for each lookup, unlimited "+
			"memory", 0, &Facts.UTLB.Table4)
	}, false},
	{"table5", func(r *runner, a *app) {
		breakdown(r, a, "table5", "Table 5: misses and unpins for each lookup, 4 MB for each "+
			"process", pages4MB, &Facts.UTLB.Table5)
	}, false},
	{"table6", table6, false},
	{"table7", table7, false},
	{"table8", table8, false},
	{"figure7", figure7, false},
	{"figure8", figure8, false},
	{"per-process", perProcess, false},
	{"policies", policies, false},
	{"vmmc-table3", func(r *runner, a *app) {
		vmmcTraces(r, a, "vmmc-table3", "VMMC table 3: lookups with unlimited memory, at "+
			"the paper's costs of a hit and a miss", Facts.VMMC.Table3)
	}, true},
	{"vmmc-table4", func(r *runner, a *app) {
		vmmcTraces(r, a, "vmmc-table4", "VMMC table 4: lookups with limited memory, at "+
			"the paper's costs of a hit and a miss", Facts.VMMC.Table4)
	}, true},
}

// StudyUTLB repeats the trace-driven study of UTLB (§6).
func StudyUTLB(ctx context.Context, head report.Head, o Options) (*Study, error) {
	return o.study(&Study{Head: head, Title: "UTLB: translation under traces", Paper: Facts.UTLB.Paper,
		Origin: "Counts are of simulations under traces of kernels of our own that ran; times are computed from the " +
			"papers' costs. Only VMMC's tables 1 and 2 are measured on this machine."}, func(r *runner) {
		r.run(ctx, svm.Config{Nodes: 4, Procs: 4, Requests: true}, false, utlbParts)
		if o.Trace == nil { // what does not come from traces, and what the paper saw of its programs
			r.costModel()
			r.synthetic()
			r.vmmcHost()
			r.utlbTrends()
		}
		r.out.Figures = r.utlbFigures()
	})
}

func table3(r *runner, a *app) {
	t := r.table("table3", "Table 3: footprint and lookups of a node",
		"Pages of processes that sends and fetches of a node touch, and how many there are; ours / the paper's. "+
			"The trace is of our own kernels at this scale, so lookups for each page is what to compare by.",
		"kernel", "problem", "paper's problem", "footprint", "lookups", "lookups / page")
	lookups, _ := a.lookups.Count()
	nodes := float64(len(a.lookups.Nodes))
	foot, look := float64(a.footprint)/nodes, float64(lookups)/nodes
	if p, ok := Facts.UTLB.Table3[a.name]; ok {
		t.Add(a.name, Text(a.problem), Text(p.Problem), beside(foot, p.Footprint).as("%.0f"),
			beside(look, p.Lookups).as("%.0f"), beside(look/foot, p.Lookups/p.Footprint))
	} else {
		t.Add(a.name, Text(a.problem), Text("none"), ours(foot).as("%.0f"), ours(look).as("%.0f"), ours(look/foot))
	}
}

// breakdown is table 4 or 5.
func breakdown(r *runner, a *app, id, title string, limit int, paper *Breakdown) {
	t := r.table(id, title, "Direct-mapped cache with offset, no prefetch, least recently used page unpinned "+
		"first; ours / the paper's. Costs by the model, in microseconds.",
		"kernel, entries", "check misses", "NI misses", "unpins", "cost", "NI misses, "+
			"intr", "unpins, intr", "cost, intr")
	costs := &Facts.UTLB.Costs
	for i, size := range cacheSizes {
		u, v := r.bothRates(a, size, limit)
		mine := []float64{u.Check, u.NI, u.Unpin, costs.UTLB(u), v.NI, v.Unpin, costs.Intr(v)}
		var theirs []float64
		if p, ok := paper.Apps[a.name]; ok {
			pu, pv := p.UTLB.At(i), p.Intr.At(i)
			theirs = []float64{pu.Check, pu.NI, pu.Unpin, costs.UTLB(pu), pv.NI, pv.Unpin, costs.Intr(pv)}
		}
		t.Add(a.name+" "+short(size), cells("", mine, theirs)...)
	}
}

// bothRates are the rates of the UTLB and of the interrupt mechanism.
func (r *runner) bothRates(a *app, entries, limit int) (utlb, intr Rates) {
	return r.simulate(a, Config{Entries: entries, Limit: limit}).Rates(),
		r.simulate(a, Config{Mechanism: Intr, Entries: entries, Limit: limit}).Rates()
}

// cells puts two rows of numbers beside each other; theirs may be missing.
func cells(form string, mine, theirs []float64) (list []Cell) {
	for i, v := range mine {
		if i < len(theirs) {
			list = append(list, beside(v, theirs[i]).as(form))
		} else {
			list = append(list, ours(v).as(form))
		}
	}
	return list
}

func table6(r *runner, a *app) {
	t := r.table("table6", "Table 6: cost of a lookup (us)", "The cost model on the rates of table 4: on ours / "+
		"on the paper's, which gives the paper's table 6. The paper shows Barnes and FFT.",
		"kernel, entries", "UTLB", "interrupt")
	for i, size := range []int{1024, 4096, 16384} {
		u, v := r.bothRates(a, size, 0)
		mine := []float64{Facts.UTLB.Costs.UTLB(u), Facts.UTLB.Costs.Intr(v)}
		var theirs []float64
		if p, ok := Facts.UTLB.Table4.Apps[a.name]; ok {
			theirs = []float64{Facts.UTLB.Costs.UTLB(p.UTLB.At(2 * i)), Facts.UTLB.Costs.Intr(p.Intr.At(2 * i))}
		}
		t.Add(a.name+" "+short(size), cells("%.1f", mine, theirs)...)
	}
}

func table7(r *runner, a *app) {
	t := r.table("table7", "Table 7: pinning and unpinning for each lookup (us)", "Sequential pre-pinning of 1 "+
		"and of 16 pages, 16 MB for each process; calls cost what the paper's table 1 says for their pages.",
		"kernel", "pin 1", "pin 16", "unpin 1", "unpin 16")
	var mine [4]float64
	for i, n := range []int{1, 16} {
		c := r.simulate(a, Config{Entries: 8192, Limit: pages16MB, Prepin: n})
		mine[i], mine[2+i] = c.PinMicros/float64(c.Lookups), c.UnpinMicros/float64(c.Lookups)
	}
	var theirs []float64
	if p, ok := Facts.UTLB.Table7[a.name]; ok {
		theirs = []float64{p.Pin[0], p.Pin[1], p.Unpin[0], p.Unpin[1]}
	}
	t.Add(a.name, cells("%.1f", mine[:], theirs)...)
}

// table8Rows are the caches of table 8.
var table8Rows = []struct {
	name string
	ways int
	no   bool
}{{"direct", 1, false}, {"2-way", 2, false}, {"4-way", 4, false}, {"direct-nohash", 1, true}}

func table8(r *runner, a *app) {
	t := r.table("table8", "Table 8: NI misses for each lookup by size and associativity",
		"Unlimited memory, no prefetch. The paper's columns are not shown beside these: each of its rows is "+
			"sorted by value, whatever its heads say (the row of 1 K direct holds table 4's values in rising "+
			"order), so that they name no application.",
		append([]string{"kernel, cache"}, sizeNames()...)...)
	for _, c := range table8Rows {
		var row []Cell
		for _, size := range cacheSizes {
			n := r.simulate(a, Config{Entries: size, Ways: c.ways, NoOffset: c.no})
			row = append(row, ours(n.Rates().NI))
		}
		t.Add(a.name+" "+c.name, row...)
	}
}

func sizeNames() (names []string) {
	for _, size := range cacheSizes {
		names = append(names, short(size))
	}
	return names
}

func figure7(r *runner, a *app) {
	t := r.table("figure7", "Figure 7: why lookups miss on the network interface", "Direct-mapped with offset, "+
		"unlimited memory, no prefetch. Compulsory: never seen before. Capacity: a fully associative cache of "+
		"this size would have missed as well. Conflict: it would not.",
		"kernel, entries", "compulsory", "capacity", "conflict")
	for _, size := range cacheSizes {
		c := r.simulate(a, Config{Entries: size, Classify: true})
		n := float64(c.Lookups)
		t.Add(a.name+" "+short(size),
			ours(float64(c.Compulsory)/n), ours(float64(c.Capacity)/n), ours(float64(c.Conflict)/n))
	}
}

// prefetches are the entries that a miss fetches in figure 8.
var prefetches = []int{1, 2, 4, 8, 16, 32}

func figure8(r *runner, a *app) {
	t := r.table("figure8", "Figure 8: prefetching entries", "NI misses for each lookup, and its cost in "+
		"microseconds, by the entries that a miss fetches; direct-mapped, unlimited memory. The first four lines "+
		"pin as many pages at a time as are fetched, the others one: then there is little to fetch.",
		"kernel, entries", "1", "2", "4", "8", "16", "32")
	for _, prepin := range []bool{true, false} {
		for _, size := range []int{1024, 4096, 16384} {
			var miss, cost []Cell
			for _, k := range prefetches {
				cfg := Config{Entries: size, Prefetch: k}
				if prepin {
					cfg.Prepin = k
				}
				c := r.simulate(a, cfg)
				miss, cost = append(miss, ours(c.Rates().NI)), append(cost, ours(c.Micros()).as("%.1f"))
			}
			label := a.name + " " + short(size)
			if prepin {
				label += ", pre-pinned"
			}
			t.Add(label, miss...)
			t.Add(label+", us", cost...)
		}
	}
}

func perProcess(r *runner, a *app) {
	t := r.table("per-process", "Not in the paper: a table for each process (§3.1) instead of the shared "+
		"cache", "The same memory of the network interface, cut into tables for each process: it cannot miss "+
		"there, but what does not fit is unpinned. Costs in microseconds; unlimited memory.",
		"kernel, entries", "check misses", "unpins", "cost", "cost, shared cache")
	for _, size := range cacheSizes {
		c := r.simulate(a, Config{Mechanism: PerProcess, Entries: size})
		u := r.simulate(a, Config{Entries: size})
		v := c.Rates()
		t.Add(a.name+" "+short(size), ours(v.Check), ours(v.Unpin), ours(Facts.UTLB.Costs.PerProcess(v)),
			ours(Facts.UTLB.Costs.UTLB(u.Rates())))
	}
}

// policyNames are the policies of the application, and the bound that needs to know the future.
func policyNames() []string { return slices.Concat(regmem.Policies, []string{"optimal"}) }

// policyRow is the check misses for each lookup under each of them.
func (r *runner) policyRow(a *app, limit int) (row []Cell) {
	for i := range policyNames() {
		cfg := Config{Entries: 8192, Limit: limit}
		if i < len(regmem.Policies) {
			cfg.Policy = regmem.Policy(i)
		} else {
			cfg.Optimal = true
		}
		c := r.simulate(a, cfg)
		row = append(row, ours(c.Rates().Check))
	}
	return row
}

func policies(r *runner, a *app) {
	t := r.table("policies", "Not in the paper: which page to unpin", "Check misses for each lookup with 8K "+
		"entries and a quarter or a half of the process's footprint as its limit.",
		append([]string{"kernel, limit"}, policyNames()...)...)
	each := a.footprint / len(a.lookups.Nodes) / a.lookups.Processes
	for _, part := range []int{4, 2} {
		limit := max(each/part, 1)
		row := r.policyRow(a, limit)
		t.Add(fmt.Sprintf("%s, 1/%d: %d pages", a.name, part, limit), row...)
	}
}

// synthetic is the table of policies over patterns whose right answer is known.
func (r *runner) synthetic() {
	if !r.wanted("synthetic") {
		return
	}
	const budget = 512
	t := r.table("synthetic", "Not in the paper: policies under synthetic patterns", "Check misses for each "+
		"lookup; the pattern has twice as many pages as may be pinned. Cyclic use is why an application wants its "+
		"own policy: LRU always misses, MRU keeps half.",
		append([]string{"pattern"}, policyNames()...)...)
	for _, name := range synthetic {
		l := kit.Get(NewLookups(kit.Get(Synthetic(name, 2*budget, 40*budget, r.o.Seed)), false))
		t.Add(name, r.policyRow(&app{name: name, lookups: l}, budget)...)
	}
}

// costModel shows that the model gives the paper's table 6 from its table 4.
func (r *runner) costModel() {
	if !r.wanted("table6") {
		return
	}
	t := r.table("cost-model", "The cost model against the paper", "From the paper's table 4 by its own formula / "+
		"the paper's table 6, in microseconds. The costs of pinning (17.5) and unpinning (14.5) in the kernel are "+
		"not in the paper: with these, its interrupt column follows.",
		"application, entries", "UTLB", "interrupt")
	worst := 0.0
	for _, c := range Facts.UTLB.Table6 {
		u, v := ModelTable6(c)
		worst = max(worst, math.Abs(u-c.UTLB), math.Abs(v-c.Intr))
		t.Add(c.App+" "+short(c.Entries), beside(u, c.UTLB), beside(v, c.Intr))
	}
	r.trend("cost-model", "table 6", "The mean cost of a lookup follows from the rates of table "+
		"4.", worst <= 0.1, "", "the largest difference is %.2f us", worst)
}

// ModelTable6 computes a cell of the paper's table 6 from its table 4.
func ModelTable6(c LookupCost) (utlb, intr float64) {
	i, p := slices.Index(cacheSizes, c.Entries), Facts.UTLB.Table4.Apps[c.App]
	if i < 0 {
		return 0, 0
	}
	return Facts.UTLB.Costs.UTLB(p.UTLB.At(i)), Facts.UTLB.Costs.Intr(p.Intr.At(i))
}

// utlbFigures draws figures 7 and 8, and the costs of table 4.
func (r *runner) utlbFigures() (figs []figure.Figure) {
	r.with("figure7", func(t *Table) {
		kinds, colours := t.Columns[1:], []int{0, 1, 4}
		f := figure.Figure{ID: "figure7", Title: "Figure 7: why lookups miss", Caption: t.Caption,
			Legend: boxes(kinds, colours)}
		r.panels(&f, "entries of the cache", "misses for each lookup", func(p *figure.Panel) {
			p.Names = sizeNames()
			for _, size := range sizeNames() {
				p.Bars = append(p.Bars, []figure.Bar{t.stack(p.Title+" "+size, kinds, colours)})
			}
		})
		figs = append(figs, f)
	})
	r.with("figure8", func(t *Table) {
		figs = append(figs, r.prefetchFigure(t, "figure8-misses", "", "Figure 8: prefetching, misses",
			"misses for each lookup"), r.prefetchFigure(t, "figure8-cost", ", us", "Figure 8: prefetching, cost",
			"cost of a lookup (us)"))
	})
	r.with("table4", func(t *Table) { figs = append(figs, r.costFigure(t)) })
	return figs
}

func (r *runner) prefetchFigure(t *Table, id, suffix, title, label string) figure.Figure {
	f := figure.Figure{ID: id, Title: title, Caption: "By the entries that a miss fetches. Solid: as many pages " +
		"are pinned at a time; dashed: one. The paper draws Radix."}
	for i, size := range []string{"1K", "4K", "16K"} {
		f.Legend = append(f.Legend, figure.Entry{Text: size + " entries", Style: i})
	}
	r.panels(&f, "entries fetched by a miss", label, func(p *figure.Panel) {
		p.Names = t.Columns[1:]
		for i, size := range []string{"1K", "4K", "16K"} {
			for _, way := range []string{", pre-pinned", ""} {
				l := figure.Line{Style: i, Thin: way == ""}
				for x, column := range t.Columns[1:] {
					l.X, l.Y = append(l.X, float64(x)), append(l.Y, t.get(p.Title+" "+size+way+suffix, column))
				}
				p.Lines = append(p.Lines, l)
			}
		}
	})
	return f
}

// panels adds a panel for each app to a figure, which fill makes by its title, the app's name.
func (r *runner) panels(f *figure.Figure, x, y string, fill func(p *figure.Panel)) {
	for _, a := range r.apps {
		p := figure.Panel{Title: a.name, XLabel: x, YLabel: y}
		fill(&p)
		f.Panels = append(f.Panels, p)
	}
}

// costFigure draws the cost of a lookup over the size of the cache, ours and the paper's.
func (r *runner) costFigure(t *Table) figure.Figure {
	f := figure.Figure{ID: "table4-cost", Title: "Cost of a lookup: UTLB and interrupts", Caption: "By the cost " +
		"model on the rates of table 4. Solid: ours; dashed: from the paper's rates.",
		Legend: []figure.Entry{{Text: "UTLB", Style: 0}, {Text: "interrupt", Style: 1}}}
	r.panels(&f, "entries of the cache", "cost of a lookup (us)", func(p *figure.Panel) {
		p.Names = sizeNames()
		for style, column := range []string{"cost", "cost, intr"} {
			mine, theirs := figure.Line{Style: style}, figure.Line{Style: style, Thin: true}
			for x, size := range sizeNames() {
				c := t.cell(p.Title+" "+size, column)
				mine.X, mine.Y = append(mine.X, float64(x)), append(mine.Y, *c.Ours)
				if c.Paper != nil {
					theirs.X, theirs.Y = append(theirs.X, float64(x)), append(theirs.Y, *c.Paper)
				}
			}
			p.Lines = append(p.Lines, mine)
			if len(theirs.X) > 0 {
				p.Lines = append(p.Lines, theirs)
			}
		}
	})
	return f
}

// existing returns a table that was made; nil if it was not asked for.
func (r *runner) existing(id string) *Table {
	if i := slices.IndexFunc(r.out.Tables, func(t Table) bool { return t.ID == id }); i >= 0 {
		return &r.out.Tables[i]
	}
	return nil
}

// with does something with a table, if it was asked for.
func (r *runner) with(id string, do ...func(*Table)) {
	if t := r.existing(id); t != nil {
		for _, f := range do {
			f(t)
		}
	}
}

// stack is a bar of some columns of a row, with a colour for each.
func (t *Table) stack(row string, columns []string, colours []int) (b figure.Bar) {
	for i, c := range columns {
		b.Parts = append(b.Parts, figure.Part{Value: t.get(row, c), Color: colours[i]})
	}
	return b
}

// boxes is the legend of stacked bars.
func boxes(names []string, colours []int) (l []figure.Entry) {
	for i, name := range names {
		l = append(l, figure.Entry{Text: name, Style: colours[i], Bar: true})
	}
	return l
}
