package xlate

import (
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"multiedge/bench/figure"
	"multiedge/bench/report"
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
	data, err := json.Marshal(s) // it escapes <, > and &, so the script element cannot be left
	if err != nil {
		return err
	}
	return pageTemplate.Execute(w, struct {
		*Study
		Agreeing, Reached, Missed int
		Drawings                  []figure.Drawing
		Data                      template.JS
	}{s, s.count(false, true), s.count(true, true), s.count(true, false), figure.Draw(s.Figures), template.JS(data)})
}

// JSON writes everything.
func (s *Study) JSON(w io.Writer) error { return report.Indented(w, s) }

// CSV writes a line for each cell of each table, and one for each trend and goal.
func (s *Study) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	lines := [][]string{{"table", "row", "column", "value", "paper", "text"}}
	for _, t := range s.Tables {
		columns := t.distinct()
		for _, r := range t.Rows {
			for i, c := range r.Cells {
				lines = append(lines, []string{t.ID, r.Label, columns[i+1], number(c.Ours), number(c.Paper), c.Text})
			}
		}
	}
	for _, t := range s.Trends {
		lines = append(lines, []string{"trends", t.ID, t.Where, "", "", t.Verdict() + ": " + t.Found})
	}
	return out.WriteAll(lines)
}

// distinct are the names of the columns. A name that several columns have, such as "(p99)", gets the name of the column
// before it as a prefix.
func (t *Table) distinct() []string {
	seen := map[string]int{}
	for _, name := range t.Columns {
		seen[name]++
	}
	names, lead := slices.Clone(t.Columns), ""
	for i, name := range names {
		if seen[name] > 1 {
			names[i] = lead + ": " + name
		} else {
			lead = name
		}
	}
	return names
}

// Write writes a study into a file that ends in .json, .csv or .html, or into a directory, which gets NAME.json,
// NAME.csv, index.html and every figure as SVG.
func (s *Study) Write(to, name string) error {
	return figure.Forms{"json": s.JSON, "csv": s.CSV, "html": s.HTML}.Save(to, name, s.Figures)
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
