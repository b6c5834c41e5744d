package figure

import (
	"fmt"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// measured is what the sources have, by what it was measured for.
type measured struct {
	base, links, conns, shards, sched, poll rowset
	copies, aligned, places, turns          rowset // turns: interleaved with other transports
}

// rowset is the rows that were measured for one purpose.
type rowset []entry

func partsOf(sources []Source) (m measured) {
	var rest []entry
	m.copies, m.aligned, rest = copyRows(entries(sources, single))
	m.shards, rest = shardRows(rest)
	m.sched, rest = varied(rest, "scheduler", nothing)
	m.poll, rest = varied(rest, "poll", nothing)
	m.conns, rest = varied(rest, "connections", nothing)
	m.links, m.base = linkRows(rest)
	m.places = entries(sources, func(r *report.Row) bool { return r.Test == report.Place && r.Error == "" })
	m.turns = entries(sources, interleaved)
	return m
}

// Build returns the figures that the sources have data for, in the paper's order.
func Build(sources []Source) []Figure {
	m := partsOf(sources)
	swept, few := sweptRows(m.turns)
	all := append(besideFigures(swept), throughput(m.base), latency(m.base), percentiles(m.base), cpu(m.base),
		rate(m.base), polling(m.poll), pollingCPU(m.poll), schedulers(m.sched), linkScaling(m.links),
		connScaling(m.conns), shardScaling(m.shards), shardCPU(m.shards), zeroCopy(m.copies), zeroCopyCPU(m.copies),
		zeroCopyLatency(m.copies), alignment(m.aligned), placing(m.places))
	all = append(all, comparisons(few)...)
	all = slices.DeleteFunc(all, func(f Figure) bool { return len(f.Panels) == 0 })
	for i := range all {
		all[i].explain()
	}
	return all
}

// explain says in the caption what whiskers and hollow points mean, where a figure has them.
func (f *Figure) explain() {
	spread, busy := false, false
	for i := range f.Panels {
		for _, l := range f.Panels[i].Lines {
			for n := range l.X {
				spread = spread || n < len(l.Lo) && l.Lo[n] < l.Hi[n]
				busy = busy || l.busy(n)
			}
		}
		for _, group := range f.Panels[i].Bars {
			for _, b := range group {
				busy = busy || strings.HasSuffix(b.Label, busyMark)
			}
		}
	}
	if spread {
		f.Caption += " Points are medians over repeats, whiskers the smallest and the largest."
	}
	if busy {
		f.Caption += " Hollow points, and bars marked " + busyMark + ": the machine was busy with something else."
	}
}

// busyMark is on bars that were disturbed.
const busyMark = "*"

// trim drops empty panels.
func (f *Figure) trim() Figure {
	f.Panels = slices.DeleteFunc(f.Panels, func(p Panel) bool { return p.empty() })
	return *f
}

// done adds the legend of the configurations drawn, and drops empty panels.
func (f *Figure) done(st styles) Figure {
	f.Legend = legend(st)
	return f.trim()
}

// curves draws configurations over message size: of each the value, with its range over repeats, and dashed the tail,
// where there is one.
func (p Panel) curves(cs []config, st *styles, value, tail func(entry) float64) Panel {
	for _, c := range cs {
		l := line(c.rows, 0, value)
		if len(l.X) == 0 {
			continue
		}
		l.Style = st.of(c.label)
		if p.Lines = append(p.Lines, l); tail != nil {
			t := line(c.rows, l.Style, tail)
			p.Lines = append(p.Lines, Line{X: t.X, Y: t.Y, Style: l.Style, Thin: true})
		}
	}
	return p
}

// legend lists configurations in the order of their styles.
func legend(labels []string) []Entry {
	var l []Entry
	for i, s := range labels {
		l = append(l, Entry{Text: s, Style: i})
	}
	return l
}

// styles gives each configuration label of all panels of a figure its style, so that a colour means one thing.
type styles []string

func (s *styles) of(label string) int {
	if i := slices.Index(*s, label); i >= 0 {
		return i
	}
	*s = append(*s, label)
	return len(*s) - 1
}

const sizeLabel = "message size (bytes)"

// tests that move data and are drawn over message size.
var sizeTests = []string{report.OneWay, report.TwoWay, report.PingPong, report.Read}

// throughput is figure 3.1, right column.
func throughput(rows []entry) Figure {
	f := Figure{ID: "throughput", Title: "Throughput",
		Caption: "Payload delivered per second over message size. Two-way counts both directions (paper, figure 3.1)."}
	return f.throughputs(rows, sizeTests...)
}

// throughputs has a panel of throughput for each test.
func (f *Figure) throughputs(rows []entry, tests ...string) Figure {
	var st styles
	for _, test := range tests {
		f.Panels = append(f.Panels, throughputPanel(only(rows, test), test, &st))
	}
	return f.done(st)
}

// The values of a row that figures draw.
func gbits(e entry) float64    { return e.Throughput * 8 / 1e9 }
func millions(e entry) float64 { return e.OperationsPerSecond / 1e6 }
func median(e entry) float64   { return micros(e.Latency, e.Latency.P50) }
func tail(e entry) float64     { return micros(e.Latency, e.Latency.P99) }

// perGiB is what an end of a row costs for each GiB of payload, in seconds.
func perGiB(end report.End, e entry) float64 {
	return end.Total / (float64(max(e.Bytes, 1)) / (1 << 30))
}

func throughputPanel(rows []entry, title string, st *styles) Panel {
	p := Panel{Title: title, XLabel: sizeLabel, YLabel: "throughput (Gbit/s)", SizeX: true}
	if len(rows) == 0 {
		return p
	}
	limit, cs := nominal(rows[0].Row), configs(rows)
	for _, c := range cs {
		if nominal(c.rows[0].Row) != limit {
			limit = 0
		}
	}
	p = p.curves(cs, st, gbits, nil)
	if limit > 0 && rows[0].Test != report.PingPong {
		p.Level = &Level{Y: limit, Text: fmt.Sprintf("nominal %s Gbit/s", number(limit))}
	}
	return p
}

// latency is figure 3.1, left column: half a round trip for ping-pong, the time to initiate an operation for one-way
// and two-way.
func latency(rows []entry) Figure {
	f := Figure{
		ID: "latency", Title: "Latency",
		Caption: "Ping-pong: half a round trip, application to application; median, and dashed the 99th percentile. " +
			"One-way and two-way: the time a posting call takes, as in the paper. Read: from posting to completion " +
			"(paper, figure 3.1).",
	}
	var st styles
	post := func(e entry) float64 { return micros(e.Post, e.Post.P50) }
	for _, t := range []struct {
		test, title string
		value, tail func(entry) float64
	}{
		{report.PingPong, "ping-pong: half round trip", median, tail},
		{report.OneWay, "one-way: time to post", post, nil},
		{report.TwoWay, "two-way: time to post", post, nil},
		{report.Read, "read: completion", median, tail},
	} {
		p := Panel{Title: t.title, XLabel: sizeLabel, YLabel: "latency (us)", SizeX: true, LogY: true}
		f.Panels = append(f.Panels, p.curves(configsOf(rows, t.test), &st, t.value, t.tail))
	}
	return f.done(st)
}

func configsOf(rows []entry, test string) []config {
	rows = only(rows, test)
	if len(rows) == 0 {
		return nil
	}
	return configs(rows)
}

// percentiles shows the tail of ping-pong for a few message sizes, one panel for each of the first configurations.
func percentiles(rows []entry) Figure {
	f := Figure{ID: "percentiles", Title: "Latency percentiles",
		Caption: "Half a round trip of ping-pong by percentile, from an HDR histogram."}
	var st styles
	for _, c := range configsOf(rows, report.PingPong) {
		if len(f.Panels) == 3 {
			break
		}
		p := Panel{Title: "ping-pong, " + c.label, XLabel: "percentile", YLabel: "latency (us)", LogY: true,
			Names: []string{"min", "50", "90", "99", "99.9", "99.99", "max"}}
		for _, size := range spread(sizes(c.rows), 5) {
			i := slices.IndexFunc(c.rows, func(e entry) bool { return e.MessageBytes == size && e.Latency.Count > 0 })
			if i < 0 {
				continue
			}
			l := c.rows[i].Latency
			line := Line{Style: st.of(report.Bytes(size))}
			for x, ns := range []float64{l.Min, l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max} {
				line.X, line.Y = append(line.X, float64(x)), append(line.Y, ns/1e3)
			}
			p.Lines = append(p.Lines, line)
		}
		f.Panels = append(f.Panels, p)
	}
	return f.done(st)
}

// spread picks at most n of v, evenly, with both ends.
func spread(v []int, n int) []int {
	if len(v) <= n {
		return v
	}
	out := make([]int, n)
	for i := range out {
		out[i] = v[i*(len(v)-1)/(n-1)]
	}
	return out
}

// rate is the number of small operations per second.
func rate(rows []entry) Figure {
	f := Figure{ID: "rate", Title: "Small operations", Caption: "Operations completed per second over operation size."}
	var st styles
	p := Panel{Title: "rate", XLabel: "operation size (bytes)", YLabel: "million operations/s", SizeX: true}
	f.Panels = []Panel{p.curves(configsOf(rows, report.Rate), &st, millions, nil)}
	return f.done(st)
}

// schedulers is figure 3.5: throughput, and processor time of the sending end, with one curve or bar for each
// scheduler.
func schedulers(rows []entry) Figure {
	f := Figure{ID: "schedulers", Title: "Schedulers"}
	if len(rows) == 0 {
		return f
	}
	var st styles
	for _, test := range sizeTests {
		for _, g := range grouped(only(rows, test), linksOf) {
			f.Panels = append(f.Panels, throughputPanel(g.rows, test+", "+g.label, &st))
		}
	}
	f.Legend = legend(st)
	f.Caption = "Throughput with different link schedulers over links of different rates (paper, figure 3.5). " +
		"SRR is held by the slowest link; WSRR and WD use the links by weight; adaptive measures them."
	test := sizeTests[slices.IndexFunc(sizeTests, func(t string) bool { return len(only(rows, t)) > 0 })]
	for _, g := range grouped(only(rows, test), linksOf) {
		f.Panels = append(f.Panels, schedulerCPU(g, test, &st))
	}
	return f.trim()
}

// schedulerCPU is a bar for each scheduler.
func schedulerCPU(g config, test string, st *styles) Panel {
	p := Panel{Title: test + ", sender, " + g.label, XLabel: sizeLabel, YLabel: "CPU (seconds per GiB)"}
	for _, size := range spread(sizes(g.rows), 5) {
		var bars []Bar
		for _, c := range configs(g.rows) {
			l := line(ofSize(c.rows, size), 0, func(e entry) float64 { return perGiB(e.CPU.Client, e) })
			if len(l.Y) > 0 {
				bars = append(bars, Bar{Parts: []Part{{Value: l.Y[0], Color: st.of(c.label)}}})
			}
		}
		p.Names, p.Bars = append(p.Names, shortSize(size)), append(p.Bars, bars)
	}
	return p
}

func ofSize(rows []entry, size int) []entry {
	return where(rows, func(e entry) bool { return e.MessageBytes == size })
}

// polling is figure 3.3, upper row, with the latency that waiting costs: one curve for each way to wait.
func polling(rows []entry) Figure {
	f := Figure{
		ID: "polling", Title: "Interrupts and polling: throughput and latency",
		Caption: "Waiting by blocking (interrupts), adaptively (polling for a while, then blocking) and by polling " +
			"alone (paper, figure 3.3). Dashed: the 99th percentile.",
	}
	var st styles
	for _, test := range []string{report.OneWay, report.TwoWay, report.Read} {
		f.Panels = append(f.Panels, throughputPanel(only(rows, test), test, &st))
	}
	p := Panel{Title: "ping-pong: half round trip", XLabel: sizeLabel, YLabel: "latency (us)", SizeX: true, LogY: true}
	f.Panels = append(f.Panels, p.curves(configsOf(rows, report.PingPong), &st, median, tail))
	return f.done(st)
}

// pollingCPU is figure 3.3, lower row.
func pollingCPU(rows []entry) Figure {
	f := Figure{
		ID: "polling-cpu", Title: "Interrupts and polling: CPU utilization",
		Caption: "Processor time of both ends, applications and daemons together, while the test ran; 100 % is one " +
			"processor (paper, figure 3.3).",
	}
	var st styles
	for _, test := range []string{report.OneWay, report.TwoWay, report.Read, report.PingPong} {
		p := Panel{Title: test, XLabel: sizeLabel, YLabel: "CPU utilization (%)", SizeX: true}
		f.Panels = append(f.Panels, p.curves(configsOf(rows, test), &st,
			func(e entry) float64 { return 100 * e.CPU.Total / max(e.Seconds, 1e-9) }, nil))
	}
	return f.done(st)
}
