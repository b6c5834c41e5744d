package handles

import (
	"bytes"
	"strings"
	"testing"

	"multiedge/bench/report"
)

// What a million exports cost where a thousand are in use is bounded: bytes of each, and of what is kept hot. Time is
// not judged here.
func TestTableAndStudy(t *testing.T) {
	r := Result{Spec: Spec{Exports: []int{1000, 1000000}, InUse: 1000}}
	for _, n := range r.Exports {
		s, err := RunTable(n, r.InUse)
		if err != nil {
			t.Fatal(err)
		}
		r.Steps = append(r.Steps, s)
	}
	if first, last := r.Steps[0], r.Steps[1]; last.Bytes > 100 || last.Hot > 1.1*first.Hot || last.Lookup <= 0 {
		t.Errorf("a million exports take %.0f bytes each and %.0f hot; a thousand %.0f hot", last.Bytes, last.Hot,
			first.Hot)
	}
	var out bytes.Buffer
	s := r.Study(report.Head{})
	s.Tables[0].Text(&out)
	s.Print(&out)
	for _, want := range []string{"bytes of an export", "1000000", "320", "goals of this project"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if len(s.Figures) != 1 || len(s.Figures[0].Panels[0].Lines[0].Y) != 2 {
		t.Errorf("figures: %+v", s.Figures)
	}
}

// Each goal is reached by results that are good, and missed when the first step and the last are swapped.
func TestGoalsCanBeMissed(t *testing.T) {
	good := func() []Step {
		return []Step{{Way: Table, Exports: 1000, Lookup: 20, Bytes: 64, Hot: 64e3},
			{Way: Table, Exports: 1000000, Lookup: 22, Bytes: 64, Hot: 64e3},
			{Way: Catalog, Exports: 1000, P50: 5000, P99: 9000, Rate: 1e6},
			{Way: Catalog, Exports: 1000000, P50: 5100, P99: 9000, Rate: 0.99e6}}
	}
	for name, c := range map[string]struct {
		spoil func([]Step)
		want  string // goals that are missed
	}{
		"good":        {func([]Step) {}, ""},
		"slow lookup": {func(s []Step) { s[0].Lookup, s[1].Lookup = 20, 220 }, "lookup"},
		"all is hot":  {func(s []Step) { s[1].Hot, s[1].Bytes = 64e6, 64 }, "memory"},
		"slow writes": {func(s []Step) { s[3].P50 = 9000 }, Catalog},
		"few writes":  {func(s []Step) { s[3].Rate = 0.5e6 }, Catalog},
	} {
		r := Result{Spec: Spec{Exports: []int{1000, 1000000}, InUse: 1000, Ways: []string{Catalog}}, Steps: good()}
		c.spoil(r.Steps)
		var missed []string
		for _, g := range r.Study(report.Head{}).Trends {
			if !g.Goal {
				t.Errorf("%s is called a trend of a paper", g.ID)
			}
			if !g.Agrees {
				missed = append(missed, g.ID)
			}
		}
		if got := strings.Join(missed, " "); got != c.want {
			t.Errorf("%s: missed %q, want %q", name, got, c.want)
		}
	}
}
