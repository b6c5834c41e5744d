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
	head, values := lines(p.columns(r))
	if key := p.banner(&same); key != p.last {
		p.last = key
		fmt.Fprintf(&b, "%s %s\n", p.banner(r), strings.TrimRight(head, " "))
	}
	fmt.Fprintf(&b, " %s\n", values)
	remarks(&b, r, "   ")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "   note: %s\n", n)
	}
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

// columns are what there is to say of a row, and in which form.
func (p *perftest) columns(r *Row) []column {
	unit, scale := "[MB/sec]", 1.0/(1<<20) // perftest's MB is 2^20 bytes
	if p.style.Gbits {
		unit, scale = "[Gb/sec]", 8/1e9
	}
	cs := []column{{"#bytes", "%-10d", r.MessageBytes}}
	if l := &r.Latency; IsLatencyTest(r.Test) {
		cs = append(cs, column{"#iterations", "%-12d", l.Count}, column{"t_min[usec]", "%-11.2f", l.Min / 1e3},
			column{"t_max[usec]", "%-11.2f", l.Max / 1e3}, column{"t_typical[usec]", "%-15.2f", l.P50 / 1e3},
			column{"t_avg[usec]", "%-11.2f", l.Mean / 1e3}, column{"t_stdev[usec]", "%-13.2f", l.Stddev / 1e3},
			column{"99% percentile[usec]", "%-21.2f", l.P99 / 1e3},
			column{"99.9% percentile[usec]", "%-23.2f", l.P999 / 1e3},
			column{"90%[usec]", "%-11.2f", l.P90 / 1e3}, column{"99.99%[usec]", "%-11.2f", l.P9999 / 1e3})
	} else {
		cs = append(cs, column{"#iterations", "%-12d", r.Operations},
			column{"BW peak" + unit, "%-18.2f", max(r.PeakThroughput, r.Throughput) * scale},
			column{"BW average" + unit, "%-20.2f", r.Throughput * scale},
			column{"MsgRate[Mpps]", "%-13.6f", r.OperationsPerSecond / 1e6}, column{"depth", "%-6d", r.QueueDepth})
		if r.Connections > 1 {
			cs = append(cs, column{"conns", "%-6d", r.Connections})
		}
	}
	cs = append(cs, column{"frames", "%-9d", r.FramesSent}, column{"retrans", "%-7d", r.FramesRetransmitted},
		column{"lost", "%-7d", r.FramesLost}, column{"dup", "%-7d", r.FramesDuplicated},
		column{"reord", "%-7d", r.FramesReordered}, column{"acks", "%-7d", r.AcksExplicit})
	if r.IntegrityChecked {
		cs = append(cs, column{"badmsgs", "%-7d", r.IntegrityErrors})
	}
	calls, switches, wakes := r.efforts()
	cs = append(cs, column{"calls/msg", "%-9s", calls}, column{"switches/msg", "%-12s", switches},
		column{"wakes/msg", "%-9s", wakes})
	if p.style.CPU {
		cs = append(cs, column{"cli_cpu[%]", "%-12.0f", percent(r.CPU.Client.Total, r.Seconds)},
			column{"srv_cpu[%]", "%-12.0f", percent(r.CPU.Server.Total, r.Seconds)},
			column{"cpu_s/GiB", "%-9.3f", r.PerGiB()})
	}
	return cs
}

// percent is the share of one processor that seconds of its time are of a duration.
func percent(cpu, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return 100 * cpu / seconds
}
