package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// printSummary prints the medians of a comparison and edge's ratios to the others.
func printSummary(w io.Writer, works []figure.Summary) {
	for _, s := range works {
		fmt.Fprintf(w, "\n%s: median over rounds (smallest to largest)\n", s.Work)
		unit := "s/GiB"
		if s.Latency {
			unit = "us/message"
		}
		for _, c := range s.Contenders {
			limit := ""
			if c.Limit {
				limit = "   the limit"
			}
			fmt.Fprintf(w, "  %-25s %-9s %s   CPU %.3f %s   (%d rounds)%s\n", c.Name, cmp.Or(c.Security, "-"),
				value(s.Latency, c.Median, c.Min, c.Max), c.CPU, unit, c.Rounds, limit)
		}
		fmt.Fprintf(w, "  %s\n  %-16s %-46s %6s   within rounds: median (smallest to largest)\n",
			strings.Repeat("-", 60), "ratio of medians", "", "")
		for _, r := range s.Ratios {
			fmt.Fprintf(w, "  %-16s %-46s %6.3f   %.3f (%.3f to %.3f)\n", r.What, r.Over+" / "+r.Base, r.OfMedians,
				r.Median, r.Min, r.Max)
		}
	}
}

// value formats a median with its spread, in Gbit/s or as a time.
func value(latency bool, median, lo, hi float64) string {
	if latency {
		return fmt.Sprintf("%10s (%s to %s)", report.Nanos(median), report.Nanos(lo), report.Nanos(hi))
	}
	return fmt.Sprintf("%7.2f Gbit/s (%.2f to %.2f)", median*8/1e9, lo*8/1e9, hi*8/1e9)
}
