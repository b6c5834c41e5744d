package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/proc"
	"multiedge/bench/report"
)

// tell counts what clients did.
func (s *soak) tell(w *Window) {
	s.counted("operations", w.Ops)
	s.counted("operations that failed, typed", total(w.Errors))
	s.counted("reconnects", w.Reconnects)
}

// sample records the state of daemons and clients.
func (s *soak) sample(show func(*Sample)) {
	x := Sample{Seconds: time.Since(s.start).Seconds()}
	if s.active != nil {
		x.Fault = s.active.name
	}
	for h := range x.Daemons {
		pid := s.cluster.Daemon(h).Pid()
		m := s.scrape(h)
		x.Daemons[h] = DaemonSample{
			Resident: proc.Resident(pid), Descriptors: int(m["process_open_fds"]), Goroutines: int(m["go_goroutines"]),
			Pinned: uint64(m["edge_pinned_bytes"]),
			Starts: s.starts[h],
		}
		if r := s.rests[h]; len(r) > 0 {
			x.Daemons[h].AtRest = r[len(r)-1].kept
		}
	}
	for _, c := range s.clients {
		if c.killed {
			continue
		}
		w := s.mark(c, "sample")
		if c == s.forward {
			x.P50, x.P99, x.Stall, x.Goodput, x.Ops, x.Late, x.Errors = w.P50, w.P99, float64(w.Stall), w.rate(), w.Ops,
				w.Late, w.Errors
		}
		s.tell(w)
	}
	since := x.Seconds
	if n := len(s.samples); n > 0 {
		since -= s.samples[n-1].Seconds
	}
	x.Stolen, s.stolen = report.StolenShare(s.stolen, since), report.StolenSeconds()
	s.samples = append(s.samples, x)
	show(&x)
}

// rest is the resident memory of an idle daemon that has collected its garbage.
type rest struct {
	seconds float64
	kept    Kept
	starts  int
}

// collectTime is how long a daemon may take to collect its garbage.
const collectTime = 5 * time.Second

// collect makes the daemons, which are idle, return unused memory, and records what they keep.
func (s *soak) collect() {
	for h := range 2 {
		file := keptFile(s.cluster.Socket(h))
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			kit.Check(err)
			return
		}
		kit.Check(syscall.Kill(s.cluster.Daemon(h).Pid(), collectSignal))
		var kept Kept
		_, ok := s.event(collectTime, func() bool {
			data, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(data, &kept)
			}
			return err == nil
		})
		if !ok {
			kit.Fail("the daemon of host %d does not collect its garbage", h)
		}
		s.rests[h] = append(s.rests[h], rest{time.Since(s.start).Seconds(), kept, s.starts[h]})
	}
}

// slopes records how resident memory at rest grew over the second half, with two standard errors. It judges the slope
// if that half is long enough.
func (s *soak) slopes() {
	for h := range 2 {
		var x []float64
		var rests []Kept
		for _, r := range s.rests[h] {
			if r.starts == s.starts[h] && r.seconds >= s.o.Duration.Seconds()/2 {
				x, rests = append(x, r.seconds/3600), append(rests, r.kept)
			}
		}
		if len(x) == 0 {
			continue
		}
		grows := func(of func(*Kept) uint64) (perHour, deviation float64) {
			y := make([]float64, len(rests))
			for i := range rests {
				y[i] = float64(of(&rests[i]))
			}
			return slope(x, y)
		}
		b, deviation := grows(func(k *Kept) uint64 { return k.Resident })
		share, chance := b/float64(rests[0].Resident), 2*deviation/float64(rests[0].Resident)
		s.row.Measured[fmt.Sprintf("resident memory of host%d %% per hour", h)] = 100 * share
		s.row.Measured[fmt.Sprintf("resident memory of host%d +- %%", h)] = 100 * chance
		what := fmt.Sprintf("resident memory of host%d grows less than 1 %% per hour", h)
		if span := time.Duration((x[len(x)-1] - x[0]) * float64(time.Hour)); span < slopeSpan {
			s.skipped(what)
			continue
		}
		parts := ""
		for _, p := range []struct {
			name string
			of   func(*Kept) uint64
		}{
			{"mapped", func(k *Kept) uint64 { return k.Mapped }}, {"heap", func(k *Kept) uint64 { return k.Heap }},
			{"stacks", func(k *Kept) uint64 { return k.Stacks }}, {"tables", func(k *Kept) uint64 { return k.Tables }},
		} {
			perHour, _ := grows(p.of)
			parts += fmt.Sprintf(", %s %+.0f kB", p.name, perHour/1000)
		}
		s.check(what, share < slopeMost, "%.2f +- %.2f %%%s", 100*share, 100*chance, parts)
	}
}

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
					both(func(d *DaemonSample) float64 { return float64(d.AtRest.Resident) / (1 << 20) })...),
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
