// Package examples has programs for two hosts: each directory is one.
package examples

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"multiedge/edge/internal/memnet"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/linkdrv"
)

// prints is what the client of each example prints, or with -memory both.
var prints = map[string]string{
	"echo":      `^hello\n$`,
	"kv":        `^colour = green\nshape = round\ntaste is not there\n$`,
	"atomics":   `^counted to 100; accounts of -100 and 100\n$`,
	"http":      `^200 OK: /hello for [^\n]+\n$`,
	"reconnect": `(?m)^sent 10 lines over [4-9] connections$`,
}

// build makes the program of an example.
func build(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", program, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, errs.String())
	}
	return string(out)
}

// Every example works in one process, and as two processes at a daemon.
func TestExamples(t *testing.T) {
	dirs, err := filepath.Glob("*/main.go")
	if err != nil || len(dirs) != len(prints) {
		t.Fatalf("%d programs, %d are tested; %v", len(dirs), len(prints), err)
	}
	socket := startDaemon(t)
	for name, want := range prints {
		t.Run(name, func(t *testing.T) {
			program := build(t, name)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if out := run(t, exec.CommandContext(ctx, program, "-memory")); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("-memory: it printed %q", out)
			}
			env := append(os.Environ(), "EDGE_SOCKET="+socket)
			server := exec.CommandContext(ctx, program)
			server.Env, server.Stderr = env, os.Stderr
			stdout, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "serving ") {
				t.Fatalf("the server printed %q, %v", line, err)
			}
			client := exec.CommandContext(ctx, program, "-node", "here")
			client.Env = env
			if out := run(t, client); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("the client printed %q", out)
			}
			server.Process.Signal(os.Interrupt)
			if err := server.Wait(); err != nil {
				t.Errorf("the server: %v", err)
			}
		})
	}
}

// -h says what to do.
func TestHelp(t *testing.T) {
	out, _ := exec.Command(build(t, "echo"), "-h").CombinedOutput()
	for _, word := range []string{"-node", "-service", "-memory", "edged"} {
		if !strings.Contains(string(out), word) {
			t.Errorf("-h does not mention %s: %s", word, out)
		}
	}
}

// startDaemon starts a daemon that only programs of this host reach, and returns its socket.
func startDaemon(t *testing.T) string {
	t.Helper()
	net, socket := new(memnet.Net), filepath.Join(t.TempDir(), "s")
	d, err := daemon.New(config.Config{Security: config.Plaintext, Name: "here", Socket: socket, Poll: "block",
		Links: []config.Link{{Name: "mem0"}}}, daemon.Options{
		Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) { return net.Plug(l.Name) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-d.Ready()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}
