package dsmprom

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The dashboard, the alert rules and their tests name metrics that exist: those of Go, and the
// two that ranks in C have besides. The dashboard shows each.
func TestDeployedNamesMetrics(t *testing.T) {
	known := map[string]bool{"edge_dsm_faults_total": true, "edge_dsm_protects_total": true}
	descs := make(chan *prometheus.Desc, len(readings))
	New("job", 0).Describe(descs)
	close(descs)
	for d := range descs {
		known[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	names := regexp.MustCompile(`edge_dsm_[a-z0-9_]+`)
	for file, least := range map[string]int{"edge-dsm.dashboard.json": len(known), "edge-dsm.rules.yml": 8,
		"edge-dsm.rules.test.yml": 8} {
		seen := map[string]bool{}
		for _, name := range names.FindAllString(deployed(t, file), -1) {
			if seen[name] = true; !known[name] {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
		if len(seen) < least {
			t.Errorf("%s names %d metrics, want %d", file, len(seen), least)
		}
	}
	var board struct{ Panels []struct{ ID int } }
	if err := json.Unmarshal([]byte(deployed(t, "edge-dsm.dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
	}
}

// Every alert says what is wrong and what to do, and is seen to fire by promtool's tests (make rules).
func TestAlertRules(t *testing.T) {
	rules, tests := deployed(t, "edge-dsm.rules.yml"), deployed(t, "edge-dsm.rules.test.yml")
	parts := strings.Split(rules, "- alert: ")[1:]
	for _, part := range parts {
		name, body, _ := strings.Cut(part, "\n")
		if !strings.Contains(body, "summary: ") || !strings.Contains(body, "description: ") {
			t.Errorf("%s does not say what is wrong and what to do", name)
		}
		if !regexp.MustCompile(`- alertname: ` + name + `\n +eval_time: \S+\n +exp_alerts:\n`).MatchString(tests) {
			t.Errorf("%s does not fire in the tests", name)
		}
	}
	if len(parts) < 6 {
		t.Errorf("only %d alerts found", len(parts))
	}
}
