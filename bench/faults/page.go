package faults

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"multiedge/bench/figure"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"counts": counts, "figures": figures, "join": strings.Join,
	"fixed": func(v float64) string { return fmt.Sprintf("%.1f", v) },
}).Parse(pageText))

// HTML writes one page with every row, its checks, the figures of a soak, and the results themselves as JSON. It refers
// to nothing outside itself.
func (f *File) HTML(w io.Writer, title string, figures []figure.Figure) error {
	type drawing struct {
		Title, Caption string
		SVG            template.HTML
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	p := struct {
		*File
		Title   string
		Passed  int
		Figures []drawing
		Data    template.JS
		// json.Marshal escapes <, > and &, so the script element cannot be left
	}{f, title, len(f.Rows) - len(f.Failed()), nil, template.JS(data)}
	for i := range figures {
		svg, err := figures[i].SVG()
		if err != nil {
			return err
		}
		p.Figures = append(p.Figures, drawing{figures[i].Title, figures[i].Caption, figure.Inline(svg)})
	}
	return pageTemplate.Execute(w, p)
}
