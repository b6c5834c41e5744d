package main

import (
	"fmt"
	"io"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// printBeside prints a table for each test: a line for each size, a column for each transport.
func printBeside(w io.Writer, tables []figure.Beside) {
	for _, b := range tables {
		unit, form := "Gbit/s", func(v float64) float64 { return v * 8 / 1e9 }
		switch {
		case b.Latency:
			unit, form = "half a round trip, us", func(v float64) float64 { return v / 1e3 }
		case b.Test == report.TwoWay:
			unit = "Gbit/s, both directions together (client to server + server to client)"
		}
		fmt.Fprintf(w, "\n%s: %s; medians of rounds, * where the machine was busy\n  %9s", b.Test, unit, "size")
		width := 12
		if b.Test == report.TwoWay {
			width = 21
		}
		heads := b.Heads()
		for _, name := range heads {
			fmt.Fprintf(w, "  %*s", max(width, len(name)), name)
		}
		fmt.Fprintln(w)
		for _, r := range b.Rows {
			fmt.Fprintf(w, "  %9s", report.Bytes(r.Size))
			for i, c := range r.Cells {
				text := "-"
				if c.Rounds > 0 {
					text = fmt.Sprintf("%.3f", form(c.Median))
				}
				if len(c.EachWay) == 2 {
					text += fmt.Sprintf(" (%.3f + %.3f)", form(c.EachWay[0]), form(c.EachWay[1]))
				}
				if c.Busy {
					text += "*"
				}
				fmt.Fprintf(w, "  %*s", max(width, len(heads[i])), text)
			}
			fmt.Fprintln(w)
		}
	}
}
