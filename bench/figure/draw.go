package figure

import (
	"bytes"
	"io"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of drawings in points.
const (
	panelWidth  = 350
	panelHeight = 262
	panelSpace  = 22
	legendLine  = 18
	margin      = 8
)

// columns is how many panels stand in a row: up to three, and four as two by two.
func (f *Figure) columns() int {
	switch n := len(f.Panels); n {
	case 4:
		return 2
	default:
		return min(max(n, 1), 3)
	}
}

// size returns the width and height of f.
func (f *Figure) size() (w, h vg.Length) {
	widest, cols := 0.0, f.columns()
	for i := 0; i < len(f.Panels); i += cols {
		row := 0.0
		for j := i; j < min(i+cols, len(f.Panels)); j++ {
			row += f.width(j) + panelSpace
		}
		widest = max(widest, row-panelSpace)
	}
	rows := (len(f.Panels) + cols - 1) / cols
	w = vg.Points(widest + 2*margin)
	return w, vg.Points(float64(rows)*(panelHeight+panelSpace)-panelSpace+2*margin) + f.legendHeight(w)
}

// width of panel i in points. Panels that stand two in a row have more room.
func (f *Figure) width(i int) float64 {
	w := float64(panelWidth)
	if f.columns() == 2 {
		w *= 1.4
	}
	if s := f.Panels[i].Width; s > 0 {
		w *= s
	}
	return w
}

// draw draws f on c, whose size is f.size().
func (f *Figure) draw(c draw.Canvas) {
	c.SetColor(white)
	c.Fill(c.Rectangle.Path())
	w, _ := f.size()
	f.drawLegend(c, w)
	top, left := c.Max.Y-vg.Points(margin)-f.legendHeight(w), c.Min.X+vg.Points(margin)
	for i := range f.Panels {
		if i > 0 && i%f.columns() == 0 {
			top, left = top-vg.Points(panelHeight+panelSpace), c.Min.X+vg.Points(margin)
		}
		width := vg.Points(f.width(i))
		part := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: top - vg.Points(panelHeight)},
			Max: vg.Point{X: left + width, Y: top},
		}}
		f.Panels[i].plot().Draw(part)
		left += width + vg.Points(panelSpace)
	}
}

// entryWidth is the room a legend entry takes.
func entryWidth(e Entry) vg.Length {
	return vg.Points(26+18) + sans(labelSize, ink, 0, 0).Width(e.Text)
}

// legendRows breaks the legend into lines that fit a width.
func (f *Figure) legendRows(w vg.Length) [][]Entry {
	var rows [][]Entry
	used := vg.Length(0)
	for _, e := range f.Legend {
		need := entryWidth(e)
		if len(rows) == 0 || used+need > w-vg.Points(2*margin) {
			rows, used = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], e)
		used += need
	}
	return rows
}

func (f *Figure) legendHeight(w vg.Length) vg.Length {
	if len(f.Legend) == 0 {
		return 0
	}
	return vg.Points(float64(len(f.legendRows(w)))*legendLine + 6)
}

// drawLegend draws the legend along the top, where it covers no data.
func (f *Figure) drawLegend(c draw.Canvas, w vg.Length) {
	y := c.Max.Y - vg.Points(margin+legendLine/2)
	for _, row := range f.legendRows(w) {
		x := c.Min.X + vg.Points(margin+4)
		for _, e := range row {
			drawEntry(&c, e, x, y)
			x += entryWidth(e)
		}
		y -= vg.Points(legendLine)
	}
}

func drawEntry(c *draw.Canvas, e Entry, x, y vg.Length) {
	if e.Bar {
		l, r, b, t := x+vg.Points(8), x+vg.Points(20), y-vg.Points(5), y+vg.Points(5)
		c.FillPolygon(colour(e.Style), []vg.Point{{X: l, Y: b}, {X: r, Y: b}, {X: r, Y: t}, {X: l, Y: t}})
	} else {
		c.StrokeLine2(draw.LineStyle{Color: colour(e.Style), Width: vg.Points(1.8)}, x, y, x+vg.Points(20), y)
		c.DrawGlyphNoClip(glyph(e.Style, colour(e.Style), 3), vg.Point{X: x + vg.Points(10), Y: y})
	}
	c.FillText(sans(labelSize, ink, 0, -0.35), vg.Point{X: x + vg.Points(26), Y: y}, e.Text)
}

// SVG returns f as an SVG document. Text stays text, in a face with the same metrics as the one it was laid out with.
func (f *Figure) SVG() []byte {
	w, h := f.size()
	canvas := vgsvg.New(w, h)
	f.draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		panic("BUG: figure: writing into memory: " + err.Error())
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
}

// PNG writes f as a PNG image at twice the resolution of a screen.
func (f *Figure) PNG(out io.Writer) error {
	w, h := f.size()
	canvas := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))
	f.draw(draw.New(canvas))
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(out)
	return err
}
