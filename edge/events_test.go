package edge_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"multiedge/internal/ipc"

	"multiedge/edge"
	"multiedge/edge/events"
)

// poke writes n times to remote with Notify and the numbers from first on, and waits for each write.
func poke(t *testing.T, remote *edge.RemoteRegion, first, n int) {
	t.Helper()
	ctx := testContext(t)
	for i := first; i < first+n; i++ {
		op, err := remote.Conn().Post(ctx, &edge.Work{Kind: edge.Write, Inline: []byte{1}, Remote: remote,
			RemoteOff: i % 8,
			Flags:     edge.Notify, Imm: uint32(i)})
		must(t, err)
		must(t, op.Wait(ctx))
	}
}

// also exports 8 bytes more to the peer of g, and returns what both ends have of them.
func also(t *testing.T, remote *edge.RemoteRegion, g *edge.Grant, name string) (*edge.RemoteRegion, *edge.Grant) {
	t.Helper()
	more, err := g.Region().Export(g.Conn(), name, edge.RemoteWrite, 0, 8)
	must(t, err)
	r, err := remote.Conn().Import(testContext(t), name)
	must(t, err)
	return r, more
}

// The unread notifications of one export hold up no other's, however many there are; those that found its queue full
// are counted.
func TestEventsOfEachExport(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		ctx := testContext(t)
		lazyTo, lazy := edge.ShareOn(t, a, b, 4096)
		busyTo, busy := also(t, lazyTo, lazy, "busy")
		const limit, sent = 300, 3 * ipc.NotifyCredit
		poke(t, lazyTo, 0, 5) // these go over to the queue
		unread, err := events.Open(lazy, limit)
		must(t, err)
		if _, err := events.Open(lazy, 0); !errors.Is(err, edge.ErrExists) {
			t.Errorf("a second queue: %v, want ErrExists", err)
		}
		ours, err := events.Open(busy, 0)
		must(t, err)
		read := make(chan error, 1)
		go func() { // whoever waits on the Device takes what comes for all of its queues
			for i := range sent {
				n, err := ours.Wait(ctx)
				if want := (edge.Notification{Imm: uint32(i), Len: 1, Offset: i % 8, Grant: busy}); err == nil &&
					n != want {
					err = fmt.Errorf("event %d is %+v", i, n)
				}
				if err != nil {
					read <- err
					return
				}
			}
			read <- nil
		}()
		poke(t, lazyTo, 5, sent-5)
		poke(t, busyTo, 0, sent)
		must(t, <-read)
		for i := range limit {
			if n, ok := unread.Poll(); !ok || n.Imm != uint32(i) || n.Grant != lazy {
				t.Fatalf("unread event %d is %+v, %v", i, n, ok)
			}
		}
		poke(t, lazyTo, 7, 1)
		if n, err := unread.Wait(ctx); err != nil || n.Imm != 7 || n.Lost != sent-limit {
			t.Errorf("after %d that were lost: %+v, %v", sent-limit, n, err)
		}
		none, cancel := context.WithTimeout(ctx, time.Millisecond)
		if n, err := lazy.Conn().WaitNotify(none); err == nil {
			t.Errorf("the connection has %+v", n)
		}
		cancel()
		must(t, unread.Close())
		poke(t, lazyTo, 9, 1)
		if n, err := lazy.Conn().WaitNotify(ctx); err != nil || n.Imm != 9 {
			t.Errorf("after the queue was closed the connection has %+v, %v", n, err)
		}
		if _, err := unread.Wait(ctx); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed queue: %v", err)
		}
		poke(t, busyTo, 11, 1)
		must(t, busy.Revoke())
		if n, err := ours.Wait(ctx); err != nil || n.Imm != 11 {
			t.Errorf("an event before Revoke: %+v, %v", n, err)
		}
		if _, err := ours.Wait(ctx); !errors.Is(err, edge.ErrRevoked) {
			t.Errorf("after Revoke: %v", err)
		}
	})
}

// A handler runs for each notification of its export, and ends with Stop or with the connection.
func TestHandler(t *testing.T) {
	edge.OnBoth(t, func(t *testing.T, a, b *edge.Device) {
		to, g := edge.ShareOn(t, a, b, 4096)
		otherTo, other := also(t, to, g, "other")
		ran, blocked, free := make(chan edge.Notification, 16), make(chan bool, 1), make(chan bool)
		h, err := events.Handle(g, func(n edge.Notification) { ran <- n })
		must(t, err)
		stuck, err := events.Handle(other, func(edge.Notification) { blocked <- true; <-free })
		must(t, err)
		poke(t, otherTo, 0, 1)
		<-blocked
		poke(t, to, 0, 3) // while the other handler runs
		for i := range 3 {
			if n := <-ran; n.Imm != uint32(i) || n.Grant != g {
				t.Errorf("notification %d: %+v", i, n)
			}
		}
		h.Stop()
		if h.Err() != nil {
			t.Errorf("a handler that was stopped: %v", h.Err())
		}
		close(free)
		must(t, to.Conn().Close())
		<-stuck.Done()
		if !errors.Is(stuck.Err(), edge.ErrPeerClosed) {
			t.Errorf("a handler whose connection ended: %v", stuck.Err())
		}
	})
}
