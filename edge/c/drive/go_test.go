//go:build ctest

package drive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"testing"

	"multiedge/edge"
	"multiedge/edge/stream"
)

// C streams at a Go server, which echoes.
func TestStreamsToGo(t *testing.T) {
	a, b := hosts(t)
	echo(t, b)
	a.run("streams", "b", "echo", "4", "3000001").ends()
	a.run("polled", "b", "echo").ends()
}

// Where a limit forbids the long buffers of a device's first streams they have shorter ones.
func TestStreamsWithinALimit(t *testing.T) {
	a, b := hosts(t)
	a.stop()
	a.cfg.Limits.Pinned = 3 << 20 // two streams with buffers of 512 KiB, and the device's queues
	a.start()
	echo(t, b)
	a.run("streams", "b", "echo", "2", "3000001").ends()
}

// echo has a host echo what streams bring.
func echo(t *testing.T, at *host) {
	l, err := stream.Config{Device: at.open()}.Listen(context.Background(), "echo")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.(*stream.Conn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}()
		}
	}()
}

// A short write to a stream is done once the daemon has copied it. When the peer refuses it after that the stream ends
// and says why.
func TestStreamIsRefusedLate(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "s")
	must(t, err)
	client := a.run("refused", "b", "s")
	r, err := l.Next(ctx)
	must(t, err)
	c, err := r.Accept(ctx, []byte("stream/1"))
	must(t, err)
	m, err := d.Register(8192)
	must(t, err)
	g, err := m.Export(c, "stream", edge.RemoteWrite, 0, 4096)
	must(t, err)
	client.says("ready") // it has written a byte
	must(t, g.Revoke())
	io.WriteString(client.in, "\n")
	client.ends()
}

// Go streams at a C server.
func TestStreamsFromGo(t *testing.T) {
	a, b := hosts(t)
	server := b.run("echo", "echo", "3")
	server.says("ready")
	d := a.open()
	want := make([]byte, 2_000_003)
	rand.New(rand.NewSource(1)).Read(want)
	for range 3 {
		s, err := stream.Config{Device: d}.Dial(context.Background(), "b", "echo")
		must(t, err)
		go func() {
			s.Write(want)
			s.CloseWrite()
		}()
		got, err := io.ReadAll(s)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Fatal("what came back is not what was sent")
		}
		must(t, s.Close())
	}
	server.ends()
}

// A C client at a Go owner of memory.
func TestOperationsToGo(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "store")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, d, l) }()
	a.run("use", "b", "store").ends()
	must(t, <-served)
}

// serve is what peer.c has by that name.
func serve(ctx context.Context, d *edge.Device, l *edge.Listener) error {
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	r, err := d.Register(1 << 20)
	if err != nil {
		return err
	}
	if _, err = r.Export(c, "mem", edge.RemoteRead|edge.RemoteWrite, 0, r.Len()); err != nil {
		return err
	}
	if _, err = r.Export(c, "readable", edge.RemoteRead, 4096, 4096); err != nil {
		return err
	}
	back, err := c.Import(ctx, "back")
	if err != nil {
		return err
	}
	for {
		n, err := c.WaitNotify(ctx)
		if errors.Is(err, edge.ErrPeerClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		var answer [4]byte
		binary.LittleEndian.PutUint32(answer[:], n.Imm+1)
		if _, err := c.Post(ctx, &edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: n.Imm + 1, Inline: answer[:],
			Remote: back}); err != nil {
			return err
		}
	}
}

// A Go client at a C owner of memory.
func TestOperationsFromGo(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	server := b.run("serve", "store")
	server.says("ready")
	d := a.open()
	c, err := d.Dial(ctx, "b", "store", edge.Data([]byte("hello")))
	must(t, err)
	r, err := d.Register(8)
	must(t, err)
	_, err = r.Export(c, "back", edge.RemoteWrite, 0, 8)
	must(t, err)
	mem, err := c.Import(ctx, "mem")
	must(t, err)
	want := bytes.Repeat([]byte("contents"), 100_000)
	_, err = mem.WriteAt(want, 8)
	must(t, err)
	got := make([]byte, len(want))
	_, err = mem.ReadAt(got, 8)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("what is read is not what was written")
	}
	for i := range uint32(600) {
		w := edge.Work{Kind: edge.Write, Flags: edge.Notify, Imm: i, Inline: []byte("x"), Remote: mem}
		_, err := c.Post(ctx, &w)
		must(t, err)
		n, err := c.WaitNotify(ctx)
		must(t, err)
		if n.Imm != i+1 || binary.LittleEndian.Uint32(r.Bytes()) != i+1 {
			t.Fatalf("notification %d of %d, with %x", n.Imm, i+1, r.Bytes()[:4])
		}
	}
	must(t, c.Close())
	server.ends()
}

// The daemon of a C program is restarted: its service comes back, its memory is renewed in place.
func TestRestart(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "work")
	must(t, err)
	go l.Accept(ctx)
	client := a.run("restart", "b", "work")
	client.says("ready")
	a.stop()
	client.says("lost")
	a.start()
	var c *edge.Conn
	for c == nil { // until the program has attached and offered its service again
		if c, err = d.Dial(ctx, "a", "kept"); err != nil && !errors.Is(err, edge.ErrNoService) &&
			!errors.Is(err, edge.ErrPeerDown) && !errors.Is(err, edge.ErrPeerUnknown) {
			t.Fatal(err)
		}
	}
	mem, err := c.Import(ctx, "mem")
	must(t, err)
	_, err = mem.ReadAt(make([]byte, mem.Size()), 0)
	must(t, err)
	must(t, c.Close())
	client.ends()
}

// Killed peers reset streams.
func TestKilledPeer(t *testing.T) {
	a, b := hosts(t)
	server := b.run("echo", "echo", "2")
	server.says("ready")
	client := a.run("killed", "b", "echo")
	client.says("ready")
	must(t, server.cmd.Process.Kill())
	client.ends()
}
