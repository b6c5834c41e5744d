package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/bench/cli/clitest"
	"multiedge/bench/faults"
)

// edgefault returns the command with its arguments, and what it writes.
var edgefault = clitest.Command

func TestMain(m *testing.M) { clitest.Main(m.Run, run) }

func TestFaultsWritesTableAndFiles(t *testing.T) {
	dir := t.TempDir()
	cmd, stdout, stderr := edgefault("run", "--lab", "--short", "--only", "^RLIMIT", "-o", dir)
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
	clitest.Explained(t, "edgefault", []clitest.Mistake{
		{Args: "run", Code: 1, Want: "add --lab"},
		{Args: "soak", Code: 1, Want: "add --lab"},
		{Args: "--lab --only nothing-of-that-name", Code: 1, Want: "--list names them"},
		{Args: "--lab --only (", Code: 1, Want: "--only"},
		{Args: "hostile politely", Code: 1, Want: "jam"},
	})
	cmd, stdout, _ := edgefault("--list")
	if err := cmd.Run(); err != nil || strings.Count(stdout.String(), "\n") != len(faults.All()) {
		t.Errorf("%v: %s", err, stdout)
	}
}
