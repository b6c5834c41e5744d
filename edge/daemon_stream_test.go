package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/stream"
	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// Streams whose daemons go away, are stopped, or are made up by the test; package stream tests all else.

// streams is a listener at one Device, and another that dials it.
type streams struct {
	a    stream.Config // of the Device that dials
	node string        // of the listener
	l    *stream.Listener
}

func newStreams(t testing.TB, a, b stream.Config, node string) *streams {
	t.Helper()
	l, err := b.Listen(testContext(t), "s")
	must(t, err)
	return &streams{a, node, l}
}

// pair returns both ends of a stream.
func (s *streams) pair(t testing.TB) (out, in *stream.Conn) {
	t.Helper()
	ctx := testContext(t)
	accepted := make(chan error, 1)
	go func() {
		var err error
		in, err = s.l.AcceptContext(ctx)
		accepted <- err
	}()
	out, err := s.a.Dial(ctx, s.node, "s")
	must(t, errors.Join(err, <-accepted))
	return out, in
}

// on is a stream's configuration of a Device.
func on(d *edge.Device) stream.Config { return stream.Config{Device: d} }

// selfPair is a stream whose ends are of one Device.
func selfPair(t testing.TB, d *edge.Device) (out, in *stream.Conn) {
	t.Helper()
	return newStreams(t, on(d), on(d), d.Name()).pair(t)
}

// fakeStreams are streams between two Devices of a fake daemon.
func fakeStreams(t testing.TB, a, b edge.Config, of stream.Config) (out, in *stream.Conn, f *edge.Fake,
	dev *edge.Device) {
	t.Helper()
	f = edge.NewFake(t)
	from, to := of, of
	from.Device, to.Device = f.Open(a), f.Open(b)
	out, in = newStreams(t, from, to, "fake").pair(t)
	return out, in, f, from.Device
}

// writeUntilError returns what ends a stream of zeros.
func writeUntilError(s *stream.Conn) error {
	for p := make([]byte, 10_000); ; {
		if _, err := s.Write(p); err != nil {
			return err
		}
	}
}

// sendAndCompare has size random bytes go from one end to the other.
func sendAndCompare(from io.Writer, to io.Reader, seed byte, size int) error {
	want, got := make([]byte, size), make([]byte, size)
	rand.NewChaCha8([32]byte{seed}).Read(want)
	written := make(chan error, 1)
	go func() { written <- second(from.Write(want)) }()
	_, err := io.ReadFull(to, got)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("other bytes were read than were written")
	}
	if err != nil {
		return err
	}
	return <-written
}

// Between two daemons, one of which goes away.
func TestStreamOverDaemons(t *testing.T) {
	fab := edge.NewFabric()
	// to find the other one gone
	quick := func(c *config.Config) { c.KeepAlive, c.DeadTime = 100*time.Millisecond, time.Second }
	ha, hb := edge.NewHost(t, fab, "a", quick), edge.NewHost(t, fab, "b", quick)
	n := newStreams(t, on(ha.Open(edge.Config{})), on(hb.Open(edge.Config{})), "b")
	out, in := n.pair(t)
	must(t, sendAndCompare(out, in, 1, 1<<20))
	must(t, sendAndCompare(in, out, 2, 1<<20))
	stuck := make(chan error, 2)
	go func() { stuck <- second(out.Read(make([]byte, 1))) }()
	go func() { stuck <- writeUntilError(out) }()
	ha.Stop()
	for range 2 {
		if err := <-stuck; !errors.Is(err, edge.ErrDaemonDown) {
			t.Errorf("the daemon went: %v", err)
		}
	}
	if _, err := io.ReadAll(in); err == nil {
		t.Error("the peer's daemon went, and the stream ended well")
	}
	must(t, out.Close())
	must(t, in.Close())
	ha.Start()
	out, in = n.pair(t)
	must(t, sendAndCompare(out, in, 3, 100_000))
	must(t, out.Close())
	must(t, in.Close())
}

// Where memory is short, streams are refused one by one and the others live on.
func TestStreamWithoutMemory(t *testing.T) {
	ctx := testContext(t)
	fab := edge.NewFabric()
	ha := edge.NewHost(t, fab, "a", nil)
	// and what a client is charged for its queues
	hb := edge.NewHost(t, fab, "b", func(c *config.Config) { c.Limits.Pinned = 3*stream.DefaultBuffer + 384<<10 })
	a, b := ha.Open(edge.Config{}), hb.Open(edge.Config{})
	n := newStreams(t, on(a), on(b), "b")
	out, in := n.pair(t) // 2 buffers
	next := make(chan *stream.Conn, 1)
	go func() {
		s, err := n.l.AcceptContext(ctx)
		if err != nil {
			t.Error(err)
		}
		next <- s
	}()
	if _, err := n.a.Dial(ctx, "b", "s"); !errors.Is(err, edge.ErrRefused) || !strings.Contains(err.Error(),
		"memory for a stream") {
		t.Errorf("no memory at the peer: %v", err)
	}
	if _, err := on(b).Dial(ctx, "a", "s"); !errors.Is(err, edge.ErrMemlock) && !errors.Is(err, edge.ErrLimit) {
		t.Errorf("no memory here: %v", err)
	}
	must(t, sendAndCompare(out, in, 1, 100_000))
	must(t, out.Close())
	must(t, in.Close())
	out, err := n.a.Dial(ctx, "b", "s")
	must(t, err)
	in = <-next
	must(t, sendAndCompare(out, in, 2, 100_000))
	must(t, out.Close())
	must(t, in.Close())
}

// A write that the transport refuses would leave a hole: it ends the stream.
func TestStreamOperationRefused(t *testing.T) {
	out, in, f, _ := fakeStreams(t, edge.Config{}, edge.Config{}, stream.Config{})
	f.SetFail(ipc.StatusQuota)
	if err := writeUntilError(out); !errors.Is(err, edge.ErrQuota) {
		t.Errorf("write: %v", err)
	}
	if _, err := io.ReadAll(in); !errors.Is(err, edge.ErrReset) {
		t.Errorf("the peer reads %v", err)
	}
	must(t, in.Close())
	must(t, out.Close())
}

// Close gives up on a transport that completes nothing, in its time, and the memory comes back as soon as the transport
// lets go of it.
func TestStreamCloseGivesUp(t *testing.T) {
	out, in, f, d := fakeStreams(t, edge.Config{}, edge.Config{}, stream.Config{Linger: time.Millisecond})
	f.SetHold(true)
	must(t, second(out.Write([]byte("x"))))
	if err := out.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if n := d.Counters().Regions; n != 1 {
		t.Errorf("%d regions are mapped while the transport has the stream's", n)
	}
	f.Release()
	eventually(t, "the region of a stream whose Close gave up is closed", 10*time.Second,
		func() bool { return d.Counters().Regions == 0 })
	in.Close()
}

// An end reads while its queue is full of its own writes, and nobody waits on its Device when they complete: the peer
// may go on all the same.
func TestStreamCreditNeedsNobody(t *testing.T) {
	const buffer = 4096
	out, in, f, _ := fakeStreams(t, edge.Config{}, edge.Config{QueueDepth: ipc.MinDepth},
		stream.Config{ReceiveBuffer: buffer})
	before := f.Moved()
	must(t, second(out.Write(make([]byte, buffer))))
	eventually(t, "all pieces have arrived", 10*time.Second, func() bool { return f.Moved()-before >= buffer })
	must(t, second(io.ReadFull(in, make([]byte, buffer/4-1)))) // no credit is due
	f.SetHold(true)
	for range ipc.MinDepth {
		must(t, second(in.Write([]byte("x"))))
	}
	must(t, second(io.ReadFull(in, make([]byte, buffer-buffer/4+1))))
	f.Release()
	must(t, out.SetWriteDeadline(time.Now().Add(10*time.Second)))
	if _, err := out.Write(make([]byte, 100)); err != nil {
		t.Fatalf("although everything was read: %v", err)
	}
}

// A dial that failed gives its memory back, but not beyond its context: the daemon may have stopped.
func TestStreamDialEndsWithItsContext(t *testing.T) {
	f := edge.NewFake(t)
	a := on(f.Open(edge.Config{}))
	f.Mute()
	for within := 50 * time.Millisecond; ; within *= 4 {
		ctx, cancel := context.WithTimeout(testContext(t), within)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- second(a.Dial(ctx, "fake", "none")) }()
		select {
		case err := <-done:
			if errors.Is(err, edge.ErrNoService) {
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) || within > 5*time.Second { // else too short for the dial
				t.Fatalf("the dial failed with %v", err)
			}
		case <-time.After(within + 10*time.Second):
			t.Fatal("the dial goes on without its context")
		}
	}
}

// So do a dial and an accept whose last step the daemon does not answer.
func TestStreamOpensWithinItsContext(t *testing.T) {
	f := edge.NewFake(t)
	n := newStreams(t, on(f.Open(edge.Config{})), on(f.Open(edge.Config{})), "fake")
	f.Mute()
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 2)
	go func() { done <- second(n.a.Dial(ctx, "fake", "s")) }()
	go func() { done <- second(n.l.AcceptContext(ctx)) }()
	late := time.After(10 * time.Second)
	for range 2 {
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
		case <-late:
			t.Fatal("it goes on without its context")
		}
	}
}

// A daemon that does not run when a deadline passes keeps the aims; when it runs again, the next read has every byte,
// whichever way it reads.
func TestReadRegionOfAStoppedDaemon(t *testing.T) {
	ctx := testContext(t)
	socket := filepath.Join(t.TempDir(), "d.sock")
	child := edge.StartChild(t, edge.ChildDaemonEnv+"="+socket)
	d, err := edge.Open(ctx, edge.Config{Socket: socket})
	must(t, err)
	defer d.Close()
	out, in := selfPair(t, d)
	const size, sent = 1 << 20, 100_000
	from, err := d.Register(size)
	must(t, err)
	to, err := d.Register(size)
	must(t, err)
	rand.NewChaCha8([32]byte{4}).Read(from.Bytes())
	type result struct {
		n   int
		err error
	}
	read := make(chan result, 1)
	go func() {
		m, err := in.ReadRegion(to, 0, size)
		read <- result{m, err}
	}()
	eventually(t, "the read has aimed", 10*time.Second, func() bool { return errors.Is(d.Busy(to), edge.ErrBusy) })
	must(t, second(out.WriteRegion(from, 0, sent)))
	eventually(t, "what was sent has arrived", 10*time.Second,
		func() bool { return bytes.Equal(to.Bytes()[:sent], from.Bytes()[:sent]) })
	child.Signal(syscall.SIGSTOP)
	// one that runs could still end the aim
	eventually(t, "every thread of the daemon has stopped", 10*time.Second, child.IsStopped)
	var r result
	eventually(t, "the read gives up", 20*time.Second, func() bool {
		d.SetSilent(true) // as the Device finds out some seconds later
		must(t, in.SetReadDeadline(time.Unix(1, 0)))
		select {
		case r = <-read:
			return true
		default:
			return false
		}
	})
	if !errors.Is(r.err, edge.ErrDaemonSilent) || !errors.Is(r.err, os.ErrDeadlineExceeded) ||
		!r.err.(net.Error).Timeout() {
		t.Errorf("%d bytes, %v; want ErrDaemonSilent and a timeout", r.n, r.err)
	}
	if m, err := in.Read(make([]byte, 10)); m != 0 || !errors.Is(err, edge.ErrDaemonSilent) {
		t.Errorf("a read meanwhile: %d, %v", m, err)
	}
	if err := to.Close(); !errors.Is(err, edge.ErrBusy) {
		t.Errorf("closing the memory meanwhile: %v, want ErrBusy", err)
	}
	child.Signal(syscall.SIGCONT)
	must(t, in.SetReadDeadline(time.Time{}))
	got := make([]byte, sent)
	copy(got, to.Bytes()[:r.n])
	must(t, second(io.ReadFull(in, got[r.n:])))
	if !bytes.Equal(got, from.Bytes()[:sent]) {
		t.Errorf("%d bytes before and the others after: some are others", r.n)
	}
	must(t, to.Close())
}

// What a read has redirected when the daemon dies is lost, and the stream says so instead of giving other bytes.
func TestReadRegionOfAKilledDaemon(t *testing.T) {
	fab := edge.NewFabric()
	defer fab.Close()
	h := edge.NewHost(t, fab, "h", nil)
	d := h.Open(edge.Config{})
	out, in := selfPair(t, d)
	const size = 1 << 20
	from, err := d.Register(size)
	must(t, err)
	to, err := d.Register(size)
	must(t, err)
	rand.NewChaCha8([32]byte{5}).Read(from.Bytes())
	var got int
	read := make(chan error, 1)
	go func() {
		var err error
		got, err = in.ReadRegion(to, 0, size)
		read <- err
	}()
	must(t, second(out.WriteRegion(from, 0, 300_000)))
	h.Stop()
	if err := <-read; !errors.Is(err, edge.ErrDaemonDown) && !errors.Is(err, edge.ErrReset) {
		t.Errorf("the read ended with %v", err)
	}
	if !bytes.Equal(to.Bytes()[:got], from.Bytes()[:got]) {
		t.Errorf("of %d bytes some are others", got)
	}
	p := make([]byte, size)
	if m, err := io.ReadFull(in, p); err == nil || !bytes.Equal(p[:m], from.Bytes()[got:got+m]) {
		t.Errorf("%d bytes more, %v, or others", m, err)
	}
}
