package linkdrv

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// station uses a driver from two goroutines, as the contract allows: one receives, the other sends and reads the
// counters.
type station struct {
	Driver
	told   atomic.Int64 // Recv: ErrLinkDown
	failed atomic.Int64 // Send: ErrLinkDown
	worked atomic.Int64 // Sends of which the kernel took frames
	got    uint64       // frames received
	sums   Stats        // what Send returned
}

// receive goes on until the link is gone.
func (s *station) receive(t *testing.T, stop *atomic.Bool) {
	dst, parts := make([][]byte, RecvBatch), make([]RxFrame, RecvBatch)
	_, slots := slotsIn(slices.Repeat([]int{100}, RecvBatch)...)
	scatterer, scatters := s.Driver.(Scatterer)
	for i := 0; !stop.Load(); i++ {
		n, err := 0, error(nil)
		if scatters && i%2 == 0 {
			n, err = scatterer.RecvScatter(parts, slots)
		} else {
			n, err = s.Recv(dst)
		}
		s.got += uint64(n)
		switch {
		case errors.Is(err, ErrLinkGone):
			for n > 0 || err == nil { // Send may have heard of it while frames waited still
				n, err = s.Recv(dst)
				s.got += uint64(n)
			}
			if !errors.Is(err, ErrLinkGone) {
				t.Errorf("Recv after ErrLinkGone: %v", err)
			}
			return
		case errors.Is(err, ErrLinkDown):
			s.told.Add(1)
		case err != nil:
			t.Errorf("Recv: %v", err)
			return
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
}

// send goes on until the link is gone.
func (s *station) send(t *testing.T, to Driver, stop *atomic.Bool) {
	frames := make([]TxFrame, 12)
	for i := range frames {
		frames[i] = TxFrame{Head: header(s, to, 400), Joined: true}
	}
	frames[9] = TxFrame{Head: header(s, to, s.Info().MTU+100)} // too long, until the MTU is raised
	for !stop.Load() {
		n, err := s.Send(frames)
		taken := n
		switch {
		case err == nil && n < len(frames):
			s.sums.NoRoom++
		case errors.Is(err, ErrTooLong):
			s.sums.Refused++
			taken--
		case errors.Is(err, ErrLinkDown):
			s.failed.Add(1)
		case err != nil:
			t.Errorf("Send: %v", err)
			return
		}
		if s.sums.Sent += uint64(taken); taken > 0 {
			s.worked.Add(1)
		}
		st, statsErr := s.Stats()
		if statsErr != nil || st.Sent != s.sums.Sent || st.Refused != s.sums.Refused || st.NoRoom != s.sums.NoRoom {
			t.Errorf("counted %+v (%v), Send returned %+v", st, statsErr, s.sums)
			return
		}
		if errors.Is(err, ErrLinkGone) {
			return
		}
		runtime.Gosched()
	}
}

// eventually gives way until ok, or fails the test when that takes for ever.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// counts checks that drivers counted what they returned.
func counts(t *testing.T, kind string, a, b *station) {
	t.Helper()
	for of, s := range map[*station]*station{a: b, b: a} {
		st, err := s.Stats()
		want := s.got + st.Truncated
		if kind == KindUDP {
			want = s.got
		}
		if err != nil || st.Received != want || s.got == 0 || s.got > of.sums.Sent ||
			(st.Truncated == 0) != (kind == KindUDP) || s.sums.Refused == 0 {
			t.Errorf("%s counted %+v (%v) and returned %d frames of %d sent", s.Info().Name, st, err, s.got,
				of.sums.Sent)
		}
	}
}

// TestRecvBesideSend: one goroutine receives while another one sends, and the interface goes down, comes up, grows and
// is deleted. The race detector looks on.
func TestRecvBesideSend(t *testing.T) {
	kinds(t, []int{1500}, func(t *testing.T, kind string, mtu int) {
		namespace(t)
		veth(t, mtu)
		a, b := &station{Driver: open(t, "a0", Options{Kind: kind})},
			&station{Driver: open(t, "b0", Options{Kind: kind})}
		var stop atomic.Bool
		var users sync.WaitGroup
		t.Cleanup(func() { stop.Store(true); users.Wait() }) // before the drivers are closed
		for _, s := range []*station{a, b} {
			users.Go(func() { s.receive(t, &stop) })
		}
		users.Go(func() { a.send(t, b, &stop) })
		users.Go(func() { b.send(t, a, &stop) })
		working := func() {
			t.Helper()
			wasA, wasB := a.worked.Load(), b.worked.Load()
			eventually(t, "frames are sent", func() bool { return a.worked.Load() > wasA && b.worked.Load() > wasB })
		}

		const downs = 6
		for round := range downs {
			working()
			failed := a.failed.Load()
			must(t, netlink.LinkSetDown(link(t, "a0")))
			eventually(t, "Recv and Send tell that the link is down",
				func() bool { return a.told.Load() > int64(round) && a.failed.Load() > failed })
			setUp(t, "a0")
			if round == downs/2 {
				for _, name := range []string{"a0", "b0"} {
					must(t, netlink.LinkSetMTU(link(t, name), 2*mtu))
				}
			}
		}
		working()
		if a.told.Load() != downs || b.told.Load() != 0 {
			t.Errorf("a0 was down %d times and b0 never: Recv told %d and %d", downs, a.told.Load(), b.told.Load())
		}
		// Up again at once: Send is often first to hear of it and goes through. Or all of it happens within one
		// sendmmsg, which then keeps it to itself.
		const flaps = 10
		a0 := link(t, "a0")
		for range flaps {
			must(t, errors.Join(netlink.LinkSetDown(a0), netlink.LinkSetUp(a0)))
			working()
		}
		must(t, deleteLink(t, "a0"))
		ended := make(chan struct{})
		go func() { users.Wait(); close(ended) }()
		eventually(t, "all say that the link is gone", func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})

		// twice in the midst of a Send, and once before it was gone
		if a.told.Load() > downs+2*flaps+1 || b.told.Load() > 1 {
			t.Errorf("in the end Recv told %d and %d", a.told.Load(), b.told.Load())
		}
		counts(t, kind, a, b)
	})
}
