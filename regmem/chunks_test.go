package regmem

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func newChunks(t testing.TB, cfg ChunksConfig) *Chunks {
	t.Helper()
	c, err := NewChunks(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGarbageLeaf: numbers that were never pinned, and hostile ones, are absent, cost nothing and change nothing (UTLB
// §4.2).
func TestGarbageLeaf(t *testing.T) {
	c := newChunks(t, ChunksConfig{Chunks: 1 << 20})
	before := c.Bytes()
	for _, i := range []uint64{0, 1<<20 - 1, 1 << 20, 1 << 63, 1<<64 - 1} {
		if s := c.Touch(i); s != ChunkAbsent || c.Held(i) || c.Hold(i) {
			t.Errorf("chunk %d: %v", i, s)
		}
	}
	if c.Bytes() != before {
		t.Errorf("looking took %d bytes", c.Bytes()-before)
	}
	c.Pin(7)
	if garbage != (chunkLeaf{}) {
		t.Fatal("the shared leaf was written to")
	}
	if grown := c.Bytes() - before; grown < leafChunks*16 {
		t.Errorf("a leaf that exists is charged with %d bytes", grown)
	}
	for _, n := range []uint64{0, MaxChunks + 1} {
		if _, err := NewChunks(ChunksConfig{Chunks: n}); err == nil {
			t.Errorf("a table of %d chunks was made", n)
		}
	}
}

// TestChunksModel compares the table with maps, through any calls in any order.
func TestChunksModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3*leafChunks + 5
		c, err := NewChunks(ChunksConfig{Chunks: n, Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		state := map[uint64]ChunkState{}
		holds := map[uint64]int{}
		some := rapid.SampledFrom([]uint64{0, 1, leafChunks - 1, leafChunks, 2*leafChunks + 3, n - 1})
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				i := some.Draw(t, "chunk")
				if got, want := c.Ask(i), state[i] == ChunkAbsent; got != want {
					t.Fatalf("Ask(%d) = %t", i, got)
				} else if want {
					state[i] = ChunkPinning
				}
			},
			"pin": func(t *rapid.T) {
				i := some.Draw(t, "chunk")
				c.Pin(i)
				state[i] = ChunkPinned
			},
			"soften": func(t *rapid.T) {
				i := some.Draw(t, "chunk")
				c.Soften(i)
				if state[i] == ChunkPinned {
					state[i] = ChunkSoft
				}
			},
			"hold": func(t *rapid.T) {
				i := some.Draw(t, "chunk")
				if got, want := c.Hold(i), state[i] >= ChunkSoft; got != want {
					t.Fatalf("Hold(%d) = %t", i, got)
				} else if want {
					holds[i]++
				}
			},
			"release": func(t *rapid.T) {
				if i := some.Draw(t, "chunk"); holds[i] > 0 {
					c.Release(i)
					holds[i]--
				}
			},
			"drop": func(t *rapid.T) {
				i := some.Draw(t, "chunk")
				if got, want := c.Drop(i), holds[i] == 0; got != want {
					t.Fatalf("Drop(%d) = %t with %d holds", i, got, holds[i])
				} else if want {
					state[i] = ChunkAbsent
				}
			},
			"": func(t *rapid.T) {
				resident := 0
				for i, want := range state {
					if got := c.Touch(i); got != want {
						t.Fatalf("chunk %d is %v, want %v", i, got, want)
					}
					if want >= ChunkSoft {
						resident++
					}
				}
				if c.Resident() != resident {
					t.Fatalf("%d resident, want %d", c.Resident(), resident)
				}
				victims := c.Victims(nil, 8)
				for _, v := range victims {
					if holds[v] > 0 || state[v] < ChunkSoft {
						t.Fatalf("victim %d is %v with %d holds", v, state[v], holds[v])
					}
				}
				if sorted := slices.Sorted(slices.Values(victims)); len(slices.Compact(sorted)) != len(victims) {
					t.Fatalf("a victim was named twice: %v", victims)
				}
			},
		})
	})
}

// replay touches chunks with room for budget of them, and returns the rate of misses.
func replay(t testing.TB, cfg ChunksConfig, budget int, touches []uint64) float64 {
	c := newChunks(t, cfg)
	misses := 0
	var victims []uint64
	for _, i := range touches {
		if c.Touch(i) >= ChunkSoft {
			continue
		}
		misses++
		if c.Resident() == budget {
			victims = c.Victims(victims[:0], 1)
			if len(victims) != 1 || !c.Drop(victims[0]) {
				t.Fatalf("no victim among %d", c.Resident())
			}
		}
		c.Pin(i)
	}
	return float64(misses) / float64(len(touches))
}

// TestPolicies: the rates at a working set of twice the budget, cyclic and by Zipf, that make policies worth choosing.
func TestPolicies(t *testing.T) {
	const budget, set, n = 128, 256, 20_000
	cyclic, zipf := make([]uint64, n), make([]uint64, n)
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.2, 1, set-1)
	for i := range cyclic {
		cyclic[i], zipf[i] = uint64(i%set), z.Uint64()
	}
	for _, c := range []struct {
		name    string
		policy  Policy
		touches []uint64
		lo, hi  float64
	}{
		{"cyclic", LRU, cyclic, 0.999, 1}, {"cyclic", MRU, cyclic, 0.49, 0.52}, {"cyclic", Random, cyclic, 0.75, 0.85},
		{"zipf", LFU, zipf, 0.02, 0.14}, {"zipf", LRU, zipf, 0.03, 0.17}, {"zipf", MRU, zipf, 0.1, 0.5},
		{"zipf", MFU, zipf, 0.1, 0.99},
	} {
		rate := replay(t, ChunksConfig{Chunks: set, Policy: c.policy, Seed: 7}, budget, c.touches)
		t.Logf("%s %v: %.2f", c.name, c.policy, rate)
		if rate < c.lo || rate > c.hi {
			t.Errorf("%s %v misses %.3f; want %.3f to %.3f", c.name, c.policy, rate, c.lo, c.hi)
		}
	}
	// keeps the lowest numbers, as a program may know to be best
	own := func(a, b ChunkUse) bool { return a.Chunk > b.Chunk }
	if rate := replay(t, ChunksConfig{Chunks: set, Before: own}, budget, cyclic); rate < 0.49 || rate > 0.52 {
		t.Errorf("a policy of the program's misses %.3f", rate)
	}
	exact := replay(t, ChunksConfig{Chunks: set, Policy: LRU}, budget, zipf)
	if rate := replay(t, ChunksConfig{Chunks: set, Policy: LRU, Sample: 16, Seed: 3}, budget, zipf); rate > 1.25*exact {
		t.Errorf("with samples of 16, LRU misses %.3f, exact %.3f", rate, exact)
	}
}

func TestTouchDoesNotAllocate(t *testing.T) {
	c := newChunks(t, ChunksConfig{Chunks: 1 << 20})
	c.Pin(5)
	if n := testing.AllocsPerRun(100, func() { c.Touch(5); c.Touch(99999) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChunksTouch(b *testing.B) {
	for _, n := range []uint64{64, 1 << 20} {
		c := newChunks(b, ChunksConfig{Chunks: n})
		for i := range n {
			c.Pin(i)
		}
		b.Run(map[bool]string{true: "hot", false: "cold"}[n == 64], func(b *testing.B) {
			x := uint64(1)
			for b.Loop() {
				x = x*6364136223846793005 + 1442695040888963407
				c.Touch((x >> 33) & (n - 1))
			}
		})
	}
}

// TestVictimsComeInThePolicysOrder: a batch is in order, and a program's own policy decides even where victims would be
// drawn.
func TestVictimsComeInThePolicysOrder(t *testing.T) {
	for _, c := range []struct {
		cfg  ChunksConfig
		want []uint64
	}{
		{ChunksConfig{Chunks: 10, Policy: LRU}, []uint64{1, 5, 7, 2}},
		{ChunksConfig{Chunks: 10, Policy: MRU}, []uint64{9, 4, 2, 7}},
		{ChunksConfig{Chunks: 10, Policy: Random, Before: func(a, b ChunkUse) bool { return a.Chunk > b.Chunk }},
			[]uint64{9, 7, 5, 4}},
	} {
		table, err := NewChunks(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []uint64{2, 9, 1, 5, 7, 4} {
			table.Pin(i)
		}
		for _, i := range []uint64{2, 4, 9} {
			table.Touch(i)
		}
		if got := table.Victims(nil, 4); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.cfg.Policy, got, c.want)
		}
	}
}
