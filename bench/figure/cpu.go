package figure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// labelColour is the palette entry of each breakdown label. The coarse labels have the colour of the copy that is most
// of them.
var labelColour = map[string]int{
	report.LabelPoll: 7, report.LabelIdle: 10, report.LabelTxCopy: 0,
	report.LabelRxCopy: 1, report.LabelRemapping: 3, report.LabelPacket: 2,
	report.LabelDevice: 5, report.LabelChecksum: 6, report.LabelSealing: 8,
	report.LabelDaemonUser: 1, report.LabelDaemonSystem: 0, report.LabelApp: 4, report.LabelOther: 9,
}

// maxBars bounds how many bars one panel shows; sizes are thinned to stay below.
const maxBars = 28

// cpuEnds are the ends whose processor time is drawn.
var cpuEnds = []struct {
	test, title string
	end         func(c report.CPU) report.End
}{
	{report.OneWay, "one-way, sender", func(c report.CPU) report.End { return c.Client }},
	{report.OneWay, "one-way, receiver", func(c report.CPU) report.End { return c.Server }},
	{report.TwoWay, "two-way, one end", func(c report.CPU) report.End { return c.Client }},
	{report.PingPong, "ping-pong, one end", func(c report.CPU) report.End { return c.Client }},
	{report.Read, "read, reader", func(c report.CPU) report.End { return c.Client }},
	{report.Read, "read, owner", func(c report.CPU) report.End { return c.Server }},
}

// cpu is figure 3.2: processor utilization by message size, stacked by what the time went to. 100 % is one processor.
func cpu(rows []entry) Figure {
	f := Figure{ID: "cpu", Title: "CPU utilization"}
	used := map[string]bool{}
	var order []string
	for _, t := range cpuEnds {
		cs := configsOf(rows, t.test)
		f.Panels = append(f.Panels, cpuPanel(t.title, cs, t.end, used))
		if names := configLabels(cs); len(names) > len(order) {
			order = names
		}
	}
	f.Legend = partsLegend(used)
	f.Caption = "Processor time of one end, application and daemon together, while the test ran; 100 % is one " +
		"processor (paper, figure 3.2)."
	if len(order) > 1 {
		f.Caption += " One bar for each configuration, from left to right: " + strings.Join(order, "; ") + "."
	}
	f.Panels = wrap(f.Panels)
	return f.trim()
}

// partsLegend explains the parts of bars that were used.
func partsLegend(used map[string]bool) (l []Entry) {
	for _, name := range report.Labels {
		if used[name] {
			l = append(l, Entry{Text: name, Style: labelColour[name], Bar: true})
		}
	}
	return l
}

// wrap drops panels without bars early, so that at most four of them stand side by side: the paper's.
func wrap(panels []Panel) []Panel {
	panels = slices.DeleteFunc(panels, func(p Panel) bool { return p.empty() })
	return panels[:min(len(panels), 4)]
}

func configLabels(cs []config) (names []string) {
	for _, c := range cs {
		names = append(names, c.label)
	}
	return names
}

func cpuPanel(title string, cs []config, end func(report.CPU) report.End, used map[string]bool) Panel {
	p := Panel{Title: title, XLabel: sizeLabel, YLabel: "CPU utilization (%)"}
	var all []entry
	for _, c := range cs {
		all = append(all, c.rows...)
	}
	for _, size := range spread(sizes(all), max(2, maxBars/max(1, len(cs)))) {
		var group []Bar
		for _, c := range cs {
			if b := cpuBar(ofSize(c.rows, size), end, used); len(b.Parts) > 0 {
				group = append(group, b)
			}
		}
		p.Names, p.Bars = append(p.Names, shortSize(size)), append(p.Bars, group)
	}
	return p
}

// cpuBar stacks the mean breakdown of rows.
func cpuBar(rows []entry, end func(report.CPU) report.End, used map[string]bool) Bar {
	var b Bar
	sum, seconds := report.Breakdown{}, 0.0
	lo, hi := math.Inf(1), 0.0
	for _, e := range rows {
		seconds += e.Seconds
		all := 0.0
		for label, s := range end(e.CPU).Parts() {
			sum[label] += s
			all += s
		}
		if e.Seconds > 0 {
			lo, hi = min(lo, 100*all/e.Seconds), max(hi, 100*all/e.Seconds)
		}
	}
	if seconds == 0 {
		return b
	}
	if len(rows) > 1 && lo < hi {
		b.Spread = [2]float64{lo, hi}
	}
	if mostlyBusy(rows) {
		b.Label = busyMark
	}
	for _, label := range report.Labels {
		if v := sum[label]; v > 0 {
			used[label] = true
			b.Parts = append(b.Parts, Part{Value: 100 * v / seconds, Color: labelColour[label]})
		}
	}
	return b
}

// comparisons draws interleaved runs over several transports: medians with the range over the rounds.
func comparisons(rows []entry) []Figure {
	var figs []Figure
	work := func(e entry) string { return fmt.Sprint(e.Test, " ", e.MessageBytes, " ", e.MTU) }
	for _, c := range grouped(rows, work) {
		e := c.rows[0]
		name := fmt.Sprintf("%s, %s messages, %s, MTU %d", e.Test, report.Bytes(e.MessageBytes),
			report.Rates(e.LinkRates, e.Links), e.MTU)
		f := Figure{ID: fmt.Sprintf("compare-%s-%s-mtu%d", e.Test, shortSize(e.MessageBytes), e.MTU),
			Title:   "Comparison: " + name,
			Caption: "Medians of interleaved rounds; the whiskers are the slowest and the fastest round."}
		if report.IsLatencyTest(e.Test) {
			f.Panels = []Panel{comparePanel("half round trip, median", "latency (us)", c.rows,
				func(e entry) float64 { return e.Latency.P50 / 1e3 }), comparePanel("half round trip, 99th percentile",
				"latency (us)", c.rows, func(e entry) float64 { return e.Latency.P99 / 1e3 })}
		} else {
			f.Panels = []Panel{comparePanel("throughput", "throughput (Gbit/s)", c.rows, gbits),
				comparePanel("processor time, both ends", "CPU (seconds per GiB)", c.rows, entry.PerGiB)}
		}
		figs = append(figs, f.trim())
	}
	return figs
}

func comparePanel(title, unit string, rows []entry, value func(entry) float64) Panel {
	p := Panel{Title: title, YLabel: unit, Width: 1.25}
	for i, c := range contenders(rows) {
		s := report.SpreadOf(values(c.rows, value))
		if s.Rounds == 0 {
			continue
		}
		label := significant(s.Median)
		if mostlyBusy(c.rows) {
			label += busyMark
		}
		p.Names = append(p.Names, c.label)
		p.Bars = append(p.Bars, []Bar{{Parts: []Part{{Value: s.Median, Color: i}}, Label: label,
			Spread: [2]float64{s.Min, s.Max}}})
	}
	return p
}

// contenders groups rows of a comparison by transport and variant, and by the size of regions and the offloads of links
// where these differ.
func contenders(rows []entry) []config {
	differ := func(of func(entry) string) bool {
		return slices.ContainsFunc(rows, func(e entry) bool { return of(e) != of(rows[0]) })
	}
	regions, offloads := differ(region), differ(func(e entry) string { return e.Offloads })
	several := differ(func(e entry) string { return e.source })
	return grouped(rows, func(e entry) string {
		name := e.Contender()
		if regions {
			name += ", " + region(e)
		}
		if offloads {
			name += ", " + offload(e)
		}
		if several {
			name += ", " + e.source
		}
		return name
	})
}

func region(e entry) string { return "region " + report.Bytes(e.RegionBytes) }

func offload(e entry) string { return "offloads " + cmp.Or(e.Offloads, "unknown") }
