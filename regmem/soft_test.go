package regmem

import "testing"

// promptSpace is a space whose chunks are pinned as soon as they are asked for.
type promptSpace struct {
	*Space
	asked []uint64 // pins, in order
}

func newPromptSpace(t *testing.T, cfg SpaceConfig) *promptSpace {
	t.Helper()
	p := &promptSpace{}
	cfg.Ask = func(i uint64, what PinWork) bool {
		if what != UnpinChunk {
			p.asked = append(p.asked, i)
		}
		return true
	}
	var err error
	if p.Space, err = NewSpace(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

// use reports whether a chunk is hit at once, with so many bytes to follow.
// What was asked for has come when it returns.
func (p *promptSpace) use(chunk, follows uint64) bool {
	off := chunk * uint64(p.Chunk())
	_, ok := p.Touch(off, 8, follows, WriteTarget)
	for done := 0; done < len(p.asked); done++ {
		p.Done(p.asked[done], true)
	}
	p.asked = p.asked[:0]
	if !ok {
		p.Touch(off, 8, 0, WriteTarget)
	}
	return ok
}

// TestSoftHits: what was evicted is used at once where memory that is not pinned cannot go, and waits to be pinned
// again where it can, or could since the last look; what was never pinned waits in any case.
func TestSoftHits(t *testing.T) {
	const all, budget = 64, 8
	swap := false
	for name, swaps := range map[string]func() bool{"park": nil, "inline": func() bool { return swap }} {
		swap = false
		p := newPromptSpace(t, SpaceConfig{Size: all * DefaultChunk, Pin: budget * DefaultChunk, Swaps: swaps})
		round := func() (hits uint64) {
			before := p.Count
			for i := range uint64(all) {
				p.use(i*5%all, 0) // neighbours never follow one another
			}
			return p.Count.Hits - before.Hits
		}
		if round(); p.Count.Cold != all || p.Count.Soft != 0 {
			t.Fatalf("%s: %+v after each chunk was used once", name, p.Count)
		}
		hits := round() // a use that missed hits when it comes back
		if soft := p.Count.Soft; name == "park" && (soft > 0 || p.Count.Capacity < all-budget) ||
			name == "inline" && (soft < all-budget || p.Count.Capacity > 0 || hits != all) {
			t.Fatalf("%s: %+v after a second time", name, p.Count)
		}
		if p.Pinned() > budget*DefaultChunk {
			t.Errorf("%s: %d bytes are pinned", name, p.Pinned())
		}
		if name == "park" {
			continue
		}
		swap = true
		for i := 0; i <= swapLook/(all-budget)+1; i++ {
			round()
		}
		soft := p.Count.Soft
		if round(); p.Count.Soft != soft || p.Count.Capacity == 0 {
			t.Errorf("with swap: %+v", p.Count)
		}
	}
}

// TestAhead: what is pinned before it is used, by setting.
func TestAhead(t *testing.T) {
	for _, c := range []struct {
		ahead           Ahead
		said, neighbour uint64 // chunks
	}{{AheadExact, 4, aheadChunks}, {AheadSequential, 0, aheadChunks}, {AheadOff, 0, 0}} {
		p := newPromptSpace(t, SpaceConfig{Size: 1 << 30, Pin: 64 << 20, Ahead: c.ahead})
		p.use(100, 4*DefaultChunk)
		if said := p.Count.Prefetched; said != c.said {
			t.Errorf("%v: %d chunks were asked for before an operation that said it goes on", c.ahead, said)
		}
		p.use(200, 0)
		p.use(201, 0)
		if n := p.Count.Prefetched - c.said; n != c.neighbour {
			t.Errorf("%v: %d chunks were asked for behind two neighbours", c.ahead, n)
		}
		if AheadByName(c.ahead.String()) != c.ahead {
			t.Errorf("%v has another name", c.ahead)
		}
	}
}

// TestSoftBeside: an access needs two chunks. One stays in memory without being pinned, the other was never pinned.
// Where there is no room to pin both, the other alone is pinned.
func TestSoftBeside(t *testing.T) {
	p := newPromptSpace(t, SpaceConfig{Size: 64 * DefaultChunk, Pin: 8 * DefaultChunk,
		Swaps: func() bool { return false }})
	for i := uint64(0); i < 40; i += 2 {
		p.use(i, 0)
	}
	if p.table.State(4) != ChunkAbsent || !p.stays(4) {
		t.Fatal(p.table.State(4))
	}
	before := p.Count
	p.Touch(4*DefaultChunk, 2*DefaultChunk, 0, WriteTarget)
	if p.Count.Capacity != before.Capacity {
		t.Errorf("asked for %v; capacity misses %d on a host without swap", p.asked, p.Count.Capacity)
	}
}

// TestHoldOfWhatStays: a hold gets its turn among misses that never end, also of a chunk that stays without being
// pinned.
func TestHoldOfWhatStays(t *testing.T) {
	p := newPromptSpace(t, SpaceConfig{Size: 1 << 30, Pin: 8 * DefaultChunk, Ahead: AheadOff,
		Swaps: func() bool { return false }})
	p.use(0, 0)
	if p.Evict(0, 1); !p.stays(0) {
		t.Fatal(p.table.State(0))
	}
	done := make(chan struct{}, 1)
	for round := range uint64(20) {
		for i := range uint64(p.mostOwed() + 1) {
			p.Touch((1+100*round+i)*DefaultChunk, 1, 0, WriteTarget)
		}
		if !p.Starves() {
			t.Fatal("there was room for all")
		}
		if round == 0 {
			p.HoldRange(0, 1, done)
		}
		came := p.asked
		p.asked = nil
		for _, i := range came {
			p.Done(i, true)
			p.Touch(i*DefaultChunk, 1, 0, WriteTarget)
		}
		p.AskMore(0)
	}
	if len(done) == 0 {
		t.Errorf("it never came; chunk 0 is %v, %d chunks were pinned", p.table.State(0), p.Count.Pins)
	}
}
