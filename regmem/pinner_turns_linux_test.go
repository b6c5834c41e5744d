package regmem

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// idlePinner is a pinner without a thread: the test has it work turn by turn.
func idlePinner() *Pinner { return &Pinner{bell: -1, now: func() time.Duration { return 0 }} }

// asker is a client with one space, and what was answered.
type asker struct {
	sp   *PinnedSpace
	in   *PinInbox
	done []PinAnswer
}

func newAsker(t *testing.T, p *Pinner, user uint64, size uint64, chunk int, fill func(int) error) *asker {
	t.Helper()
	m, err := Alloc(int(size), Offered())
	if err == nil {
		err = m.FixSparse()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := NewSpace(SpaceConfig{Size: size, Chunk: chunk, Pin: 16 * uint64(chunk),
		Ask: func(uint64, PinWork) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{in: NewPinInbox(func() {})}
	a.sp = p.Queue(user, a.in).Add(s, m, nil, false, fill)
	return a
}

func (a *asker) answered() int {
	a.in.Answers(func(x *PinAnswer) { a.done = append(a.done, *x) })
	return len(a.done)
}

func (a *asker) fill(t *testing.T) {
	t.Helper()
	for i := uint64(0); a.sp.Ask(i%16, PinChunk); i++ {
		if i == pinQueueLen {
			t.Fatal("the queue is not bounded")
		}
	}
}

func pays(int) error { return nil }

// TestPinnerTurns: a user's miss waits for no more than one piece of each other user's, however many clients those
// have, how much they ask for, and how large their chunks are; the clients of a user take turns too.
func TestPinnerTurns(t *testing.T) {
	p := idlePinner()
	var crowd []*asker
	for range 5 { // clients of one user, of untouched chunks of 2 MiB
		a := newAsker(t, p, 1, 32<<20, MaxChunk, pays)
		a.fill(t)
		crowd = append(crowd, a)
	}
	for range 3 {
		p.turn()
	}
	done := 0
	for _, a := range crowd {
		done += int(a.sp.queue.ring[0].done)
	}
	if done != 3*DefaultChunk {
		t.Errorf("%d bytes are pinned in three turns", done)
	}
	lone := newAsker(t, p, 2, 1<<20, DefaultChunk, pays)
	for i := range uint64(8) {
		lone.sp.Ask(i, PinChunk)
		turns := 0
		for lone.answered() == int(i) {
			if turns++; !p.turn() || turns > 2 {
				t.Fatalf("miss %d of a lone user waits for more than a piece of the other's", i)
			}
		}
	}
	for crowd[0].answered() == 0 {
		p.turn()
	}
	for i, a := range crowd[1:] {
		if at := a.sp.queue.ring[0].done; a.answered() == 0 && at < MaxChunk-pinPiece {
			t.Errorf("client %d has %d bytes of its first chunk when the first client has all of its", i+1, at)
		}
	}
	users := len(p.users)
	lone.sp.queue.Close()
	for _, a := range crowd {
		a.sp.queue.Close()
	}
	if users != 2 || len(p.users) != 0 || p.turn() {
		t.Errorf("%d users of two clients' queues, %d when they are closed", users, len(p.users))
	}
}

// TestPinnerGivesBack: a chunk of which only a part may be filled is refused, nothing of it stays locked, and what was
// filled of it is counted.
func TestPinnerGivesBack(t *testing.T) {
	p, no, left := idlePinner(), errors.New("no"), 3*pinPiece
	a := newAsker(t, p, 1, 8<<20, MaxChunk, func(n int) error {
		if left -= n; left < 0 {
			return no
		}
		return nil
	})
	locked := func() uint64 {
		n, ok := procBytes("/proc/self/status", "VmLck:")
		if !ok {
			t.Fatal("VmLck is not told")
		}
		return n
	}
	before := locked()
	a.sp.Ask(1, PinChunk)
	for range 3 {
		p.turn()
	}
	during := locked()
	for p.turn() {
	}
	if a.answered() != 1 || !errors.Is(a.done[0].Err, no) {
		t.Fatalf("%+v", a.done)
	}
	if filled := a.sp.Forget(); during != before+3*pinPiece || locked() != before || filled != 3*pinPiece {
		t.Errorf("locked %d bytes, then %d, and %d after the refusal; %d are filled", before, during, locked(), filled)
	}
	a.sp.Ask(2, PinChunk)
	if p.turn(); a.answered() != 2 || !errors.Is(a.done[1].Err, ErrClosed) {
		t.Errorf("of a space that is gone: %+v", a.done)
	}
}

// TestPinTimes: an answer says how long a chunk waited for the pinner's first turn, and how long all its turns took,
// without what it waited between them.
func TestPinTimes(t *testing.T) {
	p := idlePinner()
	clock := 7 * time.Second
	p.now = func() time.Duration { clock += time.Millisecond; return clock }
	a := newAsker(t, p, 1, 8*pinPiece, 2*pinPiece, pays)
	a.sp.Ask(1, PinChunk) // asks at 7.001 s
	clock += 40 * time.Millisecond
	p.turn()
	clock += time.Second
	p.turn()
	if a.answered() != 1 || a.done[0].Delay != 41*time.Millisecond || a.done[0].Took != 2*time.Millisecond {
		t.Errorf("%+v, want a delay of 41 ms and 2 ms of work", a.done)
	}
}

// TestPinQueueBytes: a queue is charged for what it takes.
func TestPinQueueBytes(t *testing.T) {
	q, answers := int(reflect.TypeFor[PinQueue]().Size()), 2*pinQueueLen*int(reflect.TypeFor[PinAnswer]().Size())
	if got := q + answers; got > PinQueueBytes+256 || got < PinQueueBytes/2 {
		t.Errorf("a queue takes %d bytes and its answers %d, charged are %d", q, answers, PinQueueBytes)
	}
}

// TestAdviceIsPiecemeal: no advice on a range, however long and whatever is resident of it, has its caller look at more
// than so many chunks at a time; all of it is gone through in the end.
func TestAdviceIsPiecemeal(t *testing.T) {
	for _, c := range []struct {
		size  uint64
		chunk int
		pin   uint64
		asks  int // calls that a range may take
	}{
		{MaxSpace, DefaultChunk, 1 << 30, MaxSpace/DefaultChunk/leafChunks/workMost +
			1<<30/DefaultChunk/(workMost/workAsk) + 40},
		{1 << 28, MinChunk, 1 << 28, 1<<28/MinChunk/(workMost/workAsk) + 4},
	} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			var asked []uint64
			s, err := NewSpace(SpaceConfig{Size: c.size, Chunk: c.chunk, Pin: c.pin,
				Ask: func(i uint64, what PinWork) bool { asked = append(asked, i); return true }})
			if err != nil {
				t.Fatal(err)
			}
			pin := func() {
				for _, i := range asked {
					if s.table.State(i) == ChunkPinning {
						s.Done(i, true)
					}
				}
				asked = asked[:0]
			}
			through := func(what string, f func(off, n uint64) uint64) {
				t.Helper()
				calls := 0
				for off := uint64(0); off < c.size; calls++ {
					went := f(off, c.size-off)
					if went == 0 || went > c.size-off || calls > c.asks {
						t.Fatalf("%s: %d bytes of %d in call %d", what, went, c.size-off, calls)
					}
					if looked := s.lookedAt(off, went); looked > workMost && what != "prefetch" ||
						workAsk*len(asked) > (calls+1)*workMost && (what == "prefetch" || what == "evict") {
						t.Fatalf("%s: %d chunks in one call", what, looked)
					}
					off += went
				}
			}
			through("prefetch", s.Prefetch)
			pin()
			if s.Pinned() != c.pin {
				t.Fatalf("%d bytes of %d are pinned", s.Pinned(), c.pin)
			}
			sum := uint64(0)
			through("resident", func(off, n uint64) uint64 {
				bytes, went := s.Resident(off, n)
				sum += bytes
				return went
			})
			through("release", s.Release)
			asked = asked[:0]
			through("evict", s.Evict)
			if sum != c.pin || s.Pinned() != 0 || s.Count.Unpins != c.pin/uint64(c.chunk) {
				t.Errorf("%d bytes were resident, %d are pinned after all was evicted", sum, s.Pinned())
			}
			done := make(chan struct{}, 1)
			asked = asked[:0]
			if _, went := s.HoldRange(0, c.pin/2, done); went > holdMost*uint64(c.chunk) || len(asked) < holdMost {
				t.Errorf("%d bytes are held in one call", went)
			}
		})
	}
}

// lookedAt is how many chunks and leaves a call that went through a range looked at.
func (s *Space) lookedAt(off, n uint64) (looked int) {
	for i, end := off>>s.shift, (off+n)>>s.shift; i < end; looked++ {
		if s.table.Bare(i) {
			i |= leafChunks - 1
		}
		i++
	}
	return looked
}

// TestRefusedIsNotBusy: whoever waits for a chunk that may not be filled is not told that others are served meanwhile,
// for which it would wait ten times as long.
func TestRefusedIsNotBusy(t *testing.T) {
	s, err := NewSpace(SpaceConfig{Size: 1 << 30, Pin: 1 << 20, Ask: func(uint64, PinWork) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	s.Touch(0, 1, 0, WriteTarget)
	if _, busy := s.Ask(0); !busy {
		t.Error("not busy while the first chunk is asked for")
	}
	s.Done(0, false)
	s.Touch(DefaultChunk, 1, 0, WriteTarget)
	if resident, busy := s.Ask(0); resident || busy {
		t.Errorf("resident %t, busy %t after a refusal", resident, busy)
	}
	s.Done(1, true)
	if _, busy := s.Ask(0); !busy {
		t.Error("not busy when another chunk came")
	}
}

// TestHoles: what a chunk lacks is counted whatever lies around it, with and without the kernel's help.
func TestHoles(t *testing.T) {
	p := idlePinner()
	a := newAsker(t, p, 1, 1<<20, DefaultChunk, pays)
	for _, page := range []int{3, 4, 9} {
		a.sp.mem.buf[page*4096] = 1
	}
	for range 2 {
		for _, c := range [][3]int{{0, 16, 13}, {3, 1, 0}, {5, 4, 4}, {9, 2, 1}, {16, 16, 16}} {
			if n := a.sp.holes(uint64(c[0]*4096), c[1]*4096); n != c[2]*4096 {
				t.Errorf("%d pages from page %d: %d bytes of holes; want %d pages", c[1], c[0], n, c[2])
			}
		}
		a.sp.mem.CloseFD()
	}
}

// TestHolesWaitForNobody: a client that fills its file holds the lock of it meanwhile; the pinner, which is
// everybody's, does not wait for that.
func TestHolesWaitForNobody(t *testing.T) {
	const size = 128 << 20
	for range 10 {
		a := newAsker(t, idlePinner(), 1, 2*size, DefaultChunk, pays)
		filled, fd := make(chan error), a.sp.mem.fd
		go func() { filled <- unix.Fallocate(fd, 0, 0, size) }()
		blocks := func() (st unix.Stat_t) {
			if err := unix.Fstat(fd, &st); err != nil {
				t.Fatal(err)
			}
			return st
		}
		for blocks().Blocks == 0 {
			runtime.Gosched()
		}
		n, at := a.sp.holes(size, pinPiece), blocks().Blocks*512
		if err := <-filled; err != nil {
			t.Fatal(err)
		}
		if n != pinPiece {
			t.Fatalf("%d bytes of holes", n)
		}
		if at < size {
			return
		}
	}
	t.Error("the pinner waited until the client had filled its file, ten times")
}
