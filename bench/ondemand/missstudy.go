package ondemand

import (
	"fmt"
	"math"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
	"multiedge/internal/config"
	"multiedge/internal/inspect"
)

// latency is half a round trip in microseconds, and bandwidth what goes one way in MB/s, as in a ping-pong.
func (p *Pings) latency() float64   { return report.Median(p.Mean) / 1000 }
func (p *Pings) bandwidth() float64 { return float64(p.Bytes) / p.latency() }

// pingsOf returns those of a variant and a size, by rising share of misses.
func (r *Result) pingsOf(variant string, bytes int) (list []Pings) {
	for _, p := range r.Pings {
		if p.Variant == variant && p.Bytes == bytes {
			list = append(list, p)
		}
	}
	return list
}

func (r *Result) pingStudy(s *xlate.Study) {
	t := xlate.Table{ID: "dhl-figure4", Title: "DHL figure 4: ping-pong over the share of misses", Caption: "Pings " +
		"miss at one of the two hosts, evenly; means, as bandwidth is. drop: what misses is left unreceived and sent " +
		"again, as in the paper; park: it waits at the receiver. The text of the paper prints no number of its figure.",
		Columns: []string{"daemons, bytes, misses", "half round trip, us", "MB/s", "missed"}}
	for i := range r.Pings {
		p := &r.Pings[i]
		t.Add(fmt.Sprintf("%s, %d, %d %%", p.Variant, p.Bytes, p.Percent),
			xlate.Cells("%.1f %.1f %.2f", p.latency(), p.bandwidth(), p.Missed)...)
	}
	s.Tables = append(s.Tables, t)
	s.Figures = append(s.Figures, r.pingFigure())
	if len(r.pingsOf(config.MissesDrop, pingSizes[0])) == len(pingPercents) {
		r.pingTrends(s)
	}
}

func (r *Result) pingFigure() figure.Figure {
	f := figure.Figure{ID: "dhl-figure4", Title: "DHL figure 4: the effect of misses on ping-pong latency and " +
		"bandwidth",
		Caption: "Solid: daemons that drop what misses, as the paper's interface does. Dashed: daemons that park it. " +
			"Misses are of chunks that were evicted, whose pages are there."}
	lat := figure.Panel{Title: "latency", XLabel: "misses, per cent", YLabel: "half round trip, us", LogY: true}
	bw := figure.Panel{Title: "bandwidth", XLabel: "misses, per cent", YLabel: "MB/s", LogY: true}
	for _, p := range pingPercents {
		if p%25 == 0 {
			lat.Names, bw.Names = append(lat.Names, fmt.Sprint(p)), append(bw.Names, fmt.Sprint(p))
		}
	}
	for style, n := range pingSizes {
		for _, variant := range []string{config.MissesDrop, config.MissesPark} {
			l := figure.Line{Style: style, Thin: variant == config.MissesPark}
			b := l
			for _, p := range r.pingsOf(variant, n) {
				x := float64(p.Percent) / 25
				l.X, l.Y = append(l.X, x), append(l.Y, p.latency())
				b.X, b.Y = append(b.X, x), append(b.Y, p.bandwidth())
			}
			lat.Lines, bw.Lines = append(lat.Lines, l), append(bw.Lines, b)
		}
		f.Legend = append(f.Legend, figure.Entry{Text: fmt.Sprintf("%d bytes", n), Style: style})
	}
	f.Panels = []figure.Panel{lat, bw}
	return f
}

// pingTrends judges what the paper says of its figure 4 (§V.B), of daemons that drop.
func (r *Result) pingTrends(s *xlate.Study) {
	worst, steep, halves := 1.0, 1.0, 0.0
	for _, n := range pingSizes {
		list := r.pingsOf(config.MissesDrop, n)
		worst = min(worst, straight(list))
		first, last := list[0].bandwidth(), list[len(list)-1].bandwidth()
		steep = min(steep, 1-last/first)
		for _, p := range list {
			if p.Percent == 25 {
				halves = max(halves, (p.bandwidth()-last)/(first-last))
			}
		}
	}
	s.AddTrend("miss-latency", "DHL figure 4", "Latency grows linearly with the share of misses (agrees if a rising "+
		"line explains 0.9 of it at every size).", worst >= 0.9,
		"what is lost is found by time, which a sender learns from round trips, those of misses among them",
		"the line explains %.2f of it at the worst size", worst)
	s.AddTrend("miss-bandwidth", "DHL figure 4", "Bandwidth degrades rapidly (agrees if half of what all misses take "+
		"is gone when a quarter misses, and that is half at least).", halves <= 0.5 && steep >= 0.5,
		"a miss costs little beside a ping", "all misses take %.2f of the bandwidth at least; of that %.2f is left "+
			"when a quarter misses, at most", steep, halves)
	small, large := r.pingsOf(config.MissesDrop, pingSizes[0]), r.pingsOf(config.MissesDrop,
		pingSizes[len(pingSizes)-1])
	adds := func(l []Pings) float64 { return l[len(l)-1].latency() - l[0].latency() }
	takes := func(l []Pings) float64 { return l[0].bandwidth() - l[len(l)-1].bandwidth() }
	s.AddTrend("miss-size", "DHL figure 4", "A miss costs larger messages more, in latency and in bandwidth.",
		adds(large) > adds(small) && takes(large) > takes(small), "the later frames of a large message show that an "+
			"earlier one is missing, and only that one is sent again; the loss of a message of one frame is found by "+
			"time",
		"%d bytes: %.0f us and %.0f MB/s; %d bytes: %.0f us and %.1f MB/s", large[0].Bytes, adds(large), takes(large),
		small[0].Bytes, adds(small), takes(small))
}

// straight is how much of the latencies' variance a rising straight line over the share of misses explains; 0 for a
// falling one.
func straight(list []Pings) float64 {
	n, mx, my := float64(len(list)), 0.0, 0.0
	for i := range list {
		mx, my = mx+float64(list[i].Percent)/n, my+list[i].latency()/n
	}
	xx, xy, yy := 0.0, 0.0, 0.0
	for i := range list {
		x, y := float64(list[i].Percent)-mx, list[i].latency()-my
		xx, xy, yy = xx+x*x, xy+x*y, yy+y*y
	}
	if xy <= 0 || yy == 0 {
		return 0
	}
	return xy * xy / (xx * yy)
}

// dist is a histogram, by rising bounds.
type dist []inspect.Bucket

func (d dist) count() (n uint64) {
	for _, b := range d {
		n += b.Count
	}
	return n
}

// within is the share that took so long, in microseconds: whole buckets, judged by their upper bounds.
func (d dist) within(least, most float64) float64 {
	n := uint64(0)
	for _, b := range d {
		if us := b.Seconds * 1e6; us > least && us <= most*1.001 {
			n += b.Count
		}
	}
	return float64(n) / float64(max(d.count(), 1))
}

// quantile is the bound below which such a share lies, in microseconds.
func (d dist) quantile(q float64) float64 {
	n := uint64(0)
	for _, b := range d {
		if n += b.Count; float64(n) >= q*float64(d.count()) {
			return b.Seconds * 1e6
		}
	}
	return 0
}

func (r *Result) timesStudy(s *xlate.Study) {
	t := xlate.Table{ID: "dhl-miss-times", Title: "DHL §V.C: how long a miss takes (us)", Caption: "Of the daemon's " +
		"pinner, in pings that all miss, by its histograms, whose bounds are 1.19 times each other. Delay: until it " +
		"begins. Processing: filling and locking 64 KiB. The paper: 0 to 50 and 5 to 500 us.",
		Columns: []string{"program, budget", "misses", "delay p50", "p90", "p99", "in 0 to 50", "processing p50", "p90",
			"p99", "in 5 to 500"}}
	f := xlate.Facts.DHL
	for _, m := range r.Times {
		d, p := dist(m.Delay), dist(m.Pin)
		t.Add(fmt.Sprintf("%s, %d MiB", m.Program, m.Budget>>20), xlate.Cells("%.0f %.1f %.1f %.1f %.2f %.1f %.1f "+
			"%.1f %.2f",
			float64(d.count()), d.quantile(0.5), d.quantile(0.9), d.quantile(0.99), d.within(f.Delay[0], f.Delay[1]),
			p.quantile(0.5), p.quantile(0.9), p.quantile(0.99), p.within(f.Service[0], f.Service[1]))...)
	}
	s.Tables = append(s.Tables, t)
	s.Figures = append(s.Figures, r.timesFigure())
	r.timesTrends(s)
}

// timesFigure draws both distributions, with the paper's ranges as dashed lines.
func (r *Result) timesFigure() figure.Figure {
	f := figure.Figure{ID: "dhl-miss-times", Title: "DHL §V.C: the distribution of miss times", Caption: "Share of " +
		"misses that took at most so long. Dashed: the paper's range, of which it says no more, as a straight line " +
		"from its lower end to its upper one."}
	const octaves = 15 // 1 us to 16 ms
	place := func(us float64) float64 { return min(max(math.Log2(us), 0), octaves-1) }
	for i, part := range []struct {
		title string
		paper [2]float64
		of    func(*MissTimes) dist
	}{{"until the handler begins", xlate.Facts.DHL.Delay, func(m *MissTimes) dist { return m.Delay }},
		{"by the handler", xlate.Facts.DHL.Service, func(m *MissTimes) dist { return m.Pin }}} {
		p := figure.Panel{Title: part.title, XLabel: "us", YLabel: "share of misses"}
		for n := range octaves {
			p.Names = append(p.Names, fmt.Sprint(1<<n))
		}
		for style := range r.Times {
			m, sum := &r.Times[style], uint64(0)
			l, d := figure.Line{Style: style}, part.of(m)
			for _, b := range d {
				sum += b.Count
				l.X, l.Y = append(l.X, place(b.Seconds*1e6)), append(l.Y, float64(sum)/float64(d.count()))
			}
			p.Lines = append(p.Lines, l)
			if i == 0 {
				f.Legend = append(f.Legend, figure.Entry{Text: fmt.Sprintf("%s, %d MiB", m.Program, m.Budget>>20),
					Style: style})
			}
		}
		p.Lines = append(p.Lines, figure.Line{Style: len(r.Times), Thin: true,
			X: []float64{place(max(part.paper[0], 1)), place(part.paper[1])}, Y: []float64{0, 1}})
		f.Panels = append(f.Panels, p)
	}
	f.Legend = append(f.Legend, figure.Entry{Text: "the paper's range", Style: len(r.Times)})
	return f
}

// timesTrends judges what the paper says of the times of misses.
func (r *Result) timesTrends(s *xlate.Study) {
	f := xlate.Facts.DHL
	delay, service, wider := 1.0, 1.0, true
	budgets, programs := 1.0, math.Inf(1)
	apart := func(a, b float64) float64 { return max(a/b, b/a) }
	for i := range r.Times {
		m := &r.Times[i]
		d, p := dist(m.Delay), dist(m.Pin)
		delay, service = min(delay, d.within(f.Delay[0], f.Delay[1])), min(service, p.within(f.Service[0],
			f.Service[1]))
		wider = wider && p.quantile(0.95)-p.quantile(0.05) > d.quantile(0.95)-d.quantile(0.05)
		for _, o := range r.Times[:i] {
			x := apart(p.quantile(0.5), dist(o.Pin).quantile(0.5))
			switch {
			case o.Program == m.Program:
				budgets = max(budgets, x)
			case o.Budget == m.Budget:
				programs = min(programs, x)
			}
		}
	}
	s.AddTrend("delay", "DHL §V.C", "The delay is usually 0 to 50 us (agrees if 0.9 are).", delay >= 0.9,
		"the pinner is a thread of the daemon, and sleeps: on a busy machine waking it takes longer",
		"%.2f at the worst", delay)
	s.AddTrend("service", "DHL §V.C", "Processing takes 5 to 500 us (agrees if 0.9 do).", service >= 0.9,
		"locking pages that are there takes a processor of today a few microseconds", "%.2f at the worst", service)
	s.AddTrend("variation", "DHL §V.C", "The delay varies less than processing (agrees if the range of its middle "+
		"0.9 is narrower, for every program).", wider, "the handler locks memory that is there, without waiting; the "+
		"paper's "+
		"calls memory management in turn with the programs", "%s", map[bool]string{true: "for all", false: "not for " +
		"all"}[wider])
	s.AddTrend("configuration", "DHL §V.C", "Miss times do not depend on the cache's configuration, and differ "+
		"between programs (agrees if medians of processing are within 1.5 times over budgets, and beyond between "+
		"programs).",
		budgets <= 1.5 && programs > 1.5, noise, "over budgets %.2f times at most, between programs %.2f at least",
		budgets,
		programs)
}
