package xlate

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"join": strings.Join}).Parse(pageText))

// Disagreeing counts the trends that are not the paper's.
func (s *Study) Disagreeing() int { return s.count(false, false) }

// count counts goals, or trends, of which one outcome is asked for.
func (s *Study) count(goals, agree bool) (n int) {
	for _, t := range s.Trends {
		if t.Goal == goals && t.Agrees == agree {
			n++
		}
	}
	return n
}

// summaries say how many trends agree and how many goals are reached, each only if there are any.
func (s *Study) summaries() (list []string) {
	if yes, no := s.count(false, true), s.count(false, false); yes+no > 0 {
		list = append(list, fmt.Sprintf("%d of %d trends agree with the paper's", yes, yes+no))
	}
	if yes, no := s.count(true, true), s.count(true, false); yes+no > 0 {
		list = append(list, fmt.Sprintf("%d of %d goals of this project are reached", yes, yes+no))
	}
	return list
}

// HTML writes one page with trends, figures, tables and the results as JSON. It refers to nothing outside itself.
func (s *Study) HTML(w io.Writer) error {
	type drawing struct {
		ID, Title, Caption string
		SVG                template.HTML
	}
	data, err := json.Marshal(s) // it escapes <, > and &, so the script element cannot be left
	if err != nil {
		return err
	}
	p := struct {
		*Study
		Agreeing, Reached, Missed int
		Drawings                  []drawing
		Data                      template.JS
	}{s, s.count(false, true), s.count(true, true), s.count(true, false), nil, template.JS(data)}
	for i := range s.Figures {
		f := &s.Figures[i]
		svg, err := f.SVG()
		if err != nil {
			return fmt.Errorf("figure %s: %w", f.ID, err)
		}
		text := string(svg)
		if at := strings.Index(text, "<svg"); at > 0 {
			text = text[at:]
		}
		p.Drawings = append(p.Drawings, drawing{f.ID, f.Title, f.Caption, template.HTML(text)})
	}
	return pageTemplate.Execute(w, p)
}

// Write puts NAME.json, index.html and every figure as SVG into a directory, which it makes if need be.
func (s *Study) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := s.HTML(&page); err != nil {
		return err
	}
	files := map[string][]byte{name + ".json": append(data, '\n'), "index.html": page.Bytes()}
	for i := range s.Figures {
		if files[s.Figures[i].ID+".svg"], err = s.Figures[i].SVG(); err != nil {
			return err
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Text writes a table for a terminal.
func (t *Table) Text(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\n", t.Title)
	fmt.Fprintf(out, "%s\t\n", strings.Join(t.Columns, "\t"))
	for _, r := range t.Rows {
		fmt.Fprint(out, r.Label)
		for _, c := range r.Cells {
			fmt.Fprint(out, "\t", c.Text, c.Show(c.Ours))
		}
		fmt.Fprint(out, "\t\n")
	}
	return out.Flush()
}

// Print writes the trends for a terminal.
func (s *Study) Print(w io.Writer) {
	for _, t := range s.Trends {
		fmt.Fprintf(w, "%-8s %-15s %s\n%24s %s\n", t.Verdict(), t.Where, t.Claim, "", t.Found)
		if t.Why != "" {
			fmt.Fprintf(w, "%24s %s\n", "", t.Why)
		}
	}
	for _, text := range s.summaries() {
		fmt.Fprintln(w, text)
	}
}
