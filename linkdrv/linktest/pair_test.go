package linktest

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"multiedge/linkdrv"
)

// numbered makes n frames of size bytes that carry their number behind the header.
func numbered(first, n, size int) []linkdrv.TxFrame {
	frames := make([]linkdrv.TxFrame, n)
	for i := range frames {
		b := make([]byte, max(size, linkdrv.HeaderLen+4))
		b[12], b[13] = 0x88, 0xB5
		k := first + i
		b[14], b[15], b[16], b[17] = byte(k>>24), byte(k>>16), byte(k>>8), byte(k)
		frames[i] = linkdrv.TxFrame{Head: b[:16], Bulk: b[16:17], Tail: b[17:]}
	}
	return frames
}

func number(f []byte) int { return int(f[14])<<24 | int(f[15])<<16 | int(f[16])<<8 | int(f[17]) }

// drain receives all that waits and returns the frames' numbers.
func drain(t *testing.T, d linkdrv.Driver) (numbers []int) {
	t.Helper()
	dst := make([][]byte, 8)
	for {
		n, err := d.Recv(dst)
		must(t, err)
		if n == 0 {
			return numbers
		}
		for _, f := range dst[:n] {
			numbers = append(numbers, number(f))
		}
	}
}

func TestPair(t *testing.T) {
	a, b := PairN(3, 1500, 16)
	if a.Info().Index == b.Info().Index || bytes.Equal(a.Info().MAC, b.Info().MAC) || a.Info().Name != "mem3a" {
		t.Errorf("%+v %+v", a.Info(), b.Info())
	}
	for lap := range 5 {
		if n, err := a.Send(numbered(lap*12, 12, 200)); n != 12 || err != nil {
			t.Fatal(n, err)
		}
		got := drain(t, b)
		for i, k := range got {
			if k != lap*12+i {
				t.Fatalf("lap %d: %v", lap, got)
			}
		}
		if len(got) != 12 {
			t.Fatalf("lap %d: %v", lap, got)
		}
	}
	if s, _ := b.Stats(); s.Received != 60 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	if s, _ := a.Stats(); s.Sent != 60 {
		t.Errorf("%+v", s)
	}
}

func TestPairOverflowAndLending(t *testing.T) {
	a, b := Pair(1500, 8)
	a.Send(numbered(0, 20, 100))
	dst := make([][]byte, 4)
	if n, _ := b.Recv(dst); n != 4 {
		t.Fatal(n)
	}
	a.Send(numbered(100, 8, 100)) // no slot is free: four are lent, four wait
	for i, f := range dst {
		if number(f) != i {
			t.Errorf("lent frame %d became %d", i, number(f))
		}
	}
	if got := drain(t, b); len(got) != 4 || got[3] != 7 {
		t.Errorf("%v", got)
	}
	if s, _ := b.Stats(); s.Received != 8 || s.Dropped != 20 {
		t.Errorf("%+v", s)
	}
}

func TestPairRefusals(t *testing.T) {
	a, b := Pair(1500, 8)
	frames := numbered(0, 3, 100)
	frames[1] = linkdrv.TxFrame{Head: make([]byte, 14), Bulk: make([]byte, 1501)}
	if n, err := a.Send(frames); n != 2 || !errors.Is(err, linkdrv.ErrTooLong) {
		t.Error(n, err)
	}
	if n, err := a.Send([]linkdrv.TxFrame{{Head: make([]byte, 13)}}); n != 1 || !errors.Is(err, linkdrv.ErrBadFrame) {
		t.Error(n, err)
	}
	a.SetDown(true)
	if n, err := a.Send(frames); n != 0 || !errors.Is(err, linkdrv.ErrLinkDown) {
		t.Error(n, err)
	}
	if _, err := a.Recv(make([][]byte, 1)); !errors.Is(err, linkdrv.ErrLinkDown) {
		t.Error(err)
	}
	b.Send(frames[:1])
	a.SetDown(false)
	if got := drain(t, a); got != nil {
		t.Errorf("received while down: %v", got)
	}
	a.Close()
	if _, err := a.Send(frames); !errors.Is(err, linkdrv.ErrClosed) {
		t.Error(err)
	}
}

func TestPairFD(t *testing.T) {
	a, b := Pair(1500, 8)
	defer b.Close()
	ready := func() bool {
		fds := []unix.PollFd{{Fd: int32(b.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		must(t, err)
		return n == 1
	}
	a.Send(numbered(0, 1, 100)) // before the descriptor exists
	if !ready() {
		t.Error("not readable although a frame waits")
	}
	drain(t, b)
	if ready() {
		t.Error("readable although nothing waits")
	}
	a.Send(numbered(0, 1, 100))
	if !ready() {
		t.Error("not readable although a frame waits")
	}
}

func TestPairConcurrent(t *testing.T) {
	a, b := Pair(1500, 64)
	var wg sync.WaitGroup
	for _, d := range []*End{a, b} {
		wg.Go(func() {
			dst := make([][]byte, 8)
			for range 500 {
				d.Send(numbered(0, 4, 100))
				d.Recv(dst)
			}
		})
	}
	wg.Wait()
	s, _ := a.Stats()
	r, _ := b.Stats()
	if s.Sent != r.Received+r.Dropped || s.Sent != 2000 {
		t.Errorf("%+v %+v", s, r)
	}
}

func TestPairDoesNotAllocate(t *testing.T) {
	a, b := Pair(1500, 8)
	frames, dst := numbered(0, 8, 300), make([][]byte, 8)
	round := func() { a.Send(frames); b.Recv(dst); b.Recv(nil) }
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
