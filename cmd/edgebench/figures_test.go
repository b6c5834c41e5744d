package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"multiedge/bench/figure"
	"multiedge/bench/report"
)

// Every figure of the catalogue is in one set, so that it is measured; the paper's numbers are of several sets.
func TestFigureSetsMeasureTheCatalogue(t *testing.T) {
	for _, d := range figure.Catalogue() {
		n := 0
		for _, s := range figureSets() {
			if slices.ContainsFunc(s.draws, func(id string) bool {
				return id == d.ID || strings.HasSuffix(id, "-") &&
					strings.HasPrefix(d.ID, id)
			}) {
				n++
			}
		}
		if n != 1 && d.ID != "papers" || n == 0 {
			t.Errorf("%s is measured by %d sets", d.ID, n)
		}
	}
	for only, want := range map[string]string{"": "demo base rate", "polling-cpu,links": "polling links",
		"zero-copy,alignment": "zero-copy", "compare-one-way-1M-mtu9000": "compare", "beside-cpu": "demo",
		"papers": "base polling schedulers links zero-copy", "utlb": "utlb",
		"nothing": "error"} {
		c := figuresCmd{}
		if only != "" {
			c.Only = strings.Split(only, ",")
		}
		sets, err := c.chosen()
		var names []string
		for _, s := range sets {
			names = append(names, s.name)
		}
		if got := strings.Join(names, " "); err != nil && want != "error" || err == nil && !strings.HasPrefix(got,
			want) {
			t.Errorf("--only %s: %q, %v; want %q", only, got, err, want)
		}
	}
}

func TestFigures(t *testing.T) {
	dir := t.TempDir()
	cmd, stdout, stderr := edgebench("figures", "--only", "rate", "-D", "20ms", "--rounds", "2", "-o", dir)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "results", "rate.*.json"))
	if len(files) != 2 {
		t.Fatalf("%d files of results: %s", len(files), stderr)
	}
	f, err := report.ReadFile(files[0])
	if err != nil || f.Build.Version != version {
		t.Errorf("build %+v, want version %s; %v", f.Build, version, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rate.svg")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(stdout.String(), "MultiEdge 3.8") || !strings.Contains(stdout.String(), "(no results)") {
		t.Errorf("no list of figures: %s", stdout)
	}
	again := t.TempDir()
	cmd, _, stderr = edgebench("figures", "--from", dir, "-o", again)
	if err := cmd.Run(); err != nil {
		t.Fatalf("--from: %v: %s", err, stderr)
	}
	if _, err := os.Stat(filepath.Join(again, "rate.svg")); err != nil {
		t.Error(err)
	}
	cmd, _, stderr = edgebench("figures", "--from", t.TempDir())
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "holds no result files") {
		t.Errorf("an empty directory: %v, %s", err, stderr)
	}
}
