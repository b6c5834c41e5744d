package regmem

import (
	"maps"
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

// chunksModel is a table with maps of what it should say.
type chunksModel struct {
	c                   *Chunks
	some                *rapid.Generator[uint64]
	state               map[uint64]ChunkState
	holds               map[uint64]int
	early, awaited, old []uint64
}

// TestChunksModel compares the table with maps, through any calls in any order.
func TestChunksModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3*leafChunks + 5
		c, err := NewChunks(ChunksConfig{Chunks: n, Seed: rapid.Uint64().Draw(t, "seed")})
		if err != nil {
			t.Fatal(err)
		}
		m := &chunksModel{c: c, state: map[uint64]ChunkState{}, holds: map[uint64]int{},
			some: rapid.SampledFrom([]uint64{0, 1, leafChunks - 1, leafChunks, 2*leafChunks + 3, n - 1})}
		actions := m.pinning()
		maps.Copy(actions, m.owing())
		actions[""] = m.check
		t.Repeat(actions)
	})
}

// forget has a chunk be neither asked for nor owed.
func (m *chunksModel) forget(i uint64) {
	for _, list := range []*[]uint64{&m.early, &m.awaited, &m.old} {
		*list = slices.DeleteFunc(*list, func(o uint64) bool { return o == i })
	}
}

// pinning are the calls by which chunks come and go.
func (m *chunksModel) pinning() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"ask": func(t *rapid.T) {
			i := m.some.Draw(t, "chunk")
			if got, want := m.c.Ask(i), m.state[i] == ChunkAbsent; got != want {
				t.Fatalf("Ask(%d) = %t", i, got)
			} else if want {
				m.state[i] = ChunkPinning
			}
		},
		"pin": func(t *rapid.T) {
			i := m.some.Draw(t, "chunk")
			m.c.Pin(i)
			m.state[i] = ChunkPinned
			if slices.Contains(m.awaited, i) {
				m.state[i] = ChunkOwed
			} else if slices.Contains(m.early, i) {
				m.state[i] = ChunkAhead
			}
			m.forget(i)
		},
		"hold": func(t *rapid.T) {
			i := m.some.Draw(t, "chunk")
			if got, want := m.c.Hold(i), m.state[i] >= ChunkPinned; got != want {
				t.Fatalf("Hold(%d) = %t", i, got)
			} else if want {
				m.holds[i]++
			}
		},
		"release": func(t *rapid.T) {
			if i := m.some.Draw(t, "chunk"); m.holds[i] > 0 {
				m.c.Release(i)
				m.holds[i]--
			}
		},
		"drop": func(t *rapid.T) {
			i := m.some.Draw(t, "chunk")
			if got, want := m.c.Drop(i), m.holds[i] == 0; got != want {
				t.Fatalf("Drop(%d) = %t with %d holds", i, got, m.holds[i])
			} else if want {
				m.state[i] = ChunkAbsent
				m.forget(i)
			}
		},
	}
}

// owing are those that say who waits for chunks, and who has used them.
func (m *chunksModel) owing() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"early": func(t *rapid.T) {
			if i := m.some.Draw(t, "chunk"); m.state[i] == ChunkPinning && !slices.Contains(m.awaited, i) {
				m.c.Early(i)
				m.early = append(m.early, i)
			}
		},
		"await": func(t *rapid.T) {
			i := m.some.Draw(t, "chunk")
			if m.state[i] != ChunkPinning {
				return
			}
			first, was := m.c.Await(i)
			if first == slices.Contains(m.awaited, i) || was != slices.Contains(m.early, i) || !m.c.Awaited(i) {
				t.Fatalf("Await(%d) = %t, %t", i, first, was)
			}
			m.forget(i)
			m.awaited = append(m.awaited, i)
		},
		"owe": func(t *rapid.T) {
			if i := m.some.Draw(t, "chunk"); m.state[i] >= ChunkPinned && m.state[i] != ChunkOwed {
				m.c.Owe(i)
				m.state[i] = ChunkOwed
			}
		},
		"settle": func(t *rapid.T) {
			if i := m.some.Draw(t, "chunk"); m.state[i] == ChunkOwed {
				m.c.Settle(i)
				m.settled(i)
			}
		},
		"settle to": func(t *rapid.T) {
			n := rapid.IntRange(0, 3).Draw(t, "n")
			settled := slices.Clone(m.c.resident[min(n, m.c.owed):m.c.owed])
			m.c.SettleTo(n)
			m.settled(settled...)
		},
		"used": func(t *rapid.T) {
			if i := m.some.Draw(t, "chunk"); m.state[i] == ChunkAhead {
				m.c.Used(i)
				m.state[i] = ChunkPinned
			}
		},
		"forgive": func(*rapid.T) {
			m.c.Forgive()
			m.settled(slices.Clone(m.old)...)
			for i, s := range m.state {
				if s == ChunkOwed {
					m.old = append(m.old, i)
				}
			}
		},
	}
}

func (m *chunksModel) settled(chunks ...uint64) {
	for _, i := range chunks {
		m.state[i] = ChunkPinned
		m.forget(i)
	}
}

func (m *chunksModel) check(t *rapid.T) {
	checkResident(t, m.c)
	resident := 0
	for i, want := range m.state {
		if got := m.c.Touch(i); got != want {
			t.Fatalf("chunk %d is %v, want %v", i, got, want)
		}
		if want >= ChunkPinned {
			resident++
		}
	}
	if m.c.Resident() != resident {
		t.Fatalf("%d resident, want %d", m.c.Resident(), resident)
	}
	victims := m.c.Victims(nil, 8)
	for _, v := range victims {
		if m.holds[v] > 0 || m.state[v] < ChunkPinned || m.state[v] == ChunkOwed {
			t.Fatalf("victim %d is %v with %d holds", v, m.state[v], m.holds[v])
		}
	}
	if sorted := slices.Sorted(slices.Values(victims)); len(slices.Compact(sorted)) != len(victims) {
		t.Fatalf("a victim was named twice: %v", victims)
	}
}

// checkResident checks the table's invariants: what is owed stands first, and every chunk knows its place.
func checkResident(t *rapid.T, c *Chunks) {
	for k, i := range c.resident {
		if d := c.at(i); int(d.slot) != k || (d.state == ChunkOwed) != (k < c.owed) || d.state < ChunkPinned {
			t.Fatalf("chunk %d is %v at place %d of %v, and thinks it is at %d; %d are owed", i, d.state, k, c.resident,
				d.slot, c.owed)
		}
	}
	if c.Owed() != c.owed || c.owed > len(c.resident) {
		t.Fatalf("%d owed of %d", c.owed, len(c.resident))
	}
}

// replay touches chunks with room for budget of them, and returns the rate of misses.
func replay(t testing.TB, cfg ChunksConfig, budget int, touches []uint64) float64 {
	c := newChunks(t, cfg)
	misses := 0
	var victims []uint64
	for _, i := range touches {
		if c.Touch(i) >= ChunkPinned {
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

// A chunk is held as often as it can be counted, and no more: else it would count as not held.
func TestHoldsAreBounded(t *testing.T) {
	c := newChunks(t, ChunksConfig{Chunks: 1})
	c.Pin(0)
	for i := range MaxHolds {
		if !c.Hold(0) {
			t.Fatalf("hold %d is refused", i)
		}
	}
	if c.Hold(0) || !c.Held(0) || len(c.Victims(nil, 1)) != 0 || c.Drop(0) {
		t.Error("one hold more than can be counted")
	}
	for range MaxHolds {
		c.Release(0)
	}
	if c.Held(0) || !c.Drop(0) {
		t.Error("held after all were released")
	}
}
