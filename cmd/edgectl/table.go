package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints rows under a heading, columns aligned.
func table(w io.Writer, heading string, rows [][]any) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(strings.Fields(heading), "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if cells[i] = fmt.Sprint(v); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// bytesText writes a number of bytes for people.
func bytesText(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v /= 1024; v < 1024 {
			break
		}
	}
	return fmt.Sprintf("%.1f%s", v, unit)
}

// micros writes a duration in microseconds; "-" for none.
func micros(ns int64) string {
	if ns <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fus", float64(ns)/float64(time.Microsecond))
}

func yesNo(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
