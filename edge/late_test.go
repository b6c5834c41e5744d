package edge

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
)

// onBoth runs a test between two embedded transports, and between clients of two daemons.
func onBoth(t *testing.T, test func(t *testing.T, a, b *Device)) {
	t.Run("embedded", func(t *testing.T) {
		fab := NewFabric()
		t.Cleanup(func() { fab.Close() })
		a, err := fab.Open("a")
		must(t, err)
		b, err := fab.Open("b")
		must(t, err)
		test(t, a, b)
	})
	t.Run("daemons", func(t *testing.T) {
		fab := NewFabric()
		t.Cleanup(func() { fab.Close() })
		test(t, newHost(t, fab, "a", nil).open(Config{}), newHost(t, fab, "b", nil).open(Config{}))
	})
	t.Run("one daemon", func(t *testing.T) {
		fab := NewFabric()
		t.Cleanup(func() { fab.Close() })
		h := newHost(t, fab, "a", nil)
		test(t, h.open(Config{}), h.open(Config{}))
	})
}

// shareOn connects a to b, which exports size bytes, and returns what each end has of them.
func shareOn(t *testing.T, a, b *Device, size int) (*RemoteRegion, *Grant) {
	t.Helper()
	ctx := testContext(t)
	out, in := pairOn(t, ctx, a, b, fmt.Sprint("share", size))
	mem, err := b.Register(size)
	must(t, err)
	g, err := mem.Export(in, "mem", RemoteRead|RemoteWrite, 0, size)
	must(t, err)
	remote, err := out.Import(ctx, "mem")
	must(t, err)
	return remote, g
}

// A write with LocalDone is done when its bytes may change, and what was written then arrives.
func TestLocalDone(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		const most = 300_000
		remote, g := shareOn(t, a, b, 1<<20)
		local, err := a.Register(most)
		must(t, err)
		var want []byte
		for i, n := range []int{8, 1000, 64 << 10, most, 3} {
			for j := range n {
				local.Bytes()[j] = byte(i + j)
			}
			want = append(want, local.Bytes()[:n]...)
			op, err := remote.conn.Post(ctx, &Work{Kind: Write, Flags: LocalDone, Local: local, Len: n, Remote: remote,
				RemoteOff: len(want) - n})
			must(t, err)
			must(t, op.Wait(ctx))
			clear(local.Bytes()[:n])
		}
		last, err := remote.conn.Post(ctx, &Work{Kind: Write, Flags: BackwardFence, Local: local, Remote: remote})
		must(t, err)
		must(t, last.Wait(ctx))
		if !bytes.Equal(g.Bytes()[:len(want)], want) {
			t.Error("what arrived is not what was written")
		}
		if n, err := remote.conn.Late(); n != 0 || err != nil {
			t.Errorf("%d late failures: %v", n, err)
		}
		must(t, local.Close())
	})
}

// A refusal after a write was done is told by the operation and its connection, at the latest with the next fenced
// operation.
func TestLocalDoneFailsLate(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		remote, g := shareOn(t, a, b, 4096)
		kept, err := g.Region().Export(g.conn, "kept", RemoteWrite, 0, 8)
		must(t, err)
		fence, err := remote.conn.Import(ctx, kept.Name())
		must(t, err)
		must(t, g.Revoke())
		eventually(t, "the withdrawal", 10*time.Second, remote.revoked.Load)
		remote.revoked.Store(false) // as if a had not been told yet
		var ops []Op
		for range 3 {
			op, err := remote.conn.Post(ctx, &Work{Kind: Write, Flags: LocalDone, Inline: []byte("gone"),
				Remote: remote})
			must(t, err)
			ops = append(ops, op)
		}
		last, err := remote.conn.Post(ctx, &Work{Kind: Write, Flags: BackwardFence, Inline: []byte{1}, Remote: fence})
		must(t, err)
		must(t, last.Wait(ctx))
		n, first := remote.conn.Late()
		failed := 0
		for _, op := range ops {
			if err := op.Err(); err != nil {
				failed++
				if !errors.Is(err, ErrKey) {
					t.Errorf("a write failed late with %v, want ErrKey", err)
				}
			}
		}
		if n != len(ops) || failed != n || !errors.Is(first, ErrKey) {
			t.Errorf("the connection tells of %d late failures, the first %v; %d of %d writes failed", n, first, failed,
				len(ops))
		}
	})
}

// BenchmarkLocalDone uses one buffer again and again, as soon as it may: write, wait, write. Its sizes lie on both
// sides of what the transport copies (64 KiB).
func BenchmarkLocalDone(b *testing.B) {
	for _, flags := range []Flags{0, LocalDone} {
		for _, n := range []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 64<<10 + 1, 256 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("flags=%d/bytes=%d", flags, n), func(b *testing.B) { reuseBuffer(b, flags, n) })
		}
	}
}

func reuseBuffer(b *testing.B, flags Flags, n int) {
	ctx := b.Context()
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
			if r, err := y.Register(n); err == nil {
				r.Export(c, "mem", RemoteWrite, 0, n)
			}
		}
	}()
	c, err := x.Dial(ctx, "y", "s")
	must(b, err)
	remote, err := c.Import(ctx, "mem")
	must(b, err)
	local, err := x.Register(n)
	must(b, err)
	w := Work{Kind: Write, Flags: flags, Local: local, Len: n, Remote: remote}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		op, err := c.Post(ctx, &w)
		if err == nil {
			err = op.Wait(ctx)
		}
		must(b, err)
	}
	must(b, c.Close())
}
