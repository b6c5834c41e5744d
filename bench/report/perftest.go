package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// perftest writes text that readers of ib_write_bw and ib_write_lat know: the same columns in the same order and units,
// then what perftest does not have (the rest of the percentiles, what happened to frames, processor time).
type perftest struct {
	w     io.Writer
	style Style
	last  string // what the columns on screen describe
}

const rule = "---------------------------------------------------------------------------------------"

func (p *perftest) Head(h Head) error {
	return p.style.head(p.w, &h, " Machine: ", " Note: ")
}

func (p *perftest) Row(r *Row) error {
	var b strings.Builder
	same := *r
	same.QueueDepth = 0 // falls with the message size by itself, and has a column
	if key := p.banner(&same); key != p.last {
		p.last = key
		b.WriteString(p.banner(r))
		b.WriteString(p.columns(r))
	}
	if IsLatencyTest(r.Test) {
		p.latency(&b, r)
	} else {
		p.bandwidth(&b, r)
	}
	p.tail(&b, r)
	_, err := io.WriteString(p.w, b.String())
	return err
}

func (p *perftest) Close() error {
	if p.last == "" {
		return nil
	}
	_, err := fmt.Fprintln(p.w, rule)
	return err
}

// title names a test the way perftest would.
func title(r *Row) string {
	names := map[string]string{
		OneWay: "Write BW Test (one-way)", TwoWay: "Write Bidirectional BW Test (two-way)",
		PingPong: "Write Latency Test (ping-pong)",
		Read:     "Read BW Test", Rate: "Small Write Rate Test",
		SendLatency: "Send Latency Test (ping-pong)", SendRate: "Small Send Rate Test",
	}
	t := cmp.Or(names[r.Test], r.Test)
	if r.Transport != TransportEdge {
		t += " over " + r.Contender()
	}
	return t
}

// banner is the block above the columns. It repeats when the test or its configuration changes.
func (p *perftest) banner(r *Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n                    MultiEdge %s\n", rule, title(r))
	fmt.Fprintf(&b, " Links           : %-18s Mtu             : %d[B]\n", Rates(r.LinkRates, r.Links), r.MTU)
	fmt.Fprintf(&b, " Transport       : %-18s Attachment      : %s\n", r.Transport, dash(r.Attach))
	fmt.Fprintf(&b, " Scheduler       : %-18s Checksum        : %s\n", dash(r.Scheduler), dash(r.Checksum))
	if r.Security != "" {
		fmt.Fprintf(&b, " Security        : %-18s Driver          : %s\n", r.Security, dash(r.Driver))
	}
	fmt.Fprintf(&b, " TX depth        : %-18d Region          : %s\n", r.QueueDepth, Bytes(r.RegionBytes))
	if r.Connections > 1 {
		fmt.Fprintf(&b, " Connections     : %d, sharing the operations in flight\n", r.Connections)
	}
	if IsLatencyTest(r.Test) {
		fmt.Fprintf(&b, " Latency is half a round trip.\n")
	}
	if !r.IntegrityChecked {
		fmt.Fprintf(&b, " Data is not checked (--integrity does).\n")
	}
	fmt.Fprintln(&b, rule)
	return b.String()
}

func dash(s string) string { return cmp.Or(s, "-") }

// unless formats a value; a dash where there is none.
func unless(none bool, v any) string {
	if none {
		return "-"
	}
	return fmt.Sprint(v)
}

// remarks writes what more is to be said of a row, each in a line.
func remarks(b *strings.Builder, r *Row, indent string) {
	if text := r.EffortText(); text != "" && isLatency(r) {
		fmt.Fprintf(b, "%s%s\n", indent, text)
	}
	for _, d := range r.IntegrityDetail {
		fmt.Fprintf(b, "%sintegrity: %s\n", indent, d)
	}
	if r.Error != "" {
		fmt.Fprintf(b, "%sfailed: %s\n", indent, r.Error)
	}
}

// columns is the line of column names, and its unit follows the style.
func (p *perftest) columns(r *Row) string {
	var s string
	if IsLatencyTest(r.Test) {
		s = fmt.Sprintf(" %-10s %-12s %-11s %-11s %-15s %-11s %-13s %-21s %-23s %-11s %-11s", "#bytes", "#iterations",
			"t_min[usec]",
			"t_max[usec]", "t_typical[usec]", "t_avg[usec]", "t_stdev[usec]", "99% percentile[usec]",
			"99.9% percentile[usec]", "90%[usec]", "99.99%[usec]")
	} else {
		s = fmt.Sprintf(" %-10s %-12s %-18s %-20s %-13s", "#bytes", "#iterations", "BW peak["+p.unit()+"]",
			"BW average["+p.unit()+"]", "MsgRate[Mpps]")
	}
	if !IsLatencyTest(r.Test) {
		s += fmt.Sprintf(" %-6s", "depth")
		if r.Connections > 1 {
			s += fmt.Sprintf(" %-6s", "conns")
		}
	}
	s += fmt.Sprintf(" %-9s %-7s %-7s %-7s %-7s %-7s", "frames", "retrans", "lost", "dup", "reord", "acks")
	if r.IntegrityChecked {
		s += fmt.Sprintf(" %-7s", "badmsgs")
	}
	s += fmt.Sprintf(" %-9s %-12s %-9s", "calls/msg", "switches/msg", "wakes/msg")
	if p.style.CPU {
		s += fmt.Sprintf(" %-12s %-12s %-9s", "cli_cpu[%]", "srv_cpu[%]", "cpu_s/GiB")
	}
	return strings.TrimRight(s, " ") + "\n"
}

func (p *perftest) unit() string {
	if p.style.Gbits {
		return "Gb/sec"
	}
	return "MB/sec"
}

// bw converts to perftest's units: its MB is 2^20 bytes.
func (p *perftest) bw(bytesPerSecond float64) float64 {
	if p.style.Gbits {
		return bytesPerSecond * 8 / 1e9
	}
	return bytesPerSecond / (1 << 20)
}

func (p *perftest) bandwidth(b *strings.Builder, r *Row) {
	peak := max(r.PeakThroughput, r.Throughput)
	fmt.Fprintf(b, " %-10d %-12d %-18.2f %-20.2f %-13.6f", r.MessageBytes, r.Operations, p.bw(peak), p.bw(r.Throughput),
		r.OperationsPerSecond/1e6)
}

func (p *perftest) latency(b *strings.Builder, r *Row) {
	l, us := r.Latency, func(ns float64) float64 { return ns / 1e3 }
	fmt.Fprintf(b, " %-10d %-12d %-11.2f %-11.2f %-15.2f %-11.2f %-13.2f %-21.2f %-23.2f %-11.2f %-11.2f",
		r.MessageBytes, l.Count,
		us(l.Min), us(l.Max), us(l.P50), us(l.Mean), us(l.Stddev), us(l.P99), us(l.P999), us(l.P90), us(l.P9999))
}

func (p *perftest) tail(b *strings.Builder, r *Row) {
	if !IsLatencyTest(r.Test) {
		fmt.Fprintf(b, " %-6d", r.QueueDepth)
		if r.Connections > 1 {
			fmt.Fprintf(b, " %-6d", r.Connections)
		}
	}
	fmt.Fprintf(b, " %-9d %-7d %-7d %-7d %-7d %-7d", r.FramesSent, r.FramesRetransmitted, r.FramesLost,
		r.FramesDuplicated, r.FramesReordered, r.AcksExplicit)
	if r.IntegrityChecked {
		fmt.Fprintf(b, " %-7d", r.IntegrityErrors)
	}
	b.WriteString(effort(r, " %-9s %-12s %-9s"))
	if p.style.CPU {
		fmt.Fprintf(b, " %-12.0f %-12.0f %-9.3f", percent(r.CPU.Client.Total, r.Seconds), percent(r.CPU.Server.Total,
			r.Seconds), r.PerGiB())
	}
	b.WriteString("\n")
	remarks(b, r, "   ")
	for _, n := range r.Notes {
		fmt.Fprintf(b, "   note: %s\n", n)
	}
}

// percent is the share of one processor that seconds of its time are of a duration.
func percent(cpu, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return 100 * cpu / seconds
}
