package main

import (
	"slices"
	"strings"
	"testing"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// ways asks, as a shell does, how a command line may go on.
func ways(t *testing.T, line string) []string {
	t.Helper()
	t.Setenv("COMP_LINE", line)
	code, out, errs := ctl()
	if code != 0 || errs != "" {
		t.Errorf("%q: exit %d: %s", line, code, errs)
	}
	return strings.Fields(out)
}

func TestCompletion(t *testing.T) {
	a, _ := pair(t, config.Encrypted)
	if code, _, errs := ctl("-s", a, "ping", "b", "-c", "1"); code != 0 {
		t.Fatal(errs)
	}
	t.Setenv(ipc.SocketEnv, a)
	for line, want := range map[string]string{
		"edgectl st":               "stat status",
		"edgectl peers ":           "add list remove",
		"edgectl completion ":      "bash fish zsh",
		"edgectl stat --i":         "--interval",
		"edgectl stat --link m":    "mem",
		"edgectl ping ":            "b",
		"edgectl -j peers remove ": "b",
		"edgectl dance ":           "",
	} {
		got := ways(t, line)
		slices.Sort(got)
		if want := strings.Fields(want); len(want) > 0 && !slices.Equal(got, want) || len(want) == 0 &&
			slices.Contains(got, "b") {
			t.Errorf("%q goes on with %q, want %q", line, got, want)
		}
	}
	t.Setenv(ipc.SocketEnv, t.TempDir()+"/none.sock")
	if got := ways(t, "edgectl ping "); len(got) != 0 {
		t.Errorf("without a daemon: %q", got)
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "bashcompinit",
		"fish": "complete -f -c edgectl"} {
		if code, out, errs := ctl("completion", shell); code != 0 || !strings.Contains(out, want) ||
			!strings.Contains(out, "edgectl") {
			t.Errorf("%s: %d %s%s", shell, code, out, errs)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}} {
		if code, _, errs := ctl(args...); code != 2 || !strings.Contains(errs, "shell") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}
