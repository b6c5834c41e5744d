package edge

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
)

// What is committed is at the peer, the newest version of it, in the order of commits; what is aborted never is.
func TestCompose(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		const size, n, rounds = 1 << 18, 5000, 40
		remote, g := shareOn(t, a, b, size)
		c := remote.conn
		local, err := a.Register(size)
		must(t, err)
		want := make([]byte, size)
		var ops []Op
		aborted := map[int]bool{}
		for i := range rounds {
			at := i * n
			mem := local.Bytes()[at : at+n]
			w := Work{Kind: Write, Local: local, LocalOff: at, Len: n, Remote: remote, RemoteOff: at}
			var m Message
			must(t, untilTaken(func() (err error) { m, err = c.Compose(&w); return err }))
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
				if err := untilTaken(m.Abort); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrAborted) {
					t.Errorf("aborted twice: %v", err)
				}
			} else {
				copy(want[at:], mem)
				var op Op
				must(t, untilTaken(func() (err error) { op, err = m.Commit(n, BackwardFence, 0); return err }))
				err := untilTaken(func() error { _, err := m.Commit(n, 0, 0); return err })
				if !errors.Is(err, ErrInvalid) {
					t.Errorf("committed twice: %v", err)
				}
				if op != m.Op() {
					t.Error("the operation is another one")
				}
			}
			ops = append(ops, m.Op())
		}
		for i, op := range ops {
			if err := op.Wait(ctx); aborted[i] != errors.Is(err, ErrAborted) || err != nil && !aborted[i] {
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
		if err := say(); err != ErrAgain {
			return err
		}
		runtime.Gosched()
	}
}

// Composed sends take buffers in the order of commits, with their immediates, and are told in completion queues.
func TestComposeSends(t *testing.T) {
	p := newMessagePair(t, Config{})
	ctx := testContext(t)
	var ms []Message
	for i := range 4 {
		_, err := p.conn[1].Post(&Work{Kind: Receive, Local: p.mem[1], LocalOff: i * 256, Len: 256, Queue: p.cq[1],
			Context: uint64(i)})
		must(t, err)
		m, err := p.conn[0].Compose(&Work{Kind: Send, Local: p.mem[0], LocalOff: i * 256, Len: 256, Queue: p.cq[0],
			Context: uint64(i)})
		must(t, err)
		ms = append(ms, m)
		copy(p.mem[0].Bytes()[i*256:], fmt.Sprintf("message %d", i))
		must(t, m.Wrote(0, 256))
	}
	must(t, ms[2].Abort())
	for _, i := range []int{3, 0, 1} {
		_, err := ms[i].Commit(9, Notify, uint32(i))
		must(t, err)
	}
	for k, i := range []uint32{3, 0, 1} {
		var got [1]Completion
		_, err := p.cq[1].Wait(ctx, got[:])
		must(t, err)
		text, want := string(p.mem[1].Bytes()[k*256:][:got[0].Len]), fmt.Sprint("message ", i)
		if d := &got[0]; d.Err != nil || d.Context != uint64(k) || d.Imm != i || text != want {
			t.Errorf("message %d: %+v with %q", i, *d, text)
		}
	}
	ended := map[uint64]error{}
	for len(ended) < 4 {
		var got [4]Completion
		n, err := p.cq[0].Wait(ctx, got[:])
		must(t, err)
		for _, d := range got[:n] {
			if ended[d.Context] = d.Err; d.Kind != Send {
				t.Errorf("completion %+v", d)
			}
		}
	}
	if ended[0] != nil || ended[1] != nil || !errors.Is(ended[2], ErrAborted) || ended[3] != nil {
		t.Errorf("sends ended with %v", ended)
	}
}

func TestComposeRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, a, b *Device) {
		ctx := testContext(t)
		remote, _ := shareOn(t, a, b, 4096)
		c := remote.conn
		mem, err := a.Register(MaxEager + 4096)
		must(t, err)
		good := Work{Kind: Write, Local: mem, Len: 4096, Remote: remote}
		for what, x := range map[string]struct {
			change func(w *Work)
			want   error
		}{
			"a read":             {func(w *Work) { w.Kind = Read }, ErrInvalid},
			"flags":              {func(w *Work) { w.Flags = Notify }, ErrInvalid},
			"no memory":          {func(w *Work) { w.Local = nil }, ErrInvalid},
			"nothing":            {func(w *Work) { w.Len = 0 }, ErrTooLong},
			"too long":           {func(w *Work) { w.Len = MaxEager + 1 }, ErrTooLong},
			"outside":            {func(w *Work) { w.LocalOff = MaxEager + 1 }, ErrBounds},
			"outside the export": {func(w *Work) { w.RemoteOff = 1 }, ErrBounds},
		} {
			w := good
			x.change(&w)
			if _, err := c.Compose(&w); !errors.Is(err, x.want) {
				t.Errorf("%s: %v, want %v", what, err, x.want)
			}
		}
		var ms []Message
		for range 17 {
			m, err := c.Compose(&good)
			must(t, err)
			ms = append(ms, m)
		}
		if err := ms[16].Op().Wait(ctx); !errors.Is(err, ErrLimit) {
			t.Errorf("the 17th message: %v, want ErrLimit", err)
		}
		if err := mem.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing the memory of messages: %v", err)
		}
		if err := ms[0].Wrote(4090, 7); !errors.Is(err, ErrBounds) {
			t.Errorf("marking beyond the end: %v", err)
		}
		if _, err := ms[0].Commit(4097, 0, 0); !errors.Is(err, ErrBounds) {
			t.Errorf("committing too much: %v", err)
		}
		if _, err := ms[0].Commit(4096, LocalDone, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("committing with LocalDone: %v", err)
		}
		if err := (Message{}).Wrote(0, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("marking no message: %v", err)
		}
		must(t, c.Abort())
		for _, m := range ms[:16] {
			if err := m.Op().Wait(ctx); !errors.Is(err, ErrAborted) {
				t.Errorf("a message of an aborted connection: %v", err)
			}
			if err := m.Wrote(0, 1); !errors.Is(err, ErrAborted) {
				t.Errorf("marking it: %v", err)
			}
		}
		must(t, mem.Close())
	})
}
