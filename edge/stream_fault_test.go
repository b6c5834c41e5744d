package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// stuckCalls starts a Read and a Write that cannot end by themselves, and returns what ends them.
func stuckCalls(s *Stream) (read, written chan error) {
	read, written = make(chan error, 1), make(chan error, 1)
	go func() { read <- readUntilError(s) }()
	go func() { written <- writeUntilError(s) }()
	return read, written
}

// readUntilError returns nil at the end of the stream.
func readUntilError(s *Stream) error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// Whatever ends a stream ends the calls under way with an error that says so, and never looks like the end of its
// bytes.
func TestStreamIsCutOff(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cut     func(n *streamNet, out, in *Stream)
		is, not error
	}{
		{"the peer aborts", func(n *streamNet, _, in *Stream) { in.c.Abort() }, syscall.ECONNRESET, net.ErrClosed},
		{"we abort", func(n *streamNet, out, _ *Stream) { out.cut(ErrLimit) }, ErrLimit, ErrReset},
		{"our device closes", func(n *streamNet, _, _ *Stream) { n.a.Close() }, net.ErrClosed, ErrReset},
		{"we close", func(n *streamNet, out, _ *Stream) { out.Close() }, net.ErrClosed, ErrReset},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newStreamNet(t, StreamConfig{})
			out, in := n.mustPair(t)
			read, written := stuckCalls(out)
			_, err := io.ReadFull(in, make([]byte, 100_000))
			must(t, err)
			tc.cut(n, out, in)
			for _, err := range []error{<-read, <-written} {
				var op *net.OpError
				if !errors.As(err, &op) || !errors.Is(err, tc.is) || errors.Is(err, tc.not) || errors.Is(err, io.EOF) ||
					op.Timeout() {
					t.Errorf("error %v, want %v", err, tc.is)
				}
			}
			out.Close()
			in.linger = time.Millisecond // a peer whose device closed answers no more
			in.Close()
		})
	}
}

func TestStreamPeerGoes(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	out, in := n.mustPair(t)
	read, written := stuckCalls(out)
	_, err := io.ReadFull(in, make([]byte, 100_000))
	must(t, err)
	must(t, in.Close()) // in the middle of what out writes
	if err := <-written; !errors.Is(err, ErrReset) {
		t.Errorf("write to a stream that the peer closed: %v", err)
	}
	must(t, <-read) // the peer said that nothing follows
	must(t, out.Close())

	out, in = n.mustPair(t)
	read, written = stuckCalls(out)
	_, err = io.ReadFull(in, make([]byte, 100_000))
	must(t, err)
	must(t, n.b.Close())
	for _, err := range []error{<-read, <-written} {
		if !errors.Is(err, ErrPeerDown) && !errors.Is(err, ErrReset) {
			t.Errorf("the peer's device closed: %v", err)
		}
	}
	must(t, out.Close())
	if _, err := n.l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept on a closed device: %v", err)
	}
	if err := second(in.Read(make([]byte, 1))); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read on a closed device: %v", err)
	}
	must(t, in.Close())
}

// Streams are for streams.
func TestStreamListenersTakeStreams(t *testing.T) {
	ctx := testContext(t)
	n := newStreamNet(t, StreamConfig{})
	plain, err := n.b.Listen(ctx, "plain")
	must(t, err)
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := plain.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if _, err := n.a.DialStream(ctx, "b", "plain"); !errors.Is(err, ErrStream) {
		t.Errorf("a stream to a service of connections: %v", err)
	}
	<-accepted
	if _, err := n.a.DialStream(ctx, "b", "s", Data(make([]byte, 505))); !errors.Is(err, ErrInvalid) {
		t.Errorf("too much data: %v", err)
	}
	refused := make(chan error, 1)
	go func() { refused <- func() error { _, err := n.a.Dial(ctx, "b", "s"); return err }() }()
	ending, cancel := context.WithCancel(ctx)
	acceptEnds := make(chan error, 1)
	go func() { _, err := n.l.AcceptStream(ending); acceptEnds <- err }()
	if err := <-refused; !errors.Is(err, ErrRefused) {
		t.Errorf("a connection to a service of streams: %v", err)
	}
	cancel()
	if err := <-acceptEnds; !errors.Is(err, context.Canceled) {
		t.Errorf("accept: %v", err)
	}
	must(t, n.l.Close())
	if _, err := n.l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after Close: %v", err)
	}
	for _, size := range []int{1, 4095, 5000, 1 << 30} {
		if _, err := NewFabric().OpenConfig(ctx, "c", Config{Stream: StreamConfig{SendBuffer: size}}); !errors.Is(err,
			ErrInvalid) {
			t.Errorf("a buffer of %d bytes: %v", size, err)
		}
	}
}

// Where memory is short, streams are refused one by one and the others live on.
func TestStreamWithoutMemory(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	ha := newHost(t, fab, "a", nil)
	// and what a client is charged for its queues
	hb := newHost(t, fab, "b", func(c *config.Config) { c.Limits.Pinned = 3*DefaultStreamBuffer + 384<<10 })
	n := &streamNet{a: ha.open(Config{}), b: hb.open(Config{})}
	var err error
	n.l, err = n.b.ListenStream(ctx, "s")
	must(t, err)
	out, in := n.mustPair(t) // 2 buffers
	next := make(chan *Stream, 1)
	go func() {
		s, err := n.l.AcceptStream(ctx)
		if err != nil {
			t.Error(err)
		}
		next <- s
	}()
	if _, err := n.a.DialStream(ctx, "b", "s"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
		"memory for a stream") {
		t.Errorf("no memory at the peer: %v", err)
	}
	if _, err := n.b.DialStream(ctx, "a", "s"); !errors.Is(err, ErrMemlock) && !errors.Is(err, ErrLimit) {
		t.Errorf("no memory here: %v", err)
	}
	must(t, sendAndCompare(out, in, 1, 100_000))
	must(t, out.Close())
	must(t, in.Close())
	out, err = n.a.DialStream(ctx, "b", "s")
	must(t, err)
	in = <-next
	must(t, sendAndCompare(out, in, 2, 100_000))
	must(t, out.Close())
	must(t, in.Close())
}

// rogue is a peer that speaks the rules of streams only as far as the test says.
type rogue struct {
	c    *Conn
	mem  *Region
	ring *RemoteRegion
	in   *Stream // the honest end
}

func (n *streamNet) rogue(t *testing.T, ringSize int) *rogue {
	ctx := testContext(t)
	accepted := make(chan *Stream, 1)
	go func() {
		s, err := n.l.AcceptStream(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	}()
	c, err := n.a.Dial(ctx, "b", "s", Data([]byte(streamHello)))
	must(t, err)
	r := &rogue{c: c, in: <-accepted}
	r.mem, err = n.a.Register(1 << 20)
	must(t, err)
	if ringSize > 0 {
		_, err = r.mem.Export(c, streamRing, RemoteWrite, 0, ringSize)
		must(t, err)
	}
	r.ring, err = c.Import(ctx, streamRing)
	must(t, err)
	return r
}

func (r *rogue) end(t *testing.T) {
	r.c.Close()
	must(t, r.in.Close())
	must(t, r.mem.Close())
}

// say writes n bytes and a notification.
func (r *rogue) say(t *testing.T, imm uint32, n int) {
	_, err := r.c.Post(&Work{Kind: Write, Flags: Notify | BackwardFence, Imm: imm, Local: r.mem, Len: n,
		Remote: r.ring})
	must(t, err)
}

func TestStreamPeerTalksNonsense(t *testing.T) {
	n := newStreamNet(t, StreamConfig{ReceiveBuffer: 1 << 16})
	type note struct {
		imm uint32
		n   int
	}
	for name, notes := range map[string][]note{
		"a piece at the wrong place":     {{immData | 1, 10}},
		"a piece twice":                  {{immData, 10}, {immData, 10}},
		"an empty piece":                 {{immData, 0}},
		"more than the ring":             {{immData, 1 << 16}, {immData | 1<<16, 1}},
		"credit for nothing":             {{immCredit, 0}},
		"credit for what was not sent":   {{immCredit | 6, 0}},
		"credit without end":             {{immCredit | immCount, 0}},
		"an end before the last piece":   {{immData, 10}, {immFin | 9, 0}},
		"two ends":                       {{immFin, 0}, {immFin, 0}},
		"a piece after the end":          {{immFin, 0}, {immData, 10}},
		"a notification of no kind":      {{immKind, 0}},
		"credit twice for the same five": {{immCredit | 5, 0}, {immCredit | 5, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.rogue(t, minStreamBuffer)
			_, err := r.in.Write([]byte("hello"))
			must(t, err)
			for _, nt := range notes {
				r.say(t, nt.imm, nt.n)
			}
			if strings.HasPrefix(name, "credit") { // which writing would make good
				if err := readUntilError(r.in); !errors.Is(err, ErrStream) {
					t.Errorf("read: %v", err)
				}
			}
			if err := writeUntilError(r.in); !errors.Is(err, ErrStream) {
				t.Errorf("write: %v", err)
			}
			// what came before an end is read
			if err := readUntilError(r.in); err != nil && !errors.Is(err, ErrStream) {
				t.Errorf("read: %v", err)
			}
			if _, err := r.c.WaitNotify(testContext(t)); err != nil { // "hello"
				t.Error(err)
			}
			r.end(t)
		})
	}
	for _, size := range []int{1, 5000, 1 << 11} {
		r := n.rogue(t, size)
		if err := writeUntilError(r.in); !errors.Is(err, ErrStream) {
			t.Errorf("a ring of %d bytes: %v", size, err)
		}
		r.end(t)
	}
}

// A peer that never exports its ring holds up its own writer, until the deadline, and Close for the time it lingers.
func TestStreamPeerHasNoRing(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	r := n.rogue(t, 0)
	must(t, r.in.SetWriteDeadline(time.Now().Add(time.Millisecond)))
	if n, err := r.in.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %d, %v", n, err)
	}
	r.in.linger = time.Millisecond
	if err := r.in.CloseWrite(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("CloseWrite: %v", err)
	}
	r.in.Close()
	r.c.Close()
}

// A Write during CloseWrite or Close fails at once, however long these take to tell the peer.
func TestStreamWriteWhileClosing(t *testing.T) {
	for _, c := range []struct {
		name  string
		close func(*Stream) error
		begun func(*Stream) bool
		want  error
	}{
		{"CloseWrite", (*Stream).CloseWrite, func(s *Stream) bool { return s.out.shut.Load() }, errShut},
		{"Close", (*Stream).Close, func(s *Stream) bool { return s.closed.Load() }, net.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newStreamNet(t, StreamConfig{})
			r := n.rogue(t, 0)
			done, written := make(chan error, 1), make(chan error)
			write := func() {
				_, err := r.in.Write([]byte("x"))
				written <- err
			}
			for range 3 { // one waits for the peer's ring, the others for it
				go write()
			}
			for r.in.out.mu.TryLock() {
				r.in.out.mu.Unlock()
				runtime.Gosched()
			}
			go func() { done <- c.close(r.in) }()
			for !c.begun(r.in) {
				runtime.Gosched()
			}
			go write()
			for range 4 {
				if err := <-written; !errors.Is(err, c.want) {
					t.Errorf("write: %v", err)
				}
			}
			if len(done) > 0 {
				t.Error("a write returned no sooner")
			}
			r.c.Close()
			<-done
			r.in.Close()
		})
	}
}

// A write that the transport refuses would leave a hole: it ends the stream.
func TestStreamOperationRefused(t *testing.T) {
	out, in, f := fakeStream(t, Config{})
	f.mu.Lock()
	f.fail = ipc.StatusQuota
	f.mu.Unlock()
	if err := writeUntilError(out); !errors.Is(err, ErrQuota) {
		t.Errorf("write: %v", err)
	}
	if _, err := io.ReadAll(in); !errors.Is(err, ErrReset) {
		t.Errorf("the peer reads %v", err)
	}
	must(t, in.Close())
	must(t, out.Close())
}

// Close gives up on a transport that completes nothing.
func TestStreamCloseGivesUp(t *testing.T) {
	out, in, f := fakeStream(t, Config{})
	f.setHold(true)
	_, err := out.Write([]byte("x"))
	must(t, err)
	out.linger = time.Millisecond
	if err := out.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	f.release()
	must(t, in.Close())
}

// fakeStream is a stream between two devices of a fake daemon.
func fakeStream(t testing.TB, cfg Config) (out, in *Stream, f *fake) {
	return fakeStreamOf(t, cfg, cfg)
}

// fakeStreamOf is fakeStream between devices that differ.
func fakeStreamOf(t testing.TB, a, b Config) (out, in *Stream, f *fake) {
	f = newFake(t)
	n := &streamNet{}
	n.a, _ = f.open(a)
	n.b, _ = f.open(b)
	ctx := testContext(t)
	var err error
	n.l, err = n.b.ListenStream(ctx, "s")
	must(t, err)
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = n.l.AcceptStream(ctx)
		accepted <- err
	}()
	out, err = n.a.DialStream(ctx, "fake", "s")
	must(t, errors.Join(err, <-accepted))
	return out, in, f
}

// Deadlines that are set again and again end what is under way when they say so, and nothing else.
func TestStreamDeadlines(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	out, in := n.mustPair(t)
	read := func() error { return second(in.Read(make([]byte, 1))) }
	must(t, in.SetReadDeadline(time.Now().Add(time.Millisecond)))
	for range 2 { // it stays
		if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || !err.(net.Error).Timeout() {
			t.Errorf("read: %v", err)
		}
	}
	must(t, in.SetReadDeadline(time.Now().Add(time.Hour)))
	must(t, in.SetReadDeadline(time.Now().Add(1<<62)))
	got := make(chan error, 1)
	go func() { got <- read() }()
	_, err := out.Write([]byte("xy"))
	must(t, err)
	must(t, <-got)
	must(t, in.SetReadDeadline(time.Unix(1, 0)))
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a byte is there, and the deadline long ago: %v", err)
	}
	in.c.d.life.silent.Store(true)
	if err := read(); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, ErrDaemonSilent) ||
		!err.(net.Error).Timeout() {
		t.Errorf("the daemon is silent: %v", err)
	}
	in.c.d.life.silent.Store(false)
	must(t, in.SetDeadline(time.Time{}))
	must(t, read())
	must(t, out.Close())
	must(t, in.Close())
}

// Whatever a peer notifies, counts stay in their bounds; what follows the rules is taken.
func FuzzStreamNotifications(f *testing.F) {
	f.Add([]byte{0, 10, 1, 5, 3, 3, 0, 200, 2, 9})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const ring = 256
		d := &attachment{}
		i, o := &inbound{}, &outbound{}
		i.d, o.d = d, d
		i.head.Store(immCount - 100) // counts wrap around soon
		i.tail.Store(i.head.Load())
		i.granted.Store(i.head.Load())
		for ; len(steps) >= 2; steps = steps[2:] {
			kind, n := steps[0], uint64(steps[1])
			tail, head, free := i.tail.Load(), i.head.Load(), ring-(i.tail.Load()-i.granted.Load())
			switch kind % 6 {
			case 0: // by the rules, perhaps too much
				bad := i.piece(tail&immCount, int(n), ring)
				if ok := n > 0 && n <= free && !i.fin.Load(); ok != (bad == "") {
					t.Fatalf("%d bytes with room for %d: %q", n, free, bad)
				}
			case 1: // anywhere
				if bad := i.piece(n, int(n), ring); bad == "" && (n != tail&immCount || n > free) {
					t.Fatalf("%d bytes at %d are taken at %d", n, n, tail)
				}
			case 2:
				i.head.Add(min(n, tail-head))
			case 3:
				i.granted.Store(i.head.Load())
			case 4:
				o.sent.Add(n)
			case 5:
				before := o.sent.Load() - o.acked.Load()
				if bad := o.credit(n); (bad == "") != (n > 0 && n <= before) {
					t.Fatalf("credit for %d of %d: %q", n, before, bad)
				}
			}
			if i.tail.Load()-i.head.Load() > ring || i.tail.Load()-i.granted.Load() > ring ||
				o.acked.Load() > o.sent.Load() {
				t.Fatalf("tail %d, head %d, granted %d, acked %d, sent %d", i.tail.Load(), i.head.Load(),
					i.granted.Load(), o.acked.Load(), o.sent.Load())
			}
		}
		if end := i.tail.Load() & immCount; i.end((end+1)&immCount) == "" || i.end(end) != "" || i.end(end) == "" {
			t.Fatal("an end elsewhere was taken, or none, or two")
		}
	})
}
