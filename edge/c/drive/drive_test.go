//go:build ctest

// Package drive runs the C library's test programs against real daemons: make test-c. The programs are those that the
// Makefile of edge/c built, with the sanitizers that CTEST names.
package drive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/lab"
)

// deadline is how long a test may take on a loaded machine.
const deadline = 60 * time.Second

func TestMain(m *testing.M) {
	if socket := os.Getenv(goClientEnv); socket != "" {
		if err := beClient(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	lab.EnsurePrivileges()
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// program is the path of a test program, in each form that is to be tested.
func program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("CTEST")
	if dir == "" {
		t.Fatal("CTEST names no folder with the C programs: run make test-c")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	must(t, err)
	return path
}

// host is a daemon on a link of a lab. It can be stopped and started again under its clients.
type host struct {
	t      testing.TB
	place  *lab.Host
	cfg    config.Config
	cancel context.CancelFunc
	done   chan error
}

// hosts are two daemons, a and b.
func hosts(t testing.TB) (a, b *host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	l, err := lab.New(ctx, lab.Spec{})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return newHost(t, l.Host(0), "a"), newHost(t, l.Host(1), "b")
}

func newHost(t testing.TB, place *lab.Host, name string) *host {
	t.Helper()
	h := &host{t: t, place: place, cfg: config.Config{
		Security: config.Plaintext, Name: name, Socket: filepath.Join(t.TempDir(), name), Poll: "block",
		Timing: config.Timing{DialTimeout: 5 * time.Second, HelloTime: 50 * time.Millisecond},
	}}
	for _, link := range place.LinkNames() {
		h.cfg.Links = append(h.cfg.Links, config.Link{Name: link})
	}
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (h *host) start() {
	h.t.Helper()
	var d *daemon.Daemon
	must(h.t, h.place.Do(func() (err error) {
		d, err = daemon.New(h.cfg, daemon.Options{})
		return err
	}))
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	h.done = make(chan error, 1)
	go func() { h.done <- d.Run(ctx) }()
	<-d.Ready()
}

func (h *host) stop() {
	if h.cancel == nil {
		return
	}
	h.cancel()
	h.cancel = nil
	if err := <-h.done; err != nil {
		h.t.Errorf("daemon %s: %v", h.cfg.Name, err)
	}
}

// open attaches a Go client.
func (h *host) open() *edge.Device {
	h.t.Helper()
	d, err := edge.Open(context.Background(), edge.Config{Socket: h.cfg.Socket})
	must(h.t, err)
	h.t.Cleanup(func() { d.Close() })
	return d
}

// run is a C program that runs at a host.
type run struct {
	t      testing.TB
	what   string
	cmd    *exec.Cmd
	in     io.Writer
	out    *bufio.Reader
	stderr strings.Builder
	timer  *time.Timer
}

func (h *host) run(args ...string) *run {
	h.t.Helper()
	return start(h.t, h.cfg.Socket, args...)
}

func start(t testing.TB, socket string, args ...string) *run {
	t.Helper()
	return startProgram(t, "peer", socket, args...)
}

func startProgram(t testing.TB, name, socket string, args ...string) *run {
	t.Helper()
	r := &run{t: t, what: strings.Join(args, " "), cmd: exec.Command(program(t, name), args...)}
	r.cmd.Env = append(os.Environ(), "EDGE_SOCKET="+socket)
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	must(t, err)
	r.in, err = r.cmd.StdinPipe()
	must(t, err)
	r.out = bufio.NewReader(out)
	must(t, r.cmd.Start())
	r.timer = time.AfterFunc(deadline, func() { r.cmd.Process.Kill() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s says: %s", r.what, r.stderr.String())
		}
		r.timer.Stop()
		r.cmd.Process.Kill()
	})
	return r
}

// says waits for a line of the program.
func (r *run) says(want string) {
	r.t.Helper()
	line, err := r.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		r.cmd.Wait()
		r.t.Fatalf("%s: %q, %v instead of %q; it says:\n%s", r.what, line, err, want, r.stderr.String())
	}
}

// ends waits for the program's good end and returns what else it said.
func (r *run) ends() string {
	r.t.Helper()
	out, _ := io.ReadAll(r.out)
	if err := r.cmd.Wait(); err != nil {
		r.t.Fatalf("%s: %v; it says:\n%s", r.what, err, r.stderr.String())
	}
	return string(out)
}

func TestUnit(t *testing.T) {
	out, err := exec.Command(program(t, "unit"), "../../../internal/ipc/testdata/golden.txt").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestOperations(t *testing.T) {
	a, b := hosts(t)
	for range 2 { // either is either host's
		server := b.run("serve", "store")
		server.says("ready")
		a.run("use", b.cfg.Name, "store").ends()
		server.ends()
		a, b = b, a
	}
}

func TestMemoryOfTheProgram(t *testing.T) {
	a, b := hosts(t)
	server := b.run("serve", "store")
	server.says("ready")
	a.run("memory", "b", "store").ends()
	server.ends()
}

func TestStreams(t *testing.T) {
	a, b := hosts(t)
	const n = 8
	server := b.run("echo", "echo", fmt.Sprint(n))
	server.says("ready")
	a.run("streams", "b", "echo", fmt.Sprint(n), "3000001").ends()
	server.ends()
}

func TestThousandsOfStreams(t *testing.T) {
	a, b := hosts(t)
	const n = 300
	server := b.run("echo", "echo", fmt.Sprint(n))
	server.says("ready")
	a.run("many", "b", "echo", fmt.Sprint(n)).ends()
	server.ends()
}

func TestStreamsArePolled(t *testing.T) {
	a, b := hosts(t)
	server := b.run("echo", "echo", "2")
	server.says("ready")
	a.run("polled", "b", "echo").ends()
	server.ends()
}

func TestFork(t *testing.T) {
	a, b := hosts(t)
	server := b.run("echo", "echo", "2")
	server.says("ready")
	a.run("forked", "b", "echo").ends()
	server.ends()
}
