package regmem

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// crowd is waiters of a space whose pinner takes its time: each has parts to use, one after the other.
type crowd struct {
	t       *testing.T
	s       *Space
	rng     *rand.Rand
	pinning []uint64
	unused  map[uint64]bool // pinned for a waiter and not used since
	parts   []visit
	now     time.Duration
	lost    int // chunks that were evicted before their waiters used them
}

type visit struct {
	off, n uint64
	left   int
	page   uint64
	waits  bool
	told   bool // that its page has come
	late   int  // rounds until it is used once its page has come: it is to be sent
	dead   bool
}

func newCrowd(t *testing.T, seed uint64, cfg SpaceConfig) *crowd {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 1)), unused: map[uint64]bool{}}
	cfg.Seed = seed
	cfg.Ask = func(chunk uint64, what PinWork) bool {
		if what != UnpinChunk {
			c.pinning = append(c.pinning, chunk)
		} else if c.unused[chunk] {
			c.lost++
		}
		return len(c.pinning) < pinQueueLen
	}
	cfg.Waits = func(chunk uint64) bool {
		return slices.ContainsFunc(c.parts, func(p visit) bool { return p.waits && !p.told && p.page == chunk })
	}
	var err error
	if c.s, err = NewSpace(cfg); err != nil {
		t.Fatal(err)
	}
	return c
}

// try has one use its part, or wait.
func (c *crowd) try(p *visit) {
	page, ok := c.s.Touch(p.off, p.n, 0, WriteSource)
	p.page, p.waits, p.told = page, !ok, false
	if !ok && c.s.table.State(page) == ChunkPinning {
		return
	}
	for i := p.off >> c.s.shift; i <= (p.off+p.n-1)>>c.s.shift; i++ {
		delete(c.unused, i)
	}
	if ok { // else it waits for a turn of its own, and keeps nothing meanwhile
		p.left--
		c.place(p)
	}
}

func (c *crowd) place(p *visit) {
	p.n = 1 + c.rng.Uint64N(9000)
	p.off = c.rng.Uint64N(c.s.cfg.Size - p.n)
	p.late = c.rng.IntN(4)
}

// run goes on until all parts were used, and returns how many rounds that took.
func (c *crowd) run(most int) int {
	for round := range most {
		c.now += time.Millisecond
		if n := min(len(c.pinning), 1+c.rng.IntN(8)); n > 0 {
			for _, i := range c.pinning[:n] {
				if c.s.table.Awaited(i) {
					c.unused[i] = true
				}
				c.s.Done(i, true)
				for k := range c.parts {
					p := &c.parts[k]
					p.told = p.told || p.waits && p.page == i
				}
			}
			c.pinning = c.pinning[n:]
		}
		left := 0
		for i := range c.parts {
			p := &c.parts[i]
			switch left += p.left; {
			case p.left == 0 || p.dead:
			case !p.waits:
				c.try(p)
			case p.told:
				if p.late--; p.late < 0 {
					c.try(p)
				}
			}
		}
		if left == 0 {
			return round
		}
		if c.s.AskMore(c.now) {
			for i := range c.parts {
				if p := &c.parts[i]; p.waits && !p.told && !p.dead && p.left > 0 {
					p.told, _ = c.s.Ask(p.page)
				}
			}
		}
		if got := c.s.Pinned(); got > c.s.Budget() {
			c.t.Fatalf("%d bytes are pinned, of %d", got, c.s.Budget())
		}
	}
	c.t.Fatalf("not over after %d rounds: %+v, owed %d, awaited %d, wanted %d", most, c.s.Count, c.s.table.Owed(),
		c.s.awaited, c.s.wants.n)
	return 0
}

// TestSpaceAdmits: far more parts than a space may pin, many of which cross chunks, all come to their turn whatever the
// policy, and what was pinned for one of them is not evicted before it is used.
func TestSpaceAdmits(t *testing.T) {
	worst := func(ChunkUse, ChunkUse) bool { return true }
	for seed := range uint64(60) {
		cfg := SpaceConfig{Size: 64 << 20, Chunk: 4096 << (seed % 3), Policy: Policy(seed % 5)}
		cfg.Pin = uint64(cfg.Chunk) * (4 + seed%60)
		if seed%7 == 6 {
			cfg.Before = worst
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCrowd(t, seed, cfg)
			const parts, uses = 700, 6
			for range parts {
				p := visit{left: uses}
				c.place(&p)
				c.parts = append(c.parts, p)
			}
			c.run(4 * 5 * parts * uses)
			// what two wait for is kept until one of them has used it
			if c.lost > parts*uses/200 {
				t.Errorf("%d chunks were evicted before their waiters used them", c.lost)
			}
			if pins := c.s.Count.Pins; pins > 4*parts*uses {
				t.Errorf("%d pins for %d uses", pins, parts*uses)
			}
		})
	}
}

// TestSpaceForgives: waiters that never use what was pinned for them hold up the others for a moment only.
func TestSpaceForgives(t *testing.T) {
	for seed := range uint64(10) {
		c := newCrowd(t, seed, SpaceConfig{Size: 64 << 20, Chunk: 4096, Pin: 64 << 10, Policy: Policy(seed % 5)})
		for i := range 40 {
			p := visit{left: 1}
			c.place(&p)
			if p.dead = i < 30; p.dead {
				c.s.Touch(p.off, p.n, 0, WriteSource)
				p.left = 0
			}
			c.parts = append(c.parts, p)
		}
		if rounds := c.run(2000); rounds > 1500 {
			t.Errorf("seed %d: %d rounds", seed, rounds)
		}
	}
}
