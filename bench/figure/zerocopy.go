package figure

import (
	"slices"

	"multiedge/bench/report"
)

// copyRows splits off what was measured to compare copies: with destinations on pages, and of several alignments.
func copyRows(rows []entry) (copies, alignments, rest []entry) {
	for _, e := range rows {
		switch {
		case e.Copy == "":
			rest = append(rest, e)
		case e.Alignment == "" || e.Alignment == "best":
			copies = append(copies, e)
		}
	}
	for _, e := range rows { // of configurations measured at one alignment only there is nothing to compare
		other := func(o entry) bool {
			return o.Copy == e.Copy && o.Test == e.Test && o.source == e.source && o.Alignment != e.Alignment
		}
		if e.Copy != "" && slices.ContainsFunc(rows, other) {
			alignments = append(alignments, e)
		}
	}
	return copies, alignments, rest
}

// zeroCopy is figure 3.8, upper row.
func zeroCopy(rows []entry) Figure {
	f := Figure{
		ID: "zero-copy", Title: "Zero copy: throughput",
		Caption: "Throughput with a copy at both ends (cp), at the receiver (notx), with received pages exchanged " +
			"for those of the destination (pinmap), the same with frames that arrive whole at page boundaries and " +
			"that the sender lays out for it (shuffle), and with payloads received in their place (nocp); default is " +
			"what the transport does unless told otherwise (paper, figure 3.8).",
	}
	return f.throughputs(rows, report.OneWay, report.TwoWay)
}

// zeroCopyCPU is figure 3.8, lower row, for a short and a long message: one bar for each configuration, named below it,
// with what a GiB costs above it.
func zeroCopyCPU(rows []entry) Figure {
	f := Figure{
		ID: "zero-copy-cpu", Title: "Zero copy: CPU utilization",
		Caption: "Processor time of one end, application and daemon together, while the test ran; 100 % is one " +
			"processor. Above each bar: seconds of it for each GiB of payload, " +
			"by which configurations of different throughput compare (paper, figure 3.8).",
	}
	used := map[string]bool{}
	for _, t := range cpuEnds[:3] { // one-way and two-way
		all := only(rows, t.test)
		for _, size := range spread(sizes(all), 2) {
			p := Panel{Title: t.title + ", " + report.Bytes(size), YLabel: "CPU utilization (%)"}
			for _, c := range grouped(all, func(e entry) string { return e.Copy }) {
				sub := ofSize(c.rows, size)
				b := cpuBar(sub, t.end, used)
				if len(b.Parts) == 0 {
					continue
				}
				cost := values(sub, func(e entry) float64 { return perGiB(t.end(e.CPU), e) })
				if len(cost) > 0 {
					b.Label = digits(report.Median(cost)) + b.Label // the mark of a busy machine stays last
				}
				p.Names, p.Bars = append(p.Names, c.label), append(p.Bars, []Bar{b})
			}
			f.Panels = append(f.Panels, p)
		}
	}
	f.Legend = partsLegend(used)
	return f.trim()
}

// zeroCopyLatency is figure 3.9.
func zeroCopyLatency(rows []entry) Figure {
	f := latency(rows)
	f.ID, f.Title = "zero-copy-latency", "Zero copy: latency"
	f.Caption = "Ping-pong: half a round trip; median, and dashed the 99th percentile. One-way and two-way: the time " +
		"a posting call takes (paper, figure 3.9)."
	return f
}

// alignment is figure 3.11.
func alignment(rows []entry) Figure {
	f := Figure{
		ID: "alignment", Title: "Zero copy: alignment of the destination",
		Caption: "Destinations that begin at the start of a page (best), in its middle, and at its second byte " +
			"(worst); sources begin at the start of a page (paper, figure 3.11).",
	}
	return f.throughputs(rows, report.OneWay, report.TwoWay)
}

// placing shows what exchanging a run of pages costs beside copying it.
func placing(rows []entry) Figure {
	f := Figure{ID: "exchange", Title: "Exchange of pages against copying"}
	if len(rows) == 0 {
		return f
	}
	var all []report.Row
	for _, e := range rows {
		all = append(all, *e.Row)
	}
	f.Caption = "The time it takes to bring a received run to its place; medians, and dashed the 99th percentile. " +
		"Another thread of the process runs, so that every change of " +
		"mappings flushes its processor's TLB. In this measurement " + report.CrossoverText(all) + "."
	var st styles
	for _, state := range []string{report.PlaceCold, report.PlaceWarm} {
		p := Panel{Title: "place " + map[string]string{report.PlaceCold: "not in the cache",
			report.PlaceWarm: "in the cache"}[state], XLabel: "run (bytes)", YLabel: "time (us)", SizeX: true,
			LogY: true}
		var ways []config
		for _, way := range []string{report.PlaceCopy, report.PlaceExchange} {
			ways = append(ways, config{way, where(rows, func(e entry) bool {
				return e.Variant == report.PlaceVariant(way, state)
			})})
		}
		f.Panels = append(f.Panels, p.curves(ways, &st, median, tail))
	}
	return f.done(st)
}
