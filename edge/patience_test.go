package edge

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"multiedge/internal/ipc"
)

// blocked is two devices of which the client sleeps at once, and is left alone by the daemon as ABI A8.8 has it, but
// without any limit in time.
func blocked(t *testing.T) (p *duo, ops []Op) {
	p = newDuo(t, Config{Wait: Block}, 4096)
	p.f.setHold(true)
	ops = make([]Op, 8)
	for i := range ops {
		op, err := p.out.Post(testContext(t), &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote})
		must(t, err)
		ops[i] = op
	}
	eventually(t, "the daemon has them", 30*time.Second, func() bool {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		p.cend.cq.More, p.cend.patient = true, true
		return len(p.f.held) == len(ops)
	})
	return p, ops
}

// end completes one of the operations that are held.
func (p *duo) end(i int, status ipc.Status) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	e := p.f.held[i].e
	p.cend.complete(&ipc.CQE{Kind: ipc.CQComplete, Status: status, Conn: e.Conn, Token: e.Token})
	p.cend.publish()
}

// sleeps waits until the client sleeps for so many operations; 0: for none that ends well.
func (p *duo) sleeps(t *testing.T, n uint32) {
	t.Helper()
	d := p.client.at.Load()
	eventually(t, "the client sleeps", 30*time.Second, func() bool {
		return p.cend.rings.ClientAsleep() && max(p.cend.rings.ClientAwaits(), 1) == max(n, 1) &&
			d.lead.patient.Load() == (n != 1)
	})
}

// run returns what f does, when it has.
func run(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// A goroutine that waits for several operations is woken once, when all of them have ended, in whatever order.
func TestWaitAllSleepsOnce(t *testing.T) {
	p, ops := blocked(t)
	done := run(func() error { return WaitAll(testContext(t), ops[:4]) })
	p.sleeps(t, 4)
	for i, k := range []int{3, 1, 0} {
		p.end(k, ipc.StatusOK)
		p.f.mu.Lock()
		held, _ := p.cend.cq.Held()
		p.f.mu.Unlock()
		if !held {
			t.Errorf("woken after %d of 4", i+1)
		}
	}
	p.end(2, ipc.StatusOK)
	must(t, <-done)
}

// A leader that was about to sleep for notifications alone hears of an operation of its queue that was posted just
// before it slept, and nobody saw then that it is patient.
func TestPostBeforeTheSleepCounts(t *testing.T) {
	p, _ := blocked(t)
	q, err := p.client.NewCompletionQueue(8)
	must(t, err)
	d := p.client.at.Load()
	for !d.lead.try() {
	}
	w := waiter{kind: waitQueue, queue: q, least: 1}
	asks := d.asks(&w)
	_, err = p.out.Post(testContext(t), &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Queue: q})
	must(t, err)
	done := make(chan struct{})
	go func() {
		d.block(&w, nil, asks)
		d.resign()
		close(done)
	}()
	eventually(t, "the daemon has it, and the client sleeps", 30*time.Second, func() bool {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		return len(p.f.held) == 9 && p.cend.rings.ClientAsleep()
	})
	p.end(8, ipc.StatusOK)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("it sleeps on, having asked for %d", asks)
	}
}

// A failure is told at once.
func TestFailureWakesThePatient(t *testing.T) {
	p, ops := blocked(t)
	done := run(func() error { return WaitAll(testContext(t), ops[:4]) })
	p.sleeps(t, 4)
	p.end(1, ipc.StatusKey)
	p.sleeps(t, 3)
	for _, k := range []int{0, 2, 3} {
		p.end(k, ipc.StatusOK)
	}
	if err := <-done; !errors.Is(err, ErrKey) {
		t.Errorf("%v", err)
	}
}

// One who waits for a single operation is woken when it ends, though another waits for many, or for notifications.
func TestPatienceEndsWhenOthersWait(t *testing.T) {
	for name, patient := range map[string]func(ctx context.Context, p *duo, ops []Op) error{
		"many":          func(ctx context.Context, p *duo, ops []Op) error { return WaitAll(ctx, ops[:7]) },
		"notifications": func(ctx context.Context, p *duo, ops []Op) error { return second(p.out.WaitNotify(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			p, ops := blocked(t)
			ctx, cancel := context.WithCancel(testContext(t))
			asks := map[string]uint32{"many": 7}[name]
			first := run(func() error { return patient(ctx, p, ops) })
			p.sleeps(t, asks)
			second := run(func() error { return ops[7].Wait(testContext(t)) })
			p.sleeps(t, 1)
			p.end(7, ipc.StatusOK)
			must(t, <-second)
			// nobody waits for it, but somebody looks
			p.end(6, ipc.StatusOK)
			eventually(t, "an operation is seen to be done", 30*time.Second, ops[6].Done)
			cancel()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Done looks at the ring where nobody does, and has a leader look that sleeps for many operations.
func TestDoneHurriesThePatient(t *testing.T) {
	p, ops := blocked(t)
	done := run(func() error { return WaitAll(testContext(t), ops) })
	p.sleeps(t, 8)
	p.end(7, ipc.StatusOK)
	eventually(t, "an operation is seen to be done", 30*time.Second, ops[7].Done)
	for k := range 7 {
		p.end(k, ipc.StatusOK)
	}
	must(t, <-done)
}

// A goroutine that waits for a queue without operations is not woken by operations of others. An operation that is then
// posted to the queue wakes it, and so does that operation's end.
func TestQueueHurriesForItsFirstOperation(t *testing.T) {
	p, _ := blocked(t)
	q, err := p.client.NewCompletionQueue(4)
	must(t, err)
	out := make([]Completion, 4)
	n := 0
	done := run(func() (err error) {
		n, err = q.Wait(testContext(t), out)
		return err
	})
	p.sleeps(t, 0)
	_, err = p.out.Post(testContext(t), &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Queue: q, Context: 5})
	must(t, err)
	eventually(t, "the daemon has it", 30*time.Second, func() bool {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		return len(p.f.held) == 9
	})
	p.sleeps(t, 1)
	p.end(8, ipc.StatusOK)
	if err := <-done; err != nil || n != 1 || out[0].Context != 5 {
		t.Errorf("%d completions, %+v, %v", n, out[0], err)
	}
}

// WaitAtLeast returns when so many completions are there, when no operation of the queue is left, and with fewer when
// its context ends.
func TestWaitAtLeast(t *testing.T) {
	p, _ := blocked(t)
	q, err := p.client.NewCompletionQueue(8)
	must(t, err)
	out := make([]Completion, 8)
	wait := func(ctx context.Context, least int) <-chan int {
		done := make(chan int, 1)
		go func() {
			n, err := q.WaitAtLeast(ctx, out, least)
			if err != nil {
				n = -1
			}
			done <- n
		}()
		return done
	}
	for range 6 {
		_, err = p.out.Post(testContext(t), &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote, Queue: q})
		must(t, err)
	}
	eventually(t, "the daemon has them", 30*time.Second, func() bool {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		return len(p.f.held) == 14
	})
	check := func(what string, got <-chan int, want int) {
		t.Helper()
		if n := <-got; n != want {
			t.Errorf("%s: %d completions, want %d", what, n, want)
		}
	}
	ctx := testContext(t)
	done := wait(ctx, 3)
	p.sleeps(t, 3)
	for k := range 3 {
		p.end(8+k, ipc.StatusOK)
	}
	check("as many", done, 3)
	short, cancel := context.WithCancel(ctx)
	done = wait(short, 2)
	p.sleeps(t, 2)
	p.end(11, ipc.StatusOK)
	cancel()
	check("the context ends", done, 1)
	done = wait(ctx, 8)
	p.sleeps(t, 2) // no more are left
	p.f.mu.Lock()
	p.cend.cq.More = false // nothing is in flight, as far as this daemon says
	p.f.mu.Unlock()
	p.end(12, ipc.StatusOK)
	p.end(13, ipc.StatusOK)
	check("no operation is left", done, 2)
	for _, least := range []int{0, -1, 9} {
		if _, err := q.WaitAtLeast(ctx, out, least); !errors.Is(err, ErrInvalid) {
			t.Errorf("at least %d: %v", least, err)
		}
	}
}

// A poster that finds no room sleeps until a share of what is in flight has ended.
func TestRoomIsWaitedForInShares(t *testing.T) {
	p, _ := blocked(t)
	w := &Work{Kind: Write, Inline: []byte{1}, Remote: p.remote}
	n := 8
	for ; ; n++ {
		if _, err := p.out.Post(NoWait, w); err == ErrAgain {
			break
		} else {
			must(t, err)
		}
	}
	eventually(t, "the daemon has them", 30*time.Second, func() bool {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		return len(p.f.held) == n
	})
	done := run(func() error { return second(p.out.Post(testContext(t), w)) })
	share := n / roomShare
	p.sleeps(t, uint32(share))
	for k := range share {
		if !p.cend.rings.ClientAsleep() {
			t.Fatalf("woken when %d of %d had ended", k, share)
		}
		p.end(k, ipc.StatusOK)
	}
	must(t, <-done)
}

// An event loop hears of each operation, though another goroutine waits for many.
func TestArmHurriesThePatient(t *testing.T) {
	p, ops := blocked(t)
	fd, err := p.client.PollFD()
	must(t, err)
	done := run(func() error { return WaitAll(testContext(t), ops) })
	p.sleeps(t, 8)
	for !p.client.Arm() {
		p.client.Poll()
	}
	p.end(7, ipc.StatusOK)
	eventually(t, "the loop is woken", 30*time.Second, func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
	for k := range 7 {
		p.end(k, ipc.StatusOK)
	}
	must(t, <-done)
}
