package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/idle"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/regmem"
)

// Many goroutines share a device: every operation completes once, every notification is seen once.
func TestManyGoroutines(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			ctx := testContext(t)
			p := newDuo(t, m.Cfg, 1<<16)
			const workers, each = 16, 200
			var wg sync.WaitGroup
			for w := range workers {
				wg.Add(2)
				go func() {
					defer wg.Done()
					for i := range each {
						op, err := p.out.Post(ctx, &Work{Kind: Write, Local: p.local, LocalOff: 64 * w, Len: 64,
							Remote:    p.remote,
							RemoteOff: 64 * w, Flags: Notify, Imm: uint32(w*each + i)})
						if err == nil {
							err = op.Wait(ctx)
						}
						if err != nil {
							t.Errorf("worker %d, operation %d: %v", w, i, err)
							return
						}
					}
				}()
				go func() {
					defer wg.Done()
					for range each {
						if _, err := p.in.WaitNotify(ctx); err != nil {
							t.Errorf("worker %d: %v", w, err)
							return
						}
					}
				}()
			}
			wg.Wait()
			if _, ok := p.in.takeNote(); ok {
				t.Error("a notification too many")
			}
			if n := p.client.at.Load().lead.followers.Load() + p.client.at.Load().lead.others.Load() +
				p.out.inflight.Load() + p.local.inflight.Load(); n != 0 {
				t.Errorf("%d left behind", n)
			}
		})
	}
}

// waitersOfEveryKind starts a goroutine for each way to wait and returns their errors once all wait.
func waitersOfEveryKind(t *testing.T, ctx context.Context, p *duo) <-chan error {
	t.Helper()
	p.f.setHold(true)
	w := Work{Kind: Write, Inline: []byte{1}, Remote: p.remote}
	l, err := p.client.Listen(ctx, "unused")
	must(t, err)
	var ops []Op
	for {
		op, err := p.out.Post(NoWait, &w)
		if err == ErrAgain {
			break
		}
		must(t, err)
		ops = append(ops, op)
	}
	errs := make(chan error, 8)
	for i, f := range []func() error{
		func() error { return ops[0].Wait(ctx) },
		func() error { return ops[1].Wait(ctx) },
		func() error { return ops[1].Wait(ctx) },
		func() error { _, err := p.out.WaitNotify(ctx); return err },
		func() error { _, err := p.out.Post(ctx, &w); return err },
		func() error { _, err := p.out.Import(ctx, "never"); return err },
		func() error { _, err := l.Accept(ctx); return err },
		func() error { _, err := p.remote.WriteAtContext(ctx, make([]byte, 200), 0); return err },
	} {
		go func() {
			if err := f(); err != nil {
				errs <- err
			} else {
				errs <- fmt.Errorf("waiter %d got what it waited for", i)
			}
		}()
	}
	for p.client.at.Load().lead.followers.Load() < 5 {
		runtime.Gosched()
	}
	return errs
}

func TestDaemonDies(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			cfg := m.Cfg
			cfg.QueueDepth = ipc.MinDepth
			p := newDuo(t, cfg, 4096)
			_, err := p.remote.WriteAt([]byte{1}, 0)
			must(t, err)
			errs := waitersOfEveryKind(t, testContext(t), p)
			p.cend.end()
			for range 8 {
				if err := <-errs; !errors.Is(err, ErrDaemonDown) {
					t.Errorf("waiter: %v", err)
				}
			}
			if _, err := p.client.Register(1); !errors.Is(err, ErrDaemonDown) {
				t.Errorf("register: %v", err)
			}
			if _, err := p.out.Post(NoWait, &Work{}); !errors.Is(err, ErrDaemonDown) {
				t.Errorf("post: %v", err)
			}
			if p.client.Arm() {
				t.Error("armed a dead device")
			}
			must(t, p.local.Close())
			p.out.Close()
		})
	}
}

func TestCloseUnderWaiters(t *testing.T) {
	p := newDuo(t, Config{QueueDepth: ipc.MinDepth}, 4096)
	_, err := p.remote.WriteAt([]byte{1}, 0)
	must(t, err)
	errs := waitersOfEveryKind(t, testContext(t), p)
	must(t, p.client.Close())
	for range 8 {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("waiter: %v", err)
		}
	}
	must(t, p.client.Close())
}

func TestCancelWakes(t *testing.T) {
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			cfg := m.Cfg
			cfg.QueueDepth = ipc.MinDepth
			p := newDuo(t, cfg, 4096)
			_, err := p.remote.WriteAt([]byte{1}, 0)
			must(t, err)
			ctx, cancel := context.WithCancel(testContext(t))
			errs := waitersOfEveryKind(t, ctx, p)
			cancel()
			for range 8 {
				if err := <-errs; !errors.Is(err, context.Canceled) {
					t.Errorf("waiter: %v", err)
				}
			}
			if l := &p.client.at.Load().lead; l.head != nil || l.followers.Load() != 0 || l.taken {
				t.Errorf("waiters left behind: %+v", l.head)
			}
		})
	}
}

// The leader leaves while others wait: one of them must go on.
func TestHandOff(t *testing.T) {
	p := newDuo(t, Config{Wait: Block}, 4096)
	p.f.setHold(true)
	post := func() Op {
		op, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		must(t, err)
		return op
	}
	a, b := post(), post()
	leading, cancel := context.WithCancel(testContext(t))
	left := make(chan error, 2)
	go func() { left <- a.Wait(leading) }()
	for !p.client.at.Load().lead.isTaken() {
		runtime.Gosched()
	}
	go func() { left <- b.Wait(testContext(t)) }()
	for p.client.at.Load().lead.followers.Load() == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.f.release()
	must(t, <-left)
	must(t, a.Wait(testContext(t)))
}

// Close ends a Post that waits for room, whether that leads or follows, before there is any.
func TestCloseWakesPost(t *testing.T) {
	for _, leads := range []bool{true, false} {
		p := newDuo(t, Config{QueueDepth: ipc.MinDepth, Wait: Block}, 4096)
		p.f.setHold(true)
		ctx := testContext(t)
		w := Work{Kind: Write, Inline: []byte{1}, Remote: p.remote}
		var first Op
		for {
			op, err := p.out.Post(NoWait, &w)
			if err == ErrAgain {
				break
			}
			must(t, err)
			first = op
		}
		l := &p.client.at.Load().lead
		led := make(chan error, 1)
		if leads {
			led <- nil
		} else {
			go func() { led <- first.Wait(ctx) }()
			eventually(t, "an operation is waited for", 10*time.Second, l.isTaken)
		}
		posted := make(chan error, 1)
		go func() { posted <- second(p.out.Post(ctx, &w)) }()
		eventually(t, "room is waited for", 10*time.Second, func() bool {
			return l.isTaken() &&
				(leads || l.others.Load() > 0)
		})
		closed := make(chan error, 1)
		go func() { closed <- p.out.Close() }()
		select {
		case err := <-posted:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("leading %v: %v", leads, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("leading %v: it goes on", leads)
		}
		p.f.release()
		must(t, <-closed)
		must(t, <-led)
	}
}

func (l *leadership) isTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// Room in a submission ring that was full of credit comes without a completion and without a doorbell, and is found.
func TestRoomAfterCredit(t *testing.T) {
	p := newDuo(t, Config{QueueDepth: ipc.MinDepth, Wait: Block}, 4096)
	d := p.client.at.Load()
	before := p.f.submits.Load()
	p.f.mu.Lock()
	d.returnOne(p.out)
	for p.f.submits.Load() == before { // the daemon has taken it, and stops there
		runtime.Gosched()
	}
	for range ipc.MinDepth {
		d.returnOne(p.out)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.out.Post(context.Background(), &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		done <- err
	}()
	for d.lead.try() {
		d.lead.handOff()
		runtime.Gosched()
	}
	for range 1000 { // it goes to sleep
		runtime.Gosched()
	}
	p.f.mu.Unlock()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the room is not seen")
	}
}

// While credit finds no room, because the daemon stands still, the leader sleeps, and the credit is given back once
// there is room.
func TestLeaderSleepsOwingCredit(t *testing.T) {
	p := newDuo(t, Config{QueueDepth: ipc.MinDepth, Wait: Block}, 4096)
	d := p.client.at.Load()
	before := p.f.submits.Load()
	p.f.mu.Lock()
	goOn := sync.OnceFunc(p.f.mu.Unlock)
	defer goOn()
	d.returnOne(p.out)
	for p.f.submits.Load() == before {
		runtime.Gosched()
	}
	for range ipc.MinDepth + 1 {
		d.returnOne(p.out)
	}
	if !d.out.ringFull.Load() {
		t.Fatal("there is room for credit: the test tests nothing")
	}
	ctx, cancel := context.WithCancel(testContext(t))
	waits := make(chan error, 1)
	go func() { waits <- second(p.out.WaitNotify(ctx)) }()
	eventually(t, "the leader sleeps", 10*time.Second, func() bool {
		// of no connection: publishing it says whether the client sleeps
		p.cend.complete(&ipc.CQE{Kind: ipc.CQNotify, Conn: 1 << 20})
		return p.cend.cq.Publish()
	})
	goOn()
	eventually(t, "the credit is given back", 10*time.Second, func() bool {
		d.out.post.Lock()
		defer d.out.post.Unlock()
		return !p.out.owes
	})
	cancel()
	<-waits
}

// returnOne gives back credit that was never owed; the fake does not mind.
func (d *attachment) returnOne(c *Conn) {
	c.notes.mu.Lock()
	c.notes.owed++
	c.notes.mu.Unlock()
	d.returnCredit(c)
}

func TestPollFD(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	fd, err := p.client.PollFD()
	must(t, err)
	if again, err := p.client.PollFD(); err != nil || again != fd {
		t.Fatalf("second descriptor %d, %v", again, err)
	}
	for i := range 200 {
		op, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		must(t, err)
		if i%2 == 1 { // a leader takes the completion away
			go p.client.at.Load().sync()
		}
		for !op.Done() {
			if !p.client.Arm() {
				continue
			}
			pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(pfd, 5000)
			for err == unix.EINTR {
				n, err = unix.Poll(pfd, 5000)
			}
			if n != 1 {
				t.Fatalf("round %d: poll says %d, %v", i, n, err)
			}
		}
	}
}

// A daemon that writes nonsense is a dead daemon, and nothing worse.
func TestHostileDaemon(t *testing.T) {
	for name, entry := range map[string]ipc.CQE{
		"slot out of range":    {Kind: ipc.CQComplete, Token: 1 << 20},
		"idle slot":            {Kind: ipc.CQComplete, Token: 5},
		"wrong generation":     {Kind: ipc.CQComplete, Token: 77 << 32},
		"unknown kind":         {Kind: 9},
		"notification unasked": {Kind: ipc.CQNotify, Conn: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newDuo(t, Config{}, 4096)
			p.f.setHold(true)
			op, err := p.out.Post(NoWait, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
			must(t, err)
			p.f.mu.Lock()
			n := 1
			if entry.Kind == ipc.CQNotify {
				entry.Conn = p.out.id
				n = ipc.NotifyCredit + 1
			}
			for range n {
				p.cend.complete(&entry)
			}
			p.cend.publish()
			p.f.mu.Unlock()
			if err := op.Wait(testContext(t)); !errors.Is(err, ErrDaemonDown) {
				t.Fatalf("operation: %v", err)
			}
		})
	}
}

// An adaptive waiter says that it polls, and says so no more afterwards. One that found another thread on its core
// sleeps instead: the next one may have the core to itself.
func TestWaiterSaysThatItPolls(t *testing.T) {
	p := newDuo(t, Config{Spin: time.Hour}, 4096)
	ctx := testContext(t)
	for polled := false; !polled; {
		p.f.setHold(true)
		op, err := p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		must(t, err)
		waited := make(chan error, 1)
		go func() { waited <- op.Wait(ctx) }()
		for look := mono.Now().Add(50 * time.Millisecond); !polled && mono.Now() < look; runtime.Gosched() {
			polled = p.cend.rings.ClientPolling() == ipc.Polls
		}
		p.f.release()
		must(t, <-waited)
		if p.cend.rings.ClientPolling() != ipc.NotPolling {
			t.Fatal("still flagged as polling")
		}
	}
}

// What a leader says it polls for follows from who waits, and for what: operations are nothing to one who waits for
// notifications, unless another waits for one or they end in the queue that he waits for.
func TestWaiterSaysForWhatItPolls(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.setHold(true)
	ctx, end := context.WithCancel(testContext(t))
	d := p.client.at.Load()
	q, err := p.client.NewCompletionQueue(4)
	must(t, err)
	for _, kind := range []waitKind{waitOp, waitRoom, waitPass, waitIdle, waitOver, waitBounce, waitCond} {
		if got := polls(d.asks(&waiter{kind: kind, queue: q, conn: p.out, cond: &cond{}})); got != ipc.Polls {
			t.Errorf("one who waits for %d says %d", kind, got)
		}
	}
	notes, queue := &waiter{kind: waitNote}, &waiter{kind: waitQueue, queue: q}
	check := func(what string, w *waiter, want ipc.Polling) {
		t.Helper()
		if got := polls(d.asks(w)); got != want {
			t.Errorf("%s: says %d, want %d", what, got, want)
		}
	}
	check("notifications", notes, ipc.PollsForPeer)
	check("a queue for which there are no operations", queue, ipc.PollsForPeer)
	_, err = p.out.Post(ctx, &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Queue: q})
	must(t, err)
	check("a queue for which there is one", queue, ipc.Polls)
	check("notifications, with an operation that goes to a queue", notes, ipc.PollsForPeer)
	p.f.release()
	_, err = q.Wait(ctx, make([]Completion, 1))
	must(t, err)
	check("that queue, when the operation has ended", queue, ipc.PollsForPeer)
	if !d.lead.try() {
		t.Fatal("somebody leads")
	}
	followed := make(chan error, 1)
	go func() { followed <- second(p.out.WaitNotify(ctx)) }()
	for d.lead.followers.Load() == 0 {
		runtime.Gosched()
	}
	check("notifications, while another waits", notes, ipc.Polls)
	end()
	<-followed
	d.resign()
}

func TestStrategyGivesUpYielding(t *testing.T) {
	p := newDuo(t, Config{Spin: time.Hour}, 4096)
	d := p.client.at.Load()
	s := strategy{patience: idle.Patience{Base: time.Hour}}
	s.begin()
	if s.idle(d, false, 1) {
		t.Fatal("blocks at the first look")
	}
	if s.idle(d, true, 1) || s.since != 0 {
		t.Fatal("progress does not restart the polling")
	}
	s.core.Yielded(mono.Now().Add(time.Hour), time.Second)
	if !s.idle(d, false, 1) || s.polling != ipc.NotPolling {
		t.Fatal("polls although others need the core")
	}
	d.cfg.Wait = Busy
	if s.idle(d, false, 1) {
		t.Fatal("Busy blocks")
	}
	d.cfg.Wait = Block
	if !s.idle(d, false, 1) {
		t.Fatal("Block polls")
	}
	s.end(d)
}

// A slow yield long ago is forgotten, at every look: one that drives its transport may not yield for a long time after
// it.
func TestStrategyForgetsSlowYields(t *testing.T) {
	p := newDuo(t, Config{Spin: time.Hour}, 4096)
	d := p.client.at.Load()
	d.drive = idleDriver{}
	defer func() { d.drive = nil }()
	long := mono.Now().Add(-time.Hour)
	s := strategy{patience: idle.Patience{Base: time.Hour}}
	s.begin()
	for look := range 3 {
		s.core, s.seen = idle.Contention{}, long // whatever the latest look's own yield took on this machine
		s.core.Yielded(long, time.Second)
		if s.idle(d, false, 1) {
			t.Fatalf("blocks at look %d, an hour after a slow yield", look)
		}
	}
	s.end(d)
}

// idleDriver is a transport with nothing to do.
type idleDriver struct{}

func (idleDriver) Drive() (worked, ran bool)                     { return false, true }
func (idleDriver) DriverSleep(int)                               {}
func (idleDriver) Policy(func(a, b regmem.ChunkUse) bool) uint32 { return 0 }
func (idleDriver) Memory(int) *regmem.Memory                     { return nil }

func TestFailuresAreBounded(t *testing.T) {
	var f failures
	for i := range uint32(maxFailures + 10) {
		f.add(i%8, i, ipc.StatusKey)
	}
	if len(f.byOp) != maxFailures || f.get(0, 0) != ipc.StatusOK || f.get(1, 9) != ipc.StatusOK ||
		f.get(2, 10) != ipc.StatusKey {
		t.Fatalf("%d failures remembered", len(f.byOp))
	}
}

// ReadAtContext and WriteAtContext end with their context also while another call waits for the memory that both need.
func TestBounceTurn(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	p.f.mu.Lock() // the daemon does not answer
	first := make(chan error, 1)
	go func() {
		_, err := p.remote.ReadAt(make([]byte, 10), 0)
		first <- err
	}()
	for len(p.client.at.Load().bounceTurn) == 0 {
		runtime.Gosched()
	}
	short, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := p.remote.ReadAtContext(short, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("reading: %v", err)
	}
	if _, err := p.remote.WriteAtContext(short, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("writing: %v", err)
	}
	p.f.mu.Unlock()
	must(t, <-first)
}
