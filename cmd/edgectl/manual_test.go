package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The manual pages name every command and flag that the programs' own help does, and completion offers every command.
func TestManualsAreWhole(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", "../edged",
		"../edgectl", "../edgebench", "../edgefault", "../edgestudy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	least := map[string]int{"edgectl": 10, "edgebench": 10, "edgefault": 3, "edgestudy": 7} // commands
	for _, name := range []string{"edged", "edgectl", "edgebench", "edgefault", "edgestudy"} {
		program := filepath.Join(dir, name)
		say := func(env string, args ...string) string {
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), env)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.Run()
			return out.String()
		}
		page := strings.ReplaceAll(say("", "--man-page"), "\\-", "-")
		for _, section := range []string{"EXIT STATUS", "FILES", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"} {
			if !strings.Contains(page, "\n.SH "+section+"\n") {
				t.Errorf("%s: no section %s", name, section)
			}
		}
		help := say("", "--help")
		seen := 0
		commands := regexp.MustCompile(`(?m)^  ([a-z][a-z-]*)( .*)?$`).FindAllStringSubmatch(
			help[max(strings.Index(help, "Commands:"), 0):], -1)
		if !strings.Contains(help, "Commands:") {
			commands = nil
		}
		offered := say("COMP_LINE=" + name + " ")
		for _, c := range commands {
			if help += say("", c[1], "--help"); !strings.Contains(page, "\n.SS "+c[1]) {
				t.Errorf("%s: no command %s in its page", name, c[1])
			}
			if !strings.Contains(offered, c[1]+"\n") {
				t.Errorf("%s: %s is not offered as a completion: %q", name, c[1], offered)
			}
		}
		for _, line := range regexp.MustCompile(`(?m)^ +(-\w, )?(--[a-z][a-z-]+)`).FindAllStringSubmatch(help, -1) {
			f := strings.TrimPrefix(line[2], "--")
			if seen++; f != "help" && f != "no-" && !strings.Contains(page, "--"+f) && !strings.Contains(page,
				"--"+strings.TrimPrefix(f, "no-")) {
				t.Errorf("%s: no flag --%s in its page", name, f)
			}
		}
		if seen < 20 || len(commands) < least[name] {
			t.Errorf("%s: only %d flags and %d commands seen", name, seen, len(commands))
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			if text := say("", "--completion-"+shell); !strings.Contains(text, "complete ") || strings.Contains(text,
				"error") || !strings.Contains(text, name) {
				t.Errorf("%s for %s: %s", name, shell, text)
			}
		}
		if v := say("", "--version"); strings.Contains(v, "devel") || !strings.HasPrefix(v, "0.1.0") {
			t.Errorf("%s --version: %q", name, v)
		}
	}
}
