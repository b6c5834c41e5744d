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
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	drawings, err := figure.Draw(figures)
	if err != nil {
		return err
	}
	return pageTemplate.Execute(w, struct {
		*File
		Title   string
		Passed  int
		Figures []figure.Drawing
		Data    template.JS // json.Marshal escapes <, > and &, so the script element cannot be left
	}{f, title, len(f.Rows) - len(f.Failed()), drawings, template.JS(data)})
}

// Forms are all forms of the file, by the endings of files. The title and the figures are those of the page.
func (f *File) Forms(title string, figures []figure.Figure) figure.Forms {
	return figure.Forms{"json": f.JSON, "csv": f.CSV, "md": f.Markdown,
		"html": func(w io.Writer) error { return f.HTML(w, title, figures) }}
}
