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
	for _, want := range []string{"bytes of an export", "1000000", "320", "trends agree"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if len(s.Figures) != 1 || len(s.Figures[0].Panels[0].Lines[0].Y) != 2 {
		t.Errorf("figures: %+v", s.Figures)
	}
}
