package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// pairOn connects two devices of a fabric and returns both ends.
func pairOn(t *testing.T, ctx context.Context, from, to *Device, service string, opts ...DialOption) (out, in *Conn) {
	t.Helper()
	l, err := to.Listen(ctx, service)
	must(t, err)
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = l.Accept(ctx)
		accepted <- err
	}()
	out, err = from.Dial(ctx, to.Name(), service, opts...)
	must(t, err)
	must(t, <-accepted)
	must(t, l.Close())
	return out, in
}

// A dial that ends by its context's deadline says what was wrong: the daemon's answer comes before the deadline.
func TestDialSaysWhyInTime(t *testing.T) {
	fab := NewFabric()
	defer fab.Close()
	dev, err := fab.Open("a")
	must(t, err)
	ctx, cancel := context.WithTimeout(testContext(t), 2*time.Second)
	defer cancel()
	if _, err := dev.Dial(ctx, "nobody", "x"); !errors.Is(err, ErrPeerUnknown) {
		t.Error(err)
	}
}

// The whole transport: three nodes, several connections at once, every byte compared.
func TestFabricAllToAll(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	const nodes, size = 3, 300_001
	devs := make([]*Device, nodes)
	for i := range devs {
		var err error
		devs[i], err = fab.Open(fmt.Sprintf("n%d", i))
		must(t, err)
	}
	var wg sync.WaitGroup
	for i := range nodes {
		for j := range nodes {
			if i == j {
				continue
			}
			out, in := pairOn(t, ctx, devs[i], devs[j], fmt.Sprintf("from%d", i), Data([]byte{byte(i)}))
			if !bytes.Equal(in.Data(), []byte{byte(i)}) || in.Peer() != devs[i].Name() || out.Peer() != devs[j].Name() {
				t.Errorf("connection from %q to %q with data %v", in.Peer(), out.Peer(), in.Data())
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := exchange(ctx, out, in, size, byte(i*nodes+j)); err != nil {
					t.Errorf("%d to %d: %v", i, j, err)
				}
			}()
		}
	}
	wg.Wait()
	body, err := devs[0].status(ctx, "status")
	if err != nil || !json.Valid(body) {
		t.Errorf("status %q: %v", body, err)
	}
}

func exchange(ctx context.Context, out, in *Conn, size int, seed byte) error {
	r, err := in.Device().Register(size)
	if err != nil {
		return err
	}
	if _, err := r.Export(in, "mem", RemoteRead|RemoteWrite, 0, size); err != nil {
		return err
	}
	remote, err := out.Import(ctx, "mem")
	if err != nil {
		return err
	}
	p, q := make([]byte, size), make([]byte, size)
	for i := range p {
		p[i] = byte(i>>8) + byte(i)*seed
	}
	if _, err := remote.WriteAtContext(ctx, p, 0); err != nil {
		return err
	}
	if !bytes.Equal(r.Bytes(), p) {
		return errors.New("written bytes differ")
	}
	if _, err := remote.ReadAtContext(ctx, q, 0); err != nil {
		return err
	}
	if !bytes.Equal(p, q) {
		return errors.New("read bytes differ")
	}
	const notes = 700 // more than the credit
	received := make(chan struct{})
	go func() {
		for i := range uint32(notes) {
			if _, err := out.Post(ctx, &Work{Kind: Write, Inline: []byte{seed}, Remote: remote,
				Flags: Notify | BackwardFence, Imm: i}); err != nil {
				return // the count below tells
			}
		}
		<-received
		out.Close()
	}()
	for i := range uint32(notes) {
		n, err := in.WaitNotify(ctx)
		if err != nil || n.Imm != i || n.Len != 1 {
			return fmt.Errorf("notification %d: %+v, %w", i, n, err)
		}
	}
	close(received)
	if _, err := in.WaitNotify(ctx); !errors.Is(err, ErrPeerClosed) {
		return fmt.Errorf("after the last notification: %v", err)
	}
	if err := in.Close(); err != nil {
		return err
	}
	return r.Close()
}

// What was notified before an orderly close is delivered, however late its owner reads.
func TestFabricNotificationsSurviveClose(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	a, err := fab.Open("a")
	must(t, err)
	b, err := fab.Open("b")
	must(t, err)
	out, in := pairOn(t, ctx, a, b, "s")
	r, err := b.Register(4096)
	must(t, err)
	_, err = r.Export(in, "mem", RemoteWrite, 0, 4096)
	must(t, err)
	remote, err := out.Import(ctx, "mem")
	must(t, err)
	const notes = 700 // more than the daemon may hand over at once
	for i := range uint32(notes) {
		_, err := out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: remote, Flags: Notify | BackwardFence,
			Imm: i})
		must(t, err)
	}
	must(t, out.Close())
	for i := range uint32(notes) {
		if n, err := in.WaitNotify(ctx); err != nil || n.Imm != i {
			t.Fatalf("notification %d: %+v, %v", i, n, err)
		}
	}
	if _, err := in.WaitNotify(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("after the last: %v", err)
	}
}

func TestFabricErrors(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	defer fab.Close()
	a, err := fab.Open("a")
	must(t, err)
	b, err := fab.Open("b")
	must(t, err)
	if _, err := a.Dial(ctx, "b", "nothing"); !errors.Is(err, ErrNoService) {
		t.Errorf("no service: %v", err)
	}
	out, in := pairOn(t, ctx, a, b, "s")
	r, err := b.Register(4096)
	must(t, err)
	g, err := r.Export(in, "mem", RemoteWrite, 0, 100)
	must(t, err)
	remote, err := out.Import(ctx, "mem")
	must(t, err)
	_, err = remote.WriteAt([]byte("x"), 99)
	must(t, err)
	forged := &RemoteRegion{conn: out, key: remote.key ^ 1, size: 100, perm: RemoteWrite}
	if _, err := forged.WriteAt([]byte("x"), 0); !errors.Is(err, ErrKey) {
		t.Errorf("forged key: %v", err)
	}
	beyond := &RemoteRegion{conn: out, key: remote.key, size: 200, perm: RemoteWrite | RemoteRead}
	if _, err := beyond.WriteAt([]byte("x"), 100); !errors.Is(err, ErrBounds) {
		t.Errorf("past the export: %v", err)
	}
	if _, err := beyond.ReadAt([]byte("x"), 0); !errors.Is(err, ErrPermission) {
		t.Errorf("read of write-only memory: %v", err)
	}
	must(t, g.Revoke())
	if _, err := remote.WriteAt([]byte("x"), 0); !errors.Is(err, ErrKey) {
		t.Errorf("after revocation: %v", err)
	}
	must(t, b.Close())
	if _, err := out.WaitNotify(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the peer's device closed: %v", err)
	}
	must(t, a.Close())
	if _, err := out.Post(ctx, &Work{}); !errors.Is(err, net.ErrClosed) && !errors.Is(err, ErrReset) &&
		!errors.Is(err, ErrPeerDown) {
		t.Errorf("post after everything: %v", err)
	}
}

// BenchmarkFabricWrite is a write and its completion through two embedded transports.
func BenchmarkFabricWrite(b *testing.B) {
	ctx := context.Background()
	fab := NewFabric()
	defer fab.Close()
	x, err := fab.Open("x")
	must(b, err)
	y, err := fab.Open("y")
	must(b, err)
	l, err := y.Listen(ctx, "s")
	must(b, err)
	go func() {
		if c, err := l.Accept(ctx); err == nil {
			if r, err := y.Register(4096); err == nil {
				r.Export(c, "mem", RemoteWrite, 0, 4096)
			}
		}
	}()
	c, err := x.Dial(ctx, "y", "s")
	must(b, err)
	remote, err := c.Import(ctx, "mem")
	must(b, err)
	w := Work{Kind: Write, Inline: []byte("12345678"), Remote: remote}
	b.ReportAllocs()
	for b.Loop() {
		op, err := c.Post(ctx, &w)
		if err == nil {
			err = op.Wait(ctx)
		}
		must(b, err)
	}
}
