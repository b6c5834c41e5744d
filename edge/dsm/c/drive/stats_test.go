//go:build ctest

package drive

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"multiedge/edge/dsm/dsmprom"
)

// told parses what a rank wrote for Prometheus.
func told(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(strings.NewReader(text))
	must(t, err)
	return got
}

// EDGE_DSM_STATS names a folder in which each rank keeps a file for Prometheus, with the names of package dsmprom and
// two of its own; nothing else is left there. "-" is standard error, and a folder that is not there ends no run.
func TestStats(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(dsmprom.New("", 0))
	families, err := registry.Gather()
	must(t, err)
	want := []string{"edge_dsm_faults_total", "edge_dsm_protects_total"}
	for _, f := range families {
		if f.GetName() != "edge_dsm_pages_brought_total" { // in Go alone
			want = append(want, f.GetName())
		}
	}
	slices.Sort(want)
	w, dir := newWorld(t, 2), t.TempDir()
	t.Setenv("EDGE_DSM_STATS", dir)
	const run = `st/a"t\s`
	list := []*process{w.start(run, 0, 2, "kernel", "radix", "5000", "2097152"), w.start(run, 1, 2, "kernel", "radix",
		"5000", "2097152")}
	for rank, p := range list {
		p.well()
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf(`st-a"t\s.%d.prom`, rank)))
		must(t, err)
		got := told(t, string(text))
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			t.Errorf("rank %d: %v, want %v", rank, names, want)
		}
		for name, f := range got {
			m := f.Metric[0]
			labels := fmt.Sprint(m.Label[0].GetValue(), " ", m.Label[1].GetValue())
			if f.GetType() != dto.MetricType_COUNTER || labels != fmt.Sprint(run, " ", rank) {
				t.Errorf("%s is of %s", name, labels)
			}
		}
		for _, name := range []string{"faults_total", "fetches_total", "barriers_total", "run_seconds_total"} {
			if got["edge_dsm_"+name].GetMetric()[0].GetCounter().GetValue() <= 0 {
				t.Errorf("rank %d: no %s", rank, name)
			}
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	t.Setenv("EDGE_DSM_STATS", "-")
	p := w.start("alone", 0, 1, "kernel", "radix", "3000")
	p.well()
	if names := slices.Sorted(maps.Keys(told(t, p.stderr.String()))); !slices.Equal(names, want) {
		t.Errorf("standard error has %v", names)
	}
	t.Setenv("EDGE_DSM_STATS", filepath.Join(dir, "none"))
	p = w.start("alone", 0, 1, "kernel", "radix", "3000")
	p.well()
	if said := p.stderr.String(); !strings.Contains(said, "EDGE_DSM_STATS") || strings.Count(said, "\n") != 1 {
		t.Errorf("%q", said)
	}
}
