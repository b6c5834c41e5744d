package figure

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"multiedge/bench/report"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"bytes": report.Bytes, "rates": report.Rates, "nanos": report.Nanos, "count": report.Count, "join": strings.Join,
	"gbit":    func(v float64) string { return fmt.Sprintf("%.2f", v*8/1e9) },
	"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
	"fixed":   func(v float64) string { return fmt.Sprintf("%.3f", v) },
}).Parse(pageText))

// page is what the template shows.
type page struct {
	Title    string
	Heads    []headView
	Tiles    []tile
	Figures  []figureView
	Links    []LinkCurve
	Ratios   []Ratio
	Besides  []besideView
	Busy     []string
	Index    []Drawn
	Exhibits []Exhibit
	Claims   []Claim
	Studies  []string // whose pages are beside this one
	Rows     []entryView
	Data     template.JS
}

// figures are those of the page: with the claims' own, if it has any.
func (p page) figures(sources []Source) []Figure {
	if len(p.Claims) == 0 {
		return Build(sources)
	}
	return append(Build(sources), claimFigure(p.Claims))
}

// Shows reports whether the figure of that ID is on the page.
func (p page) Shows(id string) bool {
	return slices.ContainsFunc(p.Figures, func(f figureView) bool { return f.ID == id })
}

// Has reports whether the page of a study lies beside this one.
func (p page) Has(study string) bool { return slices.Contains(p.Studies, study) }

type headView struct {
	Name string
	report.Head
}

// figureView is a figure whose panels and legend flow as wide as the page is.
type figureView struct {
	ID, Title, Caption string
	Legend             []legendView
	Panels             []template.HTML
}

type legendView struct {
	Text, Color string
	Bar         bool
}

// view renders f's panels one by one.
func (f *Figure) view() figureView {
	v := figureView{ID: f.ID, Title: f.Title, Caption: f.Caption}
	for _, e := range f.Legend {
		c := palette[e.Style%len(palette)]
		v.Legend = append(v.Legend, legendView{e.Text, fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B), e.Bar})
	}
	for _, p := range f.Panels {
		v.Panels = append(v.Panels, Inline((&Figure{Panels: []Panel{p}}).SVG()))
	}
	return v
}

// besideView is a table of an interleaved comparison.
type besideView struct {
	Beside
	Title, Caption string
	Rows           []besideRow
}

type besideRow struct {
	Size  string
	Cells []besideText
}

type besideText struct {
	Value, More, Ways string
	Busy              bool
}

// digits formats a value in a table, small ones with three digits after the point.
func digits(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.3f", v)
	}
	return significant(v)
}

// text is a cell in words.
func (c BesideCell) text(latency bool) besideText {
	if c.Rounds == 0 {
		return besideText{Value: "-"}
	}
	form := func(v float64) string { return digits(v * 8 / 1e9) }
	if latency {
		form = func(v float64) string { return digits(v / 1e3) }
	}
	t := besideText{Value: form(c.Median), More: form(c.Min) + " to " + form(c.Max), Busy: c.Busy}
	if len(c.EachWay) == 2 {
		t.Ways = form(c.EachWay[0]) + " + " + form(c.EachWay[1])
	}
	return t
}

// besideCaptions say what is counted.
var besideCaptions = map[string]string{
	report.OneWay: "Gbit/s of payload that arrived: from the first operation posted, or byte written, until the " +
		"sender knows that the last one is there. Median, and smallest to largest round.",
	report.TwoWay: "Gbit/s, the sum of both directions; below it, smallest to largest round, then client to server + " +
		"server to client. Both hosts send at once, and the time ends when both know that everything has arrived. " +
		"TCP is measured the same way: two connections, one for each direction, each with a thread at either end. " +
		"All four share the same processors, so a sum near the one-way result means that processors, not links, " +
		"are the limit.",
	report.PingPong: "Half a round trip in microseconds, memory to memory: median, and smallest to largest round.",
}

func besideViews(sources []Source) (out []besideView) {
	for _, b := range Besides(sources) {
		v := besideView{Beside: b, Title: "Beside others: " + b.Test, Caption: besideCaptions[b.Test]}
		for _, r := range b.Rows {
			row := besideRow{Size: report.Bytes(r.Size)}
			for _, c := range r.Cells {
				row.Cells = append(row.Cells, c.text(b.Latency))
			}
			v.Rows = append(v.Rows, row)
		}
		out = append(out, v)
	}
	return out
}

type entryView struct {
	*report.Row
	Source string
}

// tile is one headline number.
type tile struct {
	Value, Unit, Text, Class, More string

	Verdict string // how edge compares with TCP
	Slower  bool
}

// HTML writes one page with all figures of the sources, their headline numbers, a table of every row, and the results
// themselves as JSON. It refers to nothing outside itself.
func HTML(w io.Writer, title string, sources []Source) error {
	return page{Title: title}.write(w, sources)
}

func (p page) write(w io.Writer, sources []Source) error {
	p.Tiles, p.Links, p.Ratios, p.Besides = tiles(sources), Links(sources), Ratios(sources), besideViews(sources)
	for _, f := range p.figures(sources) {
		p.Figures = append(p.Figures, f.view())
	}
	files := make([]*report.File, len(sources))
	for i, s := range sources {
		p.Heads = append(p.Heads, headView{s.Name, s.File.Head})
		for _, text := range s.File.Disturbances() {
			if len(sources) > 1 {
				text = s.Name + ": " + text
			}
			p.Busy = append(p.Busy, text)
		}
		files[i] = s.File
		for j := range s.File.Results {
			p.Rows = append(p.Rows, entryView{&s.File.Results[j], s.Name})
		}
	}
	data, err := json.Marshal(files)
	if err != nil {
		return err
	}
	p.Data = template.JS(data) // json.Marshal escapes <, > and &, so the script element cannot be left
	return pageTemplate.Execute(w, p)
}

// Inline strips what only a stand-alone SVG document has.
func Inline(svg []byte) template.HTML {
	return template.HTML(svg[max(bytes.Index(svg, []byte("<svg")), 0):])
}

// tiles are the numbers a reader looks for first.
func tiles(sources []Source) []tile {
	if list := besideTiles(sources); len(list) > 0 {
		return list
	}
	rows := entries(sources, func(r *report.Row) bool { return r.Transport == report.TransportEdge && r.Error == "" })
	var out []tile
	for _, t := range []struct{ test, text string }{{report.OneWay, "one-way"},
		{report.TwoWay, "two-way, both directions"}, {report.Read, "read"}} {
		if best, ok := most(only(rows, t.test), func(e entry) float64 { return e.Throughput }); ok {
			out = append(out, tile{Value: fmt.Sprintf("%.1f", best.Throughput*8/1e9), Unit: "Gbit/s",
				Text: t.text + ", " + report.Bytes(best.MessageBytes) + " messages"})
		}
	}
	if best, ok := most(only(rows, report.PingPong), func(e entry) float64 { return -e.Latency.P50 }); ok &&
		best.Latency.Count > 0 {
		v, unit, _ := strings.Cut(report.Nanos(best.Latency.P50), " ")
		out = append(out, tile{Value: v, Unit: unit,
			Text: "ping-pong, half round trip, median, " + report.Bytes(best.MessageBytes)})
	}
	if best, ok := most(only(rows, report.Rate), func(e entry) float64 { return e.OperationsPerSecond }); ok {
		out = append(out, tile{Value: fmt.Sprintf("%.2f", best.OperationsPerSecond/1e6), Unit: "M/s",
			Text: "small writes of " + report.Bytes(best.MessageBytes)})
	}
	return append(out, integrityTile(rows)...)
}

// besideTiles are those of an interleaved comparison, of 8 bytes and of 1 MiB: edge, and in words the others.
func besideTiles(sources []Source) (out []tile) {
	all := Besides(sources)
	for _, t := range []struct {
		test, text string
		size       int
	}{
		{report.PingPong, "half round trip", 8}, {report.OneWay, "one-way, small writes", 8}, {report.OneWay, "one-way",
			1 << 20},
		{report.TwoWay, "two-way, sum of both directions", 1 << 20}, {report.PingPong, "half round trip", 1 << 20},
	} {
		i := slices.IndexFunc(all, func(b Beside) bool { return b.Test == t.test })
		if i < 0 {
			continue
		}
		form, unit := func(v float64) string { return fmt.Sprintf("%.1f", v*8/1e9) }, "Gbit/s"
		switch {
		case all[i].Latency:
			form, unit = func(v float64) string { return significant(v / 1e3) }, "us"
		case t.size == 8:
			form, unit = func(v float64) string { return fmt.Sprintf("%.2f", v/8/1e6) }, "M/s"
		}
		tl := tile{Unit: unit, Text: report.Bytes(t.size) + ", " + t.text}
		var rest []string
		for n, name := range all[i].Contenders {
			c, ok := all[i].cell(name, t.size)
			switch {
			case !ok:
			case tl.Value == "":
				tl.Value, tl.Text = form(c.Median), tl.Text+": "+all[i].Contenders[n]
			default:
				rest = append(rest, name+" "+form(c.Median))
			}
		}
		if tl.Value != "" {
			tl.More = strings.Join(rest, ", ")
			for _, h := range Headlines(all) {
				if h.Test == t.test && h.Size == t.size {
					tl.Verdict, tl.Slower = h.Verdict(), h.Slower
				}
			}
			out = append(out, tl)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append(out, integrityTile(entries(sources, interleaved))...)
}

// integrityTile says whether data was wrong; nothing when it was not looked at.
func integrityTile(rows []entry) []tile {
	checked, bad, messages := 0, uint64(0), uint64(0)
	for _, e := range rows {
		if e.IntegrityChecked {
			checked++
			bad += e.IntegrityErrors
			messages += e.Operations
		}
	}
	switch {
	case checked == 0:
		return nil
	case bad == 0:
		return []tile{{Value: "0", Unit: "errors", Class: "good",
			Text: report.Count(float64(messages)) + " messages checked byte by byte"}}
	}
	return []tile{{Value: fmt.Sprint(bad), Unit: "errors", Class: "bad",
		Text: "in " + report.Count(float64(messages)) + " messages checked"}}
}

func most(rows []entry, value func(entry) float64) (entry, bool) {
	if len(rows) == 0 {
		return entry{}, false
	}
	return slices.MaxFunc(rows, func(a, b entry) int { return cmp.Compare(value(a), value(b)) }), true
}
