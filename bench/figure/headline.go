package figure

import (
	"fmt"
	"slices"
	"strings"

	"multiedge/bench/report"
)

// Headline is how edge, in the form that came first, compares with TCP in one piece of work.
type Headline struct {
	Test       string
	Size       int
	Edge, TCP  string  // their names
	Ours, TCPs float64 // medians: nanoseconds where latency is compared, else bytes per second
	Ratio      float64 // Ours / TCPs
	Slower     bool    // than TCP
}

// headlines are the works a reader looks for first.
var headlines = []struct {
	test string
	size int
}{{report.PingPong, 8}, {report.OneWay, 8}, {report.OneWay, 1 << 20}, {report.TwoWay, 1 << 20},
	{report.PingPong, 1 << 20}}

// Headlines compares edge with TCP where it is better and where it is worse, in works that both did.
func Headlines(all []Beside) (out []Headline) {
	for _, w := range headlines {
		i := slices.IndexFunc(all, func(b Beside) bool { return b.Test == w.test })
		if i < 0 {
			continue
		}
		edge, tcp := all[i].first(report.TransportEdge), all[i].first(report.TransportTCP)
		ours, ok := all[i].cell(edge, w.size)
		theirs, both := all[i].cell(tcp, w.size)
		if !ok || !both {
			continue
		}
		h := Headline{Test: w.test, Size: w.size, Edge: edge, TCP: tcp, Ours: ours.Median, TCPs: theirs.Median,
			Ratio: ours.Median / theirs.Median}
		h.Slower = (h.Ratio > 1) == all[i].Latency && h.Ratio != 1
		out = append(out, h)
	}
	return out
}

// first names the first contender that uses a transport.
func (b *Beside) first(transport string) string {
	for _, name := range b.Contenders {
		if name == transport || strings.HasPrefix(name, transport+" ") {
			return name
		}
	}
	return ""
}

// Verdict says in words how edge compares with TCP.
func (h *Headline) Verdict() string {
	what, than := fmt.Sprintf("%.2f of its throughput", h.Ratio), "faster"
	if report.IsLatencyTest(h.Test) {
		what = fmt.Sprintf("%.2f of its time", h.Ratio)
	}
	if h.Slower {
		than = "slower"
	}
	return fmt.Sprintf("%s than %s (%s)", than, h.TCP, what)
}
