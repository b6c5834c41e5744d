package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/linkdrv"
)

// Clients that are killed and stopped are processes of their own: this binary again, told by the environment whose
// client to be.
const childSocketEnv = "EDGE_TEST_SOCKET"

// childDaemonEnv makes the child a daemon instead, with a link in memory that leads nowhere, or the real one that
// childLinkEnv names.
const (
	childDaemonEnv = "EDGE_TEST_DAEMON"
	childLinkEnv   = "EDGE_TEST_LINK"
)

// childSize is how much a child registers, exports and writes at once, in bytes.
const childSize = 1 << 20

// beChild dials "work" at "a", imports "mem", exports "child", and writes "mem" over and over with a queue full of
// operations, taking notifications meanwhile. It says so on its standard output once the first is done, and lives until
// it is killed.
func beChild(socket string) error {
	ctx := context.Background()
	d, err := Open(ctx, Config{Socket: socket, QueueDepth: 64})
	if err != nil {
		return err
	}
	c, err := d.Dial(ctx, "a", "work")
	if err != nil {
		return err
	}
	local, err := d.Register(childSize)
	if err != nil {
		return err
	}
	for i := range local.Bytes() {
		local.Bytes()[i] = 0xc1
	}
	if _, err := local.Export(c, "child", RemoteWrite, 0, 8); err != nil {
		return err
	}
	mem, err := c.Import(ctx, "mem")
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := c.WaitNotify(ctx); err != nil {
				return
			}
		}
	}()
	for first := true; ; first = false {
		op, err := c.Post(ctx, &Work{Kind: Write, Local: local, Len: childSize, Remote: mem})
		if err != nil {
			return err
		}
		if first {
			if err := op.Wait(ctx); err != nil {
				return err
			}
			fmt.Println("at work")
		}
	}
}

func beDaemon(socket string) error {
	f := NewFabric()
	cfg := config.Config{Name: "d", Socket: socket, Security: "plaintext", Poll: "block",
		Links: []config.Link{{Name: "mem0"}}, Limits: config.Limits{Couriers: 64}}
	o := daemon.Options{Open: func(l config.Link, _ linkdrv.Options) (linkdrv.Driver, error) { return f.plug(l.Name) }}
	if link := os.Getenv(childLinkEnv); link != "" {
		cfg.Links[0].Name, o.Open = link, nil
	}
	d, err := daemon.New(cfg, o)
	if err != nil {
		return err
	}
	go func() {
		<-d.Ready()
		fmt.Println("at work")
	}()
	return d.Run(context.Background())
}

type testChild struct {
	t    *testing.T
	cmd  *exec.Cmd
	ends chan struct{}
}

// newChild starts a child at h and returns when it is at work.
func newChild(t *testing.T, h *testHost) *testChild {
	t.Helper()
	return startChild(t, childSocketEnv+"="+h.cfg.Socket)
}

func startChild(t *testing.T, role string) *testChild {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	c := &testChild{t: t, cmd: cmd, ends: make(chan struct{})}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child ended: %q, %v", line, err)
	}
	go func() {
		io.Copy(io.Discard, out)
		cmd.Wait()
		close(c.ends)
	}()
	return c
}

// isStopped reports whether no thread of the process runs.
func (c *testChild) isStopped() bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.cmd.Process.Pid))
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if _, state, ok := strings.Cut(string(b), ") "); err == nil && (!ok || state[0] != 'T') {
			return false
		}
	}
	return err == nil && len(tasks) > 0
}

func (c *testChild) signal(s syscall.Signal) {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(s))
}

func (c *testChild) kill() {
	c.cmd.Process.Kill() // it may be gone
	select {
	case <-c.ends:
	case <-time.After(20 * time.Second):
		c.t.Error("the child does not end")
	}
}

// workplace is what children work at: a server on one host that exports memory to each connection of "work", and a
// client on the other.
type workplace struct {
	a, b   *testHost
	server *Device
	client *Device
	l      *Listener
}

func newWorkplace(t *testing.T) *workplace {
	t.Helper()
	f := NewFabric()
	w := &workplace{a: newHost(t, f, "a", nil), b: newHost(t, f, "b", nil)}
	w.server, w.client = w.a.open(Config{}), w.b.open(Config{})
	var err error
	w.l, err = w.server.Listen(testContext(t), "work")
	must(t, err)
	return w
}

// hire accepts the next connection and exports fresh memory on it.
func (w *workplace) hire(t *testing.T) <-chan hired {
	ch := make(chan hired, 1)
	go func() {
		c, err := w.l.Accept(testContext(t))
		var r *Region
		if err == nil {
			r, err = w.server.Register(childSize)
		}
		if err == nil {
			_, err = r.Export(c, "mem", RemoteRead|RemoteWrite, 0, childSize)
		}
		if err != nil {
			t.Error(err)
		}
		ch <- hired{c, r}
	}()
	return ch
}

type hired struct {
	conn *Conn
	mem  *Region
}

// A client that is killed with its queue full of large operations: its memory is unpinned within a second, its peer
// gets a typed answer, and afterwards nothing of it arrives.
func TestKilledClient(t *testing.T) {
	ctx := testContext(t)
	w := newWorkplace(t)
	for range 3 {
		pinned := func() uint64 {
			snap, err := w.b.d.Snapshot()
			must(t, err)
			return snap.Status.PinnedBytes
		}
		before := pinned()
		hiring := w.hire(t)
		child := newChild(t, w.b)
		at := <-hiring
		if pinned() == before {
			t.Fatal("the child has registered nothing")
		}
		child.signal(syscall.SIGKILL)
		eventually(t, "memory of the dead client is unpinned", 10*time.Second,
			func() bool { return pinned() == before })
		_, err := at.conn.WaitNotify(ctx)
		if !errors.Is(err, ErrReset) || errors.Is(err, io.EOF) {
			t.Fatalf("the peer was told %v", err)
		}
		clear(at.mem.Bytes())
		hiring = w.hire(t)
		c, err := w.client.Dial(ctx, "a", "work")
		must(t, err)
		other := <-hiring
		mem, err := c.Import(ctx, "mem")
		must(t, err)
		for range 20 {
			_, err := mem.WriteAt(make([]byte, childSize), 0)
			must(t, err)
		}
		for i, b := range at.mem.Bytes() {
			if b != 0 {
				t.Fatalf("byte %d was written after the connection had ended", i)
			}
		}
		must(t, c.Close())
		must(t, at.mem.Close())
		_, err = other.conn.WaitNotify(ctx)
		if err == nil {
			t.Fatal("a notification out of nowhere")
		}
		must(t, other.mem.Close())
	}
	snap, err := w.b.d.Snapshot()
	must(t, err)
	if len(snap.Clients) != 1 || len(snap.Conns) != 0 || snap.Status.Exports != 0 {
		t.Errorf("left behind: %+v", snap)
	}
}

// A client that is stopped keeps what it has, stalls whoever writes to it, and nobody else; let go on, it goes on.
func TestStoppedClient(t *testing.T) {
	ctx := testContext(t)
	w := newWorkplace(t)
	hiring := w.hire(t)
	child := newChild(t, w.b)
	at := <-hiring
	theirs, err := at.conn.Import(ctx, "child")
	must(t, err)
	hiring = w.hire(t)
	c, err := w.client.Dial(ctx, "a", "work")
	must(t, err)
	<-hiring
	mem, err := c.Import(ctx, "mem")
	must(t, err)
	write := func() {
		t.Helper()
		for range 300 {
			op, err := c.Post(ctx, &Work{Kind: Write, Inline: []byte("on"), Remote: mem})
			must(t, err)
			must(t, op.Wait(ctx))
		}
	}
	write()
	child.signal(syscall.SIGSTOP)
	// Notifications that nobody takes, until no more are let through.
	var posted, done atomic.Int64
	stalled := make(chan error, 1)
	giveUp, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			op, err := at.conn.Post(giveUp, &Work{Kind: Write, Flags: Notify, Inline: []byte{1}, Remote: theirs})
			if err != nil {
				stalled <- err
				return
			}
			posted.Add(1)
			go func() {
				if op.Wait(ctx) == nil {
					done.Add(1)
				}
			}()
		}
	}()
	last := int64(-1)
	eventually(t, "the writer to a stopped client stalls", 15*time.Second, func() bool {
		write() // meanwhile everybody else goes on
		now := posted.Load()
		same := now == last
		last = now
		return same && now > done.Load()
	})
	for range 3 {
		write()
	}
	if posted.Load() != last {
		t.Fatalf("it was not stalled: %d operations more", posted.Load()-last)
	}
	snap, err := w.b.d.Snapshot()
	must(t, err)
	if snap.Status.Evictions != 0 || len(snap.Clients) != 2 {
		t.Fatalf("evicted for being stopped: %+v", snap.Status)
	}
	cancel()
	<-stalled
	child.signal(syscall.SIGCONT)
	eventually(t, "operations to the client that goes on complete", 15*time.Second,
		func() bool { return done.Load() == posted.Load() })
	must(t, at.conn.Err())
	t.Logf("%d operations went to the stopped client before it stalled its writer", last)
}

// A daemon that is killed leaves its socket and its lock behind; the next one takes them over, and the Device finds it,
// with its services.
func TestKilledDaemon(t *testing.T) {
	ctx := testContext(t)
	socket := filepath.Join(t.TempDir(), "d.sock")
	child := startChild(t, childDaemonEnv+"="+socket)
	said := make(changes, 8)
	d, err := Open(ctx, Config{Socket: socket, OnChange: func(c error) { said <- c }})
	must(t, err)
	defer d.Close()
	l, err := d.Listen(ctx, "s")
	must(t, err)
	epochs := map[string]bool{}
	for range 3 {
		body, err := d.status(ctx, "status")
		must(t, err)
		var st struct {
			Epoch string `json:"epoch"`
			PID   int    `json:"pid"`
		}
		must(t, json.Unmarshal(body, &st))
		if epochs[st.Epoch] || st.PID != child.cmd.Process.Pid {
			t.Fatalf("asked %+v, the daemon is process %d", st, child.cmd.Process.Pid)
		}
		epochs[st.Epoch] = true
		child.signal(syscall.SIGKILL)
		if c := said.next(t, false); !errors.Is(c, ErrDaemonDown) {
			t.Fatalf("lost for %v", c)
		}
		<-child.ends
		if _, err := d.Register(1); !errors.Is(err, ErrNoDaemon) {
			t.Fatalf("registering with a dead daemon: %v", err)
		}
		child = startChild(t, childDaemonEnv+"="+socket)
		said.next(t, true)
		if _, err := d.Listen(ctx, "s"); !errors.Is(err, ErrExists) {
			t.Fatalf("the service is not offered any more: %v", err)
		}
		other, err := Open(ctx, Config{Socket: socket})
		must(t, err)
		if _, err := other.Listen(ctx, "s"); !errors.Is(err, ErrExists) {
			t.Fatalf("the new daemon does not know of the service: %v", err)
		}
		must(t, other.Close())
	}
	must(t, l.Close())
}
