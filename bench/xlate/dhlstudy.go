package xlate

import (
	"context"
	"fmt"
	"math"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate/svm"
)

// Parameters of DHL's table III.
var (
	dhlSizes = []int{8 << 10, 16 << 10, 32 << 10}
	dhlLines = []int{8, 16, 64, 128}
	dhlWays  = []int{2, 4, 8}
)

// dhlBest is what the paper found to be the best tradeoff: 16K entries, lines of 64, 4 ways.
var dhlBest = DHLConfig{Entries: 16 << 10, Line: 64, Ways: 4}

var dhlParts = []part{
	{"figure3", dhlFigure3, true}, {"figure5", dhlFigure5, false}, {"figure6", dhlFigure6, true},
	{"figure7", dhlFigure7, true}, {"high-water", dhlHighWater, false},
}

// StudyDHL repeats what of DHL's evaluation (§V) traces can tell. Its figure 4 is a measurement of a network:
// "edgestudy ondemand --only misses" draws it.
func StudyDHL(ctx context.Context, head report.Head, o Options) (*Study, error) {
	return o.study(&Study{Head: head, Title: "Dynamic handle lookup under traces", Paper: Facts.DHL.Paper,
		Origin: "Counts are of simulations under traces of kernels of our own that ran; times are computed from the " +
			"papers' costs. Nothing here is measured on this machine."}, func(r *runner) {
		r.run(ctx, svm.Config{Nodes: 4, Procs: 2}, true, dhlParts)
		if o.Trace == nil {
			r.dhlTrends()
		}
		r.out.Figures = r.dhlFigures()
	})
}

func dhlFigure3(r *runner, a *app) {
	t := r.table("figure3", "Figure 3: memory of the network interface for addresses (KiB of a node)",
		"A word for each page of shared memory, which a node must hold when nothing is registered on demand, "+
			"against the cache of C16.L64.A4 with its tags. The paper says 256 for its static table and 75 for "+
			"this cache; its lookups in all take 520 and 130, and all its memory 800 and 400.",
		"kernel", "static table", "cache", "saved")
	static := 4 * float64(a.shared) / 1024
	cache := float64(dhlBest.Bytes()) / 1024
	t.Add(a.name, beside(static, Facts.DHL.VMH[0]).as("%.0f"), beside(cache, Facts.DHL.VMH[1]).as("%.0f"),
		beside(100*(1-cache/static), 100*(1-Facts.DHL.VMH[1]/Facts.DHL.VMH[0])).as("%.0f %%"))
}

// dhlConfigs are all configurations of table III, in figure 5's order.
func dhlConfigs() (all []DHLConfig) {
	for _, c := range dhlSizes {
		for _, l := range dhlLines {
			for _, a := range dhlWays {
				all = append(all, DHLConfig{Entries: c, Line: l, Ways: a})
			}
		}
	}
	return all
}

func dhlFigure5(r *runner, a *app) {
	t := r.table("figure5", "Figure 5: misses for each lookup (%)", "By path and by whether the line was ever "+
		"looked up before (cold) or not. The paper gives its figure without numbers.",
		"kernel, configuration", "send, cold", "send, non-cold", "receive, cold", "receive, non-cold", "all")
	for _, cfg := range dhlConfigs() {
		n := r.simulateDHL(a, cfg)
		var row []Cell
		for _, v := range []uint64{n.Cold[SendPath], n.Warm[SendPath], n.Cold[ReceivePath], n.Warm[ReceivePath],
			n.Misses()} {
			row = append(row, ours(100*n.Ratio(v)))
		}
		t.Add(a.name+" "+cfg.Name(), row...)
	}
}

// seconds is the time of a run by the model: the processes wait for misses, all alike.
func (a *app) seconds(stall float64) float64 {
	return float64(a.time)/1e9 + stall/1e6/float64(len(a.lookups.Nodes)*a.lookups.Processes)
}

func dhlFigure6(r *runner, a *app) {
	t := r.table("figure6", "Figure 6: speedup on 8 processors, by the model",
		"Time of one processor over that of eight, as the shared memory model has it; a miss waits 25 us for its "+
			"handler (the middle of the paper's 0 to 50) and for pinning and fetching the line by UTLB's tables 1 "+
			"and 2. A model, to compare configurations by: nothing was run.",
		"kernel, line", "C8.A4", "C16.A4", "C32.A4", "static")
	for _, line := range dhlLines {
		var row []Cell
		for _, size := range dhlSizes {
			n := r.simulateDHL(a, DHLConfig{Entries: size, Line: line, Ways: 4})
			row = append(row, ours(float64(a.work)/1e9/a.seconds(n.Stall)))
		}
		t.Add(fmt.Sprintf("%s L%d", a.name, line), append(row, ours(float64(a.work)/1e9/a.seconds(0)))...)
	}
}

func dhlFigure7(r *runner, a *app) {
	t := r.table("figure7", "Figure 7: run time with dynamic lookup over that without, by the model", "The best "+
		"configuration of each kernel; static tables are pinned before the run. The paper: at most 1.03 for all "+
		"but one program (Radix).",
		"kernel", "best configuration", "run time", "C16.L64.A4")
	best, at := 0.0, DHLConfig{}
	for _, cfg := range dhlConfigs() {
		n := r.simulateDHL(a, cfg)
		if v := a.seconds(n.Stall) / a.seconds(0); best == 0 || v < best {
			best, at = v, cfg
		}
	}
	n := r.simulateDHL(a, dhlBest)
	t.Add(a.name, Text(at.Name()), ours(best).as("%.3f"), ours(a.seconds(n.Stall)/a.seconds(0)).as("%.3f"))
}

// dhlHighWater shows what the slow pass does, which the paper describes and does not measure.
func dhlHighWater(r *runner, a *app) {
	t := r.table("high-water", "Not in the paper: the high-water mark", "C16.L64.A4 with a mark of a half of what "+
		"a node pins without one, looked at every 1,024 lookups. Lines that were unpinned and missed again are "+
		"what it costs.",
		"kernel", "pages pinned without", "mark", "pages pinned with", "lines unpinned", "pinned again", "misses")
	free := r.simulateDHL(a, dhlBest)
	cfg := dhlBest
	cfg.HighWater, cfg.Every = max(free.Most/2, cfg.Line), 1024
	n := r.simulateDHL(a, cfg)
	t.Add(a.name, ours(float64(free.Most)).as("%.0f"), ours(float64(cfg.HighWater)).as("%.0f"),
		ours(float64(n.Most)).as("%.0f"),
		ours(float64(n.Unpins)).as("%.0f"), ours(float64(n.Repins)).as("%.0f"),
		ours(100*n.Ratio(n.Misses())).as("%.2f %%"))
}

// dhlTrends says of what the paper saw whether it is so here.
func (r *runner) dhlTrends() {
	r.with("figure5", r.dhlMissTrends)
	r.with("figure7", func(t *Table) {
		var n among
		for _, a := range r.apps {
			v := t.get(a.name, "run time")
			n.count(fmt.Sprintf("%s (%.3f)", a.name, v), v <= 1+Facts.DHL.Overhead)
		}
		r.trend("overhead", "figure 7", "Run time grows by at most 3 % for all but one program.", len(n.no) <= 1,
			"The runs are short: nearly all misses of Radix and FFT are first uses, whose pinning is charged here "+
				"and would be spread over a longer run. Radix is the paper's exception as well.", "%s kernels", &n)
	})
	r.with("figure3", func(t *Table) {
		small, cache := 0.0, t.get(r.apps[0].name, "cache")
		for _, a := range r.apps {
			small = max(small, t.get(a.name, "static table"))
		}
		r.trend("memory", "figure 3", "A cache of C16.L64.A4 takes less than the table of all pages (75 of 256 "+
			"KiB).", small > cache, "Problems this small have tables smaller than that cache.",
			"cache of %.0f KiB; tables up to %.0f KiB (smaller problems have smaller tables than the cache)", cache,
			small)
	})
}

func (r *runner) dhlMissTrends(t *Table) {
	at := func(a *app, c, l, w int) float64 {
		return t.get(a.name+" "+DHLConfig{c << 10, l, w, 0, 0}.Name(), "all")
	}
	var lines, small, half, four, eight among
	lo, hi := 100.0, 0.0
	for _, a := range r.apps {
		lines.count(a.name, at(a, 32, 128, 4) < at(a, 32, 8, 4))
		small.count(a.name, at(a, 32, 8, 4)*at(a, 8, 128, 4) >= at(a, 32, 128, 4)*at(a, 8, 8, 4))
		four.count(a.name, at(a, 8, 64, 4) <= at(a, 8, 64, 2)+0.05)
		eight.count(a.name, math.Abs(at(a, 16, 64, 8)-at(a, 16, 64, 4)) <=
			max(math.Abs(at(a, 16, 64, 4)-at(a, 16, 64, 2)), 1))
		if a.name == "fft" || a.name == "lu" {
			half.count(a.name, at(a, 32, 128, 4) <= at(a, 16, 128, 4)/2)
		}
		for _, cfg := range dhlConfigs() {
			v := t.get(a.name+" "+cfg.Name(), "all")
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	r.trend("lines", "figure 5", "Longer lines prefetch well: at 32K entries, lines of 128 miss less than lines "+
		"of 8.", lines.all(), "Ocean's borders are pages of rows that lie further apart than a line. The paper has "+
		"more conflicts of Ocean, too, with lines of 64 and 128.", "%s kernels", &lines)
	r.trend("range", "figure 5", "Misses range from about 0 to 40 % over all "+
		"configurations.", lo < 3 && hi >= 30 && hi <= 60,
		"A process of FFT uses one page of eight, so that lines of 8 bring nothing else that it needs and the "+
			"smallest cache has room for an eighth of it. LU's blocks are dealt out in turns, to the same effect.",
		"%.1f to %.1f %%", lo, hi)
	r.trend("size", "figure 5", "The size of the cache matters little for short lines, more for long "+
		"ones.", small.all(), "What the kernels named use at a time lies between 8K and 32K entries, however long the "+
		"lines: size matters as much for short ones.", "%s kernels", &small)
	if half.yes+len(half.no) > 0 {
		r.trend("half", "figure 5", "From 16K to 32K entries with lines of 128, FFT and LU miss less than half as "+
			"often.", half.all(),
			"Three of five misses that FFT has left at 16K entries are first uses; a quarter of the memory (LU at "+
				"scale 0.25) leaves hardly any others to end.", "%s kernels", &half)
	}
	r.trend("ways-4", "figure 5", "Four ways miss no more than two, with small caches.", four.all(), "In a cycle "+
		"longer than the cache, LRU in larger sets evicts what comes next.", "%s kernels", &four)
	r.trend("ways-8", "figure 5", "From four to eight ways the effect is smaller.", eight.all(),
		"A working set that four ways do not hold side by side may need eight.", "%s kernels", &eight)
}

// dhlFigures draws figures 5 and 6.
func (r *runner) dhlFigures() (figs []figure.Figure) {
	r.with("figure5", func(t *Table) {
		kinds, colours := t.Columns[1:5], []int{0, 5, 1, 4}
		f := figure.Figure{ID: "figure5", Title: "Figure 5: misses by path and kind", Legend: boxes(kinds, colours),
			Caption: "For each size and line, bars of 2, 4 and 8 ways."}
		r.panels(&f, "cache size (K entries), line", "misses for each lookup (%)", func(p *figure.Panel) {
			p.Width = 1.25
			for _, c := range dhlSizes {
				for _, l := range dhlLines {
					p.Names = append(p.Names, fmt.Sprintf("%d,%d", c>>10, l))
					var group []figure.Bar
					for _, w := range dhlWays {
						group = append(group, t.stack(p.Title+" "+DHLConfig{c, l, w, 0, 0}.Name(), kinds, colours))
					}
					p.Bars = append(p.Bars, group)
				}
			}
		})
		figs = append(figs, f)
	})
	r.with("figure6", func(t *Table) {
		kinds, colours := t.Columns[1:], []int{0, 1, 2, 3}
		f := figure.Figure{ID: "figure6", Title: "Figure 6: speedup by the model", Caption: t.Caption,
			Legend: boxes(kinds, colours)}
		r.panels(&f, "entries of a line", "speedup", func(p *figure.Panel) {
			for _, l := range dhlLines {
				p.Names = append(p.Names, fmt.Sprint(l))
				var group []figure.Bar
				for i := range kinds {
					group = append(group, t.stack(fmt.Sprintf("%s L%d", p.Title, l), kinds[i:i+1], colours[i:]))
				}
				p.Bars = append(p.Bars, group)
			}
		})
		figs = append(figs, f)
	})
	return figs
}
