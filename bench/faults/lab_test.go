package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/bench/report"
	"multiedge/linkdrv"
)

// TestMain is also what runs in the hosts of the tests' labs.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

// Faults of the network, one of a host and one of an adversary, each carried out from lab to verdict.
func TestScenarios(t *testing.T) {
	testScenarios(t, Options{Only: regexp.MustCompile("^(corruption 2 %|messages over bad wires|client killed with " +
		"operations in flight|out of bounds.*)$"), Short: true, Seed: 5})
}

// The same of frames that travel in datagrams; those of an adversary who listens do so too.
func TestScenariosInDatagrams(t *testing.T) {
	testScenarios(t, Options{Only: regexp.MustCompile("^(corruption 2 %|NIC deleted and recreated|frames forged by " +
		"one who listens)$"), Short: true, Seed: 5, Driver: linkdrv.KindUDP})
}

func testScenarios(t *testing.T, o Options) {
	scenarios := Select(o)
	f := NewFile(report.Head{Created: time.Now(), Command: []string{"test"}}, true, o.Seed)
	err := Run(context.Background(), scenarios, o, func(int, *Scenario) {}, func(r *Row) error {
		f.Rows = append(f.Rows, *r)
		return nil
	})
	if err != nil || len(f.Rows) != len(scenarios) || len(f.Rows) < 3 {
		t.Fatalf("%d rows: %v", len(f.Rows), err)
	}
	for i := range f.Rows {
		r := &f.Rows[i]
		if r.Verdict != Pass {
			t.Errorf("%s: %v", r.Scenario, r.Reasons())
		}
		if len(r.Injected) == 0 || len(r.Checks) == 0 || r.Counted["bytes compared"] == 0 {
			t.Errorf("%s proves nothing: %+v", r.Scenario, r)
		}
	}
	writers(t, f)
}

// writers checks every form of the results.
func writers(t *testing.T, f *File) {
	t.Helper()
	for name, write := range map[string]func(io.Writer) error{
		"json": f.JSON, "csv": f.CSV, "markdown": f.Markdown, "html": func(w io.Writer) error {
			return f.HTML(w, "faults", nil)
		},
		"table": func(w io.Writer) error { return TableRow(w, &f.Rows[0]) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(b.String(), "corruption 2 %") {
			t.Errorf("%s lacks a scenario: %s", name, b.String())
		}
		if name == "json" {
			var back File
			if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back.Rows) != len(f.Rows) ||
				back.Rows[0].U[4].Verdict != Pass {
				t.Errorf("the JSON reads back as %+v, %v", back, err)
			}
		}
	}
}

// The criteria can be failed: operations that fail under a dead network are no survival of loss.
func TestScenarioCanFail(t *testing.T) {
	s := loss(0.01, 0, true)
	s.Dead = time.Second
	run := s.Run
	s.Run = func(tr *Trial) {
		timer := time.AfterFunc(300*time.Millisecond, func() { _ = kit.Try(func() { tr.cutAll(true) }) })
		defer timer.Stop()
		run(tr)
	}
	r := runOne(context.Background(), &s, Options{Short: true, Seed: 6})
	if r.Verdict != Fail || len(r.Reasons()) == 0 {
		t.Errorf("a network that is cut for good passes as one that loses 1 %%: %+v", r)
	}
}

func TestSoak(t *testing.T) {
	shown := 0
	r, samples, err := Soak(context.Background(), SoakOptions{Duration: 4 * time.Second, Seed: 7},
		func(*Sample) { shown++ })
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Pass {
		t.Errorf("%v", r.Reasons())
	}
	if len(samples) == 0 || shown != len(samples) || samples[0].Daemons[1].Resident == 0 ||
		samples[0].Daemons[0].Descriptors == 0 {
		t.Errorf("%d samples, %d shown: %+v", len(samples), shown, samples)
	}
	for _, f := range SoakFigures(samples) {
		if svg := f.SVG(); !bytes.Contains(svg, []byte("resident memory")) && !bytes.Contains(svg,
			[]byte("latency")) {
			t.Errorf("%s: %v", f.ID, err)
		}
	}
}

func TestSelect(t *testing.T) {
	all, short := Select(Options{}), Select(Options{Short: true})
	if len(short) == 0 || len(short) >= len(all) {
		t.Errorf("%d scenarios, %d in the short form", len(all), len(short))
	}
	names := map[string]bool{}
	for _, s := range all {
		if names[s.Name] || s.Name == "" || s.Criteria == "" || s.Run == nil || s.Group == "" {
			t.Errorf("%+v", s)
		}
		names[s.Name] = true
	}
	var hostile []Scenario
	for _, sc := range all {
		if sc.Group == Adversary {
			hostile = append(hostile, sc)
		}
	}
	got := Select(Options{Only: regexp.MustCompile("^" + Adversary + "$")})
	if len(hostile) < len(adversaryScenarios()) || !slices.EqualFunc(got, hostile, func(a, b Scenario) bool {
		return a.Name == b.Name
	}) {
		t.Errorf("a group selects %d scenarios of %d", len(got), len(hostile))
	}
}
