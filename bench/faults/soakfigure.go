package faults

import (
	"fmt"

	"multiedge/bench/figure"
)

// SoakFigures draw what a soak's daemons held and how operations fared, over time.
func SoakFigures(samples []Sample) []figure.Figure {
	if len(samples) == 0 {
		return nil
	}
	pts := thin(samples, 72)
	names := make([]string, len(pts))
	for i := range pts {
		if i%max(1, len(pts)/6) == 0 {
			names[i] = clock(pts[i].Seconds)
		}
	}
	line := func(style int, value func(*Sample) float64) figure.Line {
		l := figure.Line{Style: style}
		for i := range pts {
			l.X, l.Y = append(l.X, float64(i)), append(l.Y, value(&pts[i]))
		}
		return l
	}
	both := func(value func(*DaemonSample) float64) []figure.Line {
		return []figure.Line{
			line(0, func(s *Sample) float64 { return value(&s.Daemons[0]) }),
			line(1, func(s *Sample) float64 { return value(&s.Daemons[1]) }),
		}
	}
	panel := func(title, unit string, logY bool, lines ...figure.Line) figure.Panel {
		return figure.Panel{Title: title, XLabel: "time", YLabel: unit, Names: names, LogY: logY, Lines: lines}
	}
	hosts := []figure.Entry{{Text: "daemon of host0", Style: 0}, {Text: "daemon of host1", Style: 1}}
	return []figure.Figure{
		{
			ID: "soak-held", Title: "What the daemons hold", Legend: hosts,
			Caption: "Resident memory, descriptors and goroutines over time. Daemons are restarted in the first " +
				"third only.",
			Panels: []figure.Panel{
				panel("resident memory", "MiB", false,
					both(func(d *DaemonSample) float64 { return float64(d.Resident) / (1 << 20) })...),
				panel("resident memory at rest", "MiB", false,
					both(func(d *DaemonSample) float64 { return float64(d.AtRest) / (1 << 20) })...),
				panel("descriptors", "", false,
					both(func(d *DaemonSample) float64 { return float64(d.Descriptors) })...),
				panel("goroutines", "", false, both(func(d *DaemonSample) float64 { return float64(d.Goroutines) })...),
			},
		},
		{
			ID: "soak-work", Title: "How operations fare", Legend: []figure.Entry{{Text: "p50, goodput, stolen",
				Style: 2}, {Text: "p99", Style: 3}},
			Caption: "Operations of 1 byte to 1 MiB from host0 to host1: time from posting to completion, and " +
				"goodput, through all faults; and what a hypervisor took of the processors.",
			Panels: []figure.Panel{
				panel("latency", "ms", true, line(2, func(s *Sample) float64 { return s.P50 / 1e6 }),
					line(3, func(s *Sample) float64 { return s.P99 / 1e6 })),
				panel("goodput", "Gbit/s", false, line(2, func(s *Sample) float64 { return s.Goodput * 8 / 1e9 })),
				panel("processors stolen", "%", false, line(2, func(s *Sample) float64 { return 100 * s.Stolen })),
			},
		},
	}
}

// thin keeps at most so many samples, evenly, the last among them.
func thin(samples []Sample, most int) []Sample {
	if len(samples) <= most {
		return samples
	}
	out := make([]Sample, 0, most)
	for i := range most {
		out = append(out, samples[i*(len(samples)-1)/(most-1)])
	}
	return out
}

func clock(seconds float64) string {
	if seconds < 120 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}
