package regmem

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// rig is a space with a pinner whose answers the test takes.
type spaceRig struct {
	t      *testing.T
	p      *Pinner
	in     *PinInbox
	q      *PinQueue
	sp     *PinnedSpace
	s      *Space
	mem    *Memory
	came   chan struct{}
	failed int
	now    time.Duration
}

func newSpaceRig(t *testing.T, cfg SpaceConfig, fill func(int) error) *spaceRig {
	t.Helper()
	r := &spaceRig{t: t, came: make(chan struct{}, 1)}
	var err error
	if r.p, err = NewPinner(func() time.Duration { return 0 }); err != nil {
		t.Fatal(err)
	}
	r.in = NewPinInbox(func() { r.came <- struct{}{} })
	r.q = r.p.Queue(1, r.in)
	if r.mem, err = Alloc(int(cfg.Size), Offered(), Named(SpaceName)); err != nil {
		t.Fatal(err)
	}
	if err = r.mem.FixSparse(); err != nil {
		t.Fatal(err)
	}
	cfg.Ask = func(chunk uint64, what PinWork) bool { return r.sp.Ask(chunk, what) }
	if r.s, err = NewSpace(cfg); err != nil {
		t.Fatal(err)
	}
	hints, err := Alloc(int(cfg.Size)/r.s.Chunk()/8+1, Unpinned())
	if err != nil {
		t.Fatal(err)
	}
	r.sp = r.q.Add(r.s, r.mem, hints, false, fill)
	t.Cleanup(func() {
		r.sp.Forget()
		r.p.Close()
		r.mem.Close()
		hints.Close()
	})
	return r
}

func (r *spaceRig) resident(chunk uint64) bool {
	ok, _ := r.s.Ask(chunk)
	return ok
}

// use misses, waits, and uses what has come.
func (r *spaceRig) use(off uint64) {
	r.wait(func() bool {
		_, ok := r.s.Touch(off, 1, 0, WriteTarget)
		return ok
	})
}

// wait takes answers until ok.
func (r *spaceRig) wait(ok func() bool) {
	for !ok() {
		r.now += owedTime
		if r.s.AskMore(r.now); r.s.asked == 0 {
			continue
		}
		<-r.came
		r.in.Answers(func(a *PinAnswer) {
			if a.Err != nil {
				r.failed++
			}
			a.Of.Space.Done(a.Chunk, a.Err == nil)
		})
	}
}

// TestSpacePinsOnDemand: uses all over a space of 64 GiB are missed once each, become resident, keep what was written
// there when they are evicted, and never pin more than the budget.
func TestSpacePinsOnDemand(t *testing.T) {
	const chunk, budget, size = 64 << 10, 1 << 20, 64 << 30
	r := newSpaceRig(t, SpaceConfig{Size: size, Pin: budget, Seed: 1}, func(int) error { return nil })
	rng := rand.New(rand.NewPCG(1, 2))
	var used []uint64
	for range 60 {
		off := rng.Uint64N(size/chunk) * chunk
		used = append(used, off)
		if _, ok := r.s.Touch(off+10, 8, 0, WriteTarget); ok {
			t.Fatalf("%#x is resident at once", off)
		}
		r.use(off + 10)
		copy(r.mem.Bytes()[off+10:], "12345678")
		if got := r.s.Pinned(); got > budget {
			t.Fatalf("%d bytes are pinned, the budget is %d", got, budget)
		}
	}
	for _, off := range used {
		if got := string(r.mem.Bytes()[off+10 : off+18]); got != "12345678" {
			t.Fatalf("at %#x: %q", off, got)
		}
	}
	c := r.s.Count
	last := used[59] / chunk
	if c.Cold < 59 || c.Evictions < 44 || r.failed > 0 || r.sp.hints.Bytes()[last/8]&(1<<(last%8)) == 0 {
		t.Errorf("%+v, %d failed", c, r.failed)
	}
	if filled := r.sp.Forget(); filled != 60*chunk {
		t.Errorf("%d bytes were filled, want %d", filled, 60*chunk)
	}
}

// TestSpaceFillIsRefused: a chunk that may not be filled stays absent, and is asked for again.
func TestSpaceFillIsRefused(t *testing.T) {
	no := errors.New("no")
	r := newSpaceRig(t, SpaceConfig{Size: 1 << 30, Pin: 1 << 20}, func(int) error { return no })
	r.s.Touch(0, 1, 0, WriteTarget)
	r.wait(func() bool { return r.failed == 1 })
	if r.resident(0) || r.s.Pinned() != DefaultChunk {
		t.Errorf("resident, or not asked for again: %d", r.s.Pinned())
	}
	r.wait(func() bool { return r.failed == 2 })
}

// TestSpaceHolds: what is held stays through any pressure, and goes when it is released.
func TestSpaceHolds(t *testing.T) {
	const chunk = 64 << 10
	r := newSpaceRig(t, SpaceConfig{Size: 1 << 30, Pin: 16 * chunk}, func(int) error { return nil })
	done := make(chan struct{}, 1)
	if err := r.s.CheckHold(0, 9*chunk); !errors.Is(err, ErrQuota) {
		t.Errorf("more than half of the budget: %v", err)
	}
	if err := r.s.CheckHold(0, 8*chunk); err != nil {
		t.Error(err)
	}
	if _, went := r.s.HoldRange(chunk, 4*chunk, done); went != 4*chunk {
		t.Fatalf("%d bytes are held in one piece", went)
	}
	r.wait(func() bool { return len(done) == 1 })
	for i := uint64(100); i < 200; i++ {
		r.use(i * chunk)
	}
	if got, _ := r.s.Resident(chunk, 4*chunk); got != 4*chunk {
		t.Errorf("%d bytes of what is held are resident", got)
	}
	r.wait(func() bool { return r.s.asked == 0 })
	r.s.Release(chunk, 4*chunk)
	for off := uint64(0); off < 1<<30; {
		off += r.s.Evict(off, 1<<30-off)
	}
	if got := r.s.Pinned(); got != 0 {
		t.Errorf("%d bytes pinned after everything was evicted", got)
	}
}
