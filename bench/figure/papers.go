package figure

import (
	"fmt"
	"io"
	"math"
	"slices"

	"multiedge/bench/report"
)

// Claim is what the MultiEdge paper (Passas 2008) says of one of its figures, held against what was measured here. The
// other papers' claims are judged by the studies that draw their figures.
type Claim struct {
	Exhibit string   `json:"exhibit"` // "MultiEdge 3.8"
	Says    string   `json:"says"`
	Rule    string   `json:"rule"` // which of our numbers agree
	Numbers []Number `json:"numbers"`
	Agrees  bool     `json:"agrees"`        // all of them do
	Why     string   `json:"why,omitempty"` // they do not
}

// Number is a number that the paper prints, beside the one measured here in the same way.
type Number struct {
	What   string  `json:"what"` // with its unit; without one it is a ratio
	Theirs float64 `json:"paper"`
	Ours   float64 `json:"here"`
}

// rule says when a number here agrees with the paper's.
type rule struct {
	text  string
	holds func(Number) bool
}

var (
	gains   = rule{"at least half of the paper's gain", func(n Number) bool { return n.Ours-1 >= (n.Theirs-1)/2 }}
	same    = rule{"within 0.2 of the paper's", func(n Number) bool { return math.Abs(n.Ours-n.Theirs) <= 0.2 }}
	atLeast = rule{"at least 0.9 of the paper's", func(n Number) bool { return n.Ours >= 0.9*n.Theirs }}
	atMost  = rule{"at most the paper's", func(n Number) bool { return n.Ours <= n.Theirs }}
)

// A statement is a claim that has yet to be measured. Each of its numbers takes ours from the results.
type statement struct {
	exhibit, says string
	rule          rule
	why           string
	numbers       []printed
}

type printed struct {
	what   string
	theirs float64
	ours   value
}

// A value is taken from the results; NaN: it is not there.
type value func(m *measured) float64

// statements are the paper's, with the numbers of §3.2 and §3.3 of its text and tables.
var statements = []statement{
	{"MultiEdge 3.1, left", "The latency of ping-pong is 23 us, with any number of links.", atMost,
		"The smallest message waits for a program and a daemon on each host, which share a processor here; the " +
			"paper's protocol runs in the kernel.",
		[]printed{{"half round trip, us", 23, smallest(report.PingPong, 1, median)},
			{"the same, two links", 23, smallest(report.PingPong, 2, median)}}},
	{"MultiEdge 3.1, left", "Initiating an operation takes 2 us, one-way and two-way.", atMost,
		"The program that posts and the daemon share a processor; the figure's curves show larger messages.",
		[]printed{{"one-way, us", 2, smallest(report.OneWay, 1, posting)},
			{"two-way, us", 2, smallest(report.TwoWay, 1, posting)}}},
	{"MultiEdge 3.1, right", "One and two links of 1 Gbit/s are used fully; eight reach 550 of 1000 MB/s.", atLeast,
		"Both hosts and their shaped links share this machine's processors.",
		[]printed{{"1 link, share of its rate", 0.992, share(1)},
			{"2 links", 0.992, share(2)},
			{"8 links", 0.55, share(8)}}},
	{"MultiEdge 3.2", "Copies are most of the processor time of large messages.", atLeast,
		"Encryption and system calls, which the paper's protocol does not have, take their share; and a copy costs " +
			"less beside them on processors of today.",
		[]printed{{"one-way, sender", 0.75, copying(report.OneWay, cpuEnds[0].end)},
			{"one-way, receiver", 0.65, copying(report.OneWay, cpuEnds[1].end)},
			{"two-way", 0.7, copying(report.TwoWay, cpuEnds[2].end)}}},
	{"MultiEdge 3.3", "Polling instead of interrupts gains 38 % one-way and 25 % two-way.", gains,
		"A busy process polls all the time, so an interrupt is rare in either case; and polling takes time from the " +
			"other processes of its processor.",
		[]printed{{"one-way", 1.38, polled(report.OneWay, "busy", "block")},
			{"two-way", 1.25, polled(report.TwoWay, "busy", "block")}}},
	{"MultiEdge 3.4", "Without copies throughput grows by 66.5 % one-way and by 87.5 % two-way.", gains,
		"Payloads stay in the cache between the copies, where they cost least (figure exchange).",
		[]printed{{"one-way", 1.665, copied(report.OneWay, "nocp", "cp")},
			{"two-way", 1.875, copied(report.TwoWay, "nocp", "cp")}}},
	{"MultiEdge 3.5", "WD has 11 % more throughput than WSRR over unequal links, one-way.", gains,
		"Shaped links take a burst at once and have no ring that fills, so counting the bytes of each link tells " +
			"nothing that its weight does not.",
		[]printed{{"one-way", 1.11, scheduled(report.OneWay, "wd", "wsrr")}}},
	{"MultiEdge 3.6", "A processor copies some 1 GB/s of memory that is not in its cache.", atLeast,
		"First uses of memory are dear on virtual machines.",
		[]printed{{"GB/s, largest run", 1, copyRate}}},
	{"MultiEdge 3.7", "Remapping costs some 1 us a page, in proportion to their number.", atMost,
		"A program changes mappings by system calls, for a run of pages at a time, and each flushes the TLB: one " +
			"page is dear, many are cheap. The paper's driver writes page table entries.",
		[]printed{{"us, one page", 1.1, exchangePage(slices.Min)},
			{"us a page, largest run", 1.1, exchangePage(slices.Max)}}},
	{"MultiEdge 3.8", "Exchanging pages instead of copying gains 87 % one-way and 98 % two-way.", gains,
		"Copies of memory in the cache are cheaper here than a change of mappings (figure exchange): only runs " +
			"above 256 KiB gain.",
		[]printed{{"one-way", 1.87, copied(report.OneWay, "pinmap", "cp")},
			{"two-way", 1.98, copied(report.TwoWay, "pinmap", "cp")}}},
	{"MultiEdge 3.8", "Sending without a copy gains 27 % one-way.", gains,
		"The kernel copies what a packet socket sends, so the copy that is left out was of memory in the cache.",
		[]printed{{"one-way", 1.27, copied(report.OneWay, "notx", "cp")}}},
	{"MultiEdge 3.9", "Ping-pong of 2 KiB takes hardly longer than of 4 bytes.", same,
		"Sending 2 KiB copies them four times between the two programs and kernels.",
		[]printed{{"2 KiB over the smallest", 25. / 23, growth("pinmap", 2048)}}},
	{"MultiEdge 3.11", "Destinations in the middle of a page and at its second byte are alike, and large messages " +
		"reach the throughput of aligned ones.", same,
		"A destination off its page is copied, which is the faster way here (3.8).",
		[]printed{{"second byte over middle", 1, aligned(report.OneWay, "worst", "middle")},
			{"second byte over aligned", 1, aligned(report.OneWay, "worst", "best")}}},
}

func posting(e entry) float64 { return micros(e.Post, e.Post.P50) }

// at returns the rows of the size that pick takes of all sizes.
func (rs rowset) at(pick func([]int) int) rowset {
	if len(rs) == 0 {
		return nil
	}
	return ofSize(rs, pick(sizes(rs)))
}

// of is the median of value over the rows; NaN if there is none.
func (rs rowset) of(value func(entry) float64) float64 {
	v := slices.DeleteFunc(values(rs, value), math.IsNaN)
	if len(v) == 0 {
		return math.NaN()
	}
	return report.SpreadOf(v).Median
}

// smallest is the median of a figure at the smallest message of a test over so many links.
func smallest(test string, links int, of func(entry) float64) value {
	return func(m *measured) float64 {
		rows := rowset(where(only(m.base, test), func(e entry) bool { return e.Links == links }))
		return rows.at(slices.Min).of(of)
	}
}

// share is the throughput of so many limited links, as a share of their rates.
func share(links int) value {
	return func(m *measured) float64 {
		return rowset(where(only(m.links, report.OneWay), func(e entry) bool {
			return e.Links == links && nominal(e.Row) > 0
		})).of(func(e entry) float64 { return gbits(e) / nominal(e.Row) })
	}
}

// copying is what copies take of an end's processor time, at the largest message that was told apart.
func copying(test string, end func(report.CPU) report.End) value {
	return func(m *measured) float64 {
		rows := rowset(where(only(m.base, test), func(e entry) bool { return len(end(e.CPU).Breakdown) > 0 }))
		return rows.at(slices.Max).of(func(e entry) float64 {
			b, sum := end(e.CPU).Breakdown, 0.0
			for _, s := range b {
				sum += s
			}
			return (b[report.LabelTxCopy] + b[report.LabelRxCopy]) / sum
		})
	}
}

// polled, copied, aligned and scheduled are the best throughput of one configuration over that of another.
var (
	polled    = over(func(m *measured) rowset { return m.poll }, func(e entry) string { return e.Poll })
	copied    = over(func(m *measured) rowset { return m.copies }, func(e entry) string { return e.Copy })
	aligned   = over(func(m *measured) rowset { return m.aligned }, func(e entry) string { return e.Alignment })
	scheduled = over((*measured).steepest, func(e entry) string { return e.Scheduler })
)

// steepest are the measurements of schedulers on the links with the largest rates, which differ most: the paper's
// 10:1:1:1:1.
func (m *measured) steepest() rowset {
	top := 0.0
	for _, e := range m.sched {
		top = max(top, nominal(e.Row))
	}
	return where(m.sched, func(e entry) bool { return nominal(e.Row) == top })
}

// over compares the configurations of rows that differ in what of says.
func over(rows func(*measured) rowset, of func(entry) string) func(test, one, other string) value {
	return func(test, one, other string) value {
		return func(m *measured) float64 {
			with := func(name string) rowset {
				return where(only(rows(m), test), func(e entry) bool { return of(e) == name })
			}
			return with(one).peak() / with(other).peak()
		}
	}
}

// peak is the best throughput over all sizes.
func (rs rowset) peak() float64 {
	best := math.NaN()
	for _, size := range sizes(rs) {
		if v := rowset(ofSize(rs, size)).of(gbits); math.IsNaN(best) || v > best {
			best = v
		}
	}
	return best
}

// copyRate is what a processor copies of memory that is not in its cache, in GB/s.
func copyRate(m *measured) float64 { return 1 / m.perByte(report.PlaceCopy, slices.Max) }

// exchangePage is what an exchange takes for each page of the run that pick takes of all sizes, in microseconds.
func exchangePage(pick func([]int) int) value {
	return func(m *measured) float64 { return 4.096 * m.perByte(report.PlaceExchange, pick) }
}

// perByte is what placing a run takes for each byte, in nanoseconds.
func (m *measured) perByte(way string, pick func([]int) int) float64 {
	rows := rowset(where(m.places, func(e entry) bool {
		return e.Variant == report.PlaceVariant(way, report.PlaceCold)
	}))
	return 1e3 * rows.at(pick).of(func(e entry) float64 { return median(e) / float64(e.MessageBytes) })
}

// growth is the latency of ping-pong at a size over that of the smallest.
func growth(copy string, size int) value {
	return func(m *measured) float64 {
		rows := rowset(where(only(m.copies, report.PingPong), func(e entry) bool { return e.Copy == copy }))
		return rowset(ofSize(rows, size)).of(median) / rows.at(slices.Min).of(median)
	}
}

// Claims judges what the sources have numbers for. A claim whose numbers are not all there is left out.
func Claims(sources []Source) (list []Claim) {
	m := partsOf(sources)
	for _, s := range statements {
		c := Claim{Exhibit: s.exhibit, Says: s.says, Rule: s.rule.text, Agrees: true}
		for _, n := range s.numbers {
			if v := n.ours(&m); !math.IsNaN(v) && !math.IsInf(v, 0) {
				c.Numbers = append(c.Numbers, Number{n.what, n.theirs, v})
				c.Agrees = c.Agrees && s.rule.holds(c.Numbers[len(c.Numbers)-1])
			}
		}
		if len(c.Numbers) < len(s.numbers) {
			continue
		}
		if !c.Agrees {
			c.Why = s.why
		}
		list = append(list, c)
	}
	return list
}

// Verdict says in a word how it stands.
func (c *Claim) Verdict() string {
	if c.Agrees {
		return "agrees"
	}
	return "DIFFERS"
}

// Pair is a number of the paper and ours, as they are printed.
func (n Number) Pair() string {
	return fmt.Sprintf("%s: %s (paper %s)", n.What, digits(n.Ours), digits(n.Theirs))
}

// claimFigure has the paper's numbers and ours side by side, a panel for each claim.
func claimFigure(claims []Claim) Figure {
	f := Figure{ID: "papers", Title: "The MultiEdge paper's numbers, and these",
		Caption: "Each number that the paper's text and tables print of its figures, beside the one measured here in " +
			"the same way; ratios and shares where no unit stands. The page judges each claim by a rule."}
	for _, c := range claims {
		p := Panel{Title: c.Exhibit + ": " + c.Verdict(), YLabel: "value"}
		for _, n := range c.Numbers {
			p.Names = append(p.Names, n.What)
			p.Bars = append(p.Bars, []Bar{{Parts: []Part{{n.Theirs, 0}}, Label: digits(n.Theirs)},
				{Parts: []Part{{n.Ours, 1}}, Label: digits(n.Ours)}})
		}
		f.Panels = append(f.Panels, p)
	}
	f.Legend = Boxes([]string{"the paper", "here"})
	return f
}

// PrintClaims writes the claims as text.
func PrintClaims(w io.Writer, claims []Claim) {
	for i := range claims {
		c := &claims[i]
		fmt.Fprintf(w, "%-8s %s: %s\n", c.Verdict(), c.Exhibit, c.Says)
		for _, n := range c.Numbers {
			fmt.Fprintf(w, "         %s\n", n.Pair())
		}
		fmt.Fprintf(w, "         agrees if %s\n", c.Rule)
		if c.Why != "" {
			fmt.Fprintf(w, "         %s\n", c.Why)
		}
	}
}
