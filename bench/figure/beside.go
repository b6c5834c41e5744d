package figure

import (
	"fmt"
	"slices"
	"strings"

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
	report.Spread
	EachWay []float64
	Busy    bool // most rounds were disturbed
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
	c := BesideCell{Spread: report.SpreadOf(values(rows, func(e entry) float64 {
		if latency {
			return e.Latency.P50
		}
		return e.Throughput
	}))}
	if c.Rounds == 0 {
		return c
	}
	c.Busy = mostlyBusy(rows)
	both := where(rows, func(e entry) bool { return len(e.EachWay) == 2 })
	for way := range 2 {
		if w := values(both, func(e entry) float64 { return e.EachWay[way] }); len(w) > 0 {
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
		f.Panels = append(f.Panels, p.curves(configsOf(rows, test), &st, entry.PerGiB, nil))
	}
	return f.done(st)
}

// Headline is how edge, in the form that came first, compares with TCP in one piece of work.
type Headline struct {
	Test       string
	Size       int
	Edge, TCP  string  // their names
	Ours, TCPs float64 // medians: nanoseconds where latency is compared, else bytes per second
	Ratio      float64 // Ours / TCPs
	Slower     bool    // than TCP
}

// headlines are the works a reader looks for first.
var headlines = []struct {
	test string
	size int
}{{report.PingPong, 8}, {report.OneWay, 8}, {report.OneWay, 1 << 20}, {report.TwoWay, 1 << 20},
	{report.PingPong, 1 << 20}}

// Headlines compares edge with TCP where it is better and where it is worse, in works that both did.
func Headlines(all []Beside) (out []Headline) {
	for _, w := range headlines {
		i := slices.IndexFunc(all, func(b Beside) bool { return b.Test == w.test })
		if i < 0 {
			continue
		}
		edge, tcp := all[i].first(report.TransportEdge), all[i].first(report.TransportTCP)
		ours, ok := all[i].cell(edge, w.size)
		theirs, both := all[i].cell(tcp, w.size)
		if !ok || !both {
			continue
		}
		h := Headline{Test: w.test, Size: w.size, Edge: edge, TCP: tcp, Ours: ours.Median, TCPs: theirs.Median,
			Ratio: ours.Median / theirs.Median}
		h.Slower = (h.Ratio > 1) == all[i].Latency && h.Ratio != 1
		out = append(out, h)
	}
	return out
}

// first names the first contender that uses a transport.
func (b *Beside) first(transport string) string {
	for _, name := range b.Contenders {
		if name == transport || strings.HasPrefix(name, transport+" ") {
			return name
		}
	}
	return ""
}

// Verdict says in words how edge compares with TCP.
func (h *Headline) Verdict() string {
	what, than := fmt.Sprintf("%.2f of its throughput", h.Ratio), "faster"
	if report.IsLatencyTest(h.Test) {
		what = fmt.Sprintf("%.2f of its time", h.Ratio)
	}
	if h.Slower {
		than = "slower"
	}
	return fmt.Sprintf("%s than %s (%s)", than, h.TCP, what)
}
