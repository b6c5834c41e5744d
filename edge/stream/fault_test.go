package stream

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

	"multiedge/edge"
	"multiedge/edge/internal/inner"
)

// stuckCalls starts a Read and a Write that cannot end by themselves, and returns what ends them.
func stuckCalls(s *Conn) (read, written chan error) {
	read, written = make(chan error, 1), make(chan error, 1)
	go func() { read <- readUntilError(s) }()
	go func() { written <- writeUntilError(s) }()
	return read, written
}

// readUntilError returns nil at the end of the stream.
func readUntilError(s *Conn) error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// Whatever ends a stream ends the calls under way with an error that says so, and never looks like the end of its
// bytes.
func TestStreamIsCutOff(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cut     func(n *streamNet, out, in *Conn)
		is, not error
	}{
		{"the peer aborts", func(n *streamNet, _, in *Conn) { in.c.Abort() }, syscall.ECONNRESET, net.ErrClosed},
		{"we abort", func(n *streamNet, out, _ *Conn) { out.cut(edge.ErrLimit) }, edge.ErrLimit, edge.ErrReset},
		{"our device closes", func(n *streamNet, _, _ *Conn) { n.a.Close() }, net.ErrClosed, edge.ErrReset},
		{"we close", func(n *streamNet, out, _ *Conn) { out.Close() }, net.ErrClosed, edge.ErrReset},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newStreamNet(t, Config{})
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
	n := newStreamNet(t, Config{})
	out, in := n.mustPair(t)
	read, written := stuckCalls(out)
	_, err := io.ReadFull(in, make([]byte, 100_000))
	must(t, err)
	must(t, in.Close()) // in the middle of what out writes
	if err := <-written; !errors.Is(err, edge.ErrReset) {
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
		if !errors.Is(err, edge.ErrPeerDown) && !errors.Is(err, edge.ErrReset) {
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
func TestListenersTakeStreams(t *testing.T) {
	ctx := testContext(t)
	n := newStreamNet(t, Config{})
	plain, err := n.b.Listen(ctx, "plain")
	must(t, err)
	accepted := make(chan *edge.Conn, 1)
	go func() {
		c, err := plain.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if _, err := n.cfg(n.a).Dial(ctx, "b", "plain"); !errors.Is(err, ErrProtocol) {
		t.Errorf("a stream to a service of connections: %v", err)
	}
	<-accepted
	if _, err := (Config{Device: n.a, Data: make([]byte, 505)}).Dial(ctx, "b", "s"); !errors.Is(err, edge.ErrInvalid) {
		t.Errorf("too much data: %v", err)
	}
	refused := make(chan error, 1)
	go func() { refused <- func() error { _, err := n.a.Dial(ctx, "b", "s"); return err }() }()
	ending, cancel := context.WithCancel(ctx)
	acceptEnds := make(chan error, 1)
	go func() { _, err := n.l.AcceptContext(ending); acceptEnds <- err }()
	if err := <-refused; !errors.Is(err, edge.ErrRefused) {
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
		if _, err := (Config{Device: n.a, SendBuffer: size}).Dial(ctx, "b", "s"); !errors.Is(err,
			edge.ErrInvalid) {
			t.Errorf("a buffer of %d bytes: %v", size, err)
		}
	}
}

// rogue is a peer that speaks the rules of streams only as far as the test says.
type rogue struct {
	c    *edge.Conn
	mem  *edge.Region
	ring *edge.RemoteRegion
	in   *Conn // the honest end
}

func (n *streamNet) rogue(t *testing.T, ringSize int) *rogue {
	ctx := testContext(t)
	accepted := make(chan *Conn, 1)
	go func() {
		s, err := n.l.AcceptContext(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	}()
	c, err := n.a.Dial(ctx, "b", "s", edge.Data([]byte(hello)))
	must(t, err)
	r := &rogue{c: c, in: <-accepted}
	r.mem, err = n.a.Register(1 << 20)
	must(t, err)
	if ringSize > 0 {
		_, err = r.mem.Export(c, ringName, edge.RemoteWrite, 0, ringSize)
		must(t, err)
	}
	r.ring, err = c.Import(ctx, ringName)
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
	_, err := r.c.Post(edge.NoWait, &edge.Work{Kind: edge.Write, Flags: edge.Notify | edge.BackwardFence,
		Imm: imm, Local: r.mem, Len: n, Remote: r.ring})
	must(t, err)
}

func TestStreamPeerTalksNonsense(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: 1 << 16})
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
			r := n.rogue(t, minBuffer)
			_, err := r.in.Write([]byte("hello"))
			must(t, err)
			for _, nt := range notes {
				r.say(t, nt.imm, nt.n)
			}
			if strings.HasPrefix(name, "credit") { // which writing would make good
				if err := readUntilError(r.in); !errors.Is(err, ErrProtocol) {
					t.Errorf("read: %v", err)
				}
			}
			if err := writeUntilError(r.in); !errors.Is(err, ErrProtocol) {
				t.Errorf("write: %v", err)
			}
			// what came before an end is read
			if err := readUntilError(r.in); err != nil && !errors.Is(err, ErrProtocol) {
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
		if err := writeUntilError(r.in); !errors.Is(err, ErrProtocol) {
			t.Errorf("a ring of %d bytes: %v", size, err)
		}
		r.end(t)
	}
}

// A peer that never exports its ring holds up its own writer, until the deadline, and Close for the time it lingers.
func TestStreamPeerHasNoRing(t *testing.T) {
	n := newStreamNet(t, Config{})
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
		close func(*Conn) error
		begun func(*Conn) bool
		want  error
	}{
		{"CloseWrite", (*Conn).CloseWrite, func(s *Conn) bool { return s.out.shut.Load() }, errShut},
		{"Close", (*Conn).Close, func(s *Conn) bool { return s.closed.Load() }, net.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newStreamNet(t, Config{})
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

// Deadlines that are set again and again end what is under way when they say so, and nothing else.
func TestStreamDeadlines(t *testing.T) {
	n := newStreamNet(t, Config{})
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
		i, o := &inbound{}, &outbound{}
		i.cond, o.cond = nobody{}, nobody{}
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

// Whatever a peer says is answered once.
func TestStreamNonsenseCostsOneRequest(t *testing.T) {
	n := newStreamNet(t, Config{})
	r := n.rogue(t, minBuffer)
	before := runtime.NumGoroutine()
	for range 1000 {
		tap{r.in}.Notified(inner.Note{Imm: immKind})
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines speak to the daemon for one stream", n)
	}
	must(t, r.in.Close())
}

// nobody is an inner.Cond for which nobody waits.
type nobody struct{}

func (nobody) Wait(context.Context) error     { return nil }
func (nobody) WaitRoom(context.Context) error { return nil }
func (nobody) Wake()                          {}
func (nobody) Interrupt()                     {}

// Positions that are taken back, since a post found no room, leave no way to claim more than there is.
func TestStreamClaimsAfterTakingBack(t *testing.T) {
	o := &outbound{}
	o.cond = nobody{}
	o.acked.Store(100) // a peer that guessed credit for a piece which was then not sent
	if o.credit(1<<29) == "" {
		t.Error("credit for half a gigabyte that was never sent is taken")
	}
	i := &inbound{}
	i.cond = nobody{}
	i.tail.Store(6096) // a peer that used credit which was then not granted
	if i.piece(6096, 4096, 4096) == "" {
		t.Errorf("a piece is taken although %d bytes wait in a ring of 4096", i.tail.Load())
	}
}

// What was read before the peer exported its ring is told it as soon as it has: no further Read is needed.
func TestStreamCreditWaitsForThePeersRing(t *testing.T) {
	n := newStreamNet(t, Config{ReceiveBuffer: 1 << 14})
	r := n.rogue(t, 0)
	const sent = 1 << 13
	r.say(t, immData, sent)
	must(t, second(io.ReadFull(r.in, make([]byte, sent))))
	must(t, second(r.mem.Export(r.c, ringName, edge.RemoteWrite, 0, minBuffer)))
	told, err := r.c.WaitNotify(testContext(t))
	must(t, err)
	if told.Imm != immCredit|sent {
		t.Errorf("the peer is told %#x", told.Imm)
	}
	r.end(t)
}

// Close of a stream that this end has cut waits for nothing of the peer: it aborts, whether or not the abort of the cut
// has reached the daemon.
func TestCloseOfACutStreamAborts(t *testing.T) {
	n := newStreamNet(t, Config{})
	out, in := n.mustPair(t)
	reason := error(ErrProtocol)
	out.broken.Store(&reason) // its abort is yet to come
	must(t, out.Close())
	if err := out.c.Err(); !errors.Is(err, edge.ErrAborted) {
		t.Errorf("the connection ended with %v, want ErrAborted", err)
	}
	must(t, in.Close())
}

// A WriteRegion waits for its bytes to leave the caller's memory, for as long as the peer does not answer. CloseWrite
// and Close wait for it no longer than they linger.
func TestCloseBesideALongWrite(t *testing.T) {
	n := newStreamNet(t, Config{Linger: 20 * time.Millisecond})
	out, in := n.mustPair(t)
	out.out.mu.Lock() // as WriteRegion holds it
	ended := make(chan error, 2)
	go func() { ended <- out.CloseWrite(); ended <- out.Close() }()
	for _, call := range []string{"CloseWrite", "Close"} {
		select {
		case err := <-ended:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v, want a deadline that passed", call, err)
			}
		case <-testContext(t).Done():
			t.Errorf("%s does not return", call)
		}
	}
	out.out.mu.Unlock()
	in.Close()
}
