//go:build ctest

package drive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"multiedge/edge"
	"multiedge/edge/atomics"
)

// verbs runs a role of verbs.c at a host.
func (h *host) verbs(args ...string) *run {
	h.t.Helper()
	return startProgram(h.t, "verbs", h.cfg.Socket, args...)
}

func TestVerbs(t *testing.T) {
	a, b := hosts(t)
	for _, buffers := range []string{"own", "queue", "early", "early queue"} {
		owner := b.verbs("give", "desk", buffers)
		owner.says("ready")
		if strings.HasPrefix(buffers, "early") {
			a.verbs("refused", "b", "desk").ends()
		}
		a.verbs("take", "b", "desk").ends()
		owner.ends()
	}
}

// A C client at a Go owner.
func TestVerbsToGo(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "desk")
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- give(ctx, d, l) }()
	a.verbs("take", "b", "desk").ends()
	must(t, <-done)
}

// give is what verbs.c has by that name.
func give(ctx context.Context, d *edge.Device, l *edge.Listener) error {
	const size, buffer, posted, refuse, mark = 1 << 16, 1024, 4, 99, 1<<16 - 8
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	mem, err := d.Register(size)
	if err != nil {
		return err
	}
	cq, err := d.NewCompletionQueue(64)
	if err != nil {
		return err
	}
	receive := func(i uint64) error {
		_, err := c.Post(ctx, &edge.Work{Kind: edge.Receive, Local: mem, LocalOff: int(i) * buffer, Len: buffer,
			Queue: cq, Context: i})
		return err
	}
	for i := range uint64(posted) {
		if err := receive(i); err != nil {
			return err
		}
	}
	if _, err := mem.Export(c, "plain", edge.RemoteRead, size/2, 8); err != nil {
		return err
	}
	perm := edge.RemoteRead | edge.RemoteWrite | edge.RemoteAtomic
	if _, err := mem.Export(c, "mem", perm, size/2, size/2); err != nil {
		return err
	}
	for left := posted; left > 0; {
		var got [1]edge.Completion
		if _, err := cq.Wait(ctx, got[:]); err != nil {
			return err
		}
		g := &got[0]
		switch {
		case errors.Is(g.Err, edge.ErrTooLong):
		case g.Err != nil: // the end of the connection
			left--
			continue
		default:
			w := edge.Work{Kind: edge.Send, Local: mem, LocalOff: int(g.Context) * buffer, Len: g.Len}
			if g.HasImm {
				w.Flags, w.Imm = edge.Notify, g.Imm+1
			}
			var want error
			if g.HasImm && g.Imm == refuse {
				w.Patience, want = -1, edge.ErrNoBuffer
			}
			op, err := c.Post(ctx, &w)
			if err == nil {
				err = op.Wait(ctx)
			}
			if !errors.Is(err, want) {
				return fmt.Errorf("the answer to message %d: %v", g.Imm, err)
			}
			if want != nil {
				mem.Bytes()[mark] = 1
			}
		}
		switch err := receive(g.Context); {
		case errors.Is(err, edge.ErrPeerClosed): // after the last message
			left--
		case err != nil:
			return err
		}
	}
	return nil
}

// A message that is being composed ends with its connection, and the owner sees nothing of it.
func TestComposedIsAborted(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	d := b.open()
	l, err := d.Listen(ctx, "desk")
	must(t, err)
	client := a.verbs("leaves", "b", "desk")
	c, err := l.Accept(ctx)
	must(t, err)
	if _, err := c.WaitNotify(ctx); !errors.Is(err, edge.ErrReset) {
		t.Errorf("the owner's connection ended with %v", err)
	}
	client.ends()
}

// A Go client at a C owner, whose buffers are a receive queue's.
func TestVerbsFromGo(t *testing.T) {
	a, b := hosts(t)
	ctx := context.Background()
	owner := b.verbs("give", "desk", "queue")
	owner.says("ready")
	d := a.open()
	c, err := d.Dial(ctx, "b", "desk")
	must(t, err)
	to, err := c.Import(ctx, "mem")
	must(t, err)
	for i := range uint64(10) {
		if was, err := atomics.Add(ctx, to, 8, 3); err != nil || was != 3*i {
			t.Fatalf("FetchAdd %d: %d, %v", i, was, err)
		}
	}
	mem, err := d.Register(4096)
	must(t, err)
	cq, err := d.NewCompletionQueue(8)
	must(t, err)
	copy(mem.Bytes(), "a message to a program in C")
	for i := range uint32(10) {
		_, err = c.Post(ctx, &edge.Work{Kind: edge.Receive, Local: mem, LocalOff: 1024, Len: 1024, Queue: cq})
		must(t, err)
		op, err := c.Post(ctx, &edge.Work{Kind: edge.Send, Local: mem, Len: 27, Flags: edge.Notify, Imm: i})
		must(t, err)
		must(t, op.Wait(ctx))
		var got [1]edge.Completion
		_, err = cq.Wait(ctx, got[:])
		must(t, err)
		if got[0].Err != nil || got[0].Imm != i+1 || !bytes.Equal(mem.Bytes()[1024:][:got[0].Len], mem.Bytes()[:27]) {
			t.Fatalf("the answer is %+v", got[0])
		}
	}
	must(t, c.Close())
	owner.ends()
}

// A listener looks at data before it accepts: who is not wanted learns that it was refused.
func TestStreamsByRequest(t *testing.T) {
	a, b := hosts(t)
	server := b.verbs("choose", "door")
	server.says("ready")
	a.verbs("chosen", "b", "door").ends()
	server.ends()
}

// With a daemon that has no feature, what needs one says so.
func TestOlderDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.AcceptUnix(); err == nil {
			(&rogue{t: t, conn: c}).serve()
		}
	}()
	startProgram(t, "verbs", path, "older").says("well")
}

func TestDeviceIsDrained(t *testing.T) {
	a, _ := hosts(t)
	startProgram(t, "verbs", a.cfg.Socket, "drains", "drained").ends()
}
