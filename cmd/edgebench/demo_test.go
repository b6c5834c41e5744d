package main

import (
	"bytes"
	"strings"
	"testing"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// The demonstration says first where edge is slower than TCP, 8-byte latency included, then shows tables whose heads
// count the links of each, and how edge can pass raw packet sockets.
func TestDemoSaysWhereEdgeIsSlower(t *testing.T) {
	f := report.NewFile(report.Head{})
	for _, size := range []int{8, 4096, 65536, 1 << 20} {
		for name, us := range map[string]float64{report.TransportEdge: 24, report.TransportTCP: 18} {
			f.Results = append(f.Results, report.Row{Test: report.PingPong, Transport: name, MessageBytes: size,
				Links:   2,
				Setup:   report.Setup{Round: 1, Variant: map[bool]string{true: "cubic"}[name == report.TransportTCP]},
				Latency: report.Latency{Count: 9, P50: us * 1e3}, Seconds: 1})
		}
	}
	var b bytes.Buffer
	printDemo(&b, figure.Besides([]figure.Source{{File: f}}))
	text := b.String()
	first, _, _ := strings.Cut(text, "\n")
	if !strings.Contains(first, "ping-pong     8 B: edge 24.000 us, tcp cubic 18.000: slower than tcp cubic (1.33 of "+
		"its time)") {
		t.Errorf("first line %q", first)
	}
	for _, want := range []string{"edge, 2 links", "tcp cubic, 1 link", "edge may pass it"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
