package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/bench/faults"
)

func TestFaultsWritesTableAndFiles(t *testing.T) {
	dir := t.TempDir()
	cmd, stdout, stderr := edgebench("faults", "--lab", "--short", "--only", "^RLIMIT", "-o", dir)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	if !strings.Contains(stdout.String(), "RLIMIT_MEMLOCK") || !strings.Contains(stdout.String(), faults.Pass) {
		t.Errorf("%s", stdout)
	}
	var f faults.File
	data, err := os.ReadFile(filepath.Join(dir, "faults.json"))
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil || len(f.Rows) != 1 || f.Rows[0].Verdict != faults.Pass || f.Rows[0].Counted["typed refusals"] == 0 {
		t.Errorf("%v: %+v", err, f.Rows)
	}
	for _, name := range []string{"faults.md", "faults.csv", "index.html"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data),
			"RLIMIT_MEMLOCK") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaultsExplainsItself(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"faults", "add --lab"}, {"soak", "add --lab"}, {"faults --lab --only nothing-of-that-name",
			"--list names them"}, {"faults --lab --only (", "--only"},
	} {
		cmd, _, stderr := edgebench(strings.Fields(c.args)...)
		if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: %v, %s", c.args, err, stderr)
		}
	}
	cmd, stdout, _ := edgebench("faults", "--list")
	if err := cmd.Run(); err != nil || strings.Count(stdout.String(), "\n") != len(faults.All()) {
		t.Errorf("%v: %s", err, stdout)
	}
}
