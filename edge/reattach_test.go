package edge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// changes collects what a Device says of its daemon.
type changes chan error

func (c changes) next(t *testing.T, attached bool) error {
	t.Helper()
	select {
	case got := <-c:
		if (got == nil) != attached {
			t.Fatalf("change %v", got)
		}
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("the Device said nothing")
	}
	return nil
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// acceptAll returns the connections that l accepts, and nil when it has ended.
func acceptAll(ctx context.Context, l *Listener) <-chan *Conn {
	accepted := make(chan *Conn, 4)
	go func() {
		for {
			c, err := l.Accept(ctx)
			accepted <- c
			if err != nil {
				return
			}
		}
	}()
	return accepted
}

// saysDaemonDown checks what everything of a Device says whose daemon went.
func saysDaemonDown(t *testing.T, server *Device, in *Conn, mem *Region, waited error) {
	t.Helper()
	if !errors.Is(waited, ErrDaemonDown) {
		t.Fatalf("waiting on a connection of a daemon that went: %v", waited)
	}
	if err := in.Err(); !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("the connection says %v", err)
	}
	if _, err := in.Post(NoWait, &Work{Kind: Write, Local: mem, Len: 1, Remote: &RemoteRegion{conn: in, size: 1,
		perm: RemoteWrite}}); !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("posting on it: %v", err)
	}
	if err := server.Err(); !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("the Device says %v", err)
	}
	if _, err := server.Register(1); !errors.Is(err, ErrDaemonDown) || !errors.Is(err, ErrNoDaemon) {
		t.Fatalf("registering without a daemon: %v", err)
	} else if text := err.Error(); strings.Contains(text, "dial anew") || strings.Count(text, "edge:") != 1 {
		t.Fatalf("without a daemon more is said than that: %s", text)
	}
	if err := mem.Err(); !errors.Is(err, ErrStale) || !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("the region says %v", err)
	}
}

// A program that says nothing of logs is told by its own that the daemon went, and that it is back.
func TestLossIsLoggedByDefault(t *testing.T) {
	var log lockedBuffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	h := newHost(t, NewFabric(), "a", nil)
	d := h.open(Config{})
	h.stop()
	h.start()
	eventually(t, "attached again", 10*time.Second, func() bool {
		return d.Counters().Attached == 2 && strings.Contains(log.String(), "attached again")
	})
	if text := log.String(); !strings.Contains(text, "level=WARN msg=\"edge: lost the daemon") {
		t.Errorf("logged: %s", text)
	}
}

// Memory of the new daemon cannot be exported on a connection of the old one, and the error says why that ended.
func TestExportAfterRestart(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a, b := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	d, other := a.open(Config{}), b.open(Config{})
	c, _ := pairOn(t, ctx, d, other, "s")
	a.stop()
	a.start()
	var r *Region
	eventually(t, "attached again", 10*time.Second, func() (ok bool) {
		var err error
		r, err = d.RegisterContext(ctx, 4096)
		return err == nil && r.d != c.d
	})
	if _, err := r.Export(c, "mem", RemoteRead, 0, 4096); !errors.Is(err, ErrDaemonDown) {
		t.Errorf("export on a connection of before the restart: %v, want ErrDaemonDown", err)
	}
}

// A daemon that is restarted under a server and a client: what was under way ends with ErrDaemonDown, the Devices
// attach again and say so, the server's Accept goes on, and memory is renewed with its bytes.
func TestDaemonRestart(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a, b := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	var log lockedBuffer
	atServer, atClient := make(changes, 8), make(changes, 8)
	server := a.open(Config{OnChange: func(c error) { atServer <- c }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	client := b.open(Config{OnChange: func(c error) { atClient <- c }})
	l, err := server.Listen(ctx, "store")
	must(t, err)
	accepted := acceptAll(ctx, l)
	local, err := client.Register(1 << 16)
	must(t, err)
	mem, err := server.Register(1 << 16)
	must(t, err)
	for round := range 3 {
		out, err := client.Dial(ctx, "a", "store")
		must(t, err)
		in := <-accepted
		_, err = mem.Export(in, "mem", RemoteRead|RemoteWrite, 0, mem.Len())
		must(t, err)
		remote, err := out.Import(ctx, "mem")
		must(t, err)
		copy(local.Bytes(), []byte{byte(round + 1), 2, 3})
		op, err := out.Post(ctx, &Work{Kind: Write, Local: local, Len: 3, Remote: remote})
		must(t, err)
		must(t, op.Wait(ctx))

		waits := make(chan error, 1)
		go func() { _, err := in.WaitNotify(ctx); waits <- err }()
		a.stop()
		if c := atServer.next(t, false); !errors.Is(c, ErrDaemonDown) {
			t.Fatalf("lost for %v", c)
		}
		saysDaemonDown(t, server, in, mem, <-waits)
		if mem.Bytes()[0] != byte(round+1) {
			t.Fatal("the bytes went with the daemon")
		}
		a.start()
		atServer.next(t, true)
		must(t, server.Err())
		stale := mem
		mem, err = mem.Renew(ctx)
		must(t, err)
		if mem == stale || mem.Err() != nil || !bytes.Equal(mem.Bytes()[:3], []byte{byte(round + 1), 2, 3}) {
			t.Fatalf("renewed memory: %v, %v", mem.Err(), mem.Bytes()[:3])
		}
		if again, err := mem.Renew(ctx); again != mem || err != nil {
			t.Fatalf("renewing what needs none: %v", err)
		}
		// The other side learns of the new epoch by contact and dials anew, without a change of its own daemon.
		eventually(t, "the old connection ends at the peer", 20*time.Second,
			func() bool { client.Poll(); return out.Err() != nil })
		if err := out.Err(); !errors.Is(err, ErrPeerDown) && !errors.Is(err, ErrReset) &&
			!errors.Is(err, net.ErrClosed) {
			t.Fatalf("at the peer: %v", err)
		}
	}
	select {
	case c := <-atClient:
		t.Errorf("the client's daemon lived: %+v", c)
	default:
	}
	for _, want := range []string{"lost the daemon", "attached again", a.cfg.Socket} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	must(t, l.Close())
	if c := <-accepted; c != nil {
		t.Error("accepted after Close")
	}
}

// Operations in flight when the daemon goes end with ErrDaemonDown, each once, and nothing of the old attachment
// reaches the new daemon.
func TestInFlightAtRestart(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a, b := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	lost := make(changes, 8)
	server, client := a.open(Config{}), b.open(Config{OnChange: func(c error) { lost <- c }})
	l, err := server.Listen(ctx, "s")
	must(t, err)
	accepted := make(chan *Conn, 1)
	go func() { c, _ := l.Accept(ctx); accepted <- c }()
	out, err := client.Dial(ctx, "a", "s")
	must(t, err)
	const size = 1 << 20
	mem, err := server.Register(size)
	must(t, err)
	_, err = mem.Export(<-accepted, "mem", RemoteRead|RemoteWrite, 0, size)
	must(t, err)
	remote, err := out.Import(ctx, "mem")
	must(t, err)
	local, err := client.Register(size)
	must(t, err)
	var ops []Op
	for i := range 200 {
		op, err := out.Post(ctx, &Work{Kind: Write + Kind(i%2), Local: local, Len: size, Remote: remote})
		must(t, err)
		ops = append(ops, op)
	}
	if err := local.Close(); !errors.Is(err, ErrBusy) {
		t.Fatalf("closing memory in use: %v", err)
	}
	b.stop()
	failed := 0
	for i, op := range ops {
		if err := op.Wait(ctx); errors.Is(err, ErrDaemonDown) {
			failed++
		} else if err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	if failed == 0 {
		t.Fatal("everything was done before the daemon went: the test tests nothing")
	}
	lost.next(t, false)
	b.start()
	lost.next(t, true)
	_, err = out.Post(ctx, &Work{Kind: Write, Local: local, Len: 1, Remote: remote})
	if !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("an old connection on a new daemon: %v", err)
	}
	go func() { c, _ := l.Accept(ctx); accepted <- c }()
	again, err := client.Dial(ctx, "a", "s")
	must(t, err)
	_, err = mem.Export(<-accepted, "mem", RemoteWrite, 0, size)
	must(t, err)
	remote, err = again.Import(ctx, "mem")
	must(t, err)
	if _, err := again.Post(ctx, &Work{Kind: Write, Local: local, Len: 1, Remote: remote}); !errors.Is(err, ErrStale) {
		t.Fatalf("old memory on a new daemon: %v", err)
	}
	if _, err := local.Export(again, "x", RemoteRead, 0, 1); !errors.Is(err, ErrStale) {
		t.Fatalf("exporting old memory on a new daemon: %v", err)
	}
	n, err := remote.WriteAt([]byte("new"), 0) // by a bounce arena of the new attachment
	if n != 3 || err != nil || string(mem.Bytes()[:3]) != "new" {
		t.Fatalf("%d, %v", n, err)
	}
	for i, op := range ops {
		if err := op.Err(); err != nil && !errors.Is(err, ErrDaemonDown) || !op.Done() {
			t.Fatalf("operation %d, later: %v", i, err)
		}
	}
}

// While there is no daemon, asking makes the Device try at once; an armed event loop is told when there is one again;
// Close ends the search.
func TestWithoutDaemon(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a := newHost(t, f, "a", nil)
	said := make(changes, 8)
	d := a.open(Config{OnChange: func(c error) { said <- c }})
	region, err := d.Register(4096)
	must(t, err)
	fd, err := d.PollFD()
	must(t, err)
	a.stop()
	said.next(t, false)
	d.Poll()
	if !d.Arm() {
		t.Fatal("there is news although the loss was seen")
	}
	if _, err := d.Listen(ctx, "s"); !errors.Is(err, ErrNoDaemon) {
		t.Fatalf("listening without a daemon: %v", err)
	}
	if _, err := d.status(ctx, "status"); !errors.Is(err, ErrDaemonDown) {
		t.Fatalf("status without a daemon: %v", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := d.Dial(done, "a", "s"); !errors.Is(err, context.Canceled) {
		t.Fatalf("dialling in vain: %v", err)
	}
	must(t, region.Close()) // stale regions close without a daemon
	a.start()
	if _, err := d.Listen(ctx, "s"); err != nil {
		t.Fatalf("listening once it is back: %v", err)
	}
	said.next(t, true)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	for err == unix.EINTR {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	}
	if n != 1 || err != nil {
		t.Fatalf("the event loop was not told: %d, %v", n, err)
	}
	if d.Arm() {
		t.Fatal("no news after attaching again")
	}
	d.Poll()
	if !d.Arm() {
		t.Fatal("still news")
	}
	a.stop()
	must(t, d.Close()) // while it looks for a daemon
	if _, err := d.Dial(ctx, "a", "s"); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("dialling on a closed Device: %v", err)
	}
	if d.Arm() {
		t.Fatal("a closed Device asks to be waited for")
	}
}

// A service that the new daemon refuses ends its Listener with the reason, and no other.
func TestServiceRefusedAnew(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a := newHost(t, f, "a", func(c *config.Config) { c.Limits.Services = 1 })
	said := make(changes, 8)
	d := a.open(Config{OnChange: func(c error) { said <- c }})
	l, err := d.Listen(ctx, "s")
	must(t, err)
	a.stop()
	said.next(t, false)
	d.mu.Lock()
	second := &Listener{d: d, service: "t", queue: make(chan *Request, 1), ended: make(chan struct{})}
	second.offered.Store(true)
	d.listeners["t"] = second
	d.mu.Unlock()
	a.start()
	said.next(t, true)
	refused := 0
	for _, l := range []*Listener{l, second} {
		select {
		case <-l.ended:
			refused++
			if _, err := l.Accept(ctx); !errors.Is(err, ErrLimit) {
				t.Errorf("refused for %v", err)
			}
		default:
		}
	}
	if refused != 1 {
		t.Fatalf("one of two services fits, %d were refused", refused)
	}
}

// A daemon that goes while services are offered to it has refused none of them: the next one is asked.
func TestRelistenWhileDaemonGoes(t *testing.T) {
	ctx := testContext(t)
	d := newHost(t, NewFabric(), "a", nil).open(Config{})
	l, err := d.Listen(ctx, "s")
	must(t, err)
	a := d.at.Load() // in place of a new attachment
	for _, kind := range []ipc.Kind{ipc.KindUnlisten, ipc.KindDrain} {
		must(t, second(a.call(ctx, &ipc.Message{Kind: kind, Service: "s"}, &call{})))
	}
	if err := d.relisten(ctx, a); !errors.Is(err, ErrDraining) {
		t.Errorf("offered to a daemon on its way out: %v", err)
	}
	if !d.listens(l) {
		t.Errorf("the Listener ended: %v", l.err)
	}
}

// Who listens while services are offered again waits for that: its service is neither offered twice nor, where it has
// the name of one that was closed meanwhile, withdrawn.
func TestListenWhileRelistening(t *testing.T) {
	ctx := testContext(t)
	f := newFake(t)
	d, c := f.open(Config{})
	old, err := d.Listen(ctx, "s")
	must(t, err)
	a := d.at.Load()
	a.life.ready = make(chan struct{}) // as in a new attachment
	f.mu.Lock()                        // the daemon does not answer
	goOn := sync.OnceFunc(f.mu.Unlock)
	defer goOn()
	relistened := make(chan error, 1)
	go func() { relistened <- d.relisten(ctx, a) }()
	eventually(t, "the service is being offered", 10*time.Second, func() bool {
		a.calls.mu.Lock()
		defer a.calls.mu.Unlock()
		return len(a.calls.pending) > 0
	})
	closed, listened := make(chan error, 1), make(chan error, 2)
	go func() { closed <- old.Close() }()
	eventually(t, "it is closed", 10*time.Second, func() bool { return !d.listens(old) })
	for _, name := range []string{"s", "t"} {
		go func() { listened <- second(d.Listen(ctx, name)) }()
		eventually(t, name+" is entered", 10*time.Second, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.listeners[name] != nil
		})
	}
	goOn()
	must(t, <-relistened)
	must(t, <-closed)
	if len(listened) > 0 {
		t.Error("Listen did not wait")
	}
	close(a.life.ready)
	must(t, <-listened)
	must(t, <-listened)
	must(t, second(d.status(ctx, "status"))) // whatever else was said has been heard
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.services["s"] != c || f.services["t"] != c {
		t.Error("services that are listened to were withdrawn")
	}
}

// A daemon that is drained is there: what it refuses says so, and not that it went away.
func TestDraining(t *testing.T) {
	ctx := testContext(t)
	d := newHost(t, NewFabric(), "a", nil).open(Config{})
	_, err := d.at.Load().call(ctx, &ipc.Message{Kind: ipc.KindDrain}, &call{})
	must(t, err)
	if _, err := d.Listen(ctx, "s"); !errors.Is(err, ErrDraining) || !errors.Is(err, ErrDaemonDown) ||
		strings.Contains(err.Error(), "went away") {
		t.Fatalf("listening: %v", err)
	}
	must(t, d.Err())
}
