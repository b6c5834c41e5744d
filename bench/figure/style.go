package figure

import (
	"image/color"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that stay apart for the colour-blind (Okabe and Ito), in the order in which curves take them.
var palette = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xff}, {0xD5, 0x5E, 0x00, 0xff}, {0x00, 0x9E, 0x73, 0xff}, {0xCC, 0x79, 0xA7, 0xff},
	{0xE6, 0x9F, 0x00, 0xff}, {0x56, 0xB4, 0xE9, 0xff}, {0x7A, 0x5C, 0xC8, 0xff}, {0x44, 0x44, 0x44, 0xff},
	{0x8C, 0x56, 0x4B, 0xff}, {0xB5, 0xB5, 0xB5, 0xff}, {0xDE, 0xD7, 0xA0, 0xff},
}

var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{}}

// diamond is one more solid glyph.
type diamond struct{}

func (diamond) DrawGlyph(c *draw.Canvas, sty draw.GlyphStyle, pt vg.Point) {
	r := sty.Radius * 1.3
	c.FillPolygon(sty.Color, []vg.Point{{X: pt.X, Y: pt.Y + r}, {X: pt.X + r, Y: pt.Y}, {X: pt.X, Y: pt.Y - r},
		{X: pt.X - r, Y: pt.Y}})
}

// Tones of everything that is not data.
var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	grey  = color.RGBA{0x66, 0x66, 0x66, 0xff}
	axis  = color.RGBA{0x99, 0x99, 0x99, 0xff}
	grid  = color.RGBA{0xE9, 0xE9, 0xE9, 0xff}
	white = color.RGBA{0xff, 0xff, 0xff, 0xff}
)

// Sizes of type in points.
const (
	titleSize = 12
	labelSize = 10.5
	tickSize  = 9.5
)

// sans returns a text style in the sans-serif face that gonum carries, so that drawing needs no font of the machine.
func sans(size float64, c color.Color, x, y float64) text.Style {
	return text.Style{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)},
		XAlign: text.XAlignment(x), YAlign: text.YAlignment(y), Handler: plot.DefaultTextHandler,
	}
}

// bold returns st in bold weight.
func bold(st text.Style) text.Style {
	st.Font.Weight = xfont.WeightBold
	return st
}

// newPlot returns an empty plot in the house style.
func newPlot(p *Panel) *plot.Plot {
	plt := plot.New()
	plt.Title.Text, plt.Title.TextStyle, plt.Title.Padding = p.Title, bold(sans(titleSize, ink, -0.5, -1)), vg.Points(6)
	for _, a := range []*plot.Axis{&plt.X, &plt.Y} {
		a.LineStyle = draw.LineStyle{Color: axis, Width: vg.Points(0.8)}
		a.Tick.LineStyle = draw.LineStyle{Color: axis, Width: vg.Points(0.6)}
		a.Tick.Length = vg.Points(3)
		a.Padding = vg.Points(3)
	}
	plt.X.Label.Text, plt.X.Label.TextStyle, plt.X.Label.Padding = p.XLabel, sans(labelSize, ink, -0.5, 0), vg.Points(3)
	plt.Y.Label.Text, plt.Y.Label.TextStyle, plt.Y.Label.Padding = p.YLabel, sans(labelSize, ink, -0.5, 0), vg.Points(4)
	plt.Y.Label.TextStyle.Rotation = plot.New().Y.Label.TextStyle.Rotation
	plt.Y.Label.TextStyle.YAlign = plot.New().Y.Label.TextStyle.YAlign
	plt.X.Label.TextStyle.YAlign = plot.New().X.Label.TextStyle.YAlign
	plt.X.Tick.Label, plt.Y.Tick.Label = sans(tickSize, grey, -0.5, -1), sans(tickSize, grey, -1, -0.5)
	return plt
}
