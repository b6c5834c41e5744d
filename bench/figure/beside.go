package figure

import (
	"slices"

	"multiedge/bench/report"
)

// leastSwept is from how many message sizes on an interleaved comparison is drawn as curves and shown as one table, not
// as bars for each size.
const leastSwept = 4

// Beside is one test of an interleaved comparison over many message sizes.
type Beside struct {
	Test       string
	Latency    bool     // cells are half round trips in nanoseconds, else bytes per second
	Contenders []string // in order of appearance
	Links      []int    // how many each of them used
	Rows       []BesideRow
}

// BesideRow is one message size: a cell for each contender.
type BesideRow struct {
	Size  int
	Cells []BesideCell
}

// BesideCell is what a contender reached: the median over the rounds, and the range. EachWay are the medians of both
// directions, where both were used.
type BesideCell struct {
	Rounds           int // 0: not measured
	Median, Min, Max float64
	EachWay          []float64
	Busy             bool // most rounds were disturbed
}

// sweptRows splits off the rows of interleaved comparisons over many message sizes.
func sweptRows(rows []entry) (swept, rest []entry) {
	return split(rows, func(e entry) bool {
		same := where(rows, func(o entry) bool {
			return o.Test == e.Test && o.source == e.source && o.MTU == e.MTU && o.Round > 0
		})
		return e.Round > 0 && len(sizes(same)) >= leastSwept
	})
}

// Heads are the contenders with the number of links that each used, where more than one was to be had.
func (b *Beside) Heads() []string {
	heads := slices.Clone(b.Contenders)
	if len(b.Links) == 0 || slices.Max(b.Links) < 2 {
		return heads
	}
	for i := range heads {
		heads[i] += ", " + report.Plural(b.Links[i], "link")
	}
	return heads
}

func interleaved(r *report.Row) bool { return r.Round > 0 && r.Error == "" }

// single is what is measured of edge alone.
func single(r *report.Row) bool {
	return r.Transport == report.TransportEdge && r.Round == 0 && r.Error == ""
}

// Besides returns the interleaved comparisons of the sources over many message sizes.
func Besides(sources []Source) (out []Beside) {
	swept, _ := sweptRows(entries(sources, interleaved))
	for _, test := range sizeTests {
		rows := only(swept, test)
		if len(rows) == 0 {
			continue
		}
		b := Beside{Test: test, Latency: report.IsLatencyTest(test)}
		cs := contenders(rows)
		b.Contenders = configLabels(cs)
		for _, c := range cs {
			b.Links = append(b.Links, c.rows[0].LinksUsed())
		}
		for _, size := range sizes(rows) {
			row := BesideRow{Size: size}
			for _, c := range cs {
				row.Cells = append(row.Cells, besideCell(ofSize(c.rows, size), b.Latency))
			}
			b.Rows = append(b.Rows, row)
		}
		out = append(out, b)
	}
	return out
}

func besideCell(rows []entry, latency bool) BesideCell {
	v := values(rows, func(e entry) float64 {
		if latency {
			return e.Latency.P50
		}
		return e.Throughput
	})
	if len(v) == 0 {
		return BesideCell{}
	}
	c := BesideCell{Rounds: len(v), Median: report.Median(v), Busy: mostlyBusy(rows)}
	c.Min, c.Max = slices.Min(v), slices.Max(v)
	for way := range 2 {
		if w := values(rows, func(e entry) float64 {
			if way >= len(e.EachWay) {
				return 0
			}
			return e.EachWay[way]
		}); len(w) > 0 {
			c.EachWay = append(c.EachWay, report.Median(w))
		}
	}
	return c
}

// mostlyBusy reports whether most of the rows that make up a point were disturbed.
func mostlyBusy(rows []entry) bool {
	busy := 0
	for _, e := range rows {
		if e.Busy != "" {
			busy++
		}
	}
	return 2*busy > len(rows)
}

// cell returns what a contender reached with messages of a size.
func (b *Beside) cell(contender string, size int) (BesideCell, bool) {
	i, j := slices.Index(b.Contenders, contender), slices.IndexFunc(b.Rows,
		func(r BesideRow) bool { return r.Size == size })
	if i < 0 || j < 0 {
		return BesideCell{}, false
	}
	return b.Rows[j].Cells[i], b.Rows[j].Cells[i].Rounds > 0
}

// besideFigures are those of figure 3.1 and 3.2 with other transports beside edge. What processor time goes to is known
// of edge alone, and shown of the variant that came first.
func besideFigures(rows []entry) []Figure {
	if len(rows) == 0 {
		return nil
	}
	ours := where(rows, func(e entry) bool {
		return e.Transport == report.TransportEdge && e.Contender() == firstEdge(rows)
	})
	figs := []Figure{throughput(rows), latency(rows), percentiles(ours), cpu(ours), cost(rows)}
	figs[0].Caption = "Payload that arrived, per second, over message size: medians over the rounds, with their " +
		"range. Two-way is the sum of both directions, for every transport (paper, figure 3.1)."
	for i := range figs {
		figs[i].ID = "beside-" + figs[i].ID
	}
	return figs
}

// firstEdge names the variant of edge that came first.
func firstEdge(rows []entry) string {
	if i := slices.IndexFunc(rows, func(e entry) bool { return e.Transport == report.TransportEdge }); i >= 0 {
		return rows[i].Contender()
	}
	return ""
}

// cost is the processor time of a GiB over message size.
func cost(rows []entry) Figure {
	f := Figure{ID: "cost", Title: "Processor time beside others",
		Caption: "Processor time of both ends, applications and daemons together, for each GiB of payload; medians " +
			"over the rounds, with their range."}
	var st styles
	for _, test := range []string{report.OneWay, report.TwoWay, report.PingPong} {
		p := Panel{Title: test, XLabel: sizeLabel, YLabel: "CPU (seconds per GiB)", SizeX: true, LogY: true}
		for _, c := range configsOf(rows, test) {
			if l := line(c.rows, st.of(c.label), entry.PerGiB); len(l.X) > 0 {
				p.Lines = append(p.Lines, l)
			}
		}
		f.Panels = append(f.Panels, p)
	}
	f.Legend = legend(st)
	return f.trim()
}
