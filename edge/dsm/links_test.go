package dsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"multiedge/edge"
	"multiedge/edge/fabric"
)

// joined returns two ranks that have found each other.
func joined(t *testing.T) (ranks [2]*links) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	fab := fabric.New()
	t.Cleanup(func() { fab.Close() })
	ends := make(chan error, 2)
	for rank := range ranks {
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", rank), edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Name: "t", Rank: rank, Ranks: 2, Root: "n0", Device: d, Size: 1 << 16}
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		go func() {
			l, err := join(ctx, &c)
			ranks[rank] = l
			ends <- err
		}()
	}
	for range ranks {
		if err := <-ends; err != nil {
			t.Fatal(err)
		}
	}
	return ranks
}

// A rank that leaves in order is not lost for those who have yet to hear that the run is over; one that fails is.
func TestEndOfConnection(t *testing.T) {
	for _, why := range []error{nil, errors.New("no more")} {
		ranks := joined(t)
		go ranks[1].leave(why)
		ranks[0].watch(1) // returns when the connection has ended
		var gone *lost
		if cause := context.Cause(ranks[0].ctx); errors.As(cause, &gone) != (why != nil) {
			t.Errorf("after %v: %v", why, cause)
		}
		ranks[0].leave(nil)
		if ranks[0].ctx.Err() == nil {
			t.Errorf("after %v: the context of rank 0 goes on", why)
		}
	}
}

// A rank that loses its own daemon does not say that another rank is lost.
func TestOwnDaemonIsNamed(t *testing.T) {
	l := joined(t)[0]
	for own, want := range map[error]bool{edge.ErrDaemonDown: true, edge.ErrReset: false, edge.ErrPeerDown: false} {
		if err := l.cause(1, own); !errors.Is(err, own) || errors.Is(err, ErrRank) == want {
			t.Errorf("%v: %v", own, err)
		}
	}
}

// Nobody but the ranks that are expected is let in.
func TestOthersAreRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fab := fabric.New()
	defer fab.Close()
	var devs [2]*edge.Device
	for i := range devs {
		d, err := fab.OpenConfig(ctx, fmt.Sprintf("n%d", i), edge.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		devs[i] = d
	}
	c := Config{Name: "t", Ranks: 2, Device: devs[0], Size: 1 << 16}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, func(*Memory) error { return nil }) }()
	other := c
	other.Rank, other.Root, other.Device = 1, "n0", devs[1]
	if err := other.complete(); err != nil {
		t.Fatal(err)
	}
	for _, hello := range []string{
		"", "edge-dsm 2", fmt.Sprintf(greeting, 3, other.Size, other.Locks, other.Log, 1, "x"),
		fmt.Sprintf(greeting, 2, other.Size, other.Locks, other.Log, 0, "x"),
		fmt.Sprintf(greeting, 2, other.Size, other.Locks, other.Log, 2, "x"),
		fmt.Sprintf(greeting, 2, other.Size, other.Locks, other.Log, -1, "x"),
		fmt.Sprintf(greeting, 2, other.Size/2, other.Locks, other.Log, 1, "x"),
	} {
		for {
			_, err := devs[1].Dial(ctx, "n0", service(&c, 0), edge.Data([]byte(hello)))
			if errors.Is(err, edge.ErrNoService) || errors.Is(err, edge.ErrPeerUnknown) {
				continue // rank 0 does not listen yet
			}
			if !errors.Is(err, edge.ErrRefused) {
				t.Errorf("%q: %v", hello, err)
			}
			break
		}
	}
	if err := errors.Join(Run(ctx, other, func(*Memory) error { return nil }), <-ended); err != nil {
		t.Error(err)
	}
}

// A rank that disconnects has no connection left when it goes on: the regions that it closes next are of no use to
// others.
func TestDisconnectWaits(t *testing.T) {
	for _, why := range []error{nil, errors.New("no more")} {
		ranks := joined(t)
		other := make(chan struct{})
		go func() {
			defer close(other)
			ranks[1].disconnect(t.Context(), why)
		}()
		ranks[0].disconnect(t.Context(), why)
		for rank, c := range ranks[0].conns {
			if c != nil && c.Err() == nil {
				t.Errorf("after %v: the connection with rank %d is open", why, rank)
			}
		}
		<-other
	}
}

// A run leaves nothing on the program's Device, however it ends, and closes one that it opened itself.
func TestLeavingGivesBack(t *testing.T) {
	for _, why := range []error{nil, errors.New("no more")} {
		ranks := joined(t)
		ranks[1].mine = true
		var wg sync.WaitGroup
		for _, l := range ranks {
			if c := l.dev.Counters(); c.Regions != 2 || c.Conns != 1 {
				t.Fatalf("joined with %d regions and %d connections", c.Regions, c.Conns)
			}
			wg.Go(func() { l.leave(why) })
		}
		wg.Wait()
		if c := ranks[0].dev.Counters(); c.Regions != 0 || c.Conns != 0 || ranks[0].dev.Err() != nil {
			t.Errorf("after %v: %d regions and %d connections are left; the Device: %v", why, c.Regions, c.Conns,
				ranks[0].dev.Err())
		}
		if ranks[1].dev.Err() == nil {
			t.Errorf("after %v: the Device that the run opened is open", why)
		}
	}
}
