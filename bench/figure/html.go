package figure

import (
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
	Title   string
	Heads   []headView
	Tiles   []tile
	Figures []figureView
	Links   []LinkCurve
	Ratios  []Ratio
	Rows    []entryView
	Data    template.JS
}

type headView struct {
	Name string
	report.Head
}

type figureView struct {
	ID, Title, Caption string
	SVG                template.HTML
}

type entryView struct {
	*report.Row
	Source string
}

// tile is one headline number.
type tile struct{ Value, Unit, Text, Class string }

// HTML writes one page with all figures of the sources, their headline numbers, a table of every row, and the results themselves as JSON.
// It refers to nothing outside itself.
func HTML(w io.Writer, title string, sources []Source) error {
	p := page{Title: title, Tiles: tiles(sources), Links: Links(sources), Ratios: Ratios(sources)}
	for _, f := range Build(sources) {
		svg, err := f.SVG()
		if err != nil {
			return fmt.Errorf("figure %s: %w", f.ID, err)
		}
		p.Figures = append(p.Figures, figureView{f.ID, f.Title, f.Caption, template.HTML(inline(svg))})
	}
	files := make([]*report.File, len(sources))
	for i, s := range sources {
		p.Heads = append(p.Heads, headView{s.Name, s.File.Head})
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

// inline strips what only a stand-alone SVG document has.
func inline(svg []byte) string {
	s := string(svg)
	if i := strings.Index(s, "<svg"); i > 0 {
		s = s[i:]
	}
	return s
}

// tiles are the numbers a reader looks for first.
func tiles(sources []Source) []tile {
	rows := entries(sources, func(r *report.Row) bool { return r.Transport == report.TransportEdge && r.Error == "" })
	var out []tile
	for _, t := range []struct{ test, text string }{{report.OneWay, "one-way"}, {report.TwoWay, "two-way, both directions"}, {report.Read, "read"}} {
		if best, ok := most(only(rows, t.test), func(e entry) float64 { return e.Throughput }); ok {
			out = append(out, tile{fmt.Sprintf("%.1f", best.Throughput*8/1e9), "Gbit/s", t.text + ", " + report.Bytes(best.MessageBytes) + " messages", ""})
		}
	}
	if best, ok := most(only(rows, report.PingPong), func(e entry) float64 { return -e.Latency.P50 }); ok && best.Latency.Count > 0 {
		v, unit, _ := strings.Cut(report.Nanos(best.Latency.P50), " ")
		out = append(out, tile{v, unit, "ping-pong, half round trip, median, " + report.Bytes(best.MessageBytes), ""})
	}
	if best, ok := most(only(rows, report.Rate), func(e entry) float64 { return e.OperationsPerSecond }); ok {
		out = append(out, tile{fmt.Sprintf("%.2f", best.OperationsPerSecond/1e6), "M/s", "small writes of " + report.Bytes(best.MessageBytes), ""})
	}
	return append(out, integrityTile(rows)...)
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
		return []tile{{"0", "errors", report.Count(float64(messages)) + " messages checked byte by byte", "good"}}
	}
	return []tile{{fmt.Sprint(bad), "errors", "in " + report.Count(float64(messages)) + " messages checked", "bad"}}
}

func most(rows []entry, value func(entry) float64) (entry, bool) {
	if len(rows) == 0 {
		return entry{}, false
	}
	return slices.MaxFunc(rows, func(a, b entry) int {
		switch d := value(a) - value(b); {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	}), true
}
