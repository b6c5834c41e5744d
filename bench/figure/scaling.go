package figure

import (
	"fmt"
	"slices"

	"multiedge/bench/report"
)

// LinkCurve is throughput over the number of links, all of them alike.
type LinkCurve struct {
	Test   string
	Size   int    // bytes of a message
	Rate   string // of each link; empty: not limited
	Points []LinkPoint
}

// LinkPoint is the result with one number of links.
type LinkPoint struct {
	Links         int
	report.Spread         // bytes per second
	Nominal       float64 // bytes per second; 0 where links are not limited
	Share         float64 // of the median: of nominal or, where there is none, of what the fewest links reached
	CPU           float64 // seconds per GiB of both ends, median
	Busy          bool    // most rounds were disturbed
}

// Links returns the sources' measurements over different numbers of links, one message size each.
func Links(sources []Source) []LinkCurve {
	rows, _ := linkRows(entries(sources, single))
	return linkCurves(rows)
}

// linkRows splits off the rows that were measured to compare numbers of links: of links that are all alike, and of one
// message size. With many sizes, numbers of links are configurations like others.
func linkRows(rows []entry) (links, rest []entry) {
	links, rest = varied(rows, "links", func(e entry) string { return e.Test + eachRate(e) })
	several := func(e entry) bool {
		return eachRate(e) == "unequal" || slices.ContainsFunc(links, func(o entry) bool {
			return o.Test == e.Test && eachRate(o) == eachRate(e) && o.source == e.source &&
				o.MessageBytes != e.MessageBytes
		})
	}
	others, links := split(links, several)
	return links, append(rest, others...)
}

// eachRate is the rate that each of a row's links has.
func eachRate(e entry) string {
	if len(e.LinkRates) == 0 {
		return ""
	}
	if slices.ContainsFunc(e.LinkRates, func(r string) bool { return r != e.LinkRates[0] }) {
		return "unequal"
	}
	return e.LinkRates[0]
}

func linkCurves(rows []entry) (out []LinkCurve) {
	curve := func(e entry) string { return fmt.Sprint(e.Test, e.MessageBytes, " ", eachRate(e)) }
	for _, g := range grouped(rows, curve) {
		e := g.rows[0]
		out = append(out, LinkCurve{Test: e.Test, Size: e.MessageBytes, Rate: eachRate(e), Points: linkPoints(g.rows)})
	}
	return out
}

func linkPoints(rows []entry) []LinkPoint {
	var out []LinkPoint
	for _, n := range counts(rows, func(e entry) int { return e.Links }) {
		sub := where(rows, func(e entry) bool { return e.Links == n })
		p := LinkPoint{Links: n, Spread: report.SpreadOf(values(sub, func(e entry) float64 { return e.Throughput })),
			Nominal: nominal(sub[0].Row) * 1e9 / 8, CPU: report.Median(values(sub, entry.PerGiB)),
			Busy: mostlyBusy(sub)}
		if p.Rounds > 0 {
			out = append(out, p)
		}
	}
	for i := range out {
		p := &out[i]
		if p.Share = p.Median / out[0].Median; p.Nominal > 0 {
			p.Share = p.Median / p.Nominal
		}
	}
	return out
}

// counts returns the values of count over rows in ascending order.
func counts(rows []entry, count func(entry) int) []int {
	var n []int
	for _, e := range rows {
		n = append(n, count(e))
	}
	slices.Sort(n)
	return slices.Compact(n)
}

// names are the numbers as labels of an axis.
func names(n []int) []string {
	var s []string
	for _, v := range n {
		s = append(s, fmt.Sprint(v))
	}
	return s
}

// linkScaling draws throughput over the number of links, with what they could carry, and its share of that.
func linkScaling(rows []entry) Figure {
	f := Figure{
		ID: "links", Title: "Number of links",
		Caption: "Throughput over links that are all alike, medians. Dashed: the nominal rate of all links. The " +
			"share is of the nominal rate or, where links are not limited, of what the fewest links reached.",
	}
	all := counts(rows, func(e entry) int { return e.Links })
	axis := func(title, y string) Panel { return Panel{Title: title, XLabel: "links", YLabel: y, Names: names(all)} }
	share := axis("share", "share (%)")
	var st styles
	for _, c := range linkCurves(rows) {
		title, label := "not limited", c.Test+" of "+report.Bytes(c.Size)
		if c.Rate != "" {
			title = "limited to " + c.Rate + " each"
		}
		p := axis(title, "throughput (Gbit/s)")
		var abs, part, limit Line
		for _, pt := range c.Points {
			x := float64(slices.Index(all, pt.Links))
			abs.X, abs.Y, abs.Lo, abs.Hi = append(abs.X, x), append(abs.Y, pt.Median*8/1e9),
				append(abs.Lo, pt.Min*8/1e9), append(abs.Hi, pt.Max*8/1e9)
			abs.Busy, part.Busy = append(abs.Busy, pt.Busy), append(part.Busy, pt.Busy)
			part.X, part.Y = append(part.X, x), append(part.Y, 100*pt.Share)
			if pt.Nominal > 0 {
				limit.X, limit.Y = append(limit.X, x), append(limit.Y, pt.Nominal*8/1e9)
			}
		}
		abs.Style = st.of(label + ", " + title)
		part.Style, limit.Style, limit.Thin = abs.Style, abs.Style, true
		share.Lines = append(share.Lines, part)
		if p.Lines = append(p.Lines, abs); len(limit.X) > 0 {
			p.Lines = append(p.Lines, limit)
		}
		f.Panels = append(f.Panels, p)
	}
	f.Panels = append(f.Panels, share)
	return f.done(st)
}

// connScaling draws what connections that share the same operations reach together.
func connScaling(rows []entry) Figure {
	f := Figure{ID: "connections", Title: "Number of connections",
		Caption: "Throughput, and small operations per second, over the number of connections that share the " +
			"operations in flight; medians."}
	all := counts(rows, func(e entry) int { return max(e.Connections, 1) })
	panel := func(y string, tests []string, value func(entry) float64, st *styles) Panel {
		p := Panel{Title: y, XLabel: "connections", YLabel: y, Names: names(all)}
		for _, test := range tests {
			for _, size := range sizes(only(rows, test)) {
				line := Line{Style: st.of(test + " of " + report.Bytes(size))}
				for x, n := range all {
					sub := where(ofSize(only(rows, test), size),
						func(e entry) bool { return max(e.Connections, 1) == n })
					line.add(float64(x), values(sub, value), mostlyBusy(sub))
				}
				p.Lines = append(p.Lines, line)
			}
		}
		return p
	}
	var st styles
	f.Panels = []Panel{panel("throughput (Gbit/s)", []string{report.OneWay, report.TwoWay, report.Read}, gbits, &st),
		panel("million operations/s", []string{report.Rate}, millions, &st)}
	return f.done(st)
}
