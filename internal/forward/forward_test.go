package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"multiedge/edge/fabric"
)

// world is a server behind an inward rule on node b, and an outward rule on node a.
type world struct {
	t     *testing.T
	a, b  *Forwarder
	entry string // where programs connect
	stopB context.CancelFunc
}

func newWorld(t *testing.T, network string, conns int, serve func(net.Conn)) *world {
	t.Helper()
	target := listenFor(t, network, serve)
	entry := filepath.Join(t.TempDir(), "entry.sock")
	if network == "tcp" {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		entry = free.Addr().String()
		free.Close()
	}
	f := fabric.New()
	t.Cleanup(func() { f.Close() })
	w := &world{t: t, entry: entry}
	w.b, w.stopB = start(t, f, "b", Rule{Service: "s", Target: target, Conns: conns})
	w.a, _ = start(t, f, "a", Rule{Listen: w.entry, Peer: "b", Service: "s", Conns: conns})
	return w
}

// listenFor runs a server and returns its address.
func listenFor(t *testing.T, network string, serve func(net.Conn)) string {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "target.sock")
	}
	l, err := net.Listen(network, addr)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return network + ":" + l.Addr().String()
}

func start(t *testing.T, f *fabric.Fabric, name string, rules ...Rule) (*Forwarder, context.CancelFunc) {
	t.Helper()
	dev, err := f.Open(name)
	must(t, err)
	fw, err := New(dev, rules, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- fw.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return fw, cancel
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) dial() socket {
	w.t.Helper()
	network := "tcp"
	if strings.HasPrefix(w.entry, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, w.entry)
	must(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(socket)
}

// TestHalfClose: the server answers only after the whole request was read, and the client has closed its writing half.
func TestHalfClose(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			w := newWorld(t, network, 0, func(c net.Conn) {
				all, _ := io.ReadAll(c)
				c.Write(bytes.ToUpper(all))
				c.Close()
			})
			c := w.dial()
			text := strings.Repeat("said through a stream. ", 1<<16) // 1.5 MB: more than all buffers
			go func() {
				io.WriteString(c, text)
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			must(t, err)
			if string(got) != strings.ToUpper(text) {
				t.Fatalf("%d bytes came back, not the %d that were said", len(got), len(text))
			}
			w.a.Each(func(r *Rule, n *Counters) {
				if n.Out.Load() != uint64(len(text)) || n.In.Load() != uint64(len(text)) || n.Broken.Load() != 0 {
					t.Errorf("%s counted %d bytes out, %d in, %d broken", r, n.Out.Load(), n.In.Load(), n.Broken.Load())
				}
			})
		})
	}
}

// TestBreakIsNoEnd: a server that resets its connection is never seen as one that said all.
func TestBreakIsNoEnd(t *testing.T) {
	w := newWorld(t, "tcp", 0, func(c net.Conn) {
		io.WriteString(c, "half of what I wanted to s")
		io.ReadFull(c, make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	})
	c := w.dial()
	_, err := io.ReadFull(c, make([]byte, 26))
	must(t, err)
	c.Write([]byte{1}) // now the server resets
	if n, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after %d bytes more the client saw %v; want a reset", n, err)
	}
}

// TestNobodyServes: the program gets a broken connection, at once, and the rule goes on.
func TestNobodyServes(t *testing.T) {
	f := fabric.New()
	t.Cleanup(func() { f.Close() })
	_, err := f.Open("b")
	must(t, err)
	entry := filepath.Join(t.TempDir(), "entry.sock")
	a, _ := start(t, f, "a", Rule{Listen: entry, Peer: "b", Service: "nothing"})
	for i := range 2 {
		c, err := net.Dial("unix", entry)
		must(t, err)
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from nobody", n)
		}
		c.Close()
		a.Each(func(_ *Rule, n *Counters) {
			if n.Failed.Load() != uint64(i+1) || n.Opened.Load() != 0 {
				t.Errorf("%d failed, %d opened", n.Failed.Load(), n.Opened.Load())
			}
		})
	}
}

// TestConnsBounds: a rule carries no more connections at once than it may; the next one is served when one ends.
func TestConnsBounds(t *testing.T) {
	var now, most atomic.Int64
	w := newWorld(t, "unix", 2, func(c net.Conn) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		io.Copy(c, c)
		now.Add(-1)
		c.Close()
	})
	var conns []socket
	for i := range 4 {
		c := w.dial()
		fmt.Fprintf(c, "%d", i)
		conns = append(conns, c)
	}
	echo := func(i int) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(conns[i], b); err != nil || b[0] != byte('0'+i) {
			t.Fatalf("connection %d read %q, %v", i, b, err)
		}
	}
	echo(0)
	echo(1)
	for i, c := range conns {
		if i > 1 {
			echo(i)
		}
		c.CloseWrite()
		io.ReadAll(c)
	}
	if n := most.Load(); n != 2 {
		t.Errorf("%d connections at once; want 2", n)
	}
}

// TestStopResets: connections that are open when the forwarder ends are broken, not ended.
func TestStopResets(t *testing.T) {
	ended := make(chan error, 1)
	w := newWorld(t, "tcp", 0, func(c net.Conn) {
		io.WriteString(c, "x")
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	c := w.dial()
	_, err := io.ReadFull(c, make([]byte, 1))
	must(t, err)
	w.stopB()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v; want a reset", err)
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string // in the error; empty: none
	}{
		{Rule{Listen: "127.0.0.1:6379", Peer: "b", Service: "redis"}, ""},
		{Rule{Service: "redis", Target: "/run/redis.sock"}, ""},
		{Rule{Service: "redis", Target: "unix:/run/redis.sock"}, ""},
		{Rule{Service: "redis", Target: "tcp:[::1]:6379"}, ""},
		{Rule{Listen: ":http", Peer: "b", Service: "web"}, ""},
		{Rule{Listen: ":80", Peer: "b"}, "needs a service"},
		{Rule{Listen: ":80", Service: "x"}, "needs a peer"},
		{Rule{Service: "x"}, "say listen"},
		{Rule{Service: "x", Target: ":80", Listen: ":81"}, "two rules"},
		{Rule{Service: "x", Target: ":80", Peer: "b"}, "takes no peer"},
		{Rule{Service: "x", Target: "80"}, "want HOST:PORT"},
		{Rule{Service: "x", Target: "host:nosuchport"}, "has no port"},
		{Rule{Service: "x", Target: "unix:run"}, "whole path"},
		{Rule{Service: "x", Target: ":80", Conns: -1}, "choose 1"},
	} {
		err := c.rule.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %q", c.rule, err, c.want)
		}
	}
}

// TestStaleSocket: the path of a server that died is taken over, that of one that lives is not.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	addr, err := ParseAddr(path)
	must(t, err)
	first, err := listen(t.Context(), addr)
	must(t, err)
	if _, err := listen(t.Context(), addr); err == nil {
		t.Error("took the socket of a server that lives")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	second, err := listen(t.Context(), addr)
	must(t, err)
	second.Close()
}
