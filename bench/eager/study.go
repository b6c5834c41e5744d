package eager

import (
	"fmt"
	"slices"

	"multiedge/bench/figure"
	"multiedge/bench/report"
	"multiedge/bench/xlate"
)

// What the paper tells in numbers (§7.2): by how much EDT's latency is below that of cache-coherent DMA with
// intervention, from 64 bytes to 4 KiB, where the DMA has the rate of the bus.
const paperLeast, paperMost = 17.0, 38.0

const (
	paperGain  = "17-38 %"
	paperClaim = "EDT's latency is at least 17 % below that of cache-coherent DMA (the paper: 17 to 38)."
)

// breakdownBytes is the size of figure 9.
const breakdownBytes = 256

// PaperCompose is how long the paper's User Data takes in ns for each KiB, as far as it can be computed: its figure 8
// has bars without numbers. The bus moves 1600 MB/s at most, and each line of 128 bytes crosses it twice, once to be
// owned and once to be read by the NI (table 1, §5).
const PaperCompose = 1280

// Study shows results, one for each MTU, and those of the simulator, beside what the paper says.
func Study(head report.Head, results []*Result, models []Model) *xlate.Study {
	s := &xlate.Study{Head: head, Title: "Eager transfer", Scale: 1, Seed: 1,
		Origin: "Measured on this machine, between two hosts of a lab; where it says simulated, computed.",
		Paper: "Won, Lee, Park and Kim, Eager Data Transfer Mechanism for Reducing Communication Latency in " +
			"User-Level Network Protocols, §7, figures 8 and 9"}
	parts := figure.Boxes([]string{"user data", "copy", "post or commit", "transport"})
	eight := figure.Figure{ID: "figure8", Title: "Figure 8: communication latency", Legend: parts,
		Caption: "Of each size: eager, gathered, copied. One turn of a ping-pong, medians. The paper's NIs are eager " +
			"(EDT), CC-DMA with intervention and with retry, and have no bars of their own here: it tells no numbers " +
			"but the gain."}
	nine := figure.Figure{ID: "figure9", Title: "Figure 9: breakdown, 256 bytes", Legend: parts, Caption: "The " +
		"paper divides Data Transfer into setting up, moving and interrupts of DMA, which is here a copy, or nothing."}
	for _, r := range results {
		for _, compose := range r.Compose {
			s.Tables = append(s.Tables, r.table(compose))
			eight.Panels = append(eight.Panels, r.panel(compose, r.Sizes))
			if slices.Contains(r.Sizes, breakdownBytes) {
				nine.Panels = append(nine.Panels, r.panel(compose, []int{breakdownBytes}))
			}
			r.trends(s, compose)
		}
	}
	s.Figures = append(s.Figures, eight)
	if len(nine.Panels) > 0 {
		s.Figures = append(s.Figures, nine)
	}
	if len(models) > 0 {
		modelled(s, models)
	}
	return s
}

func (r *Result) title(compose int) string {
	return fmt.Sprintf("MTU %d, composing %d ns for each KiB", r.MTU, compose)
}

// gain is by how many percent eager is below another way.
func (r *Result) gain(size, compose int, than string) float64 {
	return 100 * (1 - r.Find(size, compose, "eager").Turn.P50/r.Find(size, compose, than).Turn.P50)
}

func (r *Result) table(compose int) xlate.Table {
	t := xlate.Table{ID: fmt.Sprintf("eager-%d-%d", r.MTU, compose),
		Title: "A turn, us: " + r.title(compose) + ", medians (and 99th percentiles)",
		Columns: []string{"bytes", "eager", "(p99)", "gathered", "(p99)", "copied", "(p99)", "gain on gathered %",
			"on copied %", "EDT on CC-DMA"},
		Caption: "A turn is half a round trip: composing, posting, and the way until the peer's program has the " +
			"message."}
	for _, size := range r.Sizes {
		var values []float64
		for _, way := range Ways {
			l := r.Find(size, compose, way).Turn
			values = append(values, l.P50/1000, l.P99/1000)
		}
		values = append(values, r.gain(size, compose, "gathered"), r.gain(size, compose, "copied"))
		t.Add(fmt.Sprint(size), append(xlate.Cells("%.1f", values...), xlate.Text(paperGain))...)
	}
	return t
}

func (r *Result) panel(compose int, sizes []int) figure.Panel {
	p := figure.Panel{Title: r.title(compose), XLabel: "bytes: eager, gathered, copied", YLabel: "us"}
	for _, size := range sizes {
		p.Names = append(p.Names, fmt.Sprint(size))
		var group []figure.Bar
		for _, way := range Ways {
			w := r.Find(size, compose, way)
			var b figure.Bar
			for i, ns := range []float64{w.UserData.P50, w.Copy.P50, w.Post.P50, w.Transport()} {
				b.Parts = append(b.Parts, figure.Part{Value: ns / 1000, Color: i})
			}
			group = append(group, b)
		}
		p.Bars = append(p.Bars, group)
	}
	return p
}

func (r *Result) trends(s *xlate.Study, compose int) {
	least, most := r.Sizes[0], r.Sizes[len(r.Sizes)-1]
	small, large := r.gain(least, compose, "copied"), r.gain(most, compose, "copied")
	id := fmt.Sprintf("%d/%d", r.MTU, compose)
	s.AddTrend(id, "§7.2, figure 8", paperClaim, min(small, large) >= paperLeast,
		"it moves in hardware what is marked by system software here, and has no network: what a frame costs both "+
			"hosts is most of a turn, however it is sent",
		"%s: of %d bytes %.0f %% below copied, of %d bytes %.0f %%", r.title(compose), least, small, most, large)
	s.AddTrend(id, "§7.2, figure 8", "The gain is larger for larger messages.", large > max(small, 0),
		"every mark costs frames, and where a link takes none of the time there is nothing to hide",
		"%.0f %% and %.0f %%", small, large)
}

// modelled adds what the simulator came to.
func modelled(s *xlate.Study, models []Model) {
	t := xlate.Table{ID: "links",
		Title:   "One turn over links of a rate, us, in the simulator, whose hosts take no time",
		Columns: []string{"MTU, rate, ns for each KiB, bytes", "eager", "posted", "gain %", "EDT on CC-DMA"},
		Caption: "Posted is gathered, and copied but for the copy. A frame takes 1 us besides its serialisation."}
	f := figure.Figure{ID: "links", Title: "Gain by the rate of links, simulated", Caption: t.Caption}
	lines := map[string]*figure.Panel{}
	var order []string
	for i := range models {
		m := &models[i]
		t.Add(fmt.Sprintf("%d, %s, %d, %d", m.MTU, m.Rate, m.Compose, m.Bytes),
			append(xlate.Cells("%.1f", m.Eager/1000, m.Posted/1000, m.Gain()), xlate.Text(paperGain))...)
		at := fmt.Sprintf("MTU %d, composing %d ns for each KiB", m.MTU, m.Compose)
		p := lines[at]
		if p == nil {
			p = &figure.Panel{Title: at, XLabel: "bytes", YLabel: "gain %", SizeX: true}
			lines[at], order = p, append(order, at)
		}
		k := slices.IndexFunc(f.Legend, func(e figure.Entry) bool { return e.Text == m.Rate })
		if k < 0 {
			k = len(f.Legend)
			f.Legend = append(f.Legend, figure.Entry{Text: m.Rate, Style: k})
		}
		for len(p.Lines) <= k {
			p.Lines = append(p.Lines, figure.Line{Style: len(p.Lines)})
		}
		p.Lines[k].X, p.Lines[k].Y = append(p.Lines[k].X, float64(m.Bytes)), append(p.Lines[k].Y, m.Gain())
	}
	for _, at := range order {
		f.Panels = append(f.Panels, *lines[at])
	}
	s.Tables, s.Figures = append(s.Tables, t), append(s.Figures, f)
	for _, m := range models {
		if m.Bytes != 4096 || m.Compose != PaperCompose {
			continue
		}
		s.AddTrend(m.Rate, "§7.2, figure 8", paperClaim, m.Gain() >= paperLeast,
			"it can hide no more than composing takes, or than the link takes",
			"MTU %d, %s, simulated: of 4096 bytes %.0f %%", m.MTU, m.Rate, m.Gain())
	}
}
