package eager

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"multiedge/bench/report"
)

// Where composing takes about as long as the link does, eager transfer hides much of the link; where either takes
// nothing there is nothing to hide, and a message that is too short to be marked loses nothing.
func TestSimulate(t *testing.T) {
	rows, err := Simulate([]int{1500, 9000}, []string{"10gbit", "1000gbit"}, Spec{Sizes: []int{64, 4096},
		Compose: []int{PaperCompose}, Marks: 4})
	if err != nil || len(rows) != 8 {
		t.Fatal(len(rows), err)
	}
	for _, m := range rows {
		least, most := -3.0, 3.0
		if m.Rate == "10gbit" && m.Bytes == 4096 {
			least, most = paperLeast, paperMost
		}
		if g := m.Gain(); g < least || g > most {
			t.Errorf("%+v: a gain of %.1f %%, want %v to %v", m, g, least, most)
		}
		if compose := float64(m.Compose * m.Bytes / 1024); m.Eager < compose+1000 {
			t.Errorf("%+v: faster than composing and the wire", m)
		}
	}
}

// The page has both figures, and the parts of a bar add up to the turn.
func TestStudy(t *testing.T) {
	lat := func(us float64) report.Latency { return report.Latency{P50: 1000 * us, P99: 2000 * us} }
	r := &Result{Spec: Spec{MTU: 1500, Sizes: []int{256, 4096}, Compose: []int{7}}}
	for _, size := range r.Sizes {
		for i, way := range Ways {
			r.Rows = append(r.Rows, Row{Bytes: size, Way: way, Compose: 7, UserData: lat(1), Copy: lat(2), Post: lat(3),
				Turn: lat(float64(10 + i*size/256))})
		}
	}
	s := Study(report.Head{}, []*Result{r}, []Model{{MTU: 1500, Rate: "1gbit", Bytes: 4096, Compose: PaperCompose,
		Eager: 700, Posted: 1000}})
	if len(s.Figures) != 3 || len(s.Tables) != 2 || len(s.Trends) != 3 {
		t.Fatalf("%d figures, %d tables, %d trends", len(s.Figures), len(s.Tables), len(s.Trends))
	}
	for _, b := range s.Figures[0].Panels[0].Bars[0][0].Parts {
		t.Logf("%+v", b)
	}
	if parts := s.Figures[0].Panels[0].Bars[1][2].Parts; len(parts) != 4 || parts[3].Value != 10+32-6 {
		t.Errorf("a bar of %+v", parts)
	}
	if g := r.gain(4096, 7, "copied"); g < 76 || g > 77 || !s.Trends[1].Agrees || !s.Trends[2].Agrees ||
		s.Trends[0].Agrees {
		t.Errorf("a gain of %.1f %%, trends %+v", g, s.Trends)
	}
	dir := t.TempDir()
	if err := s.Write(dir, "eager"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"index.html": "17-38 %", "figure8.svg": "MTU 1500", "figure9.svg": "256",
		"eager.json": `"title": "Eager transfer"`} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s has no %q (%v)", name, want, err)
		}
	}
}

// Every trend agrees with data as the paper has it, and fails when eager and copied, or the sizes, are swapped.
func TestTrendsCanFail(t *testing.T) {
	lat := func(us float64) report.Latency { return report.Latency{P50: 1000 * us} }
	judge := func(eager, copied [2]float64, model Model) (agree [3]bool) {
		r := &Result{Spec: Spec{MTU: 1500, Sizes: []int{64, 4096}, Compose: []int{7}}}
		for i, size := range r.Sizes {
			for _, way := range Ways {
				turn := map[string]float64{"eager": eager[i], "gathered": copied[i], "copied": copied[i]}[way]
				r.Rows = append(r.Rows, Row{Bytes: size, Way: way, Compose: 7, Turn: lat(turn)})
			}
		}
		for i, trend := range Study(report.Head{}, []*Result{r}, []Model{model}).Trends {
			agree[i] = trend.Agrees
		}
		return agree
	}
	m := Model{MTU: 1500, Rate: "1gbit", Bytes: 4096, Compose: PaperCompose, Eager: 700, Posted: 1000}
	if got := judge([2]float64{80, 60}, [2]float64{100, 100}, m); got != [3]bool{true, true, true} {
		t.Errorf("as in the paper: %v", got)
	}
	if got := judge([2]float64{60, 80}, [2]float64{100, 100}, m); got[1] {
		t.Errorf("the gain is smaller for larger messages: %v", got)
	}
	m.Eager, m.Posted = m.Posted, m.Eager
	if got := judge([2]float64{100, 100}, [2]float64{80, 60}, m); got != [3]bool{} {
		t.Errorf("eager and copied are swapped: %v", got)
	}
}
