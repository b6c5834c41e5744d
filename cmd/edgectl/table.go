package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether w is a file that is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// table prints rows under a heading, columns aligned.
func table(w io.Writer, heading string, rows [][]any) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(strings.Fields(heading), "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if cells[i] = strings.ReplaceAll(clean(fmt.Sprint(v)), "\n", "?"); cells[i] == "" {
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

// bitsText writes bytes per second as megabits or gigabits per second.
func bitsText(bytes float64) string {
	switch bits := bytes * 8; {
	case bits == 0:
		return "0"
	case bits < 1e9:
		return fmt.Sprintf("%.2fM", bits/1e6)
	default:
		return fmt.Sprintf("%.2fG", bits/1e9)
	}
}

// rateText writes a rate; what is less than ten with its tenths, so that what happens seldom is seen to happen.
func rateText(r float64) string {
	if r > 0 && r < 10 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
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
