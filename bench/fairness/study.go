package fairness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"multiedge/bench/figure"
	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// Goals of this project.
const (
	leastIndex   = 0.9 // Jain's, beside TCP
	leastPoliced = 0.8
	leastAlone   = 0.9 // of the line
	leastUse     = 0.85
	leastLossy   = 10 // times what TCP has
)

var (
	roundTrips = []time.Duration{2, 10, 40, 80} // ms
	buffers    = []float64{0.25, 1, 4}
	lanesEach  = []int{1, 8}
)

// policedRTT is the round trip behind a policer, longRTT that of a line of one sender.
const (
	policedRTT = 20 * time.Millisecond
	longRTT    = 100 * time.Millisecond
)

// besides are the lines that are shared.
func besides() (list []*Beside) {
	for _, rtt := range roundTrips {
		for _, buffer := range buffers {
			for _, lanes := range lanesEach {
				list = append(list, &Beside{RTT: rtt * time.Millisecond, Buffer: buffer, Lanes: lanes})
			}
		}
	}
	for _, lanes := range lanesEach {
		list = append(list, &Beside{RTT: policedRTT, Lanes: lanes})
	}
	return list
}

// Numbers of lines among those of alone.
const (
	fast = iota
	lossyTCP
	lossyAuto
	lossyLossy
)

// alone are the lines of one sender.
func alone() []*Alone {
	one := func(name, way string, lanes int) *Alone {
		return &Alone{Name: name, Way: way, Lanes: lanes, Rate: 100e6, RTT: longRTT, Loss: 0.01, From: 10 * time.Second,
			Until: 20 * time.Second}
	}
	return []*Alone{fast: {Name: "1 Gbit/s, edge, 8 lanes", Way: "auto", Lanes: 8, Rate: 1e9, RTT: longRTT,
		From: 13 * time.Second, Until: 15 * time.Second},
		lossyTCP:   one("100 Mbit/s, 1 % lost, TCP cubic", "", 0),
		lossyAuto:  one("100 Mbit/s, 1 % lost, edge", "auto", 1),
		lossyLossy: one("100 Mbit/s, 1 % lost, edge with `lossy`", "lossy", 1)}
}

// Study simulates all lines. show is told what is being done, of begin's steps the one that step ends.
func Study(ctx context.Context, head report.Head, seed uint64, begin func(steps int), show kit.Show,
	step func()) (*xlate.Study, error) {
	return kit.Outcome(func() *xlate.Study {
		shared, single := besides(), alone()
		begin(len(shared) + len(single))
		for _, b := range shared {
			kit.Check(ctx.Err())
			show(b.name(), 0)
			b.run(seed)
			step()
		}
		for _, a := range single {
			kit.Check(ctx.Err())
			show(a.Name, 0)
			a.run(seed)
			step()
		}
		return page(head, seed, shared, single)
	})
}

func (b *Beside) name() string {
	if b.Buffer == 0 {
		return fmt.Sprintf("%v, a policer without a queue, %d lanes", b.RTT, b.Lanes)
	}
	return fmt.Sprintf("%v, a buffer of %g BDP, %d lanes", b.RTT, b.Buffer, b.Lanes)
}

// goal is the least index of a line.
func (b *Beside) goal() float64 {
	if b.Buffer == 0 {
		return leastPoliced
	}
	return leastIndex
}

// reached reports whether a line is shared fairly, and used.
func (b *Beside) reached() bool {
	return b.Index >= b.goal() && (b.Buffer == 0 || b.Edge+b.TCP >= leastUse)
}

func page(head report.Head, seed uint64, shared []*Beside, single []*Alone) *xlate.Study {
	out := &xlate.Study{Head: head, Title: "IP links beside TCP, and on long lines", Scale: 1, Seed: seed,
		Origin: "Simulated: windows, ledgers and acknowledgements of this transport beside a model of TCP with " +
			"CUBIC, on one line.",
		Paper: "RFC 9438, CUBIC for Fast and Long-Distance Networks, whose sender the model is"}
	t := xlate.Table{ID: "beside", Title: "100 Mbit/s shared with one TCP flow", Columns: []string{
		"round trip, buffer, lanes", "edge", "TCP cubic", "Jain's index", "goal", ""},
		Caption: "Parts of the line after both have found them, and Jain's index of fairness: 1 is even, 0.5 is all " +
			"for one. Buffers are in bandwidth-delay products (BDP). TCP begins two seconds before. The link has the " +
			"default, `auto`."}
	for _, b := range shared {
		t.Add(b.name(), append(xlate.Cells("%.2f %.2f %.3f %.1f", b.Edge, b.TCP, b.Index, b.goal()),
			verdict(b.reached()))...)
		out.Runs = append(out.Runs, xlate.Run{App: b.name(), Config: seed, Counts: b})
	}
	u := xlate.Table{ID: "alone", Title: "A line of 100 ms alone",
		Columns: []string{"line, sender", "part of the line"},
		Caption: "Between 13 and 15 s after the start without losses, between 10 and 20 s with."}
	for _, a := range single {
		u.Add(a.Name, xlate.Cells("%.4f", a.Part)...)
		out.Runs = append(out.Runs, xlate.Run{App: a.Name, Config: seed, Counts: a})
	}
	out.Tables = []xlate.Table{t, u}
	out.Figures = append(out.Figures, drawn(shared))
	goals(out, shared, single)
	return out
}

func verdict(reached bool) xlate.Cell {
	if reached {
		return xlate.Cell{Text: "reached"}
	}
	return xlate.Cell{Text: "MISSED"}
}

// drawn is Jain's index by round trip, a panel for each buffer, and one for the policer.
func drawn(shared []*Beside) figure.Figure {
	f := figure.Figure{ID: "fairness", Title: "Jain's index of a link beside one TCP flow with CUBIC",
		Caption: "100 Mbit/s; buffers in bandwidth-delay products."}
	for _, buffer := range append(slices.Clone(buffers), 0) {
		p := figure.Panel{Title: fmt.Sprintf("buffer of %g BDP", buffer), XLabel: "round trip", YLabel: "Jain's index"}
		if buffer == 0 {
			p.Title = "a policer"
		}
		for _, b := range shared {
			if b.Buffer != buffer {
				continue
			}
			p.Level = &figure.Level{Y: b.goal(), Text: "goal"}
			color := slices.Index(lanesEach, b.Lanes)
			if color == 0 {
				p.Names, p.Bars = append(p.Names, b.RTT.String()), append(p.Bars, nil)
			}
			group := &p.Bars[len(p.Bars)-1]
			*group = append(*group, figure.Bar{Parts: []figure.Part{{Value: b.Index, Color: color}}})
		}
		f.Panels = append(f.Panels, p)
	}
	for i, lanes := range lanesEach {
		f.Legend = append(f.Legend, figure.Entry{Text: fmt.Sprintf("%d lanes", lanes), Style: i, Bar: true})
	}
	return f
}

// goals are those of this project.
func goals(out *xlate.Study, shared []*Beside, single []*Alone) {
	worst := func(policed bool) (b *Beside, reached bool) {
		reached = true
		for _, o := range shared {
			if policed == (o.Buffer == 0) {
				if reached = reached && o.reached(); b == nil || o.Index < b.Index {
					b = o
				}
			}
		}
		return b, reached
	}
	why := "a window finds its part by losses, which hit senders by chance"
	if b, ok := worst(false); b != nil {
		out.AddGoal("fair", fmt.Sprintf("Jain's index is at least %g beside TCP, on lines that are used to %g.",
			leastIndex, leastUse), ok, why, "the least is %.3f: %s", b.Index, b.name())
	}
	if b, ok := worst(true); b != nil {
		out.AddGoal("policed", fmt.Sprintf("Behind a policer it is at least %g.", leastPoliced), ok, why,
			"the least is %.3f: %s", b.Index, b.name())
	}
	part := func(i int) float64 { return single[i].Part }
	out.AddGoal("long", fmt.Sprintf("Alone on 1 Gbit/s at 100 ms a link has %g of the line within 15 s.", leastAlone),
		part(fast) >= leastAlone, "the window grows by the curve of RFC 9438 after its start ended early", "%.3f",
		part(fast))
	out.AddGoal("loss", "Where 1 % of packets are lost a link has no less than TCP.", part(lossyAuto) >= part(lossyTCP),
		why, "%.4f; TCP: %.4f of the line", part(lossyAuto), part(lossyTCP))
	out.AddGoal("lossy", fmt.Sprintf("With `lossy` it has %d times as much.", leastLossy),
		part(lossyLossy) >= leastLossy*max(part(lossyAuto), part(lossyTCP)),
		"a window driven by delay settles near two frames for each lost one", "%.3f; `auto`: %.4f", part(lossyLossy),
		part(lossyAuto))
}
