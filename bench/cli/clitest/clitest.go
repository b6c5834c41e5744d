// Package clitest runs programs of package cli in tests: a test's executable becomes the program itself.
package clitest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"multiedge/bench/kit"
)

// beProgram is set in the environment of test executables that are to be the program, and of their children.
const beProgram = "EDGEBENCH_TEST"

// Main runs the tests, or the program, and ends the process; TestMain calls it with (*testing.M).Run.
func Main(tests, program func() int) {
	if os.Getenv(beProgram) != "" {
		os.Exit(program())
	}
	kit.Tests(tests)
}

// Command returns the program with its arguments, and what it writes.
func Command(args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beProgram+"=1")
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// Mistake is a command line that makes no sense, how the program ends, and a part of what it says.
type Mistake = struct {
	Args string
	Code int
	Want string
}

// Explained tests that a program of that name explains mistakes in one line, without a stack and without hanging.
func Explained(t *testing.T, name string, mistakes []Mistake) {
	t.Helper()
	for _, c := range mistakes {
		cmd, _, stderr := Command(strings.Fields(c.Args)...)
		_ = cmd.Run()
		text := stderr.String()
		if code := cmd.ProcessState.ExitCode(); code != c.Code || !strings.Contains(text, c.Want) ||
			!strings.Contains(text, name+": ") {
			t.Errorf("%s %s: exit %d, want %d; text without %q: %s", name, c.Args, code, c.Code, c.Want, text)
		}
		if strings.Contains(text, "goroutine ") {
			t.Errorf("%s %s prints a stack:\n%s", name, c.Args, text)
		}
	}
}
