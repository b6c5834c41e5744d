package edge

import (
	"context"
	"errors"
	"testing"
	"time"

	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

// An end reads while its queue is full of its own writes, and nobody waits on its Device when they complete: the peer
// may go on all the same.
func TestStreamCreditNeedsNobody(t *testing.T) {
	out, in, f := fakeStreamOf(t, Config{}, Config{QueueDepth: ipc.MinDepth,
		Stream: StreamConfig{ReceiveBuffer: minStreamBuffer}})
	must(t, second(out.Write(make([]byte, minStreamBuffer))))
	must(t, second(in.Read(make([]byte, 1))))
	eventually(t, "all pieces have arrived", 10*time.Second, func() bool {
		in.c.d.dev.Poll()
		return in.in.tail.Load() == minStreamBuffer
	})
	f.setHold(true)
	for range ipc.MinDepth {
		must(t, second(in.Write([]byte("x"))))
	}
	for left := minStreamBuffer - 1; left > 0; {
		m, err := in.Read(make([]byte, left))
		must(t, err)
		left -= m
	}
	f.release()
	must(t, out.SetWriteDeadline(time.Now().Add(10*time.Second)))
	if _, err := out.Write(make([]byte, 100)); err != nil {
		t.Fatalf("although everything was read: %v", err)
	}
}

// Close gives up in its time, and the memory comes back as soon as the transport lets go of it.
func TestStreamCloseGivesMemoryBack(t *testing.T) {
	out, in, f := fakeStream(t, Config{})
	f.setHold(true)
	must(t, second(out.Write([]byte("x"))))
	out.linger = 10 * time.Millisecond
	out.Close()
	f.release()
	d := out.c.d.dev
	eventually(t, "the region of a stream whose Close gave up is closed", 10*time.Second, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.regions) == 0
	})
	must(t, in.Close())
}

// Whatever a peer says is answered once.
func TestStreamNonsenseCostsOneRequest(t *testing.T) {
	n := newStreamNet(t, StreamConfig{})
	r := n.rogue(t, minStreamBuffer)
	d := r.in.c.d
	requests := func() uint64 {
		d.calls.mu.Lock()
		defer d.calls.mu.Unlock()
		return d.calls.next
	}
	before := requests()
	for range 100 {
		r.in.arrived(note{imm: immKind})
	}
	eventually(t, "the stream is cut", 10*time.Second, func() bool { return requests() > before })
	if n := requests() - before; n != 1 {
		t.Errorf("%d requests to the daemon for one stream", n)
	}
	must(t, r.in.Close())
}

// Positions that are taken back, since a post found no room, leave no way to claim more than there is.
func TestStreamClaimsAfterTakingBack(t *testing.T) {
	o := &outbound{}
	o.d = &attachment{}
	o.acked.Store(100) // a peer that guessed credit for a piece which was then not sent
	if o.credit(1<<29) == "" {
		t.Error("credit for half a gigabyte that was never sent is taken")
	}
	i := &inbound{}
	i.d = o.d
	i.tail.Store(6096) // a peer that used credit which was then not granted
	if i.piece(6096, 4096, 4096) == "" {
		t.Errorf("a piece is taken although %d bytes wait in a ring of 4096", i.tail.Load())
	}
}

// A loop that waits for the descriptor is told of an operation that another goroutine's look found done.
func TestArmSeesWhatOthersTook(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	must(t, second(p.client.PollFD()))
	p.f.setHold(true)
	w := Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote}
	first, err := p.out.Post(&w)
	must(t, err)
	other, err := p.out.Post(&w)
	must(t, err)
	p.client.Poll() // the loop looks: nothing yet
	p.f.release()
	eventually(t, "the other operation is done", 10*time.Second, other.Done)
	if first.settled() && p.client.Arm() {
		t.Error("Arm lets the loop sleep on an operation that is done")
	}
}

// A connection whose peer closed it, with more notifications than its owner ever takes, is gone when its owner closes
// it too.
func TestUntakenNotificationsKeepNoConnection(t *testing.T) {
	ctx := testContext(t)
	fab := NewFabric()
	ha := newHost(t, fab, "a", nil)
	hb := newHost(t, fab, "b", func(c *config.Config) { c.Limits.ConnsPerUser = 2 })
	a, b := ha.open(Config{}), hb.open(Config{})
	for range 4 {
		out, in := pairOn(t, ctx, a, b, "s")
		r, err := b.Register(4096)
		must(t, err)
		must(t, second(r.Export(in, "m", RemoteWrite, 0, 4096)))
		m, err := out.Import(ctx, "m")
		must(t, err)
		for range 3 * ipc.NotifyCredit {
			must(t, second(out.PostWait(ctx, &Work{Kind: Write, Flags: Notify, Inline: []byte("x"), Remote: m})))
		}
		must(t, out.Close())
		in.Close() // the daemon may have told us of the end, or not
		eventually(t, "the daemon has no connection left", 10*time.Second, func() bool {
			snap, err := hb.d.Snapshot()
			return err == nil && len(snap.Conns) == 0
		})
		must(t, r.Close())
	}
}

// A dial that failed gives its memory back, but not beyond its context: the daemon may have stopped.
func TestStreamDialEndsWithItsContext(t *testing.T) {
	f := newFake(t)
	a, _ := f.open(Config{})
	f.mu.Lock()
	f.mute = true
	f.mu.Unlock()
	for within := 50 * time.Millisecond; ; within *= 4 {
		ctx, cancel := context.WithTimeout(testContext(t), within)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- second(a.DialStream(ctx, "fake", "none")) }()
		select {
		case err := <-done:
			if errors.Is(err, ErrNoService) {
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
	f := newFake(t)
	a, _ := f.open(Config{})
	b, _ := f.open(Config{})
	l, err := b.ListenStream(testContext(t), "s")
	must(t, err)
	f.mu.Lock()
	f.mute = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 2)
	go func() { done <- second(a.DialStream(ctx, "fake", "s")) }()
	go func() { done <- second(l.AcceptStream(ctx)) }()
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
