package figure

import (
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Figure is one or more panels side by side under a common legend.
type Figure struct {
	ID      string // file name without extension
	Title   string
	Caption string
	Panels  []Panel
	Legend  []Entry
}

// Panel is one set of axes with curves or with bars.
type Panel struct {
	Title, XLabel, YLabel string

	Lines []Line
	SizeX bool // x is a message size, on a logarithmic axis; else Names label the values 0, 1, 2, ...
	LogY  bool
	Level *Level   // a horizontal line to compare with
	Names []string // of the groups of bars, or of the points of lines
	Bars  [][]Bar  // by group; the bars of a group stand side by side
	Width float64  // relative to the other panels of the figure; 0 is 1
}

// Line is a curve.
type Line struct {
	X, Y  []float64
	Lo    []float64 // with Hi: the range over repeats at each point; both empty: none
	Hi    []float64
	Busy  []bool // points that are disturbed, drawn hollow; empty: none
	Style int    // index of colour and glyph
	Thin  bool   // drawn thin, dashed, without glyphs: secondary
}

// Level is a horizontal reference line with its meaning.
type Level struct {
	Y    float64
	Text string
}

// Bar is a stack of parts, from the bottom up.
type Bar struct {
	Parts  []Part
	Label  string     // over the bar
	Spread [2]float64 // whisker from, to; none when equal
}

// Part is a piece of a bar. Color indexes the palette.
type Part struct {
	Value float64
	Color int
}

// Entry explains a colour.
type Entry struct {
	Text  string
	Style int
	Bar   bool // a filled box instead of a line with a glyph
}

func (b *Bar) height() float64 {
	h := 0.0
	for _, p := range b.Parts {
		h += p.Value
	}
	return max(h, b.Spread[1])
}

// empty reports whether a panel has nothing to show.
func (p *Panel) empty() bool { return len(p.Lines) == 0 && len(p.Bars) == 0 }

// plot builds the gonum plot of p.
func (p *Panel) plot() *plot.Plot {
	plt := newPlot(p)
	plt.Add(gridlines{vertical: p.SizeX})
	p.ranges(plt)
	if p.Level != nil {
		plt.Add(p.Level)
	}
	if len(p.Bars) > 0 {
		plt.Add(bars(p.Bars))
	}
	for _, thin := range []bool{true, false} { // what matters is drawn last
		for i := range p.Lines {
			if p.Lines[i].Thin == thin {
				plt.Add(&p.Lines[i])
			}
		}
	}
	return plt
}

// ranges fixes the axes: y from zero to a round number (linear) or around the data (logarithmic), x around the data.
func (p *Panel) ranges(plt *plot.Plot) {
	xlo, xhi, ylo, yhi := p.extent()
	if p.SizeX {
		if xlo == xhi {
			xlo, xhi = xlo/2, xhi*2
		}
		plt.X.Min, plt.X.Max, plt.X.Scale, plt.X.Tick.Marker = xlo, xhi, plot.LogScale{}, sizeTicks{}
	} else {
		names := make([]plot.Tick, len(p.Names))
		for i, n := range p.Names {
			names[i] = plot.Tick{Value: float64(i), Label: n}
		}
		plt.X.Min, plt.X.Max, plt.X.Tick.Marker, plt.X.Tick.Length = -0.5, float64(len(p.Names))-0.5,
			plot.ConstantTicks(names), 0
	}
	if p.LogY {
		lo, hi := ylo/1.25, yhi*1.25
		if hi/lo < 4 {
			mid := math.Sqrt(hi * lo)
			lo, hi = mid/2, mid*2
		}
		plt.Y.Min, plt.Y.Max, plt.Y.Scale, plt.Y.Tick.Marker = lo, hi, plot.LogScale{}, logTicks{}
		return
	}
	if p.Level != nil {
		yhi = max(yhi, p.Level.Y)
	}
	plt.Y.Min, plt.Y.Max, plt.Y.Tick.Marker = 0, niceMax(max(yhi*1.06, 1e-3)), linearTicks{}
}

// extent is the range of the data; y only over positive values, which is what a logarithmic axis can show.
func (p *Panel) extent() (xlo, xhi, ylo, yhi float64) {
	xlo, ylo = math.Inf(1), math.Inf(1)
	for _, l := range p.Lines {
		for i := range l.X {
			xlo, xhi = min(xlo, l.X[i]), max(xhi, l.X[i])
			for _, y := range l.values(i) {
				if y > 0 {
					ylo, yhi = min(ylo, y), max(yhi, y)
				}
			}
		}
	}
	for _, group := range p.Bars {
		for i := range group {
			yhi = max(yhi, group[i].height())
		}
	}
	if math.IsInf(xlo, 1) {
		xlo, xhi = 1, 2
	}
	if math.IsInf(ylo, 1) {
		ylo, yhi = min(1, yhi), max(1, yhi)
	}
	return xlo, xhi, ylo, yhi
}

// values are what a line shows at point i: its median, and its range.
func (l *Line) values(i int) []float64 {
	if i >= len(l.Lo) {
		return []float64{l.Y[i]}
	}
	return []float64{l.Y[i], l.Lo[i], l.Hi[i]}
}

// busy reports whether point i is disturbed.
func (l *Line) busy(i int) bool { return i < len(l.Busy) && l.Busy[i] }

// gridlines are drawn under the data at labelled ticks.
type gridlines struct{ vertical bool }

// Plot implements plot.Plotter.
func (g gridlines) Plot(c draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&c)
	sty := draw.LineStyle{Color: grid, Width: vg.Points(0.7)}
	for _, t := range plt.Y.Tick.Marker.Ticks(plt.Y.Min, plt.Y.Max) {
		if t.Label != "" {
			c.StrokeLine2(sty, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
	if !g.vertical {
		return
	}
	for _, t := range plt.X.Tick.Marker.Ticks(plt.X.Min, plt.X.Max) {
		if t.Label != "" {
			c.StrokeLine2(sty, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
}

// Plot implements plot.Plotter.
func (l *Line) Plot(c draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&c)
	pts, which := make([]vg.Point, 0, len(l.X)), []int{}
	for i := range l.X {
		if slices.Min(l.values(i)) <= 0 && plt.Y.Scale == (plot.LogScale{}) {
			continue
		}
		pts, which = append(pts, vg.Point{X: x(l.X[i]), Y: y(l.Y[i])}), append(which, i)
	}
	sty := draw.LineStyle{Color: colour(l.Style), Width: vg.Points(1.8)}
	if l.Thin {
		sty.Width, sty.Dashes = vg.Points(0.9), []vg.Length{vg.Points(3), vg.Points(2.5)}
	}
	if len(pts) > 1 {
		c.StrokeLines(sty, pts)
	}
	if l.Thin {
		return
	}
	for n, pt := range pts {
		i := which[n]
		if i < len(l.Lo) && l.Lo[i] < l.Hi[i] {
			whisker(&c, draw.LineStyle{Color: sty.Color, Width: vg.Points(0.9)}, vg.Points(2.6), pt.X, y(l.Lo[i]),
				y(l.Hi[i]))
		}
		c.DrawGlyphNoClip(glyph(l.Style, white, 3.9), pt) // a halo keeps crossing curves apart
		c.DrawGlyphNoClip(glyph(l.Style, sty.Color, 2.9), pt)
		if l.busy(i) {
			c.DrawGlyphNoClip(glyph(l.Style, white, 1.9), pt)
		}
	}
}

// whisker shows the range over repeats.
func whisker(c *draw.Canvas, sty draw.LineStyle, cap, x, lo, hi vg.Length) {
	c.StrokeLine2(sty, x, lo, x, hi)
	c.StrokeLine2(sty, x-cap, lo, x+cap, lo)
	c.StrokeLine2(sty, x-cap, hi, x+cap, hi)
}

// Plot implements plot.Plotter.
func (l *Level) Plot(c draw.Canvas, plt *plot.Plot) {
	_, y := plt.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: grey, Width: vg.Points(0.9), Dashes: []vg.Length{vg.Points(5), vg.Points(3)}},
		c.Min.X, y(l.Y), c.Max.X, y(l.Y))
	c.FillText(sans(tickSize-0.5, grey, 0, 0), vg.Point{X: c.Min.X + vg.Points(4), Y: y(l.Y) + vg.Points(2.5)}, l.Text)
}

func colour(i int) color.Color { return palette[i%len(palette)] }

func glyph(i int, c color.Color, radius float64) draw.GlyphStyle {
	return draw.GlyphStyle{Color: c, Radius: vg.Points(radius), Shape: glyphs[i%len(glyphs)]}
}

// bars draws groups of stacked bars; group i is centred at x = i.
type bars [][]Bar

// share of a group's room that its bars fill, and the widest a bar gets.
const (
	groupFill   = 0.78
	widestPoint = 46
)

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, plt *plot.Plot) {
	x, y := plt.Transforms(&c)
	room := x(1) - x(0)
	for g, group := range b {
		w := min(room*groupFill/vg.Length(len(group)), vg.Points(widestPoint))
		left := x(float64(g)) - w*vg.Length(len(group))/2
		for i := range group {
			group[i].draw(&c, left+w*vg.Length(i), w, y)
		}
	}
}

// draw draws one bar whose left edge is at left.
func (b *Bar) draw(c *draw.Canvas, left, w vg.Length, y func(float64) vg.Length) {
	gap := min(w*0.08, vg.Points(2))
	from, to := left+gap, left+w-gap
	base := 0.0
	for _, p := range b.Parts {
		lo, hi := y(base), y(base+p.Value)
		c.FillPolygon(colour(p.Color), []vg.Point{{X: from, Y: lo}, {X: to, Y: lo}, {X: to, Y: hi}, {X: from, Y: hi}})
		base += p.Value
	}
	mid := (from + to) / 2
	top := y(base)
	if b.Spread[0] != b.Spread[1] {
		lo, hi := y(b.Spread[0]), y(b.Spread[1])
		whisker(c, draw.LineStyle{Color: ink, Width: vg.Points(1)}, min(w*0.12, vg.Points(5)), mid, lo, hi)
		top = max(top, hi)
	}
	if b.Label != "" {
		c.FillText(sans(tickSize, ink, -0.5, 0), vg.Point{X: mid, Y: top + vg.Points(2.5)}, b.Label)
	}
}
