package edge

import (
	"context"
	"errors"
	"testing"
	"time"
)

// cram has more requests made by d than its control socket holds, while the daemon, whose lock the caller holds, takes
// none.
func cram(ctx context.Context, t *testing.T, d *Device, requests ...func() error) <-chan error {
	t.Helper()
	for range 64 {
		requests = append(requests, func() error { return second(d.status(ctx, "status")) })
	}
	ended := make(chan error, len(requests))
	for _, f := range requests {
		go func() { ended <- f() }()
	}
	calls := &d.at.Load().calls
	eventually(t, "requests", 10*time.Second, func() bool {
		calls.mu.Lock()
		defer calls.mu.Unlock()
		return len(calls.pending) == len(requests)
	})
	return ended
}

// Requests to a daemon that takes none end with their context, wherever they are held up, and the daemon understands
// what comes after them.
func TestRequestsToHungDaemon(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	d := p.client
	ctx, cancel := context.WithCancel(testContext(t))
	func() {
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		ended := cram(ctx, t, d,
			func() error { return second(d.RegisterContext(ctx, 4096)) },
			func() error { return second(d.Dial(ctx, "fake", "nothing")) },
			func() error { return second(d.Listen(ctx, "other")) },
			func() error { return second(p.local.export(ctx, p.out, "mine", RemoteRead, 0, 1)) },
		)
		cancel()
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("a request ended with %v", err)
				return
			}
		}
	}()
	must(t, second(d.status(testContext(t), "status")))
}

// Nor does giving up a Close wait for the daemon to take the Abort.
func TestCloseWithHungDaemon(t *testing.T) {
	p := newDuo(t, Config{}, 4096)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	ended := cram(ctx, t, p.client)
	over, end := context.WithCancel(ctx)
	end()
	if err := p.out.CloseContext(over); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-ended:
		t.Errorf("it waited for the daemon, until a request ended with %v", err)
	default:
	}
}
