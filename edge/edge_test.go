package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"multiedge/internal/ipc"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(childSocketEnv); socket != "" {
		fmt.Fprintln(os.Stderr, beChild(socket)) // ends only by mishap
		os.Exit(1)
	}
	if socket := os.Getenv(childStuckEnv); socket != "" {
		fmt.Fprintln(os.Stderr, beStuckOwner(socket))
		os.Exit(1)
	}
	if socket := os.Getenv(childHeapEnv); socket != "" {
		fmt.Fprintln(os.Stderr, beHeapChild(socket))
		os.Exit(1)
	}
	if file := os.Getenv(childFuseEnv); file != "" {
		fmt.Println(beFuse(file))
		os.Exit(1)
	}
	for env, be := range Children {
		if value := os.Getenv(env); value != "" {
			fmt.Fprintln(os.Stderr, be(value))
			os.Exit(1)
		}
	}
	if socket := os.Getenv(childDaemonEnv); socket != "" {
		fmt.Fprintln(os.Stderr, beDaemon(socket))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// testContext ends long after any test should have.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var modes = []struct {
	Name string
	Cfg  Config
}{
	{"adaptive", Config{}},
	{"block", Config{Wait: Block}},
	{"busy", Config{Wait: Busy}},
	{"shallow", Config{QueueDepth: ipc.MinDepth}},
}

func TestWriteReadNotify(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			ctx := testContext(t)
			p := newDuo(t, m.Cfg, 1<<16)
			copy(p.local.Bytes(), "hello, edge")
			op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, Len: 11, Remote: p.remote, RemoteOff: 100,
				Flags: Notify | BackwardFence, Imm: 7})
			must(t, err)
			must(t, op.Wait(ctx))
			if !op.Done() || op.Err() != nil {
				t.Fatalf("after Wait: done %v, err %v", op.Done(), op.Err())
			}
			n, err := p.in.WaitNotify(ctx)
			must(t, err)
			if n.Imm != 7 || n.Len != 11 || n.Offset != 100 || n.Grant == nil || n.Grant.Region() != p.exported ||
				string(p.exported.Bytes()[100:111]) != "hello, edge" {
				t.Fatalf("notification %+v, memory %q", n, p.exported.Bytes()[100:111])
			}
			op, err = p.out.Post(ctx, &Work{Kind: Read, Local: p.local, LocalOff: 500, Len: 11, Remote: p.remote,
				RemoteOff: 100})
			must(t, err)
			must(t, op.Wait(ctx))
			if string(p.local.Bytes()[500:511]) != "hello, edge" {
				t.Fatalf("read %q", p.local.Bytes()[500:511])
			}
			op, err = p.out.Post(ctx, &Work{Kind: Write, Inline: []byte("inline"), Remote: p.remote})
			must(t, err)
			must(t, WaitAll(ctx, []Op{op, {}}))
			if string(p.exported.Bytes()[:6]) != "inline" {
				t.Fatalf("inline write left %q", p.exported.Bytes()[:6])
			}
		})
	}
}

func TestPostRejects(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	other := newDuo(t, Config{}, 4096)
	ro, err := p.exported.Export(p.in, "ro", RemoteRead, 0, 100)
	must(t, err)
	readOnly, err := p.out.Import(testContext(t), "ro")
	must(t, err)
	for _, tc := range []struct {
		name string
		w    Work
		want error
	}{
		{"no remote", Work{Kind: Write, Local: p.local}, ErrInvalid},
		{"foreign remote", Work{Kind: Write, Local: p.local, Remote: other.remote}, ErrInvalid},
		{"foreign local", Work{Kind: Write, Local: other.local, Remote: p.remote}, ErrInvalid},
		{"no local", Work{Kind: Write, Len: 1, Remote: p.remote}, ErrInvalid},
		{"no kind", Work{Local: p.local, Remote: p.remote}, ErrInvalid},
		{"unknown flag", Work{Kind: Write, Flags: 0x80, Local: p.local, Remote: p.remote}, ErrInvalid},
		{"read with notify", Work{Kind: Read, Flags: Notify, Local: p.local, Remote: p.remote}, ErrInvalid},
		{"inline too long", Work{Kind: Write, Inline: make([]byte, MaxInline+1), Remote: p.remote}, ErrInvalid},
		{"local end", Work{Kind: Write, Local: p.local, LocalOff: 1, Len: 4096, Remote: p.remote}, ErrBounds},
		{"local wrap", Work{Kind: Write, Local: p.local, LocalOff: 1<<63 - 1, Len: 10, Remote: p.remote}, ErrBounds},
		{"negative", Work{Kind: Write, Local: p.local, LocalOff: -1, Len: 10, Remote: p.remote}, ErrBounds},
		{"negative length", Work{Kind: Write, Local: p.local, Len: -1, Remote: p.remote}, ErrBounds},
		{"remote end", Work{Kind: Write, Local: p.local, Len: 10, Remote: p.remote, RemoteOff: 4090}, ErrBounds},
		{"permission", Work{Kind: Write, Local: p.local, Len: 10, Remote: readOnly}, ErrPermission},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := p.out.Post(NoWait, &tc.w); !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
		})
	}
	must(t, ro.Revoke())
	for !readOnly.revoked.Load() { // the event is under way
		runtime.Gosched()
	}
	_, err = p.out.Post(NoWait, &Work{Kind: Read, Local: p.local, Len: 1, Remote: readOnly})
	if !errors.Is(err, ErrRevoked) || !errors.Is(err, ErrKey) {
		t.Fatalf("post to revoked memory: %v", err)
	}
}

func TestFailedOperations(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	ctx := testContext(t)
	for status, want := range map[ipc.Status]error{
		ipc.StatusKey: ErrKey, ipc.StatusOwner: ErrKey, ipc.StatusPermission: ErrPermission,
		ipc.StatusBounds:   ErrBounds,
		ipc.StatusPeerDown: ErrPeerDown, ipc.StatusLimit: ErrLimit, ipc.StatusTimeout: os.ErrDeadlineExceeded,
		ipc.StatusClosed:  io.EOF,
		ipc.StatusAborted: net.ErrClosed,
	} {
		p.f.mu.Lock()
		p.f.fail = status
		p.f.mu.Unlock()
		op, err := p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		must(t, err)
		if err := op.Wait(ctx); !errors.Is(err, want) {
			t.Errorf("status %v: error %v, want %v", status, err, want)
		}
		p.f.mu.Lock()
		p.f.fail = ipc.StatusOK
		p.f.mu.Unlock()
		for range 3000 { // the slot is used by others meanwhile
			o, err := p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
			must(t, err)
			must(t, o.Wait(ctx))
		}
		if err := op.Err(); !errors.Is(err, want) || !op.Done() {
			t.Errorf("status %v: later error %v, want %v", status, err, want)
		}
	}
}

func TestQueueFull(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{QueueDepth: 16}, 4096)
	p.f.setHold(true)
	w := Work{Kind: Write, Inline: []byte{1}, Remote: p.remote}
	ops := make([]Op, 20)
	var works []*Work
	for i := range ops {
		each := w
		each.Op = &ops[i]
		works = append(works, &each)
	}
	last, err := p.out.Post(NoWait, works...)
	if n := slices.Index(ops, Op{}); n != 16 || last != ops[15] || err != ErrAgain {
		t.Fatalf("20 operations on a queue of 16: %d started, %v", n, err)
	}
	if _, err := p.out.Post(NoWait, &w); err != ErrAgain {
		t.Fatalf("post on a full queue: %v", err)
	}
	if ops[0].Done() {
		t.Fatal("operation done although held")
	}
	if err := p.local.Close(); err != nil {
		t.Fatalf("closing an unused region: %v", err)
	}
	posted := make(chan error, 1)
	go func() {
		op, err := p.out.Post(ctx, &w)
		if err == nil {
			err = op.Wait(ctx)
		}
		posted <- err
	}()
	p.f.release()
	must(t, <-posted)
	must(t, WaitAll(ctx, ops))
}

func TestPerConnectionWindow(t *testing.T) {
	f := newFake(t)
	f.window = 4
	p := &duo{f: f}
	p.client, _ = f.open(Config{})
	l, err := p.client.Listen(testContext(t), "svc")
	must(t, err)
	go func() { p.in, _ = l.Accept(context.Background()) }()
	c, err := p.client.Dial(testContext(t), "fake", "svc")
	must(t, err)
	f.setHold(true)
	r := &RemoteRegion{conn: c, key: 1, size: 10, perm: RemoteWrite}
	for i := range 5 {
		_, err := c.Post(NoWait, &Work{Kind: Write, Inline: []byte{1}, Remote: r})
		if (err == ErrAgain) != (i == 4) {
			t.Fatalf("post %d: %v", i, err)
		}
	}
}

func TestRegionBusy(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote})
	must(t, err)
	if err := p.local.Close(); !errors.Is(err, ErrBusy) {
		t.Fatalf("closing a region in use: %v", err)
	}
	p.f.release()
	must(t, op.Wait(ctx))
	must(t, p.local.Close())
	if err := p.local.Close(); err == nil {
		t.Fatal("closing twice succeeded")
	}
	_, err = p.out.Post(ctx, &Work{Kind: Write, Local: p.local, Len: 8, Remote: p.remote})
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("post from a closed region: %v", err)
	}
}

func TestRegisterErrors(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	if _, err := p.client.Register(1 << 31); !errors.Is(err, ErrMemlock) || !strings.Contains(err.Error(), "ulimit") {
		t.Fatalf("too much memory: %v", err)
	}
	if _, err := p.client.Register(0); !errors.Is(err, ErrInvalid) {
		t.Fatalf("no memory: %v", err)
	}
}

func TestDialErrors(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	if _, err := p.client.Dial(ctx, "nowhere", "svc"); !errors.Is(err, ErrPeerUnknown) {
		t.Errorf("unknown peer: %v", err)
	}
	if _, err := p.client.Dial(ctx, "fake", "other"); !errors.Is(err, ErrNoService) {
		t.Errorf("unknown service: %v", err)
	}
	if _, err := p.client.Dial(ctx, "fake", ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("empty service: %v", err)
	}
	if _, err := p.client.Dial(ctx, "fake", "svc", Data(make([]byte, 513))); !errors.Is(err, ErrInvalid) {
		t.Errorf("too much data: %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := p.client.Dial(short, "fake", "svc"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Open(ctx, Config{Socket: t.TempDir() + "/none"}); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("no daemon: %v", err)
	}
	if _, err := Open(ctx, Config{QueueDepth: 3}); !errors.Is(err, ErrInvalid) {
		t.Errorf("odd depth: %v", err)
	}
}

func TestPrivateDataAndRefusal(t *testing.T) {
	ctx := testContext(t)
	f := newFake(t)
	d, _ := f.open(Config{})
	l, err := d.Listen(ctx, "s")
	must(t, err)
	if _, err := d.Listen(ctx, "s"); !errors.Is(err, ErrExists) {
		t.Fatalf("second listener: %v", err)
	}
	go func() {
		r, err := l.Next(ctx)
		if err != nil || string(r.Data()) != "who" || r.Peer() != "fake" {
			t.Errorf("request %+v: %v", r, err)
			return
		}
		if _, err := r.Accept(ctx, []byte("me")); err != nil {
			t.Error(err)
		}
		if r, err = l.Next(ctx); err == nil {
			r.Refuse("not today")
		}
	}()
	c, err := d.Dial(ctx, "fake", "s", Data([]byte("who")), Ordered(), Scheduler("srr"))
	must(t, err)
	if string(c.Data()) != "me" || c.Peer() != "fake" || c.Service() != "s" {
		t.Fatalf("data %q of %q", c.Data(), c.Peer())
	}
	if _, err := d.Dial(ctx, "fake", "s"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "not today") {
		t.Fatalf("refused dial: %v", err)
	}
	must(t, l.Close())
	if _, err := l.Accept(ctx); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("accept after close: %v", err)
	}
}

func TestDialGivenUp(t *testing.T) {
	f := newFake(t)
	d, _ := f.open(Config{})
	l, err := d.Listen(testContext(t), "s")
	must(t, err)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		r, err := l.Next(testContext(t))
		if err != nil {
			t.Error(err)
			return
		}
		cancel()
		c, err := r.Accept(testContext(t), nil)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := c.WaitNotify(testContext(t)); !errors.Is(err, io.EOF) { // the late answer was answered by an abort
			t.Errorf("acceptor of a dial given up: %v", err)
		}
		l.Close()
	}()
	if c, err := d.Dial(ctx, "fake", "s"); err == nil {
		c.Abort() // the answer was faster
	} else if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-l.ended
}

func TestImportWaits(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	got := make(chan *RemoteRegion, 1)
	go func() {
		r, err := p.out.Import(ctx, "late")
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	g, err := p.exported.Export(p.in, "late", RemoteWrite, 96, 1000)
	must(t, err)
	r := <-got
	if r.Size() != 1000 || r.Name() != "late" || r.Perm() != RemoteWrite || r.Conn() != p.out {
		t.Fatalf("imported %+v", r)
	}
	must(t, g.Revoke())
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := p.out.Import(short, "never"); !errors.Is(err, context.Canceled) {
		t.Fatalf("import: %v", err)
	}
	must(t, p.in.Close())
	if _, err := p.out.Import(ctx, "never"); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("import on a closed connection: %v", err)
	}
	for _, err := range []error{
		func() error { _, err := p.exported.Export(p.out, "x", RemoteRead, 0, 1); return err }(),
		func() error { _, err := p.local.Export(p.out, "", RemoteRead, 0, 1); return err }(),
		func() error { _, err := p.local.Export(p.out, "x", 0, 0, 1); return err }(),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("export: %v", err)
		}
	}
	if _, err := p.local.Export(p.out, "x", RemoteRead, 4000, 97); !errors.Is(err, ErrBounds) {
		t.Errorf("export past the end: %v", err)
	}
}

func TestNotificationsBeforeTheEnd(t *testing.T) {
	ctx := testContext(t)
	p := newDuo(t, Config{}, 4096)
	const n = 1000 // several times the credit
	go func() {
		for i := range n {
			if _, err := p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Flags: Notify,
				Imm: uint32(i)}); err != nil {
				t.Error(err)
			}
		}
		if err := p.out.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range n {
		got, err := p.in.WaitNotify(ctx)
		if err != nil || got.Imm != uint32(i) {
			t.Fatalf("notification %d: %+v, %v", i, got, err)
		}
	}
	if p.send.credits.Load() == 0 {
		t.Error("no credit was returned")
	}
	_, err := p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("post after close: %v", err)
	}
	if err := p.out.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

func TestCloseDrains(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	op, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte("x"), Remote: p.remote})
	must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- p.out.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed with an operation in flight: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	p.f.release()
	must(t, <-closed)
	if !op.Done() || op.Err() != nil || p.exported.Bytes()[0] != 'x' {
		t.Fatalf("operation done %v, %v", op.Done(), op.Err())
	}
}

func TestCloseContextAborts(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	_, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte("x"), Remote: p.remote})
	must(t, err)
	ctx, cancel := context.WithTimeout(testContext(t), time.Millisecond)
	defer cancel()
	if err := p.out.CloseContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("close: %v", err)
	}
	if !errors.Is(p.out.Err(), net.ErrClosed) {
		t.Fatalf("connection: %v", p.out.Err())
	}
	p.f.release()
}

func TestReadAtWriteAt(t *testing.T) {
	ctx := testContext(t)
	const size = 5*bounceChunk + 777
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			p := newDuo(t, m.Cfg, size)
			var _ io.ReaderAt = p.remote
			var _ io.WriterAt = p.remote
			for _, n := range []int{0, 1, 100, bounceChunk - 1, bounceChunk, bounceChunk + 1, size - 3} {
				in, out := make([]byte, n), make([]byte, n)
				for i := range in {
					in[i] = byte(i*7 + n)
				}
				if got, err := p.remote.WriteAt(in, 3); got != n || err != nil {
					t.Fatalf("write of %d: %d, %v", n, got, err)
				}
				if !bytes.Equal(p.exported.Bytes()[3:3+n], in) {
					t.Fatalf("write of %d: wrong bytes", n)
				}
				if got, err := p.remote.ReadAt(out, 3); got != n || err != nil || !bytes.Equal(in, out) {
					t.Fatalf("read of %d: %d, %v", n, got, err)
				}
			}
			all, err := io.ReadAll(io.NewSectionReader(p.remote, 0, 1<<40))
			if err != nil || !bytes.Equal(all, p.exported.Bytes()) {
				t.Fatalf("reading all: %d bytes, %v", len(all), err)
			}
			if n, err := p.remote.ReadAt(make([]byte, 10), size-4); n != 4 || err != io.EOF {
				t.Fatalf("read across the end: %d, %v", n, err)
			}
			if n, err := p.remote.ReadAt(nil, size+1); n != 0 || err != nil {
				t.Fatalf("read of nothing beyond the end: %d, %v", n, err)
			}
			if n, err := p.remote.WriteAt(make([]byte, 10), size-4); n != 0 || !errors.Is(err, ErrBounds) {
				t.Fatalf("write across the end: %d, %v", n, err)
			}
			short, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := p.remote.WriteAtContext(short, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
				t.Fatalf("cancelled write: %v", err)
			}
		})
	}
}

// An abandoned transfer keeps its slots until its operations end, and not longer.
func TestBounceSlotsComeBack(t *testing.T) {
	p := newDuo(t, Config{Bounce: bounceBlock}, 1<<20)
	_, err := p.remote.WriteAt([]byte{1}, 0)
	must(t, err)
	a := p.client.at.Load().bounce.Load()
	for range 10 {
		p.f.setHold(true)
		ctx, cancel := context.WithTimeout(testContext(t), time.Millisecond)
		if _, err := p.remote.WriteAtContext(ctx, make([]byte, 1<<20), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
		if got := len(a.free); got != bounceSlots-bounceDepth {
			t.Fatalf("%d slots are free while %d are in flight", got, bounceDepth)
		}
		p.f.release()
		p.client.at.Load().sync()
		for len(a.free) != bounceSlots { // the fake may still complete
			p.client.Poll()
		}
	}
	p.f.mu.Lock()
	p.f.fail = ipc.StatusPeerDown
	p.f.mu.Unlock()
	if n, err := p.remote.WriteAt(make([]byte, 1<<20), 0); n != 0 || !errors.Is(err, ErrPeerDown) {
		t.Fatalf("%d, %v", n, err)
	}
	for len(a.free) != bounceSlots {
		p.client.Poll()
	}
}

// Who waits for a slot of the bounce arena gets one when the operation of a call that gave up ends, although nobody
// else takes completions, and when another call gives one back.
func TestBounceSlotsAreWaitedFor(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			m.Cfg.Bounce = bounceBlock
			p := newDuo(t, m.Cfg, 1<<20)
			_, err := p.remote.WriteAt([]byte{1}, 0)
			must(t, err)
			a := p.client.at.Load().bounce.Load()
			write := func() chan error {
				done := make(chan error, 1)
				go func() {
					_, err := p.remote.WriteAtContext(testContext(t), []byte{2}, 0)
					done <- err
				}()
				for a.wanting.Load() == 0 {
					runtime.Gosched()
				}
				return done
			}

			p.f.setHold(true)
			for len(a.free) > 0 {
				ctx, cancel := context.WithTimeout(testContext(t), time.Millisecond)
				if _, err := p.remote.WriteAtContext(ctx, make([]byte, 1<<20), 0); !errors.Is(err,
					context.DeadlineExceeded) {
					t.Fatal(err)
				}
				cancel()
				if m.Cfg.QueueDepth != 0 { // the queue is full before the arena is
					for len(a.free) > 0 {
						<-a.free
					}
				}
			}
			done := write()
			p.f.release()
			must(t, <-done)

			for p.client.at.Load().sync(); len(a.free) > 0; {
				<-a.free
			}
			done = write()
			a.giveBack(0)
			must(t, <-done)
		})
	}
}
