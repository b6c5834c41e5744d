package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

// What deploy/ shows and warns of must be what is exported, under the names that it has.

// exported lists the metrics that Handler serves.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	names := map[string]bool{}
	for _, c := range []prometheus.Collector{newCollector(sample(), "1"),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		ch := make(chan *prometheus.Desc, 1000)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := fqName.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("no name in %s", d)
			}
			names[m[1]] = true
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector(sample(), "1"))
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM { // what a classic one is stored as
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				names[f.GetName()+suffix] = true
			}
		}
	}
	return names
}

var metricName = regexp.MustCompile(`\b(edge|process)_[a-z0-9_]+`)

// check looks at the metrics that expressions name, and reports how many there are.
func check(t *testing.T, file string, expressions []string) int {
	t.Helper()
	known, seen := exported(t), map[string]bool{}
	for _, e := range expressions {
		for _, name := range metricName.FindAllString(e, -1) {
			if seen[name] = true; !known[name] {
				t.Errorf("%s names %s, which is not exported: %s", file, name, e)
			}
		}
	}
	return len(seen)
}

func deployed(t *testing.T, name string) []byte {
	t.Helper()
	return project(t, "deploy", name)
}

func project(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", filepath.Join(path...)))
	must(t, err)
	return b
}

// expressions collects what a dashboard asks Prometheus for, wherever it is.
func expressions(v any) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			list = append(list, expressions(e)...)
		}
	case map[string]any:
		for key, e := range v {
			if text, ok := e.(string); ok && (key == "expr" || key == "query") {
				list = append(list, text)
			}
			list = append(list, expressions(e)...)
		}
	}
	return list
}

func TestDashboard(t *testing.T) {
	const file = "edged.dashboard.json"
	var board struct {
		Panels []struct {
			ID    int
			Title string
		}
	}
	var all any
	for _, v := range []any{&board, &all} {
		must(t, json.Unmarshal(deployed(t, file), v))
	}
	if n := check(t, file, expressions(all)); n < 30 {
		t.Errorf("only %d metrics found in %s: the test does not see it", n, file)
	}
	ids := map[int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] != "" {
			t.Errorf("panels %q and %q have one id", ids[p.ID], p.Title)
		}
		ids[p.ID] = p.Title
	}
}

// ruleFile is what the tests need of a file of alert rules.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Annotations map[string]string
		}
	}
}

// ruleTests is the same of promtool's tests of them.
type ruleTests struct {
	Files []string `yaml:"rule_files"`
	Tests []struct {
		Input  []struct{ Series string } `yaml:"input_series"`
		Alerts []struct {
			Name     string `yaml:"alertname"`
			Expected []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

// Every alert stands on metrics that exist, says what is wrong and what to do, and is seen to fire by promtool's tests
// (make rules).
func TestAlertRules(t *testing.T) {
	const file, testFile = "edged.rules.yml", "edged.rules.test.yml"
	var rules ruleFile
	var tests ruleTests
	must(t, yaml.Unmarshal(deployed(t, file), &rules))
	must(t, yaml.Unmarshal(deployed(t, testFile), &tests))
	var series, fired, alerts, exprs []string
	for _, test := range tests.Tests {
		for _, in := range test.Input {
			name, _, _ := strings.Cut(in.Series, "{")
			series = append(series, name)
		}
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				fired = append(fired, a.Name)
			}
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts, exprs = append(alerts, r.Alert), append(exprs, r.Expr)
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s does not say what is wrong and what to do", r.Alert)
			}
			if !slices.Contains(fired, r.Alert) {
				t.Errorf("%s does not fire in %s", r.Alert, testFile)
			}
		}
	}
	for _, name := range fired {
		if !slices.Contains(alerts, name) {
			t.Errorf("%s expects %s, which %s does not have", testFile, name, file)
		}
	}
	if n := check(t, file, exprs); n < 10 {
		t.Errorf("only %d metrics found in %s: the test does not see it", n, file)
	}
	check(t, testFile, series)
	if !slices.Equal(tests.Files, []string{file}) {
		t.Errorf("%s tests %q", testFile, tests.Files)
	}
}

func TestOperationsNamesMetrics(t *testing.T) {
	const file = "docs/OPERATIONS.md"
	if n := check(t, file, strings.Split(string(project(t, file)), "\n")); n < 10 {
		t.Errorf("%s names %d metrics; has the test gone blind?", file, n)
	}
}
