package faults

import (
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// Format and Version identify the files.
const (
	Format  = "edgebench-faults"
	Version = 1
)

// File is a whole result file. Rows are scenarios; a soak has Samples and a row for the whole.
type File struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	report.Head
	Short   bool     `json:"short,omitempty"`
	Seed    uint64   `json:"seed"`
	Rows    []Row    `json:"rows"`
	Samples []Sample `json:"samples,omitempty"`
}

// NewFile returns an empty result file.
func NewFile(h report.Head, short bool, seed uint64) *File {
	return &File{Format: Format, Version: Version, Head: h, Short: short, Seed: seed}
}

// Failed returns the names of the rows that failed, each with the reasons.
func (f *File) Failed() (rows []string) {
	for i := range f.Rows {
		if r := &f.Rows[i]; r.Verdict == Fail {
			rows = append(rows, r.Scenario+": "+strings.Join(r.Reasons(), "; "))
		}
	}
	return rows
}

// JSON writes the file.
func (f *File) JSON(w io.Writer) error { return report.Indented(w, f) }

// TableHead writes the head of the table for terminals, TableRow a row.
func TableHead(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%-9s %-44s %-5s %-5s %5s  %s\n%s\n", "group", "scenario", "", "U", "s",
		"injected -> counted; measured", strings.Repeat("-", 140))
	return err
}

// TableRow writes a row, and the reasons if it failed.
func TableRow(w io.Writer, r *Row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s %-44s %-5s %-5s %5.1f  %s -> %s; %s\n", r.Group, r.Scenario, r.Verdict, r.marks(), r.Seconds,
		counts(r.Injected), counts(r.Counted), figures(r.Measured))
	for _, why := range r.Reasons() {
		fmt.Fprintf(&b, "%10s%s\n", "", why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// CSV writes all rows.
func (f *File) CSV(w io.Writer) error {
	cw := csv.NewWriter(w)
	rows := [][]string{{"group", "scenario", "verdict", "u1", "u2", "u3", "u4", "u5", "seconds", "security", "injected",
		"counted", "measured", "why"}}
	for i := range f.Rows {
		r := &f.Rows[i]
		rec := []string{r.Group, r.Scenario, r.Verdict}
		for _, u := range r.U {
			rec = append(rec, u.Verdict)
		}
		rows = append(rows, append(rec, fmt.Sprintf("%.2f", r.Seconds), r.Security, counts(r.Injected),
			counts(r.Counted), figures(r.Measured), strings.Join(r.Reasons(), " | ")))
	}
	if err := cw.WriteAll(rows); err != nil {
		return err
	}
	return cw.Error()
}

// Markdown writes the tables of docs/RELIABILITY.md: a row for each scenario with its criteria, its measurements and
// its command. In the command a dot stands for an apostrophe, which would end the shell's quotes.
func (f *File) Markdown(w io.Writer) error {
	var b strings.Builder
	group := ""
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n| %s | forms | passes when | injected | counted and measured | verdict | "+
				"`edgefault --lab --only` |\n|---|---|---|---|---|---|---|\n", group)
		}
		seen := counts(r.Counted)
		if m := figures(r.Measured); m != "" {
			seen = strings.TrimPrefix(seen+"; "+m, "; ")
		}
		verdict := r.Verdict
		if why := r.Reasons(); len(why) > 0 {
			verdict += ": " + strings.Join(why, "; ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | `'^%s$'` |\n", r.Scenario, r.Forms, r.Criteria,
			counts(r.Injected), seen, cell(verdict), strings.ReplaceAll(r.Scenario, "'", "."))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell escapes text for a Markdown table.
func cell(s string) string { return strings.NewReplacer("|", "/", "\n", " ").Replace(s) }

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
	return pageTemplate.Execute(w, struct {
		*File
		Title   string
		Passed  int
		Figures []figure.Drawing
		Data    template.JS // json.Marshal escapes <, > and &, so the script element cannot be left
	}{f, title, len(f.Rows) - len(f.Failed()), figure.Draw(figures), template.JS(data)})
}

// Forms are all forms of the file, by the endings of files. The title and the figures are those of the page.
func (f *File) Forms(title string, figures []figure.Figure) figure.Forms {
	return figure.Forms{"json": f.JSON, "csv": f.CSV, "md": f.Markdown,
		"html": func(w io.Writer) error { return f.HTML(w, title, figures) }}
}
