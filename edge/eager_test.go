package edge_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"multiedge/edge"
	"multiedge/edge/compose"
)

// What is committed is at the peer, the newest version of it, in the order of commits; what is aborted never is.
func TestCompose(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		const size, n, rounds = 1 << 18, 5000, 40
		remote, g := edge.ShareOn(t, a, b, size)
		c := remote.Conn()
		local, err := a.Register(size)
		must(t, err)
		want := make([]byte, size)
		var ops []edge.Op
		aborted := map[int]bool{}
		for i := range rounds {
			at := i * n
			mem := local.Bytes()[at : at+n]
			w := edge.Work{Kind: edge.Write, Local: local, LocalOff: at, Len: n, Remote: remote, RemoteOff: at}
			var m compose.Message
			must(t, untilTaken(func() (err error) { m, err = compose.Begin(c, &w); return err }))
			for step := range 40 {
				lo := step * 997 % (n - 200)
				for k := range mem[lo : lo+200] {
					mem[lo+k] = byte(i + step)
				}
				must(t, untilTaken(func() error { return m.Wrote(lo, 200) }))
			}
			if i%4 == 3 {
				aborted[i] = true
				must(t, untilTaken(m.Abort))
				if err := untilTaken(m.Abort); !errors.Is(err, edge.ErrInvalid) && !errors.Is(err, edge.ErrAborted) {
					t.Errorf("aborted twice: %v", err)
				}
			} else {
				copy(want[at:], mem)
				var op edge.Op
				must(t, untilTaken(func() (err error) { op, err = m.Commit(n, edge.BackwardFence, 0); return err }))
				err := untilTaken(func() error { _, err := m.Commit(n, 0, 0); return err })
				if !errors.Is(err, edge.ErrInvalid) {
					t.Errorf("committed twice: %v", err)
				}
				if op != m.Op() {
					t.Error("the operation is another one")
				}
			}
			ops = append(ops, m.Op())
		}
		for i, op := range ops {
			if err := op.Wait(ctx); aborted[i] != errors.Is(err, edge.ErrAborted) || err != nil && !aborted[i] {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if !bytes.Equal(g.Bytes(), want) {
			t.Error("the memory is not what was composed")
		}
		must(t, local.Close()) // nothing uses it
	})
}

// untilTaken says something again while the queue is full.
func untilTaken(say func() error) error {
	for {
		if err := say(); err != edge.ErrAgain {
			return err
		}
		runtime.Gosched()
	}
}

// Composed sends take buffers in the order of commits, with their immediates, and are told in completion queues.
func TestComposeSends(t *testing.T) {
	p := newMessages(t)
	ctx := testContext(t)
	var ms []compose.Message
	for i := range 4 {
		_, err := p.conn[1].Post(ctx, &edge.Work{Kind: edge.Receive, Local: p.mem[1], LocalOff: i * 256, Len: 256,
			Queue:   p.cq[1],
			Context: uint64(i)})
		must(t, err)
		m, err := compose.Begin(p.conn[0], &edge.Work{Kind: edge.Send, Local: p.mem[0], LocalOff: i * 256, Len: 256,
			Queue:   p.cq[0],
			Context: uint64(i)})
		must(t, err)
		ms = append(ms, m)
		copy(p.mem[0].Bytes()[i*256:], fmt.Sprintf("message %d", i))
		must(t, m.Wrote(0, 256))
	}
	must(t, ms[2].Abort())
	for _, i := range []int{3, 0, 1} {
		_, err := ms[i].Commit(9, edge.Notify, uint32(i))
		must(t, err)
	}
	for k, i := range []uint32{3, 0, 1} {
		var got [1]edge.Completion
		_, err := p.cq[1].Wait(ctx, got[:])
		must(t, err)
		text, want := string(p.mem[1].Bytes()[k*256:][:got[0].Len]), fmt.Sprint("message ", i)
		if d := &got[0]; d.Err != nil || d.Context != uint64(k) || d.Imm != i || text != want {
			t.Errorf("message %d: %+v with %q", i, *d, text)
		}
	}
	ended := map[uint64]error{}
	for len(ended) < 4 {
		var got [4]edge.Completion
		n, err := p.cq[0].Wait(ctx, got[:])
		must(t, err)
		for _, d := range got[:n] {
			if ended[d.Context] = d.Err; d.Kind != edge.Send {
				t.Errorf("completion %+v", d)
			}
		}
	}
	if ended[0] != nil || ended[1] != nil || !errors.Is(ended[2], edge.ErrAborted) || ended[3] != nil {
		t.Errorf("sends ended with %v", ended)
	}
}

func TestComposeRefused(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		remote, _ := edge.ShareOn(t, a, b, 4096)
		c := remote.Conn()
		mem, err := a.Register(compose.MaxSize + 4096)
		must(t, err)
		good := edge.Work{Kind: edge.Write, Local: mem, Len: 4096, Remote: remote}
		for what, x := range map[string]struct {
			change func(w *edge.Work)
			want   error
		}{
			"a read":             {func(w *edge.Work) { w.Kind = edge.Read }, edge.ErrInvalid},
			"flags":              {func(w *edge.Work) { w.Flags = edge.Notify }, edge.ErrInvalid},
			"no memory":          {func(w *edge.Work) { w.Local = nil }, edge.ErrInvalid},
			"nothing":            {func(w *edge.Work) { w.Len = 0 }, edge.ErrTooLong},
			"too long":           {func(w *edge.Work) { w.Len = compose.MaxSize + 1 }, edge.ErrTooLong},
			"outside":            {func(w *edge.Work) { w.LocalOff = compose.MaxSize + 1 }, edge.ErrBounds},
			"outside the export": {func(w *edge.Work) { w.RemoteOff = 1 }, edge.ErrBounds},
		} {
			w := good
			x.change(&w)
			if _, err := compose.Begin(c, &w); !errors.Is(err, x.want) {
				t.Errorf("%s: %v, want %v", what, err, x.want)
			}
		}
		var ms []compose.Message
		for range 17 {
			m, err := compose.Begin(c, &good)
			must(t, err)
			ms = append(ms, m)
		}
		if err := ms[16].Op().Wait(ctx); !errors.Is(err, edge.ErrLimit) {
			t.Errorf("the 17th message: %v, want ErrLimit", err)
		}
		if err := mem.Close(); !errors.Is(err, edge.ErrBusy) {
			t.Errorf("closing the memory of messages: %v", err)
		}
		if err := ms[0].Wrote(4090, 7); !errors.Is(err, edge.ErrBounds) {
			t.Errorf("marking beyond the end: %v", err)
		}
		if _, err := ms[0].Commit(4097, 0, 0); !errors.Is(err, edge.ErrBounds) {
			t.Errorf("committing too much: %v", err)
		}
		if _, err := ms[0].Commit(4096, edge.LocalDone, 0); !errors.Is(err, edge.ErrInvalid) {
			t.Errorf("committing with LocalDone: %v", err)
		}
		if err := (compose.Message{}).Wrote(0, 0); !errors.Is(err, edge.ErrInvalid) {
			t.Errorf("marking no message: %v", err)
		}
		must(t, c.Abort())
		for _, m := range ms[:16] {
			if err := m.Op().Wait(ctx); !errors.Is(err, edge.ErrAborted) {
				t.Errorf("a message of an aborted connection: %v", err)
			}
			if err := m.Wrote(0, 1); !errors.Is(err, edge.ErrAborted) {
				t.Errorf("marking it: %v", err)
			}
		}
		must(t, mem.Close())
	})
}
