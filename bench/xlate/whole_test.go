package xlate_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"multiedge/bench/kit/kittest"
	"multiedge/bench/report"
	"multiedge/bench/splash"
	"multiedge/bench/xlate"
)

var head = report.Head{Command: []string{"edgestudy"}}

// options are of a study of some programs, as small as they get.
func options(names ...string) xlate.Options {
	return xlate.Options{Scale: 1.0 / 256, Seed: 1, Begin: func(int) {}, Step: func(string) {},
		Apps: slices.DeleteFunc(splash.Programs(), func(p xlate.Program) bool {
			return !slices.Contains(names, p.Name)
		})}
}

func TestStudiesAreWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(context.Context, report.Head, xlate.Options) (*xlate.Study, error)
		tables string
		figs   int
		trends int
	}{
		{"utlb", xlate.StudyUTLB, "table3 table4 table5 table6 table7 table8 figure7 figure8 per-process policies " +
			"vmmc-table3 vmmc-table4 cost-model synthetic vmmc-table1 vmmc-table2", 4, 20},
		{"dhl", xlate.StudyDHL, "figure3 figure5 figure6 figure7 high-water", 2, 8},
	} {
		steps, done := 0, 0
		o := options("fft", "radix")
		o.Begin, o.Step = func(n int) { steps = n }, func(string) { done++ }
		s, err := c.do(t.Context(), head, o)
		kittest.Must(t, err)
		var ids []string
		for _, table := range s.Tables {
			ids = append(ids, table.ID)
			for _, row := range table.Rows {
				if len(row.Cells) != len(table.Columns)-1 {
					t.Errorf("%s %s: row %q has %d cells under %d columns", c.name, table.ID, row.Label,
						len(row.Cells), len(table.Columns)-1)
				}
			}
		}
		if got := strings.Join(ids, " "); got != c.tables || len(s.Figures) != c.figs || len(s.Trends) != c.trends ||
			steps != done || steps == 0 || !strings.Contains(s.Origin, "simulations") {
			t.Errorf("%s: tables %s; %d figures, %d trends; %d of %d steps", c.name, got, len(s.Figures),
				len(s.Trends), done, steps)
		}
		for _, trend := range s.Trends {
			if !trend.Agrees && trend.Why == "" {
				t.Errorf("%s: %s differs (%s), and the page does not say why", c.name, trend.ID, trend.Found)
			}
		}
		o.Only, o.Apps = regexp.MustCompile("table5|high-water"), o.Apps[:1] // whose counts depend on all before them
		again, err := c.do(t.Context(), head, o)
		kittest.Must(t, err)
		for _, row := range again.Tables[0].Rows {
			i := slices.IndexFunc(s.Tables, func(t xlate.Table) bool { return t.ID == again.Tables[0].ID })
			j := slices.IndexFunc(s.Tables[i].Rows, func(r xlate.Row) bool { return r.Label == row.Label })
			if !reflect.DeepEqual(row, s.Tables[i].Rows[j]) {
				t.Errorf("%s: the same seed gives another row %q", c.name, row.Label)
			}
		}
		written(t, s, c.name, ids)
	}
}

// written checks the files of a study whose tables have these names.
func written(t *testing.T, s *xlate.Study, name string, ids []string) {
	dir := filepath.Join(t.TempDir(), "out")
	kittest.Must(t, s.Write(dir, name))
	cells := 0
	for _, table := range s.Tables {
		for _, row := range table.Rows {
			cells += len(row.Cells)
		}
	}
	sheet, _ := os.ReadFile(filepath.Join(dir, name+".csv"))
	lines, err := csv.NewReader(bytes.NewReader(sheet)).ReadAll()
	if err != nil || len(lines) != 1+cells+len(s.Trends) {
		t.Errorf("%s: %d lines of CSV for %d cells, %v", name, len(lines), cells, err)
	}
	page, _ := os.ReadFile(filepath.Join(dir, "index.html"))
	for _, id := range append(ids, "trends", "results") {
		if !bytes.Contains(page, []byte(`id="`+id+`"`)) {
			t.Errorf("%s: the page has no %s", name, id)
		}
	}
	if n := bytes.Count(page, []byte("<svg")); n != len(s.Figures) {
		t.Errorf("%s: %d drawings in the page, want %d", name, n, len(s.Figures))
	}
}

func TestOnly(t *testing.T) {
	o := options("water-cells")
	o.Only = regexp.MustCompile("^table[34]$")
	s, err := xlate.StudyUTLB(t.Context(), head, o)
	if err != nil || len(s.Tables) != 2 || len(s.Tables[0].Rows) != 1 {
		t.Fatal(err, s)
	}
	o.Only = regexp.MustCompile("table99")
	_, err = xlate.StudyUTLB(t.Context(), head, o)
	if err == nil || !strings.Contains(err.Error(), "matches no part") {
		t.Error(err)
	}
}
