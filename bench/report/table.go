package report

import (
	"fmt"
	"io"
	"strings"
)

// table writes one compact line for each row, narrow enough for a wide terminal.
type table struct {
	w      io.Writer
	style  Style
	header bool
}

func (t *table) Head(h Head) error {
	return t.style.head(t.w, &h, "machine: ", "note: ")
}

func (t *table) Row(r *Row) error {
	var b strings.Builder
	if !t.header {
		t.header = true
		line := fmt.Sprintf("%-11s %-26s %-9s %-9s %-8s %-19s %5s %8s %10s %10s %9s %9s %8s %7s %6s %6s %6s %7s %5s",
			"test", "over", "security", "scheduler", "poll", "links", "conns", "size", "Gbit/s", "ops/s",
			"p50", "p99", "frames", "retrans", "lost", "dup", "reord", "acks", "bad")
		line += fmt.Sprintf(" %8s %8s %8s", "calls/m", "switch/m", "wakes/m")
		if t.style.CPU {
			line += fmt.Sprintf(" %6s %6s %8s", "cli%", "srv%", "s/GiB")
		}
		fmt.Fprintf(&b, "%s\n%s\n", line, strings.Repeat("-", len(line)))
	}
	fmt.Fprintf(&b, "%-11s %-26s %-9s %-9s %-8s %-19s %5s %8s %10.3f %10s %9s %9s %8s %7d %6d %6d %6d %7d %5s", r.Test,
		clip(r.Contender(), 26), dash(r.Security), dash(r.Scheduler), dash(r.Poll),
		clip(unless(r.Links == 0, Rates(r.LinkRates, r.Links)), 19), unless(r.Connections == 0, r.Connections),
		Bytes(r.MessageBytes), r.Throughput*8/1e9, Count(r.OperationsPerSecond), lat(r.Latency, r.Latency.P50),
		lat(r.Latency, r.Latency.P99), Count(float64(r.FramesSent)), r.FramesRetransmitted, r.FramesLost,
		r.FramesDuplicated, r.FramesReordered, r.AcksExplicit, unless(!r.IntegrityChecked, r.IntegrityErrors))
	b.WriteString(effort(r, " %8s %8s %8s"))
	if t.style.CPU {
		fmt.Fprintf(&b, " %6.0f %6.0f %8.3f", percent(r.CPU.Client.Total, r.Seconds), percent(r.CPU.Server.Total,
			r.Seconds), r.PerGiB())
	}
	b.WriteString("\n")
	remarks(&b, r, "    ")
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *table) Close() error { return nil }

// effort is what each message cost both ends in the kernel; dashes where that was not counted.
func effort(r *Row, form string) string {
	calls, switches, wakes, ok := r.PerMessage()
	if !ok {
		return fmt.Sprintf(form, "-", "-", "-")
	}
	two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	return fmt.Sprintf(form, two(calls), two(switches), two(wakes))
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
