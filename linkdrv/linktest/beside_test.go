package linktest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"multiedge/linkdrv"
)

// station uses a driver from two goroutines: one receives, the other sends and reads the counters.
type station struct {
	linkdrv.Driver
	told, failed, worked atomic.Int64 // Recv: ErrLinkDown; Send: the same, and frames taken
	got                  uint64
	sums                 linkdrv.Stats // what Send returned
}

// receive goes on until it is told to stop and nothing is left.
func (s *station) receive(t *testing.T, stop *atomic.Bool) {
	dst := make([][]byte, 8)
	for {
		last := stop.Load()
		n, err := s.Recv(dst)
		for _, f := range dst[:n] {
			f[len(f)-1]++ // it is ours until the next Recv
		}
		s.got += uint64(n)
		switch {
		case errors.Is(err, linkdrv.ErrLinkDown):
			s.told.Add(1)
		case err != nil:
			t.Errorf("Recv: %v", err)
			return
		}
		if n == 0 {
			if last {
				return
			}
			runtime.Gosched()
		}
	}
}

// send goes on until it is told to stop.
func (s *station) send(t *testing.T, stop *atomic.Bool) {
	frames := numbered(0, 12, 200)
	frames[9] = linkdrv.TxFrame{Head: make([]byte, 2000)}
	for !stop.Load() {
		n, err := s.Send(frames)
		switch {
		case errors.Is(err, linkdrv.ErrTooLong):
			s.sums.Refused++
			s.sums.Sent += uint64(n - 1)
			s.worked.Add(1)
		case errors.Is(err, linkdrv.ErrLinkDown):
			s.sums.Sent += uint64(n)
			s.failed.Add(1)
		default:
			t.Errorf("Send: %d, %v", n, err)
			return
		}
		if _, err := s.Stats(); err != nil {
			t.Error(err)
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

// TestRecvBesideSend: at either end of a pair one goroutine receives while another one sends, and the link goes down
// and comes up. The race detector looks on.
func TestRecvBesideSend(t *testing.T) {
	endA, endB := Pair(1500, 64)
	a, b := &station{Driver: endA}, &station{Driver: endB}
	fd := a.FD()
	var stop, drained atomic.Bool
	var senders, receivers sync.WaitGroup
	t.Cleanup(func() {
		stop.Store(true)
		senders.Wait()
		drained.Store(true)
		receivers.Wait()
		a.Close()
		b.Close()
	})
	for _, s := range []*station{a, b} {
		receivers.Go(func() { s.receive(t, &drained) })
		senders.Go(func() { s.send(t, &stop) })
	}
	for range 20 {
		wasA, wasB := a.worked.Load(), b.worked.Load()
		eventually(t, "frames are sent", func() bool { return a.worked.Load() > wasA && b.worked.Load() > wasB })
		told, failed := a.told.Load(), a.failed.Load()
		endA.SetDown(true)
		eventually(t, "Recv and Send tell that the link is down", func() bool {
			return a.told.Load() > told && a.failed.Load() > failed
		})
		endA.SetDown(false)
		if a.FD() != fd || a.Info().Name != endA.Info().Name {
			t.Error("what is constant changed")
		}
	}
	stop.Store(true)
	senders.Wait()
	drained.Store(true)
	receivers.Wait()

	sa, _ := a.Stats()
	sb, _ := b.Stats()
	if sa.Sent != a.sums.Sent || sa.Refused != a.sums.Refused || sb.Sent != b.sums.Sent ||
		sb.Refused != b.sums.Refused {
		t.Errorf("Send returned %+v and %+v, counted were %+v and %+v", a.sums, b.sums, sa, sb)
	}
	if sa.Received != a.got || sb.Received != b.got || sb.Received+sb.Dropped != sa.Sent || b.told.Load() != 0 {
		t.Errorf("%d and %d frames received; counted were %+v and %+v", a.got, b.got, sa, sb)
	}
}
