package figure

import "multiedge/bench/report"

// polling is figure 3.3, upper row, with the latency that waiting costs: one curve for each way to wait.
func polling(rows []entry) Figure {
	f := Figure{
		ID: "polling", Title: "Interrupts and polling: throughput and latency",
		Caption: "Waiting by blocking (interrupts), adaptively (polling for a while, then blocking) and by polling " +
			"alone (paper, figure 3.3). Dashed: the 99th percentile.",
	}
	var st styles
	for _, test := range []string{report.OneWay, report.TwoWay, report.Read} {
		f.Panels = append(f.Panels, throughputPanel(only(rows, test), test, &st))
	}
	p := Panel{Title: "ping-pong: half round trip", XLabel: sizeLabel, YLabel: "latency (us)", SizeX: true, LogY: true}
	for _, c := range configsOf(rows, report.PingPong) {
		for _, q := range middleAndTail {
			l := line(c.rows, st.of(c.label), func(e entry) float64 { return micros(e.Latency, q(e.Latency)) })
			if l.Thin = len(p.Lines) > 0 && p.Lines[len(p.Lines)-1].Style == l.Style; l.Thin {
				l.Lo, l.Hi, l.Busy = nil, nil, nil
			}
			p.Lines = append(p.Lines, l)
		}
	}
	f.Panels, f.Legend = append(f.Panels, p), legend(st)
	return f.trim()
}

// pollingCPU is figure 3.3, lower row.
func pollingCPU(rows []entry) Figure {
	f := Figure{
		ID: "polling-cpu", Title: "Interrupts and polling: CPU utilization",
		Caption: "Processor time of both ends, applications and daemons together, while the test ran; 100 % is one " +
			"processor (paper, figure 3.3).",
	}
	var st styles
	for _, test := range []string{report.OneWay, report.TwoWay, report.Read, report.PingPong} {
		p := Panel{Title: test, XLabel: sizeLabel, YLabel: "CPU utilization (%)", SizeX: true}
		for _, c := range configsOf(rows, test) {
			p.Lines = append(p.Lines, line(c.rows, st.of(c.label),
				func(e entry) float64 { return 100 * e.CPU.Total / max(e.Seconds, 1e-9) }))
		}
		f.Panels = append(f.Panels, p)
	}
	f.Legend = legend(st)
	return f.trim()
}
