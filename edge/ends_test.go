package edge

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// Text that is not UTF-8, the peer's or cut in the middle of a letter, ends no attachment.
func TestTextThatIsNotUTF8(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	a, b := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	server, client := a.open(Config{}), b.open(Config{})
	l, err := server.Listen(ctx, "svc")
	must(t, err)
	refused := make(chan error, 1)
	go func() {
		_, err := client.Dial(ctx, "a", "svc")
		refused <- err
	}()
	r, err := l.Next(ctx)
	must(t, err)
	must(t, r.Refuse("x"+strings.Repeat("é", 600)))
	if err := <-refused; !errors.Is(err, ErrRefused) {
		t.Errorf("dial: %v", err)
	}
	m := &ipc.Message{Kind: ipc.KindDial, Peer: strings.Repeat("\xff", 22), Service: "svc",
		Timeout: 10 * time.Millisecond}
	if _, err := client.at.Load().call(ctx, m, &call{}); err == nil || errors.Is(err, ErrDaemonDown) {
		t.Errorf("dial of a name that is no text: %v", err)
	}
	for _, d := range []*Device{server, client} {
		if _, err := d.Register(4096); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// A name that would be changed on its way to the daemon, and never be found, is refused.
func TestNamesAreUTF8(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	const bad = "caf\xe9"
	for what, err := range map[string]error{
		"dial of a node": second(p.client.Dial(ctx, bad, "svc")), "dial of a service": second(p.client.Dial(ctx, "fake",
			bad)),
		"listening": second(p.server.Listen(ctx, bad)), "export": second(p.exported.Export(p.in, bad, RemoteRead, 0,
			1)),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A region that was closed is not renewed: its memory may be somebody else's.
func TestRenewAfterClose(t *testing.T) {
	h := newHost(t, NewFabric(), "a", nil)
	d := h.open(Config{})
	r, err := d.Register(1 << 20)
	must(t, err)
	h.stop()
	<-d.at.Load().life.deadCh
	h.start()
	must(t, r.Close())
	if n, err := r.Renew(testContext(t)); n != r || !errors.Is(err, net.ErrClosed) {
		t.Errorf("renewed: %v, %v", n, err)
	}
}

// The late half of a completion frees no slot that was lent again since.
func TestBounceSlotLentAgain(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 1<<17)
	_, err := p.remote.WriteAt([]byte{1}, 0) // makes the arena
	must(t, err)
	a := p.client.at.Load().bounce.Load()
	for len(a.free) != bounceSlots {
		runtime.Gosched()
	}
	b := <-a.free // lent again at once, to a call that then gives up
	p.f.setHold(true)
	op, err := a.d.postAll(ctx, poster{p.out, nil, b}, []*Work{{Kind: Read, Local: a.blocks[0].Load(),
		LocalOff: int(b) * bounceChunk, Len: 1, Remote: p.remote}})
	must(t, err)
	a.abandon(b, op)
	a.completed(b, opKey(op.slot, op.gen-1))
	if !op.settled() && len(a.free) == bounceSlots {
		t.Error("the slot of an operation in flight is free")
	}
	p.f.release()
}

// Abort cuts short a Close that waits for operations.
func TestAbortDuringClose(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	_, err := p.out.Post(NoWait, &Work{Kind: Write, Local: p.local, Len: 1, Remote: p.remote})
	must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- p.out.Close() }()
	eventually(t, "closing", 10*time.Second, func() bool { return p.out.closing.Load() })
	must(t, p.out.Abort())
	if err := p.out.Err(); err == nil {
		t.Error("the connection lives")
	}
	p.f.release()
	<-closed
}

// A Listener ends when its service is refused, not when there was no time to offer it.
func TestRelistenWithoutTime(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	l, err := p.server.Listen(testContext(t), "other")
	must(t, err)
	late, cancel := context.WithCancel(context.Background())
	cancel()
	a := p.server.at.Load() // in place of a new attachment
	if err := a.dev.relisten(late, a); err == nil {
		t.Error("offered within no time")
	}
	if !p.server.listens(l) {
		t.Errorf("the Listener ended: %v", l.err)
	}
}

// Descriptors that come with an answer that should have none are closed.
func TestUnwantedDescriptors(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	d := p.client.at.Load()
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	before := count()
	c := &call{done: make(chan error, 1)}
	for range 20 {
		id, _ := d.calls.add(c)
		must(t, p.cend.ctl.Send(&ipc.Message{ID: id, Kind: ipc.KindStatus}, p.cend.bell.FD()))
		must(t, <-c.done)
	}
	if n := count(); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// A request that comes between the end of the daemon and our noticing it ends like those after it.
func TestRequestWhileDaemonGoes(t *testing.T) {
	f := newFake(t)
	d, c := f.open(Config{})
	a := d.at.Load()
	if !a.lead.try() { // the end is not noticed before all completions are taken
		t.Fatal("somebody leads")
	}
	c.end()
	_, err := d.status(testContext(t), "status")
	a.lead.handOff()
	if !errors.Is(err, ErrDaemonDown) {
		t.Errorf("a daemon that goes: %v", err)
	}
}

func TestUnsentRequests(t *testing.T) {
	f := newFake(t)
	d, _ := f.open(Config{})
	a := d.at.Load()
	late := &net.OpError{Op: "write", Err: os.ErrDeadlineExceeded}
	if err := a.unsent(late); !errors.Is(err, ErrDaemonSilent) || errors.Is(err, ErrDaemonDown) {
		t.Errorf("a daemon that does not read: %v", err)
	}
	_, err := a.call(testContext(t), &ipc.Message{Kind: ipc.KindDial, Service: strings.Repeat("x", ipc.MaxName+1)},
		&call{})
	if err == nil || errors.Is(err, ErrDaemonDown) || errors.Is(err, ErrDaemonSilent) {
		t.Errorf("a request that cannot be encoded: %v", err)
	}
}

// Close wakes an event loop, also one that was armed while there was no daemon, and touches its descriptors no more.
// They go with the Device.
func TestCloseWakesLoop(t *testing.T) {
	h := newHost(t, NewFabric(), "a", nil)
	pollers := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, e := range entries {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to == "anon_inode:[eventpoll]" {
				n++
			}
		}
		return n
	}
	before := pollers()
	closeUnderLoop(t, h)
	h.start()
	// others' may go too
	eventually(t, "the descriptors are closed", 10*time.Second,
		func() bool { runtime.GC(); return pollers() <= before })
}

func closeUnderLoop(t *testing.T, h *testHost) {
	lost := make(changes, 8)
	d, err := Open(testContext(t), Config{Socket: h.cfg.Socket, OnChange: func(c error) { lost <- c }})
	must(t, err)
	fd, err := d.PollFD()
	must(t, err)
	h.stop()
	lost.next(t, false)
	d.Poll()
	if !d.Arm() {
		t.Fatal("there is news although the loss was seen")
	}
	look := func(ms int) int16 {
		pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(pfd, ms)
		for err == unix.EINTR {
			n, err = unix.Poll(pfd, ms)
		}
		if n < 1 {
			return 0
		}
		return pfd[0].Revents
	}
	woken := make(chan int16, 1)
	go func() { woken <- look(10_000) }()
	must(t, d.Close())
	if got := <-woken; got != unix.POLLIN {
		t.Errorf("the loop that waited saw %#x", got)
	}
	if d.pollerArmed.Load() || d.Arm() {
		t.Error("a closed Device is armed")
	}
	d.progress()
	if got := look(0); got != unix.POLLIN {
		t.Errorf("the next look at the descriptor saw %#x", got)
	}
	if _, err := d.PollFD(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the descriptor of a closed Device: %v", err)
	}
}

// An operation posted while the peer's end of the connection is on its way to us fails for that, not as if we had
// closed it.
func TestPostWhilePeerCloses(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	ha, hb := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	client, server := ha.open(Config{}), hb.open(Config{})
	out, in := pairOn(t, ctx, client, server, "s")
	r, err := server.Register(4096)
	must(t, err)
	must(t, second(r.Export(in, "m", RemoteWrite, 0, 4096)))
	m, err := out.Import(ctx, "m")
	must(t, err)
	l := &out.d.lead
	eventually(t, "nobody leads", 10*time.Second, l.try) // the end is not heard of before all completions are taken
	handOff := sync.OnceFunc(l.handOff)
	defer handOff()
	must(t, in.Close())
	eventually(t, "the daemon has forgotten the connection", 10*time.Second, func() bool {
		snap, err := ha.d.Snapshot()
		return err == nil && len(snap.Conns) == 0
	})
	op, err := out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: m})
	handOff()
	must(t, err)
	if err := op.Wait(ctx); !errors.Is(err, ErrPeerClosed) || errors.Is(err, net.ErrClosed) {
		t.Errorf("the operation failed with %v", err)
	}
}

// Close of a connection that the peer has closed returns when the daemon has given back what was posted meanwhile, so
// that memory can be closed behind it.
func TestCloseWaitsForWhatWasPosted(t *testing.T) {
	for _, kind := range []Kind{Write, Receive} {
		p := newDuo(t, Config{}, 4096)
		q, err := p.client.NewCompletionQueue(1)
		must(t, err)
		w := &Work{Kind: kind, Local: p.local, Len: 8}
		if kind == Receive {
			w.Queue = q
		} else {
			w.Remote = p.remote
		}
		p.f.setHold(true) // it is in the ring, and the daemon has not looked
		must(t, second(p.out.Post(NoWait, w)))
		must(t, p.in.Close())
		eventually(t, "the client hears of the end", 10*time.Second, func() bool { return p.out.Err() != nil })
		closed := make(chan error, 1)
		go func() { closed <- errors.Join(p.out.Close(), p.local.Close()) }()
		select {
		case err := <-closed:
			t.Errorf("%v: Close did not wait: %v", kind, err)
		case <-time.After(20 * time.Millisecond):
			p.f.release()
			if err := <-closed; err != nil {
				t.Errorf("%v: %v", kind, err)
			}
		}
	}
}

// An end that is complete already is not refused because the context has ended.
func TestCloseContextOfWhatHasEnded(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	must(t, p.in.Close())
	eventually(t, "the client hears of the end", 10*time.Second, func() bool { return p.out.Err() != nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, p.out.CloseContext(ctx))
}

// What is asked of the daemon about a connection that it has just reported the end of fails for that reason, and an
// export has ended with it.
func TestExportOnConnectionThatEnds(t *testing.T) {
	end := func(p *duo, why ipc.Status) {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		p.f.end = why
	}
	p := newDuo(t, Config{}, 4096)
	end(p, ipc.StatusPeerDown)
	if _, err := p.exported.Export(p.in, "late", RemoteRead, 0, 1); !errors.Is(err, ErrPeerDown) || err != p.in.Err() {
		t.Errorf("export: %v; the connection: %v", err, p.in.Err())
	}
	p = newDuo(t, Config{}, 4096)
	end(p, ipc.StatusPeerDown)
	if err := p.grant.Revoke(); err != nil || !errors.Is(p.in.Err(), ErrPeerDown) {
		t.Errorf("revoke: %v; the connection: %v", err, p.in.Err())
	}
}

// A peer that gives up before it is accepted is no fault of the listener: Request.Accept fails for the reason of the
// connection's end, which is not net.ErrClosed, and Listener.Accept goes on to the next.
func TestPeerGivesUpBeforeAccept(t *testing.T) {
	ctx := testContext(t)
	f := NewFabric()
	ha, hb := newHost(t, f, "a", nil), newHost(t, f, "b", nil)
	server := hb.open(Config{})
	l, err := server.Listen(ctx, "s")
	must(t, err)
	lead := &server.at.Load().lead
	giveUp := func(asked func()) (hear func()) { // the server does not hear of it before hear is called
		t.Helper()
		client := ha.open(Config{})
		dialled := make(chan error, 1)
		go func() { dialled <- second(client.Dial(ctx, "b", "s")) }()
		asked()
		eventually(t, "nobody leads", 10*time.Second, lead.try)
		hear = sync.OnceFunc(lead.handOff)
		t.Cleanup(hear)
		must(t, client.Close())
		if err := <-dialled; err == nil {
			t.Error("the dial succeeded")
		}
		eventually(t, "the daemon has forgotten the connection", 10*time.Second, func() bool {
			snap, err := hb.d.Snapshot()
			return err == nil && len(snap.Conns) == 0
		})
		return hear
	}

	var r *Request
	hear := giveUp(func() {
		r, err = l.Next(ctx)
		must(t, err)
	})
	refused := make(chan error, 1)
	go func() { refused <- second(r.Accept(ctx, nil)) }()
	hear()
	if err := <-refused; err == nil || errors.Is(err, net.ErrClosed) || err != r.conn.Err() {
		t.Errorf("accept of a request: %v; the connection: %v", err, r.conn.Err())
	}

	hear = giveUp(func() { eventually(t, "a request waits", 10*time.Second, func() bool { return len(l.queue) == 1 }) })
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			err = c.Err()
		}
		accepted <- err
	}()
	eventually(t, "the request is taken", 10*time.Second, func() bool { return len(l.queue) == 0 })
	hear()
	must(t, second(ha.open(Config{}).Dial(ctx, "b", "s")))
	if err := <-accepted; err != nil {
		t.Errorf("accept of the next: %v", err)
	}
}
