package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// table writes one compact line for each row, narrow enough for a wide terminal.
type table struct {
	plain
	w      io.Writer
	style  Style
	header bool
}

func (t *table) Head(h Head) error {
	return t.style.head(t.w, &h, "machine: ", "note: ")
}

func (t *table) Row(r *Row) error {
	var b strings.Builder
	head, values := lines(t.columns(r))
	if !t.header {
		t.header = true
		fmt.Fprintf(&b, "%s\n%s\n", head, strings.Repeat("-", len(head)))
	}
	fmt.Fprintln(&b, values)
	remarks(&b, r, "    ")
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *table) columns(r *Row) []column {
	calls, switches, wakes := r.efforts()
	cs := []column{{"test", "%-11s", r.Test}, {"over", "%-26s", clip(r.Contender(), 26)},
		{"security", "%-9s", dash(r.Security)}, {"scheduler", "%-9s", dash(r.Scheduler)},
		{"poll", "%-8s", dash(r.Poll)},
		{"links", "%-19s", clip(unless(r.Links == 0, Rates(r.LinkRates, r.Links)), 19)},
		{"conns", "%5s", unless(r.Connections == 0, r.Connections)}, {"size", "%8s", Bytes(r.MessageBytes)},
		{"Gbit/s", "%10.3f", r.Throughput * 8 / 1e9}, {"ops/s", "%10s", Count(r.OperationsPerSecond)},
		{"p50", "%9s", lat(r.Latency, r.Latency.P50)}, {"p99", "%9s", lat(r.Latency, r.Latency.P99)},
		{"frames", "%8s", Count(float64(r.FramesSent))}, {"retrans", "%7d", r.FramesRetransmitted},
		{"lost", "%6d", r.FramesLost}, {"dup", "%6d", r.FramesDuplicated}, {"reord", "%6d", r.FramesReordered},
		{"acks", "%7d", r.AcksExplicit}, {"bad", "%5s", unless(!r.IntegrityChecked, r.IntegrityErrors)},
		{"calls/m", "%8s", calls}, {"switch/m", "%8s", switches}, {"wakes/m", "%8s", wakes}}
	if t.style.CPU {
		cs = append(cs, column{"cli%", "%6.0f", percent(r.CPU.Client.Total, r.Seconds)},
			column{"srv%", "%6.0f", percent(r.CPU.Server.Total, r.Seconds)}, column{"s/GiB", "%8.3f", r.PerGiB()})
	}
	return cs
}

// column is a value in a format for people, with what stands above it.
type column struct {
	head, form string
	value      any
}

// width is the part of a form that says how wide a column is.
var width = regexp.MustCompile(`^%-?[0-9]+`)

// lines are the heads and the values of columns.
func lines(cs []column) (head, values string) {
	var heads, all []string
	for _, c := range cs {
		heads = append(heads, fmt.Sprintf(width.FindString(c.form)+"s", c.head))
		all = append(all, fmt.Sprintf(c.form, c.value))
	}
	return strings.Join(heads, " "), strings.Join(all, " ")
}

// efforts is what each message cost both ends in the kernel; dashes where that was not counted.
func (r *Row) efforts() (calls, switches, wakes string) {
	c, s, w, ok := r.PerMessage()
	two := func(v float64) string { return unless(!ok, fmt.Sprintf("%.2f", v)) }
	return two(c), two(s), two(w)
}

// isLatency reports whether a row is read for its latency, with what each end spent on a message.
func isLatency(r *Row) bool { return IsLatencyTest(r.Test) || r.Test == Atomic }

// lat is a latency; a dash where it was not measured: other programs do not tell every percentile.
func lat(l Latency, v float64) string { return unless(l.Count == 0 || v == 0, Nanos(v)) }

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-1] + "~"
}

// Count formats a large number in four characters or so: 812, 45.1k, 2.31M.
func Count(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}
