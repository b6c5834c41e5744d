//go:build ctest

// Package drive runs ranks in C, and ranks in C and in Go together, between real daemons: make -C edge/dsm/c lab, and
// make test-c. The programs are those that the Makefile of edge/dsm/c built, in the form that DSMTEST names.
package drive

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"multiedge/bench/kit"
	"multiedge/edge"
	"multiedge/edge/dsm"
	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/lab"
)

// deadline is how long a test may take on a loaded machine.
const deadline = 100 * time.Second

// TestMain is also what runs in the hosts of the tests' clusters.
func TestMain(m *testing.M) { kit.Tests(m.Run) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a lab with a daemon on each host.
type world struct {
	t       testing.TB
	lab     *lab.Lab
	sockets []string
}

func newWorld(t testing.TB, hosts int) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	l, err := lab.New(ctx, lab.Spec{Hosts: hosts, Links: 2, Medium: lab.Switch})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	w := &world{t: t, lab: l}
	for i := range hosts {
		w.sockets = append(w.sockets, w.daemon(l.Host(i)))
	}
	return w
}

// daemon starts one at a host and returns its socket.
func (w *world) daemon(place *lab.Host) string {
	cfg := config.Config{Security: config.Plaintext, Name: place.Name(), Poll: "block",
		Socket: filepath.Join(w.t.TempDir(), "s"),
		Timing: config.Timing{DialTimeout: 5 * time.Second, HelloTime: 50 * time.Millisecond}}
	for _, link := range place.LinkNames() {
		cfg.Links = append(cfg.Links, config.Link{Name: link})
	}
	var d *daemon.Daemon
	must(w.t, place.Do(func() (err error) {
		d, err = daemon.New(cfg, daemon.Options{})
		return err
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-d.Ready()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("daemon %s: %v", cfg.Name, err)
		}
	})
	return cfg.Socket
}

// place is EDGE_DSM of a rank.
func (w *world) place(name string, rank, ranks int) string {
	return fmt.Sprintf("%s,%d,%d,%s", name, rank, ranks, w.lab.Host(0).Name())
}

// process is a rank in C.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout lines
	stderr bytes.Buffer
	over   chan struct{}
	err    error
}

// lines is what a process writes, and tells of its first line.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	once  sync.Once
	first chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if bytes.IndexByte(p, '\n') >= 0 {
		l.once.Do(func() { close(l.first) })
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start starts a rank of a run: PROGRAM ARGS.
func (w *world) start(name string, rank, ranks int, args ...string) *process {
	w.t.Helper()
	dir := os.Getenv("DSMTEST")
	if dir == "" {
		w.t.Fatal("DSMTEST names no folder with the C programs: run make -C edge/dsm/c lab")
	}
	p := &process{t: w.t, cmd: exec.Command(filepath.Join(dir, args[0]), args[1:]...), over: make(chan struct{}),
		stdout: lines{first: make(chan struct{})}}
	p.cmd.Env = append(os.Environ(), "EDGE_SOCKET="+w.sockets[rank%len(w.sockets)],
		dsm.Variable+"="+w.place(name, rank, ranks))
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	must(w.t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.over)
	}()
	w.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.over
	})
	return p
}

// ends waits for the end of a rank, and returns what it said.
func (p *process) ends() (stdout string) {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(deadline):
		p.t.Fatalf("%v does not end; it says %q and %q", p.cmd.Args, p.stdout.String(), p.stderr.String())
	}
	return p.stdout.String()
}

// well waits for the good end of a rank, and returns what it said.
func (p *process) well() (stdout string) {
	p.t.Helper()
	stdout = p.ends()
	if p.err != nil {
		p.t.Errorf("%v, %s: %v: %s", p.cmd.Args, p.cmd.Env[len(p.cmd.Env)-1], p.err, p.stderr.String())
	}
	return stdout
}

// ready waits for the first line of a rank.
func (p *process) ready() {
	p.t.Helper()
	select {
	case <-p.stdout.first:
	case <-p.over:
		p.t.Fatalf("%v: %v: %s", p.cmd.Args, p.err, p.stderr.String())
	case <-time.After(deadline):
		p.t.Fatalf("%v does not begin: %s", p.cmd.Args, p.stderr.String())
	}
}

// inGo starts a rank in Go, and returns what waits for its end.
func (w *world) inGo(name string, rank int, c dsm.Config, f func(*dsm.Memory) error) (wait func() error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		d, err := edge.Open(ctx, edge.Config{Socket: w.sockets[rank%len(w.sockets)]})
		if err != nil {
			done <- err
			return
		}
		defer d.Close()
		c.Name, c.Rank, c.Root, c.Device = name, rank, w.lab.Host(0).Name(), d
		done <- dsm.Run(ctx, c, f)
	}()
	return func() error { return <-done }
}

// cut cuts the links in turn, so that one at least is whole, until stop, which returns how often it did.
func (w *world) cut() (stop func() int) {
	quit, done, cuts := make(chan struct{}), make(chan struct{}), 0
	pause := func() {
		select {
		case <-quit:
		case <-time.After(60 * time.Millisecond):
		}
	}
	go func() {
		defer close(done)
		for ; ; cuts++ {
			link := w.lab.Link(cuts % w.lab.Links())
			if err := link.Cut(true); err != nil {
				w.t.Error(err)
			}
			pause()
			if err := link.Cut(false); err != nil {
				w.t.Error(err)
			}
			pause()
			select {
			case <-quit:
				return
			default:
			}
		}
	}()
	return func() int {
		close(quit)
		<-done
		return cuts + 1
	}
}
