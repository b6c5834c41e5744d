// Package examples has programs for two hosts: each directory is one.
package examples

import (
	"bufio"
	"context"
	"fmt"
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
			server, _ := serve(t, ctx, program, env)
			client := exec.CommandContext(ctx, program, "-node", "here")
			client.Env = env
			if out := run(t, client); !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("the client printed %q", out)
			}
			interrupt(t, server)
		})
	}
}

// serve starts the server of an example and returns what it prints once it serves.
func serve(t *testing.T, ctx context.Context, program string, env []string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	server := exec.CommandContext(ctx, program)
	server.Env, server.Stderr = env, os.Stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	if !out.Scan() || !strings.HasPrefix(out.Text(), "serving ") {
		t.Fatalf("the server printed %q, %v", out.Text(), out.Err())
	}
	return server, out
}

// interrupt ends a server as its user does.
func interrupt(t *testing.T, server *exec.Cmd) {
	t.Helper()
	server.Process.Signal(os.Interrupt)
	if err := server.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
}

// The key-value store goes on storing, and is read, after a restart of the daemon.
func TestKVOutlivesItsDaemon(t *testing.T) {
	program, socket := build(t, "kv"), filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	env := append(os.Environ(), "EDGE_SOCKET="+socket)
	stop := runDaemon(t, socket)
	server, _ := serve(t, ctx, program, env)
	stop()
	defer runDaemon(t, socket)()
	for {
		client := exec.CommandContext(ctx, program, "-node", "here")
		client.Env = env
		out, err := client.CombinedOutput()
		if err == nil && regexp.MustCompile(prints["kv"]).Match(out) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after the restart a client prints %q, %v", out, err)
		}
	}
	interrupt(t, server)
}

// The server of reconnect takes the lines of each client once.
func TestReconnectKnowsItsClients(t *testing.T) {
	program := build(t, "reconnect")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	env := append(os.Environ(), "EDGE_SOCKET="+startDaemon(t))
	server, out := serve(t, ctx, program, env)
	for i := range 2 {
		client := exec.CommandContext(ctx, program, "-node", "here")
		client.Env = env
		run(t, client)
		for line := range 10 {
			if want := fmt.Sprintf("%d: line %d", line, line); !out.Scan() || out.Text() != want {
				t.Fatalf("client %d: the server printed %q, want %q", i, out.Text(), want)
			}
		}
	}
	interrupt(t, server)
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
	socket := filepath.Join(t.TempDir(), "s")
	t.Cleanup(runDaemon(t, socket))
	return socket
}

// runDaemon runs a daemon at a socket, until the function that it returns is called.
func runDaemon(t *testing.T, socket string) (stop func()) {
	t.Helper()
	net := new(memnet.Net)
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
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
