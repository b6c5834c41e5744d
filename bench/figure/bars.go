package figure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
		sty := draw.LineStyle{Color: ink, Width: vg.Points(1)}
		lo, hi, cap := y(b.Spread[0]), y(b.Spread[1]), min(w*0.12, vg.Points(5))
		c.StrokeLine2(sty, mid, lo, mid, hi)
		c.StrokeLine2(sty, mid-cap, lo, mid+cap, lo)
		c.StrokeLine2(sty, mid-cap, hi, mid+cap, hi)
		top = max(top, hi)
	}
	if b.Label != "" {
		c.FillText(sans(tickSize, ink, -0.5, 0), vg.Point{X: mid, Y: top + vg.Points(2.5)}, b.Label)
	}
}
